"""Rounds of the GPU's work as series, a sample a round: see `vocabulary.THREAD_ROUND`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.collectors.tracing.wire import GpuRound
from llmtop.model import Metric, Reading, TrackId
from llmtop.vocabulary import RoundPart

_PARTS = {
    "wait": v.labelled(v.THREAD_ROUND, RoundPart.WAIT),
    "launches": v.ROUND_LAUNCHES,
    "graphs": v.ROUND_GRAPHS,
    "faults": v.ROUND_FAULTS,
    "queued": v.labelled(v.THREAD_ROUND, RoundPart.QUEUE),
    "locked": v.labelled(v.THREAD_ROUND, RoundPart.LOCK),
    "for_input": v.labelled(v.THREAD_ROUND, RoundPart.INPUT),
    "asleep": v.labelled(v.THREAD_ROUND, RoundPart.ASLEEP),
    "allocation": v.labelled(v.THREAD_ROUND, RoundPart.ALLOCATION),
    "copy": v.labelled(v.THREAD_ROUND, RoundPart.COPY),
    "collection": v.labelled(v.THREAD_ROUND, RoundPart.COLLECTION),
}
"""By the field of a `GpuRound`."""
_PLACES = tuple((GpuRound._fields.index(name), metric) for name, metric in _PARTS.items())


class RoundSeries:
    """Turns rounds into readings, and leaves out what is 0 most of the time.

    Args:
        source: What the readings are said to come from.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._is_known: dict[tuple[TrackId, Metric], bool] = {}
        """Whether the last round told of it; none of what no round has told of yet."""

    def readings(self, rounds: Iterable[GpuRound]) -> Iterator[Reading]:
        """Those of rounds, in their order."""
        for one in rounds:
            track = ids.thread(one.pid, one.tid)
            yield Reading(track, v.THREAD_ROUND, one.end, float(one.ns), self._source)
            for place, metric in _PLACES:
                value = one[place]
                is_known = self._is_known.get((track, metric), False)
                if value or is_known is (value is None):
                    self._is_known[track, metric] = value is not None
                    yield Reading(track, metric, one.end, None if value is None else float(value), self._source)

    def forget(self, gone: set[TrackId]) -> None:
        """Drop the tracks that have ended."""
        self._is_known = {key: known for key, known in self._is_known.items() if key[0] not in gone}
