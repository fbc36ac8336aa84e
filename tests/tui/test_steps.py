"""Steps, NVTX ranges, streams and GPUs of a timeline in the explorer."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.model import Origin, Trace
from llmtop.parsers.registry import load
from llmtop.tui.panes.steps import StepsPane
from llmtop.tui.screens.explore_screen import ExploreApp
from tests.kernel_traces import TIMELINE, Launch, report
from tests.nsys_capture import MS, US, Capture
from tests.tui.test_explore import read, settle


async def test_the_slow_step_of_a_timeline_is_marked_and_its_account_says_why() -> None:
    app = ExploreApp([read(load(TIMELINE))])
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("3")
        await settle(pilot)
        await pilot.press("down")
        await settle(pilot)
        text = app.screen_text()
        assert "[3 Steps]" in text
        assert "1 slow; 6 decode steps: median 40.7 ms" in text
        assert [line.split()[3] for line in text.splitlines() if "decode   " in line and "slow" in line] == ["slow"]
        assert "+38.9 ms idle: code loaded or" in text
        assert "118 ms = at work 1.24 ms + idle 117 ms" in text
        await pilot.press("enter")
        await settle(pilot)
        assert "asked for in it: 207 kernels by 207 launch calls" in app.screen_text()


async def test_a_key_makes_rows_of_ranges_streams_and_gpus() -> None:
    app = ExploreApp([read(load(TIMELINE))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("3")
        await settle(pilot)
        seen = []
        for _ in range(4):
            await pilot.press("b")
            await settle(pilot)
            seen.append(app.screen_text())
    assert all(
        title in text for title, text in zip(("Steps: ranges", "streams", "GPUs", "decode steps"), seen, strict=True)
    )
    assert "321 ms" in seen[0], "all decode ranges together"
    assert "stream 7" in seen[1]
    assert "345 ms = at work 22.9 ms + idle 322 ms" in seen[2]


async def test_a_filter_keeps_the_slow_ones() -> None:
    app = ExploreApp([read(load(TIMELINE))])
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("3")
        await settle(pilot)
        await pilot.press("slash", *"slow", "enter")
        await settle(pilot)
        assert "1/1 filtered" in app.screen_text()


async def test_where_nothing_shows_steps_the_view_says_how_to_mark_them(tmp_path: Path) -> None:
    made = Capture()
    for i, name in enumerate("abcdefgh"):
        call = made.call("cudaLaunchKernel", i * MS, i * MS + 5 * US)
        made.kernel(i * MS + 10 * US, i * MS + 500 * US, call, name)
    app = ExploreApp([read(made.trace(tmp_path))])
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        await pilot.press("3")
        await settle(pilot)
        text = " ".join(app.screen_text().split())
        assert "its kernels do not repeat" in text
        assert "b: by something else" in text


@pytest.mark.parametrize(
    "trace", [report(Launch("gemm", 1000.0)), Trace(Origin("folded-stacks"))], ids=["ncu", "stacks"]
)
def test_what_has_no_timeline_has_no_such_view(trace: Trace) -> None:
    assert StepsPane.why_not(trace) is not None
