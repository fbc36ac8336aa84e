"""Every situation against every rule: the right one speaks, all others are silent."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from llmtop import vocabulary as v
from llmtop.analysis.rules.live_rules import CAUSES, HEALTHY, LIVENESS, RULES, silenced_by
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import NS_PER_S, Finding, Severity
from tests.analysis.verdict_scenes import SITUATIONS, Scene


@cache
def findings(name: str) -> tuple[Finding, ...]:
    return diagnose(SITUATIONS[name][0].trace()).findings


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_right_rules_speak_and_no_other_does(situation: str) -> None:
    said = {finding.rule: finding.message for finding in findings(situation)}
    assert said.keys() <= {rule.id for rule in RULES}
    expected = SITUATIONS[situation][1]
    wrong = {rule: message for rule, message in said.items() if rule not in expected}
    assert (wrong, set(expected) - said.keys()) == ({}, set())


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_verdict_rests_on_two_signals_with_their_sources(situation: str) -> None:
    for finding in findings(situation):
        is_fact = finding.rule in {rule.id for rule in LIVENESS}
        assert len(finding.evidence) >= (1 if is_fact else 2), finding
        assert all("(" in line for line in finding.evidence), finding.evidence
        assert finding.action
        assert finding.source
        assert finding.subject


@pytest.mark.parametrize("situation", SITUATIONS)
def test_one_cause_leads_and_a_second_is_said_only_where_it_is_large(situation: str) -> None:
    causes = {rule.id for rule in (*CAUSES, *HEALTHY)}
    said = [finding for finding in findings(situation) if finding.rule in causes]
    assert len({finding.rule for finding in said}) <= 2
    assert all((finding.share or 0.0) >= 0.2 for finding in said if finding.rule != said[0].rule)


def test_healthy_verdicts_are_information_and_faults_are_not() -> None:
    healthy = {rule.id for rule in HEALTHY}
    for situation in SITUATIONS:
        for finding in findings(situation):
            is_calm = finding.severity is Severity.INFO
            assert is_calm == (finding.rule in healthy | {"memory-bound-decode"}), finding


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nothing_is_said_of_what_is_over(situation: str) -> None:
    said = diagnose(SITUATIONS[situation][0].but(silent_for=20).trace()).findings
    assert {finding.rule for finding in said} <= {"process-gone"}, "what has ended stays so"


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nothing_is_said_of_a_single_look(situation: str) -> None:
    said = diagnose(SITUATIONS[situation][0].but(seconds=0).trace()).findings
    facts = {rule.id for rule in LIVENESS} - {"process-hung", "engine-hung", "endpoint-slow"}
    assert {finding.rule for finding in said} <= facts, "a state, and no measurement"


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nothing_is_said_of_a_share_of_less_than_a_second(situation: str) -> None:
    trace = SITUATIONS[situation][0].trace()
    short = replace(trace, start_ns=trace.end_ns - NS_PER_S + 1)
    states = {rule.id for rule in LIVENESS}
    assert [one for one in diagnose(short).findings if one.rule not in states] == []
    assert {one.rule for one in diagnose(short).findings} == {one.rule for one in findings(situation)} & states


def test_every_live_verdict_has_a_situation() -> None:
    tested = frozenset().union(*(expected for _, expected in SITUATIONS.values()))
    assert tested >= {rule.id for rule in (*LIVENESS, *CAUSES, *HEALTHY)} | {"kv-bound", "straggler"}


def test_health_is_silenced_by_any_fault() -> None:
    for rule in HEALTHY:
        assert set(silenced_by(rule)) > set(CAUSES)


def test_information_silences_nothing() -> None:
    """A power cap is no fault: a server that waits for a capped GPU is still well."""
    capped = {
        ("gpu:0", v.GPU_CLOCK_REASONS): 4.0,
        ("gpu:0", v.GPU_POWER): 698.0,
        ("gpu:0", v.GPU_POWER_LIMIT): 700.0,
    }
    scene: Scene = SITUATIONS["gpu-bound, spins"][0].but(gauges=capped)
    assert {finding.rule for finding in diagnose(scene.trace()).findings} == {"gpu-bound", "clocks-capped"}
