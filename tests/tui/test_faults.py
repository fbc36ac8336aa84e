"""The fault border: what raises in a view, a table, its details, a dialog or a key costs that, never the program."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest

from llmtop.model import NS_PER_S, Issue, Severity, Trace
from llmtop.parsers.registry import load
from llmtop.tui.panes import events, gpu, syscalls, threads
from llmtop.tui.panes.base import Pane
from llmtop.tui.panes.live import LIVE_VIEWS
from llmtop.tui.panes.recorded import all_views
from llmtop.tui.panes.report import ListPane
from llmtop.tui.panes.table import VirtualTable
from llmtop.tui.panes.time_axis import TimeAxisPane
from llmtop.tui.panes.timeline import TimelinePane
from llmtop.tui.panes.view import Context, View
from llmtop.tui.screens import diagnosis, kernel, live_screen, thread
from llmtop.tui.screens.causes import CausesPane
from llmtop.tui.screens.explore_screen import ExploreApp, ExploreScreen
from llmtop.tui.screens.reasons import ReasonsPane
from tests.analysis.engine_rounds import Round, rounds_of
from tests.kernel_traces import LADDER
from tests.live_traces import TARGET, Scene, live_trace, probed
from tests.tui.live_app import fixed_app, press, session_of
from tests.tui.test_contents import written
from tests.tui.test_explore import read, settle

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot

    from llmtop.tui.app import LlmtopApp
    from llmtop.tui.screens.live import LiveApp

SAID = "failed: ArithmeticError: broken [/b]"


def broken(name: str) -> Callable[..., Any]:
    def fails(*_: Any, **__: Any) -> Any:
        raise ArithmeticError(f"broken [/b] {name}")

    return fails


def methods_of(kind: type) -> list[str]:
    """Everything that a class adds and that may run while it is shown."""
    return [
        name
        for name, value in vars(kind).items()
        if not name.startswith("__") and (inspect.isfunction(value) or isinstance(value, property))
    ]


def tried_whole(kinds: Iterable[type]) -> set[type]:
    """One of each base class, the smallest: here each method is broken, elsewhere one of each path that calls them."""
    of_base: dict[type, type] = {}
    for kind in sorted(kinds, key=lambda kind: len(methods_of(kind)), reverse=True):
        of_base[kind.__mro__[1]] = kind
    return set(of_base.values())


def first_action(view: View[Any]) -> list[str]:
    """An action of its own that it has a use for now, if any."""
    actions = [name for name in methods_of(type(view)) if name.startswith("action_")]
    return [name for name in actions if view.check_action(name.removeprefix("action_"), ())][:1]


@contextmanager
def breaking(monkeypatch: pytest.MonkeyPatch, kind: Any, name: str) -> Iterator[None]:
    fails = broken(f"{kind.__name__} {name}")  # each fault is told once
    with monkeypatch.context() as patch:
        patch.setattr(
            kind,
            name,
            property(fails) if isinstance(inspect.getattr_static(kind, name), property) else fails,
        )
        yield


def words(text: str) -> str:
    """The text of a screen without its frames, as one line."""
    return " ".join(text.translate(str.maketrans("│┃▌", "   ")).split())


async def keys_of_contents(pilot: Pilot[Any], app: LlmtopApp, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying and writing a view that cannot tell what it holds costs these keys alone; so do keys that it judges."""
    for key in ("y", "Y") if kind is TimelinePane else ("y", "w"):  # which has a use of its own for the last one
        app.clear_notifications()
        with monkeypatch.context() as patch:  # each fault is told once
            patch.setattr(kind, "contents", broken(f"{kind.__name__} {key}"))
            await press(pilot, key)
        assert [one.message.startswith(f"this key {SAID}") for one in app._notifications] == [True], key
    with breaking(monkeypatch, kind, "check_action"):
        assert "llmtop" in await press(pilot, "y") + app.title
    app.clear_notifications()


async def keys_of_rows(pilot: Pilot[Any], app: LlmtopApp, table: VirtualTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting, searching, copying and writing rows that cannot be had costs that, and not what is pressed next."""
    rows = type(table.rows)
    if table.rows is None or not len(table.rows):
        return
    for method, keys in (("sorted_by", ["greater_than_sign"]), ("filtered", ["slash", "e", "enter"])):
        with breaking(monkeypatch, rows, method):
            await press(pilot, *keys)
            await settle(pilot)
            assert f"this pane {SAID}" in words(app.screen_text()), method
        await press(pilot, "escape") if method == "filtered" else table.order.forget_orders()
        table.filter("")
        assert SAID not in words(await press(pilot, "down", "up")), method
    for key in ("y", "w"):
        app.clear_notifications()
        with monkeypatch.context() as patch:
            patch.setattr(rows, "cells", broken(f"{type(table.parent).__name__} {rows.__name__} {key}"))
            await press(pilot, key)
            await settle(pilot)
            await written()
            await pilot.pause()
        assert any(SAID in one.message for one in app._notifications), key
    app.clear_notifications()


# -- live ----------------------------------------------------------------------------------------------------------


async def draw(app: LiveApp, pilot: Pilot[Any]) -> str:
    """A frame of another moment: an earlier one is new to every pane, whatever its pace."""
    session = session_of(app)
    session.now = replace(session.now, end_ns=session.now.end_ns - 1)
    app.live.refresh_trace()
    await pilot.pause()
    return words(app.screen_text())


def a_live_app() -> LiveApp:
    """With something to show in every view."""
    app, fault = fixed_app(), Issue(Severity.WARNING, "made-up", "made up")
    trace = probed(live_trace(Scene(), 90))
    rounds = rounds_of([Round()] * 40, start_ns=trace.end_ns - NS_PER_S)
    session_of(app).now = replace(trace, issues=(fault,), series={**trace.series, **rounds})
    return app


async def used(pilot: Pilot[Any], app: LiveApp, number: int) -> None:
    """A live view is gone to, has the screen alone, is drawn and left."""
    app.live.action_pane(number)
    await press(pilot, "down", "right", "z")
    await draw(app, pilot)
    await press(pilot, "escape", "escape")


LIVE = {place.number: kind for _, kind, place in LIVE_VIEWS if place.exists(Context(TARGET))}


async def test_what_raises_in_a_live_view_costs_that_view_or_key(
    monkeypatch: pytest.MonkeyPatch, faults: list[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("LLMTOP_SCREENSHOTS", str(tmp_path))
    app = a_live_app()
    whole = {kind for kind in tried_whole(LIVE.values()) if kind.__mro__[1] in (Pane, ListPane, TimeAxisPane)}
    async with app.run_test(size=(160, 50), notifications=True) as pilot:
        for number, kind in LIVE.items():
            await draw(app, pilot)
            heading = app.live.panes[number].heading
            if heading not in await press(pilot):
                app.live.action_pane(number)  # without a place beside the others it has the screen alone
                await press(pilot)
            beside = ("─ 3 GPU", "─ 4 Threads", "llmtop")
            other = next(one for one in beside if one in words(app.screen_text()) and heading not in one)
            for name in ("view", "draw" if issubclass(kind, Pane) else "rows"):
                with breaking(monkeypatch, kind, name):
                    text = await draw(app, pilot)
                    assert f"this pane {SAID}" in text, (kind, name)
                    assert other in text, (kind, name)
            assert "this pane" not in await draw(app, pilot), kind
            methods, called = methods_of(kind), set[str]()
            for name in first_action(app.live.panes[number]):
                with breaking(monkeypatch, kind, name):
                    await app.run_action(name.removeprefix("action_"), app.live.panes[number])
                assert any(said.startswith(f"this key {SAID} {kind.__name__}") for said in faults), (kind, name)
            if kind in whole:
                with monkeypatch.context() as patch:
                    for name in methods:
                        patch.setattr(kind, name, noting(vars(kind)[name], name, called))
                    await used(pilot, app, number)
                for name in called - {"view", "draw", "rows"}:
                    with breaking(monkeypatch, kind, name):
                        await used(pilot, app, number)
                        assert app.is_running, (kind, name)
                await press(pilot, "escape", "escape")
                app.live.action_pane(number)
                assert heading in await draw(app, pilot)
                await keys_of_contents(pilot, app, kind, monkeypatch)
                if kind.has_rows():
                    await press(pilot, *(["z"] if issubclass(kind, Pane) else []))
                    table = app.screen.focused if issubclass(kind, ListPane) else app.live.table.table
                    assert isinstance(table, VirtualTable)
                    table.focus()  # which stands below the panes of some
                    await keys_of_rows(pilot, app, table, monkeypatch)
            await press(pilot, "escape", "escape")
            assert "1 Roofline" in await draw(app, pilot)
    faults.clear()


async def all_around(pilot: Pilot[Any], app: LiveApp) -> str:
    """A pane alone, its heatmap and the events are shown and left: the screen after that."""
    await press(pilot, "4", "z", "h", "down", "escape", "e", "down", "escape", "escape")
    return await draw(app, pilot)


async def test_what_raises_around_the_live_views_costs_that_part(
    monkeypatch: pytest.MonkeyPatch, faults: list[str]
) -> None:
    app = a_live_app()
    async with app.run_test(size=(160, 50), notifications=True) as pilot:
        await draw(app, pilot)
        for name in ("HeaderLine", "FindingsLine", "FoldedLine", "HeatmapPane", "EventsPane"):
            kind = next(type(one) for one in app.live.query("*") if type(one).__name__ == name)
            for method in {"view", "draw", "rows", "details"}.intersection(methods_of(kind)):
                with breaking(monkeypatch, kind, method):
                    is_opened = name in ("HeatmapPane", "EventsPane")
                    shown = await (all_around(pilot, app) if is_opened else draw(app, pilot))
                    assert "1 Roofline" in shown, (name, method)
            assert "this pane" not in await draw(app, pilot), name
        for name in ("HeaderLine view", "HeaderLine draw", "FindingsLine view", "FindingsLine draw"):
            assert any(f"{SAID} {name}" in said for said in faults), name
    faults.clear()


async def test_a_table_that_cannot_be_made_says_so(monkeypatch: pytest.MonkeyPatch, faults: list[str]) -> None:
    app = a_live_app()
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await draw(app, pilot)
        for number, where, table in (
            ("3", gpu, "gpu_processes_table"),
            ("4", threads, "threads_table"),
            ("8", syscalls, "syscalls_table"),
        ):
            with breaking(monkeypatch, where, table):
                assert f"this pane {SAID}" in words(await press(pilot, number, "z"))
                assert "llmtop" in await draw(app, pilot)
            assert "this pane" not in await draw(app, pilot)
            with breaking(monkeypatch, where, table):
                assert f"this pane {SAID}" in await draw(app, pilot)
                assert "1 Roofline" in await press(pilot, "escape")
            await draw(app, pilot)
    faults.clear()


async def test_what_raises_in_the_rows_costs_the_table_or_the_row(
    monkeypatch: pytest.MonkeyPatch, faults: list[str]
) -> None:
    app = a_live_app()
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await draw(app, pilot)
        for method, keys in (
            ("key", "down enter"),
            ("cells", "down end"),
            ("sorted_by", "greater_than_sign"),
            ("filtered", "slash e enter"),
            ("__len__", "down end"),
        ):
            await press(pilot, "4", "z")
            rows = type(app.live.table.table.rows)
            with breaking(monkeypatch, rows, method):
                said = words(await press(pilot, *keys.split()))
                assert SAID in said + await draw(app, pilot), method
            await press(pilot, "escape", "escape", "escape", "4", "z")
            assert "EngineCore" in await draw(app, pilot), method
            await press(pilot, "escape", "escape")
            app.clear_notifications()
    faults.clear()


async def test_what_raises_in_a_dialog_or_the_screen_itself_is_said(
    monkeypatch: pytest.MonkeyPatch, faults: list[str]
) -> None:
    app = a_live_app()
    cases: list[tuple[Any, str, str, str]] = [
        (threads, "thread_details", "4 z enter", "pane"),
        (thread, "draw_details", "4 z enter", "pane"),
        (diagnosis, "diagnose", "d", "pane"),
        (diagnosis, "draw_diagnosis", "d", "pane"),
        (live_screen, "DiagnosisScreen", "d", "key"),
        (live_screen.LiveScreen, "_go", "5 z z", "key"),
        (live_screen.LiveScreen, "_state", "2", "pane"),
        (events, "events_table", "e", "pane"),
    ]
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await draw(app, pilot)
        for where, what, keys, said in cases:
            app.clear_notifications()
            faults.clear()
            with breaking(monkeypatch, where, what):
                await press(pilot, *keys.split())
                app._is_news, app._last_frame_s = True, float("-inf")
                app._frame_if_due()
                assert f"this {said} {SAID}" in words(await press(pilot)), what
            await press(pilot, "escape", "escape", "escape", "escape")
            assert "1 Roofline" in await draw(app, pilot), what
            assert any(f"this {said} {SAID}" in one for one in faults), what
    faults.clear()


async def test_a_fault_in_the_help_or_in_what_keys_may_do_costs_the_key(
    monkeypatch: pytest.MonkeyPatch, faults: list[str]
) -> None:
    app = a_live_app()
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await draw(app, pilot)
        for where, what in (
            ("llmtop.tui.screens.help.columns_here", broken("columns")),
            ("llmtop.tui.app.HelpScreen", broken("help")),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(where, what)
                assert f"this key {SAID}" in words(await press(pilot, "question_mark"))
        with monkeypatch.context() as patch:
            patch.setattr("llmtop.tui.screens.help.HelpScreen.compose", broken("compose"))
            assert SAID in words(await press(pilot, "question_mark"))
        await press(pilot, "escape")
        assert "1 Roofline" in await draw(app, pilot)
    faults.clear()


# -- the explorer --------------------------------------------------------------------------------------------------


def noting(method: Any, name: str, called: set[str]) -> Any:
    """A method or property that notes that it was called."""
    known: Any = method.fget if isinstance(method, property) else method

    @wraps(known)
    def noted(*arguments: Any, **named: Any) -> Any:
        called.add(name)
        return known(*arguments, **named)

    return property(noted) if isinstance(method, property) else noted


async def show_anew(pilot: Pilot[Any], screen: ExploreScreen, kind: Any) -> str:
    """Leave a view, make it again from nothing, and look at it: the screen's text."""
    known = screen.reports[screen.active]._views.pop(kind, None)
    if known is not None:
        await known.remove()
    screen.app.clear_notifications()
    screen.show_view(kind)
    await settle(pilot)
    await press(pilot, "down", "greater_than_sign", "right")
    await settle(pilot)
    return words(screen.app.screen_text())  # type: ignore[attr-defined]


async def test_what_raises_in_a_recorded_view_costs_that_view_or_key(
    files: tuple[Trace, ...], monkeypatch: pytest.MonkeyPatch, faults: list[str], tmp_path: Path
) -> None:
    """One method after the other, in a program per file: the view fails, others show, then it is there again."""
    monkeypatch.setenv("LLMTOP_SCREENSHOTS", str(tmp_path))
    left, whole = list(all_views()), tried_whole(all_views())
    for trace in files:
        kinds = [one for one in left if one.why_not(trace) is None and (one.title != "Idle" or trace is not files[0])]
        if not kinds:
            continue
        left = [kind for kind in left if kind not in kinds]
        app = ExploreApp([read(trace) for _ in range(1 + any(kind.is_of_two for kind in kinds))])
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await settle(pilot)
            if any(kind.is_of_two for kind in kinds):  # in the second file, with the first as its baseline
                await pilot.press("B", "right_square_bracket")
            for kind in kinds:
                await break_recorded(pilot, app, kind, kind in whole, monkeypatch, faults)
    assert not left
    faults.clear()


async def break_recorded(
    pilot: Pilot[Any],
    app: ExploreApp,
    kind: Any,
    is_whole: bool,
    monkeypatch: pytest.MonkeyPatch,
    faults: list[str],
) -> None:
    screen = app.screen
    assert isinstance(screen, ExploreScreen)
    is_drawn = not kind.has_rows() or not issubclass(kind, Pane) or kind is gpu.GpuPane
    used = {"__init__", "view", "details", *(["draw", "show"] if is_drawn else [])}
    used |= {"rows"} if kind is not gpu.GpuPane else set()
    methods, called = methods_of(kind), set[str]()
    if is_whole:
        with monkeypatch.context() as patch:
            for method in methods:
                patch.setattr(kind, method, noting(vars(kind)[method], method, called))
            assert SAID not in await show_anew(pilot, screen, kind)
        called -= {method for method in called if method.startswith("action_")}
    for method in ("__init__", *called) if is_whole else used.intersection(methods):
        with breaking(monkeypatch, kind, method):
            said = await show_anew(pilot, screen, kind)
            assert f"{kind.title}]" in said
            assert SAID in said or method not in used, (kind, method)
    tabs = list(screen.views)
    other = tabs[(tabs.index(kind) + 2) % len(tabs)]
    screen.show_view(other)
    await settle(pilot)
    text = words(app.screen_text())
    assert f"{other.title}]" in text
    assert "this pane failed" not in text
    assert SAID not in await show_anew(pilot, screen, kind)
    shown = list(screen.query(kind))
    for method in first_action(shown[0]) if shown else []:
        with breaking(monkeypatch, kind, method):
            await app.run_action(method.removeprefix("action_"), shown[0])
            assert faults.pop() == f"this key {SAID} {kind.__name__} {method}; please report this"
    await pilot.pause()  # until all that is said of them stands, before it is cleared away
    app.clear_notifications()
    if is_whole:
        around = [] if screen.focused is None else screen.focused.ancestors_with_self
        for seen in {type(one) for one in around if isinstance(one, View)}:
            await keys_of_contents(pilot, app, seen, monkeypatch)
    if isinstance(screen.focused, VirtualTable) and kind.title == "Kernels":
        await keys_of_rows(pilot, app, screen.focused, monkeypatch)
    assert f"{kind.title}]" in words(await press(pilot))


async def test_what_raises_in_a_dialog_of_the_explorer_is_said_there(
    monkeypatch: pytest.MonkeyPatch, faults: list[str]
) -> None:
    app = ExploreApp([read(load(LADDER))])
    cases: list[tuple[Any, str, str]] = [
        (kernel, "launch_view", "enter"),
        (kernel, "metrics_table", "enter"),
        (kernel, "_whole_metric", "enter tab down"),
        (kernel, "draw_roofline", "enter"),
        (kernel.KernelScreen, "on_mount", "enter"),
        (ReasonsPane, "draw", "2 m"),
        (CausesPane, "draw", "7 m"),
    ]
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        for where, what, keys in cases:
            app.clear_notifications()
            with breaking(monkeypatch, where, what):
                for key in keys.split():
                    await press(pilot, key)
                    await settle(pilot)
                assert SAID in words(app.screen_text()), what
            await press(pilot, "escape", "1")
            await settle(pilot)
            assert "[1 Kernels]" in app.screen_text(), what
    faults.clear()
