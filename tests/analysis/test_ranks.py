"""What stands with the table of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from llmtop import ids
from llmtop.analysis.kernels.breakdown.breakdown import Breakdown, By, breakdown
from llmtop.analysis.kernels.breakdown.ranks import rank_lines
from llmtop.model import ClockBasis, ClockFit, Origin, RankPart, Trace
from tests.analysis.test_steps import server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from llmtop.analysis.kernels.breakdown.breakdown import TimePart

SURE = ClockFit(ClockBasis.COLLECTIVES, 3_200_000_000, 0.0, 0, 400.0, 60)


def run(ranks: int) -> Trace:
    origin = Origin("nsys")
    return Trace(origin, parts=tuple(RankPart(f"rank {i}", origin, (ids.gpu(i),), SURE) for i in range(ranks)))


@pytest.fixture
def parts(tmp_path: Path) -> Sequence[TimePart]:
    """The row of one GPU that waits for nobody."""
    found = breakdown(server().trace(tmp_path), By.RANK)
    assert isinstance(found, Breakdown)
    return found.parts


@pytest.mark.parametrize("ranks", [2, 8])
def test_of_up_to_eight_ranks_each_clock_is_told_but_that_of_the_first(ranks: int, parts: Sequence[TimePart]) -> None:
    """It is the one that all others are brought onto."""
    lines = list(rank_lines(run(ranks), parts))
    assert [line.partition(":")[0] for line in lines] == [f"clock of rank {i}" for i in range(1, ranks)]
    assert all("+3.20 s, by 60 collectives" in line for line in lines)


def test_of_more_ranks_only_how_many_clocks_are_known(parts: Sequence[TimePart]) -> None:
    (line,) = rank_lines(run(9), parts)
    assert line.startswith("clocks: 8 of 8 brought onto that of rank 0 by collectives")
