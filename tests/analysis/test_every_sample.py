"""What holds of every capture at hand: each is loaded once, and all invariants are tried on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtop.analysis.rules.registry import diagnose
from llmtop.errors import FileError
from llmtop.model import Trace
from llmtop.parsers.registry import load
from tests.analysis.test_consistency import contradictions
from tests.analysis.test_idle_time import busy_time_equals_plain_sql
from tests.analysis.test_kernels import a_report_has_a_table_and_views
from tests.analysis.test_memory_chart import both_ends_of_the_crossbar_tell_the_same
from tests.analysis.test_occupancy import occupancy_is_what_the_tool_stored
from tests.analysis.test_profiling import no_finding_asks_for_what_its_report_has
from tests.analysis.test_roofline_levels import points_and_ceilings_are_those_of_nvidias_charts
from tests.analysis.test_rules_idle import covers_each_gpu, held_to_its_words
from tests.analysis.test_rules_kernels import no_kernel_is_told_two_causes_of_one_kind
from tests.analysis.test_section_pages import every_page_is_there_or_says_why_not, opcodes_add_up_to_what_was_executed
from tests.analysis.test_speed_of_light import a_throughput_is_the_largest_of_its_parts
from tests.analysis.test_steps import (
    a_row_of_a_gpu_is_its_idle_account,
    all_idle_pieces_together_are_the_account_of_idle_time,
    the_columns_of_numpy_give_the_same_pieces,
    the_time_of_each_step_is_what_going_from_edge_to_edge_gives,
)
from tests.conftest import clear_analysis
from tests.parsers.kineto_files import kineto_traces
from tests.parsers.sample_reports import OTHERS, SAMPLE_TRACES, content, ncu_reports

OF_OTHERS = {path.name.split("__")[0]: path for path in sorted((OTHERS / "public").glob("*.sqlite"))}
EXPORTS = [*sorted(SAMPLE_TRACES.rglob("*.sqlite.xz")), *OF_OTHERS.values()]
CSV = sorted(SAMPLE_TRACES.rglob("*.csv.xz"))
NO_CAPTURES = (".md", ".jsonl", ".prom", ".py", ".nsys-rep")
ALL = [*SAMPLE_TRACES.rglob("*.*"), *(OTHERS / "public").glob("*.csv")]
ALL += (OTHERS.parent / "review" / "cases").glob("*.*")
REST = [
    path
    for path in sorted({*ALL}.difference(EXPORTS, CSV, ncu_reports(), kineto_traces()))
    if path.is_file() and path.stat().st_size and not path.name.endswith(NO_CAPTURES)
]


@pytest.fixture(autouse=True)
def _none_is_kept() -> Iterator[None]:
    yield
    clear_analysis()


def holds_of_any(trace: Trace) -> None:
    held_to_its_words(trace)
    no_finding_asks_for_what_its_report_has(trace)
    no_kernel_is_told_two_causes_of_one_kind(trace)
    assert list(contradictions(trace, diagnose(trace).findings)) == []


@pytest.mark.parametrize("path", CSV, ids=lambda path: path.name)
def test_what_holds_of_printed_reports(path: Path) -> None:
    trace = load(path)
    holds_of_any(trace)
    a_report_has_a_table_and_views(trace)


@pytest.mark.parametrize("path", ncu_reports(), ids=lambda path: path.name)
def test_what_holds_of_reports_of_kernels(path: Path) -> None:
    trace = load(path)
    holds_of_any(trace)
    a_report_has_a_table_and_views(trace)
    a_throughput_is_the_largest_of_its_parts(trace)
    both_ends_of_the_crossbar_tell_the_same(trace)
    every_page_is_there_or_says_why_not(trace)
    occupancy_is_what_the_tool_stored(trace)
    opcodes_add_up_to_what_was_executed(trace)
    points_and_ceilings_are_those_of_nvidias_charts(path, trace)


@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.name)
def test_what_holds_of_exported_timelines(path: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.sqlite"
    plain.write_bytes(content(path))
    trace = load(plain)
    holds_of_any(trace)
    covers_each_gpu(trace)
    a_row_of_a_gpu_is_its_idle_account(trace)
    all_idle_pieces_together_are_the_account_of_idle_time(trace)
    busy_time_equals_plain_sql(plain, trace)
    the_columns_of_numpy_give_the_same_pieces(plain, trace)
    the_time_of_each_step_is_what_going_from_edge_to_edge_gives(plain, trace)


@pytest.mark.parametrize("path", kineto_traces(), ids=lambda path: path.name)
def test_what_holds_of_pytorch_traces(path: Path) -> None:
    trace = load(path)
    holds_of_any(trace)
    all_idle_pieces_together_are_the_account_of_idle_time(trace)
    the_columns_of_numpy_give_the_same_pieces(path, trace)


@pytest.mark.parametrize("path", REST, ids=lambda path: path.name)
def test_what_holds_of_all_others(path: Path) -> None:
    try:
        trace = load(path)
    except FileError:
        pytest.skip("it is refused, or takes a tool that is not here")
    assert list(contradictions(trace, diagnose(trace).findings)) == []
