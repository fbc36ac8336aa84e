"""Which processes are looked at: those asked for, and their children from the moment they are forked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...helper import system
from ...helper.kernel import CpuCounters, attach_tracepoint
from ...helper.system import UnavailableError
from .programs import HITS, TRACEPOINT, Module, ProgramText

SOURCE = ProgramText("lifecycle")


@dataclass(frozen=True)
class Changes:
    """What happened to processes and threads since the last look."""

    born: tuple[int, ...]
    gone: tuple[int, ...]
    renewed: tuple[int, ...]
    ended_threads: tuple[tuple[int, int], ...]
    """(tid, tgid) pairs."""


class Lifecycle:
    """The list of processes, kept in the kernel so that a child's first event is seen."""

    def __init__(self, module: Module) -> None:
        for tracepoint, function in (
            ("sched:sched_process_fork", "on_fork"),
            ("sched:sched_process_exit", "on_exit"),
            ("sched:sched_process_exec", "on_exec"),
        ):
            program = module.load(function, TRACEPOINT)
            try:
                attach_tracepoint(tracepoint, program)
            except (OSError, ValueError) as error:
                raise UnavailableError(f"the tracepoint {tracepoint} cannot be used: {error}") from error
        self._targets = module.table("targets", "I", "I")
        self._marks = module.table("marks", "I", "Q")
        self._ended = module.table("ended", "I", "I")
        self._renewed = module.table("renewed", "I", "Q")
        self.processes: dict[int, str] = {}
        """Start times by PID: with both, a process is named for good."""
        self.unseen: set[int] = set()
        """Processes whose ids the kernel cannot tell us: they run in a PID namespace within ours."""
        self._threads: set[int] = set()
        self._ending: set[int] = set()
        self._hits = CpuCounters.of(module.map("hits"))

    def add(self, pid: int) -> bool:
        """Look at a process from now on; false when there is none, or none whose ids can be told."""
        started = system.start_time(pid)
        if not started:
            return False
        if not system.tells_ids_of(pid):
            self.unseen.add(pid)
            return False
        self.processes[pid] = started
        self._marks.put((pid % self._marks.map.capacity,), (1,))
        self._targets.put((pid,), (0,))
        return True

    def remove(self, pid: int) -> None:
        """Look away from a process."""
        self.processes.pop(pid, None)
        self.unseen.discard(pid)
        self._targets.remove(pid)

    def changes(self) -> Changes:
        """Bring the list up to date."""
        ended = tuple((tid, tgid) for (tid,), (tgid,) in self._ended.entries(take=True))
        renewed = tuple(tgid for (tgid,), _ in self._renewed.entries(take=True))
        gone = [pid for pid, started in self.processes.items() if system.start_time(pid) != started]
        gone += self._never_seen(ended)
        for pid in gone:
            self.remove(pid)
        born = tuple(self._new_processes())
        self._threads -= {tid for tid, _ in ended}
        return Changes(born, tuple(gone), renewed, ended)

    def _never_seen(self, ended: Iterable[tuple[int, int]]) -> list[int]:
        """Children that began and ended between two looks: what was counted of them must be forgotten too."""
        self._ending |= {tgid for tid, tgid in ended if tid == tgid and tgid not in self.processes}
        gone = [pid for pid in self._ending if not system.start_time(pid)]
        self._ending.difference_update(gone)
        return gone

    def _new_processes(self) -> list[int]:
        """Children that the kernel put on the list; new threads are there too, and what has ended already."""
        born = []
        for (tid,), _ in self._targets.entries():
            if tid in self.processes or tid in self._threads or tid in self._ending:
                continue
            started = system.start_time(tid) if system.is_process(tid) else ""
            if started:
                self.processes[tid] = started
                born.append(tid)
            else:
                self._threads.add(tid)
        return born

    def hits(self) -> dict[str, int]:
        """How often each kind of probe ran, since the start."""
        return {name: self._hits.sum(place) for place, name in enumerate(HITS)}

    def stack_ns(self) -> int:
        """For how long stacks were walked, since the start."""
        return self._hits.sum(len(HITS))

    def hits_of(self, name: str) -> int:
        """How often one kind of probe ran, since the start."""
        return self._hits.sum(HITS.index(name))
