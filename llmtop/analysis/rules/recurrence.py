"""What comes back: a long gap of a GPU in every range of one name, which is no start and no hiccup."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import add
from statistics import median
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.work import work_by_gpu
from llmtop.columns import differences, picked, shifted
from llmtop.frozen import frozen
from llmtop.model import SpanKind
from llmtop.text import range_name
from llmtop.units import duration

if TYPE_CHECKING:
    from llmtop.model import Trace, TrackId

_FEWEST = 3
"""Ranges of a name from which on something can be said to come back."""
_MOST = 0.8
"""Of the ranges: the first may have more to do, the last be cut."""
_ALIKE = 2.0
"""Gaps within this factor of the usual one are of its kind. Ours."""


@frozen
class Recurrence:
    """One gap in each range of a name; its shortest and longest, in ns."""

    name: str
    times: int
    shortest_ns: int
    longest_ns: int

    def __str__(self) -> str:
        lengths = dict.fromkeys((duration(self.shortest_ns), duration(self.longest_ns)))
        return f"once per {self.name} range: one gap of {' to '.join(lengths)} in each of {self.times} (nsys)"


def recurrence(trace: Trace, gpu: TrackId, name: str) -> Recurrence | None:
    """The gap of a GPU that comes once in every range of this name (as `range_name` has it); None where none does.

    The usual gap is the median of the longest one of each range. It comes back where every range has one like it, and
    most have no second.
    """
    gaps = _gaps_in_ranges(trace, gpu, name)
    if len(gaps) < _FEWEST or not all(gaps):
        return None
    usual = median(max(own) for own in gaps)
    alike = [[ns for ns in own if usual / _ALIKE <= ns <= usual * _ALIKE] for own in gaps]
    if not all(alike) or sum(len(own) == 1 for own in alike) < _MOST * len(alike):
        return None
    chosen = [min(own, key=lambda ns: abs(ns - usual)) for own in alike]
    return Recurrence(name, len(chosen), min(chosen), max(chosen))


def _gaps_in_ranges(trace: Trace, gpu: TrackId, name: str) -> Sequence[Sequence[int]]:
    """The lengths of the gaps whose middle lies in each range of the name."""
    ranges, work = trace.spans.get(SpanKind.NVTX), work_by_gpu(trace).get(gpu)
    if ranges is None or work is None:
        return ()
    wanted = {i for i, full in enumerate(ranges.names) if range_name(full) == name}
    rows = zip(ranges.name_id, ranges.start_ns, ranges.end_ns, strict=True)
    windows = [(start, end) for name_id, start, end in rows if name_id in wanted]
    gaps = array("q", work.gaps())
    since, until = picked(work.reach, shifted(gaps, -1)), picked(work.starts, gaps)
    twice_middle, lengths = array("q", map(add, since, until)), differences(until, since)
    return [
        lengths[bisect_left(twice_middle, 2 * start) : bisect_right(twice_middle, 2 * end)] for start, end in windows
    ]
