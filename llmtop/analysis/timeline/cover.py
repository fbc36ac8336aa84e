"""Time that spans cover, overlapping or not: how much of it lies between any two moments."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, compress, count, islice
from operator import gt, sub

from llmtop.columns import in_order, reaches


@dataclass(frozen=True, slots=True)
class Cover:
    """Stretches that neither overlap nor touch, in order; `before` is the length of all before each, and of all."""

    begins: Sequence[int]
    closes: Sequence[int]
    before: Sequence[int]

    @classmethod
    def of(cls, starts: array[int], ends: array[int]) -> Cover:
        """Of spans in any order.

        >>> Cover.of(array("q", [0, 5, 20]), array("q", [10, 12, 30])).within(6, 22)
        8
        """
        if not starts:
            return cls((), (), (0,))
        starts, ends = in_order([starts, ends])
        reach = reaches(ends)
        rows = array("q", compress(count(1), map(gt, islice(starts, 1, None), reach)))
        begins = array("q", chain(starts[:1], map(starts.__getitem__, rows)))
        closes = array("q", chain((reach[i - 1] for i in rows), reach[-1:]))
        return cls(begins, closes, array("q", accumulate(map(sub, closes, begins), initial=0)))

    @classmethod
    def union(cls, covers: Iterable[Cover]) -> Cover:
        """What any of them covers."""
        starts, ends = array("q"), array("q")
        for one in covers:
            starts.extend(one.begins)
            ends.extend(one.closes)
        return cls.of(starts, ends)

    @property
    def total(self) -> int:
        """All of it, in ns."""
        return self.before[-1]

    def within(self, start: int, end: int) -> int:
        """How much of the time between two moments is covered, in ns."""
        return self._until(end) - self._until(start)

    def _until(self, t_ns: int) -> int:
        i = bisect_right(self.begins, t_ns)
        return self.before[i] - max(0, self.closes[i - 1] - t_ns) if i else 0
