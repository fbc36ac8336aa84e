"""System calls and library calls, in the words of the probes' helper (collectors/tracing/bcc/helper)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from llmtop.collectors.tracing import wire
from llmtop.collectors.tracing.bpftrace.output import Key, Printout, Slots
from llmtop.collectors.tracing.bpftrace.sums import MapSums
from llmtop.collectors.tracing.helper.functions import COLLECTOR, LAUNCHES, NUMBERS, QUERIES, SYNCHRONISING
from llmtop.collectors.tracing.helper.syscall_numbers import WITHOUT_WAIT, call_name, spin_kind

SYMBOLS = tuple(NUMBERS)
"""Library functions by the number they have in the program."""


class SystemCallCounts:
    """System calls by process.

    Args:
        are_counted: All are counted, beside the histograms of those that are timed.
    """

    def __init__(self, *, are_counted: bool = False) -> None:
        self._are_counted = are_counted
        self._latency: MapSums[Slots] = MapSums()
        self._time: MapSums[int] = MapSums()
        self._errors: MapSums[int] = MapSums()
        self._counted: MapSums[int] = MapSums()
        self._spins: MapSums[int] = MapSums()
        self._switch_timeouts: MapSums[int] = MapSums()
        self._foreign: MapSums[int] = MapSums()
        self._told: dict[tuple[int, int], int] = {}

    def read(self, look: Printout) -> wire.Sample:
        """What changed, as sums since the start."""
        changed = set(self._latency.take(look.histograms("latency", 2)))
        changed |= {*self._time.take(look.table("time", 2)), *self._errors.take(look.table("errors", 2))}
        changed |= set(self._counted.take(look.table("calls", 2)))
        spins = self._spins.take(look.table("spins", 3))
        changed |= {(pid, spun_call(call)) for pid, _, call in spins}
        timeouts = self._switch_timeouts.take(look.table("switch_timeouts", 1))
        self._foreign.take(look.table("foreign_calls", 0))
        entries = [self._entry(pid, call) for pid, call in changed]
        return {
            "calls": entries,
            "names": {call: call_name(call) for _, call in changed},
            "switch_timeouts": [
                wire.SwitchTimeouts(pid, self._switch_timeouts.get((pid,)) or 0) for (pid,) in timeouts
            ],
            "spins": [
                wire.SpinTotal(pid, tid, spin_kind(spun_call(call)), self._spins.get((pid, tid, call)) or 0)
                for pid, tid, call in spins
            ],
        }

    def _entry(self, pid: int, call: int) -> wire.CallTotal:
        """What was only counted has neither errors nor time."""
        key = (pid, call)
        slots = self._latency.get(key) or {}
        spins = sum(count for (of, _, spun), count in self._spins.items() if of == pid and spun_call(spun) == call)
        timed = 0 if self._are_counted else sum(slots.values())
        count = timed + (self._counted.get(key) or 0) + spins
        return wire.CallTotal(pid, call, count, self._errors.get(key) or 0, self._time.get(key) or 0, slots)

    @property
    def seen(self) -> int:
        """Calls of the processes looked at, since the start."""
        timed = 0 if self._are_counted else sum(sum(slots.values()) for _, slots in self._latency.items())
        return timed + sum(count for sums in (self._counted, self._spins) for _, count in sums.items())

    @property
    def foreign(self) -> int:
        """Calls of all other processes, since the start."""
        return self._foreign.get(()) or 0

    def begin_again(self) -> None:
        """The next run counts from 0."""
        for sums in self._all():
            sums.begin_again()

    def forget(self, tids: Collection[int], pids: Collection[int]) -> None:
        """Drop what ended."""
        for sums in self._all():
            sums.forget(pids, 0)
        self._spins.forget(tids, 1)

    def entries(self) -> int:
        """How full the fullest of the kernel's maps is."""
        return max(sums.entries() for sums in self._all())

    def _all(self) -> tuple[MapSums[int] | MapSums[Slots], ...]:
        plain = (self._time, self._errors, self._counted, self._spins, self._switch_timeouts, self._foreign)
        return (self._latency, *plain)


def spun_call(call: int) -> int:
    """The id under which a call that only passes the time is counted: of polls, one of its own."""
    return call if spin_kind(call) else call | WITHOUT_WAIT


class LibraryCalls:
    """Calls of CUDA and NCCL functions by process, and by thread what launches, waits and collects garbage.

    Args:
        are_counted: They are counted, beside their histograms.
    """

    def __init__(self, *, are_counted: bool = False) -> None:
        self._are_counted = are_counted
        self._counted: MapSums[int] = MapSums()
        self._latency: MapSums[Slots] = MapSums()
        self._ns: MapSums[int] = MapSums()
        self._time: MapSums[int] = MapSums()
        self._calls: MapSums[int] = MapSums()
        self._told: dict[tuple[int, int], tuple[int, int]] = {}
        self._dead: set[int] = set()

    def read(self, look: Printout) -> wire.Sample:
        """What changed, as sums since the start."""
        functions = set(self._latency.take(look.histograms("library", 2)))
        functions |= set(self._ns.take(look.table("library_ns", 2)))
        functions |= set(self._counted.take(look.table("library_count", 2)))
        timed = self._time.take(look.table("library_time", 3))
        threads = {key[:2] for key in timed if key[2] != NUMBERS[COLLECTOR]}
        threads |= {key[:2] for key in self._calls.take(look.table("library_calls", 3))}
        waiting = self._waiting(look)
        told = [self._thread(pid, tid, waiting.get((pid, tid), 0)) for pid, tid in threads | set(waiting)]
        return {
            "functions": [self._function(pid, number) for pid, number in functions if number < len(SYMBOLS)],
            "in_libraries": [entry for entry in told if entry],
            "collecting": [
                wire.CollectingThread(
                    pid, tid, self._time.get((pid, tid, number)) or 0, self._calls.get((pid, tid, number)) or 0
                )
                for pid, tid, number in timed
                if number == NUMBERS[COLLECTOR]
            ],
        }

    def _waiting(self, look: Printout) -> dict[Key, int]:
        """For how long threads have been in synchronising calls. One that was killed there never leaves the map."""
        entered = look.table("entered", 3)
        self._dead &= {tid for _, tid, _ in entered}
        waiting: dict[Key, int] = {}
        for (pid, tid, number), since in entered.items():
            is_sync = number < len(SYMBOLS) and SYMBOLS[number] in SYNCHRONISING
            if since and is_sync and tid not in self._dead:
                waiting[pid, tid] = max(look.t_ns - since, waiting.get((pid, tid), 0))
        return waiting

    def _function(self, pid: int, number: int) -> wire.FunctionTotal:
        slots = self._latency.get((pid, number)) or {}
        return wire.FunctionTotal(
            pid, SYMBOLS[number], self._count(pid, number), self._ns.get((pid, number)) or 0, slots
        )

    def _count(self, pid: int, number: int) -> int:
        if self._are_counted:
            return self._counted.get((pid, number)) or 0
        return sum((self._latency.get((pid, number)) or {}).values())

    def _thread(self, pid: int, tid: int, waiting_ns: int) -> wire.LibraryThread | None:
        """Up to now; None when it has done neither."""
        launches = self._of_thread(self._calls, pid, tid, LAUNCHES)
        sync_ns = self._of_thread(self._time, pid, tid, SYNCHRONISING | QUERIES) + waiting_ns
        before = self._told.get((pid, tid), (0, 0))
        # A call that ended between two looks was counted a little longer than it took.
        told = self._told[pid, tid] = (launches, max(sync_ns, before[1]))
        return wire.LibraryThread(pid, tid, *told) if any(told) else None

    @staticmethod
    def _of_thread(sums: MapSums[int], pid: int, tid: int, names: Iterable[str]) -> int:
        return sum(sums.get((pid, tid, NUMBERS[name])) or 0 for name in names)

    def counts(self) -> dict[tuple[int, str], int]:
        """Calls of each function of each process, since the start."""
        return {
            (pid, SYMBOLS[number]): self._count(pid, number)
            for (pid, number), _ in self._latency.items()
            if number < len(SYMBOLS)
        }

    def begin_again(self) -> None:
        """The next run counts from 0."""
        for sums in (self._ns, self._time, self._calls, self._counted):
            sums.begin_again()
        self._latency.begin_again()

    def forget(self, tids: Collection[int], pids: Collection[int]) -> None:
        """Drop what ended."""
        self._latency.forget(pids, 0)
        for sums in (self._ns, self._time, self._calls, self._counted):
            sums.forget(pids, 0)
        for sums in (self._time, self._calls):
            sums.forget(tids, 1)
        self._dead |= set(tids)
        self._told = {key: told for key, told in self._told.items() if key[1] not in tids and key[0] not in pids}
