"""What is told of a recording: the same as live, but for remedies that come too late.

Whether one does is said where it is written (`UnknownKind.PASSING`), and whether it is too late by where a trace comes
from. A view is made without asking for either; all that is unknown in it is gone through here, before it is drawn.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from llmtop.model import RECORDING, Trace, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_T = TypeVar("_T")
_DEEP = 6
"""Parts of parts that are gone through: rows and cells of a view lie less deep, functions of its stacks deeper."""


def is_recorded(trace: Trace) -> bool:
    """Whether what a trace tells comes too late to look again."""
    return trace.origin.kind == RECORDING


def told_of(trace: Trace, view: _T) -> _T:
    """A view of a trace, or any part of one: of a recording without remedies for who looked at the time.

    Args:
        trace: What it was made of.
        view: Frozen classes, tuples and maps, of which what has no such remedy stays the same object.
    """
    return cast("_T", _recorded(view, _DEEP)) if is_recorded(trace) else view


def _recorded(value: Any, depth: int) -> Any:
    if isinstance(value, Unknown):
        return value.recorded
    if not depth:
        return value
    if type(value) is tuple:
        changed = dict(_changed(enumerate(value), depth))
        return tuple(changed.get(i, one) for i, one in enumerate(value)) if changed else value
    if type(value) is dict:
        changed = dict(_changed(value.items(), depth))
        return value | changed if changed else value
    if is_dataclass(value) and not isinstance(value, type | Trace):
        changed = dict(_changed(((one.name, getattr(value, one.name)) for one in fields(value) if one.init), depth))
        return replace(value, **changed) if changed else value
    return value


def _changed(parts: Iterable[tuple[Any, Any]], depth: int) -> Iterator[tuple[Any, Any]]:
    """Those of the parts of which something is told in another way."""
    for name, value in parts:
        if (made := _recorded(value, depth - 1)) is not value:
            yield name, made
