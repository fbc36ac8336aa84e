"""Straight lines through points, and how sure they are."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from llmtop.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence


_ROUNDING = 1e-9
"""Of the largest y: what differs by less from the line differs by rounding."""


@frozen
class FittedLine:
    """The line y = intercept + slope x of the least squares, with standard errors.

    Neighbouring points of a live server resemble each other; taken as independent they would make the errors too
    small. So n points count as n (1 - r) / (1 + r) of them, r being the correlation of neighbouring residuals
    (Bayley and Hammersley 1946, J. R. Statist. Soc. Suppl. 8: 184-197, first order).

    Attributes:
        n_effective: As how many independent points they count.
        mean_x: Where the line is surest.
        scatter: Standard deviation of the points about the line; infinite where no more than two points count.
        slope_error: Infinite then too, and where all have one x.
    """

    intercept: float
    slope: float
    n_effective: float
    mean_x: float
    scatter: float
    slope_error: float

    def at(self, x: float) -> float:
        """The line's y."""
        return self.intercept + self.slope * x

    def error_at(self, x: float) -> float:
        """Standard error of the line's y: the further from what was seen, the larger."""
        level = self.scatter / math.sqrt(self.n_effective)
        return level if x == self.mean_x else math.hypot(level, self.slope_error * (x - self.mean_x))

    @property
    def intercept_error(self) -> float:
        """Standard error of the line's y at 0."""
        return self.error_at(0.0)


def fitted(points: Sequence[tuple[float, float]]) -> FittedLine:
    """The line through (x, y) points in the order they were seen; flat where all have one x.

    Raises:
        ValueError: There is no point.
    """
    if not points:
        raise ValueError("a line needs points")
    n = len(points)
    mean_x, mean_y = (math.fsum(column) / n for column in zip(*points, strict=True))
    xx = math.fsum((x - mean_x) ** 2 for x, _ in points)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / xx if xx else 0.0
    rests = [y - mean_y - slope * (x - mean_x) for x, y in points]
    largest = max(abs(y) for _, y in points)
    rests = [0.0 if abs(rest) <= _ROUNDING * largest else rest for rest in rests]
    effective = _n_effective(rests)
    squares = math.fsum(rest * rest for rest in rests)
    scatter = math.sqrt(squares / n * effective / (effective - 2)) if effective > 2 else math.inf
    error = scatter / math.sqrt(xx * effective / n) if xx else math.inf
    return FittedLine(mean_y - slope * mean_x, slope, effective, mean_x, scatter, error)


def _n_effective(rests: Sequence[float]) -> float:
    squares = math.fsum(rest * rest for rest in rests)
    r = math.fsum(one * other for one, other in pairwise(rests)) / squares if squares else 0.0
    return len(rests) * (1 - r) / (1 + r) if 0 < r < 1 else float(len(rests))
