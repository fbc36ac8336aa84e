"""Spans on one line of time at any level of detail: what touches each cell of a screen, without looking at all spans.

A cell is [edges[i], edges[i + 1]) in ns, a span [start, end), one without a length the nanosecond that it stands at. It
is all counted in whole ns: a cell has no span only if none touches it, and is full only if no nanosecond is free.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from llmtop.analysis.timeline.cover import Cover
from llmtop.columns import (
    are_at_most,
    differences,
    in_order,
    largest_by_block,
    picked,
    reaches,
)
from llmtop.frozen import frozen

_BLOCK = 64
"""Values that stand for one on the next level of `Maxima`: so many are compared as fast as a few."""
MOST_DEPTHS = 64
"""Lines that spans within each other get; those that are deeper share the last one."""


_Stretch: TypeAlias = "Callable[[slice], Sequence[float]]"


class Maxima:
    """Where the largest value of any stretch of a column is, found on levels of 64 values for one."""

    def __init__(self, values: array[int] | array[float], read: _Stretch | None = None) -> None:
        """Of values that are kept, or read again by stretches: a million lengths are rather subtracted than held."""
        self._levels: list[_Stretch] = [values.__getitem__ if read is None else read]
        while len(values) > _BLOCK:
            values = largest_by_block(values, _BLOCK)
            self._levels.append(values.__getitem__)

    def place(self, start: int, stop: int) -> int:
        """The row of the largest value in [start, stop), which is not empty.

        >>> column = Maxima(array("q", [5, 9, 2, 7] * 100))
        >>> column.place(2, 4), column.place(0, 400) % 4
        (3, 1)
        """
        found = [self._in_block(level, first, last) for level, first, last in self._parts(start, stop)]
        value, level, at = max(found)
        while level:
            level -= 1
            first = at * _BLOCK
            at = first + self._levels[level](slice(first, first + _BLOCK)).index(value)
        return at

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Stretches of levels that are a given one of the first: its ends value by value, what is between by blocks."""
        level = 0
        while stop - start > 2 * _BLOCK:
            head, tail = -(-start // _BLOCK), stop // _BLOCK
            if start < head * _BLOCK:
                yield level, start, head * _BLOCK
            if tail * _BLOCK < stop:
                yield level, tail * _BLOCK, stop
            level, start, stop = level + 1, head, tail
        if start < stop:
            yield level, start, stop

    def _in_block(self, level: int, start: int, stop: int) -> tuple[float, int, int]:
        values = self._levels[level](slice(start, stop))
        value = max(values)
        return value, level, start + values.index(value)


@frozen
class Run:
    """Columns [first, stop) of a line that show one span.

    Attributes:
        place: The span's row in its line: of those that touch the column, the longest.
        count: How many touch it; of several columns one.
        busy_ns: Of a single column, in how much of it there is any span.
    """

    first: int
    stop: int
    place: int
    count: int
    busy_ns: int


class SpanLine:
    """Spans in columns by their start; they may overlap.

    Attributes:
        starts, ends: In ns; what has no length has one nanosecond.
        codes: What each span is, to those who made the line.
        cover: When there is any.
    """

    def __init__(self, starts: array[int], ends: array[int], codes: Sequence[int]) -> None:
        lasting = differences(ends, starts)
        if starts and min(lasting) < 1:
            ends = array("q", map(_lasting, starts, ends))
            lasting = differences(ends, starts)
        self.starts, self.ends, self.codes = starts, ends, codes
        self._reach = reaches(ends)
        self.overlaps = not are_at_most(self._reach[:-1], starts[1:])
        # Where nothing overlaps ends rise as starts do, and one column serves for all three.
        self._ended = in_order([ends])[0] if self.overlaps else ends
        self._reach = self._reach if self.overlaps else ends
        self.cover = Cover.of(starts, ends)
        self._longest = Maxima(lasting, self._lengths)

    def _lengths(self, rows: slice) -> Sequence[int]:
        return differences(self.ends[rows], self.starts[rows])

    def __len__(self) -> int:
        return len(self.starts)

    def count(self, start: int, end: int) -> int:
        """How many spans touch [start, end)."""
        return bisect_left(self.starts, end) - bisect_right(self._ended, start)

    def longest(self, start: int, end: int) -> int | None:
        """The row of the longest span that touches [start, end), None where none does.

        Between the first that is still open and the last that has begun there may be some that are over by `start`;
        the first one holds each of those, and so is longer.
        """
        first, last = bisect_right(self._reach, start), bisect_left(self.starts, end)
        return self._longest.place(first, last) if first < last else None

    def runs(self, edges: Sequence[int]) -> Iterator[Run]:
        """What to show in the cells between these moments, which rise; cells that no span touches are left out."""
        column, first, cells = 0, 0, len(edges) - 1
        while column < cells:
            start, end = edges[column], edges[column + 1]
            first = bisect_right(self._reach, start, first)
            if first == len(self.starts):
                return
            if self.starts[first] >= end:
                column = bisect_right(edges, self.starts[first]) - 1
                continue
            last = bisect_left(self.starts, end, first)
            count = last - bisect_right(self._ended, start)
            if count > 1:
                place = self._longest.place(first, last)
                yield Run(column, column + 1, place, count, self.cover.within(start, end))
                column += 1
            else:
                stop = min(cells, self._alone_until(first, last, edges))
                yield Run(column, stop, first, 1, min(end, self.ends[first]) - max(start, self.starts[first]))
                column = stop

    def _alone_until(self, place: int, following: int, edges: Sequence[int]) -> int:
        """The first column that the span does not touch any more, or that the next one does."""
        over = bisect_left(edges, self.ends[place])
        if following == len(self.starts):
            return over
        return min(over, bisect_right(edges, self.starts[following]) - 1)

    def beside(self, t_ns: int, step: int) -> int | None:
        """The row of the next span that begins after a moment, or of the last one that began before it."""
        place = bisect_right(self.starts, t_ns) if step > 0 else bisect_left(self.starts, t_ns) - 1
        return place if 0 <= place < len(self.starts) else None

    def place_of(self, code: int, start_ns: int) -> int | None:
        """The row of a span, by what it is and when it begins."""
        first, last = bisect_left(self.starts, start_ns), bisect_right(self.starts, start_ns)
        return next((place for place in range(first, last) if self.codes[place] == code), None)

    def by_depth(self) -> tuple[SpanLine, ...]:
        """Lines on which none overlap, the outermost spans on the first; this one, where there is nothing to part."""
        if not self.overlaps:
            return (self,)
        rows = _by_depth(self.starts, self.ends)
        columns = (self.starts, self.ends, array("q", self.codes))
        return tuple(SpanLine(*(picked(column, own) for column in columns)) for own in rows)


def _lasting(start: int, end: int) -> int:
    return max(end, start + 1)


def _by_depth(starts: array[int], ends: array[int]) -> list[array[int]]:
    """The rows of each depth: a span takes the first that is free, which is that of its nesting where spans nest."""
    rows: list[array[int]] = []
    until: list[int] = []
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        depth = next((depth for depth, taken in enumerate(until) if taken <= start), len(until))
        if depth == len(until) < MOST_DEPTHS:
            rows.append(array("q"))
            until.append(end)
        depth = min(depth, MOST_DEPTHS - 1)
        rows[depth].append(row)
        until[depth] = max(until[depth], end)
    return rows


class SampleLine:
    """The samples of one metric over time, at any level of detail.

    Attributes:
        low, high: The least and the largest value that is known; None where none is.
    """

    def __init__(self, times: array[int], values: array[float]) -> None:
        self._times = times
        self._values = array("d", (value if value == value else -math.inf for value in values))
        known = [value for value in values if value == value]
        self.low: float | None = min(known, default=None)
        self.high: float | None = max(known, default=None)
        self._largest = Maxima(self._values)

    def values(self, edges: Sequence[int]) -> list[float | None]:
        """For each cell the largest of its samples, else the last one before it; None where the source had none."""
        return [self.value(start, end) for start, end in pairwise(edges)]

    def value(self, start: int, end: int) -> float | None:
        """The same of one cell."""
        first, last = bisect_left(self._times, start), bisect_left(self._times, end)
        place = self._largest.place(first, last) if first < last else first - 1
        value = self._values[place] if place >= 0 else -math.inf
        return None if value == -math.inf else value
