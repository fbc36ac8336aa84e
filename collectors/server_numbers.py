"""What a page tells of a server: a reading of each number of the vocabulary, or why it has none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop import whats
from llmtop.collectors.exposed_values import read_values
from llmtop.collectors.impossible_values import FALLS, above_all
from llmtop.frozen import frozen
from llmtop.model import Issue, Metric, Missing, Reading, Severity, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from llmtop.collectors.exposed_values import Values
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


@frozen
class ServerNumbers:
    """What a page tells, of the time at which it came; what is missed of it, and what of it cannot be."""

    readings: tuple[Reading, ...]
    missing: tuple[Missing, ...]
    issues: tuple[Issue, ...] = ()


def server_numbers(scrape: Scrape, track: TrackId) -> ServerNumbers:
    """All that the vocabulary has of a server; a value that cannot be is none, with the reason."""
    engine, t_ns = scrape.connection.engine, scrape.t_ns
    page, unread = _read(scrape)
    connection = scrape.connection
    above = above_all(page, connection.url)
    impossible = above | connection.counter_falls.fallen(page, t_ns)
    readings: list[Reading] = []
    for metric, values in page.items():
        why = impossible.get(metric)
        readings += (Reading(track, each, t_ns, None if why else value, source) for each, value, source in values)
        if why is not None or values[0][1] is None:
            unread[metric] = why or _no_value(values[0][2])
        elif (ended := v.ENDED.get(metric)) is not None and values[0][0] is ended:
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
    return ServerNumbers(
        tuple(readings), tuple(missing), tuple(_issues(above, are_falling=connection.counter_falls.are_falling))
    )


def _read(scrape: Scrape) -> tuple[dict[Metric, Values], dict[Metric, Unknown]]:
    """What the page says of each number, and why it says nothing of the others."""
    page: dict[Metric, Values] = {}
    unread: dict[Metric, Unknown] = {}
    for metric in _ALL:
        read = read_values(scrape.connection.engine, metric, scrape.exposition)
        if not isinstance(read, Unknown):
            page[metric] = read
        elif metric not in v.SERVER_OPTIONAL:
            unread[metric] = read
    return page, unread


def _no_value(name: str) -> Unknown:
    return Unknown(f"{name} is NaN or below 0", "its server writes that where it has none")


def _issues(above: Iterable[Metric], *, are_falling: bool) -> Iterable[Issue]:
    """One of each kind, whatever the numbers are: faults are counted by their words."""
    for metric in above:
        yield Issue(Severity.WARNING, "metrics-impossible", f"{metric.title} of the server's metrics is above 100 %")
    if are_falling:
        yield Issue(Severity.WARNING, "metrics-fall", FALLS)


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
