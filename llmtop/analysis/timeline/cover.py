"""Time that spans cover, overlapping or not: how much of it lies between any two moments."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from llmtop.columns import differences, in_order, is_long, picked, reaches, shifted, steps_above, sums_before
from llmtop.frozen import frozen


@frozen
class Cover:
    """Stretches that neither overlap nor touch, in order; `before` is the length of all before each, and of all.

    When each ends is told by both: a third column of a million stretches would take as much room again.
    """

    begins: array[int]
    before: array[int]

    @classmethod
    def of(cls, starts: array[int], ends: array[int]) -> Cover:
        """Of spans in any order.

        >>> Cover.of(array("q", [0, 5, 20]), array("q", [10, 12, 30])).within(6, 22)
        8
        """
        if not starts:
            return cls(array("q"), array("q", [0]))
        starts, ends = in_order([starts, ends])
        reach = reaches(ends)
        news = steps_above(starts, reach)
        if len(news) < len(starts) - 1:
            last = array("q", [*shifted(news, -1), len(starts) - 1])
            starts, reach = picked(starts, array("q", [0, *news])), picked(reach, last)
        return cls(starts, sums_before(differences(reach, starts)))

    @classmethod
    def union(cls, covers: Iterable[Cover]) -> Cover:
        """What any of them covers."""
        starts, ends = array("q"), array("q")
        for one in covers:
            starts.extend(one.begins)
            ends.extend(one.closes)
        return cls.of(starts, ends)

    @property
    def closes(self) -> array[int]:
        """When each stretch ends; made anew."""
        return differences(self.begins, differences(self.before[:-1], self.before[1:]))

    @property
    def total(self) -> int:
        """All of it, in ns."""
        return self.before[-1]

    def within(self, start: int, end: int) -> int:
        """How much of the time between two moments is covered, in ns."""
        return self._until(end) - self._until(start)

    def lengths_within(self, start: int, end: int) -> Iterator[int]:
        """How much of each stretch that lies at least in part between two moments does."""
        first = bisect_right(self.begins, start)
        for i in range(max(0, first - 1), bisect_left(self.begins, end)):
            length = min(self._close(i), end) - max(self.begins[i], start)
            if length > 0:
                yield length

    def overlap(self, other: Cover) -> int:
        """How much time both cover, in ns."""
        closes = self.closes
        if not is_long(len(closes)):
            return sum(map(other.within, self.begins, closes))
        return other._until_all(closes) - other._until_all(self.begins)

    def _until_all(self, moments: array[int]) -> int:
        """How much is covered until each of many moments, added up."""
        import numpy as np

        if not self.begins:
            return 0
        times, begins, closes, before = (
            np.asarray(column, np.int64) for column in (moments, self.begins, self.closes, self.before)
        )
        rows = np.searchsorted(begins, times, "right")
        ahead = np.where(rows > 0, np.maximum(closes[np.maximum(rows, 1) - 1] - times, 0), 0)
        return int(before[rows].sum() - ahead.sum())

    def _until(self, t_ns: int) -> int:
        i = bisect_right(self.begins, t_ns)
        return self.before[i] - max(0, self._close(i - 1) - t_ns) if i else 0

    def _close(self, i: int) -> int:
        return self.begins[i] + self.before[i + 1] - self.before[i]
