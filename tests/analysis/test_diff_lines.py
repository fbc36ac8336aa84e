"""Two reports line by line: which lines are the same, and what became of them."""

from __future__ import annotations

import pytest

from llmtop.analysis.pages.diff.lines import LineChange, WaitingLine, line_changes, line_table, same_lines
from llmtop.analysis.pages.diff.page import diff_view
from llmtop.analysis.pages.diff.side import sides
from llmtop.model import Unknown
from llmtop.parsers.registry import load
from tests.kernel_traces import LADDER, SAMPLES, TIMELINE

BASELINE = SAMPLES / "public" / "NCAR__GPU_workshop__MW_Baseline.ncu-rep"
CHANGED = SAMPLES / "public" / "NCAR__GPU_workshop__MW_DivToMult.ncu-rep"
needs_public = pytest.mark.skipif(not BASELINE.exists(), reason="the public samples are not on this machine")


def line(number: int, text: str | None, cost_ns: float = 1.0, file: str = "a.cu") -> WaitingLine:
    return WaitingLine(file, number, text, cost_ns)


def pairs(before: list[WaitingLine], after: list[WaitingLine]) -> set[tuple[int, int]]:
    """By number, 0 for none."""
    found = same_lines(before, after)
    return {(0 if was is None else was.number, 0 if now is None else now.number) for was, now in found}


def test_a_line_is_found_where_it_has_moved_to() -> None:
    before = [line(1, "x = 1"), line(2, "y = 2"), line(3, "z = 3")]
    after = [line(1, "w = 0"), line(2, "x = 1"), line(3, "y = 2"), line(4, "z = 3")]
    assert pairs(before, after) == {(1, 2), (2, 3), (3, 4), (0, 1)}


def test_a_bracket_alone_tells_nothing() -> None:
    assert pairs([line(5, "}")], [line(9, "}")]) == {(5, 0), (0, 9)}
    assert pairs([line(5, "}")], [line(5, "}")]) == {(5, 5)}


def test_a_line_that_was_rewritten_is_the_one_in_its_place() -> None:
    before = [line(1, "x = a / b"), line(2, "y = 2")]
    after = [line(1, "x = a * c"), line(2, "y = 2")]
    assert pairs(before, after) == {(1, 1), (2, 2)}


def test_without_source_the_number_tells_and_files_are_never_mixed() -> None:
    assert pairs([line(1, None), line(2, None)], [line(2, None), line(3, None)]) == {(2, 2), (1, 0), (0, 3)}
    assert pairs([line(1, "x")], [line(1, "x", file="b.cu")]) == {(1, 0), (0, 1)}


def test_what_is_new_and_what_is_gone_say_so() -> None:
    gone, new = LineChange("k", line(1, "x", 5.0), None), LineChange("k", None, line(2, "y", 7.0))
    assert (gone.change_ns, new.change_ns) == (-5.0, 7.0)
    table = line_table((gone, new))
    assert [isinstance(cell, Unknown) for cell in table.cells(0)] == [False, False, True, False, False, True, False]
    assert [isinstance(cell, Unknown) for cell in table.cells(1)] == [False, True, False, False, True, False, False]


@needs_public
def test_a_division_that_became_a_multiplication_is_the_line_that_gained_most() -> None:
    """MW_DivToMult replaces the divisions of the interpolation, and is named after that."""
    before, after = sides(load(BASELINE), load(CHANGED))
    first = line_changes(before, after)[0]
    assert first.before is not None
    assert first.after is not None
    assert first.after.place == "miniWeather_mpi_openacc.F90:288"
    assert first.change_ns == pytest.approx(-1.2e6, rel=0.02)
    titles = [section.title for section in diff_view(load(CHANGED), "b", load(BASELINE), "a").sections]
    assert "Lines of the source" in titles


def test_a_report_beside_itself_has_no_line_that_changed() -> None:
    assert line_changes(*sides(load(LADDER), load(LADDER))) == ()


def test_a_timeline_has_no_lines() -> None:
    assert line_changes(*sides(load(TIMELINE), load(TIMELINE))) == ()
