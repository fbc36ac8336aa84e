"""The ranges that hold most of a GPU's idle time, with all that they call."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from llmtop import ids
from llmtop.analysis.rules import host_code
from llmtop.analysis.timeline.holders import IdleHolder, idle_holder
from llmtop.parsers.registry import load
from llmtop.units import duration
from tests.kernel_traces import SAMPLES
from tests.nsys_capture import MS, US, Capture

GPU = ids.gpu(0)


def loading(*, name: str, within: str) -> Capture:
    """Steps of 10 ms, of which the GPU is at work for 3: it waits for a range of 6 ms, most of which is another one."""
    made = Capture()
    made.os("write", 0, 1)
    for step in range(10):
        now = step * 10 * MS
        made.nvtx("step", now, now + 10 * MS)
        made.nvtx(name, now + MS, now + 7 * MS)
        made.nvtx(within, now + 2 * MS, now + 6 * MS)
        call = made.call("cudaLaunchKernel", now + 7 * MS - 10 * US, now + 7 * MS - 5 * US)
        made.kernel(now + 7 * MS, now + 10 * MS, call)
    return made


def test_the_shortest_range_that_holds_most_of_the_idle_time_counts_with_what_it_calls(tmp_path: Path) -> None:
    holder = idle_holder(loading(name="batch", within="part").trace(tmp_path), GPU)
    assert holder is not None
    assert (holder.name, holder.spans, holder.open_ns, holder.idle_ns) == ("part", 10, 40 * MS, 40 * MS)
    assert holder.share == pytest.approx(40 / 70)


def test_it_says_how_often_it_ran_and_how_long_together() -> None:
    holder = IdleHolder("decode", 32, 146_000_000, 120_000_000, 0.72)
    assert str(holder) == (
        "within decode, with all that it calls: 120 ms, 72 % of the idle time; it ran 32 times, 146 ms together (nsys)"
    )
    assert "; it ran 1 time, 146 ms together" in str(replace(holder, spans=1))


def test_ranges_that_are_open_nearly_all_the_time_hold_nothing_in_particular(tmp_path: Path) -> None:
    made = Capture()
    for step in range(10):
        now = step * 10 * MS
        made.nvtx("step", now, now + 10 * MS)
        made.kernel(now + 7 * MS, now + 10 * MS, made.call("cudaLaunchKernel", now + 7 * MS - US, now + 7 * MS))
    assert idle_holder(made.trace(tmp_path), GPU) is None


@pytest.mark.parametrize(
    ("iterator", "says"),
    [
        ("_SingleProcessDataLoaderIter", "num_workers=N"),
        ("_MultiProcessingDataLoaderIter", "raise the DataLoader's num_workers"),
    ],
)
def test_where_batches_are_loaded_is_what_the_loader_is_to_change(tmp_path: Path, iterator: str, says: str) -> None:
    name = f"enumerate(DataLoader)#{iterator}.__next__"
    (finding,) = host_code.check(loading(name="train", within=name).trace(tmp_path))
    assert says in finding.action


def test_the_loader_of_a_public_trace_holds_what_its_events_say() -> None:
    path = SAMPLES / "public" / "pytorch__kineto__worker0.1623143089861.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("needs ../shared/samples/public: captures of others, which are not shipped")
    with gzip.open(path) as file:
        events = [one for one in json.load(file)["traceEvents"] if one.get("ph") == "X"]
    works = sorted(
        (one["ts"], one["ts"] + one["dur"])
        for one in events
        if one.get("cat", "").lower() in {"kernel", "memcpy", "memset", "gpu_memcpy", "gpu_memset"}
    )
    busy: list[list[float]] = []
    for start, end in works:
        if busy and start <= busy[-1][1]:
            busy[-1][1] = max(busy[-1][1], end)
        else:
            busy.append([start, end])
    loads = [(one["ts"], one["ts"] + one["dur"]) for one in events if one["name"].startswith("enumerate(DataLoader)")]
    at_work = sum(max(0, min(end, b) - max(start, a)) for start, end in loads for a, b in busy)
    trace = load(path)
    holder = idle_holder(trace, GPU)
    assert holder is not None
    assert "DataLoader" in holder.name
    assert holder.spans == len(loads) == 6
    assert holder.open_ns == pytest.approx(1000 * sum(end - start for start, end in loads), abs=10)
    assert holder.idle_ns == pytest.approx(holder.open_ns - 1000 * at_work, abs=100)
    (finding,) = host_code.check(trace)
    said = " ".join(finding.evidence)
    assert "356 ms, 77 % of the idle time; it ran 6 times, " in said
    assert f"{duration(holder.open_ns)} together (" in said
    assert "num_workers" in finding.action
