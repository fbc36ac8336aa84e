"""Each kernel, call and range equal to what NVIDIA's own `nsys stats` lists of it, where that program is at hand."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from llmtop import ids
from llmtop.analysis.timeline.span_rows import span_rows
from llmtop.model import SpanKind, SpanTable
from llmtop.text import clean
from tests.parsers.nsys_stats import VERSION, export, nsys, read, stats, tables

__all__ = ["export", "nsys"]
_CUPTI = (1 << 32) - 1
"""Of a join key CUPTI's own number."""


def thread_of(spans: SpanTable, row: int) -> tuple[str, str]:
    """Process and thread of a span, as nsys prints them."""
    track = spans.tracks[spans.track_id[row]]
    return str(ids.pid(track)), track.rpartition("/")[2]


def test_kernels_by_grid_and_block_sum_up_as_nsys_stats_says(nsys: Path, export: Path) -> None:
    kernels = read(export).kernels
    assert kernels is not None
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i in range(len(kernels)):
        dims = ([column[i] for column in columns] for columns in (kernels.grid, kernels.block))
        found[kernels.name(i), *(" ".join(map(str, three)) for three in dims)].append(int(kernels.duration_ns[i]))
    rows = stats(nsys, "cuda_gpu_kern_gb_sum", export)
    assert {key: (len(own), sum(own), min(own), max(own)) for key, own in found.items()} == {
        (clean(row["Name"]), *(" ".join(row[of].split()) for of in ("GridXYZ", "BlockXYZ"))): tuple(
            int(float(row[of])) for of in ("Instances", "Total Time (ns)", "Min (ns)", "Max (ns)")
        )
        for row in rows
    }


def test_each_kernel_is_the_one_that_nsys_lists(nsys: Path, export: Path) -> None:
    trace = read(export)
    spans, kernels = trace.spans["kernel"], trace.kernels
    assert kernels is not None
    found = Counter(
        (start, end - start, join & _CUPTI, *(of[i] for of in (*kernels.grid, *kernels.block)), kernels.stream[i],
         kernels.registers[i], spans.names[spans.name_id[i]])
        for i, (start, end, join) in enumerate(zip(spans.start_ns, spans.end_ns, spans.correlation, strict=True))
    )  # fmt: skip
    numbers = (
        "Start (ns)",
        "Duration (ns)",
        "CorrId",
        "GrdX",
        "GrdY",
        "GrdZ",
        "BlkX",
        "BlkY",
        "BlkZ",
        "Strm",
        "Reg/Trd",
    )
    rows = [row for row in stats(nsys, "cuda_gpu_trace", export) if row["GrdX"]]
    assert found == Counter((*(int(row[of]) for of in numbers), clean(row["Name"])) for row in rows)


def test_each_call_is_the_one_that_nsys_lists(nsys: Path, export: Path) -> None:
    found = Counter(
        (start, end - start, spans.names[spans.name_id[i]], *thread_of(spans, i))
        for spans in tables(read(export), SpanKind.LAUNCH, SpanKind.CALL, SpanKind.BRIEF_CALL)
        for i, (start, end) in enumerate(zip(spans.start_ns, spans.end_ns, strict=True))
    )
    rows = stats(nsys, "cuda_api_trace", export)
    assert found == Counter(
        (int(row["Start (ns)"]), int(row["Duration (ns)"]), VERSION.sub("", row["Name"]), row["Pid"], row["Tid"])
        for row in rows
    )


def test_each_range_is_the_one_that_nsys_lists(nsys: Path, export: Path) -> None:
    found = Counter(
        (start, end, spans.names[spans.name_id[i]], *thread_of(spans, i))
        for spans in tables(read(export), SpanKind.NVTX)
        for i, (start, end) in enumerate(zip(spans.start_ns, spans.end_ns, strict=True))
    )
    rows = stats(nsys, "nvtx_pushpop_trace", export)
    assert found == Counter(
        (int(row["Start (ns)"]), int(row["End (ns)"]), clean(row["Name"]), row["PID"], row["TID"]) for row in rows
    )


def test_as_much_work_is_launched_in_each_range_as_nsys_projects(nsys: Path, export: Path) -> None:
    found = {row.name: row.launches for row in span_rows(read(export), each=True) if row.launches}
    rows = stats(nsys, "nvtx_gpu_proj_sum", export)
    assert found == {clean(row["Range"]): int(row["Total GPU Ops"]) for row in rows}
