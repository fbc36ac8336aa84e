"""The timeline as it is drawn, at fixed sizes, and driven by keys and the mouse."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop import ids
from llmtop.analysis.timeline.explore import TimelineCursor
from llmtop.analysis.timeline.span_facts import first_launched
from llmtop.analysis.timeline.spans import TraceTimeline
from llmtop.parsers.registry import load
from llmtop.tui.panes.timeline import TimelinePane
from llmtop.tui.render.lines import in_room
from llmtop.tui.render.look import ASCII, MONO, UNICODE, Look
from llmtop.tui.render.timeline import TimelinePicture, columns_of, draw_timeline, left_of
from llmtop.tui.screens.explore_screen import ExploreApp
from llmtop.tui.screens.help import active_keys
from tests.kernel_traces import TIMELINE
from tests.timeline_traces import COMPUTE, GEMM, GPU, PID, THREAD, US, Made, scene, trace_of
from tests.tui.test_explore import read, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from typing import Any

    from textual.pilot import Pilot

    from llmtop.analysis.timeline.rows import TimelineRow
    from llmtop.model import Trace
    from llmtop.tui.render.lines import Part


def all_rows(rows: Sequence[TimelineRow]) -> Iterator[TimelineRow]:
    for row in rows:
        yield row
        yield from all_rows(row.below)


def cursor_of(trace: Trace, width: int = 80) -> TimelineCursor:
    timeline = TraceTimeline(trace)
    for row in all_rows(timeline.rows):
        timeline.prepare(row)
    timeline.explain_gaps()
    cursor = TimelineCursor(timeline)
    cursor.columns = columns_of(width)
    return cursor


def drawn(cursor: TimelineCursor, width: int = 80, height: int = 0, look: Look | None = None) -> list[str]:
    places = cursor.places()
    matches = cursor.matches
    picture = TimelinePicture(
        cursor.timeline, cursor.window, places, cursor.at(places), cursor.t_ns, cursor.span(), cursor.partner(),
        cursor.marks, None if matches is None else matches.names, frozenset(cursor.opened), cursor.timeline.gaps,
    )  # fmt: skip
    strips = draw_timeline(picture, width, height or len(places) + 2, look or Look())
    assert all(strip.cell_length == width for strip in strips)
    return [strip.text.rstrip() for strip in strips]


# -- the drawing ---------------------------------------------------------------------------------------------------


def test_a_timeline_at_80_columns() -> None:
    cursor = cursor_of(scene())
    cursor.jump(cursor.timeline.code("kernel", 0))
    assert drawn(cursor) == [
        "time                    ▏0      ▼  ▏20 µs     ▏40 µs     ▏60 µs     ▏80 µs",
        "▾GPU 0              41% ░░░░░░░░▉GEMM…─▓█▉░░░░▍██▎░░░░░░░░░░░░░▎GEMM…█████▍░░░░░",
        "  stream 7                      ▉GEMM…─▓█▉                     ▎GEMM…█████▍",
        "  stream 13                                   ▍██▎",
        "  SM active        10 % ▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇",
        "▾process 100            2 threads, 3 launches",
        " ▾thread 100                 ▲█▉   ▎█▌     ▎▏▎█▌         ▋█▉",
        "  ▾NVTX                   ▊step 1███████████████████  ▊step 2████████████████▎",
        "                            ▌forward██████████▍",
        "   NVTX nccl                                           ▍▌",
        " ▸+1 thread             that do little or nothing for the GPU",
        " ▃▓ several  GPU ██ GEMM ██ norm ██ copy  threads ██ NVTX  idle ░░ host code",
    ]


def test_the_legend_has_the_room_that_rows_leave() -> None:
    cursor = cursor_of(scene())
    rows = len(cursor.places())
    assert drawn(cursor, height=rows + 4)[-3:] == [
        " ▃▓ several  GPU ██ GEMM ██ norm ██ copy  threads ██ NVTX ██ launch call",
        " ██ synchronisation, copy call  idle ░░ host code ░░ no work asked for",
        "",
    ]
    assert drawn(cursor, height=rows + 3)[-2:] == drawn(cursor, height=rows + 4)[-3:-1]


def test_a_long_title_keeps_its_end() -> None:
    trace, process = scene(), ids.process(PID)
    named = replace(trace.tracks[process], name=f"/srv/llm/venv/bin/python3 ({PID})")
    lines = drawn(cursor_of(replace(trace, tracks={**trace.tracks, process: named})))
    assert "▾/srv/llm/v…thon3 (100) 2 threads, 3 launches" in [" ".join(line.split()) for line in lines]


def test_lines_below_are_wrapped_as_far_as_there_is_room() -> None:
    took = [("took ", "dim"), ("567 µs", "value"), (" on ", "dim"), ("GPU 0 stream 7", "text"), ("  grid ", "dim")]
    lines = [[*took, ("2 x 66 x 1", "text")], [("in ", "dim"), ("a range > another within it", "text")]]
    whole = ["took 567 µs on GPU 0 stream 7  grid 2 x 66 x 1", "in a range > another within it"]
    first = ["took 567 µs", "  on GPU 0 stream 7", "  grid 2 x 66 x 1"]
    assert shown(lines, 20, 5) == [*first, "in a range > another", "  within it"]
    assert shown(lines, 20, 4) == [*first, whole[1]], "what draws it cuts it"
    assert shown(lines, 20, 2) == shown(lines, 80, 8) == whole


def shown(lines: Sequence[Sequence[Part]], width: int, room: int) -> list[str]:
    return ["".join(text for text, _ in line) for line in in_room(lines, width, room)]


def test_a_timeline_at_120_columns_in_ascii() -> None:
    cursor = cursor_of(scene(), 120)
    cursor.jump(cursor.timeline.code("kernel", 0))
    lines = drawn(cursor, 120, look=Look(ASCII))
    assert [line[left_of(120) :] for line in lines[:3]] == [
        "|0            v  |20 us            |40 us           |60 us            |80 us",
        ",,,,,,,,,,,,,,-GEMM~----%NNN-,,,,,,-CCC=,,,,,,,,,,,,,,,,,,,,,=GEMM 128x64 bf16~-,,,,,,,,",
        "              -GEMM~----%NNN-                                =GEMM 128x64 bf16~-",
    ]
    assert lines[-1].startswith(
        " .% several  GPU GG GEMM NN norm CC copy  threads nn NVTX ll launch call  idle ,, host code ,, no wor"
    )
    assert lines[7].endswith("-step 1-nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn    -step 2-nnnnnnnnnnnnnnnnnnnnnnnnnnn=")
    assert all(line.isascii() for line in lines)


@pytest.mark.parametrize("glyphs", [UNICODE, MONO, ASCII])
def test_without_colours_one_span_several_and_none_differ(glyphs: Any) -> None:
    spans = [Made(COMPUTE, "k", 0, 40), *(Made(COMPUTE, "k", at, at + 0.1) for at in (50, 50.2, 50.4)), *FULL]
    cursor = cursor_of(trace_of({"kernel": spans}, end=100), 34)
    cursor.timeline.gaps = None
    cursor.edge(1)
    row = drawn(cursor, 34, look=Look(glyphs))[1][left_of(34) :].ljust(20)
    whole, alone, several, full = row[5], row[7], row[10], row[14]
    assert len({whole, several, full, " "}) == 4
    assert whole == alone == (glyphs.eighths[-1] if glyphs.shades else "O")
    assert (several, full) == (glyphs.merged[0], glyphs.merged[-1])


FULL = [Made(COMPUTE, "k", at, at + 1) for at in range(70, 75)]


spans_lists = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 300)), min_size=1, max_size=30)


@settings(max_examples=30)
@given(spans_lists, st.integers(0, 800), st.integers(30, 200), st.sampled_from([UNICODE, ASCII]))
def test_what_is_drawn_is_empty_only_where_no_span_is(
    pairs: list[tuple[int, int]], start: int, length: int, glyphs: Any
) -> None:
    made = [Made(COMPUTE, "a kernel", at / US, (at + size) / US) for at, size in pairs]
    cursor = cursor_of(trace_of({"kernel": made, "launch": [Made(THREAD, "cudaLaunchKernel", 0, 1)]}, end=1.2), 40)
    cursor.timeline.gaps = None
    cursor.window = replace(cursor.window, start_ns=start, end_ns=start + length)
    cursor.move(1)  # off the row that is looked at: there the cursor marks an empty cell
    cells = drawn(cursor, 40, look=Look(glyphs))[1][left_of(40) :].ljust(cursor.columns)
    for column in range(cursor.columns):
        first, stop = start + length * column // cursor.columns, start + length * (column + 1) // cursor.columns
        touched = any(at < stop and max(at + size, at + 1) > first for at, size in pairs)
        is_full = touched and all(
            any(at <= ns < max(at + size, at + 1) for at, size in pairs) for ns in range(first, stop)
        )
        assert (cells[column] != " ") == touched
        if touched and not is_full:
            assert cells[column] not in (glyphs.eighths[-1], glyphs.merged[-1])


def test_a_search_keeps_the_colour_of_what_is_meant_alone() -> None:
    cursor = cursor_of(scene())
    cursor.find("rmsnorm")
    places = cursor.places()
    matches = cursor.matches
    assert matches is not None
    picture = TimelinePicture(
        cursor.timeline, cursor.window, places, 4, cursor.t_ns, found=matches.names, opened=frozenset(cursor.opened)
    )
    look = Look()
    strip = draw_timeline(picture, 80, 20, look)[2]
    colours = {text: style for text, style, _ in strip if text.strip()}
    assert any(style == look.style("stall4") for style in colours.values()), "the norm"
    assert not any(style == look.style("stall6") for style in colours.values()), "the matrix products"


def test_marks_stand_on_the_ruler_with_a_line_between() -> None:
    cursor = cursor_of(scene())
    cursor.marks = (20 * US, 60 * US)
    ruler = drawn(cursor)[0]
    assert ruler[left_of(80) + 11] == ruler[left_of(80) + 33] == "│"
    assert ruler[left_of(80) + 12 : left_of(80) + 33] == "─" * 21


def test_a_ruler_far_from_the_start_says_what_its_labels_count_from() -> None:
    made = [Made(COMPUTE, "k", 1_234_567.0, 1_234_568.0)]
    cursor = cursor_of(trace_of({"kernel": made}, end=2_000_000))
    cursor.jump(cursor.timeline.code("kernel", 0))
    cursor.fit()
    ruler = drawn(cursor)[0]
    assert ruler.split(" +")[0].strip() == "1.23456 s"
    assert "+7,000 ns" in ruler


# -- in the explorer -----------------------------------------------------------------------------------------------


class Driven:
    """The view in a running explorer."""

    def __init__(self, pilot: Pilot[Any], app: ExploreApp) -> None:
        self.pilot, self.app = pilot, app

    @property
    def pane(self) -> TimelinePane:
        return self.app.screen.query_one(TimelinePane)

    @property
    def cursor(self) -> TimelineCursor:
        assert self.pane.cursor is not None
        return self.pane.cursor

    async def press(self, *keys: str) -> str:
        await self.pilot.press(*keys)
        await settle(self.pilot)
        return self.app.screen_text()

    @property
    def name(self) -> str:
        """The span under the cursor."""
        code = self.cursor.span()
        return "" if code is None else self.cursor.timeline.name(code)[1]


@pytest.fixture
async def driven(request: pytest.FixtureRequest) -> AsyncIterator[Driven]:
    size = getattr(request, "param", (80, 24))
    app = ExploreApp([read(scene())])
    async with app.run_test(size=size, notifications=True) as pilot:
        await settle(pilot)
        one = Driven(pilot, app)
        await one.press("2")
        await settle(pilot)
        yield one
        assert app.issues == []


@pytest.mark.parametrize("driven", [(40, 12), (120, 40)], indirect=True)
async def test_it_opens_with_the_whole_capture_at_any_size(driven: Driven) -> None:
    text = driven.app.screen_text()
    assert "100 µs of 100 µs" in text
    assert "GPU 0" in text
    assert (driven.app.size.height < 20) or "threads ██ NVTX" in text


async def test_keys_zoom_and_pan(driven: Driven) -> None:
    assert "50.0 µs of 100 µs" in await driven.press("w")
    assert "25.0 µs of 100 µs" in await driven.press("plus")
    start = driven.cursor.window.start_ns
    await driven.press("d", "right")
    assert driven.cursor.window.start_ns == start + 2 * 25 * US // 8
    await driven.press("a", "left")
    assert driven.cursor.window.start_ns == start
    await driven.press("shift+right", "D")
    assert driven.cursor.window.start_ns == start + 2 * 225 * US // 10
    await driven.press("A", "shift+left", "A")
    assert driven.cursor.window.start_ns == 0
    await driven.press("end")
    assert driven.cursor.window.end_ns == 100 * US
    await driven.press("home")
    assert driven.cursor.window.start_ns == 0
    assert "50.0 µs of 100 µs" in await driven.press("s")
    assert "100 µs of 100 µs" in await driven.press("minus")
    await driven.press("w", "w", "0")
    assert driven.cursor.window.length_ns == 100 * US


async def test_keys_go_through_rows_and_spans(driven: Driven) -> None:
    text = await driven.press("down", "full_stop")
    assert driven.name == GEMM
    assert "kernel " + GEMM in text
    assert "took 12.0 µs at 16.0 µs on GPU 0 stream 7" in text
    await driven.press("full_stop")
    assert driven.name.startswith("void rmsnorm")
    await driven.press("comma")
    assert driven.name == GEMM
    await driven.press("comma")
    assert "no span of this row begins earlier" in driven.app.screen_text()
    await driven.press("pagedown", "pageup", "j", "k", "up")
    assert driven.cursor.places()[0] == driven.cursor.place()
    before = driven.cursor.t_ns
    await driven.press("l", "l", "h")
    assert driven.cursor.t_ns > before


async def test_g_goes_from_the_kernel_to_its_launch_and_back(driven: Driven) -> None:
    text = await driven.press("full_stop")
    assert "g: launched 6.00 µs before, queued 2.00 µs by cudaLaunchKernel" in text
    assert "in step 1 → forward" in text
    text = await driven.press("g")
    assert driven.name == "cudaLaunchKernel"
    assert f"g: launched 6.00 µs later kernel {GEMM}" in text
    await driven.press("g")
    assert driven.name == GEMM
    await driven.press("down", "down", "down", "g")
    assert "there is no span under the cursor" in driven.app.screen_text()
    timeline = driven.cursor.timeline
    calls = (timeline.code("call", row) for row in range(len(timeline.tables["call"])))
    driven.cursor.jump(next(code for code in calls if timeline.name(code)[1] == "cudaStreamSynchronize"))
    await driven.press("g")
    assert "nothing in the capture joins" in driven.app.screen_text()


async def test_g_goes_from_a_range_to_the_first_work_that_its_thread_launched_in_it(driven: Driven) -> None:
    timeline = driven.cursor.timeline
    for row, name, work in ((0, "step 1", 0), (1, "forward", 0), (2, "step 2", 2)):
        code = timeline.code("nvtx", row)
        assert timeline.name(code)[1] == name
        driven.cursor.jump(code)
        await driven.press("g")
        assert driven.cursor.span() == timeline.code("kernel", work)
    assert first_launched(timeline, timeline.code("kernel", 0)) is None


async def test_enter_and_space_open_and_close_rows_and_a_gap_says_why(driven: Driven) -> None:
    assert "stream 13" not in await driven.press("enter")
    assert "stream 13" in await driven.press("space")
    assert "nothing stands below this row" in await driven.press("down", "enter")
    text = await driven.press("up", "home", "l")
    assert "nothing to do for 16.0 µs: no work asked for before its first work 7.00 µs" in text


async def test_a_search_counts_goes_on_and_back_and_ends(driven: Driven) -> None:
    assert "/st_" in await driven.press("slash", "s", "t")
    await driven.press("e", "x", "backspace", "p")
    assert "/step  1 of 2 spans" in await driven.press("enter")
    assert driven.name == "step 1"
    await driven.press("n")
    assert driven.name == "step 2"
    await driven.press("N")
    assert driven.name == "step 1"
    assert "/step" not in await driven.press("escape")
    await driven.press("slash", "n", "a", "n", "o", "enter")
    assert driven.name == "nanosleep", "in a row that was folded away"
    await driven.press("slash", "escape")
    assert driven.cursor.matches is None
    assert "/ searches for spans" in await driven.press("n")


async def test_a_search_finds_kernels_by_what_stands_in_their_bars(driven: Driven) -> None:
    assert "gemm" not in GEMM.casefold()
    assert "/gemm  1 of 2 spans" in await driven.press("slash", *"gemm", "enter")
    assert driven.name == GEMM
    assert "/gem_  2 spans" in await driven.press("slash", *"gemm", "backspace")


async def test_two_marks_measure(driven: Driven) -> None:
    assert "m: marks the other end" in await driven.press("full_stop", "m")
    text = await driven.press("full_stop", "full_stop", "m")
    # From 16 to 40 µs: the kernels until 32.
    assert "between the marks 24.0 µs  GPU 0 at work 67 %  2 kernels began" in text
    await driven.press("f")
    assert driven.cursor.window.length_ns == 24 * US * 12 // 10
    assert "between the marks" not in await driven.press("escape")


async def test_f_fits_a_span_and_i_tells_all(driven: Driven) -> None:
    text = await driven.press("full_stop", "f")
    assert driven.cursor.window.length_ns == 12 * US * 12 // 10
    assert "GEMM 128x64" in text
    await driven.press("i")
    await driven.press("i")


async def test_the_mouse_zooms_pans_stands_and_folds(driven: Driven) -> None:
    pane = driven.pane
    left = left_of(pane.size.width)
    await driven.pilot.click(TimelinePane, offset=(1 + left + 9, 3))
    await settle(driven.pilot)
    assert driven.cursor.places()[1] == driven.cursor.place()
    assert driven.cursor.window.column_of(driven.cursor.t_ns, driven.cursor.columns) == 9
    await driven.pilot._post_mouse_events([_scroll_up()], TimelinePane, offset=(1 + left, 3), button=0)
    await settle(driven.pilot)
    assert driven.cursor.window.length_ns == 80 * US
    await driven.pilot.mouse_down(TimelinePane, offset=(1 + left + 20, 3))
    await driven.pilot.hover(TimelinePane, offset=(1 + left + 10, 3))
    await driven.pilot.mouse_up(TimelinePane, offset=(1 + left + 10, 3))
    await settle(driven.pilot)
    assert driven.cursor.window.start_ns > 0
    await driven.pilot.click(TimelinePane, offset=(2, 2))
    await settle(driven.pilot)
    assert GPU not in driven.cursor.opened


def _scroll_up() -> Any:
    from textual.events import MouseScrollUp

    return MouseScrollUp


async def test_a_span_is_copied_in_full_and_its_row_as_csv(driven: Driven) -> None:
    await driven.press("down", "full_stop", "y")
    assert driven.app.clipboard.splitlines()[:4] == [
        "kind: kernel",
        f"name: {GEMM}",
        "start: 16.0 µs",
        "duration: 12.0 µs",
    ]
    await driven.press("Y")
    assert driven.app.clipboard.splitlines()[1:] == [
        f"kernel,{GEMM},16000,12000,,0,,",
        "kernel,void rmsnorm_kernel<float>(float*),28000,4000,,1,,",
        f"kernel,{GEMM},70000,20000,,2,,",
    ]


async def test_all_keys_are_listed_and_one_for_what_the_file_has_not_says_so(driven: Driven) -> None:
    keys = {name for names, _ in active_keys(driven.app.screen) for name in names.split()}
    assert set("wsadAD0fhl,.gmi/nN") <= keys
    assert {"Home", "End", "Up", "Down", "PgUp", "PgDn", "Enter", "Space", "Esc"} <= keys
    assert "the file has no brief calls" in await driven.press("e")


async def test_a_hostile_name_is_text() -> None:
    made = [Made(THREAD, "[red]boom[/red] [link=x]", 1, 90)]
    app = ExploreApp([read(trace_of({"nvtx": made, "launch": [Made(THREAD, "cudaLaunchKernel", 2, 3)]}, end=100))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await settle(pilot)
        assert "[red]boom[/red] [link=x]" in app.screen_text()


async def test_a_real_capture_has_the_causes_of_its_gaps_and_brief_calls_for_the_asking() -> None:
    app = ExploreApp([read(load(TIMELINE))])
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await settle(pilot)
        text = app.screen_text()
        assert "░" in text
        assert "prefill" in text
        await pilot.press("w")
        await settle(pilot)
        assert "1 thread, 1,425 launches" in app.screen_text()
        await pilot.press("e")
        await settle(pilot)
        assert "2 threads, 1,425 launches" in app.screen_text()
        assert "173 ms of 345 ms" in app.screen_text(), "the same time is shown"
        await pilot.press("e")
        await settle(pilot)
        assert "1 thread, 1,425 launches" in app.screen_text()
        await pilot.press("slash", *"nvjet", "enter")
        await settle(pilot)
        assert "/nvjet  " in app.screen_text()
        assert "of 203 spans" in app.screen_text()
