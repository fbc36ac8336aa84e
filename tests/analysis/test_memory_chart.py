"""The memory chart: against what the counters of neighbouring units say of the same traffic."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from llmtop.analysis.kernels.counters import number
from llmtop.analysis.kernels.memory_chart import WAYS, MemoryChart, MemoryUnit, memory_chart
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.kernels.traffic_table import charts, said_of_traffic, traffic_rows, traffic_table
from llmtop.model import Trace, Unknown, Value
from llmtop.parsers.registry import load
from tests.kernel_traces import LADDER, LLAMA, SAMPLES, TIMELINE, Launch
from tests.kernel_traces import report as made

COPY = LADDER.with_name("copy-at-roof.ncu-rep.xz")
CUTLASS = SAMPLES / "public" / "panjd123__cutlass__384.ncu-rep"


def chart_of(trace: Trace, launch: int = 0) -> MemoryChart:
    found = memory_chart(trace, launch)
    assert isinstance(found, MemoryChart)
    return found


def amounts(chart: MemoryChart, far: MemoryUnit) -> tuple[object, ...]:
    link = chart.link(far)
    assert link is not None
    return link.read.requests, link.read.bytes, link.written.requests, link.written.bytes


def test_a_copy_goes_once_through_every_unit() -> None:
    """It reads and writes 1 GiB, each warp 512 bytes at a time."""
    chart = chart_of(load(COPY))
    assert amounts(chart, MemoryUnit.GLOBAL) == (2.0**21, 2.0**30, 2.0**21, 2.0**30)
    assert amounts(chart, MemoryUnit.L2) == (2.0**23, 2.0**30, 2.0**23, 2.0**30)
    read, written = amounts(chart, MemoryUnit.DEVICE)[1::2]
    assert read == pytest.approx(2**30, rel=0.02)
    assert written == pytest.approx(2**30, rel=0.02)
    assert amounts(chart, MemoryUnit.SHARED) == (0.0, None, 0.0, None)
    assert amounts(chart, MemoryUnit.TEXTURE)[2:] == (None, None), "nobody writes through it"
    assert amounts(chart, MemoryUnit.SYSTEM) == amounts(chart, MemoryUnit.PEER) == (None, 0.0, None, 0.0)
    assert chart.missing is None


def test_a_way_by_which_nothing_was_read_has_no_hit_rate() -> None:
    chart = chart_of(load(COPY))
    hits = {unit: chart.block(unit).hits for unit in WAYS}
    assert hits == {unit: 0.0 if unit is MemoryUnit.GLOBAL else None for unit in WAYS}
    assert chart.block(MemoryUnit.L2).hits == pytest.approx(51.2, abs=0.1)
    assert chart.block(MemoryUnit.DEVICE).busy == pytest.approx(85.7, abs=0.1)
    assert chart.block(MemoryUnit.KERNEL).busy is None


@pytest.mark.skipif(not CUTLASS.exists(), reason="the public samples are not on this machine")
def test_an_a100_is_as_ncu_prints_it() -> None:
    """`ncu --import --page details --print-details all` (2024.1.1), tables Memory Chart and Shared Memory."""
    chart = chart_of(load(CUTLASS))
    assert amounts(chart, MemoryUnit.GLOBAL)[::2] == (59904.0, 4608.0)
    assert amounts(chart, MemoryUnit.LOCAL)[::2] == (2304.0, 1536.0)
    assert amounts(chart, MemoryUnit.L2)[1::2] == (29638656.0, 1376256.0)
    assert amounts(chart, MemoryUnit.DEVICE)[1::2] == (1523840.0, 0.0)
    assert amounts(chart, MemoryUnit.SHARED)[::2] == (307200.0, 18432.0)
    assert chart.block(MemoryUnit.LOCAL).hits == 100
    assert chart.block(MemoryUnit.L1).busy == pytest.approx(15.48, abs=0.01)
    assert chart.block(MemoryUnit.L2).busy == pytest.approx(22.02, abs=0.01)
    assert chart.link(MemoryUnit.TMA) is None, "it came later"


def both_ends_of_the_crossbar_tell_the_same(trace: Trace) -> None:
    """What L1 sent to L2 is what that was asked to write; what it read may differ, as L1 hits more in one run."""
    for launch in kernels_of(trace).standing()[:4]:
        chart, metrics = memory_chart(trace, launch), kernels_of(trace).metrics(launch)
        sectors = "lts__t_sectors_srcunit_tex_op_{}.sum"
        reads, writes, *atomics = (
            number(metrics, sectors.format(op)) for op in ("read", "write", "atom_dot_alu", "red")
        )
        if isinstance(chart, Unknown) or reads is None or writes is None or any(atomics):
            continue
        read, written = amounts(chart, MemoryUnit.L2)[1::2]
        assert written == 32 * writes
        assert read == pytest.approx(32 * reads, rel=0.25)


def counted(**metrics: float) -> MemoryChart:
    named: Mapping[str, Value] = {name.replace("__dot__", "."): value for name, value in metrics.items()}
    return chart_of(made(Launch("scale", metrics=named)))


def test_newer_chips_name_dram_traffic_otherwise() -> None:
    chart = counted(dram__bytes_op_read__dot__sum=640.0, dram__bytes_op_write__dot__sum=32.0)
    assert amounts(chart, MemoryUnit.DEVICE)[1::2] == (640.0, 32.0)


def test_one_part_that_is_not_known_leaves_the_sum_unknown() -> None:
    """Stores without atomics would be too few."""
    chart = counted(l1tex__t_requests_pipe_lsu_mem_global_op_st__dot__sum=5.0, lts__t_sector_hit_rate__dot__pct=101.5)
    assert isinstance(amounts(chart, MemoryUnit.GLOBAL)[2], Unknown)
    assert chart.notes == ("L2 hits above 100 %: its parts were counted in several runs of the kernel, which differed",)


def test_what_is_missing_has_the_command() -> None:
    llama = chart_of(load(LLAMA))
    assert llama.missing is not None
    assert llama.missing.reason == "traffic between units not collected"
    assert "--set full" in llama.missing.remedy
    assert amounts(llama, MemoryUnit.GLOBAL)[0] is llama.missing
    assert isinstance(llama.block(MemoryUnit.L2).hits, float)
    nothing = memory_chart(made(Launch("scale")), 0)
    assert isinstance(nothing, Unknown)
    assert nothing.remedy.startswith("ncu --kernel-name scale")
    failed = memory_chart(made(Launch("scale", grid=(0, 1, 1))), 0)
    assert failed == Unknown("the launch failed")


def test_the_table_has_a_row_for_each_unit_and_one_for_a_kernel_of_which_nothing_is_known() -> None:
    trace = made(Launch("copy", metrics={"dram__bytes_read.sum": 64.0}), Launch("scale"))
    found = charts(trace)
    assert isinstance(found, dict)
    table = traffic_table(trace, found)
    assert [table.cells(row)[:2] for row in range(len(table))][-2:] == [("copy", "peer"), ("scale", found[1])]
    (device,) = (row for row in traffic_rows(chart_of(trace)) if row.unit is MemoryUnit.DEVICE)
    assert (device.reads, device.read, device.of) == (None, 64.0, "")
    assert isinstance(device.written, Unknown)
    assert "of 2 of 2 kernels not all is known" in said_of_traffic(found)[0]
    timeline = charts(load(TIMELINE))
    assert isinstance(timeline, Unknown)
    assert said_of_traffic(timeline) == [str(timeline)]
