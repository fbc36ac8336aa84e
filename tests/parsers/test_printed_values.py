"""Numbers as tools print them, in their units and languages."""

from __future__ import annotations

import pytest

from llmtop.parsers.printed_values import base_unit, has_decimal_commas, value_printed


@pytest.mark.parametrize(
    ("prefix", "factor"),
    [("", 1), ("K", 1e3), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15)],
)
def test_prefixes_are_powers_of_a_thousand(prefix: str, factor: float) -> None:
    assert value_printed("2.5", f"{prefix}byte") == 2.5 * factor
    assert value_printed("2.5", f"cycle/{prefix}second") == 2.5 / factor
    assert base_unit(f"{prefix}byte")[0] == "bytes"


@pytest.mark.parametrize(("unit", "ns"), [("second", 1e9), ("s", 1e9), ("ms", 1e6), ("us", 1e3), ("nsecond", 1.0)])
def test_times_are_in_nanoseconds(unit: str, ns: float) -> None:
    assert value_printed("2.5", unit) == 2.5 * ns
    assert base_unit(unit)[0] == "ns"


@pytest.mark.parametrize("text", ["1e400", "9" * 400 + ".0"])
def test_what_is_larger_than_any_float_is_nothing(text: str) -> None:
    assert value_printed(text, "byte") is None


def test_one_value_shows_the_language_of_a_file() -> None:
    assert has_decimal_commas([("12", ""), ("9.495,42", "cycle")]) == (True, "")
    assert has_decimal_commas([("12", ""), ("9,495", "cycle"), ("9,495.42", "cycle")]) == (False, "")


@pytest.mark.parametrize(
    ("text", "unit", "is_comma", "is_doubtful"),
    [
        ("117.344", "ns", True, True),  # a duration in ns has no fraction
        ("117,344", "ns", False, False),
        ("117,344", "us", False, True),
        ("117.344", "us", False, True),
        ("1.117.344", "ns", True, False),
        ("1,117,344", "ns", False, False),
        ("0.344", "us", False, False),
        ("117.34", "us", False, False),
        ("117,34", "us", True, False),
        ("117", "us", False, False),
    ],
)
def test_a_language_that_does_not_show_is_doubted(text: str, unit: str, is_comma: bool, is_doubtful: bool) -> None:
    found, doubt = has_decimal_commas([("12", ""), (text, unit)])
    assert (found, bool(doubt)) == (is_comma, is_doubtful)
