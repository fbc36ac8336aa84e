"""Kernels of CUDA graphs traced node by node: the ranges in which each was captured name it when it is replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.analysis.kernels.nvtx_ranges import launch_ranges
from llmtop.model import Trace
from llmtop.parsers.nsys import NsysSqliteParser
from tests.nsys_capture import PID, TID, Capture, add_table, global_id

OLD = ("CUDA_GRAPH_EVENTS", "start end eventClass globalTid nameId graphNodeId originalGraphNodeId")
NEW = ("CUDA_GRAPH_NODE_EVENTS", OLD[1])
A, B = global_id(PID, TID), global_id(200, 201)
GRAPH = 5 << 32
"""The upper half of the number of a node is that of its graph."""


def trace(folder: Path, table: str, columns: str, *nodes: tuple[object, ...]) -> Trace:
    """Two layers are captured on one thread within "warm up"; the graph of both is launched in "decode"."""
    capture = Capture()
    capture.nvtx("warm up", 0, 100)
    capture.nvtx("attention", 10, 20)
    capture.nvtx("mlp", 30, 40)
    capture.nvtx("decode", 190, 300)
    launch = capture.call("cudaGraphLaunch", 200, 210)
    alone = capture.call("cudaLaunchKernel", 250, 260)
    capture.kernel(400, 450, launch)
    capture.kernel(450, 500, launch)
    capture.kernel(600, 650, alone)
    kernels = capture.tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    numbers = (GRAPH | 1, GRAPH | 2, None)
    kernels[:] = [(*row[:-1], number) for row, number in zip(kernels, numbers, strict=True)]
    path = capture.write(folder / "capture.sqlite")
    add_table(path, table, columns, *nodes)
    return NsysSqliteParser().parse(path)


@pytest.mark.parametrize(("table", "columns"), [OLD, NEW], ids=["old", "new"])
def test_a_replayed_kernel_is_of_the_ranges_that_it_was_captured_in(tmp_path: Path, table: str, columns: str) -> None:
    """The graph was cloned when it was instantiated; process 200 has nodes with the same numbers."""
    found = trace(
        tmp_path,
        table,
        columns,
        (15, 16, 77, A, 1, 1, None),
        (35, 36, 77, A, 1, 2, None),
        (50, 51, 77, A, 1, GRAPH | 1, 1),
        (52, 53, 77, A, 1, GRAPH | 2, 2),
        (15, 16, 77, B, 1, GRAPH | 2, None),
    )
    assert "captured" in found.spans
    captured = found.spans["captured"]
    assert list(zip(captured.start_ns, captured.end_ns, captured.correlation, strict=True)) == [
        (15, 16, 0),
        (35, 36, 1),
    ]
    assert captured.tracks == ("thread:100/101",)
    assert launch_ranges(found) == [("decode", "warm up", "attention"), ("decode", "warm up", "mlp"), ("decode",)]


@pytest.mark.parametrize(
    "nodes",
    [
        [(50, 51, 77, A, 1, GRAPH | 1, GRAPH | 2), (50, 51, 77, A, 1, GRAPH | 2, GRAPH | 1)],
        [(50, 51, 77, A, 1, GRAPH | 1, 2), (50, 51, 77, A, 1, 2, 3), (50, 51, 77, A, 1, 3, 2)],
        [("text", None, 77, A, 1, GRAPH | 1, 3), (50, 51, 77, None, 1, 2.5, b"")],
        [(50, 51, 77, A, 1, 9, None)],
    ],
    ids=["a circle", "a way into a circle", "junk", "others"],
)
def test_what_the_capture_does_not_tell_is_of_the_launch_alone(tmp_path: Path, nodes: list[tuple[object, ...]]) -> None:
    found = trace(tmp_path, *NEW, *nodes)
    assert len(found.spans["captured"]) == 0
    assert launch_ranges(found) == [("decode",)] * 3


def test_clones_of_clones_lead_to_what_was_captured_however_many(tmp_path: Path) -> None:
    clones = [(50, 51, 77, A, 1, number, number - 1) for number in range(2, 300)]
    found = trace(tmp_path, *NEW, (15, 16, 77, A, 1, 1, None), *clones, (60, 61, 77, A, 1, GRAPH | 1, 299))
    assert list(found.spans["captured"].start_ns) == [15]


def test_a_clone_whose_original_is_not_told_was_captured_where_it_was_made(tmp_path: Path) -> None:
    found = trace(tmp_path, *NEW, (15, 16, 77, A, 1, GRAPH | 1, 9))
    assert launch_ranges(found)[0] == ("decode", "warm up", "attention")
