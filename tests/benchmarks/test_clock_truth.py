"""The arithmetic of the search for a true clock; the rest needs a GPU."""

from __future__ import annotations

import pytest

from benchmarks.clock_truth import Row, constancy, estimate, ranked, word_rates
from llmtop.collectors.nvml.cycles import denominators

SMS, SECONDS, MHZ = 132, 1.5, 1414.0
ELAPSED = int(MHZ * 1e6 * SMS * SECONDS)
FIRST = [7, 1000, 5, 2000, 2**64 - 1, 9, 9]
NOW = 9 + int(SECONDS * 1e9)
SECOND = [7, 1000 + ELAPSED, 5 + ELAPSED // 2, 2000 + ELAPSED // 4, 10, NOW, NOW]


def _row(nvml_mhz: float) -> Row:
    percents = {2: 100 * (ELAPSED // 2) / ELAPSED, 7: 100 * (ELAPSED // 4) / ELAPSED}
    return Row("x", MHZ, candidates={"clock SM": nvml_mhz}, gpm=percents, first=FIRST, second=SECOND, seconds=SECONDS)


def test_what_percentages_are_taken_of_is_found() -> None:
    assert denominators(FIRST, SECOND, list(_row(1).gpm.values())) == {1: 2}


def test_the_clock_comes_out_of_a_sample_that_sums_all_sms() -> None:
    assert estimate(_row(nvml_mhz=1559.0), SMS) == pytest.approx(MHZ, rel=1e-6)


def test_a_count_that_no_number_of_units_explains_is_no_clock() -> None:
    assert estimate(_row(nvml_mhz=1980.0), SMS) is None


def test_a_candidate_is_judged_by_constancy_not_by_size() -> None:
    truths = [1000.0, 1500.0]
    assert constancy([2000.0, 3000.0], truths) == (2.0, 0.0)
    names = [name for name, _, _ in ranked({"same": [1.0, 1.0], "follows": [5.0, 7.5]}, truths)]
    assert names == ["follows", "same"]


def test_words_that_wrap_still_grow() -> None:
    rates = word_rates([0xFFFFFFFF], [0x1000F4240 - 1], 1.0)
    assert rates["low 0"] == 1_000_000
