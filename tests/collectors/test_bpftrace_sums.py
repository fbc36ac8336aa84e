"""Sums of what bpftrace counts: over its restarts, by thread, and with sleeps that go on."""

from __future__ import annotations

import platform
from collections.abc import Collection
from typing import Any

import pytest

from llmtop.collectors.tracing.bpftrace import libraries as libraries_module
from llmtop.collectors.tracing.bpftrace import sleeps as sleeps_module
from llmtop.collectors.tracing.bpftrace.counts import LibraryCalls, SystemCallCounts
from llmtop.collectors.tracing.bpftrace.libraries import REST_S, Libraries
from llmtop.collectors.tracing.bpftrace.output import Printout
from llmtop.collectors.tracing.bpftrace.script import FILE_SHIFT, STATE_SHIFT
from llmtop.collectors.tracing.bpftrace.sleeps import Sleeper, Sleeps
from llmtop.collectors.tracing.bpftrace.sums import MapSums
from llmtop.collectors.tracing.bpftrace.symbols import AddressNames
from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.helper.functions import COLLECTOR, NUMBERS
from llmtop.collectors.tracing.helper.interpreters import NO_COLLECTOR
from llmtop.collectors.tracing.helper.libraries import LibraryFile, LibraryFiles
from tests.collectors.tracing.mapped_libraries import GENTLE, STEPPED, map_library

PID, TID = 100, 101
FUTEX, READ = 202, 0
ASLEEP = 1 << STATE_SHIFT
S = 1_000_000_000
NS_PER_HIT = {GENTLE: 2000.0, STEPPED: 12000.0}


def bucket(slot: int, count: int) -> dict[str, int]:
    return {"min": 1 << slot - 1, "max": (1 << slot) - 1, "count": count}


def test_sums_go_on_after_a_restart() -> None:
    sums: MapSums[int] = MapSums()
    assert sums.take({(1, 2): 5, (1, 3): 1}) == [(1, 2), (1, 3)]
    assert sums.take({(1, 2): 5, (1, 3): 2}) == [(1, 3)]
    sums.begin_again()
    assert sums.take({(1, 2): 1}) == [(1, 2)]
    assert (sums.get((1, 2)), sums.get((1, 3)), sums.get((9, 9))) == (6, 2, None)
    assert sorted(sums.items()) == [((1, 2), 6), ((1, 3), 2)]
    sums.forget({1}, 0)
    assert sums.items() == []


def test_what_one_process_counted_goes_with_it_and_nothing_else() -> None:
    sums: MapSums[int] = MapSums()
    sums.take({(1, 2): 5, (3, 1): 7, (4,): 9})
    sums.begin_again()
    sums.take({(1, 2): 1, (3, 2): 2})
    sums.forget((), 0)
    assert len(sums.items()) == 4
    sums.forget({2}, 1)
    assert sorted(sums.items()) == [((3, 1), 7), ((4,), 9)]
    sums.forget({3}, 0)
    assert sums.items() == [((4,), 9)]


def test_histograms_are_added_slot_by_slot() -> None:
    sums: MapSums[dict[int, int]] = MapSums()
    sums.take({(1,): {3: 2, 4: 1}})
    assert sums.entries() == 2
    sums.begin_again()
    sums.take({(1,): {4: 5}})
    assert sums.entries() == 1
    assert sums.get((1,)) == {3: 2, 4: 6}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of system calls are x86-64's")
def test_calls_are_told_when_they_change() -> None:
    calls = SystemCallCounts()
    look = Printout(
        S,
        {
            "latency": {f"{PID},{FUTEX}": [bucket(10, 3)]},
            "time": {f"{PID},{FUTEX}": 3000},
            "errors": {f"{PID},{FUTEX}": 2},
            "spins": {f"{PID},{TID},24": 50, f"{PID},{TID},7": 8},
            "switch_timeouts": {f"{PID}": 1},
            "foreign_calls": 77,
        },
    )
    told = calls.read(look)
    assert sorted(told["calls"]) == [
        (PID, 24, 50, 0, 0, {}),
        (PID, FUTEX, 3, 2, 3000, {10: 3}),
        (PID, 7 | 0x8000, 8, 0, 0, {}),
    ]
    assert told["names"] == {24: "sched_yield", FUTEX: "futex", 7 | 0x8000: "poll (no wait)"}
    assert sorted(told["spins"]) == [(PID, TID, "poll", 8), (PID, TID, "sched_yield", 50)]
    assert told["switch_timeouts"] == [(PID, 1)]
    assert (calls.seen, calls.foreign) == (61, 77)
    assert calls.read(look)["calls"] == []
    calls.begin_again()
    assert calls.read(Printout(S, {"calls": {f"{PID},{FUTEX}": 4}}))["calls"] == [(PID, FUTEX, 7, 2, 3000, {10: 3})]


def test_before_the_first_look_nothing_has_been_counted() -> None:
    calls, library = SystemCallCounts(), LibraryCalls()
    assert (calls.seen, calls.foreign, calls.entries(), library.counts()) == (0, 0, 0, {})


def test_where_calls_are_counted_beside_their_times_the_counts_are_told() -> None:
    """Histograms and times of newer releases may lack the first."""
    calls, library = SystemCallCounts(are_counted=True), LibraryCalls(are_counted=True)
    launch = NUMBERS["cuLaunchKernel"]
    maps: dict[str, Any] = {
        "latency": {f"{PID},{FUTEX}": [bucket(10, 3)]},
        "calls": {f"{PID},{FUTEX}": 4},
        "library": {f"{PID},{launch}": [bucket(4, 9)]},
        "library_count": {f"{PID},{launch}": 11},
    }
    assert calls.read(Printout(S, maps))["calls"] == [(PID, FUTEX, 4, 0, 0, {10: 3})]
    assert library.read(Printout(S, maps))["functions"] == [(PID, "cuLaunchKernel", 11, 0, {4: 9})]
    assert (calls.seen, library.counts()) == (4, {(PID, "cuLaunchKernel"): 11})
    for part in (calls, library):
        part.begin_again()
    counted = {"calls": {f"{PID},{FUTEX}": 5}, "library_count": {f"{PID},{launch}": 2}}
    assert calls.read(Printout(S, counted))["calls"] == [(PID, FUTEX, 9, 0, 0, {10: 3})]
    assert library.read(Printout(S, counted))["functions"] == [(PID, "cuLaunchKernel", 13, 0, {4: 9})]


@pytest.mark.parametrize("part", ["library", "library_ns", "library_count"])
def test_a_function_is_told_when_any_of_its_sums_has_changed(part: str) -> None:
    """They are printed one after the other: a call may have come to one of them only."""
    library, launch = LibraryCalls(are_counted=True), NUMBERS["cuLaunchKernel"]
    maps: dict[str, Any] = {
        "library": {f"{PID},{launch}": [bucket(4, 9)]},
        "library_ns": {f"{PID},{launch}": 900},
        "library_count": {f"{PID},{launch}": 11},
    }
    before = (PID, "cuLaunchKernel", 11, 900, {4: 9})
    assert library.read(Printout(S, maps))["functions"] == [before]
    assert library.read(Printout(S, maps))["functions"] == []
    maps[part] = {f"{PID},{launch}": [bucket(4, 10)] if part == "library" else 2000}
    ((*_, count, ns, slots),) = library.read(Printout(S, maps))["functions"]
    told = {"library": slots == {4: 10}, "library_ns": ns == 2000, "library_count": count == 2000}
    assert told == {name: name == part for name in told}


def test_library_calls_are_told_by_thread_up_to_now() -> None:
    library = LibraryCalls()
    launch, sync = NUMBERS["cuLaunchKernel"], NUMBERS["cuStreamSynchronize"]
    maps: dict[str, Any] = {
        "library": {
            f"{PID},{launch}": [bucket(4, 9)],
            f"{PID},{sync}": [bucket(20, 1)],
            f"{PID},{len(NUMBERS)}": [bucket(4, 1)],  # that of no function
        },
        "library_ns": {f"{PID},{launch}": 900, f"{PID},{sync}": 5000},
        "library_time": {f"{PID},{TID},{launch}": 900, f"{PID},{TID},{sync}": 5000},
        "library_calls": {f"{PID},{TID},{launch}": 9, f"{PID},{TID},{sync}": 1},
        "entered": {
            f"{PID},{TID},{sync}": S - 300,
            f"{PID},{TID},{launch}": 0,
            f"{PID},{TID + 1},{launch}": S - 400,
            f"{PID},{TID + 2},{len(NUMBERS)}": S - 500,
        },
    }
    told = library.read(Printout(S, maps))
    assert sorted(told["functions"]) == [
        (PID, "cuLaunchKernel", 9, 900, {4: 9}),
        (PID, "cuStreamSynchronize", 1, 5000, {20: 1}),
    ]
    assert told["in_libraries"] == [(PID, TID, 9, 5300)]
    maps["entered"] = {f"{PID},{TID},{sync}": 0}
    maps["library_time"] = {f"{PID},{TID},{sync}": 5290}
    assert library.read(Printout(2 * S, maps))["in_libraries"] == [(PID, TID, 9, 5300)], "what is told never shrinks"


def test_time_in_the_collector_is_told_of_threads_that_may_never_launch() -> None:
    library, collector = LibraryCalls(), NUMBERS[COLLECTOR]
    maps: dict[str, Any] = {
        "library_time": {f"{PID},{TID},{collector}": 700},
        "library_calls": {f"{PID},{TID},{collector}": 2},
    }
    told = library.read(Printout(S, maps))
    assert (told["collecting"], told["in_libraries"]) == ([(PID, TID, 700, 2)], [])
    assert library.read(Printout(2 * S, maps))["collecting"] == [], "nothing is told of what stands"


def test_an_interpreter_without_a_collector_to_be_found_is_said_to_have_none() -> None:
    libraries = Libraries(1e6, NS_PER_HIT)
    map_library(libraries, 7, {COLLECTOR: GENTLE}, "/bin/python3.12")
    assert (libraries.notes, [one.symbol for one in libraries.functions()]) == ({}, [COLLECTOR])
    covered = libraries.coverage(libraries.functions(), S, {7})
    assert (covered["uncounted"], covered["unseen"], covered["library_observed"]) == ([], [], [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libraries_module, "mapped_libraries", lambda pid: {"/bin/python3.13": (COLLECTOR,)})
        patch.setattr(LibraryFiles, "at", lambda files, path, wanted: LibraryFile((1, 9), {}))
        libraries.look([8])
    assert libraries.notes == {COLLECTOR: NO_COLLECTOR}


@pytest.mark.parametrize(("tids", "pids"), [({TID}, ()), ((), {PID})])
def test_how_long_a_thread_waited_goes_with_it(tids: Collection[int], pids: Collection[int]) -> None:
    """One that was killed in a wait is not told of again, and another of its id has not waited as long."""
    library, sync = LibraryCalls(), NUMBERS["cuStreamSynchronize"]
    waiting = {"entered": {f"{PID},{TID},{sync}": S}}
    assert library.read(Printout(6 * S, waiting))["in_libraries"] == [(PID, TID, 0, 5 * S)]
    library.forget(tids, pids)
    again = {"library_time": {f"{PID},{TID},{sync}": S // 2}}
    assert library.read(Printout(7 * S, again))["in_libraries"] == [(PID, TID, 0, S // 2)]


def test_what_a_thread_did_in_libraries_goes_with_it() -> None:
    """The map keeps it until it is made anew: it is told no more, and another thread of the id counts from 0."""
    library, launch = LibraryCalls(), NUMBERS["cuLaunchKernel"]
    counted = {"library_calls": {f"{PID},{TID},{launch}": 9, f"{PID},{TID + 1},{launch}": 4}}
    assert sorted(library.read(Printout(S, counted))["in_libraries"]) == [(PID, TID, 9, 0), (PID, TID + 1, 4, 0)]
    library.forget({TID}, ())
    assert library.read(Printout(2 * S, counted))["in_libraries"] == []
    counted["library_calls"][f"{PID},{TID},{launch}"] = 11
    assert library.read(Printout(3 * S, counted))["in_libraries"] == [(PID, TID, 2, 0)]
    library.forget({TID}, ())
    library.begin_again()
    assert library.read(Printout(4 * S, {"library_calls": {f"{PID},{TID},{launch}": 1}}))["in_libraries"] == [
        (PID, TID, 1, 0)
    ]


def test_histograms_of_what_ended_are_taken_off_slot_by_slot_and_still_fill_the_map() -> None:
    sums: MapSums[dict[int, int]] = MapSums()
    sums.take({(1, 2): {3: 5, 4: 1}})
    sums.forget({1}, 0)
    assert (sums.items(), sums.entries()) == ([], 2)
    sums.take({(1, 2): {3: 7, 4: 1, 5: 2}})
    assert (sums.items(), sums.entries()) == ([((1, 2), {3: 2, 5: 2})], 3)
    sums.take({})
    assert sums.items() == [((1, 2), {3: 2, 5: 2})]


def sleeping(since: int, call: int = FUTEX, state: int = 1, taken: int = 1) -> list[int]:
    return [since, PID, call | state << STATE_SHIFT, taken]


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeps_module, "_in_proc", lambda pid, tid, t_ns: None)
    monkeypatch.setattr(system, "kernel_stack", lambda pid, tid: ["schedule_[k]"] if pid == PID else [])


@pytest.mark.usefixtures("no_proc")
def test_sleeps_that_go_on_are_counted_and_not_twice() -> None:
    sleeps = Sleeps(AddressNames())
    place = FUTEX | ASLEEP
    told = sleeps.read(Printout(10 * S, {"slept": {f"{PID},{TID},{place}": 2 * S}, "off": {f"{TID}": sleeping(9 * S)}}))
    assert told["waits"] == [(PID, TID, FUTEX, 1, 0, 3 * S)]
    told = sleeps.read(
        Printout(11 * S, {"slept": {f"{PID},{TID},{place}": 3 * S + 5}, "off": {f"{TID}": [0, 0, 0, 0]}})
    )
    assert told["waits"] == [(PID, TID, FUTEX, 1, 0, 3 * S + 5)]


@pytest.mark.usefixtures("no_proc")
def test_those_that_queue_do_not_sleep() -> None:
    sleeps = Sleeps(AddressNames())
    off = {"1": sleeping(9 * S, state=0), "2": sleeping(9 * S), "3": sleeping(9 * S)[:2]}
    assert sleeps.read(Printout(10 * S, {"off": off, "woken": {"2": 9 * S + 1}}))["waits"] == []


@pytest.mark.usefixtures("no_proc")
def test_a_wake_up_before_a_sleep_is_not_of_it() -> None:
    """It came as the thread was let on its CPU, too late to end the sleep before."""
    look = Printout(10 * S, {"off": {f"{TID}": sleeping(9 * S)}, "woken": {f"{TID}": 9 * S - 1}})
    assert Sleeps(AddressNames()).read(look)["waits"] == [(PID, TID, FUTEX, 1, 0, S)]


@pytest.mark.usefixtures("no_proc")
def test_a_sleep_over_a_restart_is_whole() -> None:
    sleeps = Sleeps(AddressNames())
    sleeps.read(Printout(10 * S, {"off": {f"{TID}": sleeping(8 * S)}}))
    sleeps.begin_again(11 * S)
    told = sleeps.read(Printout(13 * S, {"off": {f"{TID}": sleeping(12 * S)}}))
    assert told["waits"] == [(PID, TID, FUTEX, 1, 0, 4 * S)]


def test_one_that_slept_before_is_counted_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    place = (TID, FUTEX, 1)
    monkeypatch.setattr(system, "threads", lambda pid: [TID])
    monkeypatch.setattr(sleeps_module, "_in_proc", lambda pid, tid, t_ns: Sleeper(pid, place, 0, t_ns))
    sleeps = Sleeps(AddressNames())
    sleeps.seed([PID], 10 * S)
    assert sleeps.read(Printout(11 * S, {}))["waits"] == [(PID, TID, FUTEX, 1, 0, S)]
    assert sleeps.read(Printout(12 * S, {}))["waits"] == [(PID, TID, FUTEX, 1, 0, 2 * S)]
    awake = Printout(13 * S, {"slept": {f"{PID},{TID},{READ | ASLEEP}": 5}})
    assert sleeps.read(awake)["waits"] == [(PID, TID, READ, 1, 0, 5)]
    assert sleeps.read(Printout(14 * S, {}))["waits"] == []


@pytest.mark.parametrize(("tids", "pids"), [((TID,), ()), ((), (PID,))])
def test_one_that_slept_before_and_has_ended_is_not_counted_on(
    monkeypatch: pytest.MonkeyPatch, tids: tuple[int, ...], pids: tuple[int, ...]
) -> None:
    """Another may have its id by now, and be asleep in the same place."""
    monkeypatch.setattr(system, "threads", lambda pid: [TID])
    monkeypatch.setattr(sleeps_module, "_in_proc", lambda pid, tid, t_ns: Sleeper(pid, (TID, FUTEX, 1), 0, t_ns))
    sleeps = Sleeps(AddressNames())
    sleeps.seed([PID], 10 * S)
    assert len(sleeps.read(Printout(11 * S, {}))["waits"]) == 1
    sleeps.forget(tids, pids)
    assert sleeps.read(Printout(12 * S, {}))["waits"] == []


@pytest.mark.usefixtures("no_proc")
def test_stacks_share_the_exact_time_out() -> None:
    sleeps = Sleeps(AddressNames())
    place = READ | ASLEEP | 7 << FILE_SHIFT
    maps = {
        "slept": {f"{PID},{TID},{place}": 8 * S},
        "sleep_stacks": {
            f"{PID},{TID},{place},\n    read+1\n    hot+1\n,\n    schedule+2\n": 3,
            f"{PID},{TID},{place},\n    read+1\n    cold+1\n,\n    schedule+2\n": 1,
        },
    }
    look = Printout(10 * S, maps, has_stacks=True)
    assert sleeps.read(look)["waits"] == [(PID, TID, READ, 1, 7, 8 * S)]
    assert sleeps.stack_shares(look) == [
        (PID, TID, READ, 1, 7, ("hot", "read", "schedule_[k]"), 6 * S),
        (PID, TID, READ, 1, 7, ("cold", "read", "schedule_[k]"), 2 * S),
    ]


@pytest.mark.usefixtures("no_proc")
def test_those_asleep_have_the_stack_they_went_to_sleep_with() -> None:
    sleeps = Sleeps(AddressNames())
    maps = {
        "off": {"1": sleeping(9 * S), "2": sleeping(9 * S, taken=0)},
        "user": {"1": "\n    wait+1\n    main+1\n", "2": "\n    of_an_earlier_sleep+1\n"},
        "kernel": {"1": "\n    schedule+2\n"},
    }
    look = Printout(10 * S, maps, has_stacks=True)
    sleeps.read(look)
    assert sorted(sleeps.stack_shares(look)) == [
        (PID, 1, FUTEX, 1, 0, ("main", "wait", "schedule_[k]"), S),
        (PID, 2, FUTEX, 1, 0, ("schedule_[k]",), S),
    ]


@pytest.mark.parametrize(("letter", "state"), [("S", 1), ("D", 2), ("T", 4), ("t", 8)])
def test_states_of_those_that_slept_before_are_the_kernels(
    monkeypatch: pytest.MonkeyPatch, letter: str, state: int
) -> None:
    """TASK_INTERRUPTIBLE, TASK_UNINTERRUPTIBLE, __TASK_STOPPED and __TASK_TRACED of include/linux/sched.h."""
    monkeypatch.setattr(system, "threads", lambda pid: [TID, 7])
    monkeypatch.setattr(system, "thread_state", lambda pid, tid: letter if tid == TID else "R")
    monkeypatch.setattr(system, "sleeping_in", lambda pid, tid: (READ, 5))
    sleeps = Sleeps(AddressNames())
    sleeps.seed([PID], 10 * S)
    assert sleeps.read(Printout(12 * S, {}))["waits"] == [(PID, TID, READ, state, 5, 2 * S)]


@pytest.mark.usefixtures("no_proc")
def test_how_full_the_fullest_map_is() -> None:
    sleeps = Sleeps(AddressNames())
    slept = {f"{PID},{tid},{FUTEX | ASLEEP}": S for tid in (1, 2)}
    off = {f"{tid}": sleeping(0) for tid in (1, 2, 3)}
    sleeps.read(Printout(S, {"slept": slept, "off": off}))
    assert sleeps.entries() == 3
    wakes = {f"{PID},{TID},{waker}": 1 for waker in range(5)}
    sleeps.read(Printout(2 * S, {"slept": slept, "wakes": wakes}))
    assert sleeps.entries() == 5


@pytest.mark.usefixtures("no_proc")
def test_wakers_are_told_the_busiest_first_and_queues_by_process() -> None:
    sleeps = Sleeps(AddressNames())
    wakes = {f"{PID},{TID},{waker}": count for waker, count in ((0, 5), (7, 9), (8, 1), (9, 2))}
    told = sleeps.read(Printout(S, {"wakes": wakes, "queue": {f"{PID}": [bucket(3, 4)]}}))
    assert told["wakes"] == [(PID, TID, 7, 9), (PID, TID, 0, 5), (PID, TID, 9, 2)]
    assert told["queue"] == [(PID, {3: 4})]
    assert sleeps.switches == 4
    sleeps.begin_again(2 * S)
    told = sleeps.read(Printout(3 * S, {"wakes": {f"{PID},{TID},7": 1}, "queue": {f"{PID}": [bucket(3, 1)]}}))
    assert told["wakes"] == [(PID, TID, 7, 10)], "what the next run counts is added"
    assert told["queue"] == [(PID, {3: 5})]
    assert sleeps.switches == 5


@pytest.mark.usefixtures("no_proc")
def test_what_ended_is_forgotten() -> None:
    sleeps = Sleeps(AddressNames())
    maps = {"slept": {f"{PID},{TID},{FUTEX | ASLEEP}": S}}
    sleeps.read(Printout(S, maps))
    sleeps.forget({TID}, set())
    assert sleeps.read(Printout(2 * S, {}))["waits"] == []
    assert sleeps.read(Printout(3 * S, maps))["waits"] == [(PID, TID, FUTEX, 1, 0, S)], "another of the same id"


def test_addresses_are_put_down_to_their_file(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = (
        "7f00000000-7f00002000 r-xp 0 00:00 0 /usr/lib/libx.so\n7f00003000-7f00004000 r-xp 0 00:00 0 [vdso]\nnonsense"
    )
    monkeypatch.setattr("llmtop.collectors.tracing.helper.symbols.read", lambda path: maps)
    user = ("main", "0x7f00001000", "0x7f00003001", "0x7f00005000")
    assert AddressNames().frames(PID, user, ("schedule", "0xffffffff81000000")) == (
        "main",
        "[libx.so]",
        "[vdso]",
        "[unknown]",
        "schedule_[k]",
        "[unknown]_[k]",
    )


def test_a_file_is_named_whatever_stands_before_and_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is the sixth field of a line of /proc/PID/maps (proc_pid_maps(5)), blanks and all.

    What holds no code is no function's, and what no file holds has no name.
    """
    text = (
        "100000-200000 r-xp 00000000 fd:01 77     /opt/my models/lib run.so (deleted)\n"
        "300000-400000 rw-p 00000000 00:00 0 \n"
        "400000-500000 rwxp 00000000 00:00 0 \n"
    )
    monkeypatch.setattr("llmtop.collectors.tracing.helper.symbols.read", lambda path: text)
    told = AddressNames().frames(PID, ("0x100000", "0x300000", "0x400000"), ())
    assert told == ("[lib run.so (deleted)]", "[unknown]", "[unknown]")


def test_libraries_that_are_mapped_later_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The map of a process is read for its first address, and anew after ten looks with stacks."""
    maps = ["100000-200000 r-xp 0 00:00 0 /usr/lib/first.so", "100000-200000 r-xp 0 00:00 0 /usr/lib/second.so"]
    monkeypatch.setattr("llmtop.collectors.tracing.helper.symbols.read", lambda path: maps.pop(0))
    symbols = AddressNames()
    seen: list[str] = []
    for _ in range(12):
        seen += symbols.frames(PID, ("0x100000",), ())
        symbols.tick()
    assert seen == ["[first.so]"] * 10 + ["[second.so]"] * 2
    assert symbols.frames(PID, ("0x1fffff", "0x200000", "0x0fffff"), ()) == ("[second.so]", "[unknown]", "[unknown]")


def test_the_costliest_function_rests_for_a_minute() -> None:
    libraries = Libraries(budget_ns=10e6, ns_per_hit=NS_PER_HIT)
    map_library(libraries, PID, {"cuGraphLaunch": GENTLE, "cuLaunchKernel": STEPPED})
    counts = {(PID, "cuGraphLaunch"): 1000, (PID, "cuLaunchKernel"): 1000}
    libraries.weigh(counts, 1.0, 0.0)
    assert [one.symbol for one in libraries.functions()] == ["cuGraphLaunch"]
    assert libraries.notes == {
        "cuLaunchKernel": "1000 calls/s would cost 1.2 % of a core: counted again in a minute",
    }
    libraries.weigh(counts, 1.0, REST_S)
    assert [one.symbol for one in libraries.functions()] == ["cuGraphLaunch", "cuLaunchKernel"]
    assert libraries.notes == {}


def test_with_a_budget_launches_have_no_probes_from_the_first_moment() -> None:
    libraries = Libraries(budget_ns=10e6, ns_per_hit=NS_PER_HIT, is_careful=True)
    names = ("cuGraphLaunch", "cuLaunchKernel", "cuStreamSynchronize")
    map_library(libraries, PID, dict.fromkeys(names, GENTLE))
    assert [one.symbol for one in libraries.functions()] == ["cuStreamSynchronize"]
    covered = libraries.coverage(libraries.functions(), S, {PID})
    assert covered["unseen"] == [(PID, ["launches"])]
    assert covered["library_observed"] == [(PID, S)]


def test_a_function_that_stays_too_costly_rests_ever_longer() -> None:
    libraries = Libraries(budget_ns=10e6, ns_per_hit=NS_PER_HIT)
    map_library(libraries, PID, {"cuLaunchKernel": STEPPED})
    now_s, rests = 0.0, []
    for tries in range(1, 8):
        libraries.weigh({(PID, "cuLaunchKernel"): 1000 * tries}, 1.0, now_s)
        rests.append(libraries.notes["cuLaunchKernel"].rpartition(" again in ")[2])
        while not libraries.functions():
            now_s += REST_S
            libraries.weigh({(PID, "cuLaunchKernel"): 1000 * tries}, 1.0, now_s)
    assert rests == ["a minute", "2 minutes", "4 minutes", "8 minutes", "16 minutes", "16 minutes", "16 minutes"]


def test_duplicates_of_the_driver_go_first_and_waits_stay_known() -> None:
    libraries = Libraries(budget_ns=10e6, ns_per_hit=NS_PER_HIT)
    names = ("cudaLaunchKernel", "cuLaunchKernel", "cuStreamSynchronize", "cudaStreamSynchronize")
    map_library(libraries, PID, dict.fromkeys(names, GENTLE))
    functions = libraries.functions()
    libraries.weigh({(PID, name): 2000 for name in names}, 1.0, 0.0)
    assert [one.symbol for one in libraries.functions()] == ["cuLaunchKernel", "cuStreamSynchronize"]
    assert list(libraries.notes) == ["runtime"]
    covered = libraries.coverage(functions, S, {PID})
    assert covered["library_observed"] == [(PID, S)]
    assert covered["uncounted"] == [(PID, ["cudaLaunchKernel", "cudaStreamSynchronize"])]
    assert covered["unseen"] == []
    libraries.weigh({(PID, name): 2000 + 9000 * (name in names[1:3]) for name in names}, 1.0, 1.0)
    assert libraries.coverage(functions, S, {PID})["unseen"] == [(PID, ["launches", "sync"])]
    libraries.weigh({(PID, name): 2000 + 9000 * (name in names[1:3]) for name in names}, 1.0, 1.0 + REST_S)
    assert libraries.coverage(functions, S, {PID})["unseen"] == []
    assert libraries.coverage(functions, S, ())["library_observed"] == []


def test_a_function_costs_what_it_does_where_it_is_dearest() -> None:
    """Two builds of a library may begin it with different instructions; its calls are counted together."""
    for hits in ((GENTLE, STEPPED), (STEPPED, GENTLE)):
        libraries = Libraries(budget_ns=10e6, ns_per_hit=NS_PER_HIT)
        for copy, hit in enumerate(hits):
            map_library(libraries, PID + copy, {"cuLaunchKernel": hit}, inode=copy)
        libraries.weigh({(PID, "cuLaunchKernel"): 1000}, 1.0, 0.0)
        assert libraries.functions() == ()
        assert libraries.notes["cuLaunchKernel"].startswith("1000 calls/s would cost 1.2 % of a core")


def test_a_library_is_looked_at_where_a_process_that_is_left_sees_it() -> None:
    """Each next start of bpftrace opens it by its path, which goes with the process; what it has attached stays."""
    libraries = Libraries(budget_ns=10e6, ns_per_hit=NS_PER_HIT)
    for pid in (PID, PID + 1):
        map_library(libraries, pid, {"cuLaunchKernel": GENTLE})
    before = libraries.functions()
    assert [one.path for one in before] == [f"/proc/{PID}/root/lib/libcuda.so.1"]
    libraries.coverage(before, S, {PID + 1})
    assert [one.path for one in libraries.functions()] == [f"/proc/{PID + 1}/root/lib/libcuda.so.1"]
    assert libraries.functions() == before, "no reason to start anew"
    map_library(libraries, PID + 1, {"cuLaunchKernel": GENTLE}, path="/opt/libcuda.so.1", inode=3)
    assert len(libraries.functions()) == 2
    libraries.coverage(before, S, ())
    assert libraries.functions() == ()


def test_functions_of_a_file_that_bpftrace_cannot_be_told_of_are_not_seen() -> None:
    libraries = Libraries(budget_ns=10e6, ns_per_hit=NS_PER_HIT)
    map_library(libraries, PID, {"cuStreamSynchronize": GENTLE}, path="/opt/my env/libcuda.so.1")
    assert libraries.functions() == ()
    covered = libraries.coverage((), S, {PID})
    assert (covered["unseen"], covered["library_observed"]) == ([(PID, ["sync"])], [(PID, 0)])
    assert libraries.notes == {
        "cuStreamSynchronize": "its path has characters that bpftrace cannot be told: bcc can look at it"
    }


def test_what_is_not_called_any_more_does_not_go_for_what_is() -> None:
    libraries = Libraries(budget_ns=10e6, ns_per_hit=NS_PER_HIT)
    map_library(libraries, PID, {"cuGraphLaunch": GENTLE, "cuMemAlloc_v2": STEPPED})
    counts = {(PID, "cuGraphLaunch"): 10, (PID, "cuMemAlloc_v2"): 0, (PID + 1, "cuMemFree_v2"): 9**9}
    libraries.weigh(counts, 1.0, 0.0)
    libraries.weigh(counts | {(PID, "cuMemAlloc_v2"): 1000}, 1.0, 1.0)
    assert [one.symbol for one in libraries.functions()] == ["cuGraphLaunch"]
    assert list(libraries.notes) == ["cuMemAlloc_v2"]
