"""Steps that do not do the same: of different phases, of ranges by turns, or plainly of two lengths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Final

from llmtop.frozen import frozen
from llmtop.text import listed, range_name

if TYPE_CHECKING:
    from llmtop.analysis.timeline.ranges import TimeWindow
    from llmtop.analysis.timeline.steps import StepPhase
    from llmtop.model import Unknown

_FEWEST = 3
"""Steps of a length from which on they are steps of their own kind; fewer are outliers."""
_LEAST_SHARE = 0.2
"""And of all of these the least share. Ours."""
_APART = 1.3
"""Times the longest of the short ones, from which on the shortest of the long ones is of another length. Ours."""
_SCATTER = 3.0
"""Times the median deviations of both together: so far apart are their nearest members."""
_NAMED = 4
"""Steps that are named by their numbers; of more, how often they come."""
_ABOUT = 0.2
"""Of the steps between two of them, the share by which that may change where they come "about every 10th"."""


@frozen
class StepGroup:
    """What steps of one kind have in common, and what they are called after: "decode", "backward", "long decode".

    Attributes:
        length: "short" or "long" where steps that are otherwise alike are of two lengths; else empty.
        kind: The phase, or the name of the range where ranges of several are steps; empty where nothing tells.
    """

    length: str = ""
    kind: str = ""

    @property
    def title(self) -> str:
        """What stands before "steps"; empty where all are of one kind."""
        return f"{self.length} {self.kind}".strip()

    @property
    def shorter(self) -> StepGroup | None:
        """The group that these are the long ones of."""
        return StepGroup("short", self.kind) if self.length == "long" else None


ALIKE: Final = StepGroup()
"""All steps where nothing tells them apart."""


def step_groups(
    windows: Sequence[TimeWindow], phases: Sequence[StepPhase | Unknown], walls: Sequence[int]
) -> list[StepGroup]:
    """Of each step its group: by phase where that is told, else by name where several are steps; then by length."""
    kinds = _kinds([range_name(one.name) for one in windows], phases)
    rows: dict[str, list[int]] = defaultdict(list)
    for i, kind in enumerate(kinds):
        rows[kind].append(i)
    limits = {kind: long_from([walls[i] for i in own]) for kind, own in rows.items()}
    return [StepGroup(_length(wall, limits[kind]), kind) for wall, kind in zip(walls, kinds, strict=True)]


def _kinds(names: Sequence[str], phases: Sequence[StepPhase | Unknown]) -> list[str]:
    told = [str(phase) if isinstance(phase, str) else "" for phase in phases]
    if any(told) or len(set(names)) == 1:
        return told
    return list(names)


def _length(wall: int, limit: int | None) -> str:
    if limit is None:
        return ""
    return "long" if wall >= limit else "short"


def long_from(walls: Sequence[int]) -> int | None:
    """From which length on a step is one of the long ones; None where there are no two lengths.

    >>> long_from([6, 41, 6, 43, 7, 42]), long_from([6, 7, 8, 9, 10, 11]), long_from([6, 6, 6, 6, 6, 6, 41])
    (41, None, None)
    """
    ascending = sorted(walls)
    least = max(_FEWEST, ceil(_LEAST_SHARE * len(ascending)))
    cuts = range(least, len(ascending) - least + 1)
    cut = max(cuts, key=lambda i: ascending[i] / max(1, ascending[i - 1]), default=0)
    if not cut:
        return None
    short, long = ascending[:cut], ascending[cut:]
    scatter = _deviation(short) + _deviation(long)
    is_apart = long[0] >= _APART * short[-1] and long[0] - short[-1] > _SCATTER * scatter
    return long[0] if is_apart else None


def _deviation(values: Sequence[int]) -> float:
    middle = median(values)
    return median(abs(one - middle) for one in values)


def how_they_come(numbers: Sequence[int]) -> str:
    """Which steps these are, by their numbers, ascending.

    >>> how_they_come([4, 5, 6, 7]), how_they_come([10, 20, 30]), how_they_come([3]), how_they_come([1, 2, 9, 11, 30])
    ('steps 4 to 7', 'every 10th step from step 10 on', 'step 3', '5 of the steps from 1 to 30')
    >>> how_they_come([10, 20, 29, 39]), how_they_come([2, 4, 7])
    ('about every 10th step from step 10 on', 'steps 2, 4 and 7')
    """
    first, last = numbers[0], numbers[-1]
    if len(numbers) == 1:
        return f"step {first}"
    apart = [after - before for before, after in pairwise(numbers)]
    if len(numbers) >= _FEWEST and max(apart) == 1:
        return f"steps {first} to {last}"
    if len(numbers) >= _FEWEST and max(apart) - min(apart) <= _ABOUT * (min(apart) - 1):
        about = "" if len(set(apart)) == 1 else "about "
        return f"{about}every {ordinal(round(median(apart)))} step from step {first} on"
    if len(numbers) <= _NAMED:
        return f"steps {listed(map(str, numbers))}"
    return f"{len(numbers)} of the steps from {first} to {last}"


def ordinal(number: int) -> str:
    """As people write it.

    >>> ordinal(2), ordinal(3), ordinal(11), ordinal(21)
    ('2nd', '3rd', '11th', '21st')
    """
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
