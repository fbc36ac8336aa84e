"""How large a difference of times has to be to mean something.

Where a report has several calls of a kernel, or several steps, their spread tells: a difference of means counts from
three standard errors on (Welch's, of samples that spread differently). It tells nothing of what a whole run differs by
from the next, which is why 1 % is added. Of a single call nothing is known: 5 % and a microsecond are taken, and said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from llmtop.frozen import frozen

FEWEST = 3
"""Values from which on their spread is worth something."""
ERRORS = 3.0
RUNS = 0.01
"""Clocks and temperatures move all times of a run together."""
ONE_CALL = 0.05
ONE_CALL_NS = 1_000.0


@frozen
class Noise:
    """What a difference may be without meaning anything, in ns.

    Attributes:
        common_ns: Of the whole run: it adds up over kernels.
        random_ns: Of each call by itself: over kernels its squares add up.
        is_known: Whether it was measured; else it is taken.
    """

    common_ns: float
    random_ns: float
    is_known: bool

    @property
    def ns(self) -> float:
        """All of it."""
        return self.common_ns + self.random_ns

    def hides(self, change_ns: float) -> bool:
        """Whether a difference means nothing."""
        return abs(change_ns) <= self.ns

    def times(self, count: float) -> Noise:
        """Of so many calls together."""
        return Noise(self.common_ns * count, self.random_ns * count, self.is_known)


@frozen
class TimeSample:
    """How several times (in ns) or values of a counter spread; `variance` is that of a sample, 0 of a single one."""

    count: int
    mean: float
    variance: float

    @classmethod
    def of(cls, values: Sequence[float]) -> TimeSample:
        """Of at least one value."""
        middle = math.fsum(values) / len(values)
        squares = math.fsum((value - middle) ** 2 for value in values)
        return cls(len(values), middle, squares / (len(values) - 1) if len(values) > 1 else 0.0)


def noise_of(before: TimeSample, after: TimeSample) -> Noise:
    """That of the difference of two means; where one side is too few to spread, it is taken to spread as the other.

    >>> noise_of(TimeSample(1, 1e6, 0.0), TimeSample(1, 1e6, 0.0)).ns
    51000.0
    >>> noise_of(TimeSample(9, 1e6, 9e8), TimeSample(9, 1e6, 9e8)) == Noise(1e4, 3 * math.sqrt(2e8), is_known=True)
    True
    """
    middle = (before.mean + after.mean) / 2
    enough = [one for one in (before, after) if one.count >= FEWEST]
    if not enough:
        return Noise(ONE_CALL * middle, ONE_CALL_NS, is_known=False)
    squares = (_spreading(one, enough[0]).variance / one.count for one in (before, after))
    return Noise(RUNS * middle, ERRORS * math.sqrt(sum(squares)), is_known=True)


def _spreading(one: TimeSample, other: TimeSample) -> TimeSample:
    return one if one.count >= FEWEST else other


def noise_of_sum(parts: Iterable[Noise]) -> Noise:
    """Of all parts together: what is random evens out, what is common does not."""
    known = list(parts)
    random = math.sqrt(math.fsum(one.random_ns**2 for one in known))
    return Noise(math.fsum(one.common_ns for one in known), random, all(one.is_known for one in known))
