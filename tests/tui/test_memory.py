"""Memory over time in the explorer."""

from __future__ import annotations

from pathlib import Path

from llmtop.parsers.registry import load
from llmtop.tui.panes.memory import MemoryPane
from llmtop.tui.screens.explore_screen import ExploreApp
from tests.analysis.test_memory import stepped
from tests.kernel_traces import TIMELINE
from tests.parsers.kineto_files import QWEN, needs_qwen
from tests.tui.test_explore import read, settle


@needs_qwen
async def test_the_peak_and_who_held_it_then_are_a_tab_away() -> None:
    app = ExploreApp([read(load(QWEN))])
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("shift+tab")
        await settle(pilot)
        text = app.screen_text()
        assert "[Memory]" in text
        rows = [line.strip("│ ") for line in text.splitlines() if "MiB" in line and line.startswith("│")]
        assert any(row.startswith("from before the capture") and "939 MiB" in row for row in rows)
        assert any(row.split()[:5] == ["aten::linear", "467", "MiB", "23", "%"] for row in rows)
        assert "reserved of the device: at most 2.45 GiB" in text
        await pilot.press("down")
        await settle(pilot)
        assert "no event tells who got it, or when" in app.screen_text()


async def test_growth_stands_below_the_curve(tmp_path: Path) -> None:
    app = ExploreApp([read(stepped(tmp_path, [1 << 18] * 9))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("shift+tab")
        await settle(pilot)
        text = app.screen_text()
        assert "grows with every step: 256 KiB a step, 1.75 MiB over 7 steps; still held: aten::cat 1.75 MiB" in text


def test_what_tells_nothing_of_memory_has_no_such_view() -> None:
    assert MemoryPane.why_not(load(TIMELINE)) is not None
