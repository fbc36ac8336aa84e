"""A view model in full, as text that can be read and compared: every field and every property of everything in it.

Classes are not named: what one is called is nothing that anybody sees.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from hashlib import sha256
from itertools import chain
from typing import Any

from llmtop.model import NO_NOTES, Series, Unknown

MANY, FIRST = 16, 4
"""Of more in a row than that the first are written out, and of the others a digest: it tells that something changed."""
LINE = 160


def whole(**views: Any) -> str:
    """The text of several views by their names."""
    return "\n".join(chain.from_iterable(_told(name, view) for name, view in views.items()))


def _digest(lines: Sequence[str]) -> str:
    return sha256("\n".join(lines).encode()).hexdigest()[:12]


def _told(name: str, value: Any) -> Iterator[str]:
    if not _is_made_of_parts(value):
        yield f"{name}: {_word(value)}"
    elif _is_table(value):
        yield f"{name}: a table"
        yield from _indented([f"columns: {', '.join(column.key for column in value.columns)}"])
        yield from _indented(_rows(value))
    elif isinstance(value, Mapping):
        yield f"{name}:"
        told = chain.from_iterable(_told(_word(key), part) for key, part in value.items())
        yield from _indented(shortened(list(told), most=MANY * 4, first=FIRST * 3))
    elif isinstance(value, Sequence | set | frozenset):
        yield from _several(name, sorted(value) if isinstance(value, set | frozenset) else value)
    else:
        yield from _object(name, value)


def _object(name: str, value: Any) -> Iterator[str]:
    """Its parts on one line where there is room; what it does not have is left out."""
    parts = {part: getattr(value, part) for part in _parts(value)}
    told = {
        part: one for part, one in parts.items() if one is not None and one != () and one != "" and one is not NO_NOTES
    }
    if not any(map(_is_made_of_parts, told.values())):
        line = f"{name}: ({'; '.join(f'{part} {_word(one)}' for part, one in told.items())})"
        if len(line) <= LINE:
            yield line
            return
    yield f"{name}:"
    yield from _indented(chain.from_iterable(_told(part, one) for part, one in told.items()))


def _word(value: Any) -> str:
    """One thing on a line: numbers to five digits, for the last ones differ between machines."""
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, Unknown):
        return f"unknown: {value}"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple | list | array):
        return f"({', '.join(map(_word, value))})"
    if isinstance(value, Series):
        return ", ".join(shortened([f"{_word(sample)} at {t_ns}" for t_ns, sample in value]))
    return str(value) if isinstance(value, str | int) or value is None else f"a {type(value).__name__}"


def _several(name: str, values: Sequence[Any]) -> Iterator[str]:
    if not any(map(_is_made_of_parts, values)):
        text = [_word(one) for one in values]
        yield f"{name}: {', '.join(shortened(text))}"
        return
    yield f"{name}: {len(values)}"
    told = [list(_indented(_told("-", one))) for one in values]
    yield from shortened(list(chain.from_iterable(told)), most=MANY * 3, first=FIRST * 3)


def _rows(table: Any) -> Iterator[str]:
    rows = [" | ".join([*map(_word, table.cells(row)), f"key {_word(table.key(row))}"]) for row in range(len(table))]
    yield from shortened(rows)


def shortened(lines: Sequence[str], most: int = MANY, first: int = FIRST) -> Sequence[str]:
    """All of them, or the first ones and a digest of the others."""
    if len(lines) <= most:
        return lines
    return [*lines[:first], f"and {len(lines) - first} more ({_digest(lines[first:])})"]


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _parts(value: Any) -> list[str]:
    """The public fields of a dataclass, then its properties."""
    found = [one.name for one in fields(value)]
    for kind in reversed(type(value).__mro__):
        found += [name for name, one in vars(kind).items() if isinstance(one, property | cached_property)]
    return [name for name in dict.fromkeys(found) if not name.startswith("_")]


def _is_table(value: Any) -> bool:
    return all(hasattr(value, part) for part in ("columns", "cells", "key"))


def _is_made_of_parts(value: Any) -> bool:
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str):
        return not isinstance(value, Series) and (len(value) > 3 or any(map(_is_made_of_parts, value)))
    return isinstance(value, Mapping) or (is_dataclass(value) and not isinstance(value, Unknown | Series))
