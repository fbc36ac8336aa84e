"""How a kernel of a timeline came to run: its call, thread, ranges and step."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop import columns
from llmtop.analysis.kernels.launch_times import NO_CALL
from llmtop.analysis.pages.launch import launch_view
from llmtop.analysis.pages.launch_call import LaunchCall, launch_call, step_of_launch
from llmtop.model import Unknown
from llmtop.parsers.registry import load
from llmtop.tui.render.launch import launch_lines
from llmtop.tui.render.look import Look
from tests.kernel_traces import LADDER
from tests.nsys_capture import US, Capture


def steps() -> Capture:
    """Three steps in ranges; their kernels are launched in them and begin after the last of them."""
    made = Capture()
    for i in range(3):
        at = i * 100 * US
        made.nvtx(f"decode {i}", at, at + 90 * US)
        made.nvtx("attention", at + 10 * US, at + 40 * US)
        for later in (20, 50):
            call = made.call("cudaLaunchKernel", at + later * US, at + (later + 5) * US)
            made.kernel(at + (later + 15) * US, at + (later + 25) * US, call)
    return made


def test_the_call_tells_thread_latency_queue_and_ranges(tmp_path: Path) -> None:
    trace = steps().trace(tmp_path)
    inner, outer = launch_call(trace, 2), launch_call(trace, 3)
    assert isinstance(inner, LaunchCall)
    assert isinstance(outer, LaunchCall)
    assert (inner.name, inner.latency_ns, inner.queue_ns) == ("cudaLaunchKernel", 15 * US, 10 * US)
    assert (inner.ranges, outer.ranges) == (("decode 1", "attention"), ("decode 1",))
    assert inner.thread
    assert str(step_of_launch(trace, 2)) == "2 of 3: decode 1"


def test_one_that_begins_within_its_call_was_not_queued(tmp_path: Path) -> None:
    made = Capture()
    made.kernel(3 * US, 10 * US, made.call("cudaLaunchKernel", 0, 6 * US))
    call = launch_call(made.trace(tmp_path), 0)
    assert isinstance(call, LaunchCall)
    assert (call.latency_ns, call.queue_ns) == (3 * US, None)


def test_a_call_that_is_lost_or_comes_later_is_unknown(tmp_path: Path) -> None:
    made = Capture()
    made.kernel(0, 10 * US, made.call("cudaLaunchKernel", 5 * US, 8 * US))
    made.kernel(20 * US, 30 * US, 999)
    trace = made.trace(tmp_path)
    later = launch_call(trace, 0)
    assert isinstance(later, Unknown)
    assert "clocks do not fit" in str(later)
    assert launch_call(trace, 1) is NO_CALL


def test_reports_without_a_timeline_tell_of_no_call() -> None:
    trace = load(LADDER)
    assert launch_call(trace, 0) is None
    assert step_of_launch(trace, 0) is None


@pytest.mark.parametrize("long", [columns.LONG, 1])
def test_details_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: int) -> None:
    monkeypatch.setattr(columns, "LONG", long)
    view = launch_view(steps().trace(tmp_path), 2)
    text = "\n".join(strip.text.rstrip() for strip in launch_lines(view, 110, Look()))
    assert "launched    by cudaLaunchKernel on " in text
    assert "15.0 µs before it began; queued 10.0 µs of that, after the call returned" in " ".join(text.split())
    assert "step        2 of 3: decode 1" in text
    assert "ranges      decode 1 > attention" in text
