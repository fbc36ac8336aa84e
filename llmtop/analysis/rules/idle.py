"""What the rules on a timeline's idle time share: whose it is, how much is at stake, and how a finding says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from llmtop.analysis.commands import profiling
from llmtop.analysis.rules import stakes
from llmtop.analysis.timeline.account import AFTER, GpuAccount, IdlePart, idle_account
from llmtop.analysis.timeline.causes import TITLES, Cause
from llmtop.analysis.timeline.idle_view import merged
from llmtop.analysis.timeline.sums import NOT_TRACED
from llmtop.analysis.timeline.work import gpu_title, gpu_titles
from llmtop.frozen import frozen
from llmtop.model import Finding, IdleTime, Severity, TrackId
from llmtop.units import count, duration, percent

if TYPE_CHECKING:
    from llmtop.model import Trace

SOURCE = "Machine Learning Systems, Performance Engineering (a timeline's gaps and what they say)"
_FOUND_SHARE = 0.02
"""Of the capture: what is less is in the account, and no finding. Ours."""
_ALIKE = 0.5
"""GPUs with so much of what the worst one has are named with it, and any with enough for a finding of its own."""
_PARTS = 4
"""Parts of the idle time that are evidence, the largest first."""
_RANGES = 3
"""Ranges that are named."""
_OTHERS = 3
"""Lines of further GPUs, those that share a cause in one."""
_ONCE = 0.95
"""Of the time, in one gap: from here on it came once. Ours."""
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


def largest(gpu: GpuAccount) -> Cause | None:
    """The culprit of most of a GPU's idle time; None where most lies before its first and after its last work."""
    by_culprit: Counter[Cause | None] = Counter()
    for part in gpu.parts:
        by_culprit[None if part.is_start or part.name == AFTER else culprit(part)] += part.ns
    return max(by_culprit, key=by_culprit.__getitem__, default=None)


@frozen
class Loss:
    """Idle time with one culprit, on one GPU.

    Attributes:
        parts: By cause and name, the largest first, together `ns`; `details` are the same as the account has them.
    """

    gpu: GpuAccount
    ns: int
    parts: tuple[IdlePart, ...]
    details: tuple[IdlePart, ...]

    @property
    def drained_ns(self) -> int:
        """The part in gaps that began as the GPU ran dry under a call that waited for it."""
        return sum(part.ns for part in self.details if part.drained_by is not None)


@frozen
class Stake:
    """Idle time with one culprit, on all GPUs that lose any to it.

    Attributes:
        worst: The GPU that loses most.
        named: The GPUs that a finding is about, the worst first: all that lose enough for one, or about as much.
        others: Further ones.
    """

    worst: Loss
    named: tuple[Loss, ...]
    others: tuple[Loss, ...]

    @property
    def subject(self) -> str:
        """The GPUs that it is about."""
        return gpu_titles(loss.gpu.gpu for loss in self.named)

    @property
    def together(self) -> tuple[IdlePart, ...]:
        """The parts of all of these, by cause and name, the largest first."""
        return merged((part for loss in self.named for part in loss.details), by_name=True)

    @property
    def is_once(self) -> bool:
        """Whether nearly all of it lies in one gap of each: a hiccup, not what every step costs."""
        return all(max(part.longest_ns for part in loss.parts) >= _ONCE * loss.ns for loss in self.named)


def stake(trace: Trace, belongs: Callable[[IdlePart], bool], *, of_start: bool = False) -> Stake | None:
    """The idle time that `belongs` to something; None where it is too little for a finding.

    The time before the first work comes once: what a program does there, such as creating its context, is no cost that
    recurs. It is left out, unless it is what is asked for.
    """
    losses = []
    for gpu in idle_account(trace).gpus:
        details = tuple(part for part in gpu.parts if belongs(part) and (of_start or not part.is_start))
        ns = sum(part.ns for part in details)
        if ns:
            losses.append(Loss(gpu, ns, merged(details, by_name=True), details))
    losses.sort(key=lambda loss: -loss.ns)
    if not losses or stakes.share(trace, losses[0].ns) < _FOUND_SHARE:
        return None
    enough = min(_ALIKE * losses[0].ns, _FOUND_SHARE * stakes.capture_ns(trace))
    named = tuple(loss for loss in losses if loss.ns >= enough)
    return Stake(losses[0], named, tuple(losses[len(named) :]))


def finding(
    trace: Trace,
    lost: Stake,
    *,
    rule: str,
    message: str,
    action: str,
    evidence: Iterable[str] = (),
    general: Iterable[str] = (),
    next_command: str = "",
    no_command: str = "",
    basis: str | None = "all of this idle time",
    source: str = SOURCE,
    severity: Severity | None = None,
) -> Finding:
    """A finding on idle time: a warning by its share of the capture, unless it came but once.

    `evidence` is of the GPU that loses most, `general` of none; without a `basis` nothing is at stake. Without a
    command or a reason for that, it is the one that collects what threads do, if the capture lacks any of this.
    """
    if not next_command and not no_command:
        next_command, no_command = profiling.of_threads(trace)
    return Finding(
        rule=rule,
        severity=severity or (Severity.INFO if lost.is_once else stakes.severity(trace, lost.worst.ns)),
        subject=lost.subject,
        message=f"idle {_amounts(trace, lost)}{_in_one_gap(lost)}: {message}",
        evidence=(
            *general,
            *(f"{_whose(lost)}{one}" for one in (*evidence, *_evidence(lost.worst, trace.origin.range_term))),
            *_of_others(lost),
            *_stake(trace, lost, basis),
        ),
        action=action,
        next_command=next_command,
        no_command=no_command,
        source=source,
        at_stake_ns=lost.worst.ns if basis else None,
        idle=IdleTime(lost.worst.gpu.gpu, tuple((part.cause, part.name) for part in lost.worst.parts)),
    )


def _in_one_gap(lost: Stake) -> str:
    if not lost.is_once:
        return ""
    is_all = all(len(loss.parts) == 1 and loss.parts[0].gaps == 1 for loss in lost.named)
    return ", in one gap" if is_all else ", nearly all in one gap"


def _stake(trace: Trace, lost: Stake, basis: str | None) -> Iterator[str]:
    if basis is not None:
        yield stakes.in_words(trace, lost.worst.ns, f"{basis}{_of_whom(lost)}")


def _whose(lost: Stake) -> str:
    """What stands before numbers of one GPU, where the finding is about several."""
    return "" if len(lost.named) == 1 else f"{gpu_title(lost.worst.gpu.gpu)}: "


def _of_whom(lost: Stake) -> str:
    if len(lost.named) == 1:
        return ""
    alike = lost.worst.ns == lost.named[-1].ns
    return " of each GPU" if alike else f" of {gpu_title(lost.worst.gpu.gpu)}, which loses most"


def _amounts(trace: Trace, lost: Stake) -> str:
    """How much of the capture each GPU idles for it; of many the least and the most."""
    shares = [percent(100 * stakes.share(trace, loss.ns)) for loss in lost.named]
    most = f"{shares[0]} of the capture"
    if len(lost.named) == 1:
        return most
    if len(set(shares)) == 1:
        return f"{most} on each"
    titles = [gpu_title(loss.gpu.gpu) for loss in lost.named]
    if len(lost.named) <= _OTHERS:
        rest = (f"{share} on {title}" for share, title in zip(shares[1:], titles[1:], strict=True))
        return f"{most} on {titles[0]}, {', '.join(rest)}"
    return f"{shares[-1]} to {most}, most on {titles[0]}"


def called(part: IdlePart) -> str:
    """A part by its cause and name: "copy call cudaMemcpyAsync"."""
    return f"{TITLES[part.cause]} {part.name}".rstrip()


def _evidence(lost: Loss, range_term: str) -> Iterator[str]:
    told = [part for part in lost.parts[:_PARTS] if part.ns >= _TOLD_SHARE * lost.ns]
    for part in told:
        yield f"{called(part)}: {duration(part.ns)} in {_gaps(part)} (nsys)"
    rest_ns = lost.ns - sum(part.ns for part in told)
    rest = len(lost.parts) - len(told)
    if rest_ns >= _TOLD_SHARE * lost.ns:
        yield f"{rest} further part{'s' * (rest != 1)}: {duration(rest_ns)} (nsys)"
    ranges: Counter[str] = Counter()
    for part in lost.details:
        ranges.update(dict(part.ranges))
    shown = [f"{name} {duration(ns)}" for name, ns in ranges.most_common(_RANGES) if ns >= _TOLD_SHARE * lost.ns]
    if shown:
        yield f"of the calls, by {range_term}: {', '.join(shown)}"


def _gaps(part: IdlePart) -> str:
    return "1 gap" if part.gaps == 1 else f"{count(part.gaps)} gaps, the longest {duration(part.longest_ns)}"


def _of_others(lost: Stake) -> Iterator[str]:
    """What further GPUs lose, and the largest part of that: those that share the latter in one line."""
    alike: dict[str, list[Loss]] = {}
    for loss in (*lost.named[1:], *lost.others):
        alike.setdefault(called(loss.parts[0]), []).append(loss)
    for what, losses in list(alike.items())[:_OTHERS]:
        if len(losses) == 1:
            (loss,) = losses
            largest = f"{duration(loss.parts[0].ns)} in {_gaps(loss.parts[0])}"
            part = f"{what}: {largest}" if len(loss.parts) == 1 else f"the largest part {what}: {largest}"
            yield f"{gpu_title(loss.gpu.gpu)}: {duration(loss.ns)}, {part} (nsys)"
        else:
            pairs = [(loss.gpu.gpu, loss.ns) for loss in losses]
            yield f"{of_others(pairs)}, the largest part {what} (nsys)"
    rest = [(loss.gpu.gpu, loss.ns) for losses in list(alike.values())[_OTHERS:] for loss in losses]
    if rest:
        yield f"{of_others(sorted(rest, key=lambda pair: -pair[1]))} (nsys)"


def of_others(others: Sequence[tuple[TrackId, int]]) -> str:
    """What further GPUs have, the one with most first: each alone, or of many the most and the least.

    >>> of_others([("gpu:1", 2000), ("gpu:0", 1000)])
    'GPU 1: 2.00 µs, GPU 0: 1.00 µs'
    """
    if len(others) <= _OTHERS:
        return ", ".join(f"{gpu_title(gpu)}: {duration(ns)}" for gpu, ns in others)
    least, most = duration(others[-1][1]), duration(others[0][1])
    return f"{gpu_titles(gpu for gpu, _ in others)}: {most if least == most else f'{least} to {most}'}"
