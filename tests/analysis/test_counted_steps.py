"""Steps as the server counts them: means between looks, with the time in which nothing ran left out."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.server.counted_steps import CountedSteps, LookGroup, counted_steps
from llmtop.model import LIVE, NS_PER_S, Metric, Reading, Trace, Track, TrackKind, Unknown
from llmtop.session import Recorder

SERVER = ids.server(1)


@dataclass
class Scrape:
    """What the server said at a second: all counters by then, and how many requests ran."""

    steps: float | None
    running: float | None = 4.0
    others: dict[Metric, float] = field(default_factory=dict)


def trace_of(*scrapes: Scrape) -> Trace:
    recorder = Recorder(LIVE)
    server = Track(SERVER, TrackKind.SERVER, "vLLM")
    for second, scrape in enumerate(scrapes, 1):
        t = second * NS_PER_S
        told = {v.SERVER_STEPS: scrape.steps, v.SERVER_RUNNING: scrape.running, **scrape.others}
        readings = tuple(Reading(SERVER, metric, t, value, "metrics") for metric, value in told.items())
        recorder.append("prometheus", Trace(LIVE, t, t, tracks={SERVER: server}, readings=readings))
    return recorder.freeze()


def tokens(prompt: float, output: float) -> dict[Metric, float]:
    return {v.SERVER_PROMPT_TOKENS: prompt, v.SERVER_OUTPUT_TOKENS: output}


def counted(*scrapes: Scrape) -> CountedSteps:
    found = counted_steps(trace_of(*scrapes))
    assert isinstance(found, CountedSteps), found
    return found


def test_the_mean_step_is_the_time_over_the_steps_and_looks_tell_its_spread() -> None:
    found = counted(Scrape(100), Scrape(150), Scrape(175), Scrape(275))
    assert [one.steps for one in found.looks] == [50, 25, 100]
    assert found.mean_ns == pytest.approx(3e9 / 175)
    assert (found.fastest_ns, found.slowest_ns) == (1e7, 4e7)
    assert found.per_s == pytest.approx(175 / 3)
    assert found.middle is None, "three looks have no middle half"
    assert found.source == "metrics"
    assert found.notes == ("a look holds about 50 steps, and one more or less lies across its ends: 2.0 %",)


def test_the_middle_half_of_many_looks_is_told() -> None:
    sums = [0, 10, 30, 60, 100, 150, 210, 280, 360]
    low, high = counted(*map(Scrape, sums)).middle or (0.0, 0.0)
    assert low == pytest.approx(15.8e6, rel=0.05)
    assert high == pytest.approx(37.5e6, rel=0.05)


def test_time_in_which_nothing_ran_is_in_no_look() -> None:
    found = counted(Scrape(0), Scrape(50), Scrape(60, 0.0), Scrape(60, 0.0), Scrape(60), Scrape(110))
    assert [(one.start_ns, one.end_ns, one.steps) for one in found.looks] == [
        (1 * NS_PER_S, 2 * NS_PER_S, 50),
        (5 * NS_PER_S, 6 * NS_PER_S, 50),
    ]


def test_a_step_that_is_longer_than_a_look_takes_until_the_counter_moves() -> None:
    found = counted(Scrape(7), Scrape(7), Scrape(7), Scrape(8), Scrape(9))
    assert [one.mean_ns / NS_PER_S for one in found.looks] == [3.0, 1.0]


def test_a_server_that_began_anew_or_was_not_read_breaks_a_look() -> None:
    found = counted(Scrape(500), Scrape(550), Scrape(5), Scrape(15), Scrape(None), Scrape(35), Scrape(45))
    assert [one.steps for one in found.looks] == [50, 10, 10]


def test_without_the_number_of_running_requests_all_time_counts() -> None:
    assert len(counted(Scrape(0, None), Scrape(50, None), Scrape(100, None)).looks) == 2


def test_prompts_and_output_of_a_step_and_what_steps_with_prompts_take() -> None:
    found = counted(
        Scrape(0, others=tokens(0, 0)),
        Scrape(100, others=tokens(0, 400)),
        Scrape(150, others=tokens(1000, 600)),
        Scrape(250, others=tokens(1000, 1000)),
    )
    assert (found.prompt_tokens, found.output_tokens, found.prompt_share) == (4.0, 4.0, 0.5)
    assert found.without_prompts == LookGroup(2, 200, 1e7)
    assert found.with_prompts == LookGroup(1, 50, 2e7)


def test_tokens_that_are_counted_when_a_request_ends_are_none_of_a_step() -> None:
    ended = {v.SERVER_OUTPUT_TOKENS_ENDED: 100.0, v.SERVER_PROMPT_TOKENS: 5.0}
    found = counted(Scrape(0, others=ended), Scrape(50, others=ended), Scrape(100, others=ended))
    assert isinstance(found.output_tokens, Unknown)
    assert found.output_tokens.reason == "the server counts tokens when a request ends, not with each step"
    assert (found.prompt_tokens, found.prompt_share, found.with_prompts) == (0.0, None, None)


@pytest.mark.parametrize(
    ("scrapes", "reason"),
    [
        ([Scrape(0), Scrape(50)], "fewer than 2 looks at the server's counter of steps while requests ran"),
        ([Scrape(0, 0.0)] * 5, "fewer than 2 looks at the server's counter of steps while requests ran"),
    ],
)
def test_one_look_is_too_few(scrapes: list[Scrape], reason: str) -> None:
    found = counted_steps(trace_of(*scrapes))
    assert isinstance(found, Unknown)
    assert found.reason == reason


def test_a_server_without_such_a_counter_says_so() -> None:
    server = Track(SERVER, TrackKind.SERVER, "vLLM")
    found = counted_steps(Trace(LIVE, 0, NS_PER_S, tracks={SERVER: server}))
    assert str(found) == "no reading of engine steps yet"
    assert isinstance(counted_steps(Trace(LIVE, 0, NS_PER_S)), Unknown)
