"""What a printed page leaves out of what was collected: one reason and one remedy, wherever it is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import whats
from llmtop.analysis.kernels.instruction_mix import instruction_mix
from llmtop.analysis.kernels.lacking import lacking, missing_of_launch, typed
from llmtop.analysis.kernels.roofline_levels import roofline_levels
from llmtop.analysis.kernels.table import kernels_of, roofline_view
from llmtop.analysis.kernels.warps import warps_page
from llmtop.cli import main
from llmtop.model import Missing, Trace, Unknown, UnknownKind
from llmtop.parsers.registry import load
from tests.analysis.test_section_pages import PRINTED
from tests.kernel_traces import COMPUTE, MEMORY, Launch, report

REMEDY = "open the .ncu-rep that it was printed from, or print that with --page raw"


def page(*sections: str) -> Trace:
    """A details page on which these sections have names, and none of their values."""
    why = Unknown("the details page has what sections show first", REMEDY, UnknownKind.NOT_SHOWN)
    trace = report(Launch("k", metrics={COMPUTE: 10.0, MEMORY: 20.0}), sections=sections)
    return replace(trace, missing=(Missing(whats.OTHER_METRICS, why),))


def test_a_section_that_was_collected_is_not_asked_for_again() -> None:
    facts = kernels_of(page("WarpStateStats", "SpeedOfLight_RooflineChart")).facts(0)
    for part in (facts.stalls, facts.roof_fraction):
        assert str(part) == f"collected, but not on this page ({REMEDY})"
    assert str(facts.occupancy) == "occupancy not collected (add --section Occupancy)"


def test_a_report_lacks_what_its_sections_did_not_bring() -> None:
    trace = report(Launch("k"), sections=("WarpStateStats",))
    assert str(kernels_of(trace).facts(0).stalls) == "warp stalls not collected (add --section WarpStateStats)"


def test_what_the_page_hides_stands_apart_from_what_a_profiler_brings() -> None:
    hidden, uncollected = (one for one in lacking(page("WarpStateStats")) if one.title == "counters of kernels")
    assert hidden.parts == (
        ("other metrics", "the details page has what sections show first"),
        ("stalls", "collected, but not on this page"),
    )
    assert typed(hidden) == f"no command: {REMEDY}"
    assert "stalls" not in str(uncollected.parts)
    assert "--section WarpStateStats" not in uncollected.command
    assert "--section Occupancy" in uncollected.command


def test_details_of_a_launch_name_the_page_where_nothing_else_is_missing() -> None:
    trace = load(PRINTED)
    assert missing_of_launch(trace, kernels_of(trace).standing()[0]) == ("", REMEDY)


def test_all_views_of_a_kernel_say_the_same() -> None:
    trace = load(PRINTED)
    launch = kernels_of(trace).standing()[0]
    for found in (warps_page(trace, launch), instruction_mix(trace, launch), roofline_levels(trace, launch)):
        why = found if isinstance(found, Unknown) else found.missing
        assert why is not None
        assert why.reason.endswith("collected, but not on this page")
        assert why.remedy == REMEDY
    assert str(roofline_view(trace).why_not) == f"collected, but not on this page ({REMEDY})"


@pytest.mark.parametrize("by", ["line", "instruction"])
def test_a_printed_page_has_no_instructions_whatever_is_collected(by: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(PRINTED), "--by", by]) == 1
    error = capsys.readouterr().err
    assert "a printed page has no instructions (open the .ncu-rep that it was printed from)" in error
