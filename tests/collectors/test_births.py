"""Which processes have begun: told by their numbers where these are few, and by a list of all where they are not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from llmtop import procfs
from llmtop.births import LIST_EVERY, MOST_ASKED, Births, Descendants


class Processes:
    """A folder like /proc, whose processes have the numbers 10, 20 and those that are begun."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs_as(os.getpid())
        self.begin(10, 20)

    def begin(self, *pids: int, last: int | None = None) -> None:
        for pid in pids:
            (self.folder / str(pid)).mkdir()
        self.tell(max(pids) if last is None else last)

    def is_child(self, pid: int, parent: int) -> None:
        words = f"S {parent} 0 0 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 9 0 1"
        (self.folder / str(pid) / "stat").write_text(f"{pid} (x) {words}")
        (self.folder / str(pid) / "status").write_text(f"Tgid:\t{pid}\n")

    def tell(self, last: int) -> None:
        (self.folder / "loadavg").write_text(f"0.50 0.40 0.30 2/300 {last}\n")

    def runs_as(self, pid: int) -> None:
        (self.folder / "self").unlink(missing_ok=True)
        (self.folder / "self").symlink_to(str(pid))


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path)


def test_a_few_new_numbers_are_asked_for_and_nothing_is_listed(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    births = Births(processes.folder)
    assert set(births.look(at_all=True)) == {10, 20}
    monkeypatch.setattr("llmtop.procfs.pids", lambda proc: pytest.fail("a list was not needed"))
    assert list(births.look(at_all=False)) == []
    processes.begin(23)
    assert list(births.look(at_all=False)) == [21, 22, 23]
    processes.tell(24)
    assert list(births.look(at_all=False)) == [24]


@pytest.mark.parametrize("last", [20 + MOST_ASKED + 1, 5], ids=["many", "numbers begin anew"])
def test_where_numbers_do_not_tell_what_is_new_is_listed(processes: Processes, last: int) -> None:
    births = Births(processes.folder)
    births.look(at_all=True)
    processes.begin(7, 90, last=last)
    assert set(births.look(at_all=False)) == {7, 90}


def test_as_many_numbers_as_may_be_asked_for_are(processes: Processes) -> None:
    births = Births(processes.folder)
    births.look(at_all=True)
    processes.tell(20 + MOST_ASKED)
    assert list(births.look(at_all=False)) == list(range(21, 21 + MOST_ASKED))


def test_processes_of_another_namespace_are_listed(processes: Processes) -> None:
    """Their numbers are not those of the last one that began here."""
    births = Births(processes.folder)
    births.look(at_all=True)
    processes.runs_as(os.getpid() + 1)
    processes.begin(21, last=4000)
    assert set(births.look(at_all=False)) == {21}
    (processes.folder / "30").mkdir()
    assert set(births.look(at_all=False)) == {30}


def test_one_that_took_a_number_out_of_order_is_found_by_a_later_look(processes: Processes) -> None:
    births = Births(processes.folder)
    births.look(at_all=True)
    (processes.folder / "15").mkdir()
    found = [set(births.look(at_all=False)) for _ in range(LIST_EVERY)]
    assert found == [set()] * (LIST_EVERY - 1) + [{15}]


def test_a_kernel_that_does_not_tell_has_them_listed(processes: Processes) -> None:
    births = Births(processes.folder)
    (processes.folder / "loadavg").unlink()
    births.look(at_all=True)
    (processes.folder / "21").mkdir()
    assert set(births.look(at_all=False)) == {21}


def test_a_thread_has_a_number_and_is_no_process() -> None:
    births, numbers, is_let = Births(), [os.getpid()], threading.Event()
    is_known = threading.Event()

    def run() -> None:
        numbers.append(threading.get_native_id())
        is_known.set()
        is_let.wait(30)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert is_known.wait(30)
        assert births.leaders(numbers) == [os.getpid()]
    finally:
        is_let.set()
        thread.join(30)


def test_a_real_process_that_has_begun_is_among_them() -> None:
    births = Births()
    births.look(at_all=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        found = births.look(at_all=False)
        program.communicate(b"\n")
    assert program.pid in found
    assert os.getpid() not in found


def test_those_below_are_kept_while_they_are_and_stay_below(processes: Processes) -> None:
    processes.is_child(20, 10)
    below = Descendants(10, processes.folder)
    assert below.now() == [20]
    processes.begin(23, 24, 25)
    for pid, parent in ((23, 20), (24, 1), (25, 20)):
        processes.is_child(pid, parent)
    (processes.folder / "25" / "status").write_text("Tgid:\t23\n")
    assert below.now() == [20, 23], "24 is another's, 25 a thread"
    processes.is_child(23, 1)
    assert below.now() == [20], "its parent has ended"
    (processes.folder / "20" / "stat").unlink()
    assert below.now() == []


def test_nothing_but_those_below_is_read_while_nothing_begins(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.is_child(20, 10)
    below = Descendants(10, processes.folder)
    below.now()
    asked, stat = [], procfs.stat
    monkeypatch.setattr(procfs, "stat", lambda pid, proc: asked.append(pid) or stat(pid, proc))  # type: ignore[func-returns-value]
    assert below.now() == [20]
    assert asked == [20]
