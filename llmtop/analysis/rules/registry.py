"""What all rules say of a trace. They are listed by what they are for: `live_rules`, `report_rules`."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from llmtop.analysis.commands import profiling
from llmtop.analysis.commands.live import for_later, is_root
from llmtop.analysis.rules.base import Unjudged, grave_rules
from llmtop.analysis.rules.evidence import WINDOW_NS
from llmtop.analysis.rules.scope import is_live, is_watched
from llmtop.analysis.rules.shared_time import with_shared_time
from llmtop.analysis.series.recorded import is_recorded, told_of
from llmtop.frozen import frozen
from llmtop.model import KINETO, NS_PER_S, NVPROF, Finding, Severity, TrackKind
from llmtop.remedies import for_root
from llmtop.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llmtop.analysis.rules.base import Rule, RuleSet
    from llmtop.model import Trace

_LIVE, _REPORTS = "llmtop.analysis.rules.live_rules", "llmtop.analysis.rules.report_rules"
_SUBJECTS = (TrackKind.SERVER, TrackKind.THREAD, TrackKind.GPU)
_GRAVEST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.INFO)


@frozen
class Diagnosis:
    """What all rules say of a trace.

    Attributes:
        findings: The gravest first; of those of a report, the one with the most time at stake.
        unjudged: Rules that apply here and lack data; one a rule.
        seen_s: For how long a live trace has been looked at, up to `window_s`; None for a report.
        is_about_something: Whether there is a server or a GPU to judge.
    """

    findings: tuple[Finding, ...]
    unjudged: tuple[Unjudged, ...] = ()
    seen_s: float | None = None
    is_about_something: bool = True
    window_s: float = WINDOW_NS / NS_PER_S

    @property
    def is_clear(self) -> bool:
        """Whether every rule could judge, over the whole window, and none found anything: silence says something."""
        return not self.findings and not self.silence_reason

    @property
    def silence_reason(self) -> str:
        """Why it means nothing that there is no finding; empty where it means that all is well."""
        if not self.is_about_something:
            return "no verdict: there is no server and no GPU to judge"
        if self.seen_s is not None and self.seen_s < self.window_s:
            return f"looking ({self.seen_s:.0f} s of {self.window_s:.0f} s seen)"
        if self.unjudged:
            n = len(self.unjudged)
            return f"no verdict: {n} rule{'s' * (n != 1)} lack{'s' * (n == 1)} data"
        return ""

    @property
    def no_verdicts(self) -> tuple[str, ...]:
        """Which rules could not judge, and why: a sentence a reason, for one may keep several from it."""
        rules: dict[str, list[str]] = {}
        for one in self.unjudged:
            rules.setdefault(str(one.why), []).append(one.rule)
        return tuple(f"no verdict of {listed(names)}: {why}" for why, names in rules.items())

    def window(self, finding: Finding) -> str:
        """Of what the shares in a finding's message are: "last 15 s"; empty where it has none, or all is looked at."""
        is_of_the_end = self.seen_s is not None and self.seen_s >= self.window_s
        return f"last {finding.window_s or self.window_s:.0f} s" if is_of_the_end and "%" in finding.message else ""

    def of_what(self) -> str:
        """The same above all findings of a live trace; empty where none has a share of a part of it."""
        has_shares = any(self.window(finding) for finding in self.findings)
        return f"of the last {self.window_s:.0f} s, where no other time is named" if has_shares else ""

    @property
    def verdict(self) -> str:
        """One line: the gravest finding, or what the lack of one means."""
        if self.findings:
            return self.findings[0].message
        return self.silence_reason or "no findings: nothing stands out"


def rule_book(trace: Trace) -> RuleSet:
    """The rules for a trace like this.

    They are loaded with the first trace that asks: no first frame waits for them, and a live screen never loads what
    only reports need, kernels and timelines, nor the other way round.
    """
    return cast("RuleSet", import_module(_LIVE if is_live(trace) else _REPORTS))


def diagnose(trace: Trace, rules: Sequence[Rule] | None = None) -> Diagnosis:
    """What all rules find, gravest first, and which could not judge. A rule that fails costs only itself.

    Kept for the newest traces: header, panes and screens ask for the same frame.
    """
    return _diagnose(trace, rule_book(trace).asked(trace) if rules is None else tuple(rules))


_NSYS = "(nsys)"
_OTHERS = {KINETO: "(PyTorch's profiler)", NVPROF: "(nvprof)"}
"""By kind, tools of timelines beside it."""


@lru_cache(maxsize=4)
def _diagnose(trace: Trace, rules: tuple[Rule, ...]) -> Diagnosis:
    said = {rule.id: tuple(_checked(rule, trace)) for rule in rules}
    found = {rule: [one for one in several if isinstance(one, Finding)] for rule, several in said.items()}
    heard = rule_book(trace).heard(rules, found)
    findings = [finding for several in heard.values() for finding in several]
    if grave_rules(found):
        findings = [_unpraised(finding) for finding in findings]
    findings = [replace(one, next_command=profiling.filled(trace, one.next_command)) for one in findings]
    if not is_live(trace):
        findings = [_sourced(trace, profiling.explained(trace, finding)) for finding in findings]
    if is_root(trace):
        findings = [replace(finding, next_command=for_root(finding.next_command)) for finding in findings]
    if is_recorded(trace):
        findings = [_for_later(finding) for finding in findings]
    ordered = with_shared_time(trace, sorted(findings, key=_rank))
    # What is explained by a finding needs no judging.
    lacking = {one.rule: one for rule in heard for one in said[rule.id] if isinstance(one, Unjudged)}
    diagnosis = Diagnosis(
        ordered,
        tuple(one for rule, one in lacking.items() if not found[rule]),
        min(trace.end_ns - trace.start_ns, WINDOW_NS) / NS_PER_S if is_live(trace) else None,
        not is_live(trace) or any(trace.tracks_of(kind) for kind in _SUBJECTS) or is_watched(trace),
    )
    return told_of(trace, diagnosis)


def _for_later(finding: Finding) -> Finding:
    """What is to be done and run about something recorded names no process of then: it has ended, or will have."""
    return replace(finding, action=for_later(finding.action), next_command=for_later(finding.next_command))


def _sourced(trace: Trace, finding: Finding) -> Finding:
    """Numbers of a timeline with the tool that it is of, where that is another one than rules write them with."""
    if (other := _OTHERS.get(trace.origin.kind)) is None:
        return finding
    return replace(finding, evidence=tuple(one.replace(_NSYS, other) for one in finding.evidence))


def _rank(finding: Finding) -> tuple[int, float]:
    return _GRAVEST_FIRST.index(finding.severity), -(finding.at_stake_ns or 0.0)


def _unpraised(finding: Finding) -> Finding:
    """Nothing is called healthy beside a fault: a missed objective, a queue that grows."""
    return replace(finding, message=finding.message.replace(", healthy", "", 1))


def _checked(rule: Rule, trace: Trace) -> Iterator[Finding | Unjudged]:
    try:
        yield from rule.check(trace)
    except Exception as error:  # the border: one bad rule never ends the program
        message = f"the rule {rule.id} failed: {type(error).__name__}: {error}"
        yield Finding(rule.id, Severity.INFO, "llmtop", message, (), "please report this")
