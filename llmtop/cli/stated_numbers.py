"""docs/numbers.md: thresholds, waits and sizes, with the reasons that the code gives beside them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import llmtop

_HEAD = """\
# The numbers llmtop goes by

<!-- `make manual` writes this page; it is made of what the code says of its constants. -->

From when on something is said, how long is waited, how much is read at once: each number with what it is and why it is
this one. The names are those in the code, where they can be changed."""
PARTS: Final = {"analysis": "What is said", "collectors": "What is watched", "parsers": "What is read of files"}
"""The folders that are looked through, and what their numbers decide."""
_IN_NS: Final = {"NS": 1, "US": 1e3, "MS": 1e6, "S": 1e9}
_TIMES: Final = {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1}
_UNITS: Final = {"PERCENT": " %", "BYTES": " bytes"}
"""The unit that the last word of a name says; of times what one is in nanoseconds, and in what they are shown."""
_LONG: Final = 10_000
"""Numbers of more digits are told by thousands; years are not."""


_TABLE = ("| number | is | of what, and why |", "|---|---|---|")


def page() -> Iterator[str]:
    """The page's lines."""
    yield from _HEAD.splitlines()
    for part, title in PARTS.items():
        yield from ("", f"## {title}")
        for path in sorted((Path(llmtop.__file__).parent / part).rglob("*.py")):
            rows = tuple(_stated(part, path))
            if rows:
                yield from ("", f"`{_place(part, path)}.py`", "", *_TABLE, *rows)


def _place(part: str, path: Path) -> str:
    return "/".join(path.with_suffix("").parts[path.parts.index(part) :])


def _stated(part: str, path: Path) -> Iterator[str]:
    """Of a file the rows: of constants that are numbers, or made of some, and have a docstring."""
    documented = tuple(_documented(ast.parse(path.read_text()).body))
    if not documented:
        return
    module = importlib.import_module(f"llmtop.{_place(part, path).replace('/', '.')}")
    for names, why in documented:
        values = [getattr(module, name) for name in names]
        if all(map(_is_of_numbers, values)):
            shown = ", ".join(f"`{name.lstrip('_')}`" for name in names)
            told = ", ".join(map(_told, names, values))
            yield f"| {shown} | {told} | {why} |"


def _documented(body: Sequence[ast.stmt]) -> Iterator[tuple[list[str], str]]:
    """The names that are given values, and what a docstring right behind says of them, on one line of a table."""
    for statement, after in pairwise(body):
        match statement, after:
            case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(why))):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
                yield names, " ".join(why.replace("|", "\\|").split())


def _is_of_numbers(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) for key in value) and _is_of_numbers(tuple(value.values()))
    if isinstance(value, tuple):
        return value != () and all(map(_is_of_numbers, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _told(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_told(name, one)}" for key, one in value.items())
    if isinstance(value, tuple):
        return f"({', '.join(_told(name, one) for one in value)})"
    if not isinstance(value, int | float):
        raise TypeError(f"{name} is not made of numbers alone")
    unit = name.rpartition("_")[2]
    if unit in _IN_NS and value > 0:
        return _time(value * _IN_NS[unit])
    return (f"{value:,}" if isinstance(value, int) and value >= _LONG else f"{value:.12g}") + _UNITS.get(unit, "")


def _time(ns: float) -> str:
    """In full, in the largest unit of which it has one: none of its digits is lost."""
    unit, each = next((unit, each) for unit, each in _TIMES.items() if ns >= each or each == 1)
    return f"{ns / each:.12g} {unit}"


if __name__ == "__main__":
    print("\n".join(page()))
