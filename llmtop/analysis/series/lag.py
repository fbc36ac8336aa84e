"""The lag at which two series on one grid move together most, and whether that can be chance.

Spearman's rank correlation: idle shares end at 0 and 1 and rates have bursts, so that a few extreme seconds would make
or hide a Pearson correlation. Neighbouring samples of a live server resemble each other; taken as independent they
make chance look like proof. So a series of N samples counts as N* independent ones (Pyper and Peterman 1998, Can. J.
Fish. Aquat. Sci. 55: 2127-2140, equation 1 after Bartlett 1946):

    1/N* = 1/N + 2/N sum over j of (N - j)/N rx(j) ry(j)

with rx(j), ry(j) the autocorrelations at lag j. The sum ends where the product is no longer positive (Geyer 1992,
initial positive sequence) or at j = N/5. Fisher's z with the variance 1.06/(N* - 3) for ranks (Fieller, Hartley and
Pearson 1957) gives the probability, which is multiplied by the number of lags that were tried (Bonferroni).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate, compress
from operator import mul
from typing import TYPE_CHECKING

from llmtop.frozen import frozen
from llmtop.model import Unknown, UnknownKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.analysis.series.grid import Cells

LEAST_SAMPLES = 30
"""That two series must have in common."""
LEAST_EFFECTIVE = 6.0
"""And so many that do not follow from each other."""
LEAST_CHANGES = 5
"""So many samples must differ from the most frequent value: one burst is an anecdote."""
_RANK_VARIANCE = 1.06
_SUM_END = 5
"""Autocorrelations are added up to a fifth of the samples: further out they are noise."""
_HIGHEST = 1 - 1e-9


@frozen
class Lagged:
    """The strongest correlation of two series.

    Attributes:
        lag: In cells; positive where the second series follows the first.
        p: Of as strong a correlation at any of the lags by chance.
    """

    lag: int
    r: float
    p: float
    n_effective: float
    samples: int


@dataclass(slots=True)
class Ranks:
    """A series by the ranks of its values, around zero, and what is computed of it more than once.

    Attributes:
        ranks: 0.0 where there is no value; `has` is then 0.0 and else 1.0.
        sums: Sums of the ranks up to each place, and of their squares, and of `has`: the sums of any part are two
            of these apart.
        autocorrelations: As far as they were asked for.
    """

    ranks: list[float]
    has: list[float]
    sums: tuple[list[float], list[float], list[float]]
    is_whole: bool
    autocorrelations: list[float] = field(default_factory=list)

    def autocorrelation(self, lag: int) -> float:
        """At a lag of at least 1, over the pairs that are there."""
        while len(self.autocorrelations) < lag:
            self.autocorrelations.append(self._autocorrelation(len(self.autocorrelations) + 1))
        return self.autocorrelations[lag - 1]

    def _autocorrelation(self, lag: int) -> float:
        count = len(self.ranks) - lag if self.is_whole else sum(map(mul, self.has, self.has[lag:]))
        variance = self.sums[1][-1] / self.sums[2][-1]
        return sum(map(mul, self.ranks, self.ranks[lag:])) / count / variance if count and variance else 0.0


def ranked(cells: Cells) -> Ranks | Unknown:
    """A series ready to be correlated; Unknown where it does not change enough to say anything."""
    cells = _without_noise(cells)
    known = [value for value in cells if value is not None]
    if len(known) < LEAST_SAMPLES:
        return Unknown(f"not enough data: {len(known)} of at least {LEAST_SAMPLES} samples")
    rank_by_value = _midranks(known)
    if len(rank_by_value) == 1:
        return Unknown("constant over the window")
    changes = len(known) - max(_counts(known).values())
    if changes < LEAST_CHANGES:
        return Unknown(f"hardly changes: {changes} of {len(known)} samples differ")
    middle = (len(known) + 1) / 2
    ranks = [0.0 if value is None else rank_by_value[value] - middle for value in cells]
    has = [0.0 if value is None else 1.0 for value in cells]
    sums = tuple(list(accumulate(column, initial=0.0)) for column in (ranks, map(mul, ranks, ranks), has))
    return Ranks(ranks, has, (sums[0], sums[1], sums[2]), len(known) == len(cells))


def best_lag(first: Ranks, second: Ranks, most: int) -> Lagged | Unknown:
    """The lag of at most `most` cells either way at which the ranks go together best, and its significance."""
    candidates = [
        (lag, *found) for lag in sorted(range(-most, most + 1), key=abs) if (found := _at_lag(first, second, lag))
    ]
    if not candidates:
        return Unknown(f"not enough data: fewer than {LEAST_SAMPLES} samples of both at once")
    lag, r, samples = max(candidates, key=lambda candidate: abs(candidate[1]))
    effective = n_effective(first, second, samples)
    if effective < LEAST_EFFECTIVE:
        return Unknown(
            f"too slow for the window: its {samples} samples count as {effective:.0f} independent ones",
            "look for longer",
            UnknownKind.PASSING,
        )
    z = math.atanh(min(_HIGHEST, abs(r))) * math.sqrt((effective - 3) / _RANK_VARIANCE)
    return Lagged(lag, r, min(1.0, math.erfc(z / math.sqrt(2)) * len(candidates)), effective, samples)


def n_effective(first: Ranks, second: Ranks, samples: int) -> float:
    """As how many independent pairs `samples` pairs of two autocorrelated series count."""
    total = 1.0
    for j in range(1, samples // _SUM_END + 1):
        product = first.autocorrelation(j) * second.autocorrelation(j)
        if product <= 0:
            break
        total += 2 * (samples - j) / samples * product
    return samples / total


def _at_lag(first: Ranks, second: Ranks, lag: int) -> tuple[float, int] | None:
    """Correlation and number of pairs, `second` being `lag` cells later; None where there is none."""
    count = len(first.ranks) - abs(lag)
    a, b = max(0, -lag), max(0, lag)
    if first.is_whole and second.is_whole:
        n = float(count)
        x, xx = (column[a + count] - column[a] for column in first.sums[:2])
        y, yy = (column[b + count] - column[b] for column in second.sums[:2])
        xy = sum(map(mul, first.ranks[a : a + count], second.ranks[b : b + count]))
    else:
        both = list(map(mul, first.has[a : a + count], second.has[b : b + count]))
        xs = list(compress(first.ranks[a : a + count], both))
        ys = list(compress(second.ranks[b : b + count], both))
        n, x, y = float(len(xs)), sum(xs), sum(ys)
        xx, yy, xy = (sum(map(mul, one, other)) for one, other in ((xs, xs), (ys, ys), (xs, ys)))
    if n < LEAST_SAMPLES - abs(lag):
        return None
    spread = (xx - x * x / n) * (yy - y * y / n)
    return ((xy - x * y / n) / math.sqrt(spread), int(n)) if spread > 0 else None


def _without_noise(cells: Cells) -> Cells:
    """Values to a millionth of the largest: what differs by less differs by rounding, and ranks would magnify it."""
    unit = max((abs(value) for value in cells if value is not None), default=0.0) * 1e-6
    return tuple(value and round(value / unit) for value in cells) if unit else cells


def _midranks(values: Sequence[float]) -> dict[float, float]:
    """The rank of each value; equal ones share the mean of theirs."""
    counts = _counts(sorted(values))
    ranks, before = {}, 0
    for value, count in counts.items():
        ranks[value] = before + (count + 1) / 2
        before += count
    return ranks


def _counts(values: Sequence[float]) -> dict[float, int]:
    counts: dict[float, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts


def holm(ps: Sequence[float]) -> tuple[float, ...]:
    """Probabilities corrected for their number, whatever their dependence (Holm 1979, Scand. J. Statist. 6: 65-70).

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    corrected, highest = [0.0] * len(ps), 0.0
    for place, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        highest = max(highest, min(1.0, ps[i] * (len(ps) - place)))
        corrected[i] = highest
    return tuple(corrected)
