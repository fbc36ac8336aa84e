"""Slow steps of the engine as what users wait for: when they lead, by what cause, and when nothing is said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from llmtop import vocabulary as v
from llmtop.analysis.rules import live_rules, step_advice, step_tail
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.server.step_causes import StepCause
from llmtop.model import Finding, Metric, Severity, Trace
from tests.analysis.engine_rounds import MS, PLANTED, SERVER, Columns, Round, counter, even, rounds_of, series_of
from tests.analysis.engine_rounds import trace_of as plain_trace_of
from tests.analysis.verdict_scenes import findings_of

SECONDS = 12
END_NS = SECONDS * 1000 * MS


def counted(late_a_second: float, prefill_a_second: float = 0.0) -> Columns:
    """Four requests get a token every 10 ms, but so many after 60 ms; the server is looked at once a second."""
    per_s = 400.0
    told: Mapping[Metric, float] = {
        v.bucket(v.SERVER_ITL, 0.01): per_s - late_a_second,
        v.bucket(v.SERVER_ITL, 0.05): per_s - late_a_second,
        v.bucket(v.SERVER_ITL, 0.1): per_s,
        v.bucket(v.SERVER_ITL, math.inf): per_s,
        v.total(v.SERVER_ITL): (per_s - late_a_second) * 0.009 + late_a_second * 0.06,
        v.total(v.SERVER_PREFILL_TIME): prefill_a_second,
    }
    return {
        key: one
        for metric, grows in told.items()
        for key, one in series_of(SERVER, metric, [(s * 1000 * MS, grows * s) for s in range(SECONDS + 1)]).items()
    }


def trace_of(columns: Columns) -> Trace:
    return replace(plain_trace_of(columns), end_ns=END_NS)


def steps(cause: StepCause | None, ms: float = 60) -> Columns:
    """Steps of 10 ms up to the end, of which one in 40 takes so long for this cause."""
    count = int(SECONDS * 1000 // (10 + (ms - 10) / 40))
    rounds = even(count)
    if cause is not None:
        rounds[20::40] = [_longer(PLANTED[cause], ms * MS)] * len(rounds[20::40])
    made = rounds_of(rounds)
    last_ns = max(one.last_t_ns or 0 for one in made.values())
    return rounds_of(rounds, start_ns=END_NS - last_ns - MS)


def _longer(planted: Round, ns: float) -> Round:
    """The same cause, of which there is so much more."""
    times = (ns - 10 * MS) / (planted.ns - 10 * MS)
    usual = Round().parts
    parts = {part: usual.get(part, 0.0) + (of - usual.get(part, 0.0)) * times for part, of in planted.parts.items()}
    return replace(planted, ns=ns, parts=parts, faults=(planted.faults or 0) * times)


def only(columns: Columns) -> Finding:
    (finding,) = findings_of(step_tail, trace_of(columns))
    return finding


@pytest.mark.parametrize("cause", PLANTED)
def test_each_cause_is_named_with_what_helps_against_it(cause: StepCause) -> None:
    finding = only(steps(cause) | counted(10.0))
    assert finding.severity is Severity.WARNING
    assert finding.message.startswith(f"slow steps hold up every token, mostly {cause}: ")
    assert finding.action == step_advice.action(trace_of(counted(10.0)), cause)
    assert finding.next_command or cause is StepCause.MORE_WORK  # this server's address is not known
    assert any(f"% {cause}" in line for line in finding.evidence)


def test_every_cause_has_advice() -> None:
    assert all(step_advice.action(trace_of(counted(0.0)), cause) for cause in StepCause)


def test_prompts_in_the_steps_are_to_be_smaller() -> None:
    prompts = counter(SERVER, v.SERVER_PROMPT_TOKENS, range(0, END_NS, 50 * MS), END_NS)
    finding = only(steps(StepCause.MORE_WORK) | counted(10.0) | prompts)
    assert finding.message == (
        "slow steps hold up every token, mostly prefill in the batch: 11 of 442 took 60.0 ms, the median 10.1 ms"
    )
    assert finding.action.startswith("compute prompts in chunks, smaller steps")


def test_slow_steps_that_nobody_feels_are_none() -> None:
    """The objective is kept: whatever the tail of steps is, users get what was promised."""
    assert not findings_of(step_tail, trace_of(steps(StepCause.COLLECTION) | counted(0.0)))


def test_steps_within_the_objective_are_not_what_is_late() -> None:
    assert not findings_of(step_tail, trace_of(steps(StepCause.COLLECTION, ms=40) | counted(10.0)))
    assert not findings_of(step_tail, trace_of(steps(None) | counted(10.0, prefill_a_second=0.5)))


def test_of_a_server_that_does_not_tell_the_time_between_tokens_its_steps_are_judged() -> None:
    assert "mostly garbage collection: " in only(steps(StepCause.COLLECTION)).message
    assert not findings_of(step_tail, trace_of(steps(StepCause.COLLECTION, ms=40)))
    assert not findings_of(step_tail, trace_of(rounds_of([Round().longer(60 * MS)] * 180)))


def test_without_steps_prompts_in_between_are_told_by_the_servers_numbers() -> None:
    finding = only(counted(10.0, prefill_a_second=0.5))
    assert finding.message == "prompts hold up every token: ITL p99 50 to 100 ms (50 ms)"
    assert "in prefill 0.5 requests on average (eBPF)" in finding.evidence
    assert not findings_of(step_tail, trace_of(counted(10.0, prefill_a_second=0.1)))
    thrown_out = counter(SERVER, v.SERVER_PREEMPTIONS, range(500 * MS, END_NS, 1000 * MS), END_NS)
    assert not findings_of(step_tail, trace_of(counted(10.0, prefill_a_second=0.5) | thrown_out))


def test_it_leads_and_the_missed_objective_points_to_it() -> None:
    first, second = diagnose(trace_of(steps(StepCause.COLLECTION) | counted(10.0))).findings[:2]
    assert (first.rule, second.rule) == ("step-tail", "objective-missed")
    assert first.message.startswith("slow steps hold up every token, mostly ")
    assert second.action.startswith('"slow steps hold up every token" comes first')


@pytest.mark.parametrize(
    ("cause", "share", "leads"),
    [
        ("cpu-bound", 0.9, True),
        ("api-bound", 0.95, True),
        ("run-queue-starvation", 0.1, True),
        ("run-queue-starvation", 0.3, False),
        ("gil-bound", 0.8, False),
    ],
)
def test_what_makes_all_steps_longer_explains_no_single_ones_but_waits_do(
    cause: str, share: float, *, leads: bool
) -> None:
    def one(rule: str, of: float | None = None) -> list[Finding]:
        return [Finding(rule, Severity.WARNING, "engine", rule, (), "", share=of)]

    found: dict[str, list[Finding]] = {rule.id: [] for rule in live_rules.RULES}
    found |= {cause: one(cause, share), "step-tail": one("step-tail")}
    heard = live_rules.heard(live_rules.RULES, found)
    said = [rule.id for rule, findings in heard.items() if findings]
    assert said == (["step-tail", cause] if leads else [cause])


@pytest.mark.parametrize(("limit_s", "speaks"), [(0.05, True), (0.011, True), (0.009, False)])
def test_where_every_other_step_is_too_long_single_ones_are_not_what_is_felt(limit_s: float, speaks: bool) -> None:
    """The median step takes 10 ms."""
    trace = trace_of(steps(StepCause.COLLECTION) | counted(10.0))
    told = replace(trace, origin=replace(trace.origin, facts={"objective.itl.p99": limit_s}))
    assert bool(findings_of(step_tail, told)) is speaks
