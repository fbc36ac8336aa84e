"""The gap that a row about idle time leads to."""

from __future__ import annotations

from pathlib import Path

from llmtop import ids
from llmtop.analysis.timeline.account import idle_account
from llmtop.analysis.timeline.longest import longest_gaps
from llmtop.model import IdleTime, Stretch, Trace
from tests.nsys_capture import MS, Capture


def with_gaps(folder: Path) -> Trace:
    """Two GPUs that each waited for their threads' own code twice: for 5 ms, then for 20 ms or 30 ms."""
    capture = Capture()
    for gpu, lengths in enumerate(((5, 20, 0), (5, 30, 0))):
        at = 0
        for length in lengths:
            called = capture.call("cudaLaunchKernel", at * MS, at * MS + 10, tid=gpu + 1)
            capture.kernel(at * MS + 20, at * MS + MS, called, gpu=gpu)
            at += length + 1
    return capture.trace(folder)


def test_of_several_gpus_the_gap_is_the_one_with_most_of_it(tmp_path: Path) -> None:
    trace = with_gaps(tmp_path)
    first, second = idle_account(trace).gpus
    gaps = longest_gaps(trace)
    part = max(second.parts, key=lambda one: one.longest_ns)
    label = (part.cause, part.name)
    longest = gaps.of([first.gpu, second.gpu], [label])
    assert longest == gaps.about(IdleTime(second.gpu, (label,))) == Stretch(7 * MS, 37 * MS + 20, second.gpu)
    assert gaps.about(IdleTime(first.gpu, (label,))) == Stretch(7 * MS, 27 * MS + 20, first.gpu)
    assert gaps.of([first.gpu, ids.gpu(7)], [("own-code", "no such range")]) is None
