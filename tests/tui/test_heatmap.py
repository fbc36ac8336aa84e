"""Heatmaps of latencies: lines at fixed sizes, and the keys that open and move in them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.pilot import Pilot

from llmtop.analysis.series.histograms import Quantile
from llmtop.analysis.views import HeatColumn, Heatmap
from llmtop.model import NS_PER_S, Missing, Unknown, What
from llmtop.tui.panes import time_axis
from llmtop.tui.render.heatmap import LEFT, draw_heatmap
from llmtop.tui.render.look import ASCII, Look
from llmtop.tui.screens.live import LiveApp
from tests.live_traces import live_trace, probed
from tests.tui.live_app import fixed_app, press, session_of

PLAIN = Look(ASCII)
QUIET = HeatColumn((0.0, 0.0, 0.0, 0.0))
BUSY = HeatColumn((0.0, 900.0, 1.0, 0.0), Quantile(256.0, 512.0), Quantile(512.0, 1024.0))
SLOW = HeatColumn((0.0, 30.0, 0.0, 2.0), Quantile(256.0, 512.0), Quantile(1024.0, math.inf))
VIEW = Heatmap(
    "futex", "ns", "eBPF", 0, NS_PER_S, (256.0, 512.0, 1024.0, math.inf),
    (None, None, QUIET, BUSY, BUSY, QUIET, SLOW, None, SLOW, QUIET, None), 10 * NS_PER_S,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_axis, "_clock", lambda *_: "")


def drawn(view: Heatmap = VIEW, width: int = 70, height: int = 6, **more: int) -> list[str]:
    strips = draw_heatmap(view, width, height, PLAIN, **more)
    assert all(strip.cell_length == width for strip in strips)
    return [strip.text.rstrip() for strip in strips]


# -- lines -------------------------------------------------------------------------------------------------------


def test_the_denser_the_more_often_and_gaps_are_no_blanks() -> None:
    assert drawn(width=80) == [
        "futex  newest 0 /s",
        "> 1.02 us //    ./.",
        "  1.02 us // ..  /",
        "   512 ns // ## +/+",
        "          -11 s   now",
        "per second: . 1.00  : 3.90  + 15.2  % 59.2  # 231  blank none  / not looked",
    ]


def test_the_cursor_reads_its_column() -> None:
    rows = drawn(cursor_ns=4 * NS_PER_S - 1)
    assert rows[0] == "futex  at the cursor 901 /s  p50 256 to 512 ns  p99 512 ns to 1.03 us"
    assert rows[1][LEFT + 3] == "|"
    assert drawn(cursor_ns=NS_PER_S)[0] == "futex  at the cursor: not looked at then"


def test_little_room_puts_neighbouring_rows_together() -> None:
    rows = drawn(height=3)
    assert len(rows) == 3
    assert rows[0].startswith("> 1.02 us")
    assert rows[1].startswith("  1.02 us")
    assert rows[1][LEFT + 3] == "#"


def test_one_rate_is_one_level() -> None:
    view = replace(VIEW, columns=(HeatColumn((0.0, 7.0, 0.0, 0.0)),) * 11)
    assert drawn(view)[-1].startswith("per second: . 7.00  blank none")


def test_without_any_event_it_still_shows_where_nobody_looked() -> None:
    rows = drawn(replace(VIEW, columns=(None, QUIET, QUIET, *[QUIET] * 8)))
    assert rows[1] == "     none /"


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 120), st.integers(1, 30), st.one_of(st.none(), st.integers(-5, 20)))
def test_lines_have_the_size_that_was_asked_for(width: int, height: int, cursor_s: int | None) -> None:
    cursor_ns = None if cursor_s is None else cursor_s * NS_PER_S
    for look in (Look(), PLAIN):
        strips = draw_heatmap(VIEW, width, height, look, cursor_ns=cursor_ns)
        assert len(strips) <= height
        assert {strip.cell_length for strip in strips} == {width}


# -- keys --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(size: tuple[int, int] = (120, 40)) -> AsyncIterator[tuple[LiveApp, Pilot[Any]]]:
    app = fixed_app()
    session_of(app).now = probed(live_trace())
    async with app.run_test(size=size) as pilot:
        app.live.refresh_trace()
        await pilot.pause()
        yield app, pilot
        assert app.issues == []


async def test_h_opens_the_heatmap_of_the_call_under_the_cursor_and_closes_it() -> None:
    async with running() as (app, pilot):
        await press(pilot, "8", "down", "h")
        assert app.live.heatmap.display
        assert not app.live.table.display
        text = app.screen_text()
        assert "read  newest 100 /s" in text
        assert "8.19 µs" in text
        assert "not looked" in text
        await press(pilot, "h")
        assert app.live.table.display
        assert app.live.table.table.has_focus


async def test_up_and_down_go_through_the_calls_and_all_together() -> None:
    async with running() as (app, pilot):
        await press(pilot, "8", "h")
        assert "futex  newest 10.0 /s" in app.screen_text()
        await press(pilot, "up")
        assert "all system calls  newest 110 /s" in app.screen_text()
        await press(pilot, "up", "down", "down")
        assert "read  newest 100 /s" in app.screen_text()


async def test_h_on_the_threads_shows_the_run_queue() -> None:
    async with running() as (app, pilot):
        await press(pilot, "4", "h")
        assert "run-queue latency  newest 50.0 /s" in app.screen_text()
        await press(pilot, "up")
        assert "run-queue latency" in app.screen_text()
        await press(pilot, "z")
        assert app.live.panes[4].display
        assert not app.live.heatmap.display


async def test_the_cursor_of_time_is_that_of_the_other_panes() -> None:
    async with running() as (app, pilot):
        await press(pilot, "4", "h", "H")
        at_ns = app.live.time.at_ns
        assert at_ns is not None
        assert "at the cursor 50.0 /s" in app.screen_text()
        await press(pilot, "z", "6")
        assert app.live.panes[6].at_ns == at_ns  # type: ignore[attr-defined]
        await press(pilot, "escape")
        assert app.live.time.at_ns is None


async def test_panes_without_a_heatmap_do_not_offer_it() -> None:
    async with running() as (app, pilot):
        assert "h heatmap" not in app.screen_text()
        await press(pilot, "2", "h")
        assert not app.live.heatmap.display
        await press(pilot, "4")
        assert "h heatmap" in app.screen_text()


async def test_without_probes_it_says_why() -> None:
    app = fixed_app()
    why = Missing(What("ebpf"), Unknown("only root may load probes", "sudo llmtop --attach PID"))
    session_of(app).now = replace(live_trace(), missing=(why,))
    async with app.run_test(size=(80, 24)) as pilot:
        app.live.refresh_trace()
        await press(pilot, "4", "h")
        assert "only root may load probes" in app.screen_text()


async def test_it_fills_small_and_ascii_screens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMTOP_ASCII", "1")
    async with running((80, 24)) as (app, pilot):
        await press(pilot, "8", "h", "left", "minus")
        assert not {character for character in app.screen_text() if not character.isascii()} - {"°", "µ"}
        assert "last 5 min" in app.screen_text()
