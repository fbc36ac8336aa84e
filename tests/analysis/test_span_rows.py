"""What a timeline holds besides kernels, by kind and name."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop.analysis.timeline.span_rows import SpanRow, span_cells, span_rows
from llmtop.model import Origin, SpanTable, Trace
from llmtop.parsers.registry import load
from tests.kernel_traces import TIMELINE, Launch, report
from tests.kernel_traces import span_table as table

THREAD, OTHER = ids.thread(1, 1), ids.thread(1, 2)


def trace(*tables: SpanTable) -> Trace:
    return Trace(Origin("nsys-sqlite"), end_ns=1000, spans={one.kind: one for one in tables})


def test_a_range_has_the_gpu_time_of_what_was_launched_in_it_by_whoever_works_for_its_thread() -> None:
    gpu = ids.stream(ids.gpu(0), 1, 7)
    rows = span_rows(
        trace(
            table("nvtx", ("step 1", THREAD, 0, 100, -1, math.nan), ("step 2", THREAD, 100, 150, -1, math.nan)),
            table("launch", ("launch", THREAD, 10, 12, 1, math.nan), ("launch", OTHER, 20, 22, 2, math.nan)),
            table("call", ("cudaMemcpyAsync", THREAD, 120, 125, 3, math.nan)),
            table("kernel", ("k", gpu, 500, 530, 1, math.nan), ("k", gpu, 540, 600, 2, math.nan)),
            table("memcpy", ("copy HtoD", gpu, 700, 705, 3, 4096.0)),
        )
    )
    ranges = [row for row in rows if row.kind == "nvtx"]
    assert ranges == [SpanRow("nvtx", "step #", 2, 150, 100, None, 95, 3)]
    (copy,) = [row for row in rows if row.kind == "memcpy"]
    assert (copy.count, copy.bytes, copy.gpu_ns) == (1, 4096.0, None)
    assert copy.bytes_per_s == pytest.approx(4096 / 5e-9)


def test_a_graph_counts_with_all_its_kernels() -> None:
    gpu = ids.stream(ids.gpu(0), 1, 7)
    (row, *_) = span_rows(
        trace(
            table("nvtx", ("decode", THREAD, 0, 100, -1, math.nan)),
            table("launch", ("cudaGraphLaunch", THREAD, 10, 12, 1, math.nan)),
            table("kernel", *(("k", gpu, 500 + 10 * i, 505 + 10 * i, 1, math.nan) for i in range(4))),
        )
    )
    assert (row.gpu_ns, row.launches) == (20, 1)


def test_the_sample_s_ranges_hold_all_its_kernels() -> None:
    sample = load(TIMELINE)
    assert sample.kernels is not None
    ranges = {row.name: row for row in span_rows(sample) if row.kind == "nvtx"}
    assert {name: row.count for name, row in ranges.items()} == {"decode": 6, "prefill": 1}
    launched = sum(row.gpu_ns or 0 for row in ranges.values())
    assert launched == pytest.approx(math.fsum(sample.kernels.duration_ns), rel=0.01)


def test_a_report_of_kernels_has_none() -> None:
    assert span_rows(report(Launch("k"))) == ()


def test_ranges_are_called_by_what_recorded_them() -> None:
    marked = trace(table("nvtx", ("forward", THREAD, 0, 100, -1, math.nan)))
    of_pytorch = replace(marked, origin=replace(marked.origin, range_term="annotation"))
    assert [span_cells(span_rows(one)[0])[0] for one in (marked, of_pytorch)] == ["NVTX range", "annotation"]
