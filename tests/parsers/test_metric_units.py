"""Units by name: reports do not store them."""

from __future__ import annotations

import pytest

from llmtop.parsers.metric_units import unit_of


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("gpu__time_duration.sum", "ns"),
        ("dram__bytes.sum", "bytes"),
        ("dram__bytes.sum.per_second", "bytes/s"),
        ("dram__bytes.sum.peak_sustained", "bytes/cycle"),
        ("dram__cycles_elapsed.avg.per_second", "Hz"),
        ("dram__bytes_read.sum.pct_of_peak_sustained_elapsed", "%"),
        ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
        ("breakdown:gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
        ("l1tex__t_sector_hit_rate.pct", "%"),
        ("lts__t_sectors_srcunit_tex_op_read.sum", "sector"),
        ("lts__t_sectors.avg.peak_sustained_elapsed.per_second", "sector/s"),
        ("sm__cycles_active.avg.peak_sustained_elapsed.per_second", "Hz"),
        ("smsp__inst_executed.sum", "inst"),
        ("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed", "inst/cycle"),
        ("derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2", "inst"),
        ("sm__ops_path_tensor_src_bf16_dst_fp32.sum.per_second", "op/s"),
        ("sm__warps_active.avg.per_cycle_active", "warp"),
        ("smsp__average_warp_latency_per_inst_issued.ratio", "cycle"),
        ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio", "bytes/sector"),
        ("smsp__pcsamp_warps_issue_stalled_membar", "warp"),
        ("smsp__pcsamp_warps_issue_stalled_branch_resolving_not_issued", "warp"),
        ("smsp__pcsamp_dropped_bytes", "bytes"),
        ("launch__registers_per_thread", "register/thread"),
        ("launch__shared_mem_per_block_static", "bytes/block"),
        ("launch__grid_size", ""),
        ("launch__waves_per_multiprocessor", ""),
        ("device__attribute_max_gpu_frequency_khz", "kHz"),
        ("device__attribute_total_memory", "bytes"),
        ("pmsampling:sm__cycles_active.avg", "cycle"),
        ("TPC.TriageCompute.sm__cycles_active.avg", "cycle"),
        ("group:memory__chart", ""),
        ("my_own_metric", ""),
        ("", ""),
        ("...", ""),
    ],
)
def test_unit_follows_from_the_name(name: str, unit: str) -> None:
    assert unit_of(name) == unit
