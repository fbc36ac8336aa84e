"""Values as Nsight Compute prints them: scaled to a handy unit, digits grouped as the user's language does."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmtop.model import Value

_NOTHING = frozenset({"", "n/a", "no data", "nan", "-nan", "inf", "-inf"})
_NUMBER = re.compile(r"([+-]?\d[\d,]*)(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
_POINT_COMMA = re.compile(r"[+-]?\d[\d.]*,(?:\d{1,2}|\d{4,})")
"""A number with a decimal comma: no language groups the last digits other than by three."""
_SWAPPED = str.maketrans(",.", ".,")
_INSTANCES = re.compile(r"\s*\([^()]*;[^()]*\)\s*\Z")
"""What `--print-metric-instances` puts behind a value."""
_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "K": 3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_SCALED = re.compile(r"([numKkMGTP]?)(second|s|byte|hz|Hz)")
_BASES: Final = {"second": "s", "s": "s", "byte": "bytes", "hz": "Hz", "Hz": "Hz"}
_NANO = 9


def has_decimal_commas(texts: Iterable[str]) -> bool:
    """Whether any of the values of a file shows that it was printed in a language with decimal commas."""
    return any(_POINT_COMMA.fullmatch(text) for text in texts)


def value_printed(text: str, unit: str, *, decimal_comma: bool = False) -> Value | None:
    """A value in the base unit of what it is printed in (`base_unit`); None where nothing stands for it.

    >>> value_printed("6.75", "us"), value_printed("9,495.42", "cycle"), value_printed("13,485", "cycle")
    (6750.0, 9495.42, 13485)
    >>> value_printed("9.495,42", "cycle", decimal_comma=True), value_printed("12 (1; 2)", "")
    (9495.42, 12)
    >>> value_printed("CachePreferNone", ""), value_printed("n/a", "")
    ('CachePreferNone', None)
    """
    told = _INSTANCES.sub("", text).strip()
    if told.lower() in _NOTHING:
        return None
    # French groups digits with (narrow) spaces.
    plain = "".join(told.split())
    number = _NUMBER.fullmatch(plain.translate(_SWAPPED) if decimal_comma else plain)
    return clean(told) if number is None else _scaled(number, base_unit(unit)[1])


def _scaled(number: re.Match[str], exponent: int) -> float | int | None:
    whole, fraction, power = number[1].replace(",", ""), number[2], number[3]
    if fraction is None and power is None and not exponent:
        return int(whole)
    # As text, a power of ten costs no digit.
    scaled = float(f"{whole}{fraction or ''}e{int((power or 'e0')[1:]) + exponent}")
    return scaled if math.isfinite(scaled) else None


@lru_cache(maxsize=256)
def base_unit(unit: str) -> tuple[str, int]:
    """The unit that others are scaled from, as `llmtop.model.Metric` has it, and by which power of ten.

    >>> base_unit("Kbyte/second"), base_unit("us"), base_unit("cycle/nsecond"), base_unit("inst/cycle")
    (('bytes/s', 3), ('ns', 3), ('Hz', 9), ('inst/cycle', 0))
    >>> base_unit("%/Kbyte")
    ('%/byte', 3)
    """
    above, slash, below = unit.partition("/")
    name, exponent = _unscaled(above)
    if not slash:
        return ("ns", exponent + _NANO) if name == "s" else (name, exponent)
    per, fewer = _unscaled(below)
    rate = "Hz" if (name, per) == ("cycle", "s") else f"{name}/{per.removesuffix('s') or per}"
    # Of what is per byte it scales the whole: 5300 %/byte are printed as 5.3 %/Kbyte.
    return rate, exponent + fewer if per == "bytes" else exponent - fewer


def _unscaled(unit: str) -> tuple[str, int]:
    scaled = _SCALED.fullmatch(unit)
    return (_BASES[scaled[2]], _EXPONENTS[scaled[1]]) if scaled else (clean(unit), 0)
