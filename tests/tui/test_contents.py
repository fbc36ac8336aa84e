"""The same keys copy, write and explain themselves in every view, live and of a file."""

from __future__ import annotations

import asyncio
import csv
import threading
from dataclasses import field
from typing import TYPE_CHECKING

import pytest

from llmtop.analysis.tables import RowTable
from llmtop.analysis.views import Column
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.parsers.registry import load
from llmtop.tui.aside import ANALYSIS_THREAD
from llmtop.tui.contents import Contents, row_lines
from llmtop.tui.render.look import Look
from llmtop.tui.screens.explore_screen import ExploreApp
from llmtop.tui.screens.holding import MOST_COPIED, WRITING_THREAD
from tests.tui.live_app import fixed_app, press, running
from tests.tui.report_traces import report
from tests.tui.test_explore import FOLDED, read, settle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from llmtop.analysis.views import Cell
    from llmtop.tui.app import LlmtopApp

COLUMNS = (Column("name", "kernel"), Column("time", "time", "ns"), Column("calls", "calls", "1"))
ROWS = RowTable(COLUMNS, (("a, b", 1500.0, 3), ("c", Unknown("lost", "run again"), float("nan"))), (1, 2))


def said(app: LlmtopApp) -> list[str]:
    return [notice.message for notice in app._notifications]


async def written() -> None:
    for thread in threading.enumerate():
        if thread.name == WRITING_THREAD:
            await asyncio.to_thread(thread.join, 60)


def test_a_row_as_people_read_it_says_what_is_not_known() -> None:
    assert row_lines(ROWS, 0, Look()) == ["kernel: a, b", "time: 1.50 µs", "calls: 3"]
    assert row_lines(ROWS, 1, Look())[1] == "time: not known: lost (run again)"


async def test_the_row_and_the_rows_of_a_table_are_copied_as_they_are_sorted_and_filtered() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("y")
        row = app.clipboard
        await pilot.press("Y")
        await settle(pilot)
        everything = list(csv.reader(app.clipboard.splitlines()))
        await pilot.press("slash", *"zzz", "enter", "y")
        assert row.startswith("kernel: ")
        assert everything[0][-2:] == ["full name", "missing"]
        table = report().kernels
        assert table is not None
        assert {row[-2] for row in everything[1:]} == set(table.names)
        assert f"kernel: {everything[1][0]}\n" in row
        assert said(app)[-1] == "no row matches the filter (Esc clears it)"


async def test_the_row_of_a_finding_is_copied_with_what_to_do() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("5")
        await settle(pilot)
        await pilot.press("y")
        assert app.clipboard.startswith("severity: ")
        assert len(app.clipboard.splitlines()) > 6


async def test_a_text_is_copied_beyond_the_edge_of_the_screen() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(80, 12), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("6")
        await settle(pilot)
        assert "$ nsys profile" not in app.screen_text()
        await pilot.press("Y")
        await settle(pilot)
        assert "$ nsys profile --trace=cuda,nvtx,osrt" in app.clipboard


async def test_what_is_too_long_for_a_clipboard_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMTOP_SCREENSHOTS", str(tmp_path))
    monkeypatch.setattr("llmtop.tui.screens.holding.MOST_COPIED", 10)
    app = ExploreApp([read(report())])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("Y")
        await settle(pilot)
        await pilot.press("w")
        await written()
        await pilot.pause()
        (file,) = tmp_path.iterdir()
        assert file.name.startswith("llmtop-1-kernels-")
        assert file.suffix == ".csv"
        assert len(file.read_text().splitlines()) > 3
        assert said(app) == ["1 Kernels is too long for a terminal's clipboard; w writes it to a file", f"wrote {file}"]


@frozen
class SlowRows(RowTable):
    """Each row is decoded when a test says so; `made` has those that were."""

    go_on: threading.Event = field(default_factory=threading.Event)
    made: list[int] = field(default_factory=list)

    def cells(self, row: int) -> Sequence[Cell]:
        if threading.current_thread().name == ANALYSIS_THREAD and not self.go_on.wait(60):
            raise TimeoutError
        self.made.append(row)
        return RowTable.cells(self, row)


async def test_keys_are_answered_while_rows_are_decoded_to_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = SlowRows(COLUMNS, (("kernel", 1500.0, 3),) * 5_000, tuple(range(5_000)))
    app = ExploreApp([read(report())])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        monkeypatch.setattr(type(app.screen), "contents", lambda _: Contents("rows", table=rows))
        await pilot.press("Y", "5")
        assert "[5 Findings]" in app.screen_text(), "another view is shown meanwhile"
        assert said(app) == []
        rows.go_on.set()
        await settle(pilot)
        assert said(app) == ["rows is too long for a terminal's clipboard; w writes it to a file"]
        size = len("kernel,1500.0,3,\n")
        assert len(rows.made) == pytest.approx(MOST_COPIED / size, rel=0.01), "no more are decoded than tell that"


async def test_what_was_to_be_copied_last_is(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowRows(COLUMNS, (("slow", 1.0, 1),), (0,))
    wanted = [Contents("slow", table=slow), Contents("text", ("line",))]
    app = ExploreApp([read(report())])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        monkeypatch.setattr(type(app.screen), "contents", lambda _: wanted.pop(0))
        await pilot.press("Y", "Y")
        slow.go_on.set()
        await settle(pilot)
        assert app.clipboard == "line\n"
        assert said(app) == ["copied text: 1 line"]


async def test_a_view_that_cannot_be_written_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LLMTOP_SCREENSHOTS", str(tmp_path / "file"))
    app = fixed_app()
    async with running(app, keys=["w"]) as pilot:
        await written()
        await pilot.pause()
        (notice,) = app._notifications
        assert notice.severity == "error"
        assert notice.message.startswith("not written: ")


async def test_a_pane_that_opens_into_rows_has_them_copied_without_opening() -> None:
    app = fixed_app()
    async with running(app, keys=["4", "Y"]) as pilot:
        await settle(pilot)
        rows = list(csv.reader(app.clipboard.splitlines()))
        assert rows[0][0] == "thread"
        assert len(rows) > 2


async def test_a_drawing_is_copied_as_its_text() -> None:
    app = fixed_app()
    async with running(app, keys=["1", "y"]):
        assert "FLOP/B" in app.clipboard


async def test_a_key_that_does_nothing_says_why() -> None:
    app = fixed_app()
    async with running(app, (80, 24)) as pilot:
        for keys, why in (
            (("1", "slash"), "/: 1 Roofline has no rows to filter"),
            (("1", "x"), "x works in 5 Stall flame: Hold the flame alone, or let it go on"),
            (("1", "u"), "u does nothing here; ? lists what does"),
            (("4", "R"), "R: 4 Threads has no rows to sort; z opens those that it stands for"),
        ):
            app.clear_notifications()
            await press(pilot, *keys)
            assert said(app) == [why]


async def test_a_key_that_does_nothing_in_a_dialog_says_so() -> None:
    app = fixed_app()
    async with running(app, (80, 24)) as pilot:
        for opening, key, why in (
            ("question_mark", "R", "R: Keys has no rows to sort"),
            ("4 z enter", "u", "u does nothing here; ? lists what does"),
            ("4 z enter", "n", "n works in EngineCore: The next or the last place of the text"),
        ):
            await press(pilot, *opening.split())
            app.clear_notifications()
            await press(pilot, key)
            assert said(app) == [why]
            text = await press(pilot, "y", "Y")
            assert said(app)[1].startswith("copied "), "the keys of all screens are not idle"
            assert "1 Roofline" not in text
            assert "1 Roofline" in await press(pilot, "q", "escape")


async def test_what_reasons_and_causes_mean_is_left_with_the_key_that_opened_it_and_no_other_letter() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        for digit, title in (("2", "What stall reasons mean"), ("7", "Why a GPU has nothing to do")):
            for key in (digit, "m"):
                await pilot.press(key)
                await settle(pilot)
            app.clear_notifications()
            await pilot.press("v")
            assert said(app) == ["v does nothing here; ? lists what does"]
            assert title in app.screen_text()
            await pilot.press("m")
            await settle(pilot)
            assert title not in app.screen_text()


async def test_a_key_of_a_view_that_was_never_shown_is_named() -> None:
    app = ExploreApp([read(report())])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("f")
        assert said(app) == ["f works in 2 Stalls: Bars, or an icicle by kernel, by reason, or down to the code"]


async def test_a_key_that_a_view_has_on_the_live_screen_alone_is_not_said_to_work_in_a_file() -> None:
    app = ExploreApp([read(load(FOLDED))])
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press("b")
        assert said(app) == ["b does nothing here; ? lists what does"]


async def test_help_lists_the_keys_that_copy_and_write_and_no_others_of_these() -> None:
    app = fixed_app()
    async with running(app, (120, 60)) as pilot:
        text = await press(pilot, "question_mark")
        assert "Copy the view: all its rows as CSV, or its text" in text
        assert "u " not in [line.strip()[:2] for line in text.splitlines()]
