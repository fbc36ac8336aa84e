"""Which library functions to look at: those of CUDA, NCCL and Python's collector that a process really maps."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from llmtop.collectors.tracing import wire
from llmtop.collectors.tracing.bpftrace.script import Function, collector_probes
from llmtop.collectors.tracing.helper.budget import Rests, given_up
from llmtop.collectors.tracing.helper.functions import (
    COLLECTOR,
    DUPLICATES,
    IN_THE_DRIVER,
    KINDS,
    LAUNCHES,
    NUMBERS,
    QUERIES,
    SYNCHRONISING,
    duplicates,
    kind_of,
    kinds_of,
)
from llmtop.collectors.tracing.helper.interpreters import NO_COLLECTOR
from llmtop.collectors.tracing.helper.libraries import Covered, LibraryFile, LibraryFiles, coverage, mapped_libraries

_UNSAFE = "its path has characters that bpftrace cannot be told: bcc can look at it"
_NO_LAUNCHES = "bpftrace cannot count launches for a moment only, and to count all of them could cost too much: bcc can"
REST_S, LONGEST_REST_S = 60.0, 960.0
"""How long a function stays without probes that was called too often: twice as long each time, because each try is a
new start of bpftrace (on an H100, with CUDA's libraries, 15 s in which nothing is seen)."""


class Libraries:
    """Finds the functions, and takes the costliest away when they cost too much.

    Args:
        budget_ns: What their probes may cost per second.
        ns_per_hit: What a call costs, by what a hit of its probes is: see `ProbePoint`.
        is_careful: Put no probes on launches. A server may make 100,000 a second, which would cost it a core until
            bpftrace has been started anew without them, and how many it makes is only known by counting.
    """

    def __init__(self, budget_ns: float, ns_per_hit: Mapping[str, float], *, is_careful: bool = False) -> None:
        self._budget_ns = budget_ns
        self._is_careful = is_careful
        self._ns_per_hit = ns_per_hit
        self._files = LibraryFiles()
        self._mapped: dict[int, dict[str, LibraryFile]] = {}
        """By process, and by the path by which all see what it sees."""
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
            mapped = mapped_libraries(pid)
            for seen, names in mapped.items():
                path = f"/proc/{pid}/root{seen}"
                file = self._files.at(path, names)
                if file is not None:
                    self._mapped.setdefault(pid, {})[path] = file
                    self._note(path, file)
            found = any(COLLECTOR in file.functions for file in self._mapped.get(pid, {}).values())
            if not found and any(COLLECTOR in names for names in mapped.values()):
                self.notes[COLLECTOR] = NO_COLLECTOR

    def functions(self) -> tuple[Function, ...]:
        """Those to look at now."""
        return tuple(function for function in self._found() if not self._is_off(function.symbol))

    def _found(self) -> Iterator[Function]:
        """All that bpftrace can be told of, of each file once."""
        files: dict[tuple[int, int], tuple[str, LibraryFile]] = {}
        for several in self._mapped.values():
            for path, file in several.items():
                files.setdefault(file.identity, (path, file))
        for path, file in files.values():
            found = (_function(path, symbol, file) for symbol in file.functions)
            yield from (function for function in found if function.can_be_written)

    def _note(self, path: str, file: LibraryFile) -> None:
        """Why some have no probes from the start."""
        for symbol in file.functions:
            if not _function(path, symbol, file).can_be_written:
                self.notes[symbol] = _UNSAFE
            elif self._is_avoided(symbol):
                self.notes[symbol] = _NO_LAUNCHES

    def _is_off(self, symbol: str) -> bool:
        return symbol in self._rests or symbol in self._duplicates or self._is_avoided(symbol)

    def _is_avoided(self, symbol: str) -> bool:
        return self._is_careful and symbol in LAUNCHES

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
            uncounted = {symbol for file in files.values() for symbol in file.functions} - counted
            unseen = kinds_of(uncounted - self._duplicates)
            self._observed[pid] = self._observed.get(pid, 0) + elapsed_ns * ("sync" not in unseen)
            calls_cuda = any(file.functions.keys() - {COLLECTOR} for file in files.values())
            observed_ns = self._observed[pid] if calls_cuda else None
            covered.append(Covered(pid, observed_ns, sorted(uncounted), unseen))
        return coverage(covered)

    def weigh(self, counts: dict[tuple[int, str], int], elapsed_s: float, now_s: float) -> None:
        """Give the costliest functions a rest until the others fit the budget; end rests that have lasted."""
        ns_per_call = self._ns_per_call()
        rates: dict[str, float] = {}
        for (pid, symbol), count in counts.items():
            rates[symbol] = rates.get(symbol, 0.0) + (count - self._counts.get((pid, symbol), 0)) / elapsed_s
        self._counts = counts
        twice = _duplicates(counts)
        cost = {symbol: rate * ns_per_call[symbol] for symbol, rate in rates.items() if rate and symbol in ns_per_call}
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

    def _ns_per_call(self) -> dict[str, float]:
        """By function: where several libraries have it, that of the dearest."""
        files = (file for several in self._mapped.values() for file in several.values())
        points = sorted(
            ((self._ns_per_hit[point.hit], name) for file in files for name, point in file.functions.items())
        )
        return {name: ns for ns, name in points}


def _duplicates(counts: dict[tuple[int, str], int]) -> frozenset[str]:
    """Of the runtime's functions those that are duplicates in every process that calls them."""
    by_process: dict[int, dict[str, int]] = {}
    for (pid, symbol), count in counts.items():
        by_process.setdefault(pid, {})[symbol] = count
    found = {pid: duplicates(of_process) for pid, of_process in by_process.items()}
    not_twice = {symbol for (pid, symbol), count in counts.items() if count and symbol not in found[pid]}
    return frozenset().union(*found.values()) - not_twice


def _function(path: str, symbol: str, file: LibraryFile) -> Function:
    probes = collector_probes(path, file.functions[symbol].symbols) if symbol == COLLECTOR else ((), ())
    launches, waits, asks = (symbol in names for names in (LAUNCHES, SYNCHRONISING, QUERIES))
    return Function(path, symbol, NUMBERS[symbol], launches, waits, file.identity, *probes, asks=asks)
