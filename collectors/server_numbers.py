"""What a page tells of a server: a reading of each number of the vocabulary, or why it has none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop import whats
from llmtop.collectors.exposed_values import read_values
from llmtop.model import Metric, Missing, Reading, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from llmtop.collectors.scraper import Scrape
    from llmtop.model import TrackId

_SAME_IN_OTHER_WORDS = {
    v.SERVER_PREFIX_HIT_RATE: v.SERVER_PREFIX_HITS,
    v.SERVER_PREFIX_HITS: v.SERVER_PREFIX_HIT_RATE,
    v.SERVER_PREFIX_QUERIES: v.SERVER_PREFIX_HIT_RATE,
    v.SERVER_OUTPUT_RATE: v.SERVER_OUTPUT_TOKENS,
}
"""Not missed where the other is there: servers have counters or a rate."""
_ALL = tuple(
    m for m in vars(v).values() if isinstance(m, Metric) and m.name.startswith("server.") and m not in v.ENDED.values()
)


def server_numbers(scrape: Scrape, track: TrackId) -> tuple[list[Reading], tuple[Missing, ...]]:
    """What a page tells, of the time at which it came; and what is missed of it."""
    engine, t_ns = scrape.connection.engine, scrape.t_ns
    readings: list[Reading] = []
    unread: dict[Metric, Unknown] = {}
    for metric in _ALL:
        read = read_values(engine, metric, scrape.exposition)
        if isinstance(read, Unknown):
            if metric not in v.SERVER_OPTIONAL:
                unread[metric] = read
        else:
            readings += (Reading(track, each, t_ns, value, source) for each, value, source in read)
            if (ended := v.ENDED.get(metric)) is not None and read[0][0] is ended:
                unread[metric] = Unknown(f"{engine.title} counts a request's {metric.title} when it ends, at once")
    for metric, running in _of_slots(scrape, readings, unread):
        if isinstance(running, Unknown):
            unread[metric] = running
        else:
            unread.pop(metric, None)
            readings.append(Reading(track, metric, t_ns, running, f"{engine.title} {engine.slots_path}"))
    missing = (
        Missing(whats.reading(track, metric), why)
        for metric, why in unread.items()
        if _SAME_IN_OTHER_WORDS.get(metric, metric) in unread
    )
    return readings, tuple(missing)


def _of_slots(
    scrape: Scrape, readings: Sequence[Reading], unread: Mapping[Metric, Unknown]
) -> Iterable[tuple[Metric, float | Unknown]]:
    """What the requests that run add to counters that know only of those that ended."""
    ended = next((each.value for each in readings if each.metric is v.SERVER_OUTPUT_TOKENS_ENDED), None)
    slots = scrape.slots
    if slots is None or ended is None:
        return
    if isinstance(slots, Unknown):
        why = unread[v.SERVER_OUTPUT_TOKENS].reason
        yield v.SERVER_OUTPUT_TOKENS, replace(slots, reason=f"{why}, and {slots.reason}")
        return
    yield v.SERVER_OUTPUT_TOKENS, scrape.connection.running.count(ended, slots.decoded)
    if slots.context is not None:
        yield v.SERVER_CONTEXT, float(slots.context)
        yield v.SERVER_CONTEXT_FILLED, float(scrape.connection.filled.count(slots.full))
