"""Seconds in which a latency was later than promised, within a minute that may have kept it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules import objective_missed
from llmtop.analysis.server.lapses import Lapse, lapses
from llmtop.analysis.server.objectives import judged, judged_now
from llmtop.model import LIVE, NS_PER_S, Reading, Trace, Track, TrackKind
from llmtop.session import Recorder
from tests.analysis.verdict_scenes import findings_of

SERVER = Track(ids.server(1), TrackKind.SERVER, "vLLM :1")
UPPERS = (0.01, 0.05, 0.1, math.inf)
Stalls = Callable[[int], int]


def served(stalls: Stalls, seconds: int = 60, late_s: float = 0.06, restarts_at: int = -1) -> Trace:
    """32 requests, 190 steps a second of 5 ms, of which in second `s` so many take `late_s`: one look a second."""
    recorder, counts, total = Recorder(LIVE), dict.fromkeys(UPPERS, 0.0), 0.0
    for second in range(seconds + 1):
        if second == restarts_at:
            counts, total = dict.fromkeys(UPPERS, 0.0), 0.0
        late = 32.0 * stalls(second) if second else 0.0
        timely = 32.0 * 190 - late if second else 0.0
        for upper in UPPERS:
            counts[upper] += timely + (late if upper >= late_s else 0.0)
        total += timely * 0.005 + late * late_s
        t = (1000 + second) * NS_PER_S
        told = {v.bucket(v.SERVER_ITL, upper): n for upper, n in counts.items()} | {v.total(v.SERVER_ITL): total}
        readings = tuple(Reading(SERVER.id, metric, t, value, "vLLM") for metric, value in told.items())
        recorder.append("test", Trace(LIVE, t, t, tracks={SERVER.id: SERVER}, readings=readings))
    return recorder.freeze()


def found(trace: Trace) -> tuple[Lapse, ...]:
    return lapses(trace, SERVER.id, v.SERVER_ITL, 0.05, 0.01, 60 * NS_PER_S)


def said(trace: Trace) -> Sequence[str]:
    return [one.message for one in findings_of(objective_missed, trace)]


def test_a_server_without_stalls_has_none() -> None:
    trace = served(lambda second: 0)
    assert found(trace) == ()
    assert judged_now(trace) == judged(trace)


def test_seconds_that_a_minute_hides_are_found_and_named() -> None:
    """Three stalls in each of seven seconds: 1.6 % of what is observed then, and 0.2 % of a minute."""
    trace = served(lambda second: 3 if 30 <= second <= 36 else 0)
    (one,) = found(trace)
    assert [(t - 1000 * NS_PER_S) / NS_PER_S for t in (one.start_ns, one.end_ns)] == [29, 36]
    assert one.share == pytest.approx(3 / 190)
    assert all(judgement.is_met is not False for judgement in judged(trace))
    assert said(trace) == ["ITL missed its objective 31 to 24 s ago: p99 50 to 100 ms (50 ms)"]


def test_one_that_goes_on_is_said_to() -> None:
    assert said(served(lambda second: 3 if second >= 54 else 0)) == [
        "ITL misses its objective in the last 7 s: p99 50 to 100 ms (50 ms)"
    ]


def test_of_several_the_newest_two_are_named() -> None:
    late = {*range(5, 11), *range(20, 26), *range(40, 46)}
    trace = served(lambda second: 3 if second in late else 0)
    assert len(found(trace)) == 3
    assert said(trace)[0].startswith("ITL missed its objective 3 times within a minute, the last two 41 to 35 s and ")


@pytest.mark.parametrize(
    ("stalls", "is_one"),
    [
        (lambda second: 12 if second == 30 else 0, False),
        (lambda second: 6 if second in (30, 31) else 0, False),
        (lambda second: 4 if second in (30, 31, 32) else 0, True),
        (lambda second: 1 if 30 <= second <= 40 else 0, False),
        (lambda second: 2 if 30 <= second <= 40 else 0, True),
    ],
    ids=["one long stall", "two looks", "three looks", "half a hundredth", "a little more than one"],
)
def test_what_is_none(stalls: Stalls, *, is_one: bool) -> None:
    assert bool(found(served(stalls))) == is_one


def test_what_lies_in_the_bucket_of_the_limit_is_not_late_for_certain() -> None:
    trace = served(lambda second: 9, late_s=0.03)
    assert found(trace) == ()


def test_before_five_seconds_were_seen_nothing_is_said() -> None:
    assert found(served(lambda second: 9, seconds=4)) == ()
    assert found(served(lambda second: 9, seconds=5))


def test_a_server_that_starts_anew_makes_no_lapse() -> None:
    assert found(served(lambda second: 0, restarts_at=30)) == ()
    (one,) = found(served(lambda second: 3 if 20 <= second < 40 else 0, restarts_at=30))
    assert one.share == pytest.approx(3 / 190, rel=0.05)
