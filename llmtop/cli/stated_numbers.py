"""docs/numbers.md: thresholds, waits and sizes, with the reasons that the code gives beside them."""

from __future__ import annotations

import ast
import importlib
import io
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Final

import llmtop
from llmtop.model import Metric, Unknown

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
        for file in files(part):
            rows = tuple(rows_of(file))
            if rows:
                yield from ("", f"`{file}`", "", *_TABLE, *rows)


def files(part: str) -> Iterator[str]:
    """The files of a part, by their paths within the package."""
    package = Path(llmtop.__file__).parent
    return (str(path.relative_to(package)) for path in sorted((package / part).rglob("*.py")))


def rows_of(file: str) -> Iterator[str]:
    """Of a file the rows: of constants that are explained, and are numbers or have some among their parts."""
    documented = tuple(_documented((Path(llmtop.__file__).parent / file).read_text()))
    if not documented:
        return
    module = importlib.import_module(f"llmtop.{file.removesuffix('.py').replace('/', '.')}")
    for names, why in documented:
        values = [getattr(module, name) for name in names]
        leaves = [leaf for value in values for leaf in _leaves(value)]
        if all(map(_is_told, leaves)) and any(map(_is_number, leaves)):
            shown = ", ".join(f"`{name.lstrip('_')}`" for name in names)
            told = ", ".join(_told(name, value).replace("|", "\\|") for name, value in zip(names, values, strict=True))
            yield f"| {shown} | {told} | {why} |"


def _documented(text: str) -> Iterator[tuple[list[str], str]]:
    """The names that a text gives values, and what it says of them right behind: in a docstring, or on the line."""
    body, comments = ast.parse(text).body, dict(_comments(text))
    for statement, after in pairwise([*body, ast.Pass()]):
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            why = _docstring(after) or comments.get(statement.end_lineno or 0, "")
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            found = (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
            names = [name for name in found if name.isupper()]  # others are no constants: what a cache holds changes
            if why and names:
                yield names, " ".join(why.replace("|", "\\|").split())


def _docstring(statement: ast.stmt) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """By line what is said at its end; what a tool is told there says nothing to readers."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:", "# fmt:")):
            yield token.start[0], token.string.removeprefix("#").strip()


def _parts(value: object) -> Iterable[tuple[str, object]] | None:
    """What something is made of, with the names of these parts; None of what is one thing."""
    match value:
        case Mapping():
            return [(_told("", key), one) for key, one in value.items()]
        case tuple():
            return [("", one) for one in value]
        case frozenset():
            return [("", one) for one in sorted(value, key=lambda one: (len(str(one)), str(one)))]
        case _ if is_dataclass(value) and not isinstance(value, Metric | Unknown):
            return [(one.name, getattr(value, one.name)) for one in fields(value)]
    return None


def _leaves(value: object) -> Iterator[object]:
    parts = _parts(value)
    for _, part in parts or ():
        yield from _leaves(part)
    if parts is None:
        yield value


def _is_number(leaf: object) -> bool:
    return isinstance(leaf, int | float) and not isinstance(leaf, bool)


def _is_told(leaf: object) -> bool:
    """Whether it can be read: functions and patterns cannot."""
    return leaf is None or isinstance(leaf, int | float | str | Enum | Metric)


def _told(name: str, value: object) -> str:
    """A value, as a constant or a field of this name has it: the last word of that may be its unit."""
    parts = _parts(value)
    if parts is not None:
        is_named = is_dataclass(value)
        told = ", ".join(f"{part} {_told(part if is_named else name, one)}".lstrip() for part, one in parts)
        return told if isinstance(value, Mapping) else f"({told})"
    if isinstance(value, Metric | Enum):
        return value.name if isinstance(value, Metric) else str(value.value)
    return _number(name, value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _number(name: str, value: float) -> str:
    unit = name.rpartition("_")[2].upper()
    if unit in _IN_NS and value > 0:
        return _time(value * _IN_NS[unit])
    return (f"{value:,}" if isinstance(value, int) and value >= _LONG else f"{value:.12g}") + _UNITS.get(unit, "")


def _time(ns: float) -> str:
    """In full, in the largest unit of which it has one: none of its digits is lost."""
    unit, each = next((unit, each) for unit, each in _TIMES.items() if ns >= each or each == 1)
    return f"{ns / each:.12g} {unit}"


if __name__ == "__main__":
    print("\n".join(page()))
