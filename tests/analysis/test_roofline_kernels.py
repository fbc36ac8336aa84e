"""Roofline points from counters: formulas, version traps, and what must not be placed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from llmtop.analysis.kernels.roofline import KernelRoofline, kernel_roofline
from llmtop.analysis.views import Quality
from llmtop.model import Value
from tests.kernel_traces import CLOCKS, COMPUTE, DRAM_COUNTERS, GHZ, MEMORY, TENSOR, fp32_counters


def placed(values: Mapping[str, Value]) -> KernelRoofline:
    return kernel_roofline(values, "k")


def test_a_fused_multiply_add_is_two_operations() -> None:
    (point,) = placed({**DRAM_COUNTERS, **fp32_counters(fma=500, add=100)}).points("k")
    assert point.flops_per_s == 1100 * GHZ
    assert point.intensity == pytest.approx(1.1)
    assert point.precision == "FP32"
    assert point.quality is Quality.MEASURED


def test_the_fraction_is_of_the_lower_roof() -> None:
    memory = placed({**DRAM_COUNTERS, **fp32_counters(fma=500, peak=20_000)})
    compute = placed({**DRAM_COUNTERS, **fp32_counters(fma=9_000, peak=20_000)})
    assert memory.fraction == 0.5, "1 of 2 TB/s, and 5 % of the FLOP peak"
    assert compute.fraction == 0.9
    (point,) = compute.points("k")
    ceiling = min(20_000 * GHZ, point.intensity * 2000 * GHZ)
    assert point.roof_fraction == pytest.approx(point.flops_per_s / ceiling)


def test_without_the_derived_counters_their_parts_do() -> None:
    op = "sass_thread_inst_executed_op_"
    values = {**DRAM_COUNTERS, **CLOCKS, f"sm__{op}dfma_pred_on.sum.peak_sustained": 100.0}
    values |= {f"smsp__{op}{name}_pred_on.sum.per_cycle_elapsed": 10.0 for name in ("dadd", "dmul", "dfma")}
    (rate,) = placed(values).work
    assert (rate.level, rate.achieved, rate.peak) == ("FP64", 40 * GHZ, 200 * GHZ)


@pytest.mark.parametrize("missing", ["fadd", "fmul", "ffma"])
def test_a_missing_part_makes_the_whole_unknown(missing: str) -> None:
    values = {name: value for name, value in fp32_counters(fma=500).items() if missing not in name}
    roofline = placed({**DRAM_COUNTERS, **values})
    assert roofline.work == ()
    assert roofline.fraction is None


HALF_NEW = {
    "derived__smsp__sass_thread_inst_executed_op_hadd_pred_on_x2": 20.0,
    "derived__smsp__sass_thread_inst_executed_op_hmul_pred_on_x2": 0.0,
    "derived__smsp__sass_thread_inst_executed_op_hfma_pred_on_x4": 400.0,
    "derived__sm__sass_thread_inst_executed_op_hfma_pred_on_x4": 4000.0,
}
HALF_OLD = {
    "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum.per_cycle_elapsed": 10.0,
    "smsp__sass_thread_inst_executed_op_hmul_pred_on.sum.per_cycle_elapsed": 0.0,
    "derived__smsp__sass_thread_inst_executed_op_hfma_pred_on_x2": 200.0,
    "derived__sm__sass_thread_inst_executed_op_hfma_pred_on_x2": 2000.0,
}


@pytest.mark.parametrize(("values", "rate"), [(HALF_NEW, 420), (HALF_OLD, 210), (HALF_OLD | HALF_NEW, 420)])
def test_half_precision_never_mixes_the_weights_of_two_versions(values: dict[str, float], rate: float) -> None:
    (half,) = placed({**DRAM_COUNTERS, **CLOCKS, **values}).work
    assert half.achieved == rate * GHZ
    assert half.fraction == pytest.approx(0.105)


def tensor(kind: str, rate: float, peak: float) -> dict[str, float]:
    name = f"sm__ops_path_tensor_{kind}.sum"
    return {f"{name}.per_cycle_elapsed": rate, f"{name}.peak_sustained": peak}


def test_dense_tensor_work_is_measured_by_the_dense_peak_of_the_fastest_instruction() -> None:
    roofline = placed(
        {
            **DRAM_COUNTERS,
            **CLOCKS,
            **tensor("src_bf16_dst_fp32", 1000, 8192),
            **tensor("op_hgmma_src_bf16_dst_fp32_sparsity_off", 1000, 4096),
            **tensor("op_hgmma_src_bf16_dst_fp32_sparsity_on", 0, 8192),
            **tensor("op_hmma_src_bf16_dst_fp32_sparsity_off", 0, 2730),
        }
    )
    assert [(rate.level, rate.fraction) for rate in roofline.work] == [("bf16 tensor", 1000 / 4096)]


def test_sparse_tensor_work_is_measured_by_the_sparse_peak() -> None:
    split = {**tensor("src_fp8_sparsity_off", 10, 8192), **tensor("src_fp8_sparsity_on", 90, 16384)}
    (rate,) = placed({**DRAM_COUNTERS, **CLOCKS, **split}).work
    assert (rate.level, rate.achieved, rate.peak) == ("fp8 tensor", 100 * GHZ, 16384 * GHZ)


def test_a_type_without_sparsity_has_its_plain_peak() -> None:
    (rate,) = placed({**DRAM_COUNTERS, **CLOCKS, **tensor("src_fp64", 64, 256)}).work
    assert rate.fraction == 0.25


def test_old_tensor_counters_are_an_estimate() -> None:
    old = {
        "smsp__inst_executed_pipe_tensor.sum.per_cycle_elapsed": 2.0,
        "sm__inst_executed_pipe_tensor.sum.peak_sustained": 8.0,
    }
    (point,) = placed({**DRAM_COUNTERS, **CLOCKS, **old}).points("k")
    assert point.quality is Quality.ESTIMATE
    assert point.flops_per_s == 1024 * GHZ


@pytest.mark.parametrize("busy", [15.0, 5.1, 2.0])
def test_a_tensor_kernel_without_tensor_counters_gets_no_fp32_verdict(busy: float) -> None:
    """At 2 % too, when FP32 does still less: a decode GEMM keeps its tensor pipe hardly busy."""
    roofline = placed({**DRAM_COUNTERS, **fp32_counters(fma=100), TENSOR: busy})
    assert roofline.points("k") == ()
    assert roofline.fraction is None
    (refusal,) = roofline.refusals
    assert "tensor operations were not counted" in refusal.why.reason
    assert refusal.why.remedy == "add --section SpeedOfLight_HierarchicalTensorRooflineChart"


def test_a_tensor_pipe_with_less_to_do_than_fp32_hides_nothing() -> None:
    roofline = placed({**DRAM_COUNTERS, **fp32_counters(fma=5000), TENSOR: 0.05})
    assert [point.precision for point in roofline.points("k")] == ["FP32"]


def test_a_pipe_without_one_tensor_instruction_hides_nothing_however_busy_it_seems() -> None:
    pipe = "sm__pipe_tensor_op_{}_cycles_active.avg.pct_of_peak_sustained_active"
    noise = {**DRAM_COUNTERS, **fp32_counters(fma=10), TENSOR: 0.4}
    assert placed(noise | {pipe.format("hmma"): 0.0, pipe.format("imma"): 0.0}).points("k")
    assert not placed(noise | {pipe.format("hmma"): 0.3, pipe.format("imma"): 0.0}).points("k")


def test_the_precision_that_does_most_comes_first() -> None:
    values = {**DRAM_COUNTERS, **fp32_counters(fma=10), **tensor("src_int8", 5000, 8192), TENSOR: 50.0}
    assert [rate.level for rate in placed(values).work] == ["int8 tensor", "FP32"]


def test_work_without_counters_says_what_speed_of_light_knows() -> None:
    roofline = placed({COMPUTE: 12.0, MEMORY: 97.0})
    (refusal,) = roofline.refusals
    assert refusal.why.reason == "no FLOP counters were collected; of peak: compute 12 %, memory 97 %"
    assert "--section SpeedOfLight_RooflineChart" in refusal.why.remedy


def test_a_copy_has_no_point_but_a_share_of_the_dram_roof() -> None:
    roofline = placed({**DRAM_COUNTERS, **fp32_counters(fma=0)})
    assert roofline.points("k") == ()
    assert roofline.fraction == 0.5


def test_flops_without_dram_counters_are_refused() -> None:
    (refusal,) = placed(fp32_counters(fma=10)).refusals
    assert refusal.why.remedy == "add --section SpeedOfLight_RooflineChart"


def test_every_memory_level_has_its_own_point() -> None:
    levels = {
        "lts__lts2xbar_cycles_active.sum.per_second": 100 * GHZ,
        "lts__lts2xbar_cycles_active.sum.peak_sustained": 160.0,
        "lts__cycles_elapsed.avg.per_second": 2 * GHZ,
        "l1tex__lsu_writeback_active_mem_lg.sum.per_second": 50 * GHZ,
        "l1tex__lsu_writeback_active_mem_lg.sum.peak_sustained": 100.0,
        "l1tex__cycles_elapsed.avg.per_second": GHZ,
    }
    points = placed({**DRAM_COUNTERS, **levels, **fp32_counters(fma=500)}).points("k")
    assert [(point.level, point.bytes_per_s / GHZ) for point in points] == [("DRAM", 1000), ("L2", 3200), ("L1", 6400)]
    assert [point.roof_fraction for point in points] == [0.5, 0.3125, 0.5]


@pytest.mark.parametrize(("read", "write"), [("read", "write"), ("op_read", "op_write")])
def test_dram_bytes_are_the_sum_of_both_ways_by_either_name(read: str, write: str) -> None:
    halves = {f"dram__bytes_{read}.sum.per_second": 300 * GHZ, f"dram__bytes_{write}.sum.per_second": 100 * GHZ}
    peaks = {name: value for name, value in DRAM_COUNTERS.items() if "per_second" not in name or "cycles" in name}
    roofline = placed({**peaks, **halves})
    assert roofline.dram is not None
    assert roofline.dram.achieved == 400 * GHZ


@pytest.mark.parametrize("bad", [math.nan, math.inf, "n/a"])
def test_a_value_that_is_no_number_is_unknown(bad: float | str) -> None:
    roofline = placed({**DRAM_COUNTERS, **fp32_counters(fma=10), "dram__bytes.sum.per_second": bad})
    assert roofline.dram is None
    assert roofline.points("k") == ()


def test_a_peak_of_zero_is_no_roof() -> None:
    roofline = placed({**DRAM_COUNTERS, **fp32_counters(fma=10), "dram__bytes.sum.peak_sustained": 0.0})
    assert [roof.level for roof in roofline.roofs] == ["FP32"]
