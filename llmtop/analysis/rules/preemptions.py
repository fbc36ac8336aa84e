"""How many requests are thrown out of the KV cache, beside how many end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.rules.evidence import WINDOW_NS
from llmtop.analysis.series.readings import counter_increase, source
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Metric, Trace, TrackId, Unknown

if TYPE_CHECKING:
    from llmtop.analysis.series.rates import Increase

_WINDOW_NS = 60 * NS_PER_S
"""Preemptions come in bursts: a minute catches them."""
_LEAST = 3.0
"""Requests: one that did not fit is an accident."""
_MOST_OFTEN = 1 / 3
"""Thrown out for each request that ended, from which it is the server's trouble and not one beside others: a queue in
front of an engine that is short of CPUs fills the cache too, and a tenth of its requests was seen thrown out."""


@frozen
class Preempted:
    """Requests thrown out in the last minute.

    Attributes:
        counted: How many.
        ended: How many ended in that time; None where that is not told.
        is_now: Whether some were within the window that verdicts are about.
        evidence: Both with their sources, a line each.
    """

    counted: Increase
    ended: Increase | None
    is_now: bool
    evidence: tuple[str, ...]

    @property
    def is_going_on(self) -> bool:
        """Whether it is more than an accident, and not over."""
        return self.is_now and self.counted.amount >= _LEAST

    @property
    def share(self) -> float | None:
        """Of the requests that ended; None where their number is not told, or none ended."""
        return self.counted.amount / self.ended.amount if self.ended is not None and self.ended.amount else None

    @property
    def is_much(self) -> bool:
        """Whether it is what the server does, and not a thing beside others; so too where nothing tells otherwise."""
        return self.is_going_on and (self.share is None or self.share >= _MOST_OFTEN)


def preempted(trace: Trace, server: TrackId) -> Preempted | Unknown:
    """What a server's counter of preemptions says, or why it says nothing."""
    counted = counter_increase(trace, server, v.SERVER_PREEMPTIONS, _WINDOW_NS)
    now = counter_increase(trace, server, v.SERVER_PREEMPTIONS, WINDOW_NS)
    if isinstance(counted, Unknown):
        return counted
    if isinstance(now, Unknown):
        return now
    told = counter_increase(trace, server, v.SERVER_REQUESTS, _WINDOW_NS)
    ended = None if isinstance(told, Unknown) else told
    pairs = ((v.SERVER_PREEMPTIONS, counted), (v.SERVER_REQUESTS, ended))
    evidence = tuple(_says(trace, server, metric, grown) for metric, grown in pairs if grown is not None)
    return Preempted(counted, ended, now.amount > 0, evidence)


def _says(trace: Trace, server: TrackId, metric: Metric, grown: Increase) -> str:
    return f"{metric.title} {grown.amount:.0f} in {grown.seconds:.0f} s ({source(trace, server, metric)})"
