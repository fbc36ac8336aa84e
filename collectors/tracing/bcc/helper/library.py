"""Calls of the CUDA driver, the CUDA runtime and NCCL, by probes on the libraries that a process really maps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ... import wire
from ...helper import system
from ...helper.budget import Account
from ...helper.functions import DUPLICATES, IN_THE_DRIVER, KINDS, NUMBERS, duplicates, kind_of, kinds_of
from ...helper.governor import NS_PER_HIT
from ...helper.kernel import Table
from ...helper.libraries import Covered, LibraryFiles, coverage, mapped_libraries
from ...helper.system import UnavailableError
from . import probe_cost, uprobes
from .estimates import Estimate, work_ns
from .programs import SLOTS, Module, Programs, ProgramText
from .sampling import LONGEST_STEP_S, SHORTEST_S, Sampling

_SETTLED = 3
"""Windows after which what was not cheap enough to be seen all the time has little prospect of it soon."""
_LOOK_S, _LONGEST_LOOK_S = 5.0, 60.0
"""How often a process's list of libraries is read: they are mapped while a server starts, and seldom later. The list
of a server with torch is thousands of lines, made by the kernel while the process may not map anything."""
_ATTACH_NS = 1e6
"""What attaching and detaching costs a process, at most: the kernel writes into its code while it may map nothing."""
_NAMES = {number: name for name, number in NUMBERS.items()}
_SUMS = 2 + SLOTS
_HURRY = -10
_NONE, _SYNCS = (0, 0, 0, 0), 3
"""Of a thread that is not known: launches, steps, launches in these, synchronising calls. And the place of the last."""
_THREAD = "9Q6I"
"""struct library_thread of programs/common.h."""
SAMPLED = "sampled"
"""Under what it is said that calls are counted now and then."""


@dataclass
class _Function:
    """The probes on one function of one process: count, ns, and calls by slot of their latency.

    `raw` is what was counted, `sums` what that stands for.
    """

    places: dict[str, int]
    """Where it begins, by file: a process may map several copies of a library."""
    ns_per_call: float
    kind: str
    raw: tuple[int, ...] = (0,) * _SUMS
    sums: list[float] = field(default_factory=lambda: [0.0] * _SUMS)
    compared: int = 0
    """Calls counted while all functions were: by these it is told from others that it contains."""
    is_duplicate: bool = False
    """Without probes for good: its calls are counted in the driver."""


@dataclass
class _LibraryThread:
    tgid: int
    raw: int = 0
    launches: float = 0.0
    sent: tuple[int, int] = (0, 0)


_Sums: TypeAlias = "Mapping[str, tuple[int, ...]]"
"""Sums by function."""


class _Calls(NamedTuple):
    """struct library_thread of programs/common.h."""

    launches: int
    sync_ns: int
    sync_since: int
    sync_stack: int
    launch_stack: int
    syncs: int
    steps: int
    step_launches: int
    launches_before: int
    sync_function: int
    launch_function: int
    tgid: int
    attachment: int
    step_attachment: int
    unused: int


class _Counted(NamedTuple):
    """What a process had done at a moment: its CPU time, waits for the GPU, sums by function, launches by thread."""

    at_ns: int
    cpu_ns: int
    sync_ns: int
    functions: _Sums
    threads: Mapping[int, tuple[int, ...]]


@dataclass
class _ProcessLibraries:
    """What is known of one process's libraries."""

    sampling: Sampling
    paths: set[str] = field(default_factory=set)
    functions: dict[str, _Function] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Functions that are there and that the kernel lets nobody probe."""
    observed_ns: int = 0
    watched_since: int | None = None
    """Since when all calls that wait have probes; None while one has not."""
    look_s: float = 0.0
    patience_s: float = _LOOK_S
    estimate: Estimate = field(default_factory=Estimate)
    """Of what is counted in windows, by function, and of launches by thread."""
    known: _Counted | None = None
    """What it had done when the estimate was last added to the sums."""
    used: dict[int, int] = field(default_factory=dict)
    """For how long each thread that launches had run and queued by then, in ns."""
    does_step: bool = False
    """Whether it has waited for the GPU since the last look."""
    spinning: float = 0.0
    """The share of its waits for the GPU that is spent on the CPU."""

    @property
    def is_settling(self) -> bool:
        """Whether it has calls that wait, and nobody knows yet what looking at all of them costs."""
        return "wait" in self.sampled and self.sampling.windows < _SETTLED

    @property
    def knows_steps(self) -> bool:
        """Whether windows have held whole steps, so that launches are known by those."""
        threads = (sums for key, sums in self.estimate.per_work_s().items() if isinstance(key, int))
        return "wait" in self.sampling.steady and any(steps for _, steps, *_ in threads)

    @property
    def wants_step(self) -> bool:
        """Whether a longer window would tell more than others: not before a short one has told what it costs."""
        can_step = "wait" in self.sampling.steady and self.does_step and "launch" in self.sampled
        return can_step and self.sampling.windows > 0 and not self.knows_steps

    @property
    def uncounted(self) -> list[str]:
        """The functions of which not even a sample is counted."""
        return [*(name for name, one in self.functions.items() if one.is_duplicate), *self.refused]

    @property
    def unseen(self) -> list[str]:
        """What is not known of its calls: see `kinds_of`. Waits must be seen whole, of launches a sample will do."""
        unseen = set(kinds_of(self.refused))
        if self.functions and "wait" not in self.sampling.steady:
            unseen.add("sync")
        return sorted(unseen)

    @property
    def sampled(self) -> set[str]:
        """The kinds of call that are counted now and then; of those that it has."""
        return {one.kind for one in self.functions.values()} - self.sampling.steady

    def observe(self, now: int) -> None:
        """Take the time until now into account, and whether the time from now on counts."""
        if self.watched_since is not None:
            self.observed_ns += max(0, now - self.watched_since)
        self.watched_since = now if self.functions and "sync" not in self.unseen else None

    def held(self, kind: str) -> Iterator[tuple[str, str, int]]:
        """Path, name and place of the functions of a kind that are to be probed."""
        for name, one in self.functions.items():
            if one.kind == kind and not one.is_duplicate:
                yield from ((path, name, place) for path, place in one.places.items())

    @property
    def files(self) -> set[str]:
        """Those that hold its functions."""
        return {path for one in self.functions.values() for path in one.places}


class Library:
    """The probes on library functions. Compiled when the first process maps one of the libraries.

    Args:
        budget_ns: What the probes may cost per second, in ns. What costs more is counted in windows (sampling.py).
        hits: How often such probes have run, from a cheap place.
    """

    def __init__(self, programs: Programs, budget_ns: float, hits: Callable[[], int]) -> None:
        self._programs = programs
        self._account = Account(budget_ns)
        self._hits = hits
        self._source: ProgramText | None = None
        self._ns_per_call: Mapping[str, float] = NS_PER_HIT
        self._uprobes: uprobes.Uprobes | None = None
        self._reader: Table | None = None
        self._threads_reader: Table | None = None
        self._threads: dict[int, _LibraryThread] = {}
        self._processes: dict[int, _ProcessLibraries] = {}
        self._sent: dict[tuple[int, str], tuple[int, int]] = {}
        self._files = LibraryFiles()
        self._judged_ns = self._absorbed_ns = 0
        self._judged_hits = 0
        self.why_not: UnavailableError | None = None
        self.notes: dict[str, str] = {}
        """What is not probed now, or not all the time, and why, by function."""

    @property
    def probed(self) -> int:
        """How many functions have probes on them, over all processes; those that are sampled too."""
        every = (one for process in self._processes.values() for one in process.functions.values())
        return sum(not one.is_duplicate for one in every)

    def coverage(self) -> wire.Sample:
        """For how long waits were seen; functions without probes; what is not known for lack of them.

        And the functions of which samples stand for all calls.
        """
        processes = [(pid, process) for pid, process in self._processes.items() if process.functions or process.refused]
        covered = (Covered(pid, one.observed_ns, one.uncounted, one.unseen) for pid, one in processes)
        sampled = [(pid, names) for pid, process in processes if (names := _names(process, process.sampled))]
        return coverage(covered) | {
            "sampled": [wire.SampledCalls(pid, names, kinds_of(names)) for pid, names in sampled]
        }

    def is_settling(self, pids: Iterable[int]) -> bool:
        """Whether it is still open for one of these processes if its waits for the GPU can be seen all the time.

        It is where no library has been looked for yet, and where too few windows have shown what waits cost.
        """
        if self.is_awaited:
            return True
        known = [self._processes.get(pid) for pid in pids] if self.why_not is None else []
        return any(process is None or process.is_settling for process in known)

    def tick(self, pids: Iterable[int]) -> None:
        """Several times a second: judge what has probes, open a window where one is due, look for libraries.

        One process at a time: a server of eight must not meet all of it at once.
        """
        self._judge()
        now_s = time.monotonic()
        for pid, process in self._processes.items():
            if process.functions and process.sampling.is_due(now_s):
                self._window(pid, process)
                break
        self._look(pids)

    def read(self, now: int, gone: Iterable[int]) -> list[wire.FunctionTotal]:
        """What changed: sums since the start."""
        for process in self._processes.values():
            process.observe(now)
        for pid in gone:
            self._drop(pid)
            self._sent = {key: sent for key, sent in self._sent.items() if key[0] != pid}
        if self._reader is None:
            return []
        self._absorb()
        for pid, process in self._processes.items():
            if process.functions:
                self._advance(pid, process)
        self._say_what_is_sampled()
        return list(self._changed())

    def read_threads(self, now: int, ended: Iterable[tuple[int, int]]) -> list[wire.LibraryThread]:
        """What changed, up to now: sums since the start."""
        if self._threads_reader is None:
            return []
        dead = {tid for tid, _ in ended}
        changed = []
        for tid, calls in self._calls():
            thread = self._threads.get(tid)
            if thread is None:
                continue  # it has made its first call since the sums were read
            ns = calls.sync_ns + (max(0, now - calls.sync_since) if calls.sync_since else 0)
            # A call that ended between two looks of ours was counted a little longer than it took.
            sent = (round(thread.launches), max(ns, thread.sent[1]))
            if sent != thread.sent:
                thread.sent = sent
                changed.append(wire.LibraryThread(thread.tgid, tid, *sent))
            if tid in dead:
                del self._threads[tid]
                self._threads_reader.remove(tid)
        return changed

    def lost(self) -> int:
        """Calls that found no room in the maps."""
        return self._lost.count() if self._uprobes else 0

    def _drop(self, pid: int) -> None:
        process = self._processes.pop(pid, None)
        for path in process.files if process else ():
            for group in (*KINDS, *(f"{SAMPLED} {kind}" for kind in KINDS)):
                self._hold(pid, path, group, {})

    def _look(self, pids: Iterable[int]) -> None:
        """Look for libraries where it is time to: in one process, and ever more seldom."""
        now_s = time.monotonic()
        for pid in pids:
            process = self._processes.get(pid)
            if process is None:
                process = self._processes[pid] = _ProcessLibraries(Sampling(self._account, now_s))
            if now_s >= process.look_s:
                process.look_s, process.patience_s = (
                    now_s + process.patience_s,
                    min(2 * process.patience_s, _LONGEST_LOOK_S),
                )
                found = mapped_libraries(pid)
                if found.keys() - process.paths and not self._is_ready():
                    process.look_s = now_s  # once it is
                    return
                for path, names in found.items():
                    if path not in process.paths:
                        process.paths.add(path)
                        process.look_s, process.patience_s = now_s + _LOOK_S, 2 * _LOOK_S  # it may map more
                        self._take_in(pid, process, path, names)
                return

    def _take_in(self, pid: int, process: _ProcessLibraries, path: str, names: Collection[str]) -> None:
        """Know a library's functions; whether they can be probed is found out in the first window."""
        if self._uprobes is None:
            return
        file = f"/proc/{pid}/root{path}"
        found = self._files.at(file, names)
        for name, point in found.functions.items() if found else ():
            cost = self._ns_per_call[point.hit]
            one = process.functions.setdefault(name, _Function({}, cost, kind_of(name)))
            one.places[file], one.ns_per_call = point.place, max(one.ns_per_call, cost)
        for kind in process.sampling.steady:
            self._hold_kind(pid, process, kind)
        process.observe(time.monotonic_ns())

    @property
    def is_awaited(self) -> bool:
        """Whether its program has been asked for and is not there yet."""
        return self._source is not None and self._uprobes is None and self.why_not is None

    def _is_ready(self) -> bool:
        """Whether its program is there, or will never be; it is asked for when it is needed first."""
        if self._source is None:
            self._source = uprobes.source()
            self._programs.ask(self._source)
        if self.is_awaited:
            self._take_program(self._source)
        return not self.is_awaited

    def _take_program(self, source: ProgramText) -> None:
        """A program that cannot be had costs only these counts."""
        try:
            module = self._programs.module(source)
            if module is not None:
                self._uprobes = uprobes.make_uprobes(source, module)
                self._read_from(module)
                self._ns_per_call = probe_cost.measured(self._uprobes)
                self._judged_ns, self._judged_hits = time.monotonic_ns(), self._hits()
        except UnavailableError as error:
            if source is uprobes.WITH_COOKIES:
                self._source = uprobes.WITHOUT_COOKIES
                self._programs.ask(self._source)
            else:
                self.why_not = error

    def _read_from(self, module: Module) -> None:
        self._reader = module.table("functions", "II", f"QQ{SLOTS}Q")
        self._threads_reader = module.table("library_threads", "I", _THREAD)
        self._entered = module.table("entered", "Q", "Q")
        self._attachments = module.table("attachments", "I", "I")
        self._lost = module.table("lost", "I", "Q")

    def _hold(self, pid: int, file: str, group: str, functions: dict[str, int]) -> bool:
        """Have probes on these functions of a file; false where they are refused."""
        assert self._uprobes is not None
        try:
            self._uprobes.hold(pid, file, group, functions)
        except OSError:
            return False
        return True

    def _hold_kind(self, pid: int, process: _ProcessLibraries, kind: str, group: str = "") -> None:
        """Have probes on all functions of a kind; one that cannot be probed must not cost the others."""
        by_file: dict[str, dict[str, int]] = {}
        for file, name, place in process.held(kind):
            by_file.setdefault(file, {})[name] = place
        for file, functions in by_file.items():
            if self._hold(pid, file, group or kind, functions):
                continue
            held = {name: at for name, at in functions.items() if self._hold(pid, file, group or kind, {name: at})}
            self._hold(pid, file, group or kind, held)
            self._refuse(process, functions.keys() - held.keys())

    def _refuse(self, process: _ProcessLibraries, names: Iterable[str]) -> None:
        for name in names:
            process.refused.add(name)
            process.functions.pop(name, None)
            self.notes[name] = "the kernel lets nobody probe it"

    def _release(self, pid: int, process: _ProcessLibraries, group: str) -> None:
        for file in process.files:
            self._hold(pid, file, group, {})

    def _window(self, pid: int, process: _ProcessLibraries) -> None:
        """Count what has no probes all the time for a moment, and let that stand for the time until the next one."""
        sampled = process.sampled
        self._advance(pid, process)
        began = self._counted(pid)
        self._begin_round()
        with _hurried():
            for kind in sampled:
                self._hold_kind(pid, process, kind, f"{SAMPLED} {kind}")
            self._set_round(is_open=True)
            opened = self._counted(pid)
            closed = self._when_seen_enough(pid, process, opened)
            self._set_round(is_open=False)
            # Launches first: they are the most.
            for kind in sorted(sampled, key=KINDS.index, reverse=True):
                self._release(pid, process, f"{SAMPLED} {kind}")
        self._account.spend(_cost(process, began, self._counted(pid)) + _ATTACH_NS, time.monotonic())
        inside = {name: sums for name, sums in _grown(opened.functions, closed.functions).items() if sums[0]}
        self._estimate(process, opened, closed)
        self._absorb()
        self._end_calls(pid, process, sampled)
        self._settle(pid, process, inside, (closed.at_ns - opened.at_ns) / 1e9)

    def _when_seen_enough(self, pid: int, process: _ProcessLibraries, opened: _Counted) -> _Counted:
        """What was counted at the end of a window: a longer one, until a whole step, where others held none."""
        time.sleep(process.sampling.window_s)
        closed = self._counted(pid)
        last_ns = opened.at_ns + LONGEST_STEP_S * 1e9
        while process.wants_step and closed.at_ns < last_ns and not _whole_steps(opened, closed):
            time.sleep(SHORTEST_S)
            closed = self._counted(pid)
        return closed

    def _estimate(self, process: _ProcessLibraries, before: _Counted, after: _Counted) -> None:
        """Go on from now by what was counted in between too."""
        spun_ns = process.spinning * (after.sync_ns - before.sync_ns)
        work_s = work_ns(after.cpu_ns - before.cpu_ns, spun_ns, _cost(process, before, after)) / 1e9
        functions, threads = _grown(before.functions, after.functions), _grown(before.threads, after.threads)
        process.estimate.add(work_s, {key: sums for key, sums in (*functions.items(), *threads.items()) if sums[0]})

    def _advance(self, pid: int, process: _ProcessLibraries) -> None:
        """Add to the sums what is estimated of the time until now."""
        before, now = process.known, self._counted(pid)
        process.known = now
        if before is None:
            return
        process.spinning = self._spinning(pid, process, before, now)
        work_s = work_ns(now.cpu_ns - before.cpu_ns, process.spinning * (now.sync_ns - before.sync_ns)) / 1e9
        estimates = process.estimate.per_work_s()
        process.does_step = any(one[_SYNCS] for one in _grown(before.threads, now.threads).values())
        by_work = by_steps = 0.0
        for tid, thread in self._threads.items() if "launch" not in process.sampling.steady else ():
            if tid in estimates and thread.tgid == pid:
                launches, steps, step_launches, _ = estimates[tid]
                by_work += work_s * launches
                grown = work_s * launches
                if "wait" in process.sampling.steady and steps:
                    syncs = now.threads.get(tid, _NONE)[_SYNCS] - before.threads.get(tid, _NONE)[_SYNCS]
                    grown = max(0, syncs) * step_launches / steps
                by_steps += grown
                thread.launches += grown
        for name, function in process.functions.items():
            if name in estimates and function.kind not in process.sampling.steady:
                scale = by_steps / by_work if function.kind == "launch" and by_work else 1.0
                function.sums = [total + scale * work_s * one for total, one in zip(function.sums, estimates[name])]

    def _spinning(self, pid: int, process: _ProcessLibraries, before: _Counted, now: _Counted) -> float:
        """What share of the time in waits for the GPU is spent on the CPU; 0 where waits are not seen all the time."""
        passed_ns, in_sync_ns = now.at_ns - before.at_ns, now.sync_ns - before.sync_ns
        used = {tid: found for tid in now.threads if (found := system.run_and_queued(pid, tid)) is not None}
        known, process.used = process.used, used
        if "wait" not in process.sampling.steady or in_sync_ns <= 0:
            return 0.0
        asleep_ns = sum(max(0, passed_ns - (used[tid] - known[tid])) for tid in used.keys() & known.keys())
        return min(1.0, max(0.0, 1.0 - asleep_ns / in_sync_ns))

    def _settle(self, pid: int, process: _ProcessLibraries, inside: _Sums, counted_s: float) -> None:
        """Count from now on all the time what is seldom called."""
        rates, calls = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0)
        for name, (count, *_) in inside.items():
            one = process.functions[name]
            rates[one.kind] += count * one.ns_per_call / counted_s
            calls[one.kind] += count
        self._judged_ns, self._judged_hits = time.monotonic_ns(), self._hits()
        before = process.sampling.steady
        if process.sampling.close(rates, calls, time.monotonic(), counted_s):
            self._begin_round()
            for kind in process.sampling.steady - before:
                self._hold_kind(pid, process, kind)
        elif sum(rates.values()) > self._account.budget_ns:
            self._drop_duplicates(pid, process, {name: several[0] for name, several in inside.items()})
        process.observe(time.monotonic_ns())

    def _drop_duplicates(self, pid: int, process: _ProcessLibraries, counts: dict[str, int]) -> None:
        """Of what is counted in the driver too only the name is lost. `counts` are of a time when all was counted."""
        for name, count in counts.items():
            process.functions[name].compared += count
        compared = {name: one.compared for name, one in process.functions.items()}
        found = [process.functions[name] for name in duplicates(compared)]
        fresh = [one for one in found if not one.is_duplicate]
        for one in fresh:
            one.is_duplicate = True
            self.notes[DUPLICATES] = IN_THE_DRIVER
        for kind in {one.kind for one in fresh} & process.sampling.steady:
            self._release(pid, process, kind)
            self._hold_kind(pid, process, kind)

    def _judge(self) -> None:
        """Take the probes off what has come to cost too much, before it has cost much."""
        now, hits = time.monotonic_ns(), self._hits()
        elapsed_s, grown = max(1e-3, (now - self._judged_ns) / 1e9), hits - self._judged_hits
        self._judged_ns, self._judged_hits = now, hits
        dearest = max((one.ns_per_call for p in self._processes.values() for one in p.functions.values()), default=0.0)
        if self._reader is None or grown / elapsed_s * dearest <= self._account.budget_ns:
            return
        elapsed_s = max(1e-3, (now - self._absorbed_ns) / 1e9)
        before = {pid: self._raw(process) for pid, process in self._processes.items()}
        self._absorb()
        for pid, process in self._processes.items():
            self._judge_process(pid, process, before[pid], elapsed_s)

    def _judge_process(self, pid: int, process: _ProcessLibraries, before: _Sums, elapsed_s: float) -> None:
        rates = dict.fromkeys(KINDS, 0.0)
        for name, (count, *_) in _grown(before, self._raw(process)).items():
            one = process.functions[name]
            rates[one.kind] += count * one.ns_per_call / elapsed_s
        steady, known = process.sampling.steady, process.known
        self._advance(pid, process)
        if not process.sampling.judge(rates, time.monotonic()):
            return
        self._account.spend(sum(rates.values()) * elapsed_s, time.monotonic())
        for kind in steady - process.sampling.steady:
            self._release(pid, process, kind)
        process.estimate.forget()
        if known is not None and process.known is not None:
            self._estimate(process, known, process.known)  # until the next window tells better
        self._absorb()
        self._end_calls(pid, process, steady - process.sampling.steady)
        process.observe(time.monotonic_ns())

    def _begin_round(self) -> None:
        """Launches that were under way when their probes came off are over."""
        self._set_round(is_open=False)

    def _set_round(self, *, is_open: bool) -> None:
        """Steps count that begin and end in one round that is open."""
        (times,) = self._attachments.get(0) or (0,)
        self._attachments.put((0,), ((times + 1 + ((times + 1) % 2 != is_open)) & 0xFFFFFFFF,))

    def _end_calls(self, pid: int, process: _ProcessLibraries, kinds: Iterable[str]) -> None:
        """Calls that are under way when their probes come off: nobody will tell when they end."""
        assert self._threads_reader is not None
        numbers = {NUMBERS[name] for name, one in process.functions.items() if one.kind in kinds}
        for key in [key for (key,), _ in self._entered.entries() if key & 0xFF in numbers]:
            self._entered.remove(key)
        if "wait" not in kinds:
            return
        for tid, calls in list(self._calls()):
            if calls.sync_since and calls.tgid == pid:
                self._threads_reader.put((tid,), calls._replace(sync_since=0, sync_stack=0))

    def _counted(self, pid: int) -> _Counted:
        """What a process has done so far, and what its probes have counted of that."""
        assert self._reader is not None
        now, functions, threads, sync_ns = time.monotonic_ns(), self._processes[pid].functions, {}, 0
        for tid, calls in self._calls():
            if calls.tgid == pid:
                threads[tid] = (calls.launches, calls.steps, calls.step_launches, calls.syncs)
                sync_ns += calls.sync_ns + (max(0, now - calls.sync_since) if calls.sync_since else 0)
        counted = {_NAMES[number]: sums for (tgid, number), sums in self._reader.entries() if tgid == pid}
        known = {name: sums for name, sums in counted.items() if name in functions}
        return _Counted(now, system.cpu_ns(pid), sync_ns, known, threads)

    def _calls(self) -> Iterator[tuple[int, _Calls]]:
        """The threads that have called a library."""
        assert self._threads_reader is not None
        return ((tid, _Calls(*value)) for (tid,), value in self._threads_reader.entries())

    def _raw(self, process: _ProcessLibraries) -> _Sums:
        return {name: one.raw for name, one in process.functions.items()}

    def _absorb(self) -> None:
        """Add what was counted since the last time to the sums, of what has probes all the time."""
        assert self._reader is not None
        assert self._threads_reader is not None
        self._absorbed_ns = time.monotonic_ns()
        for (tgid, number), counts in self._reader.entries():
            process = self._processes.get(tgid)
            function = process.functions.get(_NAMES[number]) if process else None
            if process is None or function is None or function.raw == counts:
                continue
            if function.kind in process.sampling.steady:
                grown = (new - old for new, old in zip(counts, function.raw))
                function.sums = [total + more for total, more in zip(function.sums, grown)]
            function.raw = counts
        for tid, calls in self._calls():
            process = self._processes.get(calls.tgid)
            if process is None:
                continue
            thread = self._threads.get(tid)
            if thread is None:
                thread = self._threads[tid] = _LibraryThread(calls.tgid)
            if "launch" in process.sampling.steady:
                thread.launches += calls.launches - thread.raw
            thread.raw = calls.launches

    def _changed(self) -> Iterator[wire.FunctionTotal]:
        for pid, process in self._processes.items():
            for name, one in process.functions.items():
                count, ns, *slots = map(round, one.sums)
                if self._sent.get((pid, name), (0, 0)) != (count, ns):
                    self._sent[pid, name] = (count, ns)
                    yield wire.FunctionTotal(pid, name, count, ns, {slot: n for slot, n in enumerate(slots) if n})

    def _say_what_is_sampled(self) -> None:
        self.notes.pop(SAMPLED, None)
        for process in self._processes.values():
            if process.sampled:
                kinds = " and ".join(
                    {"wait": "waits", "other": "copies", "launch": "launches"}[one]
                    for one in KINDS
                    if one in process.sampled
                )
                self.notes[SAMPLED] = (
                    f"{kinds} are counted in {process.sampling.share:.1%} of the time and the rest estimated"
                    f"{_how(process)}: counting all could cost too much"
                )


def _grown(before: Mapping[Any, tuple[int, ...]], after: Mapping[Any, tuple[int, ...]]) -> dict[Any, tuple[int, ...]]:
    """What sums have grown by; they begin with 0."""
    return {
        key: tuple(new - old for new, old in zip(sums, before[key])) if key in before else sums
        for key, sums in after.items()
    }


def _how(process: _ProcessLibraries) -> str:
    """By what launches are estimated."""
    if "launch" not in process.sampled:
        return ""
    if process.knows_steps:
        return ", launches by the steps of the server"
    return ", launches by its CPU time, which can be off by half where a step is longer than a window"


def _whole_steps(before: _Counted, after: _Counted) -> bool:
    """Whether one has begun and ended in between."""
    return any(steps for _, steps, *_ in _grown(before.threads, after.threads).values())


def _cost(process: _ProcessLibraries, before: _Counted, after: _Counted) -> float:
    """What the probes that ran in between have cost, in ns."""
    grown = _grown(before.functions, after.functions)
    return sum(count * process.functions[name].ns_per_call for name, (count, *_) in grown.items())


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


def _names(process: _ProcessLibraries, kinds: Iterable[str]) -> list[str]:
    return [name for name, one in process.functions.items() if one.kind in kinds and not one.is_duplicate]
