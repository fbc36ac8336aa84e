"""Calls of the CUDA driver, the CUDA runtime and NCCL, by probes on the libraries that a process really maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ... import wire
from ...helper.budget import Account
from ...helper.functions import WAIT, kinds_of
from ...helper.libraries import Covered, coverage
from ...helper.system import UnavailableError
from . import probe_cost, uprobes
from .gpu_rounds import GpuRounds
from .library_maps import LibraryMaps
from .library_probes import LibraryProbes
from .library_search import LibrarySearch
from .programs import Programs, ProgramText


class Library:
    """Looks for libraries, and has probes on them; its program is loaded with the first one.

    Args:
        budget_ns: What the probes may cost per second, in ns. What costs more is counted in windows (sampling.py).
        hits: How often such probes have run, from a cheap place.
    """

    def __init__(self, programs: Programs, budget_ns: float, hits: Callable[[], int]) -> None:
        self._programs = programs
        self._account = Account(budget_ns)
        self._hits = hits
        self._probes: LibraryProbes | None = None
        self._maps: LibraryMaps | None = None
        self._rounds: GpuRounds | None = None
        self._search = LibrarySearch()
        self.why_not: UnavailableError | None = None

    @property
    def notes(self) -> dict[str, str]:
        """What is not probed now, or not all the time, and why, by function."""
        return self._probes.notes if self._probes else {}

    @property
    def probed(self) -> int:
        """How many functions have probes on them, over all processes; those that are sampled too."""
        return sum(len(process.probed()) for process in self._probes.processes.values()) if self._probes else 0

    def coverage(self) -> wire.Sample:
        """For how long waits were seen; functions without probes; what is not known for lack of them.

        And the functions of which samples stand for all calls.
        """
        processes = self._probes.processes.values() if self._probes else ()
        covered = (
            Covered(one.pid, one.observed_ns if one.calls_cuda else None, one.uncounted, one.unseen)
            for one in processes
        )
        sampled = [(one.pid, names) for one in processes if (names := one.probed(one.sampled))]
        return coverage(covered) | {
            "sampled": [wire.SampledCalls(pid, names, kinds_of(names)) for pid, names in sampled]
        }

    def why_no_rounds(self) -> str:
        """Why no wait for the GPU is told by itself, where there are such: probes on them would cost too much."""
        known = self._probes.processes.values() if self._probes else ()
        rates = (one.sampling.rates.get(WAIT, 0.0) for one in known if WAIT in one.sampled and not one.is_settling)
        costs = [ns for ns in rates if ns]
        if not costs or any(one.does_step for one in known if WAIT in one.sampling.steady):
            return ""
        return f"single waits for the GPU are not seen: probes on them would cost {min(costs) / 1e7:.2g} % of a core"

    def allow(self, budget_ns: float) -> None:
        """From now on the probes may cost so much per second, in ns."""
        self._account.budget_ns = budget_ns

    def is_settling(self, pids: Iterable[int]) -> bool:
        """Whether it is still open for one of these processes if its waits for the GPU can be seen all the time.

        It is where no library has been looked for yet, and where too few windows have shown what waits cost.
        """
        known = self._probes.processes if self._probes else {}
        return self.why_not is None and any(
            pid not in self._search or (pid in known and known[pid].is_settling) for pid in pids
        )

    def tick(self, pids: Iterable[int]) -> None:
        """Several times a second: judge what has probes, open a window where one is due, look for libraries."""
        if self._probes:
            self._probes.tick()
        found = self._search.found(pids)
        if found and found[1] and self._probes is None and self.why_not is None:
            self._load_program()
        if found and self._probes:
            pid, libraries = found
            for path, names in libraries.items():
                self._probes.take_in(pid, path, names)

    def read(self, now: int, gone: Iterable[int]) -> list[wire.FunctionTotal]:
        """What changed: sums since the start."""
        for pid in gone:
            self._search.forget(pid)
            if self._probes:
                self._probes.drop(pid)
        return self._probes.read(now) if self._probes else []

    def read_threads(self, now: int, ended: Iterable[tuple[int, int]]) -> list[wire.LibraryThread]:
        """What changed, up to now: sums since the start."""
        return self._probes.read_threads(now, ended) if self._probes else []

    def read_collecting(self) -> list[wire.CollectingThread]:
        """Likewise of garbage collections; before the threads, which forgets those that have ended."""
        return self._probes.read_collecting() if self._probes else []

    def read_rounds(self, followed_since: int | None) -> list[wire.GpuRound]:
        """The rounds of the GPU's work that have ended: see `GpuRounds.take`."""
        return self._rounds.take(followed_since) if self._rounds else []

    def lost(self) -> int:
        """Calls that found no room in the maps."""
        return self._maps.lost() if self._maps else 0

    def _load_program(self) -> None:
        """One that cannot be had costs only these counts."""
        try:
            self._load(uprobes.source())
        except UnavailableError:
            try:
                self._load(uprobes.WITHOUT_COOKIES)
            except UnavailableError as error:
                self.why_not = error

    def _load(self, source: ProgramText) -> None:
        module = self._programs.module(source)
        probes, self._maps = uprobes.make_uprobes(source, module), LibraryMaps(module)
        cost = probe_cost.measured(probes)
        self._probes = LibraryProbes(probes, self._maps, cost, self._account, self._hits)
        self._rounds = GpuRounds(module, self._probes.processes)
