"""Shares of threads' time, against counters with known growth."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop import vocabulary as v
from llmtop.analysis.threads import (
    NOT_SAMPLED,
    Shares,
    ThreadsView,
    causes_text,
    engine_thread,
    threads_table,
    threads_view,
)
from llmtop.model import NS_PER_S, Missing, Origin, Reading, Trace, Track, TrackKind, Unknown
from llmtop.session import Recorder
from tests.live_traces import live_trace


def record(*, on_cpu: float, run_queue: float, causes: dict[str, int], seconds: int = 10) -> Trace:
    """One thread with given ns per ns on a CPU and in the run queue, and samples a second by cause."""
    recorder = Recorder(Origin("live"))
    track = Track("thread:1/2", TrackKind.THREAD, "worker", facts={"role": "EngineCore", "state": "S"})
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
    assert threads_view(Trace(Origin("live"), missing=(Missing("proc", why),))) == why


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
    view = threads_view(live_trace())
    assert isinstance(view, ThreadsView)
    table = threads_table(view)
    by_tid = table.sorted_by("tid", descending=False)
    assert [by_tid.key(i) for i in range(len(by_tid))] == sorted(table.keys, key=lambda key: key[1])  # type: ignore[index]
    filtered = table.filtered("NCCL")
    assert [filtered.cells(i)[0] for i in range(len(filtered))] == ["pt_nccl_watchdg"]


def test_unknown_shares_sort_last_either_way() -> None:
    view = threads_view(live_trace(ticks=1))
    assert isinstance(view, ThreadsView)
    table = threads_table(view)
    for descending in (True, False):
        assert len(table.sorted_by("on_cpu", descending=descending)) == 5
