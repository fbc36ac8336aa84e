"""What is estimated of one process's library calls, from what was counted at a few moments."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.helper.budget import Account
from llmtop.collectors.tracing.helper.functions import COLLECTOR, KINDS, kind_of
from llmtop.collectors.tracing.probes.helper import library_maps
from llmtop.collectors.tracing.probes.helper.library_maps import Counted
from llmtop.collectors.tracing.probes.helper.process_libraries import LaunchingThread, ProbedFunction, ProcessLibraries
from llmtop.collectors.tracing.probes.helper.programs import SLOTS
from llmtop.collectors.tracing.probes.helper.sampling import Sampling
from tests.collectors.tracing.recorded_maps import RecordedModule, at

PID, TID, OTHER = 100, 101, 102
S, MS = 1_000_000_000, 1_000_000
LAUNCH, GRAPH, SYNC, COPY = "cuLaunchKernel", "cuGraphLaunch", "cuStreamSynchronize", "cuMemcpyAsync"


@pytest.fixture
def run_ns(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """For how long threads have run and queued so far."""
    ran = {TID: 0, OTHER: 0}
    monkeypatch.setattr(system, "run_and_queued", lambda pid, tid: ran.get(tid) if pid == PID else None)
    return ran


def process(*steady: str) -> ProcessLibraries:
    made = ProcessLibraries(PID, Sampling(Account(3e6), 0.0))
    made.sampling.steady = frozenset(steady)
    made.functions = {
        name: ProbedFunction({"/lib": at(1)}, ns, kind_of(name)) for name, ns in ((LAUNCH, 2000.0), (SYNC, 1000.0))
    }
    return made


def counted(
    at_ns: int,
    cpu_ns: int,
    sync_ns: int = 0,
    calls: Mapping[str, int] | None = None,
    threads: Mapping[int, tuple[int, int, int, int]] | None = None,
) -> Counted:
    sums = {name: (count, count * 1000, count, *[0] * (SLOTS - 1)) for name, count in (calls or {}).items()}
    return Counted(at_ns, cpu_ns, sync_ns, sums, threads or {TID: (0, 0, 0, 0)})


def sums(function: ProbedFunction) -> tuple[float, ...]:
    return tuple(function.sums[:3])


@pytest.mark.parametrize(
    ("slept_s", "in_sync_s", "share"),
    [
        (0.4, 0.4, 0.0),  # all waits asleep
        (0.0, 0.4, 1.0),
        (0.3, 0.4, 0.25),
        (0.9, 0.4, 0.0),  # it slept elsewhere too: none of its waits is known to spin
        (0.0, 0.0, 0.0),
    ],
)
def test_waits_spin_as_far_as_their_threads_do_not_sleep(
    run_ns: dict[int, int], slept_s: float, in_sync_s: float, share: float
) -> None:
    one = process("wait")
    one.advance(counted(S, 0), {})
    run_ns[TID] = round((1 - slept_s) * S)
    one.advance(counted(2 * S, S, round(in_sync_s * S)), {})
    assert one.spinning == pytest.approx(share)


def test_sleeps_of_all_threads_that_wait_count_and_a_new_ones_do_not(run_ns: dict[int, int]) -> None:
    both = {TID: (0, 0, 0, 0), OTHER: (0, 0, 0, 0)}
    one = process("wait")
    one.advance(counted(S, 0, threads=both), {})
    run_ns |= {TID: round(0.8 * S), OTHER: S + 5}
    one.advance(counted(2 * S, S, round(0.4 * S), threads=both | {77: (0, 0, 0, 0)}), {})
    assert one.spinning == pytest.approx(0.5), "0.2 of 0.4 s asleep: who has run longer than the time has not slept"


def test_where_waits_are_not_all_seen_none_is_said_to_spin(run_ns: dict[int, int]) -> None:
    one = process()
    one.advance(counted(S, 0), {})
    one.advance(counted(2 * S, S, S // 2), {})
    assert one.spinning == 0.0


def test_what_a_window_counted_stands_for_the_work_that_follows(run_ns: dict[int, int]) -> None:
    """1000 launches in 4 ms of work, the probes' own 2 ms apart: 250,000 a second of work."""
    one = process("wait")
    one.learn(counted(0, 0), counted(6 * MS, 6 * MS, calls={LAUNCH: 1000}, threads={TID: (1000, 0, 0, 0)}))
    thread = LaunchingThread(PID)
    one.advance(counted(S, S), {TID: thread})
    run_ns[TID] = S
    one.advance(counted(2 * S, S + S // 2), {TID: thread})
    assert thread.launches == pytest.approx(125_000)
    assert sums(one.functions[LAUNCH]) == pytest.approx((125_000, 125_000_000, 125_000))
    assert sums(one.functions[SYNC]) == (0, 0, 0), "of what has probes all the time nothing is estimated"


def test_waits_and_copies_grow_with_the_work_where_they_are_only_sampled(run_ns: dict[int, int]) -> None:
    """Whatever the steps of the server say of its launches."""
    one = process()
    one.functions[COPY] = ProbedFunction({"/lib": at(3)}, 0.0, "other")
    calls = {LAUNCH: 100, SYNC: 20, COPY: 10}
    one.learn(counted(0, 0), counted(5_220_000, 5_220_000, calls=calls, threads={TID: (100, 3, 90, 4)}))
    one.advance(counted(S, S), {})
    run_ns[TID] = S
    one.advance(counted(2 * S, S + S // 4), {})
    assert {name: found.sums[0] for name, found in one.functions.items()} == pytest.approx(
        {name: count * 50 for name, count in calls.items()}
    )


def test_spinning_is_no_work(run_ns: dict[int, int]) -> None:
    one = process("wait")
    one.spinning = 0.5
    one.learn(counted(0, 0), counted(10 * MS, 10 * MS, 8 * MS, calls={LAUNCH: 1000}))
    assert one.estimate.per_work_s()[LAUNCH][0] == pytest.approx(1000 / 0.004)
    one.advance(counted(S, S), {})
    run_ns[TID] = S
    one.advance(counted(2 * S, 2 * S, S // 4), {})
    assert one.spinning == 1.0
    assert one.functions[LAUNCH].sums[0] == pytest.approx(0.75 * 250_000)


def test_launches_go_by_steps_where_windows_have_held_whole_ones(run_ns: dict[int, int]) -> None:
    """30 launches a step, whatever the CPU time says; the function's sums are scaled with its threads'."""
    one = process("wait")
    one.learn(counted(0, 0), counted(6 * MS, 6 * MS, calls={LAUNCH: 100}, threads={TID: (100, 3, 90, 4)}))
    assert one.knows_steps
    thread = LaunchingThread(PID, launches=7.0)
    one.advance(counted(S, S, threads={TID: (100, 3, 90, 10)}), {TID: thread})
    run_ns[TID] = S
    one.advance(counted(2 * S, 2 * S, threads={TID: (100, 3, 90, 60)}), {TID: thread})
    assert one.does_step
    assert thread.launches == pytest.approx(7 + 50 * 30)
    assert one.functions[LAUNCH].sums[0] == pytest.approx(50 * 30)
    one.advance(counted(3 * S, 3 * S, threads={TID: (100, 3, 90, 60)}), {TID: thread})
    assert not one.does_step
    assert thread.launches == pytest.approx(7 + 50 * 30), "no step, no launches"


def test_where_graphs_are_counted_and_kernels_sampled_windows_stand_for_both_of_threads(run_ns: dict[int, int]) -> None:
    """30 launches a step, one of them of a graph, which is not estimated beside being counted."""
    one = process("wait", "graph")
    one.functions[GRAPH] = ProbedFunction({"/lib": at(2)}, 500.0, kind_of(GRAPH))
    calls = {LAUNCH: 97, GRAPH: 3}
    one.learn(counted(0, 0), counted(6 * MS, 6 * MS, calls=calls, threads={TID: (100, 3, 90, 4)}))
    thread = LaunchingThread(PID)
    one.advance(counted(S, S, threads={TID: (100, 3, 90, 10)}), {TID: thread})
    run_ns[TID] = S
    one.advance(counted(2 * S, 2 * S, threads={TID: (150, 3, 90, 60)}), {TID: thread})
    assert thread.launches == pytest.approx(50 * 30)
    assert one.functions[LAUNCH].sums[0] == pytest.approx(50 * 30 * 0.97)
    assert one.functions[GRAPH].sums[0] == 0
    assert one.sampled == {"launch"}


def test_threads_of_no_window_have_no_launches(run_ns: dict[int, int]) -> None:
    one = process("wait")
    one.learn(counted(0, 0), counted(5 * MS, 5 * MS, calls={LAUNCH: 10}, threads={TID: (10, 0, 0, 0)}))
    threads = {TID: LaunchingThread(PID), OTHER: LaunchingThread(PID)}
    one.advance(counted(S, S), threads)
    one.advance(counted(2 * S, 2 * S), threads)
    assert threads[TID].launches > 0
    assert threads[OTHER].launches == 0


def test_kinds_cost_what_their_functions_do() -> None:
    one = process()
    one.functions["cuGraphLaunch"] = ProbedFunction({"/lib": at(2)}, 500.0, "graph")
    counts = {LAUNCH: (10, 1), "cuGraphLaunch": (4, 1), SYNC: (3, 1)}
    assert one.rates(counts, 2.0) == {
        **dict.fromkeys(KINDS, 0.0),
        "wait": 1500.0,
        "graph": 1000.0,
        "launch": 10_000.0,
    }
    before = counted(0, 0, calls={LAUNCH: 5})
    assert one.cost_ns(before, counted(1, 1, calls={LAUNCH: 8, SYNC: 1})) == 3 * 2000 + 1000


def test_what_is_not_known_of_a_process() -> None:
    one = process("wait")
    assert (one.unseen, one.uncounted, one.sampled, one.probed()) == ([], [], {"launch"}, [LAUNCH, SYNC])
    one.functions[LAUNCH].is_duplicate = True
    assert (one.uncounted, one.probed()) == ([LAUNCH], [SYNC])
    one.refused = {"cuCtxSynchronize", "cudaMalloc"}
    assert (one.unseen, sorted(one.uncounted)) == (["sync"], ["cuCtxSynchronize", LAUNCH, "cudaMalloc"])
    one.sampling.steady = frozenset()
    one.refused = {"cuGraphLaunch"}
    assert one.unseen == ["launches", "sync"]


def test_time_counts_as_seen_between_looks_at_which_all_waits_have_probes() -> None:
    one = process("wait")
    one.observe(5 * S)
    one.observe(7 * S)
    assert one.observed_ns == 2 * S
    one.sampling.steady = frozenset()
    one.observe(8 * S)
    one.observe(9 * S)
    assert one.observed_ns == 3 * S, "up to the look at which they had none any more"
    one.sampling.steady = frozenset({"wait"})
    one.functions.clear()
    one.observe(10 * S)
    one.observe(11 * S)
    assert one.observed_ns == 3 * S, "without functions there is nothing to see"


def test_it_settles_within_three_windows() -> None:
    one = process()
    for _ in range(3):
        assert one.is_settling
        one.sampling.close({"wait": 1e9}, {"wait": 9}, 1.0, 0.005)
    assert not one.is_settling
    one.sampling.windows = 0
    one.sampling.steady = frozenset({"wait"})
    assert not one.is_settling


def test_a_longer_window_is_wanted_once_a_short_one_held_no_step(run_ns: dict[int, int]) -> None:
    one = process("wait")
    one.advance(counted(S, S), {})
    one.advance(counted(2 * S, 2 * S, threads={TID: (0, 0, 0, 9)}), {})
    assert not one.wants_step, "nobody knows yet what one costs"
    one.sampling.windows = 1
    assert one.wants_step
    one.learn(counted(0, 0), counted(6 * MS, 6 * MS, calls={LAUNCH: 100}, threads={TID: (100, 3, 90, 4)}))
    assert not one.wants_step, "it has been held"


@pytest.mark.parametrize(
    ("runtime", "driver", "is_found"),
    [(23, 23, False), (24, 20, True), (24, 19, False), (100, 84, True), (100, 83, False)],
)
def test_a_duplicate_needs_two_dozen_calls_of_which_a_sixth_may_be_under_way(
    runtime: int, driver: int, is_found: bool
) -> None:
    one = process()
    one.functions["cudaLaunchKernel"] = ProbedFunction({"/lib": at(3)}, 1.0, "launch")
    found = one.new_duplicates({"cudaLaunchKernel": runtime, LAUNCH: driver})
    assert found == ([one.functions["cudaLaunchKernel"]] if is_found else [])


def test_a_duplicate_is_told_from_all_calls_that_were_compared() -> None:
    """Of fewer than two dozen calls nothing is concluded; they add up over the windows."""
    one = process()
    one.functions["cudaLaunchKernel"] = ProbedFunction({"/lib": at(3)}, 1000.0, "launch")
    assert one.new_duplicates({LAUNCH: 15, "cudaLaunchKernel": 15}) == []
    assert one.new_duplicates({LAUNCH: 15, "cudaLaunchKernel": 15}) == [one.functions["cudaLaunchKernel"]]
    one.functions["cudaLaunchKernel"].is_duplicate = True
    assert one.new_duplicates({LAUNCH: 15}) == []


def test_each_round_has_a_number_of_its_own_and_those_that_are_open_odd_ones() -> None:
    """By it the programs tell a launch of this round from one that was under way before; there are 2^32 of them."""
    module = RecordedModule()
    maps = library_maps.LibraryMaps(module.module)
    rounds: list[int] = []
    for is_open in (False, True, True, False, False, True):
        maps.set_round(is_open=is_open)
        rounds.append(module["attachments"].count())
    assert rounds == [2, 3, 5, 6, 8, 9]
    for last, after in ((2**32 - 1, [0, 1]), (2**32 - 2, [0, 2**32 - 1])):
        for is_open in (False, True):
            module["attachments"].put((0,), (last,))
            maps.set_round(is_open=is_open)
            assert module["attachments"].rows[0,] == (after[is_open],)


def test_a_wait_under_way_counts_up_to_now(monkeypatch: pytest.MonkeyPatch) -> None:
    row = library_maps.LibraryThreadCalls._make((3, 500, 0, *[0] * 15, b""))
    assert row.in_sync_ns(10_000) == 500
    assert row._replace(sync_since=9_000).in_sync_ns(10_000) == 1500
    assert row._replace(sync_since=10_001).in_sync_ns(10_000) == 500


def test_collections_are_known_of_a_process_only_where_all_of_them_are_seen() -> None:
    one = process("wait", "launch")
    assert one.unseen == []
    one.functions[COLLECTOR] = ProbedFunction({"/python3": at(5)}, 500.0, kind_of(COLLECTOR))
    assert one.unseen == ["collections"], "a sample of them tells little"
    one.sampling.steady |= {"collect"}
    assert one.unseen == []
    one.refused.add(COLLECTOR)
    assert (one.unseen, one.uncounted) == (["collections"], [COLLECTOR])


def test_an_interpreter_alone_is_nothing_that_waits_for_the_gpu() -> None:
    one = process()
    one.functions = {COLLECTOR: ProbedFunction({"/python3": at(5)}, 500.0, kind_of(COLLECTOR))}
    for now in (S, 3 * S):
        one.observe(now)
    assert (one.calls_cuda, one.observed_ns, one.unseen) == (False, 0, ["collections"])
