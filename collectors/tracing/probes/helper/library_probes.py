"""Probes on the library functions of processes: all the time where that fits the budget, else in windows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from ... import wire
from ...helper.budget import Account
from ...helper.functions import COLLECTOR, DUPLICATES, IN_THE_DRIVER, KINDS, LAUNCH, QUERY, WAIT, kind_of
from ...helper.interpreters import NO_COLLECTOR
from ...helper.libraries import LibraryFiles, ProbePoint
from .library_maps import Counted, LibraryMaps, growth
from .library_sums import LibrarySums
from .process_libraries import ProbedFunction, ProcessLibraries
from .sampling import LONGEST_STEP_S, SHORTEST_S, Sampling, lost
from .uprobes import Uprobes

_ATTACH_NS = 1e6
"""What attaching and detaching costs a process, at most: the kernel writes into its code while it may map nothing."""
_FOR_WINDOWS = 0.1
"""Of the budget, however much the probes take that are there all the time."""
_HURRY = -10
"""The nice value of the helper while a window is open."""
SAMPLED = "sampled"
"""Under what it is said that calls are counted now and then."""


class LibraryProbes:
    """The probes at work.

    Args:
        uprobes: How they come and go.
        maps: Where they count.
        ns_per_call: What they cost, by what a hit of them is.
        account: The budget of all of them.
        hits: How often they have run, from a cheap place.
    """

    def __init__(
        self,
        uprobes: Uprobes,
        maps: LibraryMaps,
        ns_per_call: Mapping[str, float],
        account: Account,
        hits: Callable[[], int],
    ) -> None:
        self._uprobes = uprobes
        self._maps = maps
        self._ns_per_call = ns_per_call
        self._account = account
        self._hits = hits
        self._files = LibraryFiles()
        self.processes: dict[int, ProcessLibraries] = {}
        """Those that map a library with functions of ours."""
        self._sums = LibrarySums(maps, self.processes)
        self._judged_ns, self._judged_hits = time.monotonic_ns(), hits()
        self.notes: dict[str, str] = {}
        """What is not probed now, or not all the time, and why, by function."""

    def tick(self) -> None:
        """Judge what has probes, and open a window where one is due.

        One process at a time, that which has waited longest: a server of eight must not meet all of it at once, and
        those of its processes that call nothing must not take the turns of those that do.
        """
        self._judge()
        now_s = time.monotonic()
        due = [one for one in self.processes.values() if one.sampled and one.sampling.is_due(now_s)]
        if due:
            self._window(min(due, key=lambda one: one.sampling.due_s))

    def take_in(self, pid: int, path: str, names: Collection[str]) -> None:
        """Know a library's functions; whether they can be probed is found out in the first window."""
        file = f"/proc/{pid}/root{path}"
        found = self._files.at(pid, file, names)
        if found is None or not (found.functions or COLLECTOR in names):
            return
        if pid not in self.processes:
            self.processes[pid] = ProcessLibraries(pid, Sampling(self._account, time.monotonic()))
        process = self.processes[pid]
        for name, point in found.functions.items():
            cost = self._ns_per_call[point.hit]
            one = process.functions.setdefault(name, ProbedFunction({}, cost, kind_of(name)))
            one.places[file], one.ns_per_call = point, max(one.ns_per_call, cost)
        if COLLECTOR in names:
            self._note_collector(process)
        for kind in process.sampling.steady:
            self._hold_kind(process, kind)
        process.observe(time.monotonic_ns())

    def _note_collector(self, process: ProcessLibraries) -> None:
        """An interpreter is mapped: whether its collector was found, in the program itself or in its library."""
        is_found = COLLECTOR in process.functions
        (process.refused.discard if is_found else process.refused.add)(COLLECTOR)
        if any(COLLECTOR in one.refused for one in self.processes.values()):
            self.notes[COLLECTOR] = NO_COLLECTOR
        else:
            self.notes.pop(COLLECTOR, None)

    def drop(self, pid: int) -> None:
        """A process has ended, or runs another program."""
        process = self.processes.pop(pid, None)
        if process is not None:
            for group in (*KINDS, *(f"{SAMPLED} {kind}" for kind in KINDS)):
                self._release(process, group)
        self._sums.forget(pid)

    def read(self, now: int) -> list[wire.FunctionTotal]:
        """What changed: sums since the start."""
        self._sums.absorb()
        self.notes.pop(SAMPLED, None)
        for process in self.processes.values():
            process.observe(now)
            self._advance(process)
            if process.sampled:
                self.notes[SAMPLED] = process.says_sampled()
        return list(self._sums.changed())

    def read_threads(self, now: int, ended: Iterable[tuple[int, int]]) -> list[wire.LibraryThread]:
        """What changed, up to now: sums since the start."""
        return self._sums.changed_threads(now, ended)

    def read_collecting(self) -> list[wire.CollectingThread]:
        """Likewise of garbage collections."""
        return list(self._sums.changed_collecting())

    def _hold(self, pid: int, file: str, group: str, functions: dict[str, ProbePoint]) -> bool:
        """Have probes on these functions of a file; false where they are refused."""
        try:
            self._uprobes.hold(pid, file, group, functions)
        except OSError:
            return False
        return True

    def _hold_kind(self, process: ProcessLibraries, kind: str, group: str = "") -> None:
        """Have probes on all functions of a kind; one that cannot be probed must not cost the others."""
        pid, group = process.pid, group or kind
        for file, functions in process.by_file(kind).items():
            if self._hold(pid, file, group, functions):
                continue
            held = {name: point for name, point in functions.items() if self._hold(pid, file, group, {name: point})}
            self._hold(pid, file, group, held)
            for name in functions.keys() - held.keys():
                process.refused.add(name)
                process.functions.pop(name, None)
                self.notes[name] = "the kernel lets nobody probe it"

    def _release(self, process: ProcessLibraries, group: str) -> None:
        for file in process.files:
            self._hold(process.pid, file, group, {})

    def _window(self, process: ProcessLibraries) -> None:
        """Count what has no probes all the time for a moment, and let that stand for the time until the next one."""
        sampled = process.sampled
        self._advance(process)
        began = self._counted(process)
        self._maps.set_round(is_open=False)
        with _hurried():
            for kind in sampled:
                self._hold_kind(process, kind, f"{SAMPLED} {kind}")
            self._maps.set_round(is_open=True)
            opened = self._counted(process)
            closed = self._when_seen_enough(process, opened)
            self._maps.set_round(is_open=False)
            # Launches first: they are the most.
            for kind in sorted(sampled, key=KINDS.index, reverse=True):
                self._release(process, f"{SAMPLED} {kind}")
        self._charge(process.cost_ns(began, self._counted(process)) + _ATTACH_NS)
        inside = {name: sums for name, sums in growth(opened.functions, closed.functions).items() if sums[0]}
        process.learn(opened, closed)
        self._sums.absorb()
        self._end_calls(process, sampled)
        self._settle(process, inside, (closed.at_ns - opened.at_ns) / 1e9)

    def _charge(self, ns: float) -> None:
        """Have a window paid for by what the probes that are there all the time leave of the budget."""
        steady_ns = sum(sum(one.sampling.steady_rates.values()) for one in self.processes.values())
        left = max(_FOR_WINDOWS, 1 - steady_ns / self._account.budget_ns)
        self._account.spend(ns / left, time.monotonic())

    def _when_seen_enough(self, process: ProcessLibraries, opened: Counted) -> Counted:
        """What was counted at the end of a window: a longer one, until a whole step, where others held none."""
        time.sleep(process.sampling.window_s)
        closed = self._counted(process)
        last_ns = opened.at_ns + LONGEST_STEP_S * 1e9
        while process.wants_step and closed.at_ns < last_ns and not _whole_steps(opened, closed):
            time.sleep(SHORTEST_S)
            closed = self._counted(process)
        return closed

    def _settle(self, process: ProcessLibraries, inside: Mapping[str, tuple[int, ...]], counted_s: float) -> None:
        """Count from now on all the time what is seldom called."""
        rates, calls = process.rates(inside, counted_s), dict.fromkeys(KINDS, 0)
        for name, (count, *_) in inside.items():
            calls[process.functions[name].kind] += count
        self._judged_ns, self._judged_hits = time.monotonic_ns(), self._hits()
        before = process.sampling.steady
        others = (one.sampling.steady_rates for one in self.processes.values() if one is not process)
        others_ns = sum(sum(costs.values()) for costs in others)
        if process.sampling.close(rates, calls, time.monotonic(), counted_s, others_ns):
            self._maps.set_round(is_open=False)
            for kind in process.sampling.steady - before:
                self._hold_kind(process, kind)
        elif sum(rates.values()) > self._account.budget_ns:
            self._drop_duplicates(process, {name: several[0] for name, several in inside.items()})
        process.observe(time.monotonic_ns())

    def _drop_duplicates(self, process: ProcessLibraries, counts: Mapping[str, int]) -> None:
        """Of what is counted in the driver too only the name is lost."""
        found = process.new_duplicates(counts)
        for one in found:
            one.is_duplicate = True
            self.notes[DUPLICATES] = IN_THE_DRIVER
        for kind in {one.kind for one in found} & process.sampling.steady:
            self._release(process, kind)
            self._hold_kind(process, kind)

    def _judge(self) -> None:
        """Take the probes off what has come to cost too much, before it has cost much.

        That is more than a second may cost: several requests that begin at once launch many graphs for a fifth of one.
        """
        now, hits = time.monotonic_ns(), self._hits()
        elapsed_s, grown = (now - self._judged_ns) / 1e9, hits - self._judged_hits
        dearest = max((one.ns_per_call for p in self.processes.values() for one in p.functions.values()), default=0.0)
        is_over = grown * dearest > self._account.budget_ns * max(1.0, elapsed_s)
        if is_over or elapsed_s >= 1.0:
            self._judged_ns, self._judged_hits = now, hits
        if not is_over:
            return
        elapsed_s = max(1e-3, (now - self._sums.absorbed_ns) / 1e9)
        before = {pid: process.raw for pid, process in self.processes.items()}
        self._sums.absorb()
        for pid, process in self.processes.items():
            process.sampling.rates = process.rates(growth(before[pid], process.raw), elapsed_s)
        costs = {pid: process.sampling.steady_rates for pid, process in self.processes.items()}
        for pid, kinds in lost(costs, self._account.budget_ns).items():
            self._give_up(self.processes[pid], kinds, elapsed_s)

    def _give_up(self, process: ProcessLibraries, kinds: Collection[str], elapsed_s: float) -> None:
        known, now = process.known, self._advance(process)
        process.sampling.give_up(kinds, time.monotonic())
        self._account.spend(sum(process.sampling.rates.values()) * elapsed_s, time.monotonic())
        for kind in kinds:
            self._release(process, kind)
        process.estimate.forget()
        if known is not None:
            process.learn(known, now)  # until the next window tells better
        self._sums.absorb()
        self._end_calls(process, kinds)
        process.observe(time.monotonic_ns())

    def _end_calls(self, process: ProcessLibraries, kinds: Collection[str]) -> None:
        """Calls that are under way when their probes come off: nobody will tell when they end."""
        self._maps.end_calls([name for name, one in process.functions.items() if one.kind in kinds])
        if WAIT in kinds:
            self._maps.end_waits(process.pid)
        if QUERY in kinds:
            self._maps.end_queries(process.pid)
        if LAUNCH in kinds:  # else those of graphs, whose probes stay, would pass for parts of it
            self._maps.set_round(is_open=False)

    def _advance(self, process: ProcessLibraries) -> Counted:
        """Add what is estimated of the time until now; what it has done by now."""
        now = self._counted(process)
        process.advance(now, self._sums.threads_of(process.pid))
        return now

    def _counted(self, process: ProcessLibraries) -> Counted:
        return self._maps.counted(process.pid, process.functions)


def _whole_steps(before: Counted, after: Counted) -> bool:
    """Whether one has begun and ended in between."""
    return any(steps for _, steps, *_ in growth(before.threads, after.threads).values())


@contextmanager
def _hurried() -> Iterator[None]:
    """Come to the end of a window in time: while it is open, it costs."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):  # without that right it waits for the CPU like all others
        os.setpriority(os.PRIO_PROCESS, 0, _HURRY)
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, usual)
