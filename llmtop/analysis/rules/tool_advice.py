"""The profiler's own rules, put in the order of what they could save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmtop.analysis.rules.kernel_evidence import Judged, heavy
from llmtop.model import Finding, RuleResult, Severity, Trace
from llmtop.units import duration, percent

id = "tool-advice"
summary = "Nsight Compute's own rules estimate a speedup; the largest estimates come first."
source = "Nsight Compute, rule results in the report (global estimates, in % of the kernel's time)"

_SHOWN = 10
_NOTABLE_SHARE = 0.05
_LEAST_SHARE = 0.002
"""Of all kernels' time: rules also report savings of nanoseconds."""


@dataclass(frozen=True, slots=True)
class _Advice:
    judged: Judged
    rule: RuleResult
    percent: float

    @property
    def share(self) -> float:
        """Of all kernels' time."""
        return self.judged.share * self.percent / 100


def check(trace: Trace) -> Iterator[Finding]:
    """The ten largest estimates; they overlap, so they do not add up."""
    worthwhile = [advice for advice in _advice(trace) if advice.share >= _LEAST_SHARE]
    ranked = sorted(worthwhile, key=lambda advice: -advice.share)
    yield from map(_finding, ranked[:_SHOWN])


def _advice(trace: Trace) -> Iterator[_Advice]:
    """The largest global estimate of each rule for each kernel. Local ones are of a part that nobody measured."""
    for judged in heavy(trace):
        details = judged.kernels.table.details
        for rule in details.rules(judged.launch) if details is not None else ():
            estimates = [estimate for kind, estimate in rule.speedups if kind == "global"]
            if estimates:
                yield _Advice(judged, rule, max(estimates))


def _finding(advice: _Advice) -> Finding:
    judged, rule = advice.judged, advice.rule
    saved = duration(judged.row.total_ns * advice.percent / 100)
    texts = [text for kind, text in rule.messages if kind == "optimization"][:1]
    return Finding(
        rule=id,
        severity=Severity.WARNING if advice.share >= _NOTABLE_SHARE else Severity.INFO,
        subject=judged.name,
        message=f"{rule.name}: up to {percent(advice.percent)} of this kernel, {saved} (estimate of ncu)",
        evidence=(judged.time, *texts),
        action=f"open the section {rule.section} of this kernel",
        next_command=judged.again(rule.section, "SourceCounters"),
        source=f"Nsight Compute rule {rule.id}",
    )
