"""The ranks of a run beside each other: their clocks, who waits for whom, who has more to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.communication import communication
from llmtop.analysis.timeline.clock_words import clock_text
from llmtop.analysis.timeline.work import gpu_title
from llmtop.model import ClockFit, TrackId
from llmtop.units import count, duration, percent

if TYPE_CHECKING:
    from llmtop.analysis.pages.breakdown import TimePart
    from llmtop.model import Trace

_LISTED = 8


@dataclass(frozen=True, slots=True)
class RankMeeting:
    """How a GPU comes to operations in which several meet.

    Attributes:
        computing_ns: With at least one kernel running that does not communicate.
        operations: Those in which it met others, as far as that can be told.
        waiting_ns: From when it was there to when the last one was.
        last: In how many of them it was the last; `waited_for_ns` is what all others waited for it meanwhile.
    """

    computing_ns: int
    operations: int
    waiting_ns: int
    last: int
    waited_for_ns: int


@lru_cache(maxsize=2)
def meetings(trace: Trace) -> Mapping[TrackId, RankMeeting]:
    """Of every GPU that communicates."""
    every = communication(trace)
    return {
        one.gpu: RankMeeting(
            one.computing_ns,
            one.matched,
            one.waiting_ns,
            one.last,
            sum(dict(other.waits_for).get(one.gpu, 0) for other in every),
        )
        for one in every
    }


def rank_lines(trace: Trace, parts: tuple[TimePart, ...]) -> Iterator[str]:
    """What stands with the table of ranks: imbalance, who is waited for, and how moments are compared at all.

    Args:
        trace: Any timeline.
        parts: The rows of `Breakdown` by rank.
    """
    met = meetings(trace)
    works = {part.name: part.account.busy_ns for part in parts}
    computes = {gpu_title(gpu): one.computing_ns for gpu, one in met.items()}
    yield from _imbalance("computing", computes) if computes else _imbalance("at work", works)
    yield from _waited_for(met)
    for part in trace.parts[1:] if len(trace.parts) <= _LISTED else ():
        yield f"clock of {part.name}: {clock_text(part.clock)}"
    if len(trace.parts) > _LISTED:
        yield f"clocks: {_in_short(trace)}"


def _imbalance(what: str, times: Mapping[str, int]) -> Iterator[str]:
    """How much more the one with most has than the mean: what is left of it the others idle or wait."""
    mean = sum(times.values()) / max(1, len(times))
    if len(times) > 1 and mean > 0:
        most = max(times, key=times.__getitem__)
        yield f"imbalance of {what}: largest / mean {times[most] / mean:.2f} ({most}: {duration(times[most])})"


def _waited_for(met: Mapping[TrackId, RankMeeting]) -> Iterator[str]:
    """Who lets the others wait."""
    total = sum(one.waited_for_ns for one in met.values())
    if not total:
        return
    gpu, worst = max(met.items(), key=lambda pair: pair[1].waited_for_ns)
    share = percent(100 * worst.waited_for_ns / total)
    yield (
        f"waited for: {gpu_title(gpu)}, last at {count(worst.last)} of {count(worst.operations)} collectives; the "
        f"others waited {duration(worst.waited_for_ns)} for it, {share} of all such waiting"
    )


def _in_short(trace: Trace) -> str:
    """Of many files: how many have a clock that can be compared, and how near at worst."""
    fits = [part.clock for part in trace.parts[1:]]
    known = [fit for fit in fits if isinstance(fit, ClockFit) and fit.is_comparable]
    worst = max((fit.residual_ns or 0.0 for fit in known), default=0.0)
    return (
        f"{len(known)} of {len(fits)} by collectives, whose ends are then up to {duration(worst)} apart in the median"
    )
