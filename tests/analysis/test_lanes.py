"""Lanes on one axis, and how they are laid on columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import ids, whats
from llmtop.analysis.pages.lanes import _put_back, lane_behind, lanes_at, lanes_view
from llmtop.analysis.series.readings import as_of, gpu_tracks, latest, mean
from llmtop.analysis.views import Lane, Lanes
from llmtop.model import LIVE, NS_PER_S, Metric, Missing, Series, Source, SourceLane, Sources, Trace, TrackKind, Unknown
from llmtop.vocabulary import (
    GPU_DRAM,
    PROCESS_GIL_WAITS,
    SERVER_RUNNING,
    THREAD_BLOCKED,
    THREAD_CUDA_SYNC,
    THREAD_LAUNCHES,
    THREAD_ON_CPU,
    THREAD_RUN_QUEUE,
    labelled,
)
from tests.analysis.probe_traces import PROCESS, THREAD, Probed
from tests.live_traces import AMPERE, NO_GPU, NOTHING, START_NS, Scene, live_trace


def test_gpu_server_and_engine_share_one_axis() -> None:
    view = lanes_view(live_trace())
    assert [lane.title for lane in view.lanes] == [
        "DRAM",
        "tensor",
        "GPU busy",
        "tokens",
        "waiting",
        "KV cache",
        "engine CPU",
        "engine run-q",
    ]
    assert all(lane.why_not is None for lane in view.lanes)
    assert view.end_ns - view.start_ns == 60 * NS_PER_S
    assert all(view.start_ns <= t <= view.end_ns for lane in view.lanes for t, _ in lane.samples)


def test_lanes_hold_what_was_measured() -> None:
    by_title = {lane.title: lane for lane in lanes_view(live_trace(Scene(is_moving=False))).lanes}
    newest = {title: lane.samples[-1][1] for title, lane in by_title.items()}
    shares = {"DRAM": 83, "tensor": 18, "GPU busy": 98.5, "KV cache": 0.87, "engine CPU": 78, "engine run-q": 9}
    assert newest == pytest.approx({**shares, "tokens": 2431, "waiting": 12})


def test_a_run_queue_that_fills_its_scale_takes_that_of_other_shares() -> None:
    """33 % must not look fuller than 67 % two lines above."""
    trace = live_trace()
    key = (ids.thread(4300, 4300), THREAD_RUN_QUEUE.name)
    old = trace.series[key]
    more = Series.of(*key[:1], THREAD_RUN_QUEUE, old.source, [(t, (value or 0) * 4) for t, value in old])
    lanes = {lane.title: lane for lane in lanes_view(replace(trace, series={**trace.series, key: more})).lanes}
    assert lanes["engine run-q"].samples[-1][1] == pytest.approx(36)
    assert lanes["engine run-q"].high == 100


def test_every_rule_of_a_live_server_has_a_lane_behind_it() -> None:
    view = lanes_view(live_trace())
    assert lane_behind(view, "kv-bound") == "KV cache"
    assert lane_behind(view, "memory-bound-decode") == "DRAM"
    assert lane_behind(view, "anything else") == "tokens"
    assert lane_behind(lanes_view(live_trace(NOTHING)), "kv-bound") == ""


def test_preemption_is_marked_at_its_time() -> None:
    view = lanes_view(live_trace())
    assert [(mark.t_ns, mark.text, mark.severity) for mark in view.marks] == [
        (START_NS + 30 * NS_PER_S, "preemption", "warning")
    ]


def test_mark_older_than_the_axis_is_left_out() -> None:
    assert lanes_view(live_trace(ticks=200)).marks == ()


def test_chosen_gpu_is_shown_and_named() -> None:
    view = lanes_view(live_trace(Scene(gpus=2)), ids.gpu(1))
    assert view.lanes[0].title == "DRAM gpu1"


def test_each_missing_part_costs_only_its_lanes() -> None:
    lanes = {lane.title: lane for lane in lanes_view(live_trace(NO_GPU)).lanes}
    assert lanes["DRAM"].why_not == Unknown("no NVIDIA driver library was found", "install the NVIDIA driver")
    assert lanes["tokens"].why_not is None
    assert lanes["engine CPU"].why_not is None


def test_nothing_at_all_leaves_seven_reasons() -> None:
    assert all(lane.why_not is not None for lane in lanes_view(live_trace(NOTHING)).lanes)


def test_gpu_without_gpm_says_so_in_its_lanes() -> None:
    lanes = {lane.title: lane for lane in lanes_view(live_trace(AMPERE)).lanes}
    assert lanes["DRAM"].why_not is not None
    assert lanes["DRAM"].why_not.reason == "GPM needs Hopper or newer"


def test_as_of_shows_the_trace_as_it_stood() -> None:
    trace = live_trace()
    then = as_of(trace, START_NS + 20 * NS_PER_S)
    assert then.end_ns == START_NS + 20 * NS_PER_S
    assert all((series.last_t_ns or 0) <= then.end_ns for series in then.series.values())
    assert then.marks == ()
    assert latest(then, ids.gpu(0), GPU_DRAM) != latest(trace, ids.gpu(0), GPU_DRAM)


def test_as_of_now_is_the_trace_itself() -> None:
    trace = live_trace(ticks=3)
    assert as_of(trace, trace.end_ns) is trace


def test_as_of_before_the_first_sample_knows_nothing() -> None:
    assert isinstance(latest(as_of(live_trace(), START_NS - NS_PER_S), ids.server(8000), SERVER_RUNNING), Unknown)


def test_mean_needs_two_readings() -> None:
    assert isinstance(mean(live_trace(ticks=1), ids.gpu(0), GPU_DRAM, 15 * NS_PER_S), Unknown)
    assert mean(live_trace(Scene(is_moving=False), ticks=2), ids.gpu(0), GPU_DRAM, 15 * NS_PER_S) == pytest.approx(83)


def test_gpus_are_in_order_of_their_index() -> None:
    assert [track.id for track in gpu_tracks(live_trace(Scene(gpus=12), ticks=1))] == [f"gpu:{i}" for i in range(12)]


PROBED = Probed(
    {THREAD_ON_CPU: 0.5, THREAD_RUN_QUEUE: 0.1},
    probes={
        (THREAD, labelled(THREAD_BLOCKED, "futex")): lambda s: 0.4 if s % 2 else 0.0,
        (THREAD, THREAD_CUDA_SYNC): 0.25,
        (THREAD, THREAD_LAUNCHES): 300.0,
        (PROCESS, PROCESS_GIL_WAITS): lambda s: 12.0 if s == 10 else 0.0,
    },
)


def test_probes_bring_more_lanes() -> None:
    lanes = {lane.title: lane for lane in lanes_view(PROBED.trace(20)).lanes}
    assert list(lanes)[-5:] == ["engine run-q", "in futex", "CUDA sync", "launches", "GIL waits"]
    assert {value for _, value in lanes["launches"].samples} == {300.0}
    assert lanes["CUDA sync"].samples[-1][1] == pytest.approx(25.0)
    assert {round(value or 0) for _, value in lanes["in futex"].samples} == {0, 40}
    assert sum(value or 0 for _, value in lanes["GIL waits"].samples) == 12.0
    assert lanes["GIL waits"].source == "eBPF"


def test_probe_that_was_taken_off_leaves_a_reason() -> None:
    lanes = {lane.title: lane for lane in lanes_view(replace(PROBED, observed=0.0).trace(20)).lanes}
    assert lanes["launches"].why_not is not None
    assert "cost too much" in lanes["launches"].why_not.reason


def test_cursor_reads_every_lane_at_an_instant() -> None:
    view = lanes_view(live_trace(Scene(is_moving=False)))
    at = lanes_at(view, view.end_ns - 10 * NS_PER_S + NS_PER_S // 4)
    assert [value.title for value in at] == [lane.title for lane in view.lanes]
    shares = {"DRAM": 83, "tensor": 18, "GPU busy": 98.5, "KV cache": 0.87, "engine CPU": 78, "engine run-q": 9}
    assert {value.title: value.value for value in at} == pytest.approx({**shares, "tokens": 2431, "waiting": 12})
    assert {value.age_ns for value in at} == {NS_PER_S // 4}


def test_cursor_finds_gaps_and_not_the_value_before_them() -> None:
    gap = Lane("x", "%", "test", ((0, 1.0), (NS_PER_S, None), (2 * NS_PER_S, 3.0), (9 * NS_PER_S, 4.0)))
    lanes = Lanes(0, 10 * NS_PER_S, (gap,))
    values = [lanes_at(lanes, int(t * NS_PER_S))[0] for t in (0.5, 1.5, 3.0, 6.0, 9.5)]
    assert [value.value for value in values if isinstance(value.value, float)] == [1.0, 3.0, 4.0]
    assert str(values[1].value) == "the source had no value at this moment"
    assert str(values[3].value) == "not read for 4 s at this moment"
    assert isinstance(lanes_at(lanes, -1)[0].value, Unknown)


def test_cursor_on_an_absent_lane_has_its_reason() -> None:
    at = lanes_at(lanes_view(live_trace(NO_GPU)), START_NS + 60 * NS_PER_S)
    assert at[0].value == Unknown("no NVIDIA driver library was found", "install the NVIDIA driver")


SWAPPED = Metric("vm.swapped_out", "pages", counter=True, title="pages swapped out")


def test_a_lane_of_the_machine_needs_no_other_source_that_describes_the_machine() -> None:
    owns = Source("vmstat", lanes=(SourceLane(SWAPPED, TrackKind.HOST),))
    samples = Series.of(ids.HOST, SWAPPED, "/proc/vmstat", [(n * NS_PER_S, 10.0 * n) for n in range(4)])
    known = Trace(LIVE, 0, 3 * NS_PER_S, series={(ids.HOST, SWAPPED.name): samples}, sources=Sources((owns,)))
    lane = lanes_view(known).lanes[-1]
    assert (lane.why_not, lane.unit, lane.samples[-1][1]) == (None, "pages/s", 10.0)
    why = Unknown("this kernel has no swap space", "CONFIG_SWAP=y")
    missing = (Missing(whats.reading(ids.HOST, SWAPPED), why),)
    assert lanes_view(replace(known, series={}, missing=missing)).lanes[-1].why_not == why


def test_no_cell_of_a_share_has_more_than_all_of_its_time() -> None:
    """A sleep is counted when it ends: what is more than the cell's length was before."""
    cells: list[float | None] = [0.2e9, 0.0, 1.6e9, None, 1.2e9, 0.5e9]
    _put_back(cells)
    assert cells == pytest.approx([0.2e9, 0.6e9, 1e9, None, 1e9, 0.5e9])
