"""How old the newest number of a kind of tracks is."""

from __future__ import annotations

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.ages import old_s
from llmtop.model import NS_PER_S, Origin, Series, Trace, Track, TrackKind

NOW_S = 100.0


def trace_of(*newest_s: float | None) -> Trace:
    """Threads whose clocks were read last at these moments, in seconds; None is one that was never read."""
    threads = [ids.thread(1, tid) for tid in range(2, 2 + len(newest_s))]
    read = {
        (track, v.THREAD_ON_CPU.name): Series.of(track, v.THREAD_ON_CPU, "", [(int(t_s * NS_PER_S), 1.0)])
        for track, t_s in zip(threads, newest_s, strict=True)
        if t_s is not None
    }
    tracks = {track: Track(track, TrackKind.THREAD, "worker") for track in threads}
    return Trace(Origin("live"), 0, int(NOW_S * NS_PER_S), tracks=tracks, series=read)


@pytest.mark.parametrize(
    ("newest_s", "expected"),
    [
        pytest.param((), 0.0, id="none"),
        pytest.param((None, None), 0.0, id="never read"),
        pytest.param((90.0, 98.0, 80.0), 0.0, id="one of now, at the limit of two intervals"),
        pytest.param((90.0, 97.9, 80.0), 2.1, id="all old: the newest counts"),
        pytest.param((None, 97.0), 3.0, id="of those that were read"),
    ],
)
def test_the_age_of_a_kind_is_that_of_its_newest_number(newest_s: tuple[float | None, ...], expected: float) -> None:
    assert old_s(trace_of(*newest_s), TrackKind.THREAD) == pytest.approx(expected)
