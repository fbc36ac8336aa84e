"""Findings of a report are ranked by the time that acting on them can save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from llmtop.analysis.rules import stakes
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import Finding, Severity, Trace
from tests.kernel_traces import Launch, report, spans


@dataclass(eq=False)
class Says:
    """A rule that says one thing."""

    id: str
    at_stake_ns: float | None
    severity: Severity = Severity.WARNING
    summary: str = "made for a test"
    source: str = "test"

    def check(self, trace: Trace) -> Iterator[Finding]:
        yield Finding(self.id, self.severity, "k", self.id, (), "", at_stake_ns=self.at_stake_ns)


def test_findings_stand_by_severity_and_then_by_time_at_stake() -> None:
    rules = (Says("unknown", None), Says("little", 5.0), Says("info", 900.0, Severity.INFO), Says("much", 50.0))
    found = diagnose(report(Launch("k")), rules).findings
    assert [finding.rule for finding in found] == ["much", "little", "unknown", "info"]


@pytest.mark.parametrize(("ns", "severity"), [(50.0, Severity.WARNING), (49.0, Severity.INFO)])
def test_severity_follows_the_time_at_stake(ns: float, severity: Severity) -> None:
    assert stakes.severity(report(Launch("a", 400.0), Launch("b", 600.0)), ns) is severity


def test_of_a_timeline_the_whole_is_its_length_and_of_a_report_its_kernels() -> None:
    kernels = report(Launch("k", 400.0))
    assert stakes.capture_ns(kernels) == 400.0
    timeline = replace(kernels, spans={"kernel": spans("kernel", [(0, 400, 1)])}, start_ns=0, end_ns=8000)
    assert stakes.share(timeline, 400.0) == 0.05
    assert stakes.share(timeline, 9000.0) == 1.0
    said = "at stake: up to 400 ns, 5.0 % of the capture: half of its time"
    assert stakes.in_words(timeline, 400.0, "half of its time") == said
