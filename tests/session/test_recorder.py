"""The recorder keeps a bounded window and freezes it without copying."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import ids, session
from llmtop.model import (
    NS_PER_S,
    Issue,
    Mark,
    MarkKind,
    Metric,
    Missing,
    Origin,
    Reading,
    Series,
    Severity,
    Stack,
    Trace,
    Track,
    TrackId,
    TrackKind,
    Unknown,
    What,
)
from llmtop.session import Recorder

LOAD = Metric("test.load", "%")
LIVE = Origin("live")


def poll(t_s: float, value: float | None = 1.0, *, track: TrackId = ids.gpu(0), source: str = "GPM") -> Trace:
    t_ns = int(t_s * NS_PER_S)
    return Trace(LIVE, t_ns, t_ns, readings=(Reading(track, LOAD, t_ns, value, source),))


def test_readings_become_a_series_with_its_unit_and_source() -> None:
    recorder = Recorder(LIVE)
    recorder.append("nvml", poll(1, 10.0))
    recorder.append("nvml", poll(2, 20.0))
    series = recorder.freeze().get(ids.gpu(0), LOAD)
    assert series is not None
    assert list(series) == [(NS_PER_S, 10.0), (2 * NS_PER_S, 20.0)]
    assert (series.metric.unit, series.source, series.last) == ("%", "GPM", 20.0)


def test_absent_value_is_a_gap_not_a_zero() -> None:
    recorder = Recorder(LIVE)
    recorder.append("nvml", poll(1, 5.0))
    recorder.append("nvml", poll(2, None))
    series = recorder.freeze().get(ids.gpu(0), LOAD)
    assert series is not None
    assert series.last is None
    assert math.isnan(series.values[-1])


def test_frozen_window_does_not_change_when_more_arrives() -> None:
    recorder = Recorder(LIVE, window_s=10)
    recorder.append("nvml", poll(1))
    frozen = recorder.freeze()
    for t in range(2, 500):
        recorder.append("nvml", poll(t, float(t)))
        recorder.freeze()
    series = frozen.get(ids.gpu(0), LOAD)
    assert series is not None
    assert list(series) == [(NS_PER_S, 1.0)]


@given(st.integers(1, 400), st.integers(1, 50))
def test_window_is_bounded_and_keeps_one_sample_before_it(polls: int, window_s: int) -> None:
    recorder = Recorder(LIVE, window_s=window_s)
    for t in range(1, polls + 1):
        recorder.append("nvml", poll(t, float(t)))
        frozen = recorder.freeze()
    series = frozen.get(ids.gpu(0), LOAD)
    assert series is not None
    assert list(series.values) == [float(t) for t in range(polls - len(series) + 1, polls + 1)]
    assert min(polls, window_s) <= len(series) <= window_s + 2


def test_memory_of_columns_stays_bounded_and_they_are_not_all_cut_at_once() -> None:
    recorder = Recorder(LIVE, window_s=100)
    tracks = [ids.gpu(i) for i in range(16)]
    held: list[list[int]] = []
    for t in range(1, 2000):
        for track in tracks:
            recorder.append("nvml", poll(t, track=track))
        frozen = recorder.freeze()
        columns = [frozen.get(track, LOAD) for track in tracks]
        held.append([len(series._times) for series in columns if series is not None])
    assert max(max(lengths) for lengths in held) <= 102 + 224
    for before, after in pairwise(held):
        assert sum(after[i] < before[i] for i in range(16)) <= 8


def test_sample_that_is_not_newer_is_dropped() -> None:
    recorder = Recorder(LIVE)
    for value in (1.0, 2.0):
        recorder.append("nvml", poll(1, value))
    series = recorder.freeze().get(ids.gpu(0), LOAD)
    assert series is not None
    assert list(series.values) == [1.0]


def test_a_frame_makes_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, made = Recorder(LIVE, window_s=10), []
    monkeypatch.setattr(session, "Series", lambda *parts: made.append(parts) or Series(*parts))  # type: ignore[func-returns-value]
    for t in range(3):
        for gpu in (ids.gpu(0), ids.gpu(1)):
            recorder.append("nvml", poll(1 + t, track=gpu))
    recorder.append("nvml", poll(3))  # not newer
    made_by_polls = len(made)
    traces = [recorder.freeze() for _ in range(3)]
    assert made_by_polls == len(made) == 6
    assert len({id(trace.get(ids.gpu(0), LOAD)) for trace in traces}) == 1


def test_a_series_that_stands_still_loses_its_oldest_samples_too() -> None:
    recorder = Recorder(LIVE, window_s=10)
    for t in range(5):
        recorder.append("proc", poll(1 + t, track=ids.thread(1, 1)))
    recorder.append("nvml", poll(30))
    series = recorder.freeze().get(ids.thread(1, 1), LOAD)
    assert series is not None
    assert list(series.times) == [5 * NS_PER_S]


def test_missing_of_a_collector_is_replaced_by_its_next_poll() -> None:
    recorder = Recorder(LIVE)
    why = Missing(What("gpu:0/gpm"), Unknown("GPU is lost"))
    recorder.append("nvml", Trace(LIVE, 1, 1, missing=(why,)))
    assert recorder.freeze().why_missing(What("gpu:0/gpm")) == why.why
    recorder.append("proc", Trace(LIVE, 2, 2))
    assert recorder.freeze().why_missing(What("gpu:0/gpm")) == why.why
    recorder.append("nvml", Trace(LIVE, 3, 3))
    assert recorder.freeze().why_missing(What("gpu:0/gpm")) is None


def test_issues_are_counted_up() -> None:
    recorder = Recorder(LIVE)
    for _ in range(3):
        recorder.append("proc", Trace(LIVE, 1, 1, issues=(Issue(Severity.WARNING, "late", "poll late"),)))
    (issue,) = recorder.freeze().issues
    assert issue.count == 3


def test_ended_track_takes_its_series_with_it() -> None:
    recorder = Recorder(LIVE)
    track = Track(ids.thread(1, 2), TrackKind.THREAD, "worker")
    recorder.append("proc", Trace(LIVE, 1, 1, tracks={track.id: track}))
    recorder.append("proc", poll(1, track=track.id))
    recorder.append("proc", Trace(LIVE, 2, 2, gone=(track.id,)))
    frozen = recorder.freeze()
    assert track.id not in frozen.tracks
    assert frozen.get(track.id, LOAD) is None


def test_marks_older_than_the_window_are_left_out() -> None:
    recorder = Recorder(LIVE, window_s=5)
    recorder.append("nvml", Trace(LIVE, 1, 1, marks=(Mark(NS_PER_S, MarkKind.XID, "gpu:0", "XID 13"),)))
    recorder.append("nvml", poll(3))
    assert len(recorder.freeze().marks) == 1
    recorder.append("nvml", poll(30))
    assert recorder.freeze().marks == ()


def test_stacks_of_the_last_poll_that_had_any_stay() -> None:
    recorder = Recorder(LIVE)
    stack = Stack(("main", "poll"), 5.0, "ns")
    recorder.append("ebpf", Trace(LIVE, 1, 1, stacks=(stack,)))
    recorder.append("ebpf", Trace(LIVE, 2, 2))
    assert recorder.freeze().stacks == (stack,)


def stacks_poll(t_s: float, *names: str) -> Trace:
    t_ns = int(t_s * NS_PER_S)
    return Trace(LIVE, t_ns, t_ns, stacks=tuple(Stack((name,), 1.0, "ns", "futex", ids.thread(7, 7)) for name in names))


def leaves(stacks: Sequence[Stack]) -> list[str]:
    return [stack.frames[-1] for stack in stacks]


def test_stacks_of_earlier_moments_are_kept_as_long_as_the_window() -> None:
    recorder = Recorder(LIVE, window_s=60)
    for t in range(1, 200, 2):
        recorder.append("ebpf", stacks_poll(t, f"at {t}"))
    trace = recorder.freeze()
    assert leaves(trace.stacks) == ["at 199"]
    assert trace.stacks_end_ns == 199 * NS_PER_S
    assert [leaves(window.stacks) for window in trace.past_stacks] == [[f"at {t}"] for t in range(141, 200, 10)]


def test_old_stacks_are_kept_less_often_but_without_a_gap() -> None:
    recorder = Recorder(LIVE, window_s=600)
    for t in range(0, 600, 2):
        recorder.append("ebpf", stacks_poll(t, f"at {t}"))
    ends = [window.end_ns // NS_PER_S for window in recorder.freeze().past_stacks]
    assert ends == [*range(0, 451, 30), *range(470, 600, 10)]


def test_old_stacks_leave_no_gap_when_they_come_unevenly() -> None:
    recorder = Recorder(LIVE, window_s=600)
    for t in range(0, 600, 2):
        recorder.append("ebpf", stacks_poll(1.05 * t, f"at {t}"))
    ends = [window.end_ns / NS_PER_S for window in recorder.freeze().past_stacks]
    assert max(later - earlier for earlier, later in pairwise(ends)) <= 30
    assert len(ends) < 40


def test_stacks_of_several_collectors_stand_side_by_side_and_stay_the_same_tuple() -> None:
    recorder = Recorder(LIVE)
    recorder.append("ebpf", stacks_poll(1, "native"))
    recorder.append("pyspy", stacks_poll(2, "python"))
    trace = recorder.freeze()
    assert leaves(trace.stacks) == ["native", "python"]
    recorder.append("nvml", poll(3))
    assert recorder.freeze().stacks is trace.stacks


def test_stacks_of_a_collector_that_fell_silent_are_not_now() -> None:
    recorder = Recorder(LIVE)
    recorder.append("pyspy", stacks_poll(1, "python"))
    recorder.append("ebpf", stacks_poll(31.5, "native"))
    assert leaves(recorder.freeze().stacks) == ["native"]
    recorder.append("nvml", poll(90))
    assert recorder.freeze().stacks == ()


def test_frames_of_kept_stacks_are_held_once() -> None:
    recorder = Recorder(LIVE)
    for t in (1, 11, 21):
        recorder.append("ebpf", stacks_poll(t, "".join(["ma", "in"])))
    first, *others = (window.stacks[0].frames for window in recorder.freeze().past_stacks)
    assert all(frames is first for frames in others)


@pytest.mark.parametrize(("uid", "remedy"), [(0, "apt install linux-perf"), (1000, "sudo apt install linux-perf")])
def test_remedies_know_who_they_are_for(monkeypatch: pytest.MonkeyPatch, uid: int, remedy: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    recorder = Recorder(Origin("live"))
    why = Unknown("perf is not installed", "sudo apt install linux-perf")
    recorder.append("ebpf", Trace(Origin("live"), 1, 1, missing=(Missing(What("ebpf"), why),)))
    assert recorder.freeze().missing == (Missing(What("ebpf"), Unknown(why.reason, remedy)),)
