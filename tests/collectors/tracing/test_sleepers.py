"""Who sleeps at one moment, of files that are kept open, in a /proc that is made up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtop.collectors.tracing.helper import system
from llmtop.collectors.tracing.probes.helper import sleepers
from llmtop.collectors.tracing.probes.helper.sleepers import Sleepers

PID, OTHER = 4_300_001, 4_300_009
NO_CALL = 0xFFFF


class Proc:
    """Threads of processes, by what /proc/PID/task/TID/syscall and their state letter say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.states: dict[int, str] = {}
        self.opened: list[int] = []
        self.read: list[int] = []

    def say(self, pid: int, **threads: str) -> None:
        folder = self.folder / str(pid)
        folder.mkdir(exist_ok=True)
        for name, said in threads.items():
            (folder / name.removeprefix("t")).write_text(said)

    def threads(self, pid: int) -> list[int]:
        return sorted(int(one.name) for one in (self.folder / str(pid)).glob("*"))

    def place(self, path: str) -> Path:
        _, _, pid, _, tid, name = path.split("/")
        assert name == "syscall"
        return self.folder / pid / tid


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proc]:
    one = Proc(tmp_path)
    opens = os.open

    def opened(path: str, flags: int) -> int:
        one.opened.append(int(path.split("/")[4]))
        return opens(one.place(path), flags)

    def read(path: str) -> bytes:
        one.read.append(int(path.split("/")[4]))
        return one.place(path).read_bytes()

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(system, "threads", one.threads)
    monkeypatch.setattr(system, "thread_state", lambda pid, tid: one.states[tid] if pid == PID else "")
    monkeypatch.setattr(system, "read_bytes", read)
    yield one
    monkeypatch.undo()


def test_who_sleeps_and_in_what(proc: Proc) -> None:
    proc.say(
        PID,
        t1="202 0x7f0012345678 0x80 0x0",
        t2="0 0x3 0x7f00",
        t3="running",
        t4="-1 0x7ffc 0x7f01",
        t5="-1 0x7ffc 0x7f01",
        t6="",
        t7="-1 0x7ffc 0x7f01",
    )
    proc.states = {4: "T", 5: "R", 7: "D"}
    one = Sleepers()
    expected = [(1, 1, 202, 0x12345678), (2, 1, 0, 3), (4, 4, NO_CALL, 0), (7, 2, NO_CALL, 0)]
    assert list(one.of(PID)) == expected
    assert proc.opened == [1, 2, 3, 4, 5, 6, 7]
    proc.say(PID, t2="7 0x10 0x2")
    assert list(one.of(PID)) == [expected[0], (2, 1, 7, 16), *expected[2:]]
    assert len(proc.opened) == 7, "what is open is read again"
    one.forget(PID)


def test_files_of_threads_that_ended_are_closed(proc: Proc) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    one = Sleepers()
    proc.say(PID, t1="0 0x3 0x0", t2="0 0x3 0x0")
    proc.say(OTHER, t3="0 0x3 0x0")
    list(one.of(PID))
    list(one.of(OTHER))
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 3
    (proc.folder / str(PID) / "1").unlink()
    assert [tid for tid, *_ in one.of(PID)] == [2]
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 2
    one.forget(PID)
    one.forget(PID)
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    one.forget(OTHER)


def test_of_very_many_threads_not_all_files_stay_open(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleepers, "_MOST_OPEN", 3)
    proc.say(PID, t1="0 0x3 0x0", t2="0 0x3 0x0")
    proc.say(OTHER, t3="0 0x3 0x0", t4="0 0x3 0x0")
    one = Sleepers()
    for _ in range(2):
        assert [tid for pid in (PID, OTHER) for tid, *_ in one.of(pid)] == [1, 2, 3, 4]
    assert (proc.opened, proc.read) == ([1, 2, 3], [4, 4])
    one.forget(PID)
    one.forget(OTHER)
