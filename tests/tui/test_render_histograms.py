"""Histograms as text at fixed sizes."""

from __future__ import annotations

import pytest

from llmtop.analysis.kernels.duration_histograms import Histogram
from llmtop.model import Unknown
from llmtop.tui.render.histograms import ROWS, draw_histograms
from llmtop.tui.render.look import ASCII, Look

EDGES = tuple(10.0 * i for i in range(11))
ONE = Histogram("SM throughput", "%", EDGES, (32, 0, 8, 1, 0, 0, 0, 0, 0, 16), unknown=3)
LACKING = Histogram("L2 hit rate", "%", unknown=60, why_not=Unknown("not collected", "ncu --section X"))


def test_a_histogram_has_its_bars_its_scale_and_what_is_not_known() -> None:
    text = [strip.text.rstrip() for strip in draw_histograms((ONE, LACKING), 40, 9, Look())]
    assert text == [
        "SM throughput  at most 32, 3 not known",
        "  ██",
        "  ██",
        "  ██                         ██",
        "  ██    ██ ▁▁                ██",
        "  0 %   20 %  40 %  60 %  80 %  100 %",
        "",
        "not collected: L2 hit rate",
        "",
    ]


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
@pytest.mark.parametrize("height", [1, 7, 20, 50])
@pytest.mark.parametrize("look", [Look(), Look(ASCII)], ids=["unicode", "ascii"])
def test_every_size_is_filled_exactly(width: int, height: int, look: Look) -> None:
    strips = draw_histograms((ONE,) * 13, width, height, look, top=1)
    assert [strip.cell_length for strip in strips] == [width] * height


def test_one_row_further_down_begins_with_the_next_ones() -> None:
    others = tuple(Histogram(f"h{i}", "%", EDGES, ONE.counts) for i in range(4))
    assert draw_histograms(others, 80, ROWS, Look(), top=1)[0].text.startswith("h2")
