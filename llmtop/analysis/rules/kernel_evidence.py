"""What rules over profiled kernels share: a kernel with its numbers, a rule's claims of it, findings of claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from llmtop.analysis.gpus.models import find_gpu
from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels import counting
from llmtop.analysis.kernels.bounds import Bound, Verdict
from llmtop.analysis.kernels.counters import Counters, number
from llmtop.analysis.kernels.family import KernelKind
from llmtop.analysis.kernels.fusion import chained_launches
from llmtop.analysis.kernels.source_table import hot_line
from llmtop.analysis.kernels.stalls import StallReason
from llmtop.analysis.kernels.table import KernelFacts, Kernels, Row, has_counters, kernels_of, sm_count
from llmtop.analysis.kernels.waits import OWN_INSTRUCTIONS
from llmtop.analysis.rules import stakes
from llmtop.frozen import frozen
from llmtop.model import Finding, Trace, Unknown
from llmtop.units import duration, percent

HIGH_USE_PERCENT = 80.0
"""Of peak: from here on NVIDIA's SpeedOfLight rule calls a unit's use high."""
_FAIR_USE_PERCENT = 70.0
"""Of peak: half way from what is latency-bound (60 %) to high use."""
_MOST_OF_THE_WAITING = 0.6
_OF_MEMORY = (
    *(StallReason.LONG_SCOREBOARD, StallReason.LG_THROTTLE),
    *(StallReason.MIO_THROTTLE, StallReason.SHORT_SCOREBOARD),
)
"""Waits for memory of either kind, the GPU's and the SM's own."""
SLACK = f"what {HIGH_USE_PERCENT:.0f} % use of the busiest unit would save"
"""The basis of a stake of `Judged.slack_ns`."""
SLACK_OF_WAITING = f"{SLACK}, by the share of the waiting"
LAUNCH_NS = 5_000.0
"""What a launch takes on the CPU side, at least (Machine Learning Systems: 5 to 10 µs)."""
WAITING = ("WarpStateStats", "SchedulerStats", "SourceCounters", "MemoryWorkloadAnalysis")
"""Sections that tell what warps wait for, and where."""
WORTHWHILE_SHARE = 0.01
"""Of the kernels' time. By Amdahl's law not even removing a smaller kernel shortens the whole by more than that."""


@dataclass(frozen=True, slots=True, eq=False)
class JudgedKernel:
    """A kernel that matters, with the launch that stands for all its calls.

    Attributes:
        share: Of all kernels' time, 0 to 1.
    """

    trace: Trace
    kernels: Kernels
    row: Row
    launch: int
    share: float

    @property
    def name(self) -> str:
        """Its short name."""
        return self.kernels.short_name(self.launch)

    @property
    def row_name(self) -> str:
        """The same with its grid, where others share it."""
        return self.kernels.row_name(self.row)

    @property
    def facts(self) -> KernelFacts:
        """What the report says of it."""
        return self.kernels.facts(self.launch)

    @property
    def metrics(self) -> Counters:
        """Its counters."""
        return self.kernels.metrics(self.launch)

    @property
    def kind(self) -> KernelKind:
        """What its name says."""
        return self.kernels.kind(self.launch)

    @property
    def verdict(self) -> Verdict | None:
        """Its bound; None where it is not known."""
        bound = self.facts.bound
        return None if isinstance(bound, Unknown) else bound

    @property
    def is_starved(self) -> bool:
        """Whether schedulers lack ready warps, as far as is known: stalls cost nothing where they do not."""
        stalls = self.facts.stalls
        return isinstance(stalls, Unknown) or stalls.starved is not False

    @property
    def is_small_grid(self) -> bool:
        """Whether the grid is the reason for whatever little it loads: below one wave of blocks, and latency-bound.

        Where every SM has a block it is not, if each warp waits for its own previous instruction: that chain is the
        reason; and nothing says so, if nobody has counted what the warps of a kernel wait for that lasts.
        """
        waves, verdict = self.facts.waves, self.verdict
        if verdict is None or verdict.bound is not Bound.LATENCY or not isinstance(waves, float) or waves >= 1:
            return False
        blocks, sms = self.counter(c.GRID_SIZE), sm_count(self.metrics, find_gpu(self.kernels.gpu))
        if blocks is None or sms is None or blocks < sms:
            return True
        if isinstance(self.facts.stalls, Unknown):
            return self.row.mean_ns < LAUNCH_NS
        return self.stalled(*OWN_INSTRUCTIONS) < _MOST_OF_THE_WAITING

    @property
    def is_chained(self) -> bool:
        """Whether all its launches are steps of chains that could be one kernel, which another finding is about."""
        chained = chained_launches(self.trace)
        return all(map(chained.__getitem__, self.row.launches))

    @property
    def is_of_launches(self) -> bool:
        """Whether the size or the number of its launches is the reason, not what it does: others speak of that."""
        return self.is_small_grid or self.is_chained

    def counter(self, name: str) -> float | None:
        """One counter's value."""
        return number(self.metrics, name)

    def stalled(self, *reasons: str) -> float:
        """The share of all waiting that has these reasons; 0 where stalls were not collected, or cost nothing."""
        stalls = self.facts.stalls
        if isinstance(stalls, Unknown) or not self.is_starved:
            return 0.0
        return sum(share for reason, share in stalls.shares if reason in reasons)

    def is_held_up(self, share: float) -> bool:
        """Whether waiting, of which this share of all is for one thing, is what limits it.

        So it is of a kernel that is latency-bound. Somewhat above that it may be either: of code that can be changed it
        is the waiting where most of it is for one thing, and schedulers have nothing to issue.
        """
        verdict = self.verdict
        if verdict is None or verdict.bound is Bound.LATENCY:
            return verdict is not None
        return verdict.busiest < _FAIR_USE_PERCENT and share >= _MOST_OF_THE_WAITING and not self.kind.library

    @property
    def slack_ns(self) -> float:
        """Time that would be saved if its busiest unit were at what is called high use; 0 where none is known."""
        verdict = self.verdict
        used = 1.0 if verdict is None else verdict.busiest / HIGH_USE_PERCENT
        return self.row.total_ns * max(0.0, 1.0 - used)

    @property
    def time(self) -> str:
        """Evidence: how much time it takes."""
        calls = "1 call" if self.row.calls == 1 else f"{self.row.calls} calls"
        return f"{duration(self.row.total_ns)} in {calls}, {percent(100 * self.share)} of the kernels' time"

    def again(self, *sections: str) -> str:
        """The command that collects these sections of this launch; empty where the report has them all."""
        return counting.of_launch(self.trace, self.launch, sections)[0]


def heavy(trace: Trace, least: float = WORTHWHILE_SHARE, *, counted: bool = True) -> Iterator[JudgedKernel]:
    """Kernels with at least this share of the time, the heaviest first.

    Args:
        trace: Any capture.
        least: Of the kernels' time.
        counted: Only of captures that have counters; else of timelines too.
    """
    if counted and not has_counters(trace):
        return
    for judged in _judged(trace):
        if judged.share < least:
            return
        yield judged


@lru_cache(maxsize=4)
def _judged(trace: Trace) -> tuple[JudgedKernel, ...]:
    """Kept, so that what is found out about one is found out once."""
    kernels = kernels_of(trace)
    shares = [(row, kernels.share(row.total_ns)) for row in kernels.groups()]
    return tuple(
        JudgedKernel(trace, kernels, row, kernels.middle(row), share) for row, share in shares if share is not None
    )


@frozen
class Claim:
    """What a rule says of one kernel.

    Attributes:
        what: What is wrong, with its number.
        action: What to do; kernels that are told the same stand in one finding.
        at_stake_ns: Time of all its calls that the evidence says can be saved at most.
        basis: What that was computed from, in words that hold for every kernel that is told the same.
        sections: What the next command is to collect.
        advice: Identifiers of the profiler's own rules that speak of the same.
    """

    judged: JudgedKernel
    what: str
    action: str
    at_stake_ns: float
    basis: str
    evidence: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def is_worthwhile(self) -> bool:
        """Whether acting on it could shorten the whole by a percent."""
        return stakes.share(self.judged.trace, self.at_stake_ns) >= WORTHWHILE_SHARE


_SHOWN = 4


def claims_of(kernels: Iterable[JudgedKernel], judge: Callable[[JudgedKernel], Claim | None]) -> list[Claim]:
    """What a rule says of those kernels that it has something to say of."""
    return [claim for judged in kernels if (claim := judge(judged)) is not None]


def findings(rule: str, source: str, claims: Iterable[Claim], several: str) -> Iterator[Finding]:
    """One finding for the kernels that are told to do the same; its time at stake is that of all of them.

    Args:
        rule: The rule's id.
        source: Where it comes from.
        claims: At most one of a kernel.
        several: What is wrong with several kernels, in a few words.
    """
    by_action: defaultdict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_action[claim.action].append(claim)
    for same in by_action.values():
        same.sort(key=lambda claim: -claim.at_stake_ns)
        first, trace = same[0], same[0].judged.trace
        at_stake_ns = stakes.on_each_gpu(trace, sum(claim.at_stake_ns for claim in same))
        share = sum(claim.judged.share for claim in same)
        is_one = len(same) == 1
        yield Finding(
            rule=rule,
            severity=stakes.severity(trace, at_stake_ns),
            subject=subject_of([claim.judged.name for claim in same]),
            message=first.what if is_one else f"{several}: {percent(100 * share)} of the kernels' time",
            evidence=(*_evidence(same), *_stake(trace, at_stake_ns, same)),
            action=first.action,
            next_command=first.judged.again(*first.sections),
            source=source,
            at_stake_ns=at_stake_ns,
            parts=() if is_one else tuple(dict.fromkeys(claim.judged.name for claim in same)),
        )


def subject_of(names: Sequence[str]) -> str:
    """What a finding about these is about; kernels of one name differ by their grids.

    >>> subject_of(["gemm"]), subject_of(["gemm", "gemm"]), subject_of(["gemm", "norm", "gemm"])
    ('gemm', 'gemm x 2', '3 kernels')
    """
    if len(set(names)) > 1:
        return f"{len(names)} kernels"
    return names[0] if len(names) == 1 else f"{names[0]} x {len(names)}"


def _stake(trace: Trace, at_stake_ns: float, same: list[Claim]) -> Iterator[str]:
    if at_stake_ns:
        yield stakes.in_words(trace, at_stake_ns, f"{_basis(same)}{stakes.mean(trace)}")


def _basis(claims: list[Claim]) -> str:
    return " or ".join(dict.fromkeys(claim.basis for claim in claims if claim.at_stake_ns))


def _evidence(claims: list[Claim]) -> Iterator[str]:
    if len(claims) == 1:
        claim = claims[0]
        yield claim.judged.time
        yield from claim.evidence
        yield from _hot_line(claim.judged)
        yield from tool_says(claim.judged, claim.advice)
        return
    for claim in claims[:_SHOWN]:
        yield f"{claim.judged.row_name}: {claim.what}; {claim.judged.time}"
    if len(claims) > _SHOWN:
        yield f"and {len(claims) - _SHOWN} more"
    yield from (f"{claims[0].judged.row_name}: {said}" for said in _hot_line(claims[0].judged))


def _hot_line(judged: JudgedKernel) -> Iterator[str]:
    """Where in its code the kernel waits, unless it is its launches that cost."""
    said = "" if judged.is_of_launches else hot_line(judged.trace, judged.launch)
    if said:
        yield said


def tool_says(judged: JudgedKernel, rules: tuple[str, ...]) -> Iterator[str]:
    """What the profiler's own rules on the same say: its estimate, as evidence, where it is worth a look."""
    for name, estimate in tool_estimates(judged, rules):
        if estimate >= 100 * WORTHWHILE_SHARE:
            yield f"{name}: up to {percent(estimate)} of this kernel (estimate of ncu)"


def tool_estimates(judged: JudgedKernel, rules: tuple[str, ...]) -> list[tuple[str, float]]:
    """(name, percent of the kernel's time) of those rules that estimate a global speedup, the largest first."""
    details = judged.kernels.table.details
    results = () if details is None else details.rules(judged.launch)
    estimates = [
        (result.advised, max(percents))
        for result in results
        if result.id in rules and (percents := [amount for kind, amount in result.speedups if kind == "global"])
    ]
    return sorted(estimates, key=lambda estimate: -estimate[1])


def at_most(judged: JudgedKernel, at_stake_ns: float, basis: str, rules: tuple[str, ...]) -> tuple[float, str]:
    """A stake and its basis, or the profiler's own estimate of the same (its largest) where that is smaller."""
    estimates = tool_estimates(judged, rules)
    estimated_ns = judged.row.total_ns * estimates[0][1] / 100 if estimates else at_stake_ns
    return (estimated_ns, "the profiler's own estimate") if estimated_ns < at_stake_ns else (at_stake_ns, basis)


BUSY = "how much of the time it uses the memory system or waits for it"
"""The second factor of a stake of `busy_share`."""


def busy_share(judged: JudgedKernel) -> float:
    """How much of what the memory system can do the kernel uses, 0 to 1; how much it waits for it where that is more.

    Traffic that is saved shortens a kernel no more than it is held up by traffic.
    """
    verdict = judged.verdict
    used = 0.0 if verdict is None else verdict.memory / 100
    return min(1.0, max(used, judged.stalled(*_OF_MEMORY)))


def occupancy_text(judged: JudgedKernel) -> str:
    """Achieved and theoretical occupancy, as evidence."""
    occupancy, limit = judged.facts.occupancy, judged.counter(c.THEORETICAL_OCCUPANCY_PERCENT)
    achieved = "not collected" if isinstance(occupancy, Unknown) else percent(occupancy)
    return (
        f"occupancy {achieved} of {'an unknown limit' if limit is None else percent(limit)} that its launch "
        "allows (ncu)"
    )
