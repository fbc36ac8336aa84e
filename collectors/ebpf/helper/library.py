"""Calls of the CUDA driver, the CUDA runtime and NCCL, by probes on the libraries that a process really maps."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from . import exports, uprobes
from .functions import DUPLICATES, FUNCTIONS, NUMBERS, duplicates, kind_of, kinds_of
from .governor import NS_PER_HIT
from .kernel import Table
from .programs import SLOTS, Module, Programs, Source
from .sampling import KINDS, WINDOW_S, Account, Sampling
from .system import UnavailableError, read

_SETTLED = 3
"""Windows after which what was not cheap enough to be seen all the time has little prospect of it soon."""
_LOOK_S, _LONGEST_LOOK_S = 5.0, 60.0
"""How often a process's list of libraries is read: they are mapped while a server starts, and seldom later. The list
of a server with torch is thousands of lines, made by the kernel while the process may not map anything."""
_ATTACH_NS = 1e6
"""What attaching and detaching costs a process, at most: the kernel writes into its code while it may map nothing."""
_NAMES = {number: name for name, number in NUMBERS.items()}
_OF_THREAD_TGID = 2
"""After the five sums and moments of struct library_thread, the third: see programs/common.h."""
SAMPLED = "sampled"
"""Under what it is said that calls are counted now and then."""


@dataclass
class _Function:
    """The probes on one function of one process. `raw` is what was counted, `sums` what that stands for."""

    path: str
    place: int
    ns_per_call: float
    kind: str
    raw: tuple[int, ...] = (0, 0)
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0])
    compared: int = 0
    """Calls counted while all functions were: by these it is told from others that it contains."""
    is_duplicate: bool = False
    """Without probes for good: its calls are counted in the driver."""


@dataclass
class _Thread:
    tgid: int
    raw: int = 0
    launches: float = 0.0
    sync_ns: int = 0
    sent: tuple[int, int] = (0, 0)


@dataclass
class _Process:
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

    @property
    def is_settling(self) -> bool:
        """Whether it has calls that wait, and nobody knows yet what looking at all of them costs."""
        return "wait" in self.sampled and self.sampling.windows < _SETTLED

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
                yield one.path, name, one.place


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
        self._source: Source | None = None
        self._uprobes: uprobes.Uprobes | None = None
        self._reader: Table | None = None
        self._threads_reader: Table | None = None
        self._threads: dict[int, _Thread] = {}
        self._processes: dict[int, _Process] = {}
        self._sent: dict[tuple[int, str], tuple[int, int]] = {}
        self._places: dict[tuple[int, int], dict[str, int]] = {}
        """Where functions begin in a file, by its device and inode."""
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

    def coverage(self) -> dict[str, list[list[Any]]]:
        """For how long waits were seen, [tgid, ns]; functions without probes; what is not known for lack of them.

        And the functions of which samples stand for all calls.
        """
        processes = [(pid, process) for pid, process in self._processes.items() if process.functions or process.refused]
        return {
            "library_observed": [[pid, process.observed_ns] for pid, process in processes],
            "uncounted": [[pid, names] for pid, process in processes if (names := process.uncounted)],
            "unseen": [[pid, kinds] for pid, process in processes if (kinds := process.unseen)],
            "sampled": [
                [pid, names, kinds_of(names)]
                for pid, process in processes
                if (names := _names(process, process.sampled))
            ],
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

    def read(self, now: int, gone: Iterable[int]) -> list[list[Any]]:
        """[tgid, function, count, ns, {slot: count}] of what changed: sums since the start."""
        for process in self._processes.values():
            process.observe(now)
        for pid in gone:
            self._drop(pid)
            self._sent = {key: sent for key, sent in self._sent.items() if key[0] != pid}
        if self._reader is None:
            return []
        self._absorb()
        self._say_what_is_sampled()
        return list(self._changed())

    def read_threads(self, now: int, ended: Iterable[tuple[int, int]]) -> list[list[int]]:
        """[tgid, tid, launches, ns in synchronising calls, up to now] of what changed: sums since the start."""
        if self._threads_reader is None:
            return []
        dead = {tid for tid, _ in ended}
        changed = []
        for (tid,), (_, sync_ns, since, *_) in self._threads_reader.entries():
            thread = self._threads.get(tid)
            if thread is None:
                continue  # it has made its first call since the sums were read
            ns = sync_ns + (max(0, now - since) if since else 0)
            # A call that ended between two looks of ours was counted a little longer than it took.
            sent = (round(thread.launches), max(ns, thread.sent[1]))
            if sent != thread.sent:
                thread.sent = sent
                changed.append([thread.tgid, tid, *sent])
            if tid in dead:
                del self._threads[tid]
                self._threads_reader.remove(tid)
        return changed

    def lost(self) -> int:
        """Calls that found no room in the maps."""
        return int((self._lost.get(0) or (0,))[0]) if self._uprobes else 0

    def _drop(self, pid: int) -> None:
        process = self._processes.pop(pid, None)
        for path in {function.path for function in process.functions.values()} if process else ():
            for group in (*KINDS, *(f"{SAMPLED} {kind}" for kind in KINDS)):
                self._hold(pid, path, group, {})

    def _look(self, pids: Iterable[int]) -> None:
        """Look for libraries where it is time to: in one process, and ever more seldom."""
        now_s = time.monotonic()
        for pid in pids:
            process = self._processes.get(pid)
            if process is None:
                process = self._processes[pid] = _Process(Sampling(self._account, now_s))
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
                        process.patience_s = _LOOK_S
                        self._take_in(pid, process, path, names)
                return

    def _take_in(self, pid: int, process: _Process, path: str, names: Iterable[str]) -> None:
        """Know a library's functions; whether they can be probed is found out in the first window."""
        if self._uprobes is None:
            return
        file = f"/proc/{pid}/root{path}"
        for name, place in self._places_in(file, names).items():
            cost = NS_PER_HIT["library" if starts_gently(file, place) else "stepped_library"]
            process.functions[name] = _Function(file, place, cost, kind_of(name))
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

    def _take_program(self, source: Source) -> None:
        """A program that cannot be had costs only these counts."""
        try:
            module = self._programs.module(source)
            if module is not None:
                self._uprobes = uprobes.make_uprobes(source, module)
                self._read_from(module)
        except UnavailableError as error:
            if source is uprobes.WITH_COOKIES:
                self._source = uprobes.WITHOUT_COOKIES
                self._programs.ask(self._source)
            else:
                self.why_not = error

    def _read_from(self, module: Module) -> None:
        self._reader = module.table("functions", "II", f"QQ{SLOTS}Q")
        self._threads_reader = module.table("library_threads", "I", "5Q4I")
        self._entered = module.table("entered", "Q", "Q")
        self._attachments = module.table("attachments", "I", "I")
        self._lost = module.table("lost", "I", "Q")

    def _places_in(self, file: str, names: Iterable[str]) -> dict[str, int]:
        """Where functions begin in a file: those that this version of the library has."""
        try:
            status = os.stat(file)
            key = (status.st_dev, status.st_ino)
            if key not in self._places:
                self._places[key] = exports.functions(file, tuple(names))
            return self._places[key]
        except (OSError, ValueError):  # the process has just ended, or this is no library
            return {}

    def _hold(self, pid: int, file: str, group: str, functions: dict[str, int]) -> bool:
        """Have probes on these functions of a file; false where they are refused."""
        assert self._uprobes is not None
        try:
            self._uprobes.hold(pid, file, group, functions)
        except OSError:
            return False
        return True

    def _hold_kind(self, pid: int, process: _Process, kind: str, group: str = "") -> None:
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

    def _refuse(self, process: _Process, names: Iterable[str]) -> None:
        for name in names:
            process.refused.add(name)
            process.functions.pop(name, None)
            self.notes[name] = "the kernel lets nobody probe it"

    def _release(self, pid: int, process: _Process, group: str) -> None:
        for file in {one.path for one in process.functions.values()}:
            self._hold(pid, file, group, {})

    def _window(self, pid: int, process: _Process) -> None:
        """Count what has no probes all the time for a moment, and let that stand for the time since the last one."""
        sampled = process.sampled
        self._begin_round()
        self._absorb()
        for kind in sampled:
            self._hold_kind(pid, process, kind, f"{SAMPLED} {kind}")
        raw = self._raw(process)
        self._absorb(pid, dict.fromkeys(sampled, 0.0))
        raw_opened, opened_s = self._raw(process), time.monotonic()
        time.sleep(WINDOW_S)
        counted_s = time.monotonic() - opened_s
        inside = self._inside(pid, process, raw_opened)
        slowed_s = sum(calls * process.functions[name].ns_per_call for name, calls in inside.items()) / 1e9
        # The program launches the less in a window for being slowed down by it.
        counted_s = max(counted_s / 4, counted_s - slowed_s)
        self._absorb(pid, dict.fromkeys(sampled, process.sampling.stands_for(counted_s, time.monotonic())))
        # Launches first: they are the most.
        for kind in sorted(sampled, key=KINDS.index, reverse=True):
            self._release(pid, process, f"{SAMPLED} {kind}")
        self._absorb(pid, dict.fromkeys(sampled, 0.0))
        self._end_calls(pid, process, sampled)
        self._settle(pid, process, inside, raw, counted_s)

    def _settle(
        self, pid: int, process: _Process, inside: dict[str, int], raw: dict[str, int], counted_s: float
    ) -> None:
        """Pay for a window, and count from now on all the time what is seldom called."""
        spent = sum((one.raw[0] - raw.get(name, 0)) * one.ns_per_call for name, one in process.functions.items())
        now_s = time.monotonic()
        self._account.spend(spent + _ATTACH_NS, now_s)
        self._judged_ns, self._judged_hits = time.monotonic_ns(), self._hits()
        rates, calls = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0)
        for name, one in process.functions.items():
            rates[one.kind] += inside[name] * one.ns_per_call / counted_s
            calls[one.kind] += inside[name]
        before = process.sampling.steady
        if process.sampling.close(rates, calls, now_s):
            self._begin_round()
            for kind in process.sampling.steady - before:
                self._hold_kind(pid, process, kind)
        elif sum(rates.values()) > self._account.budget_ns:
            self._drop_duplicates(pid, process, inside)
        process.observe(time.monotonic_ns())

    def _drop_duplicates(self, pid: int, process: _Process, counts: dict[str, int]) -> None:
        """Of what is counted in the driver too only the name is lost. `counts` are of a time when all was counted."""
        for name, count in counts.items():
            process.functions[name].compared += count
        compared = {name: one.compared for name, one in process.functions.items()}
        found = [process.functions[name] for name in duplicates(compared)]
        fresh = [one for one in found if not one.is_duplicate]
        for one in fresh:
            one.is_duplicate = True
            self.notes[DUPLICATES] = "its calls are counted in the driver: probes on both would cost too much"
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

    def _judge_process(self, pid: int, process: _Process, before: dict[str, int], elapsed_s: float) -> None:
        rates = dict.fromkeys(KINDS, 0.0)
        for name, one in process.functions.items():
            rates[one.kind] += (one.raw[0] - before[name]) * one.ns_per_call / elapsed_s
        steady = process.sampling.steady
        if not process.sampling.judge(rates, time.monotonic()):
            return
        self._account.spend(sum(rates.values()) * elapsed_s, time.monotonic())
        for kind in steady - process.sampling.steady:
            self._release(pid, process, kind)
        self._absorb()
        self._end_calls(pid, process, steady - process.sampling.steady)
        process.observe(time.monotonic_ns())

    def _begin_round(self) -> None:
        """Launches that were under way when their probes came off are over."""
        (times,) = self._attachments.get(0) or (0,)
        self._attachments.put((0,), ((times + 1) & 0xFFFFFFFF,))

    def _end_calls(self, pid: int, process: _Process, kinds: Iterable[str]) -> None:
        """Calls that are under way when their probes come off: nobody will tell when they end."""
        assert self._threads_reader is not None
        numbers = {NUMBERS[name] for name, one in process.functions.items() if one.kind in kinds}
        for key in [key for (key,), _ in self._entered.entries() if key & 0xFF in numbers]:
            self._entered.remove(key)
        if "wait" not in kinds:
            return
        for (tid,), (launches, sync_ns, since, _, launch_stack, *rest) in list(self._threads_reader.entries()):
            if since and rest[_OF_THREAD_TGID] == pid:
                self._threads_reader.put((tid,), (launches, sync_ns, 0, 0, launch_stack, *rest))

    def _inside(self, pid: int, process: _Process, before: dict[str, int]) -> dict[str, int]:
        """How many calls of each function were counted since; nothing is added up."""
        assert self._reader is not None
        counts = {_NAMES[number]: count for (tgid, number), (count, *_) in self._reader.entries() if tgid == pid}
        return {name: counts.get(name, 0) - before[name] for name in process.functions}

    def _raw(self, process: _Process) -> dict[str, int]:
        return {name: one.raw[0] for name, one in process.functions.items()}

    def _absorb(self, pid: int = 0, weights: dict[str, float] | None = None) -> None:
        """Add what was counted since the last time to the sums, by weight in a process's sampled kinds."""
        assert self._reader is not None
        assert self._threads_reader is not None
        self._absorbed_ns = time.monotonic_ns()
        for (tgid, number), counts in self._reader.entries():
            process = self._processes.get(tgid)
            function = process.functions.get(_NAMES[number]) if process else None
            if function is None or function.raw == counts:
                continue
            weight = weights.get(function.kind, 1.0) if weights and tgid == pid else 1.0
            before = function.raw if len(function.raw) == len(counts) else (0,) * len(counts)
            sums = function.sums if len(function.sums) == len(counts) else [0.0] * len(counts)
            function.sums = [total + weight * (new - old) for total, new, old in zip(sums, counts, before, strict=True)]
            function.raw = counts
        for (tid,), (launches, _, _, _, _, _, _, tgid, _) in self._threads_reader.entries():
            thread = self._threads.get(tid)
            if thread is None:
                thread = self._threads[tid] = _Thread(tgid)
            weight = weights.get("launch", 1.0) if weights and tgid == pid else 1.0
            thread.launches += weight * (launches - thread.raw)
            thread.raw = launches

    def _changed(self) -> Iterator[list[Any]]:
        for pid, process in self._processes.items():
            for name, one in process.functions.items():
                count, ns, *slots = map(round, one.sums)
                if self._sent.get((pid, name), (0, 0)) != (count, ns):
                    self._sent[pid, name] = (count, ns)
                    yield [pid, name, count, ns, {slot: n for slot, n in enumerate(slots) if n}]

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
                    f"{kinds} are counted in {process.sampling.share:.1%} of the time and the rest estimated, "
                    "rather too low than too high, because probes slow a program down: counting all could cost too much"
                )


def starts_gently(path: str, place: int) -> bool:
    """Whether the kernel can do a function's first instruction itself, as it can for a push.

    Any other is stepped through with a trap, which costs ten microseconds in a virtual machine:
    arch/x86/kernel/uprobes.c. On other machines than x86-64 nothing is assumed.
    """
    if platform.machine() != "x86_64":
        return True
    with open(path, "rb") as library:
        library.seek(place)
        first = library.read(2)
    code = first[1:] if first[:1] == b"\x41" else first[:1]
    return b"\x50" <= code <= b"\x57" or code == b"\x90"


def mapped_libraries(pid: int) -> dict[str, tuple[str, ...]]:
    """The libraries a process maps that we have functions of, by their path as the process sees it."""
    found: dict[str, tuple[str, ...]] = {}
    for line in read(f"/proc/{pid}/maps").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/") and fields[5] not in found:
            name = fields[5].rpartition("/")[2]
            for pattern, functions in FUNCTIONS.items():
                if re.match(pattern, name):
                    found[fields[5]] = functions
    return found


def _names(process: _Process, kinds: Iterable[str]) -> list[str]:
    return [name for name, one in process.functions.items() if one.kind in kinds and not one.is_duplicate]
