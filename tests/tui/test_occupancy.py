"""The view Occupancy in the explorer."""

from __future__ import annotations

import pytest

from llmtop.analysis.kernels.occupancy_calculator import BlockNeed
from llmtop.analysis.kernels.occupancy_what_if import OccupancyWhatIf, occupancy_what_if
from llmtop.parsers.registry import load
from llmtop.tui.aside import Analysed
from llmtop.tui.panes.occupancy import OccupancyPane
from llmtop.tui.panes.source import SourcePane
from llmtop.tui.render.look import ASCII, Look
from llmtop.tui.render.occupancy import OccupancyScreen, draw_occupancy
from llmtop.tui.screens.explore_screen import ExploreApp
from tests.kernel_traces import LADDER, LLAMA, TIMELINE, Launch
from tests.kernel_traces import report as made
from tests.tui.test_explore import read, settle

REGISTERS = LADDER.with_name("too-many-registers.ncu-rep.xz")
OCCUPANCY, SOURCE = str(OccupancyPane.number), str(SourcePane.number)


@pytest.fixture(scope="module")
def page() -> OccupancyWhatIf:
    found = occupancy_what_if(load(REGISTERS), 0)
    assert isinstance(found, OccupancyWhatIf)
    return found


def drawn(screen: OccupancyScreen, width: int, height: int, look: Look | None = None) -> list[str]:
    strips = draw_occupancy(screen, width, height, look or Look())
    assert {strip.cell_length for strip in strips} == {width}
    assert len(strips) <= height
    return [strip.text.rstrip() for strip in strips]


def test_what_limits_and_what_helps_stand_above_the_curves(page: OccupancyWhatIf) -> None:
    assert drawn(OccupancyScreen(page, page.launched, BlockNeed.REGISTERS), 78, 20) == [
        "occupancy  12 % possible (2 blocks, 8 of 64 warps an SM, limited by",
        "           registers), 12 % achieved",
        "helps      170 → 168 registers a thread: 3 blocks an SM in place of 2,",
        "           occupancy 19 % in place of 12 %",
        "                        launched  blocks an SM",
        " registers a thread          170       2  █████      limits",
        " threads a block             128      16  ██████████",
        " shared memory a block       0 B     228  ██████████ 32.0 KiB of 228 KiB",
        " blocks of an SM                      32  ██████████",
        " barriers                             32  ██████████",
        "",
        "      by registers              by threads                by shared memory",
        "100 %│⠉⠉⢹                 100 %│                    100 %│",
        "     │  ⢸⡀                     │                         │",
        "     │   ⢧                     │                         │",
        "     │   ⠈⢧⣀                   │                         │",
        "     │     ⠘⣆⡀                 │                         │",
        "     │       ⠉⠉⠹⠤⠤⢤            │                         │",
        "  0 %│            ●⠉⠉⠉⠉⠉⠉   0 %│⠉⠉●⠋⢹⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀   0 %│●⠉⠉⠉⠉⠉⠉⠉⠉⠙⠒⠒⠒⠒⠒⠒⠒⠒⠒",
        "     └1───────────────255      └1──────────────1024      └0───────────227 KiB",
    ]


def test_what_is_tried_stands_beside_what_was_launched(page: OccupancyWhatIf) -> None:
    tried = page.launched.but({BlockNeed.REGISTERS: 64})
    lines = drawn(OccupancyScreen(page, tried, BlockNeed.REGISTERS), 58, 20)
    assert lines[2:9] == [
        "what if    50 % possible (8 blocks, 32 of 64 warps an SM,",
        "           limited by registers)",
        "helps      170 → 168 registers a thread: 3 blocks an SM in",
        "           place of 2, occupancy 19 % in place of 12 %",
        "                        launched  what if  blocks an SM",
        " registers a thread          170       64       8   limits",
        " threads a block             128      128      16",
    ]
    assert lines[13:] == [
        "      by registers a thread",
        "100 %│⠉⠉⠉⠉⠉⠉⡇",
        "     │      ⠓⢲⣀⡀",
        "     │         ⠉⠉⠧◉⣀⡀",
        "     │              ⠉⠙⠒⠒⠒⠦⠤⠤⠤⠤⠤⢤⣀⣀⣀⣀⣀⣀⣀⣀",
        "  0 %│                                 ●⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒",
        "     └1───────────────────────────────────────────────255",
    ]


def test_a_block_that_does_not_fit_fails(page: OccupancyWhatIf) -> None:
    tried = page.launched.but({BlockNeed.BLOCK_SIZE: 1024})
    lines = drawn(OccupancyScreen(page, tried, BlockNeed.BLOCK_SIZE), 120, 9)
    assert lines[1] == "what if    no block fits: the launch fails for want of registers"
    assert len(lines) == 9, "no room for curves"


def test_ascii(page: OccupancyWhatIf) -> None:
    lines = drawn(OccupancyScreen(page, page.launched, BlockNeed.SHARED), 100, 24, Look(ASCII))
    assert all(line.isascii() for line in lines)
    assert lines[1].startswith("helps      170 > 168 registers a thread: 3 blocks an SM in place of 2")


async def test_keys_try_other_blocks() -> None:
    app = ExploreApp([read(load(REGISTERS))])
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press(OCCUPANCY)
        await settle(pilot)
        assert "[9 Occupancy]" in app.screen_text()
        await pilot.press("left")
        assert "what if    19 % possible (3 blocks, 12 of 64 warps an SM, limited by registers)" in app.screen_text()
        await pilot.press("pagedown")
        assert "what if    25 % possible (4 blocks, 16 of 64 warps" in app.screen_text()
        await pilot.press("down", "right")
        assert " threads a block             128      160 " in app.screen_text()
        await pilot.press("x")
        assert "what if" not in app.screen_text()


async def test_it_is_of_the_kernel_that_one_went_to_and_forgets_what_was_tried() -> None:
    app = ExploreApp([read(load(LLAMA))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("1", "down", "down")
        await settle(pilot)
        await pilot.press(OCCUPANCY)
        await settle(pilot)
        assert "9 Occupancy  reduce mean fp32 (3 of 34)" in app.screen_text()
        await pilot.press("left")
        assert "what if" in app.screen_text()
        await pilot.press("full_stop")
        await settle(pilot)
        assert "elementwise mul bf16 (4 of 34)" in app.screen_text()
        assert "what if" not in app.screen_text()
        await pilot.press("comma", "comma")
        await settle(pilot)
        assert "(2 of 34)" in app.screen_text()
        await pilot.press(SOURCE)
        await settle(pilot)
        assert "(2 of 34)" in app.screen_text(), "another view of one kernel goes on with it"
        kinds: dict[str, type[SourcePane | OccupancyPane]] = {SOURCE: SourcePane, OCCUPANCY: OccupancyPane}
        for key, kind in kinds.items():
            await pilot.press(key)
            await settle(pilot)
            pane = next(one for one in app.screen.query(kind) if one.display)
            late = pane._view
            await pilot.press("full_stop")
            await settle(pilot)
            shown = app.screen_text()
            pane.post_message(Analysed(pane._trace, late))
            await settle(pilot)
            assert app.screen_text() == shown, "what was asked for before and comes later is not shown"


async def test_a_report_without_it_says_what_collects_it() -> None:
    app = ExploreApp([read(made(Launch("scale"), command="./app"))])
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press(OCCUPANCY)
        await settle(pilot)
        text = " ".join(app.screen_text().replace("│", " ").split())
        assert "what its blocks need not collected" in text
        assert "--set full" in text


def test_a_timeline_has_no_such_tab() -> None:
    assert OccupancyPane.why_not(load(TIMELINE)) is not None
