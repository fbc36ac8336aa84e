"""Calls, copies and memory of a timeline in the view Spans, in full."""

from __future__ import annotations

from pathlib import Path

from llmtop.parsers.registry import load
from llmtop.tui.panes.spans import SpansPane
from llmtop.tui.screens.explore_screen import ExploreApp
from tests.kernel_traces import TIMELINE
from tests.nsys_scenes import SCENES
from tests.tui.test_explore import read, settle


async def test_a_key_shows_calls_copies_and_os_calls_in_full_and_then_all_again() -> None:
    app = ExploreApp([read(load(TIMELINE))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("4")
        await settle(pilot)
        seen = []
        for _ in range(5):
            seen.append(app.screen_text())
            await pilot.press("b")
            await settle(pilot)
    titles = ("4 Spans ─", "4 Spans: CUDA calls ─", "4 Spans: Copies and fills ─", "4 Spans: OS calls ─")
    assert all(title in text for title, text in zip(titles, seen, strict=False))
    assert "4 Spans ─" in seen[4], "it has no calls that get memory"
    calls = next(line for line in seen[1].splitlines() if "cuLibraryLoadData" in line)
    assert calls.split()[1:7] == ["13", "43.6", "ms", "13", "%", "43.6"]
    assert "mean 3.35 ms, median 41.3 µs, 26.8 µs to 30.9 ms, standard deviation 8.60 ms" in seen[1]
    assert "25 of fewer than 64.0 KiB" in seen[2]


async def test_ranges_one_by_one_are_offered_among_all_spans_alone(tmp_path: Path) -> None:
    app = ExploreApp([read(SCENES["pageable copies"].make().trace(tmp_path))])
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("4")
        await settle(pilot)
        assert "each range" in app.screen_text()
        await pilot.press("b", "b")
        await settle(pilot)
        text = app.screen_text()
        assert "each range" not in text
        held = [line.split() for line in text.splitlines() if "(pageable)" in line and "GB/s" in line]
        assert len(held) == 1
        await pilot.press("e")
        await settle(pilot)
        assert not app.screen.query_one(SpansPane).each


async def test_a_range_says_how_its_lengths_are_spread() -> None:
    app = ExploreApp([read(load(TIMELINE))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("4")
        await settle(pilot)
        text = app.screen_text()
    assert "6 times, 321 ms together" in text
    assert "mean 53.4 ms, median 40.7 ms, 39.7 ms to 118 ms, standard deviation 31.8 ms" in text
