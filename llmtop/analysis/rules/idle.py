"""What the rules on a timeline's idle time share: whose it is, how much is at stake, and how a finding says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmtop.analysis.idle_time.account import NOT_TRACED, GpuIdle, IdlePart, idle_account
from llmtop.analysis.idle_time.causes import TITLES, Cause
from llmtop.analysis.idle_time.view import merged
from llmtop.analysis.idle_time.work import gpu_title, gpu_titles
from llmtop.analysis.rules import stakes
from llmtop.model import Finding, Severity
from llmtop.units import count, duration, percent

if TYPE_CHECKING:
    from llmtop.model import Trace

SOURCE = "Machine Learning Systems, Performance Engineering (a timeline's gaps and what they say)"
_FOUND_SHARE = 0.02
"""Of the capture: what is less is in the account, and no finding. Ours."""
_ALIKE = 0.5
"""GPUs with so much of what the worst one has are named with it."""
_PARTS = 4
_RANGES = 3
_OTHERS = 3
_TOLD_SHARE = 0.01
"""Of what a finding is about: parts below it are not evidence."""


def culprit(part: IdlePart) -> Cause:
    """What to change for this idle time.

    That a launch takes its time costs only where the GPU has nothing left to do. Had a call waited until it ran dry,
    that call is why; else launches follow each other more slowly than kernels end, with whatever the thread does on
    the way from one to the next.
    """
    is_on_the_way = part.is_short and (part.cause in (Cause.OWN_CODE, Cause.CALL) or part.name == NOT_TRACED)
    if part.cause in (Cause.LAUNCH, Cause.LATENCY) or is_on_the_way:
        return part.drained_by or Cause.LAUNCH
    return part.cause


@dataclass(frozen=True, slots=True)
class Stake:
    """Idle time with one culprit, on the GPU that loses most to it.

    Attributes:
        parts: By cause and name, the largest first, together `ns`; `details` are the same as the account has them.
        others: Further GPUs, and what they lose to it.
    """

    gpu: GpuIdle
    ns: int
    parts: tuple[IdlePart, ...]
    details: tuple[IdlePart, ...]
    others: tuple[tuple[str, int], ...]

    @property
    def subject(self) -> str:
        """The GPU, with those that lose about as much."""
        return gpu_titles([self.gpu.gpu, *(gpu for gpu, ns in self.others if ns >= _ALIKE * self.ns)])

    @property
    def is_once(self) -> bool:
        """Whether all of it lies in one gap: a start or a hiccup, not what every step costs."""
        return all(part.gaps == 1 for part in self.parts) and len(self.parts) == 1

    @property
    def drained_ns(self) -> int:
        """The part in gaps that began as the GPU ran dry under a call that waited for it."""
        return sum(part.ns for part in self.details if part.drained_by is not None)


def stake(trace: Trace, belongs: Callable[[IdlePart], bool]) -> Stake | None:
    """The idle time that `belongs` to something; None where it is too little for a finding."""
    lost = []
    for gpu in idle_account(trace).gpus:
        details = tuple(part for part in gpu.parts if belongs(part))
        lost.append((sum(part.ns for part in details), gpu, details))
    lost.sort(key=lambda one: -one[0])
    if not lost or stakes.share(trace, lost[0][0]) < _FOUND_SHARE:
        return None
    ns, gpu, details = lost[0]
    others = tuple((other.gpu, amount) for amount, other, _ in lost[1:] if amount)
    return Stake(gpu, ns, merged(details, by_name=True), details, others)


def finding(
    trace: Trace,
    lost: Stake,
    *,
    rule: str,
    message: str,
    action: str,
    evidence: Iterable[str] = (),
    next_command: str = "",
    source: str = SOURCE,
    severity: Severity | None = None,
) -> Finding:
    """A finding on idle time: a warning by its share of the capture, unless it came but once."""
    usual = Severity.INFO if lost.is_once else stakes.severity(trace, lost.ns)
    share = percent(100 * stakes.share(trace, lost.ns))
    return Finding(
        rule=rule,
        severity=severity or usual,
        subject=lost.subject,
        message=f"idle {share} of the capture{', in one gap' if lost.is_once else ''}: {message}",
        evidence=(*evidence, *_evidence(lost), stakes.in_words(trace, lost.ns, "all of this idle time")),
        action=action,
        next_command=next_command,
        source=source,
        at_stake_ns=lost.ns,
    )


def called(part: IdlePart) -> str:
    """A part by its cause and name: "copy call cudaMemcpyAsync"."""
    return f"{TITLES[part.cause]} {part.name}".rstrip()


def _evidence(lost: Stake) -> Iterator[str]:
    told = [part for part in lost.parts[:_PARTS] if part.ns >= _TOLD_SHARE * lost.ns]
    for part in told:
        gaps = "1 gap" if part.gaps == 1 else f"{count(part.gaps)} gaps, the longest {duration(part.longest_ns)}"
        yield f"{called(part)}: {duration(part.ns)} in {gaps} (nsys)"
    rest_ns = lost.ns - sum(part.ns for part in told)
    if rest_ns >= _TOLD_SHARE * lost.ns:
        yield f"{len(lost.parts) - len(told)} further causes: {duration(rest_ns)} (nsys)"
    ranges: Counter[str] = Counter()
    for part in lost.details:
        ranges.update(dict(part.ranges))
    shown = [f"{name} {duration(ns)}" for name, ns in ranges.most_common(_RANGES) if ns >= _TOLD_SHARE * lost.ns]
    if shown:
        yield f"of the calls, by NVTX range: {', '.join(shown)}"
    if lost.others:
        yield f"{of_others(lost.others)} (nsys)"


def of_others(others: Sequence[tuple[str, int]]) -> str:
    """What further GPUs have, the one with most first: each alone, or of many the most and the least.

    >>> of_others([("gpu:1", 2000), ("gpu:0", 1000)])
    'GPU 1: 2.00 µs, GPU 0: 1.00 µs'
    """
    if len(others) <= _OTHERS:
        return ", ".join(f"{gpu_title(gpu)}: {duration(ns)}" for gpu, ns in others)
    least, most = duration(others[-1][1]), duration(others[0][1])
    return f"{gpu_titles(gpu for gpu, _ in others)}: {most if least == most else f'{least} to {most}'}"
