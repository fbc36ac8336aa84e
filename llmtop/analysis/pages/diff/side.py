"""One of the reports that are compared: its kernels, and where both have steps of one kind, what is in these."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from llmtop import ids
from llmtop.analysis.kernels.breakdown.breakdown import Breakdown, By, TimePart, breakdown
from llmtop.analysis.kernels.table import kernels_of, row_of
from llmtop.analysis.timeline.cover import Cover
from llmtop.analysis.timeline.steps import find_steps
from llmtop.model import SpanKind, Unknown

if TYPE_CHECKING:
    from llmtop.analysis.kernels.table import Kernels, Row
    from llmtop.analysis.timeline.ranges import TimeWindow
    from llmtop.model import Trace, TrackId


_KindOf: TypeAlias = "tuple[str, Callable[[TimePart], str]]"
"""A kind of steps, and what tells the kind of one."""


@dataclass(frozen=True, slots=True, eq=False)
class StepSample:
    """The steps of a report that are compared.

    Attributes:
        kind: What is said of them before "step": "decode"; empty of all that there are.
        all: All of the kind.
        typical: Those that are no outliers: what is compared.
        windows: When these were.
        of_capture: How many steps of any kind the capture has.
        found: How they were found.
    """

    kind: str
    all: tuple[TimePart, ...]
    typical: tuple[TimePart, ...]
    windows: tuple[TimeWindow, ...]
    of_capture: int
    found: str

    @property
    def slow(self) -> int:
        """How many are outliers."""
        return len(self.all) - len(self.typical)


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A report as it is compared.

    Attributes:
        rows: Its kernels by name, grid and block, with the calls that are compared.
        steps: None where calls are compared, not steps.
    """

    trace: Trace
    kernels: Kernels
    rows: tuple[Row, ...]
    steps: StepSample | None = None

    @property
    def units(self) -> int:
        """How many steps the calls are of; 1 where they are compared by themselves."""
        return 1 if self.steps is None else len(self.steps.typical)


@lru_cache(maxsize=8)
def sides(before: Trace, after: Trace) -> tuple[Side, Side]:
    """Both, by steps where both have some."""
    mine, theirs = _steps_of(before), _steps_of(after)
    if mine is None or theirs is None:
        return by_calls(before), by_calls(after)
    kind = _common_kind(mine, theirs)
    return _by_steps(before, mine, kind), _by_steps(after, theirs, kind)


@lru_cache(maxsize=8)
def by_calls(trace: Trace) -> Side:
    """With all of its calls, whether it has steps or not."""
    kernels = kernels_of(trace)
    return Side(trace, kernels, kernels.groups())


@lru_cache(maxsize=8)
def _steps_of(trace: Trace) -> Breakdown | None:
    if not trace.spans:
        return None
    found = breakdown(trace, By.STEP)
    return None if isinstance(found, Unknown) or not found.parts else found


def _common_kind(before: Breakdown, after: Breakdown) -> _KindOf:
    """What tells the steps that are compared: of the kinds that both have the one with most of the time.

    The length of steps is a part of their kind only where both have steps of the same lengths; where no kind is in
    both, all steps are compared.
    """
    is_alike = {part.group for part in before.parts} == {part.group for part in after.parts}
    kind_of = _title if is_alike else _kind
    times: list[Counter[str]] = [Counter(), Counter()]
    for one, sums in zip((before, after), times, strict=True):
        for part in one.parts:
            sums[kind_of(part)] += part.account.wall_ns
    both = times[0].keys() & times[1].keys()
    if not both:
        return "", lambda part: ""
    return max(both, key=lambda kind: (times[0][kind] + times[1][kind], kind)), kind_of


def _title(part: TimePart) -> str:
    return part.group.title


def _kind(part: TimePart) -> str:
    return part.group.kind


def _by_steps(trace: Trace, found: Breakdown, wanted: _KindOf) -> Side:
    steps = find_steps(trace)
    assert not isinstance(steps, Unknown)
    kind, kind_of = wanted
    both = zip(found.parts, steps.windows, strict=True)
    chosen = [(part, window) for part, window in both if kind_of(part) == kind]
    typical = [(part, window) for part, window in chosen if not part.is_slow]
    windows = tuple(window for _, window in typical)
    parts, typical_parts = (tuple(part for part, _ in several) for several in (chosen, typical))
    sample = StepSample(kind, parts, typical_parts, windows, len(found.parts), found.found)
    kernels = kernels_of(trace)
    return Side(trace, kernels, _within(trace, kernels, windows), sample)


def _within(trace: Trace, kernels: Kernels, windows: Sequence[TimeWindow]) -> tuple[Row, ...]:
    """The kernels that began within the steps; all where the capture does not tell when they did."""
    spans = trace.spans.get(SpanKind.KERNEL)
    if spans is None or len(spans) != len(kernels.table):
        return kernels.groups()
    covers = _covers(windows)
    ends = [covers.get(ids.gpu_of(track), ((), ())) for track in spans.tracks]
    is_in = bytearray(
        bisect_right(ends[track][0], start) > bisect_right(ends[track][1], start)
        for track, start in zip(spans.track_id, spans.start_ns, strict=True)
    )
    parts = (array("q", (i for i in row.launches if is_in[i])) for row in kernels.groups())
    return tuple(row_of(kernels.table, launches) for launches in parts if launches)


def _covers(windows: Sequence[TimeWindow]) -> dict[TrackId, tuple[Sequence[int], Sequence[int]]]:
    """When steps begin and end on each GPU."""
    times: dict[TrackId, tuple[array[int], array[int]]] = defaultdict(lambda: (array("q"), array("q")))
    for window in windows:
        for gpu in window.gpus:
            times[gpu][0].append(window.start_ns)
            times[gpu][1].append(window.end_ns)
    covers = {gpu: Cover.of(*columns) for gpu, columns in times.items()}
    return {gpu: (cover.begins, cover.closes) for gpu, cover in covers.items()}
