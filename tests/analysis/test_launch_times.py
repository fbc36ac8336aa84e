"""Launch latency and queue time of kernels, by nsys's definitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop import columns
from llmtop.analysis.kernels.launch_times import NO_CALL, NOT_QUEUED
from llmtop.analysis.kernels.table import Grouping, kernel_table, kernels_of
from llmtop.model import Trace
from tests.nsys_capture import US, Capture


def capture() -> Capture:
    """Three launches that are queued longer each time, one that begins within its call, one of another kernel."""
    made = Capture()
    for i in range(3):
        call = made.call("cudaLaunchKernel", i * 100 * US, i * 100 * US + 5 * US)
        made.kernel(i * 100 * US + 5 * US + (i + 1) * 10 * US, i * 100 * US + 60 * US, call)
    made.kernel(403 * US, 450 * US, made.call("cudaLaunchKernel", 400 * US, 406 * US))
    made.kernel(501 * US, 550 * US, made.call("cudaLaunchKernel", 500 * US, 507 * US), "quick")
    made.kernel(600 * US, 650 * US, 999, "lost")
    return made


def cells(trace: Trace) -> dict[str, tuple[object, object]]:
    table = kernel_table(trace, Grouping.NAME)
    keys = [column.key for column in table.columns]
    rows = (dict(zip(keys, table.cells(i), strict=True)) for i in range(len(table)))
    return {str(row["name"]): (row["latency"], row["queue"]) for row in rows}


def test_medians_are_of_the_launches_that_have_a_time(tmp_path: Path) -> None:
    assert cells(capture().trace(tmp_path)) == {
        "gemm": (20 * US, 20 * US),
        "quick": (1 * US, NOT_QUEUED),
        "lost": (NO_CALL, NO_CALL),
    }


def test_kernels_of_a_graph_count_from_its_launch(tmp_path: Path) -> None:
    made = Capture()
    call = made.call("cudaGraphLaunch", 0, 10 * US)
    for node in range(3):
        made.kernel((20 + node * 30) * US, (40 + node * 30) * US, call)
    assert cells(made.trace(tmp_path)) == {"gemm": (50 * US, 40 * US)}


def test_a_kernel_before_its_call_has_no_latency(tmp_path: Path) -> None:
    made = Capture()
    made.kernel(0, 10 * US, made.call("cudaLaunchKernel", 5 * US, 8 * US))
    times = kernels_of(made.trace(tmp_path)).launch_times
    assert str(times.latency[0]) == "nan"


def test_long_tables_are_joined_by_numpy_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = cells(capture().trace(tmp_path))
    (tmp_path / "capture.sqlite").unlink()
    monkeypatch.setattr(columns, "LONG", 1)
    assert cells(capture().trace(tmp_path)) == usual
