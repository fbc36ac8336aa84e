"""The steps of an engine: lines at fixed sizes, and the pane with its heatmap."""

from __future__ import annotations

import pytest

from llmtop.analysis.server.counted_steps import CountedSteps, counted_steps
from llmtop.analysis.server.step_causes import StepCause
from llmtop.analysis.server.steps_view import StepsView, steps_view
from llmtop.model import Trace, Unknown
from llmtop.tui.panes import time_axis
from llmtop.tui.render.counted_steps import counted_steps_lines
from llmtop.tui.render.engine_steps import engine_steps_lines
from llmtop.tui.render.look import ASCII, Look
from llmtop.tui.screens.help import active_keys
from llmtop.tui.screens.live import LiveApp
from tests.analysis.engine_rounds import PLANTED, Round, rounds_of, trace_of
from tests.analysis.test_counted_steps import Scrape, tokens
from tests.analysis.test_counted_steps import trace_of as counted_trace
from tests.live_traces import TARGET
from tests.tui.live_app import FixedSession, fixed_app, press, running

PLAIN = Look(ASCII)


def trace() -> Trace:
    rounds = [Round()] * 201
    rounds[150], rounds[190] = PLANTED[StepCause.LOCK], PLANTED[StepCause.COLLECTION]
    rounds[195] = PLANTED[StepCause.QUEUE]
    return trace_of(rounds_of(rounds))


def drawn(width: int) -> list[str]:
    view = steps_view(trace())
    assert isinstance(view, StepsView)
    strips = engine_steps_lines(view, width, PLAIN)
    assert all(strip.cell_length == width for strip in strips)
    return [strip.text.rstrip() for strip in strips]


def test_the_numbers_the_strip_the_tail_and_the_slow_steps() -> None:
    assert drawn(110) == [
        "EngineCore  p50 10.0 ms  p99 16.0 ms  98.7 /s  waits for the GPU 70 %  CPU 30 %",
        ":" * 59 + "=" + ":" * 39 + "+" + ":" * 4 + "=" + ":" * 5,
        "the newest 110 steps, 1.13 s; as high as the strip: 30.0 ms or more",
        "of p99 - p50 (6.00 ms), 46 % garbage collection, 31 % lock, 23 % run queue",
        "slow steps, 3 of 200, the newest first; x: times the median",
        "-50.0 ms  16.0 ms   x1.6  run queue 100 %           6.00 ms of it, CPU 9.00 ms, waits for the GPU 7.00 ms",
        " -106 ms  22.0 ms   x2.2  garbage collection 100 %  12.0 ms of it, CPU 15.0 ms, waits for the GPU 7.00 ms",
        " -518 ms  18.0 ms   x1.8  lock 100 %                8.00 ms of it, CPU 11.0 ms, waits for the GPU 7.00 ms",
    ]


def test_with_much_room_the_medians_stand_beside() -> None:
    assert drawn(144)[5].endswith(
        "6.00 ms of it, CPU 9.00 ms (median 3.00 ms), waits for the GPU 7.00 ms (median 7.00 ms)"
    )


def test_with_little_room_what_was_measured_stands_below_the_causes_whole() -> None:
    assert drawn(60)[-9:-3] == [
        "-50.0 ms  16.0 ms   x1.6  run queue 100 %",
        "                          6.00 ms of it, CPU 9.00 ms, waits",
        "                          for the GPU 7.00 ms",
        " -106 ms  22.0 ms   x2.2  garbage collection 100 %",
        "                          12.0 ms of it, CPU 15.0 ms, waits",
        "                          for the GPU 7.00 ms",
    ]
    assert "~" not in "".join(drawn(40))


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


async def test_hundreds_of_slow_steps_are_scrolled_and_searched() -> None:
    rounds = [Round()] * 6
    many = trace_of(rounds_of([*rounds, *[PLANTED[StepCause.LOCK], *rounds] * 30]))
    async with running(app_of(many), (80, 24)) as pilot:
        text = await press(pilot, "M")
        assert "the newest first" in text
        assert "lines 1 to 18 of " in text
        assert "the newest first" not in await press(pilot, "pagedown")
        assert "lines 2 to 19 of " in await press(pilot, "home", "down")
        assert {"PgUp PgDn", "Up k Down j", "/"} <= dict(active_keys(pilot.app.screen)).keys()
        assert "/lock 1 of " in await press(pilot, "slash", *"lock", "enter")
        assert "paused" in await press(pilot, "space")


async def test_without_probes_the_pane_says_why() -> None:
    async with running(fixed_app()) as pilot:
        assert "no thread was seen to launch work" in await press(pilot, "M")


def counted() -> Trace:
    """A minute of a server: each fourth second brings a prompt, which takes twice as long a step."""
    sums = [(75 * (i // 2) + 50 * (i % 2), 500 * (i // 2), 4 * (75 * (i // 2) + 50 * (i % 2))) for i in range(21)]
    return counted_trace(*(Scrape(steps, others=tokens(prompts, output)) for steps, prompts, output in sums))


def test_without_probes_the_server_counts_them() -> None:
    view = counted_steps(counted())
    assert isinstance(view, CountedSteps)
    strips = counted_steps_lines(view, Unknown("this needs root", "sudo llmtop --attach 42"), 110, PLAIN)
    assert [strip.text.rstrip() for strip in strips] == [
        "counted by the server  mean 27 ms a step  38 /s  750 steps",
        " " * 90 + ":=" * 10,
        "a cell a look, the newest 20, 20.0 s; as high as the strip: 80 ms or more",
        "means of 20 looks: 20 ms to 40 ms, half of them 20 ms to 40 ms",
        "6.7 prompt tokens and 4 output tokens a step, 62 % of them of prompts",
        "looks without prompts: 20 ms a step, of 10; looks with prompts: 40 ms a step, of 10",
        "a look holds about 37.5 steps, and one more or less lies across its ends: 2.7 %",
        "what single steps took, and why some are slow, is not known: this needs root (sudo llmtop --attach 42)",
    ]


async def test_the_pane_tells_them_with_why_no_single_one_is_known() -> None:
    async with running(app_of(counted())) as pilot:
        text = await press(pilot, "M")
        assert "Engine steps  metrics, between looks" in text
        assert "mean 27 ms a step" in text
        assert "is not known: no thread was seen to launch work and to wait for the GPU" in text
