"""The live screen's behaviour: keys, sizes, time, missing parts, hostile text, and when a frame is drawn."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from textual import messages
from textual.geometry import Region
from textual.message import Message
from textual.pilot import Pilot

from llmtop import ids
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import NS_PER_S, Fact, Missing, Origin, Trace, Track, TrackKind, Unknown, What
from llmtop.session import Session
from llmtop.tui.panes.base import DiffedWidget, Pane
from llmtop.tui.panes.lanes import LanesPane
from llmtop.tui.panes.server import ServerPane
from llmtop.tui.panes.stacks import StacksPane
from llmtop.tui.panes.threads import ThreadsPane
from llmtop.tui.screens.base import Dialog, FullScreen
from llmtop.tui.screens.diagnosis import DiagnosisScreen
from llmtop.tui.screens.help import HelpScreen
from llmtop.tui.screens.live import LiveApp, Reported
from llmtop.tui.screens.live_screen import LiveScreen
from llmtop.tui.screens.thread import ThreadScreen
from tests.live_traces import AMPERE, NO_GPU, NOTHING, TARGET, Scene, SyntheticCollector, live_trace
from tests.tui.live_app import fixed_app, press, running, session_of
from tests.tui.quiet import wait_until
from tests.tui.terminal_in_memory import TerminalInMemory, on_terminal

HOSTILE = ("[/b][@click=app.quit]x[red]", "␛[2J", "内核אבג", "a" * 10_000)


def shown_numbers(app: LiveApp) -> list[int]:
    return [number for number, pane in app.live.panes.items() if pane.display and pane.size.area]


async def resize(pilot: Pilot[Any], size: tuple[int, int]) -> None:
    await pilot.resize_terminal(*size)
    await pilot.pause()


async def test_tab_goes_to_the_next_pane_also_where_one_is_alone() -> None:
    app = fixed_app()
    async with running(app, (40, 12)) as pilot:
        seen = []
        for _ in app.live.panes:
            await press(pilot, "tab")
            seen += shown_numbers(app)
        assert sorted(seen) == sorted(app.live.panes)
        assert seen[-1] == 1
        await press(pilot, "shift+tab")
        assert shown_numbers(app) == [seen[-2]]
        await resize(pilot, (120, 40))
        await press(pilot, "2", "z", "tab")
        assert (app.live.where.number, app.live.where.is_zoomed) == (3, True)


async def test_zoom_keeps_a_pane_that_only_its_digit_brought() -> None:
    """At 80x24 the flame has no place: 5 shows it alone, and z must not undo that."""
    app = fixed_app()
    async with running(app, (80, 24), keys=("5", "z")) as pilot:
        assert shown_numbers(app) == [5]
        await press(pilot, "z")
        assert 5 not in shown_numbers(app)
        await press(pilot, "5", "2")
        assert 1 in shown_numbers(app)
        await press(pilot, "5", "escape")
        assert 1 in shown_numbers(app)


# -- what is where ---------------------------------------------------------------------------------------------


async def test_all_panes_are_shown_where_there_is_room() -> None:
    app = fixed_app()
    async with running(app, (40, 12)) as pilot:
        for size in ((80, 24), (100, 30), (200, 60)):
            await resize(pilot, size)
            assert shown_numbers(app) == [1, 2, 3, 4, 5, 6] if size[0] >= 100 else [1, 2, 3, 4, 6]
            text = app.screen_text()
            for part in ("1 Roofline", "2 Server", "3 GPU", "4 Threads", "6 CPU-GPU", "2471 tok/s", "q quit"):
                assert part in text, size


async def test_little_room_shows_one_pane_and_the_findings() -> None:
    app = fixed_app()
    async with running(app, (40, 12)) as pilot:
        for size in ((40, 12), (59, 40), (120, 17)):
            await resize(pilot, size)
            await press(pilot, "1")
            assert shown_numbers(app) == [1], size
            assert diagnose(app.session.trace()).verdict.split()[0] in app.screen_text()
            await press(pilot, "3")
            assert shown_numbers(app) == [3]
            assert "DRAM" in app.screen_text()
            assert app.screen_text().startswith(" llmtop ")


async def test_digits_focus_and_tab_cycles_and_a_zoomed_table_follows_the_trace() -> None:
    app = fixed_app()
    async with running(app) as pilot:
        assert app.focused is app.live.panes[1]
        await press(pilot, "4")
        assert app.focused is app.live.panes[4]
        await press(pilot, "tab")
        assert app.focused is app.live.panes[5]
        await press(pilot, "7")
        assert app.focused is app.live.panes[5]
        await press(pilot, "4", "z")
        assert all(word in app.screen_text() for word in ("blocked on", "pt_nccl_watchdg", "futex 100 %"))
        before = app.screen_text()
        session_of(app).now = live_trace(ticks=94)
        app.live.refresh_trace()
        await pilot.pause()
        assert app.screen_text() != before
        assert app.live.table.table.has_focus


async def test_zoom_gives_a_pane_the_screen_and_takes_it_back() -> None:
    app = fixed_app()
    async with running(app, (80, 24)) as pilot:
        await press(pilot, "2", "z")
        assert shown_numbers(app) == [2]
        assert app.live.panes[2].size.height > 15
        assert "queue" in app.screen_text()
        await press(pilot, "z")
        assert shown_numbers(app) == [1, 2, 3, 4, 6]
        await press(pilot, "z", "escape")
        assert shown_numbers(app) == [1, 2, 3, 4, 6]


async def test_zoomed_panes_say_more() -> None:
    """The server what requests get and the history of their latencies, the roofline the budget of a step."""
    budget = ("mean of 15 s", "floor", "weights", "late CPU", "rest", "FLOP/B")
    async with running(fixed_app(), (80, 24)) as pilot:
        assert "late CPU" not in await press(pilot, "1")
        assert "goodput" not in await press(pilot, "2")
        for size in ((80, 24), (200, 60)):
            await resize(pilot, size)
            text = await press(pilot, "z")
            assert "first token   TTFT 260 ms = queue 170 ms + all else 90 ms" in text
            assert "goodput       requests " in text
            assert "below the last 5 min" in text
            assert all(lane in text for lane in ("TTFT mean", "ITL mean", "-5 min"))
            text = await press(pilot, "1")
            assert all(part in text for part in budget)
            await press(pilot, "2", "z")


async def test_enter_opens_what_is_known_of_a_thread() -> None:
    async with running(fixed_app(), keys=("4", "z")) as pilot:
        text = await press(pilot, "enter")
        assert isinstance(pilot.app.screen, ThreadScreen)
        assert all(part in text for part in ("EngineCore", "may run on", "Woken by", "on-CPU", "▆", "run queue"))
        await press(pilot, "question_mark")
        assert isinstance(pilot.app.screen, HelpScreen)
        await press(pilot, "q", "q")
        assert isinstance(pilot.app.screen, LiveScreen)


async def test_zoom_of_a_pane_without_rows_keeps_its_reason() -> None:
    app = fixed_app(NO_GPU)
    async with running(app) as pilot:
        await press(pilot, "3", "z")
        assert shown_numbers(app) == [3]
        assert "no NVIDIA driver library was found" in app.screen_text()


# -- time ------------------------------------------------------------------------------------------------------


async def test_pause_stops_drawing_not_collecting() -> None:
    app = fixed_app()
    async with running(app) as pilot:
        await press(pilot, "space")
        before = app.screen_text()
        assert "paused" in before
        session_of(app).now = live_trace(ticks=95)
        app.post_message(Reported())
        await pilot.pause()
        assert app.screen_text() == before
        await press(pilot, "space")
        assert "live 1 Hz" in app.screen_text()
        assert app.screen_text() != before


async def test_the_header_says_how_often_it_looks() -> None:
    app = fixed_app()
    session_of(app).interval_s = 0.5
    async with running(app) as pilot:
        assert "live 2 Hz" in app.screen_text().splitlines()[0]
        session_of(app).look_stretch = 1.5
        app.live.refresh_trace()
        await pilot.pause()
        assert "live 1.3 of 2 Hz" in app.screen_text().splitlines()[0]


async def test_what_is_held_is_one_moment_in_every_pane() -> None:
    """The server's pane has a pace of its own, and would lag behind the header by it."""
    app = fixed_app()
    async with running(app) as pilot:
        session = session_of(app)
        newest = session.now = replace(session.now, end_ns=session.now.end_ns + NS_PER_S // 2)
        await press(pilot, "space")
        panes = {pane.id: pane._trace for pane in app.live.query(Pane) if pane.is_seen}
        assert {id for id, shown in panes.items() if shown is not newest} == set()
        assert {"header", "server"} <= panes.keys()
        await press(pilot, "space")
        session.now = replace(newest, end_ns=newest.end_ns + NS_PER_S // 2)
        app.live.refresh_trace()
        assert app.live.panes.of_kind(ServerPane)._trace is newest, "live it keeps its pace"


async def test_arrows_scrub_back_and_escape_returns_and_the_moment_stays_while_time_goes_on() -> None:
    app = fixed_app()
    async with running(app) as pilot:
        now = app.screen_text()
        await press(pilot, "left", "left")
        assert "10 s ago" in app.screen_text()
        assert app.live.time.at_ns == session_of(app).now.end_ns - 10 * NS_PER_S
        await press(pilot, "right")
        assert "5 s ago" in app.screen_text()
        await press(pilot, "escape")
        assert app.screen_text() == now
        await press(pilot, "left")
        at_ns = app.live.time.at_ns
        session_of(app).now = live_trace(ticks=100)
        app.live.refresh_trace()
        await pilot.pause()
        assert app.live.time.at_ns == at_ns
        assert "15 s ago" in app.screen_text()


async def test_escape_in_a_table_clears_the_filter_then_time_then_zoom() -> None:
    app = fixed_app()
    async with running(app) as pilot:
        await press(pilot, "4", "z", "left", "slash", *"nccl")
        assert "pt_nccl" in app.screen_text()
        assert "ZMQbg" not in app.screen_text()
        await press(pilot, "escape")
        assert "ZMQbg" in app.screen_text()
        assert app.live.time.at_ns is not None
        await press(pilot, "escape")
        assert app.live.time.at_ns is None
        assert app.live.table.display
        await press(pilot, "escape")
        assert not app.live.table.display


async def test_scrubbing_ends_at_the_oldest_sample_and_at_now() -> None:
    app = fixed_app(ticks=12)
    async with running(app) as pilot:
        await press(pilot, *["left"] * 6)
        assert app.live.time.at_ns == session_of(app).now.start_ns
        await press(pilot, *["right"] * 6)
        assert app.live.time.at_ns is None


# -- what is known and what is not -------------------------------------------------------------------------------


async def test_without_a_gpu_the_rest_works() -> None:
    app = fixed_app(NO_GPU)
    async with running(app):
        text = app.screen_text()
        assert text.count("install the NVIDIA driver") == 1
        assert " 1 Roofline, 3 GPU – no NVIDIA driver library was found (install the NVIDIA driver)" in text
        assert shown_numbers(app) == [2, 4, 5, 6]
        assert app.focused is app.live.panes[2]
        assert "2471 tok/s" in text
        assert "no GPU" in text


async def test_without_gpm_the_gpu_pane_shows_what_there_is_and_why_not_more() -> None:
    app = fixed_app(AMPERE)
    async with running(app):
        text = app.screen_text()
        assert "GPU busy" in text
        assert "GPM needs Hopper or newer" in text


async def test_nothing_known_is_a_screen_of_reasons() -> None:
    app = fixed_app(NOTHING)
    async with running(app, (80, 24)):
        text = app.screen_text()
        assert "refuses connections" in text
        assert "not ours to read" in text
        assert "no verdict: " in text
        assert " 0 tok/s" not in text


def dead(trace: Trace) -> Trace:
    """The same moment, the server having been killed seven seconds before."""
    facts: dict[str, Fact] = {
        "pid": 4242,
        "root": 4242,
        "role": "APIServer",
        "ended_ns": trace.end_ns - 7 * NS_PER_S,
        "how": "killed by SIGKILL",
    }
    gone = Track(ids.ended(4242, 1), TrackKind.ENDED, "APIServer", facts=facts)
    return replace(trace, tracks={**trace.tracks, gone.id: gone})


async def test_a_dead_server_is_said_in_the_header_and_first_below() -> None:
    app = fixed_app()
    session_of(app).now = dead(live_trace(Scene(has_threads=False)))
    async with running(app) as pilot:
        for size in ((120, 40), (80, 24), (40, 12)):
            await resize(pilot, size)
            lines = app.screen_text().splitlines()
            assert "■ SERVER DEAD 7 s" in lines[0], size
            assert "live 1 Hz" not in lines[0]
            assert any("SERVER DEAD: the server has" in line for line in lines[-4:]), size


async def test_numbers_of_a_source_that_fell_silent_show_their_age() -> None:
    trace = live_trace()
    app = fixed_app()
    session_of(app).now = replace(trace, end_ns=trace.end_ns + 8 * NS_PER_S)
    async with running(app):
        lines = app.screen_text().splitlines()
        assert "│ 8 s old │" in lines[0]
        for title in ("2 Server  8 s old", "3 GPU  8 s old", "4 Threads  8 s old"):
            assert title in app.screen_text()


async def test_lost_endpoint_is_said_above_its_last_numbers() -> None:
    why = Unknown("nothing listens at http://127.0.0.1:8000/metrics", "it may still be starting")
    app = fixed_app(Scene(missing=(Missing(What("server"), why),)))
    async with running(app):
        assert "nothing listens at http://127.0.0.1:8000/metrics (it may" in app.screen_text()
        assert "TTFT" in app.screen_text()


async def test_before_the_first_poll_panes_say_so() -> None:
    app = fixed_app()
    session_of(app).now = Trace(Origin("live"))
    async with running(app):
        assert "no gpu seen yet" in app.screen_text()


async def test_without_a_target_the_gpus_are_watched() -> None:
    app = fixed_app(target=None)
    async with running(app):
        assert shown_numbers(app) == [1, 3, 6]
        text = app.screen_text()
        assert "DRAM" in text
        assert "70.2 GiB" in text
        assert "engine CPU" not in text


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: name[:18])
async def test_hostile_names_are_only_text(name: str) -> None:
    target = replace(TARGET, title=name, model=name)
    app = fixed_app(Scene(hostile=name), target=target)
    async with running(app) as pilot:
        assert name[:3] in app.screen_text()
        await press(pilot, "4", "z")
        assert name[:3] in app.screen_text()
        await press(pilot, "d")
        assert isinstance(app.screen, DiagnosisScreen)


async def test_diagnosis_shows_evidence_and_reasons() -> None:
    app = fixed_app(replace(AMPERE, values={**AMPERE.values, "gpu.util": 60.0}))
    async with running(app, (120, 100)) as pilot:
        await press(pilot, "d")
        text = app.screen_text()
        assert "GPU 0: GPU busy 60 % (NVML)" in text
        assert "run-queue wait 9.0 % (schedstat)" in text
        assert "gpu:0/gpm: GPM needs Hopper or newer" in text
        await press(pilot, "escape")
        assert app.screen is app.live


async def test_the_diagnosis_goes_on_and_says_of_which_moment_it_is() -> None:
    app = fixed_app()
    async with running(app, (80, 24)) as pilot:
        assert "live 1 Hz" in (await press(pilot, "d", "end")).splitlines()[0]
        session_of(app).now = dead(live_trace(Scene(has_threads=False)))
        app.post_message(Reported())
        await wait_until(pilot, lambda: "SERVER DEAD" in app.screen_text())
        lines = app.screen_text().splitlines()
        assert "Diagnosis  1 finding  ■ SERVER DEAD 7 s" in lines[0]
        assert "SERVER DEAD: the server has" in lines[1]
        await press(pilot, "escape")
        assert "SERVER DEAD 7 s" in app.screen_text().splitlines()[0]


async def test_the_diagnosis_of_another_moment_stays_there() -> None:
    app = fixed_app()
    async with running(app, (80, 24)) as pilot:
        paused = await press(pilot, "space", "d")
        assert "paused" in paused.splitlines()[0]
        session_of(app).now = dead(live_trace(Scene(has_threads=False)))
        app.post_message(Reported())
        await pilot.pause()
        assert app.screen_text() == paused
        await press(pilot, "escape", "space", "left")
        assert "5 s ago (Esc: now)" in (await press(pilot, "d")).splitlines()[0]


async def test_a_diagnosis_that_says_the_same_sends_little(monkeypatch: pytest.MonkeyPatch) -> None:
    app = fixed_app(ticks=83)
    async with running(app) as pilot:
        await press(pilot, "d")
        assert isinstance(app.screen, DiagnosisScreen)
        sent: list[Region] = []
        (text,) = (one for one in app.screen.query("*") if isinstance(one, DiffedWidget) and one.size.height > 30)
        monkeypatch.setattr(text, "refresh", lambda *regions: sent.extend(regions))
        session_of(app).now = live_trace(ticks=89)
        app.live.refresh_diagnosis(app.screen)
        await pilot.pause()
        assert 0 < sum(region.area for region in sent) < 900


async def test_a_pane_that_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch, faults: list[str]) -> None:
    def fail(*_: object) -> object:
        raise ValueError("broken")

    monkeypatch.setattr(ThreadsPane, "view", fail)
    app = fixed_app()
    async with running(app, faults=["pane-threadspane"]) as pilot:
        assert "this pane failed: ValueError: broken" in app.screen_text()
        assert "2471 tok/s" in app.screen_text()
        await press(pilot, "d", "end")
        assert "this pane failed" in app.screen_text()
        assert faults.pop().startswith("this pane failed: ValueError: broken")


@pytest.mark.parametrize("scene", [Scene(), NOTHING], ids=["all", "nothing"])
async def test_ascii_terminals_get_ascii(monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    monkeypatch.setenv("LLMTOP_ASCII", "1")
    app = fixed_app(scene)
    async with running(app) as pilot:
        for keys in ((), ("left",), ("escape", "4", "z")):
            await press(pilot, *keys)
            strange = {character for character in app.screen_text() if not character.isascii()}
            assert strange <= {"°", "µ"}


# -- a launched command ------------------------------------------------------------------------------------------


class FakeLaunched:
    code: int | None = None

    def lines(self, n: int) -> tuple[str, ...]:
        return tuple(f"line {i} [/b]" for i in range(300))[-n:]

    def poll(self) -> int | None:
        return self.code


async def test_log_pane_shows_the_last_lines_and_the_end() -> None:
    launched = FakeLaunched()
    base = fixed_app()
    app = LiveApp(base.session, TARGET, launched=launched)  # type: ignore[arg-type]
    async with running(app) as pilot:
        assert "line 299 [/b]" in app.screen_text()
        launched.code = 3
        app.live.refresh_trace()
        await pilot.pause()
        assert app.screen_text().count("exited with code 3") == 2
        await press(pilot, "7", "z")
        assert "line 270 [/b]" in app.screen_text()


# -- frames ------------------------------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def timed(clock: Clock) -> tuple[LiveApp, list[float]]:
    """An app by this clock, and when it drew its frames."""
    app = LiveApp(fixed_app().session, TARGET, clock=clock)
    frames: list[float] = []
    app.live.refresh_trace = lambda: frames.append(clock.now)  # type: ignore[method-assign]
    return app, frames


async def test_one_frame_an_interval_however_much_news_and_none_without() -> None:
    clock = Clock()
    app, frames = timed(clock)
    async with app.run_test() as pilot:
        clock.now = 110.0
        app._frame_if_due()
        await pilot.pause()
        assert frames == []
        for _ in range(20):
            app.on_reported(Reported())
        await pilot.pause()
        assert frames == [110.0]
        clock.now = 111.0
        await wait_until(pilot, lambda: len(frames) == 2)
        assert frames == [110.0, 111.0]
        assert [timer for timer in app._timers if timer._callback == app._frame_if_due] == [], (
            "without news nobody looks"
        )
        assert app._look is None


async def test_a_frame_waits_for_those_who_poll_together_but_not_for_ever() -> None:
    clock = Clock()
    app, frames = timed(clock)
    async with app.run_test() as pilot:
        for clock.now in (110.0, 111.0, 111.05, 111.12):
            app._tell()
            app._frame_if_due()
        assert frames == [110.0]
        clock.now = 111.23
        await wait_until(pilot, lambda: len(frames) == 2)
        for clock.now in (112.2, 112.25, 112.3, 112.35, 112.4, 112.45):
            app._tell()
            app._frame_if_due()
    assert frames == [110.0, 111.23, 112.45]


async def test_what_there_is_after_a_while_is_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[int] = []
    monkeypatch.setattr("llmtop.tui.screens.live._SETTLED_S", 0.01)
    monkeypatch.setattr("llmtop.tui.screens.live.settle", lambda: settled.append(1))
    app, _ = timed(Clock())
    async with app.run_test() as pilot:
        await wait_until(pilot, lambda: settled == [1])


@pytest.mark.parametrize("is_below_a_dialog", [False, True])
async def test_a_frame_is_sent_in_one_piece_without_a_message_from_each_pane(
    monkeypatch: pytest.MonkeyPatch, is_below_a_dialog: bool
) -> None:
    app = fixed_app(ticks=60)
    async with running(app, keys=("question_mark",) if is_below_a_dialog else ()) as pilot:
        told: list[Message] = []
        sent: list[object] = []
        post, display = app.live.post_message, app._display
        monkeypatch.setattr(app.live, "post_message", lambda message: told.append(message) or post(message))  # type: ignore[func-returns-value]
        monkeypatch.setattr(app, "_display", lambda *update: sent.append(update) or display(*update))  # type: ignore[func-returns-value]
        session_of(app).now = live_trace(ticks=90)

        app.on_reported(Reported())

        assert len(sent) == (not is_below_a_dialog)
        await pilot.pause()
        updates = [message for message in told if isinstance(message, messages.Update)]
        assert bool(updates) is is_below_a_dialog
        assert len(sent) == 1
        seen = app.screen_text()
        app.screen.refresh(layout=True)
        await pilot.pause()
        assert app.screen_text() == seen


async def test_a_fault_in_a_frame_that_was_waited_for_ends_the_program() -> None:
    clock = Clock()
    app, frames = timed(clock)

    def fail() -> None:
        raise ZeroDivisionError

    async with app.run_test() as pilot:
        app.on_reported(Reported())
        await wait_until(pilot, lambda: len(frames) == 1)
        app.live.refresh_trace = fail  # type: ignore[method-assign]
        app.on_reported(Reported())
        assert app._look is not None
        clock.now += 5.0
        app._look_now()
        assert isinstance(app._exception, ZeroDivisionError)
        app._exception = None


async def test_panes_of_one_pace_come_to_be_drawn_together(monkeypatch: pytest.MonkeyPatch) -> None:
    app = fixed_app()
    kinds: tuple[type[Pane[Any]], ...] = (ThreadsPane, StacksPane, LanesPane)
    drawn: dict[type[Pane[Any]], list[int]] = {kind: [] for kind in kinds}
    async with running(app) as pilot:
        first = session_of(app).now.end_ns
        app.live.panes.of_kind(ThreadsPane)._stale = True
        app.live.panes.of_kind(ThreadsPane).show(replace(session_of(app).now, end_ns=first + NS_PER_S))
        for kind in kinds:
            pane = app.live.panes.of_kind(kind)
            view = pane.view
            note = partial(drawn[kind].append)
            monkeypatch.setattr(
                pane,
                "view",
                lambda trace, view=view, note=note: note((trace.end_ns - first) // NS_PER_S) or view(trace),
            )
        for seconds in range(2, 8):
            session_of(app).now = replace(session_of(app).now, end_ns=first + seconds * NS_PER_S)
            app.live.refresh_trace()
            await pilot.pause()
    assert drawn[ThreadsPane] == [3, 5, 7]
    assert drawn[StacksPane] == drawn[LanesPane] == [2, 3, 5, 7]


async def test_nothing_is_drawn_below_a_screen_that_covers_it() -> None:
    clock = Clock()
    app, frames = timed(clock)
    async with app.run_test() as pilot:
        await app.push_screen(FullScreen())
        clock.now = 200.0
        app.on_reported(Reported())
        await pilot.pause()
        assert frames == []
        app.pop_screen()
        await wait_until(pilot, lambda: frames == [200.0])
        await app.push_screen(Dialog())
        clock.now = 300.0
        app.on_reported(Reported())
        await wait_until(pilot, lambda: frames == [200.0, 300.0])


async def test_a_shut_gate_holds_the_frame_until_it_opens() -> None:
    clock = Clock()
    app, frames = timed(clock)
    async with app.run_test() as pilot:
        app.gate.frame_sent()
        clock.now = 200.0
        app.on_reported(Reported())
        assert frames == []
        app.gate.answered()
        await wait_until(pilot, lambda: frames == [200.0])


async def test_a_real_session_is_drawn_and_stopped() -> None:
    session = Session((SyntheticCollector(Scene()),), Origin("live"), interval_s=0.05)
    app = LiveApp(session, TARGET)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: "run 64 wait" in app.screen_text())
        await pilot.press("q")
    assert not any(thread.is_alive() for thread in session._host.threads)
    assert app.return_code == 0


async def test_the_screen_follows_to_the_server_that_the_session_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    app = fixed_app()
    async with running(app, (180, 40)) as pilot:
        assert "pid 4242" in app.screen_text()
        monkeypatch.setattr(app.session, "target", replace(TARGET, root_pid=5151, title="vLLM anew"))
        app.live.refresh_trace()
        await pilot.pause()
        assert "vLLM anew" in app.screen_text()
        assert "pid 5151" in app.screen_text()
        assert all(pane.context.target is app.session.target for pane in app.live.panes.values())


async def test_it_leaves_by_itself_after_the_given_time() -> None:
    app = LiveApp(fixed_app().session, TARGET, seconds=0.05)
    async with app.run_test() as pilot:
        await wait_until(pilot, lambda: not app.is_running or app._exit)
    assert app.return_code == 0


@pytest.mark.parametrize(("scene", "budget"), [(Scene(is_idle=True), 1_000), (Scene(), 12_000)], ids=["idle", "moving"])
async def test_a_frame_stays_within_its_bytes(scene: Scene, budget: int) -> None:
    app = fixed_app(scene)
    frames: list[int] = []

    async def drive(pilot: Pilot[Any], terminal: TerminalInMemory) -> None:
        for ticks in (90, 91, 92, 93):
            session_of(app).now = live_trace(scene, ticks)
            mark = terminal.mark()
            app.live.refresh_trace()
            await pilot.pause()
            frames.append(terminal.bytes_since(mark))

    await on_terminal(app, (120, 40), drive)
    assert max(frames[1:]) <= budget


async def test_moving_the_focus_draws_two_panes_and_not_the_screen() -> None:
    sent: list[int] = []

    async def drive(pilot: Pilot[Any], terminal: TerminalInMemory) -> None:
        app.live.refresh_trace()
        await pilot.pause()
        for _ in range(2):  # the first visit also builds what is kept
            for key in ("2", "3", "4", "6", "1"):
                mark = terminal.mark()
                await pilot.press(key)
                await pilot.pause()
                sent.append(terminal.bytes_since(mark))
        mark = terminal.mark()
        app.live.refresh()
        await pilot.pause()
        sent.append(terminal.bytes_since(mark))
        assert [row.rstrip() for row in terminal.lines] == app.screen_text().splitlines()

    app = fixed_app()
    await on_terminal(app, (120, 40), drive)
    whole = sent.pop()
    assert max(sent[5:]) < whole / 2
