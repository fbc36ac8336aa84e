"""Shares of threads' time, against counters with known growth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.threads.cells import NOT_SAMPLED
from llmtop.analysis.threads.details import ThreadDetails, thread_details
from llmtop.analysis.threads.shares import (
    Shares,
    ThreadRow,
    ThreadsView,
    causes_text,
    engine_thread,
    threads_view,
)
from llmtop.analysis.threads.stall_times import resting_threads, timed_stacks
from llmtop.analysis.threads.table import threads_of, threads_table
from llmtop.model import NS_PER_S, Missing, Origin, Reading, Series, Stack, Trace, Track, TrackKind, Unknown, What
from llmtop.session import Recorder
from tests.analysis.verdict_scenes import POLLING
from tests.live_traces import SOURCES, Scene, live_trace

MAIN = ids.thread(4300, 4300)


def record(*, on_cpu: float, run_queue: float, causes: dict[str, int], seconds: int = 10) -> Trace:
    """One thread with given ns per ns on a CPU and in the run queue, and samples a second by cause."""
    recorder = Recorder(Origin("live"))
    track = Track(ids.thread(1, 2), TrackKind.THREAD, "worker", facts={"role": "EngineCore", "state": "S"})
    for tick in range(seconds + 1):
        t = (tick + 1) * NS_PER_S
        counts = {
            v.THREAD_ON_CPU: on_cpu * tick * NS_PER_S,
            v.THREAD_RUN_QUEUE: run_queue * tick * NS_PER_S,
            **{v.labelled(v.THREAD_STATE_SAMPLES, cause): float(n * tick) for cause, n in causes.items()},
        }
        readings = tuple(Reading(track.id, metric, t, value, "schedstat") for metric, value in counts.items())
        recorder.append("proc", Trace(Origin("live"), t, t, tracks={track.id: track}, readings=readings))
    return recorder.freeze()


def only_shares(trace: Trace) -> Shares:
    view = threads_view(trace)
    assert isinstance(view, ThreadsView)
    shares = view.rows[0].shares
    assert isinstance(shares, Shares)
    return shares


def test_blocked_is_what_is_left_split_by_cause() -> None:
    shares = only_shares(record(on_cpu=0.5, run_queue=0.1, causes={"futex": 3, "epoll": 1, "running": 6}))
    assert shares.on_cpu == pytest.approx(0.5)
    assert shares.run_queue == pytest.approx(0.1)
    assert dict(shares.blocked) == pytest.approx({"futex": 0.3, "epoll": 0.1})
    assert shares.main_cause == "futex"
    assert causes_text(shares) == "futex 30 %, epoll 10 %"


def test_blocked_without_state_samples_says_so() -> None:
    assert dict(only_shares(record(on_cpu=0.2, run_queue=0, causes={})).blocked) == pytest.approx({NOT_SAMPLED: 0.8})


def test_clock_skew_never_makes_more_than_the_whole() -> None:
    shares = only_shares(record(on_cpu=0.98, run_queue=0.07, causes={"futex": 1}))
    assert shares.on_cpu + shares.run_queue == pytest.approx(1.0)
    assert shares.blocked_total == pytest.approx(0)


@settings(deadline=None)
@given(
    st.floats(0, 1), st.floats(0, 1), st.dictionaries(st.sampled_from(["futex", "epoll", "disk"]), st.integers(0, 5))
)
def test_shares_sum_to_one(on_cpu: float, run_queue: float, causes: dict[str, int]) -> None:
    shares = only_shares(record(on_cpu=on_cpu, run_queue=run_queue, causes=causes, seconds=2))
    assert shares.on_cpu + shares.run_queue + shares.blocked_total == pytest.approx(1.0, abs=1e-6)


def test_new_thread_is_unknown_not_idle() -> None:
    view = threads_view(record(on_cpu=1, run_queue=0, causes={}, seconds=0))
    assert isinstance(view, ThreadsView)
    assert isinstance(view.rows[0].shares, Unknown)


def test_no_threads_has_the_collectors_reason() -> None:
    why = Unknown("the process is not ours to read", "run as root")
    assert threads_view(Trace(Origin("live"), missing=(Missing(What("proc"), why),), sources=SOURCES)) == why


def test_rows_are_sorted_by_interest_and_summed_by_role() -> None:
    view = threads_view(live_trace())
    assert isinstance(view, ThreadsView)
    assert [row.name for row in view.rows[:2]] == ["EngineCore", "vllm serve"]
    assert {total.role: total.threads for total in view.roles} == {"EngineCore": 3, "APIServer": 2}
    assert view.roles[0].cores == pytest.approx(0.79, abs=0.02)


def test_engine_thread_is_the_busiest_of_the_engine_process() -> None:
    row = engine_thread(live_trace())
    assert not isinstance(row, Unknown)
    assert (row.pid, row.tid, row.role) == (4300, 4300, "EngineCore")


def test_engine_thread_without_samples_is_unknown() -> None:
    assert isinstance(engine_thread(live_trace(ticks=1)), Unknown)


def test_table_sorts_and_filters() -> None:
    trace = live_trace()
    view = threads_view(trace)
    assert isinstance(view, ThreadsView)
    table = threads_table(trace, view)
    by_tid = table.sorted_by("tid", descending=False)
    assert [by_tid.key(i) for i in range(len(by_tid))] == sorted(table.keys, key=lambda key: key[1])  # type: ignore[index]
    filtered = table.filtered("NCCL")
    assert [filtered.cells(i)[0] for i in range(len(filtered))] == ["pt_nccl_watchdg"]


def crowd(*shares: float) -> tuple[Trace, ThreadsView]:
    """Threads of one name in one process, and its first."""
    trace = live_trace()
    rows = [ThreadRow(4242, 4242, "serve", "APIServer", Shares(0.2, 0.0, (("epoll", 0.8),)))]
    rows += [
        ThreadRow(4242, 5000 + i, "http", "APIServer", Shares(share, 0.0, (("poll", 1 - share),)))
        for i, share in enumerate(shares)
    ]
    return trace, ThreadsView(tuple(rows), (), 10.0, "schedstat")


def test_equal_threads_that_hardly_run_are_one_row() -> None:
    trace, view = crowd(0.4, 0.01, 0.02, 0.03)
    table = threads_table(trace, view)
    cells = [dict(zip((one.key for one in table.columns), table.cells(i), strict=True)) for i in range(len(table))]
    assert [one["name"] for one in cells] == ["serve", "http", "http ×3"]
    assert cells[2]["on_cpu"] == pytest.approx(0.06)
    assert cells[2]["blocked"] == pytest.approx(0.98)
    assert isinstance(cells[2]["tid"], Unknown)
    assert threads_of(view, table.key(2)) == ((4242, 5001), (4242, 5002), (4242, 5003))  # type: ignore[arg-type]
    assert threads_of(view, (4242, 5000)) == ((4242, 5000),)
    assert threads_of(view, (1, 1)) == ()


def test_details_of_a_thread_say_what_is_known_and_why_the_rest_is_not() -> None:
    trace = live_trace()
    woken = v.labelled(v.THREAD_WAKES, "4250")
    wakes: list[tuple[int, float | None]] = [(trace.end_ns - NS_PER_S * i, 100.0 * (20 - i)) for i in range(20, -1, -1)]
    series = {**trace.series, (MAIN, woken.name): Series.of(MAIN, woken, "eBPF", wakes)}
    tracks = {**trace.tracks, MAIN: replace(trace.tracks[MAIN], facts={"role": "EngineCore", "cpu": 3, "cpus": "0-7"})}
    why = Missing(What("ebpf"), Unknown("only root may load probes", "sudo llmtop"))
    details = thread_details(replace(trace, series=series, tracks=tracks, missing=(why,)), [(4300, 4300)])
    assert isinstance(details, ThreadDetails)
    told = {title: {row.label: row.text for row in rows} for title, rows in details.parts}
    assert (told["Thread"]["CPU"], told["Thread"]["may run on"]) == ("3", "0-7")
    assert told["The last 10 s"]["run queue"] == "9.0 %"
    assert told["Woken by"] == {"ZMQbg/IO/0 (tid 4250)": "100 /s"}
    assert told["System calls of its process"] == {"": why.why}
    assert list(told["Where its time went"]) == ["78 % on-cpu", "13 % futex", "9.0 % run queue"]
    history = next(row.history for _, rows in details.parts for row in rows if row.label == "on-CPU")
    assert len(history) > 50


def test_wakers_seen_in_slices_stand_for_all_the_time() -> None:
    trace = live_trace()
    woken, process = v.labelled(v.THREAD_WAKES, "4250"), ids.process_of(MAIN)
    times = [trace.end_ns - NS_PER_S * i for i in range(20, -1, -1)]
    seen = Series.of(MAIN, woken, "eBPF", [(t, 10.0 * i) for i, t in enumerate(times)])
    looked = Series.of(process, v.SCHEDULER_OBSERVED, "eBPF", [(t, 0.1 * NS_PER_S * i) for i, t in enumerate(times)])
    series = {**trace.series, (MAIN, woken.name): seen, (process, v.SCHEDULER_OBSERVED.name): looked}
    details = thread_details(replace(trace, series=series), [(4300, 4300)])
    assert isinstance(details, ThreadDetails)
    told = {title: {row.label: row.text for row in rows} for title, rows in details.parts}
    assert told["Woken by"] == {"ZMQbg/IO/0 (tid 4250)": "100 /s"}
    assert "sampled" in str(told["The last 10 s"]["blocked"])


def test_details_of_threads_that_have_ended_say_so() -> None:
    assert thread_details(live_trace(), [(1, 1)]) == Unknown("it has ended")
    details = thread_details(live_trace(), [(4300, 4311), (4300, 4312)])
    assert isinstance(details, ThreadDetails)
    assert details.title.endswith("×2, the busiest of them")
    assert [row.label for row in details.parts[-1][1]] == ["tid 4312"]


def test_unknown_shares_sort_last_either_way() -> None:
    trace = live_trace(ticks=1)
    view = threads_view(trace)
    assert isinstance(view, ThreadsView)
    table = threads_table(trace, view)
    for descending in (True, False):
        assert len(table.sorted_by("on_cpu", descending=descending)) == 5


def test_of_a_short_look_the_shares_are_of_what_was_seen() -> None:
    """A thread that polled all through a snapshot of 5 s is told as polling: probes have seen more than half of it."""
    view = threads_view(POLLING.but(seconds=5).trace())
    assert not isinstance(view, Unknown)
    assert view.window_s == 5
    (shares,) = (row.shares for row in view.rows if isinstance(row.shares, Shares))
    assert (shares.polling or 0.0) > 0.5


def test_roles_have_the_memory_of_their_processes() -> None:
    trace = live_trace(Scene(is_moving=False))
    sizes = {ids.process(4242): 2.0 * 2**30, ids.process(4300): 5.0 * 2**30}
    series = {
        (track, v.PROCESS_RSS.name): Series.of(track, v.PROCESS_RSS, "statm", [(trace.end_ns, size)])
        for track, size in sizes.items()
    }
    view = threads_view(replace(trace, series={**trace.series, **series}))
    assert not isinstance(view, Unknown)
    assert {total.role: total.rss for total in view.roles} == {"APIServer": 2.0 * 2**30, "EngineCore": 5.0 * 2**30}
    unread = threads_view(trace)
    assert not isinstance(unread, Unknown)
    assert {total.rss for total in unread.roles} == {None}


class Sleeper:
    """One thread that runs only when told to, looked at once a second."""

    def __init__(self) -> None:
        self.recorder, self.now, self.ran = Recorder(Origin("live")), 0, 5e9
        self.track = Track(ids.thread(1, 2), TrackKind.THREAD, "worker", facts={"role": "EngineCore"})
        self.samples: dict[str, int] = {}

    def look(self, cause: str, ran: float = 0.0) -> Shares | Unknown:
        view = threads_view(self.trace(cause, ran))
        assert isinstance(view, ThreadsView)
        return view.rows[0].shares

    def trace(self, cause: str, ran: float = 0.0) -> Trace:
        self.now += NS_PER_S
        self.ran += ran
        self.samples[cause] = self.samples.get(cause, 0) + 1
        counts = {v.labelled(v.THREAD_STATE_SAMPLES, one): float(n) for one, n in self.samples.items()}
        clocks = {v.THREAD_ON_CPU: self.ran, v.THREAD_RUN_QUEUE: 0.0}
        readings = tuple(Reading(self.track.id, m, self.now, n, "x") for m, n in (clocks | counts).items())
        poll = Trace(Origin("live"), self.now, self.now, tracks={self.track.id: self.track}, readings=readings)
        self.recorder.append("proc", poll)
        return self.recorder.freeze()


def test_what_the_flame_makes_of_a_thread_that_sleeps_on_is_made_once() -> None:
    sleeper = Sleeper()
    first = [timed_stacks(sleeper.trace("futex")) for _ in range(12)][-1]
    assert [(one.state, one.weight) for one in first] == [("futex", 10e9)]
    second = timed_stacks(sleeper.trace("futex"))
    assert second[0] is first[0]
    woken = [timed_stacks(sleeper.trace("futex", ran=0.5e9)) for _ in range(2)][-1]
    assert {one.state for one in woken} == {"on-cpu", "futex"}
    assert resting_threads(sleeper.trace("futex", ran=0.5e9)) == frozenset()


@pytest.mark.parametrize(("looked_s", "weight_s"), [(90.0, 2.0), (30.0, 2.0), (12.0, 5.0), (0.3, 60.0)])
def test_the_stacks_of_a_thread_that_has_ended_shrink_to_the_window(looked_s: float, weight_s: float) -> None:
    """They are of the last half minute, or of what there is of it, and the window of the others is of ten seconds."""
    trace = record(on_cpu=0.5, run_queue=0.0, causes={"futex": 5})
    ended = [
        Stack(("main",), 6e9 if unit == "ns" else 7.0, unit, "futex", ids.thread(1, 9)) for unit in ("ns", "samples")
    ]
    looked = replace(trace, stacks=tuple(ended), stacks_end_ns=trace.start_ns + round(looked_s * NS_PER_S))
    told = [one for one in timed_stacks(looked) if one.track == ids.thread(1, 9)]
    assert [(one.frames, one.unit) for one in told] == [(("main",), "ns")]
    assert told[0].weight == pytest.approx(weight_s * 1e9)


def test_the_time_in_a_state_is_divided_over_its_stacks_as_they_weigh() -> None:
    trace = record(on_cpu=0.5, run_queue=0.0, causes={"futex": 5})
    (thread,) = trace.tracks_of(TrackKind.THREAD)
    found = [Stack((name,), ns, "ns", "futex", thread.id) for name, ns in (("get", 3e9), ("put", 1e9))]
    told = {one.frames: one.weight for one in timed_stacks(replace(trace, stacks=tuple(found))) if one.frames}
    assert told == pytest.approx({("get",): 3.75e9, ("put",): 1.25e9})


def test_a_thread_that_sleeps_on_is_told_as_before_until_it_runs() -> None:
    sleeper = Sleeper()
    asleep = [sleeper.look("futex") for _ in range(12)][-1]  # the window is as long as there is anything to see
    assert isinstance(asleep, Shares)
    assert asleep.blocked == (("futex", 1.0),)
    assert sleeper.look("futex") is asleep

    sleeper.look("epoll", ran=0.5e9)
    woken = sleeper.look("epoll")
    assert isinstance(woken, Shares)
    assert woken.on_cpu > 0
    assert "epoll" in dict(woken.blocked)


def test_the_row_of_a_thread_that_sleeps_on_follows_what_its_track_tells() -> None:
    sleeper = Sleeper()
    views = [threads_view(sleeper.trace("futex")) for _ in range(14)]
    assert all(isinstance(view, ThreadsView) for view in views)
    first, second = (view.rows[0] for view in views[-2:] if isinstance(view, ThreadsView))
    assert first is second
    sleeper.track = replace(sleeper.track, name="renamed", facts={"role": "Worker", "state": "futex"})
    view = threads_view(sleeper.trace("futex"))
    assert isinstance(view, ThreadsView)
    assert (view.rows[0].name, view.rows[0].role, view.rows[0].state) == ("renamed", "Worker", "futex")
    assert view.rows[0].shares is first.shares


def test_how_a_sleep_is_known_is_looked_at_again_once_in_a_window() -> None:
    sleeper = Sleeper()
    first = [sleeper.look("futex") for _ in range(12)][-1]
    later = [sleeper.look("futex") for _ in range(12)][-1]
    assert later == first
    assert later is not first


def test_threads_of_one_id_in_two_recordings_are_two() -> None:
    one, other = Sleeper(), Sleeper()
    first = [one.look("futex") for _ in range(3)][-1]
    second = [other.look("epoll") for _ in range(3)][-1]
    assert isinstance(first, Shares)
    assert isinstance(second, Shares)
    assert (first.main_cause, second.main_cause) == ("futex", "epoll")
