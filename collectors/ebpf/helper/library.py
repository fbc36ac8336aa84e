"""Calls of the CUDA driver, the CUDA runtime and NCCL, by probes on the libraries that a process really maps."""

from __future__ import annotations

import ctypes
import platform
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .functions import DUPLICATES, FUNCTIONS, NUMBERS, SYNCHRONISING, duplicates, kinds_of, shed_rank
from .governor import NS_PER_HIT
from .programs import SLOTS
from .system import BatchReader, UnavailableError, read
from .uprobes import Uprobes, make_uprobes

_LOOK_EVERY = 5
"""Libraries are mapped while a server starts; their list is read so often, in ticks."""
REST_TICKS = 60
"""How long a function stays without probes that was called too often."""


@dataclass
class _Function:
    """The probes on one function of one process."""

    path: str
    place: int
    ns_per_call: float
    last_count: int = 0
    attached: bool = True
    rests: int = 0
    is_duplicate: bool = False
    """Without probes for good: its calls are counted in the driver."""


@dataclass
class _Process:
    """What is known of one process's libraries."""

    paths: set[str] = field(default_factory=set)
    functions: dict[str, _Function] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Functions that are there and that the kernel lets nobody probe."""
    observed_ns: int = 0
    watched_since: int | None = None
    """Since when all calls that wait have probes; None while one has not."""

    @property
    def uncounted(self) -> list[str]:
        """The functions without probes."""
        return [*(name for name, one in self.functions.items() if not one.attached), *self.refused]

    @property
    def unseen(self) -> list[str]:
        """What is not known of its calls: see `kinds_of`."""
        duplicate = {name for name, one in self.functions.items() if one.is_duplicate}
        return kinds_of(name for name in self.uncounted if name not in duplicate)

    def observe(self, now: int) -> None:
        """Take the time until now into account, and whether the time from now on counts."""
        if self.watched_since is not None:
            self.observed_ns += max(0, now - self.watched_since)
        self.watched_since = now if self.functions and "sync" not in self.unseen else None


class Library:
    """The probes on library functions. Compiled when the first process maps one of the libraries.

    Args:
        budget_ns: What the probes may cost per second, in ns: they are taken off the busiest functions first.
    """

    def __init__(self, bpf: Any, budget_ns: float) -> None:
        self._bpf = bpf
        self._budget_ns = budget_ns
        self._uprobes: Uprobes | None = None
        self._reader: BatchReader | None = None
        self._threads: BatchReader | None = None
        self._sent_threads: dict[int, tuple[int, int]] = {}
        self._processes: dict[int, _Process] = {}
        self._sent: dict[tuple[int, int], tuple[int, int]] = {}
        self._ticks = 0
        self.why_not: UnavailableError | None = None
        self.notes: dict[str, str] = {}
        """What is not probed now and why, by function."""

    @property
    def probed(self) -> int:
        """How many functions have probes on them now, over all processes."""
        return sum(function.attached for process in self._processes.values() for function in process.functions.values())

    def coverage(self) -> dict[str, list[list[Any]]]:
        """For how long waits were seen, [tgid, ns]; functions without probes; what is not known for lack of them."""
        processes = [(pid, process) for pid, process in self._processes.items() if process.functions or process.refused]
        return {
            "library_observed": [[pid, process.observed_ns] for pid, process in processes],
            "uncounted": [[pid, names] for pid, process in processes if (names := process.uncounted)],
            "unseen": [[pid, kinds] for pid, process in processes if (kinds := process.unseen)],
        }

    def read(self, pids: Iterable[int], now: int, elapsed_s: float, gone: Iterable[int]) -> list[list[Any]]:
        """[tgid, function, count, ns, {slot: count}] of what changed: sums since the start."""
        for process in self._processes.values():
            process.observe(now)
        for pid in gone:
            self._drop(pid)
            self._sent = {key: sent for key, sent in self._sent.items() if key[0] != pid}
        if self._ticks % _LOOK_EVERY == 0:
            self._look(pids)
        self._ticks += 1
        self._end_rests()
        return self._changed(elapsed_s) if self._reader else []

    def read_threads(self, now: int, ended: Iterable[tuple[int, int]]) -> list[list[int]]:
        """[tgid, tid, launches, ns in synchronising calls, up to now] of what changed: sums since the start."""
        if self._threads is None:
            return []
        dead = {tid for tid, _ in ended}
        changed = []
        for (tid,), (launches, sync_ns, since, _, _, _, _, tgid) in self._threads.entries():
            ns = sync_ns + (max(0, now - since) if since else 0)
            before = self._sent_threads.get(tid, (0, 0))
            # A call that ended between two looks of ours was counted a little longer than it took.
            sent = self._sent_threads[tid] = (launches, max(ns, before[1]))
            if sent != before:
                changed.append([tgid, tid, *sent])
            if tid in dead:
                del self._sent_threads[tid]
                del self._table("library_threads")[ctypes.c_uint32(tid)]
        return changed

    def lost(self) -> int:
        """Calls that found no room in the maps."""
        return int(self._table("lost")[ctypes.c_int(0)].value) if self._uprobes else 0

    def renew(self, pid: int) -> None:
        """A process became another program: its probes are gone with its memory."""
        self._drop(pid)

    def _drop(self, pid: int) -> None:
        process = self._processes.pop(pid, None)
        for path in {function.path for function in process.functions.values()} if process else ():
            self._hold(pid, path, {})

    def _table(self, name: str) -> Any:
        assert self._uprobes is not None
        return self._uprobes.module[name]

    def _look(self, pids: Iterable[int]) -> None:
        for pid in pids:
            process = self._processes.setdefault(pid, _Process())
            for path, names in mapped_libraries(pid).items():
                if path not in process.paths:
                    process.paths.add(path)
                    self._attach_all(pid, process, path, names)

    def _attach_all(self, pid: int, process: _Process, path: str, names: Iterable[str]) -> None:
        if self._uprobes is None and not self._compiled():
            return
        file = f"/proc/{pid}/root{path}"
        found = {name: place for name in names if (place := self._place(file, name)) is not None}
        wanted = found.keys()
        if not self._hold(pid, file, found):  # one that cannot be probed must not cost the others
            found = {name: place for name, place in found.items() if self._hold(pid, file, {name: place})}
        process.refused |= wanted - found.keys()
        if found and self._hold(pid, file, found):
            for name, place in found.items():
                kind = "library" if starts_gently(file, place) else "stepped_library"
                process.functions[name] = _Function(file, place, NS_PER_HIT[kind])
        process.observe(time.monotonic_ns())
        self.notes |= dict.fromkeys(process.refused, "the kernel lets nobody probe it")

    def _compiled(self) -> bool:
        """Compile, once; a program that cannot be had costs only these counts."""
        if self.why_not is None:
            try:
                self._compile()
            except UnavailableError as error:
                self.why_not = error
        return self.why_not is None

    def _compile(self) -> None:
        self._uprobes = make_uprobes(self._bpf)
        self._reader = BatchReader.of(self._table("functions"), "II", f"QQ{SLOTS}Q")
        self._threads = BatchReader.of(self._table("library_threads"), "I", "5Q3I4x")

    def _place(self, file: str, name: str) -> int | None:
        """Where a function begins in a file; None where this version of the library has none of that name."""
        try:
            return int(self._bpf._check_path_symbol(file.encode(), name.encode(), None, -1)[1])
        except Exception:  # bcc raises nothing narrower
            return None

    def _hold(self, pid: int, file: str, functions: dict[str, int]) -> bool:
        """Have probes on these functions of a file and no others; false where they are refused."""
        assert self._uprobes is not None
        try:
            self._uprobes.hold(pid, file, functions)
        except Exception:  # bcc raises nothing narrower
            return False
        return True

    def _renew(self, pid: int, process: _Process, file: str) -> bool:
        of_file = {name: one for name, one in process.functions.items() if one.path == file and one.attached}
        return self._hold(pid, file, {name: one.place for name, one in of_file.items()})

    def _detach(self, pid: int, name: str, function: _Function) -> None:
        function.attached = False
        function.rests = REST_TICKS
        self._renew(pid, self._processes[pid], function.path)
        if name in SYNCHRONISING:
            self._end_calls(pid, NUMBERS[name])
            self._processes[pid].observe(time.monotonic_ns())

    def _end_calls(self, pid: int, number: int) -> None:
        """Calls that are under way when the probes come off: nobody will tell when they end."""
        assert self._threads is not None
        table = self._table("library_threads")
        for (tid,), (_, _, since, _, _, function, _, tgid) in self._threads.entries():
            if since and function == number and tgid == pid:
                thread = table[ctypes.c_uint32(tid)]
                thread.sync_since = thread.sync_stack = 0
                table[ctypes.c_uint32(tid)] = thread

    def _changed(self, elapsed_s: float) -> list[list[Any]]:
        assert self._reader is not None
        names = {number: name for name, number in NUMBERS.items()}
        changed: list[list[Any]] = []
        costs: list[tuple[float, int, str]] = []
        counts: dict[int, dict[str, int]] = {}
        for (tgid, number), (count, ns, *slots) in self._reader.entries():
            name = names[number]
            process = self._processes.get(tgid)
            function = process.functions.get(name) if process else None
            if function is None:
                continue
            costs.append(((count - function.last_count) / elapsed_s * function.ns_per_call, tgid, name))
            function.last_count = count
            counts.setdefault(tgid, {})[name] = count
            if self._sent.get((tgid, number)) != (count, ns):
                self._sent[tgid, number] = (count, ns)
                changed.append([tgid, name, count, ns, {slot: n for slot, n in enumerate(slots) if n}])
        self._guard(costs, {tgid: duplicates(of_process) for tgid, of_process in counts.items()})
        return changed

    def _guard(self, costs: list[tuple[float, int, str]], twice: dict[int, frozenset[str]]) -> None:
        """Take probes off until the rest fit the budget; costs in ns per second.

        What the driver's functions say too goes first, waits go last, and of one kind the costliest first.
        """
        spent = sum(cost for cost, _, _ in costs)
        ranked = sorted(costs, key=lambda entry: (shed_rank(entry[2], entry[2] in twice[entry[1]]), -entry[0]))
        for cost, tgid, name in ranked:
            if spent <= self._budget_ns:
                return
            spent -= cost
            function = self._processes[tgid].functions[name]
            if function.attached:
                function.is_duplicate = name in twice[tgid]
                self._detach(tgid, name, function)
                if function.is_duplicate:
                    self.notes[DUPLICATES] = "its calls are counted in the driver: probes on both would cost too much"
                    continue
                calls = cost / function.ns_per_call
                self.notes[name] = (
                    f"{calls:.0f} calls/s would cost {cost / 1e7:.1f} % of a core: counted again in a minute"
                )

    def _end_rests(self) -> None:
        for pid, process in self._processes.items():
            for name, function in process.functions.items():
                if not function.attached and not function.is_duplicate:
                    function.rests -= 1
                    if function.rests <= 0:
                        function.attached = True
                        self._renew(pid, process, function.path)
                        process.observe(time.monotonic_ns())
                        self.notes.pop(name, None)


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
