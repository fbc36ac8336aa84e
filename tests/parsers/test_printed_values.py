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
    assert has_decimal_commas(["12", "9.495,42"])
    assert not has_decimal_commas(["12", "9,495.42", "9,495"])
