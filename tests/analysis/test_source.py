"""Where in its code a kernel waits: sums by line and instruction, and the tables made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.analysis.kernels.lacking import DataKind, lacking
from llmtop.analysis.kernels.source import KernelSource, kernel_source, sampled_launches
from llmtop.analysis.kernels.source_table import CodeBy, code_rows, code_table, hot_line, reason_text, said_of_code
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import Trace, Unknown
from llmtop.parsers.registry import load
from tests.kernel_traces import LADDER, LLAMA, TIMELINE, without_lines

CONFLICTS = LADDER.with_name("bank-conflicts.ncu-rep.xz")
UNFUSED = LADDER.with_name("unfused.ncu-rep.xz")


def of(path: Path, launch: int = 0) -> tuple[Trace, KernelSource]:
    trace = load(path)
    source = kernel_source(trace, launch)
    assert not isinstance(source, Unknown), source
    return trace, source


@pytest.mark.parametrize("path", [LADDER, CONFLICTS, UNFUSED], ids=lambda path: path.name)
def test_instructions_and_lines_add_up_to_the_kernels_own_numbers(path: Path) -> None:
    trace, source = of(path)
    assert trace.kernels is not None
    assert trace.kernels.details is not None
    metrics = trace.kernels.details.metrics(0)
    total = source.total
    assert total.samples == metrics["smsp__pcsamp_sample_count"]
    assert total.executed == metrics["inst_executed"]
    assert dict(total.waiting).get("long_scoreboard", 0) == metrics["smsp__pcsamp_warps_issue_stalled_long_scoreboard"]
    assert total.not_issued == sum(
        int(value) for name, value in metrics.items() if name.startswith("smsp__pcsamp_") and name.endswith("_issued")
    )
    assert sum(one.samples or 0 for one in source.instructions) == total.samples
    assert sum(one.spent.samples or 0 for one in source.lines) == total.samples
    assert sum(one.spent.executed or 0 for one in source.lines) == total.executed
    assert sum(source.share(one.spent) or 0 for one in source.lines) == pytest.approx(1)


def test_issuing_is_no_waiting() -> None:
    _, source = of(CONFLICTS)
    assert source.total.samples is not None
    assert source.total.stalls < source.total.samples
    assert "selected" not in source.reasons


def test_the_hottest_line_and_instruction_are_known_with_their_reason() -> None:
    _, source = of(CONFLICTS)
    hottest = source.lines[0]
    assert (hottest.file, hottest.line) == ("/src/build/benchmarks/known_causes.cu", 88)
    text = "for (int round = 0; round < rounds; ++round) sum += tile[lane * 32 + ((warp + round) & 31)];"
    assert source.line_text(hottest.file, hottest.line) == text
    assert source.code.offsets[source.hottest[0]] == 0x3C0
    assert reason_text(source.instructions[source.hottest[0]]) == "short_scoreboard 100 %"
    assert source.share(source.instructions[source.hottest[0]], "mio_throttle") == pytest.approx(0.0, abs=0.01)


def test_threads_and_excess_are_those_of_the_counters() -> None:
    _, source = of(CONFLICTS)
    total = source.total
    assert total.thread_share is not None
    assert 0.9 < total.thread_share <= 1
    assert total.shared is not None
    assert total.shared_excess is not None
    assert 0.9 < total.shared_excess / total.shared < 1, "32 threads of a warp in one bank"


def test_a_line_that_the_source_does_not_have_is_unknown() -> None:
    _, source = of(LADDER)
    assert source.line_text("/srv/llm/ladder.cu", 4000) == Unknown("/srv/llm/ladder.cu has no line 4000")
    assert isinstance(source.line_text("/elsewhere.cu", 1), Unknown)


def test_without_samples_nothing_is_shown_as_none() -> None:
    trace, source = of(LLAMA)
    assert source.total.samples is None
    assert source.why_no_samples == Unknown("the warps were not sampled", "add --section SourceCounters")
    rows = code_rows(trace, CodeBy.LINE)
    assert isinstance(rows, Unknown)
    assert "-lineinfo" in rows.remedy


def test_of_a_kernel_one_launch_stands_for_all_and_names_choose() -> None:
    trace = load(UNFUSED)
    assert len(sampled_launches(trace)) == 5
    assert len(sampled_launches(trace, "SILU")) == 1
    assert code_rows(trace, CodeBy.LINE, "no such") == Unknown('no kernel has "no such" in its name')


POWER = "__internal_accurate_pow"


def test_code_without_lines_stands_among_the_lines_by_function() -> None:
    trace = load(CONFLICTS)
    source = without_lines(trace, POWER, {0x3C0})
    rows = code_rows(trace, CodeBy.LINE)
    assert not isinstance(rows, Unknown)
    assert sum(source.share(row.spent) or 0 for row in rows) == pytest.approx(1)
    assert [row.place or row.function for row in rows[:2]] == ["known_causes.cu:88", POWER]
    assert source.share(rows[1].spent) == source.share(source.instructions[source.code.offsets.index(0x3C0)])
    assert code_table(rows, CodeBy.LINE).cells(1)[1:3] == ("(no line)", POWER)


def test_code_without_lines_is_evidence_where_it_is_hottest() -> None:
    trace = load(CONFLICTS)
    source = kernel_source(trace, 0)
    assert not isinstance(source, Unknown)
    line = {source.code.offsets[i] for i in source.lines[0].instructions}
    trace = load(CONFLICTS)
    without_lines(trace, POWER, line)
    said = hot_line(trace, 0)
    assert said == f"99 % of its waiting is code without lines in `{POWER}`, mostly mio_throttle 54 % (ncu)"


def test_what_has_no_code_says_what_has() -> None:
    rows = code_rows(load(TIMELINE), CodeBy.LINE)
    assert isinstance(rows, Unknown)
    (counters,) = [group for group in lacking(load(TIMELINE)) if group.title is DataKind.COUNTERS]
    assert rows.remedy == counters.command
    assert "--set full" in rows.remedy


def test_a_table_names_place_text_share_and_reason() -> None:
    rows = code_rows(load(UNFUSED), CodeBy.LINE, "silu")
    assert not isinstance(rows, Unknown)
    table = code_table(rows, CodeBy.LINE)
    cells = dict(zip([column.key for column in table.columns], table.cells(0), strict=True))
    assert cells["kernel"] == "silu_kernel"
    assert cells["line"] == "known_causes.cu:298"
    assert cells["name"] == "if (i < count) out[i] = in[i] / (1.0f + __expf(-in[i]));"
    assert cells["samples"] == 2893
    assert cells["reason"] == "long_scoreboard 75 %"


def test_what_is_not_known_of_all_kernels_is_said_once() -> None:
    said = said_of_code(load(LLAMA), CodeBy.LINE)
    assert said == [
        "the warps were not sampled (add --section SourceCounters)",
        "the kernel was compiled without line numbers (compile it with nvcc -lineinfo; Triton and Numba write them)",
    ]


def test_the_line_that_has_most_of_the_waiting_is_evidence() -> None:
    (finding,) = [one for one in diagnose(load(CONFLICTS)).findings if one.rule == "kernel-bank-conflicts"]
    text = "for (int round = 0; round < rounds; ++ro…ile[lane * 32 + ((warp + round) & 31)];"
    said = f"99 % of its waiting is line 88 of known_causes.cu: `{text}`, mostly mio_throttle 54 % (ncu)"
    assert said in finding.evidence


def test_a_line_is_no_evidence_where_it_says_nothing() -> None:
    assert hot_line(load(LADDER), 0) == "", "all of the kernel is one line"
    assert hot_line(load(LLAMA), 0) == "", "nothing was sampled"
    assert hot_line(load(TIMELINE), 0) == ""


def test_where_waiting_is_spread_over_lines_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, _ = of(CONFLICTS)
    assert hot_line(trace, 0)
    monkeypatch.setattr(KernelSource, "share", lambda self, spent, reason="": 0.24)
    assert hot_line(trace, 0) == ""
    monkeypatch.setattr(KernelSource, "share", lambda self, spent, reason="": 0.25)
    assert hot_line(trace, 0).startswith("25 % of its waiting is line 88")
