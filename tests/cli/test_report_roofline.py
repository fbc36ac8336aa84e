"""The roofline of a page: the plots and the words below them go by the same roofs."""

from __future__ import annotations

import math
import re

import pytest

from llmtop.analysis.views import Quality, Roof, RooflinePoint, RooflineView
from llmtop.cli.report_svg import roofline_svg

DRAM = Roof("memory", "DRAM", 1e12, "ncu")
L2 = Roof("memory", "L2", 4e12, "ncu")
FP32 = Roof("compute", "FP32", 2e13, "ncu")


def at(intensity: float, level: str = "DRAM") -> RooflinePoint:
    return RooflinePoint("k", intensity, 1e12, 1e11, "FP32", "ncu", Quality.MEASURED, level)


def places(*points: RooflinePoint, roofs: tuple[Roof, ...]) -> list[float]:
    """How far right points stand in the normalised plot."""
    drawn = "".join(roofline_svg(RooflineView("", roofs, points), normalised=True))
    return [float(x) for x in re.findall(r'<circle class="dot" cx="([0-9.]+)"', drawn)]


@pytest.mark.parametrize("roofs", [(DRAM, L2, FP32), (L2, DRAM, FP32), (FP32, L2, DRAM)])
def test_points_are_held_against_the_ridge_of_their_own_memory_level_in_any_order_of_roofs(
    roofs: tuple[Roof, ...],
) -> None:
    assert RooflineView("", roofs, ()).ridge("FP32") == 20.0
    assert RooflineView("", roofs, ()).ridge("FP32", "L2") == 5.0
    at_ridge, behind_it, at_ridge_of_l2 = places(at(20.0), at(40.0), at(5.0, "L2"), roofs=roofs)
    assert at_ridge == at_ridge_of_l2 < behind_it


@pytest.mark.parametrize("point", [at(math.nan), at(0.0), at(1.0, "L1")])
def test_what_has_no_place_or_no_roof_is_not_drawn(point: RooflinePoint) -> None:
    assert places(point, roofs=(DRAM, FP32)) == []


@pytest.mark.parametrize("roofs", [(DRAM,), (FP32,), (), (Roof("memory", "DRAM", 0.0, "ncu"), FP32)])
def test_there_is_no_ridge_without_both_roofs(roofs: tuple[Roof, ...]) -> None:
    assert RooflineView("", roofs, ()).ridge("FP32") is None
