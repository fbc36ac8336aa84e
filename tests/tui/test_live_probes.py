"""What probes see, on the live screen: there when they have something to show, and on their digits always."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.model import NS_PER_S, Missing, Series, Stack, Trace, Unknown, What
from llmtop.tui.screens.live import LiveApp
from tests.live_traces import live_trace
from tests.tui.live_app import fixed_app, session_of

WHY = Missing(What("ebpf"), Unknown("only root may load probes", "sudo llmtop --attach PID"))


def probed(trace: Trace) -> Trace:
    end = trace.end_ns
    track = ids.process(4300)
    metrics = {
        v.SYSCALL_OBSERVED: (0.0, 10.0 * NS_PER_S),
        v.labelled(v.SYSCALL_COUNT, "sched_yield"): (0.0, 70_000.0),
    }
    series = {
        (track, metric.name): Series.of(track, metric, "eBPF", [(end - 10 * NS_PER_S, before), (end, after)])
        for metric, (before, after) in metrics.items()
    }
    stacks = (Stack(("main", "wait_for_gpu"), 5e9, "ns", "futex", ids.thread(4300, 4300)),)
    return replace(trace, series={**trace.series, **series}, stacks=stacks)


def shown(app: LiveApp) -> list[int]:
    return [number for number, pane in app.live.panes.items() if pane.display and pane.size.area]


async def test_the_flame_stands_beside_the_threads_with_stacks_and_without() -> None:
    app = fixed_app()
    async with app.run_test(size=(120, 40)) as pilot:
        app.live.refresh_trace()
        await pilot.pause()
        assert shown(app) == [1, 2, 3, 4, 5, 6]
        assert "no functions" in app.screen_text()
        session_of(app).now = probed(live_trace())
        app.live.refresh_trace()
        await pilot.pause()
        assert shown(app) == [1, 2, 3, 4, 5, 6]
        assert "5 Stall flame" in app.screen_text()
        assert "no functions" not in app.screen_text()
        await pilot.press("5", "z")
        await pilot.pause()
        assert "▏main" in app.screen_text()


async def test_system_calls_are_a_table_on_their_digit_until_z_lets_them_go() -> None:
    app = fixed_app()
    async with app.run_test(size=(120, 40)) as pilot:
        session_of(app).now = probed(live_trace())
        app.live.refresh_trace()
        await pilot.press("8")
        await pilot.pause()
        text = app.screen_text()
        assert "sched_yield" in text
        assert "7000" in text
        assert "spin" in text
        await pilot.press("z", "z")
        await pilot.pause()
        assert shown(app) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("digit", ["5", "8"])
async def test_without_probes_the_digit_shows_why(digit: str) -> None:
    app = fixed_app()
    async with app.run_test(size=(80, 24)) as pilot:
        session_of(app).now = replace(live_trace(), missing=(WHY,))
        app.live.refresh_trace()
        await pilot.press(digit)
        await pilot.pause()
        assert shown(app) == [int(digit)]
        assert "only root may load probes" in app.screen_text()
        assert "sudo llmtop --attach PID" in app.screen_text()
