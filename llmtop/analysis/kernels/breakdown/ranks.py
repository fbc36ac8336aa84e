"""The ranks of a run beside each other: their clocks, who waits for whom, who has more to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis.gpus.scaling import scaling_tax
from llmtop.analysis.kernels.communication import communication
from llmtop.analysis.timeline.clock_words import clock_text, clocks_text
from llmtop.frozen import frozen
from llmtop.model import TrackId
from llmtop.units import count, duration, percent

if TYPE_CHECKING:
    from llmtop.analysis.kernels.breakdown.breakdown import TimePart
    from llmtop.model import Trace

_LISTED = 8
"""Ranks whose clocks are told one by one; of more, how far these are apart."""


@frozen
class RankMeeting:
    """How a GPU comes to operations in which several meet.

    Attributes:
        computing_ns: With at least one kernel running that does not communicate.
        operations: Those in which it met others, as far as that can be told.
        waiting_ns: From when it was there to when the last one was.
        exposed_waiting_ns: The part of it in which it computes nothing.
        last: In how many of them it was the last; `waited_for_ns` is what all others waited for it meanwhile.
    """

    computing_ns: int
    operations: int
    waiting_ns: int
    exposed_waiting_ns: int
    last: int
    waited_for_ns: int


@frozen
class ScalingTax:
    """What GPUs lose to there being several of them, as shares of their time, 0 to 1.

        tax = 1 - efficiency of all / efficiency of one alone = exposed communication / time

    A GPU alone would do the same work without communication, and be as efficient in all of its time as it is in what
    is left of it here (Performance Engineering, napkin math 1.5: the scaling tax). That the work of one may be less
    than that of another, which then idles outside of collectives, is not in it.

    Attributes:
        share: Of the time of all GPUs together; `waiting` is the part of it before the last one has come.
    """

    share: float
    waiting: float


def scaling_tax_of(parts: Sequence[TimePart]) -> ScalingTax | None:
    """The tax of the rows by rank; None where fewer than two of them communicate."""
    met = [(part.account, part.met) for part in parts if part.met is not None]
    whole_ns = sum(part.account.gpu_ns for part in parts)
    if len(met) < 2 or not whole_ns:
        return None
    exposed_ns = sum(account.exposed_ns for account, _ in met)
    waiting_ns = sum(one.exposed_waiting_ns for _, one in met)
    return ScalingTax(scaling_tax(whole_ns - exposed_ns, whole_ns), waiting_ns / whole_ns)


@lru_cache(maxsize=2)
def meetings(trace: Trace) -> Mapping[TrackId, RankMeeting]:
    """Of every GPU that communicates."""
    every = communication(trace)
    return {
        one.gpu: RankMeeting(
            one.computing_ns,
            one.matched,
            one.waiting_ns,
            one.exposed_waiting_ns,
            one.last,
            sum(dict(other.waits_for).get(one.gpu, 0) for other in every),
        )
        for one in every
    }


def rank_lines(trace: Trace, parts: Sequence[TimePart]) -> Iterator[str]:
    """What stands with the table of ranks: scaling tax, imbalance, who is waited for, how moments are compared at all.

    Args:
        trace: Any timeline.
        parts: The rows of `Breakdown` by rank.
    """
    if (tax := scaling_tax_of(parts)) is not None:
        yield _taxed(tax, len(parts))
    yield from map("imbalance of {}".format, _imbalance(parts))
    yield from map("waited for: {}".format, _waited_for(parts))
    if len(trace.parts) > _LISTED:
        yield f"clocks: {clocks_text(trace)}"
        return
    for part in trace.parts[1:]:
        yield f"clock of {part.name}: {clock_text(part.clock)}"


def rank_summary(parts: Sequence[TimePart]) -> str:
    """The most important of these in a line."""
    late, tax = max(parts, key=_waited_for_ns), scaling_tax_of(parts)
    taxed = [] if tax is None else [f"scaling tax {percent(100 * tax.share)}"]
    waited = [f"waited for: {late.name}, {duration(ns)}"] if (ns := _waited_for_ns(late)) else []
    return "; ".join([*(said.rpartition(":")[0] + ")" for said in _imbalance(parts)), *waited, *taxed])


def _taxed(tax: ScalingTax, gpus: int) -> str:
    waiting = f", {percent(100 * tax.waiting)} waiting for the last one to come" if tax.waiting else ""
    share = percent(100 * tax.share)
    return f"scaling tax: {share} of the time of {gpus} GPUs is communication that no computation covers{waiting}"


def _waited_for_ns(part: TimePart) -> int:
    return 0 if part.met is None else part.met.waited_for_ns


def _imbalance(parts: Sequence[TimePart]) -> Iterator[str]:
    """How much more the one with most has than the mean: what is left of it the others idle or wait."""
    computes = {part.name: part.met.computing_ns for part in parts if part.met is not None}
    times = computes or {part.name: part.account.busy_ns for part in parts}
    mean = sum(times.values()) / max(1, len(times))
    if len(times) > 1 and mean > 0:
        most = max(times, key=times.__getitem__)
        what = "computing" if computes else "work"
        yield f"{what}: largest / mean {times[most] / mean:.2f} ({most}: {duration(times[most])})"


def _waited_for(parts: Sequence[TimePart]) -> Iterator[str]:
    """Who lets the others wait."""
    total = sum(map(_waited_for_ns, parts))
    late = max(parts, key=_waited_for_ns)
    if late.met is not None and total:
        share = percent(100 * late.met.waited_for_ns / total)
        yield (
            f"{late.name}, last at {count(late.met.last)} of {count(late.met.operations)} collectives; the others "
            f"waited {duration(late.met.waited_for_ns)} for it, {share} of all such waiting"
        )
