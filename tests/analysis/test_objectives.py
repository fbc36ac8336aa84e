"""Objectives: what was promised, what was seen, and what bounds cannot tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules import objective_missed
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.server.objectives import NEWEST_NS, judged, missed, objectives
from llmtop.model import NS_PER_S, Fact, Finding, Metric, Origin, Reading, Severity, Trace, Track, TrackKind, Unknown
from llmtop.session import Recorder
from tests.analysis.verdict_scenes import API, Scene, Thread, findings_of

SERVER = Track(ids.server(1), TrackKind.SERVER, "vLLM :1", facts={"url": "http://127.0.0.1:1/metrics"})
UPPERS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, math.inf)
Latencies = Mapping[Metric, Sequence[float]]


def trace(
    latencies: Latencies,
    facts: Mapping[str, Fact] | None = None,
    counters: Latencies | None = None,
    newest: Latencies | None = None,
) -> Trace:
    """All observations fall between two looks, a minute apart; counters go from the first value to the second.

    `newest` come on top of them in the last seconds.
    """
    recorder = Recorder(Origin("live", facts=facts or {}))
    for second in range(0, 61, 5):
        t = (second + 1) * NS_PER_S
        readings = []
        for metric, values in latencies.items():
            seen = [*(values if second >= 30 else ()), *((newest or {}).get(metric, ()) if second >= 55 else ())]
            for upper in UPPERS:
                count = float(sum(1 for value in seen if value <= upper))
                readings.append(Reading(ids.server(1), v.bucket(metric, upper), t, count, "histogram"))
            readings.append(Reading(ids.server(1), v.total(metric), t, float(sum(seen)), "histogram"))
        for metric, (before, after) in (counters or {}).items():
            readings.append(Reading(ids.server(1), metric, t, after if second >= 30 else before, "metrics"))
        recorder.append("test", Trace(Origin("live"), t, t, tracks={SERVER.id: SERVER}, readings=tuple(readings)))
    return recorder.freeze()


def verdicts(seen: Trace) -> dict[str, bool | Unknown]:
    return {one.objective.title: one.is_met for one in judged(seen)}


def only(seen: Trace) -> Finding:
    (finding,) = findings_of(objective_missed, seen)
    return finding


def test_the_defaults() -> None:
    promised = {one.title: one.limit_s for one in objectives(trace({}))}
    assert promised == {"TTFT p99": 0.5, "TTFT p50": 0.2, "ITL p99": 0.05, "ITL p50": 0.025}


def test_those_that_were_told_count() -> None:
    told: dict[str, Fact] = {"objective.ttft.p99": 2.0, "objective.ttft.p50": 0.0, "objective.itl.p50": 0.0}
    assert {one.title: one.limit_s for one in objectives(trace({}, told))} == {"TTFT p99": 2.0, "ITL p99": 0.05}


def test_met() -> None:
    seen = trace({v.SERVER_TTFT: [0.09] * 200, v.SERVER_ITL: [0.009] * 5000})
    assert verdicts(seen) == {"TTFT p99": True, "TTFT p50": True, "ITL p99": True, "ITL p50": True}
    assert missed(seen) == ()
    assert not findings_of(objective_missed, seen)


def test_of_a_server_that_has_just_come_the_time_that_was_seen_is_said() -> None:
    young = trace({v.SERVER_TTFT: []}, newest={v.SERVER_TTFT: [2.0] * 10})
    young = replace(young, series={key: one.newest(3) for key, one in young.series.items()})
    (late, *_) = judged(young)
    assert late.text == "TTFT p99 1.99 to 2.5 s, objective 500 ms, 100 % later, of 10 in 10 s (histogram)"
    assert judged(young, NEWEST_NS)[0].text.endswith("of 10 in 10 s (histogram)")
    finding = only(young)
    assert finding.window_s == 10.0
    assert judged(trace({v.SERVER_TTFT: [0.09] * 200}))[0].text.endswith("of 200 in 60 s (histogram)")


def test_missed() -> None:
    seen = trace({v.SERVER_TTFT: [0.09] * 190 + [2.0] * 10})
    assert verdicts(seen)["TTFT p99"] is False
    assert verdicts(seen)["TTFT p50"] is True
    finding = only(seen)
    assert finding.severity is Severity.WARNING
    assert finding.message.startswith("TTFT misses its objective: p99 ")
    assert "(500 ms)" in finding.message
    assert "p50" not in finding.message
    assert any(line.startswith("TTFT p99 ") and "of 200" in line for line in finding.evidence)
    assert len(finding.evidence) >= 2
    assert all("(" in line for line in finding.evidence)


def test_a_bound_that_cannot_decide_says_so() -> None:
    """All between 0.1 and 0.25 s: whether the median is below 0.2 s is not told, the p99 is below 0.5 s for sure."""
    seen = trace({v.SERVER_TTFT: [0.12] * 50 + [0.24] * 50})
    assert verdicts(seen)["TTFT p99"] is True
    assert isinstance(verdicts(seen)["TTFT p50"], Unknown)
    assert not findings_of(objective_missed, seen)


def test_one_late_request_breaks_no_promise() -> None:
    alone = verdicts(trace({v.SERVER_TTFT: [0.09] * 20 + [2.0]}))["TTFT p99"]
    assert isinstance(alone, Unknown)
    assert alone.reason.startswith("1 of 21 was later")
    assert verdicts(trace({v.SERVER_TTFT: [0.09] * 20 + [2.0] * 2}))["TTFT p99"] is False


def test_without_observations_nothing_is_judged() -> None:
    assert all(isinstance(met, Unknown) for met in verdicts(trace({v.SERVER_TTFT: []})).values())
    assert judged(Trace(Origin("live"))) == ()


def test_a_median_alone_is_information() -> None:
    finding = only(trace({v.SERVER_ITL: [0.04] * 1000}))
    assert finding.severity is Severity.INFO
    assert "p50" in finding.message
    assert "p99" not in finding.message


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({v.SERVER_QUEUE_TIME: [2.0] * 100, v.SERVER_PREFILL_TIME: [0.1] * 100}, "most of it in the queue"),
        ({v.SERVER_QUEUE_TIME: [0.01] * 100, v.SERVER_PREFILL_TIME: [2.0] * 100}, "most of it in prefill"),
        (
            {v.SERVER_QUEUE_TIME: [0.01] * 100, v.SERVER_PREFILL_TIME: [0.1] * 100},
            "most of it neither in the queue nor in prefill",
        ),
    ],
)
def test_what_the_time_to_the_first_token_is_made_of(parts: Latencies, words: str) -> None:
    finding = only(trace({v.SERVER_TTFT: [2.2] * 100, **parts}))
    assert words in finding.message
    assert "mean time to first token 2.2 s (histogram)" in finding.evidence


def test_a_measured_queue_rules_out_an_estimate_of_it() -> None:
    """40 requests came through in a minute, 50 ms of 4.4 s in the queue: 25 wait for something else."""
    parts = {v.SERVER_TTFT: [4.4] * 40, v.SERVER_QUEUE_TIME: [0.05] * 40, v.SERVER_PREFILL_TIME: [0.2] * 40}
    finding = only(trace(parts, counters={v.SERVER_WAITING: (25.0, 25.0)}))
    assert "most of it neither in the queue nor in prefill" in finding.message
    assert finding.action.startswith("see what admitted requests wait for (KV blocks from another server, an adapter)")


@pytest.mark.parametrize(("waiting", "words"), [(25.0, "in the queue"), (0.5, "neither in the queue nor in prefill")])
def test_a_queue_that_grows_is_seen_before_those_that_wait_in_it_have_ended(waiting: float, words: str) -> None:
    """40 first tokens in a minute: 25 that wait take 37 s more at this rate, and half a one 0.75 s."""
    parts = {v.SERVER_TTFT: [4.4] * 40, v.SERVER_QUEUE_TIME: [1.5] * 20, v.SERVER_PREFILL_TIME: [0.2] * 20}
    finding = only(trace(parts, counters={v.SERVER_WAITING: (waiting, waiting)}))
    assert f"most of it {words}" in finding.message
    assert any(line.endswith(", for about 38 s at this rate") for line in finding.evidence) == (waiting > 1)


def test_a_tail_of_gaps_from_preemptions() -> None:
    seen = trace({v.SERVER_ITL: [0.009] * 900 + [0.9] * 100}, counters={v.SERVER_PREEMPTIONS: (0.0, 40.0)})
    finding = only(seen)
    assert "requests are preempted" in finding.message
    assert any(line.startswith("a tail: p99 is ") for line in finding.evidence)


def test_a_tail_of_gaps_from_prompts_in_between() -> None:
    finding = only(trace({v.SERVER_ITL: [0.009] * 900 + [0.3] * 100, v.SERVER_PREFILL_TIME: [0.5] * 60}))
    assert "prompts are computed in between" in finding.message
    assert any(line.startswith("in prefill 0.5 requests on average") for line in finding.evidence)


def test_a_tail_of_gaps_from_prompts_of_a_server_that_does_not_tell_their_time() -> None:
    tokens = {v.SERVER_PROMPT_TOKENS: (0.0, 600_000.0), v.SERVER_OUTPUT_TOKENS: (0.0, 30_000.0)}
    gaps = {v.SERVER_ITL: [0.009] * 900 + [0.3] * 100}
    finding = only(trace(gaps, counters=tokens))
    assert "prompts are computed in between" in finding.message
    assert "computed 10000 tok/s of prompts beside 500 tok/s of output (metrics)" in finding.evidence
    cached = tokens | {v.SERVER_PREFIX_HITS: (0.0, 590_000.0)}
    assert "prompts" not in only(trace(gaps, counters=cached)).message


@pytest.mark.parametrize(("output", "is_all"), [(16.0, True), (4000.0, False)])
def test_steps_that_are_nearly_all_prompts_are_the_cause_without_a_tail(output: float, is_all: bool) -> None:
    """A vLLM with prompts of 6,000 tokens and answers of two: each gap is 170 ms, the median too."""
    tokens = {v.SERVER_PROMPT_TOKENS: (0.0, 60 * 47_975.0), v.SERVER_OUTPUT_TOKENS: (0.0, 60 * output)}
    finding = only(trace({v.SERVER_ITL: [0.17] * 960}, counters=tokens))
    assert ("steps are nearly all prompts, 100 % of the tokens" in finding.message) == is_all
    assert ("see what a step waits for" in finding.action) != is_all


@pytest.mark.parametrize(
    ("run_queue", "words"), [(0.1, "prompts are computed in between"), (0.6, "steps wait for a CPU")]
)
def test_steps_that_wait_for_a_cpu_are_late_by_that_whatever_is_in_them(run_queue: float, words: str) -> None:
    """As of a vLLM on an H100 whose engine was held on one CPU beside three busy loops: prefill took longer too."""
    engine = Thread(on_cpu=0.3, run_queue=run_queue, involuntary=80, asleep_in="futex")
    gaps = {v.bucket(v.SERVER_ITL, upper): 810.0 if upper < 0.1 else 900.0 for upper in UPPERS[:-1]}
    told = gaps | {v.total(v.SERVER_PREFILL_TIME): 0.5}
    finding = only(
        Scene((API, engine), counters={(ids.server(1), metric): rate for metric, rate in told.items()}).trace()
    )
    assert finding.message.endswith(f"; {words}")
    assert ("EngineCore: run-queue wait 60 % (schedstat)" in finding.evidence) == (run_queue > 0.2)


def test_a_new_miss_counts_at_once() -> None:
    """10 late ones of the last seconds are no p99 of a minute with 5,000."""
    seen = trace({v.SERVER_TTFT: [0.09] * 5000}, newest={v.SERVER_TTFT: [2.0] * 10})
    assert verdicts(seen)["TTFT p99"] is True
    assert [(one.objective.title, one.window_ns) for one in missed(seen)] == [
        ("TTFT p99", NEWEST_NS),
        ("TTFT p50", NEWEST_NS),
    ]
    finding = only(seen)
    assert finding.message.startswith("TTFT misses its objective in the last 15 s: p99 ")
    assert any("of 10 in 15 s" in line for line in finding.evidence)


def test_a_miss_is_explained_by_what_is_now() -> None:
    before = {v.SERVER_TTFT: [2.2] * 100, v.SERVER_QUEUE_TIME: [0.01] * 100, v.SERVER_PREFILL_TIME: [2.0] * 100}
    now = {v.SERVER_TTFT: [2.2] * 20, v.SERVER_QUEUE_TIME: [2.0] * 20, v.SERVER_PREFILL_TIME: [0.1] * 20}
    assert "most of it in prefill" in only(trace(before)).message
    finding = only(trace(before, newest=now))
    assert finding.message.startswith("TTFT misses its objective: ")
    assert "most of it in the queue" in finding.message


def test_nothing_is_healthy_beside_a_missed_objective() -> None:
    seen = trace({v.SERVER_TTFT: [2.0] * 100})
    assert not any("healthy" in finding.message for finding in diagnose(seen).findings)


def test_how_many_were_later_is_told_between_the_ends_of_the_limits_bucket() -> None:
    """Of 100 first tokens ten took 0.6 s, and 200 ms lies in the bucket of all others."""
    told = {"objective.ttft.p99": 0.5, "objective.ttft.p50": 0.2, "objective.itl.p99": 0.0}
    seen = {one.objective.title: one for one in judged(trace({v.SERVER_TTFT: [0.15] * 90 + [0.6] * 10}, told))}
    assert seen["TTFT p99"].late == pytest.approx((0.1, 0.1))
    assert seen["TTFT p50"].late == pytest.approx((0.1, 1.0))
    assert "objective 500 ms, 10 % later, of 100 in 60 s" in seen["TTFT p99"].text
    assert "objective 200 ms, 10 to 100 % later, of 100 in 60 s" in seen["TTFT p50"].text
    assert seen["ITL p50"].late is None
    kept = {one.objective.title: one for one in judged(trace({v.SERVER_TTFT: [0.15] * 90}))}
    assert "objective 500 ms, none later, of 90" in kept["TTFT p99"].text
