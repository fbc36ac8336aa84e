"""What else differs between two reports: findings, CUDA calls, idle time, memory, stacks, how they were made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.pages.diff.judged import as_collected_by, what_is_lacking
from llmtop.analysis.pages.diff.why import FactChange
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.threads.functions import functions
from llmtop.analysis.timeline.account import idle_account
from llmtop.analysis.timeline.causes import TITLES
from llmtop.analysis.timeline.listed import Listed, listed
from llmtop.analysis.timeline.memory import has_memory, memory_pools
from llmtop.analysis.timeline.work import gpu_title
from llmtop.frozen import frozen
from llmtop.model import TrackKind, Unknown

if TYPE_CHECKING:
    from llmtop.analysis.pages.diff.side import Side
    from llmtop.analysis.timeline.account import GpuAccount
    from llmtop.model import Finding, Trace

_OF_A_RUN = frozenset({"started", "captured", "processes", "begins at", "delay", "host", "nvtx-include"})
"""Facts that differ between any two captures of one thing."""
_SAME_CALLS = 0.05
"""How often a call is made, by which it differs without anybody having changed it."""
_STACK_POINTS = 0.5
"""Of 100, from which on the change of a function's own share is told."""


# -- findings ---------------------------------------------------------------------------------------------------------


@frozen
class UnjudgedFinding:
    """A finding of one report of which the other one, `report` (A or B), did not collect enough to make it, and why."""

    report: str
    why: str
    finding: Finding


@frozen
class ResizedFinding:
    """A rule that speaks of kernels in both reports, and of how many: some are the same."""

    rule: str
    before: int
    after: int

    @property
    def word(self) -> str:
        """What became of it."""
        return "moved" if self.before == self.after else "grew" if self.before < self.after else "shrank"


@frozen
class FindingsChange:
    """What rules say of one report and not of the other, by rule and subject; `kept` is how many say the same.

    Attributes:
        went: What the first says and the second could have said.
        came: What the second says and the first could have said.
        resized: What both say, of other kernels.
        unjudged: What one says and the other could not.
    """

    went: tuple[Finding, ...]
    came: tuple[Finding, ...]
    kept: int
    resized: tuple[ResizedFinding, ...] = ()
    unjudged: tuple[UnjudgedFinding, ...] = ()


FindingKey: TypeAlias = "tuple[str, str]"
"""A rule, and what it is about."""


@lru_cache(maxsize=8)
def findings_change(before: Side, after: Side) -> FindingsChange:
    """Of rules that speak of kernels, a rule comes or goes for each kernel."""
    found = _by_subject(before.trace), _by_subject(after.trace)
    lacking = _unjudged(before, after, *found), _unjudged(after, before, *found[::-1])
    gone = [key for key in found[0] if key not in found[1] and key not in lacking[0]]
    new = [key for key in found[1] if key not in found[0] and key not in lacking[1]]
    resized = tuple(_resized(*found, {*gone, *new}))
    rules = {one.rule for one in resized}
    unjudged = [
        UnjudgedFinding(name, what_is_lacking(*both), one)
        for name, keys, own, both in (
            ("B", lacking[0], found[0], (before, after)),
            ("A", lacking[1], found[1], (after, before)),
        )
        for one in dict.fromkeys(own[key] for key in keys)
    ]
    return FindingsChange(
        tuple(dict.fromkeys(found[0][key] for key in gone if key[0] not in rules)),
        tuple(dict.fromkeys(found[1][key] for key in new if key[0] not in rules)),
        len(found[0].keys() & found[1].keys()),
        resized,
        tuple(unjudged),
    )


def _unjudged(
    mine: Side, theirs: Side, found: Mapping[FindingKey, Finding], others: Mapping[FindingKey, Finding]
) -> set[FindingKey]:
    """Findings that the other report does not have, and that this one would not have with what that one collected."""
    only = {key for key in found if key not in others}
    return only - _by_subject(as_collected_by(mine, theirs)).keys() if only else only


def _resized(
    mine: Mapping[FindingKey, Finding], theirs: Mapping[FindingKey, Finding], moved: Set[FindingKey]
) -> Iterator[ResizedFinding]:
    """Rules that are about kernels of which only some came or went."""
    for rule in dict.fromkeys(rule for rule, part in (*mine, *theirs) if part):
        own, other = ({key for key in found if key[0] == rule} for found in (mine, theirs))
        if own & other and moved & (own | other):
            yield ResizedFinding(rule, len(own), len(other))


def _by_subject(trace: Trace) -> Mapping[FindingKey, Finding]:
    """By rule and what it is about: each of several kernels, else all that there is."""
    kernels = frozenset() if trace.kernels is None else frozenset(trace.kernels.functions)
    return {
        (one.rule, part if one.parts or part in kernels else ""): one
        for one in diagnose(trace).findings
        for part in one.parts or (one.subject,)
    }


# -- calls ------------------------------------------------------------------------------------------------------------


@frozen
class ApiChange:
    """A CUDA call: how often it is made in either, of a step where steps are compared, and its time in ns."""

    name: str
    before: float
    after: float
    before_ns: float
    after_ns: float

    @property
    def is_notable(self) -> bool:
        """Whether it is new, gone, or made more or less often than by chance."""
        return abs(self.after - self.before) > _SAME_CALLS * max(self.after, self.before)


@lru_cache(maxsize=8)
def api_changes(before: Side, after: Side) -> tuple[ApiChange, ...] | Unknown:
    """All calls of both, the one whose time changed most first; why there are none."""
    rows = listed(before.trace, Listed.API), listed(after.trace, Listed.API)
    if isinstance(rows[0], Unknown) or isinstance(rows[1], Unknown):
        return next(one for one in rows if isinstance(one, Unknown))
    units = [1 if side.steps is None else _steps(side) for side in (before, after)]
    mine, theirs = (
        {row.name: (row.times.count / unit, row.times.total / unit) for row in own}
        for own, unit in zip(rows, units, strict=True)
        if not isinstance(own, Unknown)
    )
    none = 0.0, 0.0
    changes = [
        ApiChange(name, was[0], now[0], was[1], now[1])
        for name in dict.fromkeys((*theirs, *mine))
        for was, now in ((mine.get(name, none), theirs.get(name, none)),)
    ]
    return tuple(sorted(changes, key=lambda one: (-abs(one.after_ns - one.before_ns), one.name)))


def _steps(side: Side) -> int:
    """All steps that the capture has: calls are counted over all of it."""
    assert side.steps is not None
    return side.steps.of_capture


# -- timeline ---------------------------------------------------------------------------------------------------------


@frozen
class IdleChange:
    """Idle time of one cause as a share of all GPUs' time in the capture, 0 to 1."""

    title: str
    before: float
    after: float


def idle_changes(before: Side, after: Side) -> tuple[IdleChange, ...]:
    """By cause, the largest change first; of timelines alone."""
    gpus = [idle_account(side.trace).gpus for side in (before, after)]
    if not all(gpus):
        return ()
    was, is_ = map(_idle_shares, gpus)
    changes = [IdleChange(title, was.get(title, 0.0), is_.get(title, 0.0)) for title in dict.fromkeys((*was, *is_))]
    return tuple(sorted(changes, key=lambda one: -abs(one.after - one.before)))


def _idle_shares(gpus: Sequence[GpuAccount]) -> Mapping[str, float]:
    capture_ns = sum(gpu.end_ns - gpu.start_ns for gpu in gpus)
    shares: dict[str, float] = {}
    for part in (part for gpu in gpus for part in gpu.parts if capture_ns):
        title = TITLES[part.cause]
        shares[title] = shares.get(title, 0.0) + part.ns / capture_ns
    return shares


def memory_changes(before: Side, after: Side) -> tuple[FactChange, ...]:
    """The most that was held of each kind of memory on each device, where both tell."""
    if not (has_memory(before.trace) and has_memory(after.trace)):
        return ()
    peaks = [_peaks(side.trace) for side in (before, after)]
    return tuple(
        FactChange(f"peak of {name}", peaks[0][name], peaks[1][name], "bytes") for name in peaks[0] if name in peaks[1]
    )


def _peaks(trace: Trace) -> Mapping[str, float]:
    pools = memory_pools(trace)
    if isinstance(pools, Unknown):
        return {}
    peaks: dict[str, float] = {}
    for pool in pools:
        known = trace.tracks.get(pool.track)
        where = known.name if known is not None and known.kind is not TrackKind.GPU else gpu_title(pool.track)
        peaks[f"{pool.name} on {where}"] = max(pool.peak, peaks.get(f"{pool.name} on {where}", 0.0))
    return peaks


# -- stacks -----------------------------------------------------------------------------------------------------------


@frozen
class FunctionChange:
    """A function's own share of all stacks of a unit, 0 to 1."""

    name: str
    unit: str
    before: float
    after: float


def function_changes(before: Side, after: Side) -> tuple[FunctionChange, ...]:
    """Functions whose own share moved, most first: stacks of captures of different lengths compare by shares alone."""
    changes = [
        one for one in _functions(before.trace, after.trace) if abs(one.after - one.before) * 100 > _STACK_POINTS
    ]
    return tuple(sorted(changes, key=lambda one: (-abs(one.after - one.before), one.name)))


def _functions(before: Trace, after: Trace) -> Iterator[FunctionChange]:
    mine = {one.unit: {share.name: share.own_share for share in one.shares} for one in functions(before)}
    for one in functions(after):
        if one.unit not in mine:
            continue
        was, now = mine[one.unit], {share.name: share.own_share for share in one.shares}
        for name in dict.fromkeys((*now, *was)):
            yield FunctionChange(name, one.unit, was.get(name, 0.0), now.get(name, 0.0))


# -- how they were made -----------------------------------------------------------------------------------------------


def setup_changes(before: Side, after: Side) -> tuple[FactChange, ...]:
    """Facts of both sessions that differ: the command, variables, versions. What only one tells is left out."""
    mine, theirs = before.trace.origin, after.trace.origin
    facts = [{"tool": one.tool_version, **one.facts} for one in (mine, theirs)]
    return tuple(
        FactChange(name, value, other)
        for name, value in facts[0].items()
        if name not in _OF_A_RUN and (other := facts[1].get(name)) is not None and other != value
        if not isinstance(value, Unknown) and not isinstance(other, Unknown)
    )
