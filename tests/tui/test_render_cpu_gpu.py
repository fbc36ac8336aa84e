"""Idle causes and correlations as text below the lanes of the zoomed pane."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop import ids
from llmtop.analysis.pages.correlate import Correlation, Correlations
from llmtop.analysis.threads.idle_causes import IdleCause, IdleCauses
from llmtop.model import NS_PER_S, Trace, Unknown
from llmtop.tui.panes import time_axis
from llmtop.tui.panes.lanes import LanesPane
from llmtop.tui.render.cpu_gpu import draw_cpu_gpu
from llmtop.tui.render.look import ASCII, Look
from tests.tui.live_app import fixed_app

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = Look(ASCII)
IDLE = IdleCauses(
    ids.gpu(0),
    "GPU 0",
    (
        IdleCause("working", "EngineCore", "worked on the CPU", 26.4, 0.71, 0.44),
        IdleCause("no_request", "", "there was no request", 10.8, 0.29, 0.18),
    ),
    60.0,
    60.0,
    60.0,
    37.2,
    ("GPU busy (GPM)",),
    ("an estimate",),
)
FOUND = Correlations(
    "GPU 0",
    "GPU busy (GPM)",
    120.0,
    1.0,
    (
        ("requests waiting", Unknown("not enough data: 12 samples")),
        ("EngineCore run queue", Correlation("EngineCore run queue", "eBPF", 0, NS_PER_S, 0.1, 0.7, 40, 120)),
        ("EngineCore on CPU", Correlation("EngineCore on CPU", "eBPF", NS_PER_S, NS_PER_S, 0.83, 0.0002, 41, 120)),
        ("output tokens", Correlation("output tokens", "vLLM", 0, NS_PER_S, -0.9, 0.01, 41, 120, is_control=True)),
    ),
)


def rows(width: int, height: int) -> list[str]:
    strips = draw_cpu_gpu(IDLE, FOUND, width, height, PLAIN)
    assert all(strip.cell_length == width for strip in strips)
    return [strip.text.rstrip() for strip in strips]


def test_one_above_the_other_where_it_is_narrow() -> None:
    assert rows(80, 9) == [
        "GPU 0 idle 62 % of the last 60 s; meanwhile",
        "  71 % #######    EngineCore worked on the CPU  26.4 s",
        "  29 % ###        there was no request  10.8 s",
        "an estimate",
        "with GPU 0 idle                r     lag      p  last 120 s, GPU busy (GPM)",
        "EngineCore on CPU          +0.83  1.00 s <0.001  rises 1.00 s before the GPU id~",
        "output tokens              -0.90       0   0.01  falls as the GPU idles (an eff~",
        "EngineCore run queue       +0.10       0    0.7  may be chance",
        "requests waiting           - not enough data: 12 samples",
    ]


def test_side_by_side_where_it_is_wide() -> None:
    first, second, *_ = rows(140, 5)
    assert first.startswith("GPU 0 idle 62 % of the last 60 s; meanwhile ")
    assert " | with GPU 0 idle" in first
    assert " | EngineCore on CPU " in second


def test_two_lines_hold_one_sentence_of_each() -> None:
    assert rows(100, 2) == [
        "GPU 0 idle 62 % of the last 60 s: 71 % of it EngineCore worked on the CPU, 29 % there was no request",
        "EngineCore on CPU rises 1.00 s before the GPU idles (r +0.83, p < 0.001, 120 samples count as 41)",
    ]


def test_what_is_not_known_says_why() -> None:
    why = Unknown("no GPU is read", "install the NVIDIA driver")
    text = [strip.text.rstrip() for strip in draw_cpu_gpu(why, why, 100, 4, PLAIN)]
    assert text == ["GPU idle time: no GPU is read (install the NVIDIA driver)"]
    text = [strip.text.rstrip() for strip in draw_cpu_gpu(why, Unknown("too few samples"), 100, 4, PLAIN)]
    assert text[1:] == ["what moves with it: too few samples"]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 200), st.integers(1, 30))
def test_lines_have_the_size_that_was_asked_for(width: int, height: int) -> None:
    strips = draw_cpu_gpu(IDLE, FOUND, width, height, PLAIN)
    assert len(strips) <= height
    assert {strip.cell_length for strip in strips} == {width}


async def test_the_zoomed_lanes_tell_why_the_gpu_idles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(time_axis, "_clock", lambda *_: "")
    app = fixed_app(ticks=150)
    async with app.run_test(size=(120, 40)) as pilot:
        app.live.refresh_trace()
        await pilot.press("6")
        await pilot.pause()
        assert "of the last 60 s; meanwhile" not in app.screen_text()
        await pilot.press("z")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "of the last 60 s; meanwhile" in app.screen_text()
        assert "with GPU 0 idle" in app.screen_text()


async def test_what_was_thought_about_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Callable[[], object]] = []
    monkeypatch.setattr(LanesPane, "run_worker", lambda _, work, **__: asked.append(work))
    app = fixed_app()
    async with app.run_test(size=(120, 40)) as pilot:
        app.live.refresh_trace()
        await pilot.press("6", "z")
        await pilot.pause()
    assert holds_a_trace(asked[0])
    asked[0]()
    assert not holds_a_trace(asked[0])


def holds_a_trace(asked: object) -> bool:
    arguments = getattr(asked, "args", ())
    return any(isinstance(one, Trace) for one in (*arguments, *gc.get_referents(*arguments)))


async def test_a_fault_in_the_analysis_costs_only_the_pane(monkeypatch: pytest.MonkeyPatch, faults: list[str]) -> None:
    def fail(*_: object) -> object:
        raise ValueError("broken")

    monkeypatch.setattr("llmtop.tui.panes.lanes.correlations", fail)
    app = fixed_app()
    async with app.run_test(size=(120, 40)) as pilot:
        app.live.refresh_trace()
        await pilot.press("6", "z")
        await pilot.pause()
        worker = app.live.panes.of_kind(LanesPane)._worker
        assert worker is not None
        while not worker.is_finished:
            await pilot.pause(0.01)
        await pilot.pause()
        assert [issue.message for issue in app.issues] == ["this pane failed: ValueError: broken; please report this"]
        assert faults.pop() in " ".join(app.screen_text().split())
        assert "DRAM" in app.screen_text()
