"""Values as Nsight Compute prints them: scaled to a handy unit, digits grouped as the user's language does."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmtop.model import Value

_NOTHING = frozenset({"", "n/a", "no data", "nan", "-nan", "inf", "-inf"})
_NUMBER = re.compile(r"([+-]?\d[\d,]*)(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
_POINT_COMMA = re.compile(r"[+-]?(?:\d[\d.]*,(?:\d{1,2}|\d{4,})|\d{1,3}(?:\.\d{3}){2,}|\d{1,3}(?:\.\d{3})+,\d+)")
"""A number of a language with decimal commas: no language groups the last digits other than by three."""
_COMMA_POINT = re.compile(r"[+-]?(?:\d[\d,]*\.(?:\d{1,2}|\d{4,})|\d{1,3}(?:,\d{3}){2,}|\d{1,3}(?:,\d{3})+\.\d+)")
"""The same of decimal points."""
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2}([.,])\d{3}")
"""A number of thousands in one kind of language, one with three decimals in the other."""
_WHOLE = frozenset({"ns", "nsecond", "block", "thread", "byte", "byte/block", "register/thread"})
"""Units of which there are no parts: what looks like three decimals of such a number are thousands."""
_LOOKED_AT = 20_000
"""Values of a file; the first kernel alone has a thousand where all metrics were collected."""
_SWAPPED = str.maketrans(",.", ".,")
_INSTANCES = re.compile(r"\s*\([^()]*;[^()]*\)\s*\Z")
"""What `--print-metric-instances` puts behind a value."""
_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "K": 3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_SCALED = re.compile(r"([numKkMGTP]?)(second|s|byte|hz|Hz)")
_BASES: Final = {"second": "s", "s": "s", "byte": "bytes", "hz": "Hz", "Hz": "Hz"}
_NANO = 9


def has_decimal_commas(values: Iterable[tuple[str, str]]) -> tuple[bool, str]:
    """Whether a file was printed in a language with decimal commas, and what is doubtful about that.

    Args:
        values: Of its values the texts and units.

    >>> has_decimal_commas([("9.495,42", "cycle"), ("117.344", "ns")])
    (True, '')
    >>> has_decimal_commas([("117.344", "ns")])[0], has_decimal_commas([("117.344", "us")])[0]
    (True, False)
    """
    are_thousands, unclear = False, ""
    for text, unit in islice(values, _LOOKED_AT):
        if _POINT_COMMA.fullmatch(text):
            return True, ""
        if _COMMA_POINT.fullmatch(text):
            return False, ""
        if (found := _EITHER.fullmatch(text)) and (found[1] == "." or unit not in _WHOLE):
            unclear = unclear or f"{text} {unit}".strip()
            are_thousands |= found[1] == "." and unit in _WHOLE
    if are_thousands:
        return True, f"{unclear} is read with a point between thousands, as a number without fractions"
    if not unclear:
        return False, ""
    read = "with a decimal point" if "." in unclear else "with a comma between thousands"
    return False, f"{unclear} is read {read}, and may be of a language that has these the other way round"


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
