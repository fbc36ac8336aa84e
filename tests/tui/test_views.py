"""One view of a subject, live and of a file: what it shows follows from the trace, its keys from where it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from llmtop import ids
from llmtop.analysis.threads.shares import why_no_threads
from llmtop.model import Origin, Stack, Trace, Unknown
from llmtop.parsers.registry import load
from llmtop.tui.panes.gpu import GpuPane
from llmtop.tui.panes.live import LIVE_VIEWS
from llmtop.tui.panes.recorded import all_views, views_of
from llmtop.tui.panes.report import ListPane
from llmtop.tui.panes.roofline import RooflinePane
from llmtop.tui.panes.series import SeriesPane
from llmtop.tui.panes.stacks import StacksPane
from llmtop.tui.panes.syscalls import SyscallsPane
from llmtop.tui.panes.threads import ThreadsPane
from llmtop.tui.screens.explore_screen import ExploreApp
from llmtop.tui.screens.help import active_keys, keys_elsewhere
from tests.live_traces import Scene, live_trace
from tests.parsers.sample_reports import SAMPLE_TRACES
from tests.tui.live_app import fixed_app, press, running
from tests.tui.report_traces import report
from tests.tui.test_explore import FOLDED, SAMPLES, read, settle

STACK = Stack(("main", "wait_for_gpu"), 5e9, "ns", "futex", ids.thread(4300, 4300))
RECORDING = replace(live_trace(Scene(), 90), origin=Origin("recording"), stacks=(STACK,))
KERNELS = "The next heavier or lighter kernel"
PYTHON = "Python's functions (py-spy), on or off"


def test_what_is_live_and_of_files_is_one_view() -> None:
    both = {view.kind for view in LIVE_VIEWS} & set(all_views())
    assert both >= {RooflinePane, StacksPane, ThreadsPane, SyscallsPane, SeriesPane}
    files_alone = [kind for kind in all_views() if kind not in both]
    assert not {kind.title for kind in files_alone} & {view.kind.title for view in LIVE_VIEWS}


SMALL_SAMPLES = [path for path in SAMPLES if path.stat().st_size < 200_000]
KINDS_OF_FILES: dict[str, Callable[[], Trace]] = {
    "nothing": lambda: Trace(Origin("made-up")),
    "series": lambda: Trace(Origin("made-up"), series=RECORDING.series),
    "stacks": lambda: Trace(Origin("made-up"), stacks=(STACK,)),
    "recording": lambda: RECORDING,
    "kernels": report,
} | {str(path.relative_to(SAMPLE_TRACES)): partial(load, path) for path in SMALL_SAMPLES}


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
def test_no_view_is_left_out_because_its_module_is_not_loaded(kind: str) -> None:
    trace = KINDS_OF_FILES[kind]()
    applying = [view for view in all_views() if not view.is_of_two and view.why_not(trace) is None]
    assert list(views_of(trace)) == applying


def test_enter_is_a_key_only_where_there_is_more_to_say_of_a_row() -> None:
    pane: ListPane[Any] = ListPane()
    opening = {}
    for pane.of in (ThreadsPane(), SeriesPane(), SyscallsPane()):
        opening[pane.of.title] = pane.check_action("choose", ())
    assert opening == {"Threads": True, "Series": True, "System calls": False}


def body_of(text: str) -> list[str]:
    """The rows of the first table on a screen, without what stands in its border."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("╭"))
    last = next(i for i, line in enumerate(lines) if line.startswith("╰"))
    return [line.strip("│▃▅▂ ").rstrip() for line in lines[first + 1 : last] if line.strip("│▃▅▂ ")]


async def test_a_recording_of_a_server_is_drawn_as_the_server_was() -> None:
    app = ExploreApp([read(RECORDING)])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        assert "[3 Roofline]" in app.screen_text()
        assert "H100" in app.screen_text()
        assert "kernel" not in app.screen_text(), "neither a cursor on one, nor a key for it"
        await pilot.press("8")
        await settle(pilot)
        text = app.screen_text()
        assert "by thread · last 10 s" in text
        assert "EngineCore" in text
        await pilot.press("4")
        await settle(pilot)
        recorded = app.screen_text()
        assert "[4 Threads]" in recorded
        assert "on-CPU" in recorded
        await pilot.press("enter")
        await settle(pilot)
        details = app.screen_text()
        assert "EngineCore" in details.splitlines()[0]
        assert "as it was when opened" in details
        await pilot.press("escape", "slash", *"zmq", "enter")
        assert [row.split()[0] for row in body_of(app.screen_text())] == ["thread", "ZMQbg/IO/0"]
        assert app.issues == []
    live = fixed_app()
    async with running(live, (120, 40)) as pilot:
        assert body_of(await press(pilot, "4", "z")) == body_of(recorded)
        assert (await press(pilot, "enter")).splitlines()[0] == details.splitlines()[0]


async def test_a_file_of_threads_alone_opens_on_them() -> None:
    whole = live_trace(Scene(), 30)
    series = {key: one for key, one in whole.series.items() if key[0].startswith("thread:")}
    tracks = {key: one for key, one in whole.tracks.items() if key.startswith("thread:")}
    trace = Trace(Origin("made-up"), whole.start_ns, whole.end_ns, tracks=tracks, series=series)
    app = ExploreApp([read(trace)])
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        text = app.screen_text()
        assert "[4 Threads] 5 Findings  6 Session  9 Series" in text
        assert "EngineCore" in text
        await pilot.press("9", "8")
        await settle(pilot)
        assert "[9 Series]" in app.screen_text()
        assert "Stacks: this file has no stacks" in " ".join(app.screen_text().split())
    assert why_no_threads(replace(trace, series={})) == Unknown("of its threads this trace tells no time on a CPU")
    assert ThreadsPane not in views_of(replace(trace, series={}))


async def test_gpus_of_a_recording_are_drawn_as_they_last_were_and_sorted_and_not_pinned() -> None:
    trace = replace(live_trace(Scene(gpus=2), 90), origin=Origin("recording"))
    app = ExploreApp([read(trace)])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("shift+tab")
        await settle(pilot)
        text = app.screen_text()
        assert "[GPU]" in text
        assert "2 x H100 80GB HBM3  GPM" in text
        assert text.count("GiB  EngineCore") == 2
        assert "pin" not in {one.binding.description for one in app.screen.active_bindings.values()}
        before = [line.split()[0] for line in body_of(text)[1:3]]
        await pilot.press("R")
        await settle(pilot)
        assert [line.split()[0] for line in body_of(app.screen_text())[1:3]] == before[::-1]


def test_a_capture_and_a_recording_without_a_gpu_say_why_they_have_no_gpu_view() -> None:
    assert str(GpuPane.why_not(report())).endswith("(llmtop record keeps them)")
    without = replace(live_trace(Scene(gpus=0), 2), origin=Origin("recording"))
    assert GpuPane.why_not(without) is not None
    assert GpuPane not in views_of(without)


async def test_series_of_a_server_are_the_table_that_a_file_has() -> None:
    app = ExploreApp([read(RECORDING)])
    async with app.run_test(size=(160, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("9")
        await settle(pilot)
        recorded = [row.split()[:2] for row in body_of(app.screen_text())]
    live = fixed_app()
    async with running(live, (160, 38), keys=["9"]) as pilot:
        text = live.screen_text()
        assert "9 Series" in text
        assert "1 Roofline" not in text
        assert [row.split()[:2] for row in body_of(text)] == recorded[: len(body_of(text))]
        text = await press(pilot, "slash", *"temperature", "enter")
        assert "°C" in text
        assert "samples: " in text, "the course of the number under the cursor"
        assert "5 s ago" in await press(pilot, "left")
        await press(pilot, "escape")
        assert "temperature" in live.screen_text(), "Esc clears the filter first"
        assert "1 Roofline" in await press(pilot, "escape", "escape")


async def test_series_alone_on_a_small_screen_are_reached_with_tab() -> None:
    live = fixed_app()
    async with running(live, (40, 12)) as pilot:
        assert "Engine steps" in await press(pilot, "shift+tab")
        assert "9 Series" in await press(pilot, "shift+tab")
        assert "1/" in await press(pilot, "down", "up")
        assert "1 Roofline" in await press(pilot, "tab", "tab")


async def test_a_sort_and_a_filter_are_of_the_rows_that_they_were_set_for() -> None:
    live = fixed_app()
    async with running(live, (120, 40), keys=["4", "z", *["greater_than_sign"] * 4, "slash", "e", "enter"]) as pilot:
        assert live.live.table.table.order.sort is not None
        assert live.live.table.table.order.filter_text == "e"
        assert "EngineCore" in await press(pilot, "3")
        assert live.live.table.table.order.sort is None
        assert live.live.table.table.order.filter_text == ""


async def test_stacks_of_a_file_are_searched_as_those_of_a_server() -> None:
    app = ExploreApp([read(load(FOLDED))])
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        await settle(pilot)
        assert "/_ 0 % of all" in await press(pilot, "slash")
        assert "/attend8_" in await press(pilot, *"attend8"), "a digit is text while one types"
        text = await press(pilot, "backspace", "enter")
        assert "/attend " in text
        assert "0 %" not in text.splitlines()[2]
        assert "377 samples" in await press(pilot, "0")
        assert "[8 Stacks]" in await press(pilot, "slash", "q", "escape")
        assert "377 samples" in app.screen_text()


async def test_a_page_is_ten_frames_and_the_edges_are_the_root_and_the_end() -> None:
    trace = replace(load(FOLDED), stacks=(Stack(tuple(f"f{n}" for n in range(1, 26)), 5.0, "samples"),))
    app = ExploreApp([read(trace)])
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        for key, name in (("pagedown", "f10"), ("pagedown", "f20"), ("pagedown", "f25"), ("pageup", "f15")):
            assert f"100 %  {name}" in await press(pilot, key)
        assert "100 %  all" in await press(pilot, "home")
        assert "100 %  f25" in await press(pilot, "end")
        assert "100 %  f24" in await press(pilot, "up")
        assert "100 %  all" in await press(pilot, "pageup", "pageup", "pageup")


async def test_keys_that_one_kind_of_trace_has_no_use_for_are_nowhere_for_the_other() -> None:
    live = fixed_app()
    async with running(live, (120, 40)) as pilot:
        elsewhere = dict(keys_elsewhere(live.screen)).values()
        said = {text for lines in (active_keys(live.screen), *elsewhere) for _, text in lines}
        assert PYTHON in said
        assert KERNELS not in said
        assert not any(KERNELS in one.title for one in live.get_system_commands(live.screen))
        before = live.screen_text()
        assert "5 s ago" in await press(pilot, "left"), "the roofline has the focus, and lets the screen have the key"
        assert "5 s ago" not in before
    files = ExploreApp([read(load(FOLDED)), read(report())])
    async with files.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        texts = {text for _, text in active_keys(files.screen)}
        assert "Mark functions by a part of their name" in texts
        assert PYTHON not in texts
        await press(pilot, "right_square_bracket", "3")
        await settle(pilot)
        assert KERNELS in {text for _, text in active_keys(files.screen)}
