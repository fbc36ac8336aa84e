"""Rules over reports: each speaks on its pattern alone, and one finding is about one cause."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import replace

import pytest

from llmtop.analysis.kernels.double_precision import OPCODES
from llmtop.analysis.kernels.fusion import fusion_chains
from llmtop.analysis.kernels.lacking import lacking
from llmtop.analysis.kernels.table import FAILED, kernel_table
from llmtop.analysis.rules import (
    attention_variant,
    failed_launches,
    fusion_chances,
    kernel_compute_bound,
    kernel_enough_warps,
    kernel_fits_l2,
    kernel_latency_unknown,
    kernel_low_occupancy,
    kernel_memory_latency,
    kernel_memory_roof,
    kernel_repeated_reads,
    kernel_small_grid,
    kernel_uncoalesced,
    kernel_waits,
    short_kernels,
    skinny_matrices,
    tool_advice,
    type_conversions,
)
from llmtop.analysis.rules.base import Rule
from llmtop.analysis.rules.kernel_causes import PARTICULAR
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.rules.report_rules import RULES
from llmtop.cli.report_text import report_text
from llmtop.cli.text_layout import TextStyle
from llmtop.model import Finding, Instances, KernelTable, Origin, RuleResult, Severity, Trace, Value
from llmtop.parsers.registry import load
from tests.kernel_traces import (
    COMPUTE,
    DRAM,
    DRAM_COUNTERS,
    LADDER,
    LLAMA,
    MEMORY,
    OCCUPANCY,
    TENSOR,
    TIMELINE,
    WAVES,
    Launch,
    fp32_counters,
    report,
    stall_ratios,
)

H100 = "NVIDIA H100 80GB HBM3"
REPORT_RULES = (
    *PARTICULAR,
    attention_variant,
    fusion_chances,
    kernel_compute_bound,
    kernel_enough_warps,
    kernel_fits_l2,
    kernel_latency_unknown,
    kernel_low_occupancy,
    kernel_memory_latency,
    kernel_memory_roof,
    kernel_small_grid,
    kernel_waits,
    short_kernels,
    skinny_matrices,
    tool_advice,
    type_conversions,
)


@pytest.mark.parametrize("rule", REPORT_RULES, ids=lambda rule: rule.id)
def test_a_rule_is_registered_and_says_nothing_of_nothing(rule: Rule) -> None:
    assert rule in RULES
    assert rule.id.replace("-", "_") == rule.__name__.split(".")[-1]  # type: ignore[attr-defined]
    for trace in (Trace(Origin("live")), report(), report(Launch("k")), report(Launch("k"), counted=False)):
        assert diagnose(trace, [rule]).findings == ()


# -- kernels with one fault each --------------------------------------------------------------------------------------

THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
ISSUE = "smsp__issue_active.avg.per_cycle_active"
BYTES = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_{}_op_{}.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
LATENCY: Mapping[str, Value] = {
    COMPUTE: 10.0, MEMORY: 20.0, DRAM: 20.0, OCCUPANCY: 90.0, THEORETICAL: 100.0, WAVES: 8.0, ISSUE: 0.2,
}  # fmt: skip
CACHES: Mapping[str, Value] = {**LATENCY, MEMORY: 95.0, DRAM: 5.0}
COALESCED: Mapping[str, Value] = {
    BYTES.format("ld"): 32.0, BYTES.format("st"): 32.0,
    SECTORS.format("global", "ld"): 4e6, SECTORS.format("global", "st"): 4e6,
    REQUESTS.format("ld"): 1e6, REQUESTS.format("st"): 1e6,
}  # fmt: skip
WAITS_FOR_LOADS: Mapping[str, Value] = {**LATENCY, **stall_ratios(long_scoreboard=8.0, wait=2.0)}
FEW_WARPS: Mapping[str, Value] = {
    **WAITS_FOR_LOADS, OCCUPANCY: 12.0, THEORETICAL: 12.5, "launch__block_size": 128,
    "launch__registers_per_thread": 168, "launch__occupancy_limit_warps": 16, "launch__occupancy_limit_blocks": 32,
    "launch__shared_mem_per_block": 1024,
}  # fmt: skip

FAULTS: dict[str, tuple[Mapping[str, Value], str, str, str]] = {
    "no reason collected": (
        LATENCY,
        "kernel-latency-unknown", "what its warps wait for was not collected", "collect it first",
    ),
    "uncoalesced": (
        {**CACHES, **COALESCED, BYTES.format("ld"): 4.0},
        "kernel-uncoalesced", "4.00 of the 32 bytes", "neighbouring threads",
    ),
    "bank conflicts": (
        {
            **CACHES, **COALESCED,
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 96.0,
            "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 100.0,
            "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed": 94.0,
        },
        "kernel-bank-conflicts", "96 % of the wavefronts of shared loads are repeats", "pad",
    ),
    "spills": (
        {**CACHES, **COALESCED, SECTORS.format("local", "ld"): 9e6, SECTORS.format("local", "st"): 9e6},
        "kernel-spills", "register spills: 69 %", "__launch_bounds__",
    ),
    "local arrays": (
        {**CACHES, **COALESCED, SECTORS.format("local", "ld"): 9e6, "derived__local_spilling_requests": 0},
        "kernel-spills", "local arrays: 53 %", "indexed by a variable",
    ),
    "divergence": (
        {**LATENCY, COMPUTE: 85.0, ISSUE: 0.85, "smsp__thread_inst_executed_per_inst_executed.ratio": 1.0},
        "kernel-divergence", "1.00 of 32 threads", "same path",
    ),
    "atomics": (
        {**LATENCY, **COALESCED, **stall_ratios(lg_throttle=8.0, wait=2.0), REQUESTS.format("red"): 4e6},
        "kernel-atomics", "67 % of its requests", "once a block",
    ),
    "narrow accesses": (
        {
            **LATENCY, **COALESCED, **stall_ratios(lg_throttle=8.0, wait=2.0),
            SECTORS.format("global", "ld"): 1e6, SECTORS.format("global", "st"): 1e6,
        },
        "kernel-narrow-accesses", "1.00 bytes a thread", "float4",
    ),
    "tensor cores missed": (
        {
            **LATENCY, **DRAM_COUNTERS, **fp32_counters(fma=8000.0), COMPUTE: 85.0, TENSOR: 0.0,
            "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": 82.0,
        },
        "kernel-tensor-missed", "FMA pipe (82 % busy), tensor cores idle", "tensor cores",
    ),
    "uneven": (
        {**LATENCY, WAVES: 1.1, "sm__cycles_active.avg": 55.0, "sm__cycles_active.max": 100.0},
        "kernel-uneven", "works 55 % of the time", "multiple of what fits",
    ),
    "registers": (
        {**FEW_WARPS, "launch__occupancy_limit_registers": 2, "launch__occupancy_limit_shared_mem": 100},
        "kernel-low-occupancy", "held to 12 % by registers", "at most 168 registers",
    ),
    "shared memory": (
        {**FEW_WARPS, "launch__occupancy_limit_registers": 9, "launch__occupancy_limit_shared_mem": 2},
        "kernel-low-occupancy", "held to 12 % by shared memory", "less shared memory",
    ),
    "tiny blocks": (
        {**FEW_WARPS, "launch__occupancy_limit_registers": 64, "launch__block_size": 32, THEORETICAL: 50.0,
         "launch__occupancy_limit_warps": 64},
        "kernel-low-occupancy", "held to 50 % by the number of blocks", "larger blocks",
    ),
    "dependent loads": (
        WAITS_FOR_LOADS, "kernel-memory-latency", "80 % of all waiting, no unit is at its", "more loads under way",
    ),
    "barriers": (
        {**LATENCY, **stall_ratios(barrier=8.0, wait=2.0)},
        "kernel-waits", "at barriers for the other warps of their block: 80 %", "__syncthreads",
    ),
    "dependent chain": (
        {**LATENCY, **stall_ratios(wait=8.0, long_scoreboard=2.0)},
        "kernel-waits", "for their own previous instruction: 80 %", "independent values",
    ),
    "small grid": (
        {**LATENCY, WAVES: 0.06, "launch__grid_size": 8},
        "kernel-small-grid", "0.06 waves of blocks", "launch more blocks",
    ),
    "special functions": (
        {**LATENCY, COMPUTE: 92.0, "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed": 92.0},
        "kernel-compute-bound", "special functions 92 % busy", "exponentials",
    ),
    "double precision": (
        {**LATENCY, COMPUTE: 95.0, "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed": 95.0},
        "kernel-compute-bound", "FP64 95 % busy", "single precision",
    ),
    "tensor cores at their limit": (
        {**LATENCY, COMPUTE: 88.0, TENSOR: 88.0},
        "kernel-compute-bound", "tensor cores 88 % busy", "FP8",
    ),
    "repeated reads": (
        {
            **LATENCY, **COALESCED, MEMORY: 94.0, DRAM: 20.0, "lts__throughput.avg.pct_of_peak_sustained_elapsed": 94.0,
            "lts__t_sectors_srcunit_tex_op_read.sum": 4e6, "dram__bytes_read.sum": 16e6,
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum": 4e5,
        },
        "kernel-repeated-reads", "goes to the SMs 8.00 times", "tiles in shared memory",
    ),
    "enough warps": (
        {**LATENCY, COMPUTE: 92.0, ISSUE: 0.92, **stall_ratios(not_selected=6.0, wait=4.0),
         "smsp__warps_eligible.avg.per_cycle_active": 5.5,
         "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed": 60.0},
        "kernel-enough-warps", "60 % of the waiting is for their turn", "fewer instructions",
    ),
    "a copy at the roof": (
        {**LATENCY, MEMORY: 93.0, DRAM: 93.0}, "kernel-memory-roof", "at the DRAM roof", "move fewer bytes",
    ),
    "caches": ({**CACHES, **COALESCED}, "kernel-memory-roof", "at the cache and shared-memory roof", "register tiling"),
}  # fmt: skip


@pytest.mark.parametrize(("metrics", "rule", "message", "action"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_the_only_finding(metrics: Mapping[str, Value], rule: str, message: str, action: str) -> None:
    name = "sgemm_kernel" if rule == "kernel-tensor-missed" else "step"
    (finding,) = diagnose(report(Launch(name, 50_000.0, metrics), gpu=H100)).findings
    assert finding.rule == rule
    assert message in finding.message
    assert action in finding.action
    assert finding.at_stake_ns is not None
    assert 0 <= finding.at_stake_ns <= 50_000


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("volta_sgemm_128x64_nn", "use tf32"),
        ("cutlass_80_simt_sgemm_128x64_8x5_nn_align1", "use tf32"),
        ("ampere_fp16_sgemm_fp16_128x64_ldg8_f2f_stages_32x5_tn", "pad the sizes"),
        ("volta_hgemm_128x64_nn", "pad the sizes"),
        ("my_matmul", "tensor cores"),
    ],
)
def test_the_way_to_tensor_cores_is_that_of_the_type(name: str, action: str) -> None:
    metrics, *_ = FAULTS["tensor cores missed"]
    found = diagnose(report(Launch(name, 50_000.0, metrics), gpu=H100)).findings
    assert [(one.rule, action in one.action) for one in found] == [("kernel-tensor-missed", True)], found


@pytest.mark.parametrize(
    ("fault", "change"),
    [
        ("uncoalesced", {BYTES.format("ld"): 16.1}),
        ("uncoalesced", {"derived__memory_l2_theoretical_sectors_global_excessive": 0.0,
                         "memory_l2_theoretical_sectors_global": 1e6}),
        ("uncoalesced", {SECTORS.format("global", "ld"): 1e5}),
        ("bank conflicts", {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 9.0}),
        ("bank conflicts", {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed": 0.5}),
        ("spills", {SECTORS.format("local", "ld"): 1e5, SECTORS.format("local", "st"): 1e5}),
        ("divergence", {"smsp__thread_inst_executed_per_inst_executed.ratio": 31.0}),
        ("atomics", {REQUESTS.format("red"): 1e5}),
        ("narrow accesses", {SECTORS.format("global", "ld"): 4e6, SECTORS.format("global", "st"): 4e6}),
        ("tensor cores missed", {TENSOR: 60.0}),
        ("uneven", {"sm__cycles_active.avg": 95.0}),
        ("registers", {THEORETICAL: 75.0}),
        ("registers", {WAVES: 0.5}),
        ("dependent loads", {ISSUE: 0.9}),
        ("dependent loads", {WAVES: 0.5}),
        ("dependent loads", {COMPUTE: 90.0}),
        ("barriers", stall_ratios(barrier=2.0, wait=3.0, long_scoreboard=5.0)),
        ("small grid", {WAVES: 1.0}),
        ("repeated reads", {"dram__bytes_read.sum": 65e6}),
        ("repeated reads", {"lts__throughput.avg.pct_of_peak_sustained_elapsed": 55.0}),
        ("repeated reads", {DRAM: 91.0}),
        ("repeated reads", {COMPUTE: 95.0}),
        ("repeated reads", {BYTES.format("ld"): 4.0}),
        ("enough warps", {ISSUE: 0.5}),
        ("enough warps", stall_ratios(not_selected=4.0, wait=6.0)),
        ("enough warps", {"sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed": 93.0}),
        ("enough warps", {MEMORY: 95.0}),
        ("enough warps", {"smsp__thread_inst_executed_per_inst_executed.ratio": 1.0}),
        ("special functions", {COMPUTE: 40.0}),
        ("no reason collected", stall_ratios(wait=2.0, long_scoreboard=2.0, barrier=2.0)),
        ("no reason collected", {MEMORY: 62.0}),
        ("no reason collected", {WAVES: 0.5}),
        ("no reason collected", {OCCUPANCY: 12.0, THEORETICAL: 12.5}),
    ],
)  # fmt: skip
def test_without_its_evidence_a_fault_is_not_said(fault: str, change: Mapping[str, Value]) -> None:
    metrics, rule, *_ = FAULTS[fault]
    name = "sgemm_kernel" if rule == "kernel-tensor-missed" else "step"
    found = diagnose(report(Launch(name, 50_000.0, {**metrics, **change}), gpu=H100)).findings
    assert rule not in {finding.rule for finding in found}


NVJET = "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT"


@pytest.mark.parametrize("fault", ["bank conflicts", "spills", "divergence", "atomics", "narrow accesses", "registers"])
def test_nobody_is_told_to_change_a_librarys_code(fault: str) -> None:
    metrics, rule, _, action = FAULTS[fault]
    for finding in diagnose(report(Launch(NVJET, 50_000.0, metrics), gpu=H100)).findings:
        assert finding.rule != rule
        assert action not in finding.action
        assert not any(word in finding.action for word in ("shared array", "__launch_bounds__", "float4", "unroll"))


@pytest.mark.parametrize(
    ("name", "action"),
    [
        (NVJET, "quantised weights"),
        ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128>>(P)", "KV cache"),
        ("void vllm::rms_norm_kernel<c10::BFloat16>(P)", "fuse it"),
        ("step", "reuse of what was read (tiling)"),
        ("void cudnn::pooling_fw_4d_kernel<float>(P)", "the library's own epilogue"),
    ],
)
def test_at_the_dram_roof_the_advice_is_for_the_kind_of_kernel(name: str, action: str) -> None:
    metrics = FAULTS["a copy at the roof"][0]
    (finding,) = kernel_memory_roof.check(report(Launch(name, 50_000.0, metrics)))
    assert action in finding.action


@pytest.mark.parametrize(
    ("gpu", "ends"),
    [
        ("NVIDIA H100 PCIe", "which a plain copy reaches on an H100"),
        ("Tesla V100", "reaches on an H100; how much one reaches on Tesla V100 was not measured"),
        ("", "reaches on an H100; how much one reaches on this GPU, which has no name here, was not measured"),
    ],
)
def test_what_a_copy_reaches_is_said_of_the_board_it_was_measured_on(gpu: str, ends: str) -> None:
    metrics = {**DRAM_COUNTERS, COMPUTE: 7.0, MEMORY: 84.0, DRAM: 84.0}
    (finding,) = kernel_memory_roof.check(report(Launch("gemv", 2000.0, metrics), gpu=gpu))
    assert finding.evidence[-1].endswith(ends)


def test_a_kernel_at_the_dram_roof_says_its_traffic_and_what_is_left() -> None:
    metrics = {**DRAM_COUNTERS, **fp32_counters(fma=10), COMPUTE: 7.0, MEMORY: 84.0, DRAM: 84.0}
    (finding,) = kernel_memory_roof.check(report(Launch("gemv", 2000.0, metrics)))
    assert finding.message == "at the DRAM roof: compute 7.0 %, memory 84 % (DRAM 84 %) of peak"
    assert "2.00 µs in 1 call, 100 % of the kernels' time" in finding.evidence
    assert "DRAM 1.00 TB/s, 50 % of 2.00 TB/s (ncu)" in finding.evidence
    assert finding.evidence[-1] == (
        "at stake: up to 46.5 ns, 2.3 % of the capture: what is left up to 86 % of the DRAM peak, which a plain copy "
        "reaches on an H100"
    )
    assert finding.next_command == (
        "ncu --kernel-name gemv --launch-count 1 --set full --section SpeedOfLight_HierarchicalTensorRooflineChart"
        " -o kernel_%i COMMAND"
    )


def test_repeated_reads_say_what_the_caches_could_hold() -> None:
    (finding,) = kernel_repeated_reads.check(report(Launch("step", 50_000.0, FAULTS["repeated reads"][0]), gpu=H100))
    assert "L2 94 % busy; SMs read 128 MB from L2, L2 16.0 MB from DRAM (ncu)" in finding.evidence
    assert "L1 hits 10 % of what is loaded; 88 % if each byte came to the SMs once (ncu)" in finding.evidence
    assert finding.at_stake_ns == pytest.approx(50_000 * (1 - 20 / 94)), "then DRAM is the limit"


def test_with_caches_as_the_program_leaves_them_dram_does_not_tell_how_often_a_byte_is_read() -> None:
    trace = report(Launch("step", 50_000.0, FAULTS["repeated reads"][0]), command="ncu --cache-control none ./a.out")
    assert list(kernel_repeated_reads.check(trace)) == []


def test_enough_warps_say_how_many_are_ready() -> None:
    (finding,) = kernel_enough_warps.check(report(Launch("step", 50_000.0, FAULTS["enough warps"][0]), gpu=H100))
    assert any("5.50 warps are ready in each cycle and one can issue" in line for line in finding.evidence)
    assert "higher occupancy" in finding.action


FITS: Mapping[str, Value] = {
    **FAULTS["a copy at the roof"][0],
    "dram__bytes_read.sum": 10e6, "dram__bytes_write.sum": 10e6, "device__attribute_l2_cache_size": 50 << 20,
}  # fmt: skip


def test_dram_traffic_that_fits_into_l2_is_told_to_be_measured_as_the_program_runs() -> None:
    trace = report(Launch("step", 50_000.0, FITS), gpu=H100, command="ncu --cache-control all -s 3 ./a.out")
    (finding,) = kernel_fits_l2.check(trace)
    assert finding.message == "limited by DRAM traffic that fits into L2 (50.0 MiB): 100 % of the kernels' time"
    assert finding.severity is Severity.INFO
    assert finding.next_command.startswith("ncu --cache-control none --launch-skip 3 --launch-count 1 --set full ")
    assert finding.next_command.count("--cache-control") == 1
    assert "kernel-memory-roof" in {one.rule for one in diagnose(trace).findings}, "which is true of what was measured"


@pytest.mark.parametrize(
    "change",
    [
        {"dram__bytes_read.sum": 20e6},
        {DRAM: 40.0, MEMORY: 40.0},
        {MEMORY: 99.0, DRAM: 80.0},
        {"device__attribute_l2_cache_size": "?"},
    ],
)
def test_dram_traffic_that_does_not_fit_or_is_not_the_limit_is_not_told(change: Mapping[str, Value]) -> None:
    assert list(kernel_fits_l2.check(report(Launch("step", 50_000.0, {**FITS, **change}), gpu=H100))) == []


def test_caches_that_were_not_emptied_hold_what_they_hold() -> None:
    trace = report(Launch("step", 50_000.0, FITS), gpu=H100, command="ncu --cache-control=none ./a.out")
    assert list(kernel_fits_l2.check(trace)) == []


FP64 = FAULTS["double precision"][0]
CAPABILITY = "device__attribute_compute_capability_{}"


@pytest.mark.parametrize(
    ("metrics", "gpu", "rate", "saved"),
    [
        ({CAPABILITY.format("major"): 8, CAPABILITY.format("minor"): 6}, "NVIDIA A10G", "1/64", 63 / 64),
        ({CAPABILITY.format("major"): 9, CAPABILITY.format("minor"): 0}, H100, "1/2", 1 / 2),
        (
            {
                "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 6400.0,
                "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained": 200.0,
            },
            "NVIDIA X",
            "1/32",
            31 / 32,
        ),
        ({}, "Tesla V100-SXM2-32GB", "1/2", 1 / 2),
        ({"device__attribute_single_to_double_precision_perf_ratio": 16}, "NVIDIA X", "1/16", 15 / 16),
    ],
)
def test_double_precision_is_as_slow_as_on_this_gpu(
    metrics: Mapping[str, Value], gpu: str, rate: str, saved: float
) -> None:
    (finding,) = kernel_compute_bound.check(report(Launch("step", 50_000.0, {**FP64, **metrics}), gpu=gpu))
    assert f"FP64 has {rate} of the FP32 rate here" in finding.action
    assert finding.at_stake_ns == pytest.approx(50_000 * 0.95 * saved)


@pytest.mark.parametrize(
    ("capability", "fp32_lanes", "fp64_lanes"),
    [
        ("5.0", 128, 4), ("5.2", 128, 4), ("6.0", 64, 32), ("6.1", 128, 4), ("7.0", 64, 32), ("7.5", 64, 2),
        ("8.0", 64, 32), ("8.6", 128, 2), ("8.9", 128, 2), ("9.0", 128, 64), ("10.0", 128, 64), ("10.3", 128, 2),
        ("12.0", 128, 2),
    ],
)  # fmt: skip
def test_double_precision_by_the_lanes_of_an_sm(capability: str, fp32_lanes: int, fp64_lanes: int) -> None:
    """CUDA C++ Programming Guide: operations a clock of an SM; of Blackwell its data sheets (1.3 of 80 TFLOP/s)."""
    major, minor = map(int, capability.split("."))
    told = {CAPABILITY.format("major"): major, CAPABILITY.format("minor"): minor}
    (finding,) = kernel_compute_bound.check(report(Launch("step", 50_000.0, {**FP64, **told}), gpu="NVIDIA X"))
    assert f"FP64 has 1/{fp32_lanes // fp64_lanes} of the FP32 rate here" in finding.action


def test_of_a_gpu_that_nobody_knows_no_rate_is_said() -> None:
    (finding,) = kernel_compute_bound.check(report(Launch("step", 50_000.0, FP64), gpu="NVIDIA X"))
    assert "rate" not in finding.action
    assert finding.at_stake_ns == 0


def opcodes(**by_name: float) -> Mapping[str, Instances]:
    names = tuple(name.replace("_", ".") for name in by_name)
    return {OPCODES: Instances(names, tuple(by_name.values()))}


def test_divisions_in_double_precision_are_named_where_instructions_were_counted() -> None:
    divides = opcodes(MUFU_RCP64H=10.0, DFMA=150.0, DMUL=40.0, DSETP=10.0, IMAD=900.0)
    (finding,) = kernel_compute_bound.check(report(Launch("step", 50_000.0, FP64, instances=divides), gpu=H100))
    assert finding.action.startswith("divide less")
    assert any("up to 40 % of its FP64 instructions" in line for line in finding.evidence)
    assert finding.at_stake_ns == pytest.approx(50_000 * 0.95 * (1 - 0.6 / 2))


@pytest.mark.parametrize("counted", [opcodes(MUFU_RCP64H=1.0, DFMA=200.0), opcodes(MUFU_RCP=10.0, FFMA=200.0), {}])
def test_few_divisions_are_not_named(counted: Mapping[str, Instances]) -> None:
    (finding,) = kernel_compute_bound.check(report(Launch("step", 50_000.0, FP64, instances=counted), gpu=H100))
    assert finding.action.startswith("compute in single precision")
    assert not any("division" in line for line in finding.evidence)


@pytest.mark.parametrize(("fma", "is_told"), [(5_000.0, True), (9_000.0, False)])
def test_a_busy_pipe_far_below_its_peak_is_explained(fma: float, is_told: bool) -> None:
    pipe = {"sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed": 95.0}
    metrics = {**LATENCY, **DRAM_COUNTERS, **fp32_counters(fma=fma), COMPUTE: 95.0, **pipe}
    (finding,) = kernel_compute_bound.check(report(Launch("step", 50_000.0, metrics), gpu=H100))
    assert any("two operations, here it makes 1.1 on average" in line for line in finding.evidence) is is_told


def test_a_hostile_kernel_name_is_in_no_command() -> None:
    metrics: dict[str, Value] = {COMPUTE: 6.0, MEMORY: 96.0}
    (finding,) = kernel_memory_roof.check(report(Launch("k", metrics=metrics, function="k'; rm -rf /;'")))
    assert finding.next_command.startswith("ncu --launch-count 1 --set full ")


# -- several kernels --------------------------------------------------------------------------------------------------


def test_kernels_that_are_told_the_same_are_one_finding() -> None:
    metrics = FAULTS["small grid"][0]
    trace = report(*(Launch(f"step{i}", 1e5 - i, metrics) for i in range(7)), Launch("big", 3e5, CACHES))
    (finding,) = kernel_small_grid.check(trace)
    assert finding.subject == "7 kernels"
    assert finding.message == "latency-bound with less than one wave of blocks: 70 % of the kernels' time"
    assert len(finding.evidence) == 6
    assert finding.evidence[-2] == "and 3 more"
    assert finding.parts == tuple(f"step{i}" for i in range(7)), "for the details of each of them"


SGEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(cutlass::Params)"


@pytest.mark.parametrize(
    ("name", "ns", "blocks", "action"),
    [
        ("step", 50_000.0, "grid 64, 124 of 132 SMs have none", "launch more blocks"),
        ("step", 4_900.0, "grid 64, 124 of 132 SMs have none", "more blocks change nothing"),
        (SGEMM, 50_000.0, "grid 64 (tile 128x32), 124 of 132 SMs have none", "a smaller tile where it can be chosen"),
    ],
)
def test_a_small_grid_says_who_has_no_block_and_what_can_be_done_of_it(
    name: str, ns: float, blocks: str, action: str
) -> None:
    metrics = {**FAULTS["small grid"][0], "launch__sm_count": 132}
    (finding,) = kernel_small_grid.check(report(Launch(name, ns, metrics), gpu=H100))
    assert f"0.06 waves of blocks: {blocks}; compute" in finding.message
    assert action in finding.action


@pytest.mark.parametrize(
    "lacking",
    [
        {OCCUPANCY: 17.0, THEORETICAL: "n/a"},
        {THEORETICAL: 12.5, "launch__occupancy_limit_warps": "n/a", "launch__occupancy_limit_blocks": "n/a"},
    ],
)
def test_of_low_occupancy_without_its_limits_the_cause_is_not_made_up(lacking: Mapping[str, Value]) -> None:
    metrics = {**FEW_WARPS, **lacking}
    (finding,) = kernel_low_occupancy.check(report(Launch("step", 50_000.0, metrics)))
    assert "what limits it was not collected" in finding.message
    assert "--set full" in finding.next_command


@pytest.mark.parametrize(
    ("reasons", "action"),
    [
        ({"mio_throttle": 6.0, "wait": 4.0}, "shared memory is: fewer and wider"),
        ({"lg_throttle": 4.0, "long_scoreboard": 2.0, "wait": 4.0}, "loads from the caches are"),
        ({"lg_throttle": 3.0, "mio_throttle": 3.0, "wait": 4.0}, "coalesce accesses"),
    ],
)
def test_at_the_roof_of_the_caches_the_stalls_tell_which_traffic_it_is(
    reasons: Mapping[str, float], action: str
) -> None:
    metrics = {**CACHES, **COALESCED, **stall_ratios(**reasons)}
    (finding,) = kernel_memory_roof.check(report(Launch("step", 50_000.0, metrics)))
    assert action in finding.action


@pytest.mark.parametrize(("used", "near"), [(79.4, "on the way to the DRAM roof"), (79.6, "at the DRAM roof")])
def test_what_is_shown_as_80_percent_is_at_the_roof(used: float, near: str) -> None:
    (finding,) = kernel_memory_roof.check(report(Launch("step", metrics={COMPUTE: 10.0, MEMORY: used, DRAM: used})))
    assert finding.message.startswith(near)


def test_how_accesses_lie_is_to_be_collected_before_it_is_mended() -> None:
    (finding,) = kernel_memory_roof.check(report(Launch("step", 50_000.0, CACHES)))
    assert "was not collected: the command collects it" in finding.action
    assert finding.next_command


BREAKDOWN = "breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed"
LSU, ISSUED = (f"sm__{unit}.avg.pct_of_peak_sustained_elapsed" for unit in ("inst_executed_pipe_lsu", "inst_executed"))


@pytest.mark.parametrize(
    ("made_of", "at_stake_ns", "said"),
    [
        ({LSU: 80.0, ISSUED: 20.0}, 75_000.0, "compute 80 % is the load-store units of the SM; the rest of it is 20 %"),
        ({LSU: 20.0, ISSUED: 80.0}, 0.0, ""),
        ({}, 0.0, "what makes up compute was not collected"),
    ],
)
def test_loads_and_stores_that_make_up_compute_are_no_other_limit(
    made_of: Mapping[str, float], at_stake_ns: float, said: str
) -> None:
    both: dict[str, Value] = {
        COMPUTE: 80.0,
        MEMORY: 80.0,
        DRAM: 1.0,
        **made_of,
        **({BREAKDOWN: ",".join(made_of)} if made_of else {}),
    }
    (finding,) = kernel_memory_roof.check(report(Launch("step", 100_000.0, both)))
    assert finding.at_stake_ns == pytest.approx(at_stake_ns)
    assert any(one.startswith(said) for one in finding.evidence if "compute" in one) == bool(said)


def test_a_launch_that_failed_is_said_to_have_and_has_no_shape() -> None:
    ran, failed = Launch("ran", 5000.0, LATENCY), Launch("broken", math.nan, grid=(0, 0, 0), block=(0, 0, 0))
    trace = report(ran, failed)
    (finding,) = failed_launches.check(trace)
    assert (finding.subject, finding.severity) == ("broken", Severity.WARNING)
    assert finding.message == "1 of 2 launches failed: shares of time are of the others"
    table = kernel_table(trace, "shape")
    cells = dict(zip([column.key for column in table.columns], table.cells(1), strict=True))
    assert {cells[key] for key in ("grid", "block", "duration", "bound", "occupancy")} == {FAILED}
    assert not any("of 2 kernels" in what for one in lacking(trace) for what, _ in one.parts), "none would bring it"
    assert not list(failed_launches.check(report(ran)))


def test_findings_are_ranked_by_time_at_stake_and_what_is_small_is_no_warning() -> None:
    conflicts, uncoalesced = FAULTS["bank conflicts"][0], FAULTS["uncoalesced"][0]
    trace = report(Launch("a", 4_000, conflicts), Launch("b", 90_000, uncoalesced), Launch("c", 6_000, LATENCY))
    first, second = diagnose(trace, [*PARTICULAR]).findings
    assert (first.rule, first.severity) == ("kernel-uncoalesced", Severity.WARNING)
    assert (second.rule, second.severity) == ("kernel-bank-conflicts", Severity.INFO)


def test_of_calls_that_differ_the_one_speaks_in_which_half_of_the_time_lies() -> None:
    short, long = {**LATENCY, MEMORY: 66.0, DRAM: 66.0}, {**LATENCY, MEMORY: 81.0, DRAM: 81.0}
    trace = report(Launch("k", 100, short), Launch("k", 110, short), Launch("k", 600, long), Launch("k", 120, short))
    (finding,) = kernel_memory_roof.check(trace)
    assert "memory 81 %" in finding.message


# -- the profiler's own rules -----------------------------------------------------------------------------------------


def result(rule: str, *speedups: tuple[str, float], text: str = "says this") -> RuleResult:
    return RuleResult(rule, rule, "Section", (("optimization", text), ("ok", "fine")), speedups)


def test_the_tools_own_advice_is_evidence_of_the_same_finding() -> None:
    metrics = FAULTS["uncoalesced"][0]
    advice = (
        result("UncoalescedGlobalAccess", ("global", 60.0)),
        result("MemoryCacheAccessPattern", ("global", 0.4)),
        result("SOLBottleneck", ("global", 90.0)),
        result("CPIStall", ("global", 80.0)),
    )
    (finding,) = diagnose(report(Launch("step", 1000.0, metrics, rules=advice), gpu=H100)).findings
    assert finding.rule == "kernel-uncoalesced"
    assert "UncoalescedGlobalAccess: up to 60 % of this kernel (estimate of ncu)" in finding.evidence
    assert not any("MemoryCacheAccessPattern" in line for line in finding.evidence), "0.4 % is none"
    assert finding.at_stake_ns is not None
    assert finding.at_stake_ns <= 600.0


def test_what_no_rule_of_ours_is_about_is_told_once_a_kernel_by_the_largest_estimate() -> None:
    trace = report(
        Launch("long", 9000, rules=(result("Small", ("global", 10.0)), result("Part", ("local", 99.0)))),
        Launch("short", 1000, rules=(result("Large", ("global", 80.0), ("local", 99.0)), result("X", ("global", 5.0)))),
    )
    (finding,) = tool_advice.check(trace)
    assert finding.subject == "2 kernels"
    assert finding.evidence[0].startswith("long: Small: up to 10 % of this kernel (estimate of ncu)")
    assert finding.evidence[1].startswith("short: Large: up to 80 %")
    assert finding.at_stake_ns == 1700.0


def test_a_metric_that_the_tool_could_not_find_is_no_advice() -> None:
    missing = result("CPIStall", ("global", 34.0), text="The optional metric x could not be found.")
    (finding,) = tool_advice.check(report(Launch("k", rules=(missing,))))
    assert not any("could not be found" in line for line in finding.evidence)


def test_advice_on_code_is_not_passed_on_for_a_librarys_kernel() -> None:
    for rule in ("FPInstructions", "TheoreticalOccupancy", "CPIStall", "OneOfTomorrow"):
        advice = result(rule, ("global", 50.0))
        assert list(tool_advice.check(report(Launch(NVJET, rules=(advice,))))) == []
        assert list(tool_advice.check(report(Launch("step", rules=(advice,)))))
    assert list(tool_advice.check(report(Launch(NVJET, rules=(result("LaunchConfiguration", ("global", 50.0)),)))))


# -- by names and times -----------------------------------------------------------------------------------------------

CAST = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda(float)#1}, std::array<char*, 2ul> >(int)"
)
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_mul<float> >(int)"


def timeline(*names: str, ns: float = 10_000.0, gpu: str = H100) -> Trace:
    """Kernels one after the other on one stream."""
    trace = report(*(Launch(name, ns) for name in names), gpu=gpu, counted=False)
    assert isinstance(trace.kernels, KernelTable)
    starts = array("q", (int(i * ns) for i in range(len(names))))
    return replace(trace, kernels=replace(trace.kernels, start_ns=starts))


def only(trace: Trace, rule: Rule) -> Finding:
    (finding,) = diagnose(trace, [rule]).findings
    return finding


def test_small_kernels_in_a_row_are_a_chance_to_fuse() -> None:
    finding = only(timeline(*[NVJET, MUL, CAST, MUL] * 10), fusion_chances)
    assert finding.message == "small kernels follow each other 10 times: 75 % of the kernels' time"
    assert finding.evidence[0] == (
        "elementwise mul fp32 vec4 → cast to bf16 vec4 → elementwise mul fp32 vec4: 3 kernels, 10 times, 300 µs; "
        "fused up to 200 µs less"
    )
    assert finding.at_stake_ns == 200_000.0


def test_parts_of_a_fusion_on_several_gpus_are_those_of_one_as_the_stake_is() -> None:
    trace = timeline(*[NVJET, MUL, CAST, MUL] * 10, *[NVJET, MUL, CAST] * 10)
    assert trace.kernels is not None
    gpus = array("q", (i % 40 // 20 if i < 40 else (i - 40) // 15 for i in range(70)))
    finding = only(replace(trace, kernels=replace(trace.kernels, device=gpus)), fusion_chances)
    assert finding.message.startswith("small kernels follow each other 20 times on 2 GPUs: ")
    first, second, stake = finding.evidence
    assert "3 kernels, 10 times on 2 GPUs, 150 µs on each; fused up to 100 µs less" in first
    assert "2 kernels, 10 times on 2 GPUs, 100 µs on each; fused up to 50.0 µs less" in second
    assert finding.at_stake_ns == 150_000.0
    assert stake.endswith("in each chain all but its longest kernel, the mean of 2 GPUs")


POW, MEAN, RSQRT = (
    f"void at::native::vectorized_elementwise_kernel<4, at::native::{op}_kernel_cuda<float> >(int)"
    for op in ("pow", "mean", "rsqrt")
)


def test_no_two_chains_have_one_name() -> None:
    steps = [POW, MEAN, RSQRT]
    trace = timeline(*[NVJET, *steps, CAST] * 4, *[NVJET, *steps, MUL] * 3, *[NVJET, *reversed(steps)] * 2)
    names = [chain.what for chain in fusion_chains(trace)]
    assert len(names) == 3
    assert len(set(names)) == 3
    assert names[0] == "RMSNorm in parts, with cast to bf16 vec4"


def test_steps_of_one_name_are_counted() -> None:
    (chain,) = fusion_chains(timeline(*[NVJET, MUL, MUL, MUL, CAST] * 3))
    assert chain.what == "elementwise mul fp32 vec4 x 3 → cast to bf16 vec4"


def test_kernels_of_one_name_are_told_apart_by_their_grids() -> None:
    small = {**LATENCY, WAVES: 0.1, "launch__grid_size": 8}
    trace = report(*(Launch("norm", 50_000.0 + i, small, grid=(8 + i, 1, 1)) for i in range(3)))
    finding = only(trace, kernel_small_grid)
    assert (finding.subject, finding.parts) == ("norm x 3", ("norm",))
    assert [line.partition(":")[0] for line in finding.evidence[:3]] == ["norm [10]", "norm [9]", "norm [8]"]


@pytest.mark.parametrize("names", [[NVJET, MUL, NVJET, CAST], [NVJET, NVJET], [MUL, NVJET]])
def test_small_kernels_with_others_between_them_are_none(names: list[str]) -> None:
    assert diagnose(timeline(*names * 5), [fusion_chances]).findings == ()


def test_a_report_of_chosen_kernels_does_not_tell_what_was_between_them() -> None:
    trace = report(*[Launch(MUL, 1e4), Launch(CAST, 1e4)] * 5)
    assert diagnose(trace, [fusion_chances]).findings
    facts = {"command": "ncu --kernel-name regex:elementwise ./p"}
    assert diagnose(replace(trace, origin=replace(trace.origin, facts=facts)), [fusion_chances]).findings == ()


def test_casts_that_stand_alone_are_conversions() -> None:
    finding = only(timeline(*[NVJET, CAST] * 10), type_conversions)
    assert finding.message == "10 kernels only change a type: 50 % of the kernels' time"
    assert diagnose(timeline(*[NVJET, CAST, MUL] * 10), [type_conversions]).findings == (), "fused with its neighbour"


@pytest.mark.parametrize(
    ("name", "is_skinny"), [(NVJET, True), (NVJET.replace("64x8_", "256x128_"), False), ("gemv_fp16_kernel", True)]
)
def test_matrix_kernels_for_a_few_tokens_are_told_to_batch(name: str, is_skinny: bool) -> None:
    assert bool(diagnose(timeline(name, name, MUL), [skinny_matrices]).findings) is is_skinny


def test_most_kernels_shorter_than_a_launch_are_told_once() -> None:
    finding = only(timeline(*[MUL] * 60, ns=2_000.0), short_kernels)
    assert finding.message == "100 % of the launches are shorter than 5.00 µs: 100 % of the kernels' time"
    assert diagnose(timeline(*[MUL] * 60, ns=6_000.0), [short_kernels]).findings == ()


@pytest.mark.parametrize(
    ("name", "gpu", "saved"),
    [
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(P)", H100, 1 / 3),
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(P)", "NVIDIA L4", None),
        ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128>>(P)", H100, None),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(AttentionKernel<bfloat16_t>::Params)", "NVIDIA L4", 1 / 2),
    ],
)
def test_an_older_attention_kernel_is_named_where_the_gpu_has_a_newer_one(
    name: str, gpu: str, saved: float | None
) -> None:
    found = diagnose(timeline(name, gpu=gpu), [attention_variant]).findings
    assert [finding.at_stake_ns for finding in found] == ([] if saved is None else [pytest.approx(10_000 * saved)])


FLASH_2 = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(P)"


@pytest.mark.parametrize(
    "other",
    ["nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", "nvjet_hsh_192x192_64x3_1x2_h_bz_TNT", "sm90_xmma_gemm_bf16"],
)
def test_kernels_that_run_on_no_other_gpu_tell_which_it_is_where_it_has_no_name(other: str) -> None:
    diagnosed = diagnose(timeline(FLASH_2, other, gpu=""), [attention_variant])
    (finding,) = diagnosed.findings
    assert "the capture names no GPU: Hopper by kernels that run on no other" in finding.evidence
    assert diagnosed.unjudged == ()


@pytest.mark.parametrize(("name", "lacks"), [(FLASH_2, True), (MUL, False)])
def test_where_nothing_tells_the_gpu_the_rule_says_that_it_lacks_it(name: str, lacks: bool) -> None:
    trace = timeline(name, "sm80_xmma_gemm_bf16bf16_bf16f32", gpu="")
    diagnosed = diagnose(trace, [attention_variant])
    assert diagnosed.findings == ()
    assert bool(diagnosed.unjudged) is lacks
    said = "no verdict of attention-variant: the capture names no GPU"
    assert (said in "".join(report_text(trace, TextStyle(200)))) is lacks


def test_uncoalesced_without_sector_counts_is_weighed_by_the_bytes_alone() -> None:
    metrics = {**CACHES, BYTES.format("ld"): 4.0}
    assert only(report(Launch("k", 1000.0, metrics)), kernel_uncoalesced).at_stake_ns == pytest.approx(831, abs=1)


# -- the shipped samples ----------------------------------------------------------------------------------------------


def test_the_samples_are_diagnosed_as_what_they_were_made_to_be() -> None:
    found = [(finding.rule, finding.subject) for finding in diagnose(load(LADDER)).findings]
    assert found == [
        ("kernel-uncoalesced", "sgemm_naive"),
        ("kernel-memory-roof", "sgemm_coalesced"),
        ("kernel-memory-roof", "sgemm_smem"),
        ("kernel-bank-conflicts", "smem_conflict"),
    ]
    llama = diagnose(load(LLAMA)).findings
    assert [finding.rule for finding in llama[:3]] == ["fusion-chances", "kernel-small-grid", "kernel-memory-roof"]
    assert "GEMM 64x8 bf16 nvjet" in llama[2].evidence[0]
    assert "RMSNorm in parts" in " ".join(llama[0].evidence)
    assert "fusion-chances" in {finding.rule for finding in diagnose(load(TIMELINE)).findings}


def no_kernel_is_told_two_causes_of_one_kind(trace: Trace) -> None:
    subjects = [(finding.rule, finding.action) for finding in diagnose(trace).findings]
    assert len(subjects) == len(set(subjects))


def test_a_chain_of_dependent_instructions_with_a_block_for_each_sm_is_no_small_grid() -> None:
    chain = {**LATENCY, WAVES: 0.06, "launch__grid_size": 132, **stall_ratios(wait=9.0, long_scoreboard=1.0)}
    first, *_ = diagnose(report(Launch("chain", 50_000.0, chain), gpu=H100)).findings
    assert first.rule == "kernel-waits"
    first, *_ = diagnose(report(Launch("chain", 50_000.0, {**chain, "launch__grid_size": 8}), gpu=H100)).findings
    assert first.rule == "kernel-small-grid"


BASIC_SET = {
    COMPUTE: 0.5, MEMORY: 1.5, DRAM: 0.1, WAVES: 0.5, OCCUPANCY: 70.0, "launch__grid_size": 528.0,
    "device__attribute_multiprocessor_count": 132.0,
}  # fmt: skip
"""Contended atomics as ncu's basic set counts them: which units are busy, and what is launched."""


@pytest.mark.parametrize(
    ("ns", "blocks", "rule"),
    [
        (7e6, 528.0, "kernel-latency-unknown"),
        (7e6, 64.0, "kernel-small-grid"),
        (4e3, 528.0, "kernel-small-grid"),
    ],
)
def test_what_nobody_counted_is_not_blamed_on_the_grid(ns: float, blocks: float, rule: str) -> None:
    """Where every SM has a block more blocks need not help; the command collects what the warps wait for."""
    trace = report(Launch("contended", ns, {**BASIC_SET, "launch__grid_size": blocks}), gpu=H100)
    (finding,) = diagnose(trace).findings
    assert finding.rule == rule
    assert "launch more blocks" not in finding.action or blocks < 132
    assert "WarpStateStats" in finding.next_command or "--set full" in finding.next_command
