"""Rules over reports: each speaks on its pattern, and stays silent without it."""

from __future__ import annotations

import pytest

from llmtop.analysis.rules import (
    kernel_access,
    kernel_compute_roof,
    kernel_latency,
    kernel_long_scoreboard,
    kernel_memory_roof,
    tool_advice,
)
from llmtop.analysis.rules.base import Rule
from llmtop.analysis.rules.registry import RULES, diagnose
from llmtop.model import Origin, RuleResult, Severity, Trace, Value
from llmtop.parsers.registry import load
from tests.kernel_traces import (
    COMPUTE,
    DRAM,
    DRAM_COUNTERS,
    LADDER,
    LLAMA,
    MEMORY,
    OCCUPANCY,
    STALL,
    TIMELINE,
    WAVES,
    Launch,
    fp32_counters,
    report,
    stall_ratios,
)

REPORT_RULES = (
    kernel_access,
    kernel_compute_roof,
    kernel_latency,
    kernel_long_scoreboard,
    kernel_memory_roof,
    tool_advice,
)


@pytest.mark.parametrize("rule", REPORT_RULES, ids=lambda rule: rule.id)
def test_a_rule_is_registered_and_says_nothing_of_nothing(rule: Rule) -> None:
    assert rule in RULES
    for trace in (Trace(Origin("live")), report(), report(Launch("k")), report(Launch("k"), counted=False)):
        assert diagnose(trace, [rule]).findings == ()


def test_a_kernel_at_the_dram_roof_is_told_to_move_fewer_bytes() -> None:
    metrics = {**DRAM_COUNTERS, **fp32_counters(fma=10), COMPUTE: 7.0, MEMORY: 84.0, DRAM: 84.0}
    (finding,) = kernel_memory_roof.check(report(Launch("gemv", 2000.0, metrics)))
    assert finding.message == "at the DRAM roof: compute 7.0 %, memory 84 % (DRAM 84 %) of peak"
    assert "2.00 µs in 1 call, 100 % of the kernels' time" in finding.evidence
    assert "DRAM 1.00 TB/s, 50 % of 2.00 TB/s (ncu)" in finding.evidence
    assert finding.action.startswith("move fewer bytes")
    assert finding.next_command == (
        "ncu --kernel-name gemv --launch-count 1 --section MemoryWorkloadAnalysis"
        " --section MemoryWorkloadAnalysis_Tables --section SourceCounters -o kernel_%i COMMAND"
    )


def test_a_kernel_at_the_cache_roof_is_not_told_about_dram() -> None:
    (finding,) = kernel_memory_roof.check(report(Launch("k", metrics={COMPUTE: 6.0, MEMORY: 96.0, DRAM: 0.1})))
    assert "cache and shared-memory roof" in finding.message
    assert "DRAM is not the limit" in finding.action


def test_a_hostile_kernel_name_is_in_no_command() -> None:
    metrics: dict[str, Value] = {COMPUTE: 6.0, MEMORY: 96.0}
    (finding,) = kernel_memory_roof.check(report(Launch("k", metrics=metrics, function="k'; rm -rf /;'")))
    assert finding.next_command.startswith("ncu --launch-count 1 --section MemoryWorkloadAnalysis ")


@pytest.mark.parametrize(
    ("fma", "message", "action"),
    [(8000.0, "near the floating-point peak", "tensor cores"), (500.0, "far below the floating-point peak", "address")],
)
def test_compute_bound_tells_arithmetic_from_overhead(fma: float, message: str, action: str) -> None:
    metrics = {**DRAM_COUNTERS, **fp32_counters(fma=fma), COMPUTE: 85.0, MEMORY: 50.0}
    (finding,) = kernel_compute_roof.check(report(Launch("k", metrics=metrics)))
    assert message in finding.message
    assert action in finding.action


def small(waves: float, percent: float = 5.0) -> dict[str, Value]:
    return {COMPUTE: percent, MEMORY: percent, WAVES: waves}


def test_small_grids_are_one_finding_for_all() -> None:
    trace = report(*(Launch(f"k{i}", 100 - i, small(0.1)) for i in range(7)), Launch("big", 300, small(5.0)))
    (finding,) = kernel_latency.check(trace)
    assert finding.subject == "7 kernels"
    assert finding.message == "latency-bound with less than one wave of blocks: 69 % of the kernels' time"
    assert len(finding.evidence) == 5
    assert finding.evidence[-1] == "and 3 more"


@pytest.mark.parametrize("metrics", [small(1.0), small(0.1, percent=70.0), {COMPUTE: 5.0, MEMORY: 5.0}])
def test_grids_that_fill_the_gpu_or_load_it_or_are_unknown_are_not_small(metrics: dict[str, Value]) -> None:
    assert list(kernel_latency.check(report(Launch("k", metrics=metrics)))) == []


WAITING: dict[str, Value] = {
    **stall_ratios(long_scoreboard=8.0, wait=2.0),
    OCCUPANCY: 25.0,
    DRAM: 30.0,
    WAVES: 3.0,
    "sm__maximum_warps_per_active_cycle_pct": 100.0,
}


def test_exposed_load_latency_is_found() -> None:
    (finding,) = kernel_long_scoreboard.check(report(Launch("k", metrics=WAITING)))
    assert finding.message == "waits for loads: long_scoreboard is 80 % of all waiting, occupancy 25 %"
    assert "occupancy 25 % of 100 % that its launch allows (ncu)" in finding.evidence


@pytest.mark.parametrize(
    "change",
    [
        {OCCUPANCY: 50.0},
        {DRAM: 60.0},
        {WAVES: 0.5},
        {STALL.format("wait"): 30.0},
        {"smsp__issue_active.avg.per_cycle_active": 0.9},
    ],
    ids=["occupied", "bandwidth", "small grid", "other stalls", "busy schedulers"],
)
def test_load_latency_that_is_hidden_or_explained_otherwise_is_not(change: dict[str, Value]) -> None:
    assert list(kernel_long_scoreboard.check(report(Launch("k", metrics={**WAITING, **change})))) == []


def test_an_unknown_dram_use_makes_no_verdict() -> None:
    metrics = {name: value for name, value in WAITING.items() if name != DRAM}
    assert list(kernel_long_scoreboard.check(report(Launch("k", metrics=metrics)))) == []


SECTOR = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({SECTOR: 4.0}, "uncoalesced global loads: 4.00 of the 32 bytes of a sector are used"),
        ({CONFLICTS: 96.0, WAVEFRONTS: 100.0}, "bank conflicts: 96 % of the wavefronts of shared loads are repeats"),
        ({SECTOR: 16.1}, None),
        ({SECTOR: 0.0}, None),
        ({CONFLICTS: 9.0, WAVEFRONTS: 100.0}, None),
        ({CONFLICTS: 9.0, WAVEFRONTS: 0.0}, None),
        ({CONFLICTS: 9.0}, None),
    ],
)
def test_access_patterns(metrics: dict[str, Value], message: str | None) -> None:
    found = [finding.message for finding in kernel_access.check(report(Launch("k", metrics=metrics)))]
    assert found == ([] if message is None else [message])


def result(name: str, *speedups: tuple[str, float]) -> RuleResult:
    return RuleResult(name, name, "Section", (("optimization", f"{name} says"), ("ok", "fine")), speedups)


def test_the_tools_estimates_are_ranked_by_time_saved() -> None:
    trace = report(
        Launch("long", 9000, rules=(result("Small", ("global", 10.0)), result("Part", ("local", 99.0)))),
        Launch("short", 1000, rules=(result("Large", ("global", 80.0), ("local", 99.0)),)),
    )
    found = list(tool_advice.check(trace))
    assert [finding.source for finding in found] == ["Nsight Compute rule Small", "Nsight Compute rule Large"]
    assert found[0].message == "Small: up to 10 % of this kernel, 900 ns (estimate of ncu)"
    assert found[0].evidence[-1] == "Small says"
    assert {finding.severity for finding in found} == {Severity.WARNING}


def test_the_samples_are_diagnosed_as_what_they_were_made_to_be() -> None:
    found = {(finding.rule, finding.subject) for finding in diagnose(load(LADDER)).findings}
    assert ("kernel-access-pattern", "sgemm_naive") in found
    assert ("kernel-access-pattern", "smem_conflict") in found
    assert ("kernel-access-pattern", "sgemm_coalesced") not in found
    llama = [(finding.rule, finding.subject) for finding in diagnose(load(LLAMA)).findings]
    assert ("kernel-small-grid", "30 kernels") in llama
    assert ("kernel-memory-roof", "GEMM 64x8 bf16 nvjet") in llama
    timeline = [(finding.rule, finding.subject) for finding in diagnose(load(TIMELINE)).findings]
    assert timeline == [("host-code", "GPU 0"), ("code-loading", "GPU 0"), ("launch-gaps", "GPU 0")]
