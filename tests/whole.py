"""A view model as text that can be read and compared: every field and every property of what it is made of.

Long tables and lists are shortened to their first rows, some from the rest, and how many there are. Class names are
left out, because no user sees them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from itertools import chain
from typing import Any

from llmtop.model import NO_NOTES, Series, Unknown

ROWS = 4
"""A list of more is shortened to so many."""
LINE = 160


def whole(rows: int = ROWS, /, **views: Any) -> str:
    """The text of several views by their names, with at most so many rows of each list."""
    return "\n".join(chain.from_iterable(_told(name, view, rows) for name, view in views.items()))


def chosen(count: int, rows: int) -> Sequence[int]:
    """Which of a list's elements are written: half of the rows are its first ones, the others end with its last."""
    if count <= rows:
        return range(count)
    first = rows // 2
    spread = rows - first
    return [*range(first), *(first + (count - first) * (i + 1) // spread - 1 for i in range(spread))]


def shortened(lines: Sequence[str], rows: int = ROWS) -> Sequence[str]:
    """Some lines of many, and how many are left out."""
    if len(lines) <= rows:
        return lines
    return [*(lines[i] for i in chosen(len(lines), rows)), _left_out(len(lines), rows)]


def _left_out(count: int, rows: int) -> str:
    return f"and {count - rows} more"


def _told(name: str, value: Any, rows: int) -> Iterator[str]:
    if not _is_made_of_parts(value):
        yield f"{name}: {_word(value, rows)}"
    elif _is_table(value):
        yield f"{name}: a table"
        yield from _indented([f"columns: {', '.join(column.key for column in value.columns)}"])
        yield from _indented(_rows(value, rows))
    elif isinstance(value, Mapping):
        yield f"{name}:"
        keys = list(value)
        told = (_told(_word(keys[i], rows), value[keys[i]], rows) for i in chosen(len(keys), rows * 2))
        yield from _indented(chain.from_iterable(told))
        if len(keys) > rows * 2:
            yield f"  {_left_out(len(keys), rows * 2)}"
    elif isinstance(value, Sequence | set | frozenset):
        yield from _several(name, sorted(value) if isinstance(value, set | frozenset) else value, rows)
    else:
        yield from _object(name, value, rows)


def _object(name: str, value: Any, rows: int) -> Iterator[str]:
    """Its parts on one line where there is room; what it does not have is left out."""
    parts = {part: getattr(value, part) for part in _parts(value)}
    told = {
        part: one for part, one in parts.items() if one is not None and one != () and one != "" and one is not NO_NOTES
    }
    if not any(map(_is_made_of_parts, told.values())):
        line = f"{name}: ({'; '.join(f'{part} {_word(one, rows)}' for part, one in told.items())})"
        if len(line) <= LINE:
            yield line
            return
    yield f"{name}:"
    yield from _indented(chain.from_iterable(_told(part, one, rows) for part, one in told.items()))


def _word(value: Any, rows: int) -> str:
    """One thing on a line: numbers to five digits, for the last ones differ between machines."""
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, Unknown):
        return f"unknown: {value}"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple | list | array):
        return f"({', '.join(_word(one, rows) for one in value)})"
    if isinstance(value, Series):
        return ", ".join(shortened([f"{_word(sample, rows)} at {t_ns}" for t_ns, sample in value], rows))
    return str(value) if isinstance(value, str | int) or value is None else f"a {type(value).__name__}"


def _several(name: str, values: Sequence[Any], rows: int) -> Iterator[str]:
    if not any(map(_is_made_of_parts, values)):
        yield f"{name}: {', '.join(shortened([_word(one, rows) for one in values], rows))}"
        return
    yield f"{name}: {len(values)}"
    yield from _indented(chain.from_iterable(_told("-", values[i], rows) for i in chosen(len(values), rows)))
    if len(values) > rows:
        yield f"  {_left_out(len(values), rows)}"


def _rows(table: Any, rows: int) -> Iterator[str]:
    for row in chosen(len(table), rows):
        yield " | ".join([*(_word(cell, rows) for cell in table.cells(row)), f"key {_word(table.key(row), rows)}"])
    if len(table) > rows:
        yield _left_out(len(table), rows)


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
