"""Why a kernel takes another time: what its counters say in both reports, where they differ by more than noise."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.counters import first, number, total
from llmtop.analysis.kernels.table import dimensions
from llmtop.analysis.pages.diff.comparable import SM_CLOCK
from llmtop.analysis.pages.diff.noise import FEWEST, TimeSample, noise_of
from llmtop.frozen import frozen
from llmtop.model import Unknown, Value

if TYPE_CHECKING:
    from llmtop.analysis.kernels.counters import Counters
    from llmtop.analysis.kernels.stalls import Stalls
    from llmtop.analysis.kernels.table import KernelFacts
    from llmtop.analysis.pages.diff.kernels import CallTimes, KernelChange
    from llmtop.analysis.pages.diff.side import Side

SAME = 0.05
"""Counters of one launch each that differ by no more are taken for the same: replays alone make some per cent."""
POINTS = 3.0
"""Percentages and shares by so many points."""
COUNT = "count"
"""The unit of numbers of instructions, which run to billions."""
_CYCLES = "cycles"
_ASKED = 5
"""Launches of a kernel whose counters are asked for how they spread: each has to be decoded."""
_STALLED = 0.05
"""Of the waiting: the share by which a reason has to move."""


@frozen
class FactChange:
    """Something of a kernel, or of a report, that both tell and that differs.

    Attributes:
        unit: As in `units.quantity`, or `COUNT`; empty for text. Stalls are in cycles an instruction.
    """

    what: str
    before: Value
    after: Value
    unit: str = ""

    @property
    def ratio(self) -> float:
        """The second over the first; NaN where that means nothing."""
        if isinstance(self.before, str) or isinstance(self.after, str) or self.before <= 0 or self.after <= 0:
            return math.nan
        return self.after / self.before

    @property
    def is_notable(self) -> bool:
        """Whether it differs by more than counters of one launch do by themselves."""
        if isinstance(self.before, str) or isinstance(self.after, str):
            return self.before != self.after
        if self.unit in ("%", "ratio"):
            return abs(self.after - self.before) * (100 if self.unit == "ratio" else 1) >= POINTS
        return abs(self.after - self.before) > SAME * max(abs(self.before), abs(self.after))


def why(before: Side, after: Side, change: KernelChange) -> tuple[FactChange, ...]:
    """What differs in a kernel, what limits it first.

    Decodes the launch of each report that stands for the others, and where it has several a few more: their spread is
    the noise, and their means are compared.
    """
    if change.before is None or change.after is None or change.before.has_failed or change.after.has_failed:
        return ()
    told = _told(before, change.before.launch, after, change.after.launch)
    spread = _spread(before, change.before), _spread(after, change.after)
    held = (_held(one, spread[0].get(one.what), spread[1].get(one.what)) for one in told)
    return tuple(one for one in held if one is not None)


def _spread(side: Side, calls: CallTimes) -> Mapping[str, TimeSample]:
    """What counters of several launches are, by what they tell; nothing of fewer than have a spread."""
    launches = calls.row.launches
    if len(launches) < FEWEST or side.kernels.table.details is None:
        return {}
    step = max(1, len(launches) // _ASKED)
    values: dict[str, list[float]] = defaultdict(list)
    for launch in launches[::step][:_ASKED]:
        for one in _told(side, launch, side, launch):
            if not isinstance(one.after, str):
                values[one.what].append(float(one.after))
    return {what: TimeSample.of(own) for what, own in values.items() if len(own) >= FEWEST}


def _held(one: FactChange, mine: TimeSample | None, theirs: TimeSample | None) -> FactChange | None:
    """A fact that differs by more than its noise, of means where there are several; None where it does not."""
    if isinstance(one.before, str) or isinstance(one.after, str) or (mine is None and theirs is None):
        return one if one.is_notable else None
    mine, theirs = mine or TimeSample(1, float(one.before), 0.0), theirs or TimeSample(1, float(one.after), 0.0)
    means = replace(one, before=_whole(mine.mean, one.unit), after=_whole(theirs.mean, one.unit))
    is_beyond = abs(theirs.mean - mine.mean) > noise_of(mine, theirs).random_ns
    return means if means.is_notable and is_beyond else None


def _whole(value: float, unit: str) -> float:
    return int(value) if unit == "1" and value.is_integer() else value


def _told(before: Side, launch: int, after: Side, other: int) -> Iterator[FactChange]:
    """All that two launches tell, whether it differs or not."""
    facts = before.kernels.facts(launch), after.kernels.facts(other)
    metrics = before.kernels.metrics(launch), after.kernels.metrics(other)
    yield FactChange("bound", str(facts[0].bound_name), str(facts[1].bound_name))
    for what in ("grid", "block"):
        sizes = getattr(before.kernels, what)(launch), getattr(after.kernels, what)(other)
        yield FactChange(what, *map(dimensions, sizes))
    yield from _of_facts(*facts)
    yield from _of_counters(*metrics)
    if not isinstance(facts[0].stalls, Unknown) and not isinstance(facts[1].stalls, Unknown):
        yield from _stalls(facts[0].stalls, facts[1].stalls)


_FACTS = (
    ("of the roof", "roof_fraction", "ratio"),
    ("occupancy", "occupancy", "%"),
    ("registers a thread", "registers", "1"),
    ("shared memory of a block", "shared_memory", "bytes"),
    ("waves", "waves", "1"),
    ("L1 hits", "l1_hits", "%"),
    ("L2 hits", "l2_hits", "%"),
)


def _of_facts(mine: KernelFacts, theirs: KernelFacts) -> Iterator[FactChange]:
    for what, name, unit in _FACTS:
        values = getattr(mine, name), getattr(theirs, name)
        if not any(isinstance(value, Unknown) for value in values):
            yield FactChange(what, *values, unit)
    if not isinstance(mine.traffic, Unknown) and not isinstance(theirs.traffic, Unknown):
        yield FactChange("DRAM traffic", mine.traffic.bytes_per_s, theirs.traffic.bytes_per_s, "bytes/s")


_COUNTERS = (
    ("instructions executed", ("smsp__inst_executed.sum", "sm__inst_executed.sum"), COUNT),
    ("compute busy", (c.COMPUTE_PERCENT,), "%"),
    ("memory busy", c.MEMORY_PERCENT, "%"),
    ("SM clock", SM_CLOCK, "Hz"),
)


def _of_counters(mine: Counters, theirs: Counters) -> Iterator[FactChange]:
    moved = [total(number(one, name) for name in (c.DRAM_READ_BYTES, c.DRAM_WRITE_BYTES)) for one in (mine, theirs)]
    if moved[0] is not None and moved[1] is not None:
        yield FactChange("DRAM bytes", moved[0], moved[1], "bytes")
    for what, names, unit in _COUNTERS:
        values = first(mine, names), first(theirs, names)
        if values[0] is not None and values[1] is not None:
            yield FactChange(what, values[0], values[1], unit)


def _stalls(mine: Stalls, theirs: Stalls) -> Iterator[FactChange]:
    """Reasons whose part of the waiting moved; how long warps wait for them where both count cycles."""
    if mine.unit != theirs.unit:
        return
    shares, values = (dict(mine.shares), dict(theirs.shares)), (dict(mine.values), dict(theirs.values))
    reasons = dict.fromkeys((*shares[1], *shares[0]))
    moved = {reason: shares[1].get(reason, 0.0) - shares[0].get(reason, 0.0) for reason in reasons}
    is_counted = _CYCLES in mine.unit
    for reason in sorted(moved, key=lambda reason: -abs(moved[reason])):
        if abs(moved[reason]) < _STALLED:
            return
        both = values if is_counted else shares
        was, now = (one.get(reason, 0.0) for one in both)
        yield FactChange(f"stall {reason}", was, now, _CYCLES if is_counted else "ratio")
