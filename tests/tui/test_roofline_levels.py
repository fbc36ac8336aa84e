"""The view Roofline by level in the explorer."""

from __future__ import annotations

from llmtop.analysis.kernels.roofline_levels import RooflineLevels, roofline_levels
from llmtop.model import Trace
from llmtop.parsers.registry import load
from llmtop.tui.panes.roofline_levels import RooflineLevelsPane
from llmtop.tui.render.look import ASCII, Look
from llmtop.tui.render.roofline_levels import draw_roofline_levels
from llmtop.tui.screens.explore_screen import ExploreApp, ExploreScreen
from tests.kernel_traces import DRAM_COUNTERS, LADDER, TIMELINE, Launch, fp32_counters
from tests.kernel_traces import report as made
from tests.tui.test_explore import read, settle

TABLE = [
    "level  work in     FLOP/B        ceiling    of it       moved  of peak",
    "L1     FP32          0.24   8.14 TFLOP/s    6.0 %   2.00 TB/s    6.0 %",
    "L2     FP32          8.18   66.9 TFLOP/s    0.7 %   59.5 GB/s    0.7 %",
    "DRAM   FP32           348   66.9 TFLOP/s    0.7 %   1.40 GB/s    0.0 %",
]


def drawn(trace: Trace, width: int, height: int, look: Look | None = None) -> list[str]:
    page = roofline_levels(trace, 0)
    assert isinstance(page, RooflineLevels)
    strips = draw_roofline_levels(page, width, height, look or Look())
    assert {strip.cell_length for strip in strips} == {width}
    return [strip.text.rstrip() for strip in strips]


def test_the_plot_stands_over_the_table_where_there_is_room() -> None:
    lines = drawn(load(LADDER), 78, 24)
    table = lines.index(TABLE[0])
    assert lines[table : table + 4] == TABLE
    assert lines[0].startswith("◉ DRAM  0.7 % of roof  348 FLOP/B")
    assert any("L1 33.5 TB/s" in line for line in lines[:table])
    assert any("● L1" in line for line in lines[:table])
    assert lines[table + 4].startswith("the nearest ceiling is that of L1, of which it reaches 6.0 %")


def test_the_table_alone_where_there_is_little() -> None:
    assert drawn(load(LADDER), 78, 14)[:4] == TABLE


def test_ascii() -> None:
    assert all(line.isascii() for line in drawn(load(LADDER), 100, 30, Look(ASCII)))


def test_what_is_missing_stands_below_with_the_command() -> None:
    lines = drawn(made(Launch("k", metrics={**DRAM_COUNTERS, **fp32_counters(fma=500)})), 78, 30)
    assert "– bytes of L1, L2 not collected" in lines
    assert any(line.startswith("$ ncu ") for line in lines)
    assert next(line for line in lines if line.startswith("L2 ")).split()[2:] == ["–"] * 5


async def test_tab_gets_there_and_it_follows_the_kernel() -> None:
    app = ExploreApp([read(load(LADDER))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, ExploreScreen)
        screen.show_view(RooflineLevelsPane)
        await settle(pilot)
        assert "─ Roofline by level  sgemm_naive (1 of 5)" in app.screen_text()
        await pilot.press("full_stop")
        await settle(pilot)
        assert "(2 of 5)" in app.screen_text()
        assert "it reaches 75 %" in app.screen_text()


def test_a_timeline_has_no_such_tab() -> None:
    assert RooflineLevelsPane.why_not(load(TIMELINE)) is not None
