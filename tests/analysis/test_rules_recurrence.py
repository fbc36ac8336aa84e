"""Gaps that come back with every range of a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop import ids
from llmtop.analysis.rules import host_code
from llmtop.analysis.rules.recurrence import Recurrence, recurrence
from llmtop.model import Trace
from llmtop.parsers.registry import load
from tests.kernel_traces import TIMELINE
from tests.nsys_capture import MS, Capture


def made(folder: Path, pauses: list[list[int]]) -> Trace:
    """Ranges "step 0", "step 1" ... with these pauses, in ms, each between two kernels of 1 ms; 1 ms between ranges."""
    capture, now = Capture(), 0
    for step, own in enumerate(pauses):
        start = now
        for pause in (0, *own):
            now += pause * MS
            capture.kernel(now, now + MS, capture.call("cudaLaunchKernel", now - 10, now - 5))
            now += MS
        capture.nvtx(f"step {step}", start, now)
        now += MS
    return capture.trace(folder)


@pytest.mark.parametrize(
    ("pauses", "found"),
    [
        ([[30], [35], [32], [31]], Recurrence("step #", 4, 30 * MS, 35 * MS)),
        ([[50, 34, 9], [30], [2, 31], [32], [31, 3]], Recurrence("step #", 5, 30 * MS, 34 * MS)),
        ([[30], [15], [60], [30], [30]], Recurrence("step #", 5, 15 * MS, 60 * MS)),
        ([[30], [14], [30], [30], [30]], None),
        ([[30], [61], [30], [30], [30]], None),
        ([[30, 30], [30], [30], [30], [30]], Recurrence("step #", 5, 30 * MS, 30 * MS)),
        ([[30], [30], [30]], Recurrence("step #", 3, 30 * MS, 30 * MS)),
        ([[30], [35]], None),
        ([[30], [], [], []], None),
        ([[90], [2], [2], [90]], None),
        ([[30, 30], [30, 31], [30], [30]], None),
    ],
    ids=[
        *("each", "the first has more", "half and twice", "less than half", "more than twice", "one in five has two"),
        *("three", "too few"),
        "once",
        "of two kinds",
        "twice",
    ],
)
def test_a_gap_comes_back_where_each_range_has_one_like_it(
    pauses: list[list[int]], found: Recurrence | None, tmp_path: Path
) -> None:
    assert recurrence(made(tmp_path, pauses), ids.gpu(0), "step #") == found


def test_a_range_or_a_gpu_that_is_not_there_has_none(tmp_path: Path) -> None:
    trace = made(tmp_path, [[30], [30], [30]])
    assert recurrence(trace, ids.gpu(0), "decode") is None
    assert recurrence(trace, ids.gpu(1), "step #") is None


def test_a_finding_says_so_and_does_not_advise_a_warm_up_against_it() -> None:
    (finding,) = host_code.check(load(TIMELINE))
    assert finding.evidence[0] == "once per decode range: one gap of 34.4 ms to 39.7 ms in each of 6 (nsys)"
    assert "warm up before" not in finding.action
    assert "it comes back" in finding.action
