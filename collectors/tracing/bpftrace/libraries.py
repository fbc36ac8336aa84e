"""Which library functions to look at: those of CUDA and NCCL that a process really maps."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from llmtop.collectors.tracing import wire
from llmtop.collectors.tracing.bpftrace.script import Function
from llmtop.collectors.tracing.helper import elf
from llmtop.collectors.tracing.helper.budget import Rests, given_up
from llmtop.collectors.tracing.helper.functions import (
    DUPLICATES,
    IN_THE_DRIVER,
    KINDS,
    LAUNCHES,
    NUMBERS,
    SYNCHRONISING,
    duplicates,
    kind_of,
    kinds_of,
)
from llmtop.collectors.tracing.helper.libraries import Covered, coverage, mapped_libraries, starts_gently

_LAUNCH = "launch"
_NO_LAUNCHES = "bpftrace cannot count launches for a moment only, and to count all of them could cost too much: bcc can"
REST_S, LONGEST_REST_S = 60.0, 960.0
"""How long a function stays without probes that was called too often: twice as long each time, because each try is a
new start of bpftrace (on an H100, with CUDA's libraries, 15 s in which nothing is seen)."""


@dataclass(frozen=True)
class Probed:
    """A function that can have probes, and whether the kernel has to step through its first instruction."""

    function: Function
    is_gentle: bool


class Libraries:
    """Finds the functions, and takes the costliest away when they cost too much.

    Args:
        budget_ns: What their probes may cost per second.
        ns_per_call: Of a function that begins with a push, and of any other.
        is_careful: Put no probes on launches. A server may make 100,000 a second, which would cost it a core until
            bpftrace has been started anew without them, and how many it makes is only known by counting.
    """

    def __init__(self, budget_ns: float, ns_per_call: tuple[float, float], *, is_careful: bool = False) -> None:
        self._budget_ns = budget_ns
        self._is_careful = is_careful
        self._ns_per_call = ns_per_call
        self._files: dict[tuple[int, int], tuple[Probed, ...]] = {}
        """By device and inode: processes share libraries, by whatever path they see them."""
        self._mapped: dict[int, set[tuple[int, int]]] = {}
        self._duplicates: set[str] = set()
        """The runtime's functions whose calls are counted in the driver: without probes for good."""
        self._observed: dict[int, int] = {}
        self._rests = Rests(REST_S, LONGEST_REST_S)
        """Of functions."""
        self._counts: dict[tuple[int, str], int] = {}
        self.notes: dict[str, str] = {}
        """What is not probed now and why, by function."""

    def look(self, pids: Iterable[int]) -> None:
        """Find what has been mapped since."""
        for pid in pids:
            for path, names in mapped_libraries(pid).items():
                self._add(pid, f"/proc/{pid}/root{path}", names)

    def functions(self) -> tuple[Function, ...]:
        """Those to look at now."""
        found = (one.function for several in self._files.values() for one in several)
        return tuple(function for function in found if not self._is_off(function.symbol))

    def _is_off(self, symbol: str) -> bool:
        return symbol in self._rests or symbol in self._duplicates or self._is_avoided(symbol)

    def _is_avoided(self, symbol: str) -> bool:
        return self._is_careful and kind_of(symbol) == _LAUNCH

    def coverage(self, probed: Iterable[Function], elapsed_ns: int, pids: Container[int]) -> wire.Sample:
        """As of bcc's helper: `library_observed`, `uncounted` and `unseen`, by process.

        Args:
            probed: What had probes until now.
            elapsed_ns: For how long.
            pids: The processes that are still there.
        """
        counted = {function.symbol for function in probed if not self._is_off(function.symbol)}
        covered = []
        self._mapped = {pid: files for pid, files in self._mapped.items() if pid in pids}
        for pid, files in self._mapped.items():
            uncounted = {one.function.symbol for file in files for one in self._files[file]} - counted
            unseen = kinds_of(uncounted - self._duplicates)
            self._observed[pid] = self._observed.get(pid, 0) + elapsed_ns * ("sync" not in unseen)
            covered.append(Covered(pid, self._observed[pid], sorted(uncounted), unseen))
        return coverage(covered)

    def weigh(self, counts: dict[tuple[int, str], int], elapsed_s: float, now_s: float) -> None:
        """Give the costliest functions a rest until the others fit the budget; end rests that have lasted."""
        gentle = {one.function.symbol: one.is_gentle for several in self._files.values() for one in several}
        rates: dict[str, float] = {}
        for (pid, symbol), count in counts.items():
            rates[symbol] = rates.get(symbol, 0.0) + (count - self._counts.get((pid, symbol), 0)) / elapsed_s
        self._counts = counts
        twice = _duplicates(counts)
        cost = {symbol: rate * self._ns_per_call[not gentle.get(symbol, True)] for symbol, rate in rates.items()}
        worth = {symbol: (symbol not in twice, -KINDS.index(kind_of(symbol)), -cost[symbol]) for symbol in cost}
        for symbol in given_up(cost, sorted(cost, key=worth.__getitem__), self._budget_ns):
            if symbol in twice:
                self._duplicates.add(symbol)
                self.notes[DUPLICATES] = IN_THE_DRIVER
                continue
            rest_s = self._rests.begin(symbol, now_s)
            again = "a minute" if rest_s == REST_S else f"{rest_s / 60:.0f} minutes"
            self.notes[symbol] = (
                f"{rates[symbol]:.0f} calls/s would cost {cost[symbol] / 1e7:.1f} % of a core: counted again in {again}"
            )
        for symbol in self._rests.over(now_s):
            self.notes.pop(symbol, None)

    def _add(self, pid: int, path: str, names: tuple[str, ...]) -> None:
        try:
            status = Path(path).stat()
            file = (status.st_dev, status.st_ino)
            if file not in self._files:
                places = elf.exported(path, names)
                found = (_probed(path, symbol, place) for symbol, place in places.items())
                self._files[file] = tuple(one for one in found if one.function.can_be_written)
                symbols = (one.function.symbol for one in self._files[file])
                self.notes |= dict.fromkeys(filter(self._is_avoided, symbols), _NO_LAUNCHES)
            self._mapped.setdefault(pid, set()).add(file)
        except (OSError, ValueError):  # the process has ended, or this is no library
            return


def _duplicates(counts: dict[tuple[int, str], int]) -> frozenset[str]:
    """Of the runtime's functions those that are duplicates in every process that calls them."""
    by_process: dict[int, dict[str, int]] = {}
    for (pid, symbol), count in counts.items():
        by_process.setdefault(pid, {})[symbol] = count
    found = {pid: duplicates(of_process) for pid, of_process in by_process.items()}
    not_twice = {symbol for (pid, symbol), count in counts.items() if count and symbol not in found[pid]}
    return frozenset().union(*found.values()) - not_twice


def _probed(path: str, symbol: str, place: int) -> Probed:
    function = Function(path, symbol, NUMBERS[symbol], symbol in LAUNCHES, symbol in SYNCHRONISING)
    return Probed(function, starts_gently(path, place))
