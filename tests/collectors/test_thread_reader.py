"""Which threads are read at a poll and which are told of: a made-up /proc, whose threads run when they are told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from llmtop import ids, procfs
from llmtop import vocabulary as v
from llmtop.collectors import thread_reader
from llmtop.collectors.proc_poll import KnownProcess, ProcPoll
from llmtop.collectors.proc_threads import Thread, ThreadAccess
from llmtop.collectors.thread_reader import FORGET_NS, ThreadReader
from llmtop.model import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PID = 1000
CROWD = range(PID, PID + 120, 3)
"""Forty threads, of which the first is the main one."""


class Machine:
    """A process of threads, its reader, and which threads it has read at the last poll."""

    def __init__(self, proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = proc / str(PID) / "task"
        self.now_ns = 1_000 * NS_PER_S
        self.process = KnownProcess(PID, 1, 1, "server", 0, ThreadAccess(PID))
        self.reader = ThreadReader(lambda: self.now_ns, proc)
        self.run_ns: dict[int, int] = {}
        self.read: list[int] = []
        read_clocks = Thread.read_clocks

        def noted(thread: Thread, task: int) -> bool:
            self.read.append(thread.tid)
            return read_clocks(thread, task)

        monkeypatch.setattr(Thread, "read_clocks", noted)
        listed = procfs.threads
        monkeypatch.setattr(procfs, "threads", lambda pid, proc: sorted(listed(pid, proc)))  # as the kernel lists them

    def begin(self, *tids: int) -> None:
        for tid in tids:
            (self.folder / str(tid)).mkdir(parents=True)
            (self.folder / str(tid) / "stat").write_text(f"{tid} (t{tid}) S 1")
            (self.folder / str(tid) / "wchan").write_text("futex_wait_queue")
            self.run(tid, 1_000_000)

    def run(self, tid: int, ns: int) -> None:
        self.run_ns[tid] = self.run_ns.get(tid, 0) + ns
        (self.folder / str(tid) / "schedstat").write_text(f"{self.run_ns[tid]} 0 {self.run_ns[tid] // 1000}")

    def poll(self, after_s: float = 1.0) -> ProcPoll:
        self.now_ns += round(after_s * NS_PER_S)
        self.process.thread_count = len(list(self.folder.iterdir()))
        self.read.clear()
        news = ProcPoll()
        self.reader.read([self.process], news)
        return news


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    one = Machine(tmp_path, monkeypatch)
    yield one
    one.reader.close()


@pytest.fixture
def crowd(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Forty threads where ten are many: two are read at each poll, and of the others two in a second."""
    monkeypatch.setattr(thread_reader, "MANY_THREADS", 10)
    monkeypatch.setattr(thread_reader, "CLOSE_LOOKS", 2)
    monkeypatch.setattr(thread_reader, "TURN_THREADS", 2)
    machine.begin(*CROWD)
    return machine


def on_cpu(news: ProcPoll, tid: int) -> list[tuple[int, float | None]]:
    """The readings of a thread's time on a CPU."""
    track = ids.thread(PID, tid)
    return [(one.t_ns, one.value) for one in news.readings if (one.track, one.metric) == (track, v.THREAD_ON_CPU)]


def test_one_that_has_slept_for_four_seconds_is_read_every_other_second(machine: Machine) -> None:
    machine.begin(PID, PID + 1)
    read = []
    for second in range(9):
        machine.run(PID + 1, 1_000_000)
        machine.poll()
        read += [second] if PID in machine.read else []
        assert PID + 1 in machine.read
    assert read == [0, 1, 2, 3, 4, 6, 8]


def test_a_polls_delay_does_not_put_a_reading_off_for_a_second(machine: Machine) -> None:
    machine.begin(PID)
    machine.poll()
    machine.poll(4)
    machine.poll(1.89)
    assert not machine.read
    machine.poll(0.01)
    assert machine.read == [PID]


def test_of_very_many_all_are_read_in_turn_and_never_at_once(crowd: Machine) -> None:
    crowd.poll()
    assert sorted(crowd.read) == [*CROWD], "all are new"
    crowd.poll()  # those that have done most in their lives, which is the same
    turns = []
    for _ in range(40):
        news = crowd.poll()
        turns.append(list(crowd.read))
    [missing] = news.missing
    assert missing.why.reason == (
        "of 40 threads the busiest are read at each poll, the others every 19 s; 30 that have not run are not listed"
    )
    assert max(map(len, turns)) <= 4
    for turn in (turns[:20], turns[20:]):
        assert {tid for read in turn for tid in read} == {*CROWD}


def test_of_very_many_those_that_did_most_are_read_at_each_poll(crowd: Machine) -> None:
    crowd.poll()
    busiest, busy, less = CROWD[20], CROWD[30], CROWD[35]
    seen = set[int]()
    for _ in range(40):
        for tid, ns in ((busiest, 9_000_000), (busy, 8_000_000), (less, 100_000)):
            crowd.run(tid, ns)
        crowd.poll()
        seen |= {*crowd.read}
    assert seen == {*CROWD}
    read = []
    for _ in range(10):
        for tid, ns in ((busiest, 9_000_000), (busy, 8_000_000), (less, 1_000)):
            crowd.run(tid, ns)
        crowd.poll()
        read.append({*crowd.read})
    assert all({busiest, busy} <= one for one in read)
    assert sum(less in one for one in read) <= 1


def test_of_very_many_those_that_have_not_run_have_no_track_but_the_main_one(crowd: Machine) -> None:
    crowd.begin(*range(PID - 20, PID))  # which comes where numbers begin anew
    tracks = crowd.poll().tracks
    assert len(tracks) == 11
    assert ids.thread(PID, PID) in tracks


def test_one_that_wakes_is_told_from_its_last_reading_on(crowd: Machine) -> None:
    """Its share is over the time between its two readings, however long that was."""
    first = crowd.poll()
    woken = CROWD[-1]
    assert not on_cpu(first, woken)
    read_ns = [crowd.now_ns]
    for _ in range(20):
        crowd.poll()
        read_ns += [crowd.now_ns] if woken in crowd.read else []
    crowd.run(woken, 5_000_000)
    news = crowd.poll()
    while woken not in crowd.read:
        news = crowd.poll()
    assert on_cpu(news, woken) == [(read_ns[-1], 1_000_000.0), (crowd.now_ns, 6_000_000.0)]
    assert ids.thread(PID, woken) in news.tracks


def test_of_very_many_one_that_has_not_run_for_long_is_let_go_of_until_it_does(crowd: Machine) -> None:
    woken = CROWD[-1]
    crowd.poll()
    crowd.run(woken, 5_000_000)
    gone: list[str] = []
    for _ in range(FORGET_NS // NS_PER_S // 10 + 10):
        crowd.run(PID, 1_000_000)
        gone += crowd.poll(10).gone
    assert 0 < len(gone) < 10
    assert ids.thread(PID, PID) not in gone
    forgotten = next(tid for tid in CROWD if ids.thread(PID, tid) in gone)
    crowd.run(forgotten, 7_000_000)
    news = crowd.poll()
    while forgotten not in crowd.read:
        news = crowd.poll()
    assert ids.thread(PID, forgotten) in news.tracks
    assert len(on_cpu(news, forgotten)) == 2


def test_those_that_end_are_gone_and_new_ones_are_read_at_once(crowd: Machine) -> None:
    crowd.poll()
    for file in (ended := crowd.folder / str(CROWD[3])).iterdir():
        file.unlink()
    ended.rmdir()
    crowd.begin(5000)
    news = crowd.poll()
    assert news.gone == [ids.thread(PID, CROWD[3])]
    assert 5000 in crowd.read
