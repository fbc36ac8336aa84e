"""What probes add to a thread's shares: exact causes, polling, CUDA synchronisation; and when they do not."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.threads.probes import NOT_SEEN, launch_rate
from llmtop.analysis.threads.shares import (
    SAMPLED,
    WINDOW_NS,
    Shares,
    ThreadsView,
    api_threads,
    is_polling,
    main_thread,
    threads_of_role,
    threads_view,
)
from llmtop.analysis.threads.table import threads_table
from llmtop.model import NS_PER_S, Metric, Missing, Origin, Reading, Trace, Track, TrackId, TrackKind, Unknown, What
from llmtop.session import Recorder
from llmtop.tui.render.threads import how_known
from tests.analysis.probe_traces import PROCESS, THREAD, Probed, Rate

YIELDS = v.labelled(v.THREAD_SPINS, "sched_yield")
POLLS = v.labelled(v.THREAD_SPINS, "poll")
BUSY: Mapping[Metric, Rate] = {v.THREAD_ON_CPU: 0.97, v.THREAD_RUN_QUEUE: 0.01}
HALF: Mapping[Metric, Rate] = {v.THREAD_ON_CPU: 0.5, v.THREAD_RUN_QUEUE: 0.1}


def blocked(cause: str) -> tuple[TrackId, Metric]:
    return THREAD, v.labelled(v.THREAD_BLOCKED, cause)


def shares_of(trace: Trace) -> Shares:
    view = threads_view(trace)
    assert isinstance(view, ThreadsView)
    shares = view.rows[0].shares
    assert isinstance(shares, Shares)
    return shares


def test_measured_causes_stand_before_sampled_ones() -> None:
    sampled = {(THREAD, v.labelled(v.THREAD_STATE_SAMPLES, "disk")): 1.0}
    trace = Probed(HALF, counters=sampled, probes={blocked("futex"): 0.3, blocked("epoll"): 0.1}).trace()
    shares = shares_of(trace)
    assert shares.are_causes_exact
    assert dict(shares.blocked) == pytest.approx({"futex": 0.3, "epoll": 0.1})
    view = threads_view(trace)
    assert isinstance(view, ThreadsView)
    assert view.causes == "measured at each sleep (eBPF)"
    assert threads_table(trace, view).columns[-1].help == view.causes


def test_what_the_measured_causes_leave_has_a_name() -> None:
    shares = shares_of(Probed(HALF, probes={blocked("futex"): 0.1}).trace())
    assert dict(shares.blocked) == pytest.approx({"futex": 0.1, NOT_SEEN: 0.3})
    assert not shares.are_causes_exact


def test_probes_that_shed_what_tells_the_cause_are_not_called_exact() -> None:
    """System calls cost too much: sleeps are still timed, but not in what. The samples of /proc go on."""
    sampled = {(THREAD, v.labelled(v.THREAD_STATE_SAMPLES, "epoll")): 1.0}
    causes = {blocked("futex"): lambda s: 0.4 if s < 4 else 0.0, blocked("unseen"): lambda s: 0.0 if s < 4 else 0.4}
    shares = shares_of(Probed(HALF, counters=sampled, probes=causes).trace())
    assert dict(shares.blocked) == pytest.approx({"epoll": 0.4})
    assert not shares.are_causes_exact


def test_probes_that_came_back_are_exact_again_and_the_rest_is_not_seen() -> None:
    sampled = {(THREAD, v.labelled(v.THREAD_STATE_SAMPLES, "epoll")): 1.0}
    causes = {blocked("futex"): lambda s: 0.0 if s < 5 else 0.4, blocked("unseen"): lambda s: 0.4 if s < 5 else 0.0}
    shares = shares_of(Probed(HALF, counters=sampled, probes=causes).trace())
    assert dict(shares.blocked)["futex"] == pytest.approx(0.32, abs=0.01)
    assert dict(shares.blocked)[NOT_SEEN] == pytest.approx(0.08, abs=0.01)
    assert shares.are_causes_exact


def test_probes_that_looked_for_half_the_time_speak_for_all_of_it() -> None:
    shares = shares_of(Probed(HALF, probes={blocked("futex"): 0.2}, observed=0.5).trace())
    assert dict(shares.blocked) == pytest.approx({"futex": 0.4})


def test_looks_in_slices_divide_the_blocked_share_and_say_how_much_was_looked_at() -> None:
    sampled = {(THREAD, v.labelled(v.THREAD_STATE_SAMPLES, "disk")): 1.0}
    slept = {blocked("futex"): 0.06, blocked("epoll"): 0.02}
    trace = Probed(HALF, counters=sampled, probes=slept, observed=0.2).trace()
    shares = shares_of(trace)
    assert dict(shares.blocked) == pytest.approx({"futex": 0.3, "epoll": 0.1})
    assert not shares.are_causes_exact
    assert shares.looked == pytest.approx(0.2)
    view = threads_view(trace)
    assert isinstance(view, ThreadsView)
    assert view.causes == "sampled: each sleep in 20% of the time (eBPF)"
    assert how_known(view) == "sampled in 20% of the time (eBPF)"


def test_a_look_or_two_do_not_speak_for_the_window() -> None:
    """As perf looks: now and then: what went on at that moment is not what goes on all the time."""
    sampled = {(THREAD, v.labelled(v.THREAD_STATE_SAMPLES, "disk")): 1.0}
    slept = {blocked("futex"): lambda s: 0.3 if s % 8 == 0 else 0.0}
    looked: dict[tuple[TrackId, Metric], Rate] = {(PROCESS, v.SCHEDULER_OBSERVED): lambda s: 0.8 if s % 8 == 0 else 0.0}
    trace = Probed(HALF, counters=sampled, probes={**slept, **looked}, observed=0.0).trace(20)
    assert dict(shares_of(trace).blocked) == pytest.approx({"disk": 0.4})


@pytest.mark.parametrize("observed", [None, 0.4])
def test_without_probes_that_saw_its_sleep_causes_are_sampled(observed: float | None) -> None:
    sampled = {(THREAD, v.labelled(v.THREAD_STATE_SAMPLES, "disk")): 1.0}
    trace = Probed(HALF, counters=sampled, probes={blocked("futex"): 0.05}, observed=observed).trace()
    shares = shares_of(trace)
    assert not shares.are_causes_exact
    assert dict(shares.blocked) == pytest.approx({"disk": 0.4})
    view = threads_view(trace)
    assert isinstance(view, ThreadsView)
    assert view.causes == SAMPLED


def test_sleep_that_is_told_late_still_counts() -> None:
    # A thread that sleeps on is told of every fifth second where there are hundreds.
    late = {blocked("epoll"): lambda second: 5.0 if second % 5 == 0 else 0.0}
    asleep: Mapping[Metric, Rate] = {v.THREAD_ON_CPU: 0.0, v.THREAD_RUN_QUEUE: 0.0}
    for seconds in range(16, 21):
        assert dict(shares_of(Probed(asleep, probes=late).trace(seconds)).blocked) == pytest.approx({"epoll": 1.0})


@settings(deadline=None, max_examples=50)
@given(
    on_cpu=st.floats(0, 1),
    run_queue=st.floats(0, 1),
    causes=st.dictionaries(st.sampled_from(["futex", "epoll", "disk", "cuda_sync"]), st.floats(0, 1)),
    sync=st.floats(0, 1),
    yields=st.sampled_from([0.0, 1e5]),
)
def test_shares_always_sum_to_one(
    on_cpu: float, run_queue: float, causes: dict[str, float], sync: float, yields: float
) -> None:
    probes = {blocked(cause): share for cause, share in causes.items()}
    probes |= {(THREAD, v.THREAD_CUDA_SYNC): sync, (THREAD, YIELDS): yields}
    shares = shares_of(Probed({v.THREAD_ON_CPU: on_cpu, v.THREAD_RUN_QUEUE: run_queue}, probes=probes).trace(3))
    assert shares.on_cpu + shares.run_queue + shares.blocked_total == pytest.approx(1.0, abs=1e-6)
    assert all(share >= 0 for _, share in shares.blocked)
    assert 0 <= shares.working <= shares.on_cpu
    assert 0 <= (shares.polling or 0) <= shares.on_cpu
    assert 0 <= (shares.in_cuda_sync or 0) <= 1


@pytest.mark.parametrize(("spin", "rate"), [(YIELDS, 60_000.0), (POLLS, 11_800.0)])
def test_fast_spins_of_a_thread_that_never_sleeps_are_polling(spin: Metric, rate: float) -> None:
    shares = shares_of(Probed(BUSY, probes={(THREAD, spin): rate}).trace())
    assert shares.polling == pytest.approx(0.97)
    assert shares.working == pytest.approx(0.0)
    assert is_polling(shares)


def test_polling_on_a_shared_core_is_polling_too() -> None:
    shared: Mapping[Metric, Rate] = {v.THREAD_ON_CPU: 0.5, v.THREAD_RUN_QUEUE: 0.49}
    assert is_polling(shares_of(Probed(shared, probes={(THREAD, YIELDS): 30_000.0}).trace()))


@pytest.mark.parametrize(
    ("clocks", "probes"),
    [
        (BUSY, {(THREAD, YIELDS): 40_000.0}),
        (BUSY, {(THREAD, POLLS): 4_000.0}),
        (BUSY, {(THREAD, YIELDS): 1e6, (THREAD, v.THREAD_LAUNCHES): 300.0}),
        (HALF, {(THREAD, YIELDS): 1e6}),
    ],
    ids=["few yields", "few polls", "launches", "sleeps"],
)
def test_work_is_not_polling(clocks: Mapping[Metric, Rate], probes: Mapping[tuple[TrackId, Metric], Rate]) -> None:
    shares = shares_of(Probed(clocks, probes=probes).trace())
    assert shares.polling == 0.0
    assert shares.working == pytest.approx(shares.on_cpu)
    assert not is_polling(shares)


def test_polling_goes_on_while_its_probes_rest() -> None:
    # Counting 100,000 yields a second is over the budget: the calls' probes come off after a few seconds.
    trace = Probed(BUSY, probes={(THREAD, YIELDS): lambda s: 1e5 if s <= 5 else 0.0}, calls_until=5).trace(40)
    assert shares_of(trace).polling == pytest.approx(0.97)


def test_polling_that_slept_meanwhile_is_not_known_any_more() -> None:
    clocks: Mapping[Metric, Rate] = {v.THREAD_ON_CPU: lambda s: 0.97 if s != 20 else 0.0, v.THREAD_RUN_QUEUE: 0.0}
    trace = Probed(clocks, probes={(THREAD, YIELDS): lambda s: 1e5 if s <= 5 else 0.0}, calls_until=5).trace(40)
    assert shares_of(trace).polling is None


def test_polling_that_launched_meanwhile_is_work() -> None:
    probes: Mapping[tuple[TrackId, Metric], Rate] = {
        (THREAD, YIELDS): lambda s: 1e5 if s <= 5 else 0.0,
        (THREAD, v.THREAD_LAUNCHES): lambda s: 200.0 if s > 20 else 0.0,
    }
    assert shares_of(Probed(BUSY, probes=probes, calls_until=5).trace(40)).polling == 0.0


def test_polling_for_half_of_the_window_is_half_a_share() -> None:
    shares = shares_of(Probed(BUSY, probes={(THREAD, YIELDS): lambda s: 1e5 if s > 6 else 0.0}).trace(12))
    assert shares.polling == pytest.approx(0.97 * 0.6, abs=0.1)


def test_spins_known_by_process_alone_are_not_guessed_by_thread() -> None:
    counted = {(PROCESS, v.labelled(v.SYSCALL_COUNT, "sched_yield")): 1e6}
    assert shares_of(Probed(BUSY, probes=counted).trace()).polling is None
    empty = {(PROCESS, v.labelled(v.SYSCALL_COUNT, "epoll_wait (no wait)")): 1e4}
    assert shares_of(Probed(BUSY, probes=empty).trace()).polling is None


def test_no_spins_in_the_process_are_no_polling() -> None:
    assert shares_of(Probed(BUSY, probes={(PROCESS, v.labelled(v.SYSCALL_COUNT, "futex")): 9.0}).trace()).polling == 0.0


def test_polling_is_unknown_without_probes_and_without_launches() -> None:
    assert shares_of(Probed(BUSY, observed=None).trace()).polling is None
    blind = Probed(
        BUSY, probes={(THREAD, YIELDS): 1e6}, missing=(Missing(What("library calls"), Unknown("no uprobes")),)
    )
    assert shares_of(blind.trace()).polling is None


def test_spinning_for_the_gpu_is_not_working() -> None:
    trace = Probed(BUSY, probes={(THREAD, v.THREAD_CUDA_SYNC): 0.6}).trace()
    shares = shares_of(trace)
    assert shares.in_cuda_sync == pytest.approx(0.6)
    assert shares.working == pytest.approx(0.97 - (0.6 - 0.02) * 0.97 / 0.98)


def test_sleeping_for_the_gpu_takes_nothing_from_work() -> None:
    probes = {blocked("cuda_sync"): 0.4, (THREAD, v.THREAD_CUDA_SYNC): 0.4}
    shares = shares_of(Probed(HALF, probes=probes).trace())
    assert shares.in_cuda_sync == pytest.approx(0.4)
    assert shares.working == pytest.approx(0.5)


def test_sync_probes_that_came_late_speak_for_their_own_time() -> None:
    """In the sixth second they came after four fifths of it."""

    def since(first: int) -> dict[tuple[TrackId, Metric], Rate]:
        seen: Rate = lambda s: 1.0 if s > first else 0.2 if s == first else 0.0  # noqa: E731
        return {
            (PROCESS, v.LIBRARY_OBSERVED): seen,
            (THREAD, v.THREAD_CUDA_SYNC): lambda s: 0.8 * seen(s) if callable(seen) else 0.0,
        }

    assert shares_of(Probed(HALF, probes=since(6)).trace(12)).in_cuda_sync == pytest.approx(0.8)
    assert shares_of(Probed(HALF, probes=since(9)).trace(12)).in_cuda_sync is None


@pytest.mark.parametrize(("seconds", "share"), [(5, 0.8), (4, None)])
def test_half_of_the_window_tells_of_waits_for_the_gpu(seconds: int, share: float | None) -> None:
    seen: Rate = lambda s: 1.0 if s > 10 - seconds else 0.0  # noqa: E731
    probes: dict[tuple[TrackId, Metric], Rate] = {
        (PROCESS, v.LIBRARY_OBSERVED): seen,
        (THREAD, v.THREAD_CUDA_SYNC): lambda s: 0.8 if s > 10 - seconds else 0.0,
    }
    found = shares_of(Probed(HALF, probes=probes).trace(10)).in_cuda_sync
    assert found == (share if share is None else pytest.approx(share))


def test_launches_are_not_known_from_what_is_left_of_them() -> None:
    """Their probes looked until second 5 of 14."""
    trace = Probed(HALF, probes={(THREAD, v.THREAD_LAUNCHES): 20_000.0}).trace(5)
    rest = trace.series[THREAD, v.THREAD_LAUNCHES.name]
    assert launch_rate(trace, [THREAD], WINDOW_NS) == pytest.approx(20_000, rel=0.01)
    recorder = Recorder(Origin("live"))
    for t, value in [*rest, (trace.end_ns + 1, None)]:
        recorder.append("test", _poll(t, Reading(THREAD, v.THREAD_LAUNCHES, t, value, "eBPF")))
    clock = trace.series[PROCESS, v.LIBRARY_OBSERVED.name]
    for second in range(15):
        t = clock.times[0] + second * NS_PER_S
        recorder.append("clock", _poll(t, Reading(PROCESS, v.LIBRARY_OBSERVED, t, float(second * NS_PER_S), "eBPF")))
    assert launch_rate(recorder.freeze(), [THREAD], WINDOW_NS) is None


def _poll(t: int, reading: Reading) -> Trace:
    return Trace(Origin("live"), t, t, readings=(reading,))


def test_thread_that_never_sleeps_needs_no_samples() -> None:
    view = threads_view(Probed({v.THREAD_ON_CPU: 0.99, v.THREAD_RUN_QUEUE: 0.0}).trace())
    assert isinstance(view, ThreadsView)
    assert view.causes == "measured at each sleep (eBPF)"
    assert shares_of(Probed({v.THREAD_ON_CPU: 0.99, v.THREAD_RUN_QUEUE: 0.0}).trace()).blocked[0][0] == NOT_SEEN


def test_no_sync_is_zero_only_where_library_calls_are_counted() -> None:
    launches = {(PROCESS, v.labelled(v.LIBRARY_COUNT, "cuLaunchKernel")): 100.0}
    assert shares_of(Probed(HALF, probes=launches).trace()).in_cuda_sync == 0.0
    assert shares_of(Probed(HALF).trace()).in_cuda_sync is None


def test_sync_without_its_probes_is_unknown() -> None:
    probes: dict[tuple[TrackId, Metric], Rate] = {
        (THREAD, v.THREAD_CUDA_SYNC): 0.2,
        (PROCESS, v.LIBRARY_OBSERVED): lambda s: 1.0 if s < 7 else 0.0,
    }
    assert shares_of(Probed(HALF, probes=probes).trace(12)).in_cuda_sync is None
    assert shares_of(Probed(HALF, probes=probes).trace(7)).in_cuda_sync == pytest.approx(0.2, abs=0.04)


def test_sync_is_known_where_only_the_runtimes_probes_are_off() -> None:
    why = Missing(What("library.runtime"), Unknown("its calls are counted in the driver"))
    trace = Probed(BUSY, probes={(THREAD, v.THREAD_CUDA_SYNC): 0.2, (THREAD, YIELDS): 1e6}, missing=(why,)).trace()
    assert shares_of(trace).in_cuda_sync == pytest.approx(0.2)
    assert shares_of(trace).polling is not None


def test_unknown_shares_say_what_would_tell_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # root is not told to use sudo
    why = Unknown("only root may load probes", "sudo llmtop")
    trace = Probed(HALF, observed=None, missing=(Missing(What("ebpf"), why),)).trace()
    view = threads_view(trace)
    assert isinstance(view, ThreadsView)
    table = threads_table(trace, view)
    cells = dict(zip([column.key for column in table.columns], table.cells(0), strict=True))
    assert isinstance(cells["polling"], Unknown)
    assert isinstance(cells["sync"], Unknown)
    assert re.match(r"sudo (\S+/)?llmtop", cells["sync"].remedy)  # by what it is here


def test_threads_are_found_by_what_their_process_does() -> None:
    tracks = tuple(
        Track(ids.thread(pid, pid), TrackKind.THREAD, role, ids.process(pid), {"role": role})
        for pid, role in ((20, "APIServer_0"), (21, "tokenizer_worker"), (22, "Worker_TP0"), (23, "scheduler_TP1"))
    )
    trace = replace(Probed(HALF, tracks=tracks), role="detokenizer").trace()
    view = threads_view(trace)
    assert isinstance(view, ThreadsView)
    assert {row.role for row in api_threads(trace)} == {"APIServer_0", "tokenizer_worker", "detokenizer"}
    assert [row.role for row in threads_of_role(view, "TP0", "tp1")] == ["Worker_TP0", "scheduler_TP1"]
    busiest = main_thread(view.rows)
    assert busiest is not None
    assert busiest.role == "detokenizer"
