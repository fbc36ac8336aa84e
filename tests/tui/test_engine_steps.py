"""The steps of an engine: lines at fixed sizes, and the pane with its heatmap."""

from __future__ import annotations

import pytest

from llmtop.analysis.server.step_causes import StepCause
from llmtop.analysis.server.steps_view import StepsView, steps_view
from llmtop.model import Trace
from llmtop.tui.panes import time_axis
from llmtop.tui.render.engine_steps import draw_engine_steps
from llmtop.tui.render.look import ASCII, Look
from llmtop.tui.screens.live import LiveApp
from tests.analysis.engine_rounds import PLANTED, Round, rounds_of, trace_of
from tests.live_traces import TARGET
from tests.tui.live_app import FixedSession, fixed_app, press, running

PLAIN = Look(ASCII)


def trace() -> Trace:
    rounds = [Round()] * 201
    rounds[150], rounds[190] = PLANTED[StepCause.LOCK], PLANTED[StepCause.COLLECTION]
    rounds[195] = PLANTED[StepCause.QUEUE]
    return trace_of(rounds_of(rounds))


def drawn(width: int, height: int) -> list[str]:
    view = steps_view(trace())
    assert isinstance(view, StepsView)
    strips = draw_engine_steps(view, width, height, PLAIN)
    assert all(strip.cell_length == width for strip in strips)
    return [strip.text.rstrip() for strip in strips]


def test_the_numbers_the_strip_the_tail_and_the_slow_steps() -> None:
    assert drawn(110, 20) == [
        "EngineCore  p50 10.0 ms  p99 16.0 ms  98.7 /s  GPU 70 %  CPU 30 %",
        ":" * 59 + "=" + ":" * 39 + "+" + ":" * 4 + "=" + ":" * 5,
        "the newest 110 steps, 1.13 s; as high as the strip: 30.0 ms or more",
        "of p99 - p50 (6.00 ms), 46 % garbage collection, 31 % lock, 23 % run queue",
        "slow steps, 3 of 200, the newest first; x: times the median",
        "-50.0 ms  16.0 ms   x1.6  run queue 100 %           6.00 ms of it, CPU 9.00 ms, GPU 7.00 ms",
        " -106 ms  22.0 ms   x2.2  garbage collection 100 %  12.0 ms of it, CPU 15.0 ms, GPU 7.00 ms",
        " -518 ms  18.0 ms   x1.8  lock 100 %                8.00 ms of it, CPU 11.0 ms, GPU 7.00 ms",
    ]


def test_with_much_room_the_medians_stand_beside() -> None:
    assert drawn(130, 20)[5].endswith("6.00 ms of it, CPU 9.00 ms (median 3.00 ms), GPU 7.00 ms (median 7.00 ms)")


def test_with_little_room_the_newest_slow_step_stays() -> None:
    assert drawn(80, 6)[-1].startswith("-50.0 ms  16.0 ms   x1.6  run queue")


def app_of(of: Trace) -> LiveApp:
    return LiveApp(FixedSession(of), TARGET)


async def test_the_pane_and_its_heatmap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_axis, "_clock", lambda *_: "")
    async with running(app_of(trace())) as pilot:
        text = await press(pilot, "M")
        assert "Engine steps  eBPF, by launches and the wait for them" in text
        assert "garbage collection 100 %" in text
        text = await press(pilot, "h")
        assert "of engine steps" in text
        assert "not looked" in text


async def test_without_probes_the_pane_says_why() -> None:
    async with running(fixed_app()) as pilot:
        assert "no thread was seen to launch work" in await press(pilot, "M")
