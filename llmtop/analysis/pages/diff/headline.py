"""How much longer the second report takes than the first, and what that is made of: parts that add up to it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.breakdown.breakdown import Difference, shares_of
from llmtop.analysis.pages.diff.kernels import KernelChange, kernel_changes, noise_of_calls
from llmtop.analysis.pages.diff.noise import Noise, TimeSample, noise_of
from llmtop.frozen import frozen
from llmtop.text import listed
from llmtop.units import percent

if TYPE_CHECKING:
    from llmtop.analysis.kernels.breakdown.breakdown import Share
    from llmtop.analysis.kernels.family import KernelFamily
    from llmtop.analysis.pages.diff.side import Side, StepSample

_BY_KERNEL = 12
"""More kernels that differ are summed up by family; the table of kernels has each."""


_LEFT = 3
"""Parts of what is left that are named."""


class Unit(StrEnum):
    """What is compared."""

    STEP = "step"
    KERNELS = "all kernels"
    """Every kernel that both have is called as often in both: the time of all of them."""
    CALLS = "the same calls"
    """Kernels that both have, each as often as in the mean of both: how long captures are says nothing."""


@frozen
class ChangePart:
    """A part of what changed; `is_idle` of the time in which a GPU had nothing to do."""

    title: str
    ns: float
    is_idle: bool = False


@frozen
class Headline:
    """How much time both take for the same.

    Attributes:
        what: What it is of: "decode step", "the kernels of a report".
        parts: What adds up to the difference, the largest first.
        beside: What adds up to the rest of the difference of all kernels' time where calls differ; else empty.
    """

    unit: Unit
    what: str
    before_ns: float
    after_ns: float
    noise: Noise
    parts: tuple[ChangePart, ...]
    beside: tuple[ChangePart, ...] = ()

    @property
    def change_ns(self) -> float:
        """What the second takes longer."""
        return self.after_ns - self.before_ns

    @property
    def share(self) -> float:
        """That over the first; NaN where that takes no time."""
        return self.change_ns / self.before_ns if self.before_ns > 0 else math.nan

    @property
    def noise_share(self) -> float:
        """The noise over the first one's time; NaN where that takes none."""
        return self.noise.ns / self.before_ns if self.before_ns > 0 else math.nan

    @property
    def is_beyond_noise(self) -> bool:
        """Whether the difference means something."""
        return not self.noise.hides(self.change_ns)


@lru_cache(maxsize=8)
def headline(before: Side, after: Side) -> Headline | None:
    """The time of a step, or of the kernels that both have; None where nothing has a time in both."""
    if before.steps is not None and after.steps is not None:
        return _of_steps(before.steps, after.steps)
    changes = kernel_changes(before, after)
    timed = [one for one in changes if not math.isnan(one.call_ns)]
    if not timed:
        return None
    return _of_calls(changes) if any(one.has_other_calls for one in timed) else _of_kernels(changes)


# -- steps ------------------------------------------------------------------------------------------------------------


def _of_steps(before: StepSample, after: StepSample) -> Headline:
    samples = [TimeSample.of([part.account.wall_ns for part in one.typical]) for one in (before, after)]
    return Headline(
        Unit.STEP,
        f"{before.kind} step".strip(),
        samples[0].mean,
        samples[1].mean,
        noise_of(*samples),
        _ranked(_step_parts(before, after)),
    )


def _step_parts(before: StepSample, after: StepSample) -> Iterator[ChangePart]:
    """Kernels by family, idle time by cause, and what the two leave of a step: copies, less what runs side by side."""
    shares = _shares(before), _shares(after)
    rest = 0.0
    for share in dict.fromkeys((*shares[0], *shares[1])):
        ns = shares[1].get(share, 0.0) - shares[0].get(share, 0.0)
        rest -= ns
        name = _name_of(after if ns > 0 else before, share)
        yield ChangePart(Difference(share, ns, name).title, ns, is_idle=share[0] == "idle")
    walls = [sum(part.account.wall_ns for part in one.typical) / len(one.typical) for one in (before, after)]
    yield ChangePart("copies and fills, less what ran side by side", rest + walls[1] - walls[0])


def _shares(steps: StepSample) -> Mapping[Share, float]:
    """Of the mean step, for each of the GPUs that it is of."""
    sums: Counter[Share] = Counter()
    for part in steps.typical:
        sums.update(shares_of(part.account))
    gpu_ns = sum(part.account.gpu_ns for part in steps.typical)
    wall_ns = sum(part.account.wall_ns for part in steps.typical)
    scale = wall_ns / gpu_ns / len(steps.typical) if gpu_ns else 0.0
    return {share: ns * scale for share, ns in sums.items()}


def _name_of(steps: StepSample, share: Share) -> str:
    """Of idle time the call or range that has most of it."""
    names: Counter[str] = Counter()
    for part in steps.typical if share[0] == "idle" else ():
        names.update({name: ns for (cause, name), ns in part.account.idle if cause == share[1]})
    return names.most_common(1)[0][0] if names else ""


def what_is_left(before: Side, after: Side) -> str:
    """What most of the second one's time is, and what most of the first one's was: where to look next.

    To mend one limit mostly shows the next one.
    """
    parts = _time_of(before), _time_of(after)
    whole = [math.fsum(one.ns for one in own) for own in parts]
    if not all(whole):
        return ""
    now = ", ".join(f"{one.title} {percent(100 * one.ns / whole[1])}" for one in parts[1][:_LEFT])
    first = parts[0][0]
    was = (
        ""
        if first.title == parts[1][0].title
        else f"; before it was {first.title} {percent(100 * first.ns / whole[0])}"
    )
    return f"now most of it is {now}{was}"


def _time_of(side: Side) -> tuple[ChangePart, ...]:
    """What a step, or all kernels, take by themselves, the most first."""
    if side.steps is not None:
        return _ranked([ChangePart(Difference(share, ns).title, ns) for share, ns in _shares(side.steps).items()])
    rows = [row for row in side.rows if not math.isnan(row.total_ns)]
    return _ranked([ChangePart(side.kernels.row_name(row), row.total_ns) for row in rows])


# -- kernels ----------------------------------------------------------------------------------------------------------


def _of_kernels(changes: Sequence[KernelChange]) -> Headline:
    """All kernels, those that are new or gone too: the rest is called as often."""
    timed = [one for one in changes if one.is_timed]
    ends = [math.fsum(getattr(one, side).total_ns for one in timed if getattr(one, side)) for side in _SIDES]
    return Headline(
        Unit.KERNELS, "all kernels", ends[0], ends[1], noise_of_calls(tuple(changes)),
        _ranked((*_by_time(changes), *_by_calls(changes))),
    )  # fmt: skip


_SIDES = ("before", "after")


def _of_calls(changes: Sequence[KernelChange]) -> Headline:
    """The kernels that both have, each as often in both."""
    both = [one for one in changes if not math.isnan(one.call_ns)]
    ends = [math.fsum(getattr(one, side).mean_ns * one.calls_between for one in both) for side in _SIDES]
    return Headline(
        Unit.CALLS, "the same calls", ends[0], ends[1], noise_of_calls(tuple(both)),
        _ranked(_by_time(changes)), _ranked(_by_calls(changes)),
    )  # fmt: skip


def _by_time(changes: Sequence[KernelChange]) -> Iterator[ChangePart]:
    """Calls that take longer or shorter: by kernel where they are few, else by family."""
    both = [one for one in changes if one.is_in_both]
    if len(both) <= _BY_KERNEL:
        yield from (ChangePart(one.name, one.by_time_ns) for one in both)
        return
    sums: dict[KernelFamily, float] = defaultdict(float)
    for one in both:
        sums[one.family] += one.by_time_ns
    yield from (ChangePart(f"{family} kernels", ns) for family, ns in sums.items())


def _by_calls(changes: Sequence[KernelChange]) -> Iterator[ChangePart]:
    """Kernels that are new, gone, or called more or less often."""
    groups = (
        ("new", [one for one in changes if one.before is None]),
        ("gone", [one for one in changes if one.after is None]),
        ("called more or less often", [one for one in changes if one.is_in_both and one.by_calls_ns]),
    )
    for what, several in groups:
        if several:
            yield ChangePart(f"{what}: {_named(several)}", math.fsum(one.by_calls_ns for one in several))


_NAMED = 2
"""Kernels that a part of the change is named after."""


def _named(changes: Sequence[KernelChange]) -> str:
    """The first of them, and how many more there are."""
    names = [one.name for one in changes[:_NAMED]]
    more = len(changes) - len(names)
    return listed([*names, f"{more} more"]) if more else listed(names)


def _ranked(parts: Iterator[ChangePart] | Sequence[ChangePart]) -> tuple[ChangePart, ...]:
    return tuple(sorted((one for one in parts if one.ns), key=lambda one: (-abs(one.ns), one.title)))
