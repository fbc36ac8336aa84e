"""What perf is asked for, what becomes of what it refuses, and which of its events are too few to be believed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.perf import threads as threads_module
from llmtop.collectors.tracing.perf.events import EventGroup, PerfEvents
from llmtop.collectors.tracing.perf.perf_text import PerfSample
from llmtop.collectors.tracing.perf.recording import RecordedSlice
from llmtop.collectors.tracing.perf.run import PerfError, PerfProgram, Recording
from llmtop.collectors.tracing.perf.sched import SWITCH, Seed, Slice, SliceSums
from llmtop.collectors.tracing.perf.threads import ServerThreads, ThreadTable, seeds
from llmtop.model import Unknown
from llmtop.vocabulary import ThreadCause
from tests.collectors.perf_waits import wait_plainly

SERVER, TID = 4_300_001, 4_300_002
S = 1_000_000_000
REFUSING = """#!/bin/bash
for word in "$@"; do case $word in --control=fd:*) fds=${word#--control=fd:};; esac; done
echo "$@" >> FOLDER/calls
[[ "$*" == *"WANTED"* ]] || { echo "REFUSES" >&2; exit 255; }
while read -u ${fds%,*} said; do echo ack >&${fds#*,}; done
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ServerThreads:
    """A process with 300 threads, each as busy as its place among them says."""
    monkeypatch.setattr(system, "pid_namespace", lambda: None)
    found = ServerThreads([SERVER])
    found.family = ThreadTable({SERVER + place: SERVER for place in range(300)})
    found._busy = {SERVER + place: place for place in range(300)}
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    return found


def perf(folder: Path, wanted: str, refuses: str) -> PerfProgram:
    """A perf that takes what has these words among its options, and refuses all else."""
    program = folder / "perf"
    program.write_text(REFUSING.replace("FOLDER", str(folder)).replace("WANTED", wanted).replace("REFUSES", refuses))
    program.chmod(0o755)
    return PerfProgram(str(program), (6, 1))


def option(argv: str, name: str) -> str:
    words = argv.split()
    return words[words.index(name) + 1]


def test_an_ordinary_user_gets_the_stacks_of_the_program_alone(
    tmp_path: Path, server: ServerThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs a right is asked for once; without it there are fewer threads, in buffers that a user may have."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(threads_module, "owner", lambda pid: 1000)
    events = PerfEvents(
        perf(tmp_path, "cpu-clock/freq=199/u", "perf_event_paranoid setting is 2"), server, wait_plainly
    )
    assert events.missing() == {}
    with ExitStack() as opened:
        assert events.open("samples", opened, sleeps=True) is not None
    whole, users = (tmp_path / "calls").read_text().splitlines()
    assert "sched:sched_switch" in whole
    assert (option(whole, "-m"), option(whole, "-p")) == ("8", str(SERVER)), "4096 pages over 300 threads"
    assert "sched:sched_switch" not in users
    chosen = option(users, "-t").split(",")
    assert chosen == [str(SERVER + place) for place in range(299, 235, -1)], "the busiest 64: a page and its head each"
    assert option(users, "-m") == "2"
    events.parts["samples"].worked()
    assert events.missing() == {
        "stacks of the kernel": ("perf shows an ordinary user no kernel functions", "sudo llmtop ..."),
        "perf.threads": ("the stacks and calls of 236 threads that did least are left out", ""),
    }


def test_threads_that_end_while_perf_begins_are_left_out(
    tmp_path: Path, server: ServerThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [SERVER, SERVER + 9]
    monkeypatch.setattr(threads_module, "old", lambda family: old)
    wanted = f"-t {old[1]},{old[0]} "
    events = PerfEvents(perf(tmp_path, wanted, "Error: No such process"), server, wait_plainly)
    with ExitStack() as opened:
        assert events.open("syscalls", opened, sleeps=False) is not None
    assert events.missing() == {
        "perf.threads": ("the stacks and calls of 298 threads of less than 2 s are left out", "")
    }


def test_another_users_server_is_told_as_that(
    tmp_path: Path, server: ServerThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(threads_module, "owner", lambda pid: 1001)
    events = PerfEvents(perf(tmp_path, "nothing", "perf_event_paranoid setting is 2"), server, wait_plainly)
    with ExitStack() as opened:
        for part in events.parts:
            assert events.open(part, opened, sleeps=False) is None
            assert events.parts[part].given_up
    assert events.unavailable == Unknown("the server is another user's", "sudo llmtop ..., or run llmtop as that user")


def test_what_may_pass_is_told_the_third_time_and_what_lasts_at_once() -> None:
    passing, lasting = (PerfError(Unknown("busy"), lasting=is_lasting) for is_lasting in (False, True))
    part = EventGroup()
    told = []
    for _ in range(3):
        part.failed(passing)
        told.append(part.why)
    assert told == [None, None, Unknown("busy")]
    part.worked()
    part.failed(passing)
    assert (part.why, part.given_up) == (None, False)
    part.failed(lasting)
    assert (part.why, part.given_up) == (Unknown("busy"), True)


def test_in_a_pid_namespace_the_scheduler_is_given_up(server: ServerThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "pid_namespace", lambda: (4, 99))
    events = PerfEvents(PerfProgram("perf", (6, 1)), server, wait_plainly)
    assert {name: part.given_up for name, part in events.parts.items()} == {
        "scheduler": True,
        "samples": False,
        "syscalls": False,
    }
    assert list(events.missing()) == ["scheduler"]
    assert events.unavailable is None


@pytest.mark.parametrize(
    ("version", "options"), [((5, 15, 99), ()), ((5, 16), ("--synth=no",)), ((6, 1, 2), ("--synth=no",))]
)
def test_maps_are_left_out_where_perf_can_leave_them(version: tuple[int, ...], options: tuple[str, ...]) -> None:
    assert PerfProgram("perf", version).without_maps == options


class Recorded:
    """A recording of which the events are known."""

    lost = 0

    def __init__(self, switches: int, arrivals: int) -> None:
        self._places = [(TID, 0)] * switches + [(0, TID)] * arrivals

    def samples(self, wait: object) -> Iterator[PerfSample]:
        for place, (prev, following) in enumerate(self._places):
            payload = f"prev_comm=a prev_pid={prev} prev_prio=120 prev_state=S ==> next_comm=b next_pid={following} "
            yield PerfSample("", 1, prev, place, SWITCH, -1, f"{payload}next_prio=120", ())


def look_of(server: ServerThreads, recorded: Recorded, ran: int) -> RecordedSlice:
    """A look of a second, in which the kernel has counted that the server's threads ran so often."""
    events = PerfEvents(PerfProgram("perf", (6, 1)), server, wait_plainly)
    look = RecordedSlice(events, {"scheduler": cast("Recording", recorded)}, ThreadTable({TID: SERVER}))
    look.start, look.end = 0, S
    look._seeds = {TID: Seed("R")}
    look._switches, look._expected = ran, float(ran)
    return look


@pytest.mark.parametrize(
    ("arrivals", "ran", "is_believed"),
    [(0, 5, True), (0, 6, False), (90, 100, True), (89, 100, False), (900, 1000, True), (899, 1000, False)],
)
def test_a_tenth_of_the_events_may_be_missing(
    server: ServerThreads, arrivals: int, ran: int, is_believed: bool
) -> None:
    """Five at least: those at the edges of a look."""
    look = look_of(server, Recorded(arrivals, arrivals), ran)
    sums = look.sums()
    assert (sums is not None) is is_believed
    assert sums is None or (sums.switches, sums.arrivals) == (arrivals, arrivals)


@pytest.mark.parametrize(("lost", "says"), [(7, "its buffers had no room"), (0, "another tracer or the kernel keeps")])
def test_why_events_are_missing_is_told(server: ServerThreads, lost: int, says: str) -> None:
    recorded = Recorded(50, 50)
    recorded.lost = lost
    look = look_of(server, recorded, 100)
    for _ in range(3):
        assert look.sums() is None
    why = look._events.parts["scheduler"].why
    assert why is not None
    assert why.reason.startswith("perf saw 50 of 100 times that the server's threads came to a CPU")
    assert says in why.reason
    assert look.lost == 3 * lost


@pytest.mark.parametrize(("ran", "is_believed"), [(19, True), (20, False)])
def test_many_switches_without_an_event_are_no_chance(server: ServerThreads, ran: int, is_believed: bool) -> None:
    look = look_of(server, Recorded(0, 0), ran)
    look._expected = 0.0
    assert (look.sums() is not None) is is_believed


@pytest.mark.parametrize(
    ("user", "others", "remedy"),
    [
        (0, [(77, "snoop", "kprobe"), (78, "tetragon", "fentry")], "end snoop (pid 77), tetragon (pid 78)"),
        (0, [], "end it"),
        (1000, [(77, "snoop", "kprobe")], "end it"),
    ],
)
def test_who_takes_perfs_events_is_named_to_those_who_may_know(
    server: ServerThreads, monkeypatch: pytest.MonkeyPatch, user: int, others: list[tuple[int, str, str]], remedy: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr(system, "other_tracers", lambda: others)
    look = look_of(server, Recorded(0, 0), 30)
    for _ in range(3):
        assert look.sums() is None
    reason = "perf got no events though the server's threads switched 30 times: another tracer filters them"
    assert look._events.parts["scheduler"].why == Unknown(reason, f"{remedy}: its programs should return 1")


def test_what_a_thread_sleeps_in_before_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel's function where /proc tells it, else by the system call."""
    said = {
        f"/proc/{SERVER}/task/{SERVER}/wchan": "futex_wait_queue",
        f"/proc/{SERVER}/task/{TID}/wchan": "0",
        f"/proc/{SERVER}/task/{TID}/syscall": "202 0x7f00 0x80 0x0 0x0 0x0 0xffffffff 0x7ffc 0x7f01",
    }
    monkeypatch.setattr("llmtop.procfs.read_text", said.get)
    monkeypatch.setattr(system, "thread_state", lambda pid, tid: "S" if pid == SERVER and tid >= SERVER else "")
    found = seeds(ThreadTable({SERVER: SERVER, TID: SERVER, TID + 1: SERVER}))
    assert {tid: seed.cause for tid, seed in found.items()} == {
        SERVER: ThreadCause.FUTEX,
        TID: ThreadCause.FUTEX,
        TID + 1: None,
    }
    assert {seed.state for seed in found.values()} == {"S"}


def test_a_slice_without_events_has_counted_none() -> None:
    sums = Slice(0, S, {}).close()
    assert (sums.events, sums.switches, sums.arrivals) == (0, 0, 0)
    assert sums == SliceSums()


def test_how_often_threads_ran_is_the_kernels_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ns on a CPU, ns in the queue, times: a thread that has come since has no count before."""
    said = {f"/proc/{SERVER}/task/{SERVER}/schedstat": b"1000 50 7\n", f"/proc/{SERVER}/task/{TID}/schedstat": b"9\n"}
    monkeypatch.setattr("llmtop.procfs.read_bytes", said.get)
    assert threads_module.schedstats(ThreadTable({SERVER: SERVER, TID: SERVER, 1: SERVER})) == {SERVER: (1000, 7)}
    assert threads_module.times_run({1: (0, 5), 2: (0, 1)}, {1: (9, 12), 3: (0, 100)}) == 7


def test_threads_that_have_just_come_are_not_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """By when the kernel started them, in ticks since it was started itself; one that has ended has no age."""
    per_s = os.sysconf("SC_CLK_TCK")
    started = {SERVER: 10 * per_s, TID: 12 * per_s, TID + 1: 12 * per_s + 1}
    task = Path(f"/proc/{SERVER}/task")
    stats = {(tid, task): SimpleNamespace(start_ticks=ticks) for tid, ticks in started.items()}
    monkeypatch.setattr("llmtop.procfs.stat", lambda *of: stats.get(of))
    monkeypatch.setattr("time.clock_gettime", lambda clock: 12 + threads_module.OLD_S)
    assert threads_module.old(ThreadTable(dict.fromkeys((*started, TID + 2), SERVER))) == [SERVER, TID]


def test_the_busiest_are_those_that_ran_the_most_since_the_last_but_one_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is new has run all that it ran since then; how often a thread came to a CPU says nothing of it."""
    ran = {TID: (5000, 1), TID + 1: (9000, 900), TID + 2: (100, 3)}
    monkeypatch.setattr(threads_module, "schedstats", lambda family: dict(ran))
    found = ServerThreads([SERVER])
    found.family = ThreadTable(dict.fromkeys(ran, SERVER))
    assert found.measure() is None
    assert found.busiest(2) == [TID + 1, TID]
    ran |= {TID: (5700, 2), TID + 1: (9500, 1900), TID + 3: (600, 1)}
    found.family = ThreadTable(dict.fromkeys(ran, SERVER))
    assert found.measure() is not None
    assert found.busiest(3) == [TID, TID + 3, TID + 1]
