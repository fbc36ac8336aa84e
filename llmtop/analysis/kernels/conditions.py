"""A small language of conditions on named values: `duration > 100us and (dram% > 50 or name ~ gemm)`.

    condition  = and-part { "or" and-part }
    and-part   = not-part { "and" not-part }
    not-part   = [ "not" ] ( "(" condition ")" | comparison )
    comparison = name operator value
    operator   = > >= < <= = == != ~ !~          (~: has the text in it)
    value      = number [ unit ] | word | "any text"

What a name stands for is the business of whoever asks. A comparison with a value that is not known is neither true nor
false, and neither is what rests on it alone: nothing is chosen for what nobody knows.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from llmtop.frozen import frozen
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.analysis.views import Cell

Holds: TypeAlias = "bool | None"
"""None where that is not known."""
_TOKEN = re.compile(r'\s*(?:([()])|(!~|[<>=!]=|[<>=~])|"([^"]*)"|([^\s()<>=!~"]+))')
_BRACKET, _OPERATOR, _QUOTED, _WORD = 1, 2, 3, 4
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(\D\S*)?", re.IGNORECASE)
_LOOKS = re.compile(r'[\s(]*(?:not[\s(]+)?(?:"[^"]+"|[\w%#.:]+)\s+(?:!~|[<>=!]=|[<>=~])\s*[^\s<>=~]')
"""With a space before its operator: `f<int` is a piece of a name."""
_SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
_UNITS: Mapping[str, tuple[str, float]] = {
    **{unit: ("time", factor) for unit, factor in {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}.items()},
    **{f"{scale}{name}": ("bytes", factor) for scale, factor in _SCALES.items() for name in ("B", "bytes")},
    **{f"{scale}{name}": ("bytes/s", factor) for scale, factor in _SCALES.items() for name in ("B/s", "bytes/s")},
    **{f"{scale}{name}": (name, factor) for scale, factor in _SCALES.items() for name in ("Hz", "FLOP/s")},
    "%": ("%", 1.0),
    "ratio": ("%", 100.0),
}
"""By unit what it measures, and how much of that it is."""
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
_OF_TEXTS = ("=", "==", "!=", "~", "!~")
_EXAMPLE = 'as in: duration > 100us and dram% > 50 and name ~ "gemm"'


@frozen
class Comparison:
    """One name beside one value.

    Attributes:
        name: As it was written.
        sign: One of the operators.
        value: As it was written, without quotes.
        is_text: Whether it had quotes.
    """

    name: str
    sign: str
    value: str
    is_text: bool = False

    def holds(self, cell: Cell, unit: str) -> Holds:
        """Whether it does for a value in a unit.

        Raises:
            ConditionError: The two cannot be compared.
        """
        if not is_known(cell):
            return None
        if isinstance(cell, str):
            return self._holds_of_text(cell)
        wanted = self._number(unit)
        return _COMPARE[self.sign](float(cell) * _UNITS.get(unit, ("", 1.0))[1], wanted)

    def _holds_of_text(self, text: str) -> bool:
        wanted, found = self.value.casefold(), text.casefold()
        if self.sign not in _OF_TEXTS:
            raise ConditionError(f"{self.name} is a text, and no text is {self.sign} another: use ~ or =")
        is_there = wanted in found if "~" in self.sign else wanted == found
        return is_there is not self.sign.startswith("!")

    def _number(self, unit: str) -> float:
        """The value in what the unit measures."""
        measure, _ = _UNITS.get(unit, ("", 1.0))
        match = None if self.is_text or "~" in self.sign else _NUMBER.fullmatch(self.value)
        if match is None:
            raise ConditionError(f'{self.name} is a number: "{self.sign} {self.value}" cannot be asked of it')
        written = match[2] or ""
        if written in _UNITS:
            told, factor = _UNITS[written]
            if told != measure:
                raise ConditionError(f"{self.name} is no {told}, as {self.value} is{_in_units(measure)}")
            return float(match[1]) * factor
        if written not in _SCALES:
            raise ConditionError(f"{self.value}: no such unit{_in_units(measure)}")
        if measure == "time":
            raise ConditionError(f"{self.name} needs a unit, as in {self.name} {self.sign} {match[1]}us")
        return float(match[1]) * _SCALES[written]


def _in_units(measure: str) -> str:
    """Which units there are of what is measured."""
    units = [unit for unit, (of, _) in _UNITS.items() if of == measure and unit != "ratio"]
    return f"; it may be in {', '.join(units)}" if units else "; it has none"


@frozen
class Junction:
    """Conditions of which all ("and"), any ("or"), or not the only one ("not") must hold."""

    kind: str
    parts: tuple[Condition, ...]


Condition: TypeAlias = "Comparison | Junction"


class ConditionError(Exception):
    """A condition that cannot be read, or not be asked, in one line."""


class NoSuchNameError(ConditionError):
    """A condition on what these kernels do not have: of others it may be asked."""


def is_known(cell: Cell) -> TypeGuard[str | float]:
    """Whether there is a value to compare."""
    return not (cell is None or isinstance(cell, Unknown) or cell != cell)


def looks_like_condition(text: str) -> bool:
    """Whether a text that may be one of both is meant as a condition, and not to be looked for in names.

    >>> [looks_like_condition(text) for text in ("gemm", "duration > 1ms", "not (occ < 50)", "f<int, 4>", "l1 >")]
    [False, True, True, False, False]
    """
    return _LOOKS.match(text) is not None


def condition_of(text: str) -> Condition:
    """What a text asks.

    Raises:
        ConditionError: It is none.
    """
    tokens = _Tokens(text)
    found = _any_of(tokens)
    if (rest := tokens.peek()) is not None:
        raise ConditionError(f'"{rest[0]}": here is "and", "or" or the end expected, {_EXAMPLE}')
    return found


def comparisons(condition: Condition) -> Iterator[Comparison]:
    """All of a condition, from left to right."""
    if isinstance(condition, Comparison):
        yield condition
        return
    for part in condition.parts:
        yield from comparisons(part)


def holds(condition: Condition, of: Callable[[Comparison], Holds]) -> Holds:
    """Whether a condition does, where `of` tells it of a comparison."""
    if isinstance(condition, Comparison):
        return of(condition)
    found = [holds(part, of) for part in condition.parts]
    if condition.kind == "not":
        return None if found[0] is None else not found[0]
    decides = condition.kind == "or"
    return decides if decides in found else None if None in found else not decides


class _Tokens:
    """A text in tokens: (text, kind), from left to right."""

    def __init__(self, text: str) -> None:
        self._left = [(match[match.lastindex or 0], match.lastindex or 0) for match in _tokens(text)]

    def peek(self) -> tuple[str, int] | None:
        """The next one, which stays; None at the end."""
        return self._left[0] if self._left else None

    def take(self, wanted: str, *kinds: int) -> tuple[str, int]:
        """The next one, which is to be of one of these kinds."""
        found = self.peek()
        if found is None or found[1] not in kinds:
            where = "the condition ends" if found is None else f'"{found[0]}" stands'
            raise ConditionError(f"{where} where {wanted} is expected, {_EXAMPLE}")
        return self._left.pop(0)

    def takes(self, text: str) -> bool:
        """Whether the next one is this word or bracket: then it is taken."""
        found = self.peek()
        is_it = found is not None and found[1] != _QUOTED and found[0].casefold() == text
        if is_it:
            self._left.pop(0)
        return is_it


def _tokens(text: str) -> Iterator[re.Match[str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConditionError(f'"{text[at:].strip()}" cannot be read, {_EXAMPLE}')
        yield match
        at = match.end()


def _any_of(tokens: _Tokens) -> Condition:
    parts = [_all_of(tokens)]
    while tokens.takes("or"):
        parts.append(_all_of(tokens))
    return parts[0] if len(parts) == 1 else Junction("or", tuple(parts))


def _all_of(tokens: _Tokens) -> Condition:
    parts = [_one(tokens)]
    while tokens.takes("and"):
        parts.append(_one(tokens))
    return parts[0] if len(parts) == 1 else Junction("and", tuple(parts))


def _one(tokens: _Tokens) -> Condition:
    if tokens.takes("not"):
        return Junction("not", (_one(tokens),))
    if tokens.takes("("):
        within = _any_of(tokens)
        if not tokens.takes(")"):
            tokens.take('")"', 0)
        return within
    return _comparison(tokens)


def _comparison(tokens: _Tokens) -> Comparison:
    name, _ = tokens.take("a name", _WORD, _QUOTED)
    sign, _ = tokens.take(f'an operator after "{name}"', _OPERATOR)
    value, kind = tokens.take(f'a value after "{sign}"', _WORD, _QUOTED)
    follows = tokens.peek()
    if kind == _WORD and _NUMBER.fullmatch(value) and follows is not None and follows[0] in _UNITS:
        value += tokens.take("a unit", _WORD)[0]
    return Comparison(name, sign, value, kind == _QUOTED)
