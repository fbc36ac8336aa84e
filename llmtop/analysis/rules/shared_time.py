"""Findings whose time at stake is the same in part: what acting on both gains is less than their sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.units import duration

if TYPE_CHECKING:
    from llmtop.model import Finding, IdleTime, Trace

_SHARED = 0.5
"""Of the smaller of two times at stake, from which on it is said. Ours."""
_ORDINALS = ("first", "second", "third")


def with_shared_time(trace: Trace, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, each with the first one before it that is about the same time in part.

    Told where both times are known: of gaps on one side (`Finding.idle`), of stretches on the other (`Finding.times`).
    Gaps of several findings are none of the same time: each has one culprit.

    Args:
        trace: Of which they are.
        findings: In the order in which they are shown.
    """
    return tuple(_told(trace, findings, i) for i in range(len(findings)))


def _told(trace: Trace, findings: Sequence[Finding], i: int) -> Finding:
    later = findings[i]
    for place, earlier in enumerate(findings[:i]):
        least = min(later.at_stake_ns or 0.0, earlier.at_stake_ns or 0.0)
        pairs = ((earlier, later), (later, earlier))
        shared = min(least, sum(_idle_within(trace, _own(gaps, findings), times) for gaps, times in pairs))
        if shared and shared >= _SHARED * least:
            which = f"{_ORDINALS[place]} finding" if place < len(_ORDINALS) else f"finding {place + 1}"
            line = f"up to {duration(shared)} of that is part of the same time as the {which} is about"
            return replace(later, evidence=(*later.evidence, line))
    return later


def _own(finding: Finding, findings: Sequence[Finding]) -> IdleTime | None:
    """The gaps of a finding by causes and names that it alone has: of others it is not known which gaps are whose."""
    if finding.idle is None:
        return None
    others = {label for one in findings if one is not finding and one.idle for label in one.idle.labels}
    return replace(finding.idle, labels=tuple(label for label in finding.idle.labels if label not in others))


def _idle_within(trace: Trace, gaps: IdleTime | None, of_times: Finding) -> int:
    """How much of idle time lies in the stretches that a finding is about, in ns; 0 without either."""
    if gaps is None or not of_times.times:
        return 0
    from llmtop.analysis.timeline.account import idle_pieces

    pieces, labels = idle_pieces(trace)[gaps.gpu], frozenset(gaps.labels)
    found = (pieces.within(one.start_ns, one.end_ns) for one in of_times.times)
    return sum(ns for times in found for label, ns in times.items() if label in labels)
