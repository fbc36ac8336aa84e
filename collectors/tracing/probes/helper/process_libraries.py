"""The library functions of one process: what has probes, what was counted, and what is estimated of the rest."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...helper import system
from ...helper.functions import COLLECT, GRAPH, KINDS, LAUNCH, LAUNCHING, OTHER, QUERY, READ, WAIT, duplicates, kinds_of
from ...helper.libraries import ProbePoint
from .estimates import Estimate, work_ns
from .library_maps import SYNCS, Counted, growth
from .programs import SLOTS
from .sampling import Sampling

_SETTLED = 3
"""Windows after which what was not cheap enough to be seen all the time has little prospect of it soon."""
_SUMS = 2 + SLOTS
_WORDS = {
    WAIT: "waits",
    QUERY: "queries of events and streams",
    READ: "copies to the host",
    GRAPH: "graph launches",
    COLLECT: "garbage collections",
    OTHER: "copies",
    LAUNCH: "kernel launches",
}


@dataclass
class ProbedFunction:
    """The probes on one function of one process: count, ns, and calls by slot of their latency.

    `raw` is what was counted, `sums` what that stands for.
    """

    places: dict[str, ProbePoint]
    """Where it begins and ends, by file: a process may map several copies of a library."""
    ns_per_call: float
    kind: str
    raw: tuple[int, ...] = (0,) * _SUMS
    sums: list[float] = field(default_factory=lambda: [0.0] * _SUMS)
    compared: int = 0
    """Calls counted while all functions were: by these it is told from others that it contains."""
    is_duplicate: bool = False
    """Without probes for good: its calls are counted in the driver."""

    def grow(self, sums: Iterable[float], times: float = 1.0) -> None:
        """Add so many times these."""
        self.sums = [total + times * more for total, more in zip(self.sums, sums)]


@dataclass
class LaunchingThread:
    """A thread that has called a library: the launches that its probes have counted, and what that stands for."""

    tgid: int
    raw: int = 0
    launches: float = 0.0
    sent: tuple[int, int] = (0, 0)
    sent_collecting: int = 0


@dataclass
class ProcessLibraries:
    """What is known of one process's libraries."""

    pid: int
    sampling: Sampling
    functions: dict[str, ProbedFunction] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Functions that are there and that nobody can probe."""
    observed_ns: int = 0
    watched_since: int | None = None
    """Since when all calls that wait have probes; None while one has not."""
    steady_since: dict[str, int] = field(default_factory=dict)
    """Since when each kind of call has been counted without a break."""
    estimate: Estimate = field(default_factory=Estimate)
    """Of what is counted in windows, by function, and of launches by thread."""
    known: Counted | None = None
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
        return WAIT in self.sampled and self.sampling.windows < _SETTLED

    @property
    def knows_steps(self) -> bool:
        """Whether windows have held whole steps, so that launches are known by those."""
        threads = (sums for key, sums in self.estimate.per_work_s().items() if isinstance(key, int))
        return WAIT in self.sampling.steady and any(steps for _, steps, *_ in threads)

    @property
    def wants_step(self) -> bool:
        """Whether a longer window would tell more than others: not before a short one has told what it costs."""
        can_step = WAIT in self.sampling.steady and self.does_step and LAUNCH in self.sampled
        return can_step and self.sampling.windows > 0 and not self.knows_steps

    @property
    def uncounted(self) -> list[str]:
        """The functions of which not even a sample is counted."""
        return [*(name for name, one in self.functions.items() if one.is_duplicate), *self.refused]

    @property
    def unseen(self) -> list[str]:
        """What is not known of its calls: see `kinds_of`. Of launches a sample will do, all else must be seen whole."""
        whole = {name for name, one in self.functions.items() if one.kind in self.sampled & {WAIT, COLLECT}}
        return sorted(kinds_of(self.refused | whole))

    @property
    def sampled(self) -> set[str]:
        """The kinds of call that are counted now and then; of those that it has."""
        return {one.kind for one in self.functions.values()} - self.sampling.steady

    @property
    def calls_cuda(self) -> bool:
        """Whether it maps a library of CUDA or NCCL, and not an interpreter alone."""
        return any(one.kind != COLLECT for one in self.functions.values())

    @property
    def files(self) -> set[str]:
        """Those that hold its functions."""
        return {path for one in self.functions.values() for path in one.places}

    @property
    def raw(self) -> dict[str, tuple[int, ...]]:
        """What was counted when the sums were last made, by function."""
        return {name: one.raw for name, one in self.functions.items()}

    def probed(self, kinds: Iterable[str] = KINDS) -> list[str]:
        """The functions of some kinds that have probes, be it now and then."""
        return [name for name, one in self.functions.items() if one.kind in kinds and not one.is_duplicate]

    def by_file(self, kind: str) -> dict[str, dict[str, ProbePoint]]:
        """Where the functions of a kind are that are to have probes, by file and name."""
        found: dict[str, dict[str, ProbePoint]] = {}
        for name in self.probed((kind,)):
            for path, point in self.functions[name].places.items():
                found.setdefault(path, {})[name] = point
        return found

    def observe(self, now: int) -> None:
        """Take the time until now into account, and whether the time from now on counts."""
        if self.watched_since is not None:
            self.observed_ns += max(0, now - self.watched_since)
        self.watched_since = now if self.calls_cuda and "sync" not in self.unseen else None
        self.steady_since = {kind: self.steady_since.get(kind, now) for kind in self.sampling.steady}

    def saw(self, kind: str, since: int) -> bool:
        """Whether all calls of a kind have been counted since then."""
        return since >= self.steady_since.get(kind, since + 1)

    def came_to_see(self, kind: str, since: int) -> bool:
        """Whether calls of a kind are counted now, and were not all the time since then."""
        return kind in self.steady_since and not self.saw(kind, since)

    def cost_ns(self, before: Counted, after: Counted) -> float:
        """What the probes that ran in between have cost."""
        grown = growth(before.functions, after.functions)
        return sum(count * self.functions[name].ns_per_call for name, (count, *_) in grown.items())

    def rates(self, counts: Mapping[str, Sequence[int]], seconds: float) -> dict[str, float]:
        """What each kind of call costs in ns per second, by the sums of its functions over so many seconds."""
        rates = dict.fromkeys(KINDS, 0.0)
        for name, (count, *_) in counts.items():
            one = self.functions[name]
            rates[one.kind] += count * one.ns_per_call / seconds
        return rates

    def learn(self, before: Counted, after: Counted) -> None:
        """Go on from now by what was counted in between too."""
        spun_ns = self.spinning * (after.sync_ns - before.sync_ns)
        work_s = work_ns(after.cpu_ns - before.cpu_ns, spun_ns, self.cost_ns(before, after)) / 1e9
        functions, threads = growth(before.functions, after.functions), growth(before.threads, after.threads)
        self.estimate.add(work_s, {key: sums for key, sums in (*functions.items(), *threads.items()) if sums[0]})

    def advance(self, now: Counted, threads: Mapping[int, LaunchingThread]) -> None:
        """Add to the sums, and to those of its threads, what is estimated of the time until now."""
        before, self.known = self.known or now, now
        self.spinning = self._spinning(before, now)
        work_s = work_ns(now.cpu_ns - before.cpu_ns, self.spinning * (now.sync_ns - before.sync_ns)) / 1e9
        estimates, grown = self.estimate.per_work_s(), growth(before.threads, now.threads)
        self.does_step = any(one[SYNCS] for one in grown.values())
        scales = dict.fromkeys(set(KINDS) - self.sampling.steady, 1.0)
        if scales.keys() & LAUNCHING:
            syncs = {tid: max(0, calls[SYNCS]) for tid, calls in grown.items()}
            scale = self._advance_launches(threads, estimates, work_s, syncs)
            scales.update(dict.fromkeys(scales.keys() & LAUNCHING, scale))
        for name, function in self.functions.items():
            if name in estimates and function.kind in scales:
                function.grow(estimates[name], work_s * scales[function.kind])

    def _advance_launches(
        self,
        threads: Mapping[int, LaunchingThread],
        estimates: Mapping[Hashable, Sequence[float]],
        work_s: float,
        syncs: Mapping[int, int],
    ) -> float:
        """By the steps of threads where those tell it; how that compares with what their CPU time tells."""
        by_work = by_steps = 0.0
        for tid, thread in threads.items():
            if tid in estimates:
                launches, steps, step_launches, _ = estimates[tid]
                grown = work_s * launches
                by_work += grown
                if WAIT in self.sampling.steady and steps:
                    grown = syncs.get(tid, 0) * step_launches / steps
                by_steps += grown
                thread.launches += grown
        return by_steps / by_work if by_work else 1.0

    def _spinning(self, before: Counted, now: Counted) -> float:
        """What share of the time in waits for the GPU is spent on the CPU; 0 where waits are not seen all the time."""
        passed_ns, in_sync_ns = now.at_ns - before.at_ns, now.sync_ns - before.sync_ns
        used = {tid: ns for tid in now.threads if (ns := system.run_and_queued(self.pid, tid)) is not None}
        known, self.used = self.used, used
        if WAIT not in self.sampling.steady or in_sync_ns <= 0:
            return 0.0
        asleep_ns = sum(max(0, passed_ns - (used[tid] - known[tid])) for tid in used.keys() & known.keys())
        return min(1.0, max(0.0, 1.0 - asleep_ns / in_sync_ns))

    def new_duplicates(self, counts: Mapping[str, int]) -> list[ProbedFunction]:
        """Functions now known to be counted in the driver too. `counts` are of a time when all was counted."""
        for name, count in counts.items():
            self.functions[name].compared += count
        compared = {name: one.compared for name, one in self.functions.items()}
        found = (self.functions[name] for name in duplicates(compared))
        return [one for one in found if not one.is_duplicate]

    def says_sampled(self) -> str:
        """What is counted now and then, in what part of the time, and by what the rest is estimated."""
        *others, last = (_WORDS[one] for one in KINDS if one in self.sampled)
        kinds = f"{', '.join(others)} and {last}" if others else last
        return (
            f"{kinds} are counted in {self.sampling.share:.1%} of the time and the rest estimated"
            f"{self._by()}: counting all could cost too much"
        )

    def _by(self) -> str:
        if LAUNCH not in self.sampled:
            return ""
        if self.knows_steps:
            return ", kernel launches by the steps of the server"
        return ", kernel launches by its CPU time, which can be off by half where a step is longer than a window"
