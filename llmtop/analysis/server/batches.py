"""How the time between tokens goes with the batch: what was seen by its size, and a straight line through it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.histograms import between_looks, distribution
from llmtop.analysis.series.lines import FittedLine, fitted
from llmtop.analysis.series.readings import why_absent
from llmtop.analysis.server.requests import is_told_once_a_request
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown, UnknownKind
from llmtop.units import count, two_digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.model import Trace, Track

WINDOW_NS = 300 * NS_PER_S
"""A batch is what clients send: minutes show more of its sizes than seconds."""
_STEADY = 0.25
"""Between two looks a batch may change by this part of itself: the time between tokens is a mean over that."""
_LEAST_POINTS = 8.0
"""That do not follow from each other, of fewer of which no line is drawn."""
_LEAST_RATIO = 1.5
"""Largest batch over smallest one, from which on a slope is more than noise beside a level."""
_LEAST_SURE = 3.0
"""Slopes of fewer standard errors are no slope yet."""
_ONCE = Unknown(
    "the server tells times between tokens when a request ends: they are not of the batch of then",
    "none: vLLM, SGLang and Dynamo tell them with each token",
)


@frozen
class BatchPoint:
    """The mean time between tokens between two looks, at a batch that was steady."""

    batch: float
    itl_s: float
    tokens: float


@frozen
class BatchRange:
    """All that was seen at batches from `low` to `high`.

    Attributes:
        itl_s: The mean over its tokens.
        looks: How many intervals between two looks.
    """

    low: int
    high: int
    itl_s: float
    tokens: float
    looks: int

    @property
    def text(self) -> str:
        """The batches: "8", "5 to 8"."""
        return f"{self.low}" if self.low == self.high else f"{self.low} to {self.high}"


@frozen
class StepLine:
    """Step time = a + b x batch, fitted to what was seen.

    Attributes:
        line: In seconds over requests.
        smallest, largest: The batches that it was fitted to: beyond them it is an extrapolation.
    """

    line: FittedLine
    smallest: float
    largest: float
    looks: int

    @property
    def text(self) -> str:
        """One line: "step = 8.1 ms (± 0.2) + 0.11 ms (± 0.01) x batch, of 42 looks at batches 4 to 64"."""
        line = self.line
        level, slope = (two_digits(value, "s") for value in (line.intercept, line.slope))
        errors = [two_digits(value, "s") for value in (line.intercept_error, line.slope_error)]
        seen = f"of {self.looks} looks at batches {count(round(self.smallest))} to {count(round(self.largest))}"
        return f"step = {level} (± {errors[0]}) + {slope} (± {errors[1]}) x batch, {seen}"


def batch_points(trace: Trace, server: Track, window_ns: int = WINDOW_NS) -> tuple[BatchPoint, ...] | Unknown:
    """What was seen between each two looks of the last `window_ns`, oldest first; why nothing was."""
    running = trace.get(server.id, v.SERVER_RUNNING)
    seen = distribution(trace, server.id, v.SERVER_ITL, window_ns)
    if running is None:
        return why_absent(trace, server.id, v.SERVER_RUNNING)
    if isinstance(seen, Unknown):
        return seen
    if is_told_once_a_request(trace, server, seen, window_ns):
        return _ONCE
    points = []
    for look in between_looks(trace, server.id, v.SERVER_ITL, window_ns):
        before, after = running.at(look.start_ns), running.at(look.end_ns)
        if look.count <= 0 or look.sum < 0 or before is None or after is None:
            continue
        batch = (before + after) / 2
        if batch > 0 and abs(after - before) <= max(1.0, _STEADY * batch):
            points.append(BatchPoint(batch, look.sum / look.count, look.count))
    return tuple(points) or Unknown("no tokens were seen at a steady batch", "look for longer", UnknownKind.PASSING)


def by_batch(points: Sequence[BatchPoint]) -> tuple[BatchRange, ...]:
    """By powers of two, the smallest first: 1, 2, 3 to 4, 5 to 8 ..."""
    groups = defaultdict[int, list[BatchPoint]](list)
    for point in points:
        groups[max(0, (max(1, round(point.batch)) - 1).bit_length())].append(point)
    return tuple(_range(groups[power]) for power in sorted(groups))


def _range(points: Sequence[BatchPoint]) -> BatchRange:
    """Named by the batches that were seen of it."""
    tokens = sum(point.tokens for point in points)
    batches = [max(1, round(point.batch)) for point in points]
    mean_s = sum(point.itl_s * point.tokens for point in points) / tokens
    return BatchRange(min(batches), max(batches), mean_s, tokens, len(points))


def step_line(points: Sequence[BatchPoint]) -> StepLine | Unknown:
    """The line through what was seen; "not enough spread yet" until its slope is surer than chance."""
    batches = [point.batch for point in points]
    small, large = min(batches), max(batches)
    seen = f"batches {count(round(small))} to {count(round(large))} were seen"
    if large < _LEAST_RATIO * small or large - small < 2:
        return Unknown(f"not enough spread yet: {seen}", "let the load change, or look for longer", UnknownKind.PASSING)
    line = fitted([(point.batch, point.itl_s) for point in points])
    if line.n_effective < _LEAST_POINTS:
        independent = f"{len(points)} looks count as {line.n_effective:.0f} independent ones"
        return Unknown(f"not enough spread yet: {seen}, but {independent}", "look for longer", UnknownKind.PASSING)
    if line.slope <= _LEAST_SURE * line.slope_error:
        slope = f"{two_digits(line.slope, 's')} a request, ± {two_digits(line.slope_error, 's')}"
        return Unknown(f"no slope that is surer than chance: {seen}, {slope}", "look for longer", UnknownKind.PASSING)
    return StepLine(line, small, large, len(points))
