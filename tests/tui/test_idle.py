"""The idle account in the explorer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmtop.analysis.tables import RowTable
from llmtop.analysis.timeline.idle_view import IdleView
from llmtop.model import Origin, Trace, Unknown
from llmtop.parsers.registry import load
from llmtop.tui.panes.base import look_of
from llmtop.tui.panes.findings import FindingsPane
from llmtop.tui.panes.idle import IdlePane
from llmtop.tui.panes.lines import paragraphs_of
from llmtop.tui.panes.report import ListPane
from llmtop.tui.panes.spans import SpansPane
from llmtop.tui.render.look import Look
from llmtop.tui.screens.explore_screen import ExploreApp
from tests.kernel_traces import TIMELINE
from tests.nsys_capture import MS, Capture
from tests.nsys_scenes import SCENES
from tests.tui.test_explore import read, settle

IDLE = str(IdlePane.number)


@pytest.mark.parametrize("name", SCENES)
def test_the_rows_of_a_gpu_add_up_to_the_capture(name: str, tmp_path: Path) -> None:
    trace = SCENES[name].make().trace(tmp_path)
    rows = IdlePane().rows_of(trace)
    assert isinstance(rows, RowTable)
    time = [column.key for column in rows.columns].index("ns")
    for gpu in {str(row[0]) for row in rows.rows} - {"2 GPUs"}:
        assert sum(row[time] for row in rows.rows if row[0] == gpu) == trace.end_ns - trace.start_ns  # type: ignore[misc]


def details_of(trace: Trace, column: str, cell: str) -> list[str]:
    """What is said of the first row with a cell."""
    pane = IdlePane()
    view = pane.view(trace)
    assert isinstance(view, IdleView)
    rows = pane.rows(view, trace)
    at = [one.key for one in rows.columns].index(column)
    key: Any = next(key for key, row in zip(rows.keys, rows.rows, strict=True) if row[at] == cell)
    return [text for text, _ in pane.details(view, trace, key, 80, Look())]


def test_several_gpus_have_a_sum_before_them(tmp_path: Path) -> None:
    rows = IdlePane().rows_of(SCENES["one GPU late"].make().trace(tmp_path))
    assert isinstance(rows, RowTable)
    assert list(dict.fromkeys(row[0] for row in rows.rows)) == ["2 GPUs", "GPU 0", "GPU 1"]


def test_the_details_say_what_the_row_means_and_what_it_rests_on(tmp_path: Path) -> None:
    text = details_of(SCENES["Python in a range"].make().trace(tmp_path), "name", "sample tokens")
    assert text[0] == "host code: sample tokens"
    assert "CPU samples in dict_lookup: 195" in text
    assert any("the GPU ran dry" in one for one in text)


def test_what_is_not_told_says_what_would_tell_it(tmp_path: Path) -> None:
    text = details_of(SCENES["not traced"].make().trace(tmp_path), "cause", "not known")
    assert any("osrt" in one for one in text)


def test_a_report_without_a_time_line_says_how_to_get_one() -> None:
    why = IdlePane().rows_of(Trace(Origin("ncu-rep")))
    assert isinstance(why, Unknown)
    assert "nsys profile" in why.remedy


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (120, 40)])
async def test_it_shows_at_every_size(size: tuple[int, int], tmp_path: Path) -> None:
    app = ExploreApp([read(SCENES["sleep"].make().trace(tmp_path))])
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.press(IDLE)
        await settle(pilot)
        assert "at work" in app.screen_text()
        assert "OS call" in app.screen_text()
        await pilot.press("down")
        await settle(pilot)
        assert size[1] < 20 or "in a call of the operating system" in app.screen_text()
        assert app.issues == []


async def test_at_40_columns_cause_and_call_share_what_the_time_leaves() -> None:
    app = ExploreApp([read(load(TIMELINE))])
    async with app.run_test(size=(40, 12)) as pilot:
        await settle(pilot)
        await pilot.press(IDLE)
        await settle(pilot)
        rows = [line.strip("│▃▅▆▂ ").split() for line in app.screen_text().splitlines()]
        assert ["host", "code", "decode", "230", "ms"] in rows
        assert ["launch", "call", "cudaLa…ernel", "4.73", "ms"] in rows


async def test_the_line_of_a_gpus_work_keeps_the_cells_in_which_it_had_none(tmp_path: Path) -> None:
    capture = Capture()
    for start in (0, 30 * MS, 59 * MS):
        capture.kernel(start, start + MS, capture.call("cudaLaunchKernel", start, start + 10))
    app = ExploreApp([read(capture.trace(tmp_path))])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(IDLE)
        await settle(pilot)
        assert f"█{' ' * 29}█{' ' * 28}█" in app.screen_text()


async def test_of_several_gpus_each_row_says_which_at_80_columns(tmp_path: Path) -> None:
    app = ExploreApp([read(SCENES["one GPU late"].make().trace(tmp_path))])
    async with app.run_test(size=(80, 40)) as pilot:
        await pilot.press(IDLE)
        await settle(pilot)
        assert all(f"{gpu}  at work" in app.screen_text() for gpu in ("2 GPUs", "GPU 0 ", "GPU 1 "))


async def test_a_key_tells_what_every_cause_means(tmp_path: Path) -> None:
    app = ExploreApp([read(SCENES["launch-bound"].make().trace(tmp_path))])
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(IDLE)
        await settle(pilot)
        await pilot.press("m")
        await settle(pilot)
        text = " ".join(app.screen_text().split())
        assert "Why a GPU has nothing to do" in text
        assert "start of queued work the next work was queued before" in text
        assert "start after a launch nothing was queued: " in text
        await pilot.press("m")
        await settle(pilot)
        assert "Why a GPU has nothing to do" not in app.screen_text()


async def test_details_take_what_they_need_and_the_table_has_the_rest_whichever_row(tmp_path: Path) -> None:
    trace = SCENES["Python in a range"].make().trace(tmp_path)
    app = ExploreApp([read(trace)])
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for digit, kind in ((IDLE, IdlePane), ("4", SpansPane), ("5", FindingsPane)):
            await pilot.press(digit)
            await settle(pilot)
            pane = app.screen.query_one(kind)
            assert isinstance(pane, ListPane)
            rows, look = pane.table.order.source, look_of(pane)
            assert rows is not None
            said = [pane.details(pane.of.view(trace), trace, rows.key(i), 76, look) for i in range(len(rows))]
            needed = max(len(paragraphs_of(one, 78, look)) for one in said)
            heights = set()
            for _ in range(len(rows)):
                heights.add((pane.table.outer_size.height + 1, pane.text.size.height))
                await pilot.press("down")
            assert len(heights) == 1, "the table stays where it is"
            ((table, details),) = heights
            assert details == min(needed, max(pane.size.height - len(rows) - 6, pane.size.height * 2 // 5 - 2))
            assert table + details + 2 == pane.size.height
