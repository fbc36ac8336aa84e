"""What the eBPF tests share: whether they can run, and looking until something is so."""

from __future__ import annotations

import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmtop.collectors.tracing.probes.collector import PROGRAM, why_not
from llmtop.collectors.tracing.process import HelperProcess
from tests.collectors.tracing.wire_types import assert_is_told
from tests.workloads.programs import started

DEADLINE_S = 30.0
ROOT = Path(__file__).resolve().parents[3]


def why_no_probes() -> str:
    """Why real probes cannot be loaded here; empty when they can."""
    why = why_not()
    return str(why) if why is not None else ""


def needs_unshare(*namespaces: str) -> None:
    """Skip where namespaces cannot be made: in a container without the right, or below a chroot."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare to make a namespace")
    tried = subprocess.run(["unshare", *namespaces, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no namespace can be made here: {tried.stderr.strip()}")


class Probes:
    """A helper, and the reports it has made."""

    deadline_s = DEADLINE_S

    def __init__(self, helper: HelperProcess) -> None:
        self.helper = helper
        self.said: list[dict[str, Any]] = []

    def until(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The next report that meets a condition."""
        deadline = time.monotonic() + self.deadline_s
        while (left := deadline - time.monotonic()) > 0:
            select.select([self.helper], [], [], left)
            for report in self.helper.reports():
                assert_is_told(report)
                self.said.append(report)
                if condition(report):
                    return report
            assert not self.helper.is_at_end, self.helper.last_words()
        raise AssertionError(f"not within {self.deadline_s} s; the last report: {self.said[-1:]}")

    def next(self) -> dict[str, Any]:
        """A sample that was begun after now."""
        now = time.monotonic_ns()
        return self.until(lambda report: report["kind"] == "sample" and report["t"] > now)

    def all(self, key: str) -> list[Any]:
        """The entries of one kind in all reports, oldest first."""
        return [entry for report in self.said for entry in report.get(key, ())]

    def calls(self, pid: int) -> dict[str, list[Any]]:
        """The newest [count, errors, ns, slots] of each system call of a process."""
        names = {number: name for report in self.said for number, name in report.get("names", {}).items()}
        return {names[str(entry[1])]: entry[2:] for entry in self.all("calls") if entry[0] == pid}

    def slept(self, pid: int, tid: int) -> dict[int, int]:
        """The newest ns slept by a thread, by system call."""
        sums: dict[tuple[int, int], int] = {}
        for entry in self.all("waits"):
            if entry[:2] == [pid, tid]:
                sums[entry[2], entry[3]] = entry[5]
        return {call: sum(ns for (of, _), ns in sums.items() if of == call) for call, _ in sums}


@contextmanager
def probing(*pids: int, options: Iterable[str] = (), program: tuple[str, ...] = PROGRAM) -> Iterator[Probes]:
    """Probes on processes, attached. The budget is out of reach unless `options` say otherwise."""
    helper = HelperProcess([*map(str, pids), "--interval", "0.1", "--budget", "100", *options], program=program)
    probes = Probes(helper)
    try:
        probes.until(lambda report: True)
        yield probes
    finally:
        helper.close()


def programs_in_kernel(pid: int) -> int:
    """How many BPF programs a process holds."""
    found = 0
    for entry in Path(f"/proc/{pid}/fdinfo").glob("*") if Path(f"/proc/{pid}").exists() else ():
        try:
            found += bool(re.search(r"^prog_type:", entry.read_text(), re.MULTILINE))
        except OSError:  # closed, or the process has ended
            continue
    return found


def eventually(condition: Callable[[], object]) -> bool:
    """Whether something becomes true before the deadline; looked at 50 times a second."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        select.select([], [], [], 0.02)
    return True


OWNER = """
import select, sys
from llmtop.collectors.tracing.process import HelperProcess
helper = HelperProcess([sys.argv[2], "--interval", "0.2"], sudo=sys.argv[1] == "sudo", program=tuple(sys.argv[3:]))
while not (ready := [report for report in helper.reports() if report["kind"] == "ready"]):
    select.select([helper], [], [])
print(ready[0]["pid"], flush=True)
sys.stdin.read()
"""


@contextmanager
def owned(
    pid: int, program: tuple[str, ...] = PROGRAM, *, sudo: bool = False
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process other than this one that has started a helper, which is ready; both, to be killed."""
    command = [sys.executable, "-c", OWNER, "sudo" if sudo else "", f"{pid}", *program]
    with started(command, stdin=subprocess.PIPE, cwd=ROOT) as owner:
        assert owner.stdout is not None
        yield owner, int(owner.stdout.readline())
