"""What rules of live servers have in common: whether one starts, has work, or is slower than it was."""

from __future__ import annotations

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules import requests_outside
from llmtop.analysis.rules.signals import is_awaited, is_starting, no_requests, slower
from llmtop.model import NS_PER_S, Metric, Origin, Series, Trace, Track, TrackId, TrackKind
from tests.analysis.test_rules_live import server, trace
from tests.analysis.verdict_scenes import findings_of

SERVER, ENDPOINT = ids.server(1), ids.endpoint(1)
METRICS, REFUSED, SILENT = v.EndpointAnswer.METRICS, v.EndpointAnswer.REFUSED, v.EndpointAnswer.SILENT


def of(tracks: dict[TrackId, TrackKind], series: dict[tuple[TrackId, Metric], list[float | None]]) -> Trace:
    """A value each second, the last of all now; None where nothing was read."""
    length = max(map(len, series.values()), default=0)
    return Trace(
        Origin("live"), 0, length * NS_PER_S,
        tracks={track: Track(track, kind, str(track)) for track, kind in tracks.items()},
        series={
            (track, metric.name): Series.of(
                track, metric, "test", [(i * NS_PER_S, x) for i, x in enumerate(values, 1) if x is not None]
            )
            for (track, metric), values in series.items()
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "starts"),
    [
        ([REFUSED, REFUSED], True),
        ([REFUSED, SILENT], True),
        ([METRICS, REFUSED], False),
        ([METRICS, METRICS], False),
        ([], False),
    ],
)
def test_a_server_starts_until_it_has_answered_once(answers: list[float | None], starts: bool) -> None:
    seen = of({ENDPOINT: TrackKind.ENDPOINT}, {(ENDPOINT, v.ENDPOINT_ANSWER): answers} if answers else {})
    assert is_starting(seen) is starts
    assert is_awaited(seen) is (not answers)


def test_a_server_that_is_seen_neither_starts_nor_is_awaited() -> None:
    kinds = {ENDPOINT: TrackKind.ENDPOINT, SERVER: TrackKind.SERVER}
    assert not is_starting(of(kinds, {(ENDPOINT, v.ENDPOINT_ANSWER): [REFUSED]}))
    assert not is_awaited(of(kinds, {}))


def test_a_server_is_without_requests_where_it_counts_those_that_wait_and_those_that_run() -> None:
    assert no_requests(trace(server(waiting=0, running=0))) is not None
    assert no_requests(trace(server(waiting=0))) is None
    assert no_requests(trace(server(running=0))) is None
    assert no_requests(trace(server(waiting=0, running=0.1))) is None


def test_fewer_tokens_are_slower_only_where_it_is_known_that_as_many_requests_run() -> None:
    tokens: list[float | None] = [1000.0 * i if i < 75 else 75_000.0 + 100 * (i - 75) for i in range(90)]

    def is_slower(running: list[float | None]) -> bool:
        series = {(SERVER, v.SERVER_OUTPUT_TOKENS): tokens, (SERVER, v.SERVER_RUNNING): running}
        return slower(of({SERVER: TrackKind.SERVER}, series)) is not None

    assert is_slower([8.0] * 90)
    assert is_slower([1.0] * 90)
    assert not is_slower([0.9] * 90)
    assert not is_slower([8.0] * 70 + [None] * 20)
    assert not is_slower([None] * 75 + [8.0] * 15)


@pytest.mark.parametrize(("looks", "is_said"), [([14.0] * 9 + [0.0], True), ([14.0] * 8 + [0.0] * 2, False)])
def test_nine_looks_of_ten_are_all_the_time(looks: list[float], is_said: bool) -> None:
    values = server(running=1, waiting=0) | {(ENDPOINT, v.ENDPOINT_UNANSWERED): looks}
    assert bool(findings_of(requests_outside, trace(values, ticks=10))) is is_said
