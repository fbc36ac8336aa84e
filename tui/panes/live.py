"""The views of the live screen: which there are, in the order in which they stand there."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from llmtop.tui.panes.view import Place, View

MODULES = (
    "roofline",
    "server",
    "gpu",
    "threads",
    "stacks",
    "syscalls",
    "log",
    "lanes",
    "series",
    "engine_steps",
)
"""The modules beside this one whose `VIEW` has a `Place`, in the order of Tab. A new one is one file and one line."""


class LiveView(NamedTuple):
    """A view and its place; the style sheet knows it by its `name`."""

    name: str
    kind: type[View[Any]]
    place: Place


def _load(name: str) -> LiveView:
    kind: type[View[Any]] = import_module(f"llmtop.tui.panes.{name}").VIEW
    if kind.place is None:
        raise TypeError(f"{kind.__name__} has no place on the live screen")
    return LiveView(name, kind, kind.place)


LIVE_VIEWS = tuple(_load(name) for name in MODULES)
