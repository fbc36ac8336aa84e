"""The virtual table, driven by keys."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import field
from typing import TYPE_CHECKING, Any

from textual import events

from llmtop.analysis.tables import RowTable
from llmtop.analysis.views import Cell, Column
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.tui.app import LlmtopApp
from llmtop.tui.aside import ANALYSIS_THREAD
from llmtop.tui.panes.table import TablePane
from llmtop.tui.render.table import Sort
from tests.tui.quiet import wait_until
from tests.tui.terminal_in_memory import TerminalInMemory, on_terminal
from tests.tui.test_explore import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.pilot import Pilot

COLUMNS = (
    Column("name", "kernel"),
    Column("share", "time", "%", 6, 1),
    Column("roof", "roof", "%", 6, 3),
)
WHY = Unknown("not collected", "ncu --section SpeedOfLight")


def table(count: int, first: int = 0) -> RowTable:
    numbers = range(first, first + count)
    rows = tuple((f"[/b] kernel<{i}>", 100.0 - i, WHY if i % 2 else float(i)) for i in numbers)
    return RowTable(COLUMNS, rows, tuple(numbers))


class CountingTable(RowTable):
    """Counts how often cells are made."""

    made: list[int] = []  # noqa: RUF012 - a frozen dataclass has no place for it

    def cells(self, row: int) -> Sequence[Cell]:
        self.made.append(row)
        return super().cells(row)


class TableApp(LlmtopApp):
    def compose(self) -> ComposeResult:
        yield TablePane("1 Kernels [/b]")

    @property
    def pane(self) -> TablePane:
        return self.query_one(TablePane)


def row_of_cursor(app: TableApp) -> object:
    rows = app.pane.table.rows
    assert rows is not None
    return rows.key(app.pane.table.cursor)


async def test_only_rows_on_the_screen_are_made() -> None:
    app = TableApp()
    rows = table(100_000)
    counting = CountingTable(rows.columns, rows.rows, rows.keys)
    async with app.run_test(size=(60, 14)) as pilot:
        counting.made.clear()
        app.pane.show_table(counting)
        await pilot.pause()
        assert 0 < len(counting.made) < 100
        await pilot.press("end") if app.pane.table.has_focus else app.pane.table.focus()
        await pilot.press("end")
        assert row_of_cursor(app) == 99_999
        assert "kernel<99999>" in app.screen_text()
        assert len(counting.made) < 300


async def test_what_is_typed_faster_than_the_filter_opens_is_its_text_in_order() -> None:
    app = TableApp()
    async with app.run_test(size=(60, 14), notifications=True) as pilot:
        app.pane.show_table(table(100))
        app.pane.table.focus()
        await pilot.pause()
        typed = (("slash", "/"), ("l", "l"), ("less_than_sign", "<"), ("q", "q"), ("backspace", "\x7f"), ("4", "4"))
        for key, letter in (*typed, ("enter", "\r")):
            app.post_message(events.Key(key, letter))
        await pilot.pause()
        assert app.pane.table.order.filter_text == "l<4"
        assert app.pane.table.has_focus
        assert app.pane.table.order.sort is None
        await pilot.press("slash", "q", "slash", "enter")
        assert app.pane.table.order.filter_text == "q/"
        assert app.is_running


async def test_moving_the_cursor_sends_two_lines() -> None:
    sent: list[int] = []

    async def drive(pilot: Pilot[Any], terminal: TerminalInMemory) -> None:
        pane = pilot.app.query_one(TablePane)
        pane.show_table(table(100))
        pane.table.focus()
        await pilot.pause()
        mark = terminal.mark()
        await pilot.press("down")
        await pilot.pause()
        sent.append(terminal.bytes_since(mark))
        assert any("2/100" in row for row in terminal.lines)

    await on_terminal(TableApp(), (120, 40), drive)
    assert 0 < sent[0] < 1200


async def test_keys_move_within_the_rows() -> None:
    app = TableApp()
    async with app.run_test(size=(60, 14)) as pilot:
        app.pane.show_table(table(30))
        app.pane.table.focus()
        page = app.pane.table.size.height - 1
        keys = {"up": 0, "down": 1, "pagedown": 1 + page, "pageup": 1, "end": 29, "j": 29, "home": 0, "k": 0}
        for key, row in keys.items():
            await pilot.press(key)
            assert row_of_cursor(app) == row, key


async def test_the_status_line_says_why_a_cell_is_empty() -> None:
    app = TableApp()
    async with app.run_test(size=(80, 14)) as pilot:
        app.pane.show_table(table(30))
        app.pane.table.focus()
        await pilot.press("down")
        await pilot.pause()
        assert "2/30  ·  roof: not collected (ncu --section SpeedOfLight)" in app.screen_text()


async def test_sorting_by_keys_puts_unknown_rows_last_and_goes_to_the_top() -> None:
    app = TableApp()
    async with app.run_test(size=(80, 14)) as pilot:
        app.pane.show_table(table(10))
        app.pane.table.focus()
        await pilot.press("less_than_sign", "less_than_sign")
        await pilot.pause()
        assert "roof▼" in app.screen_text()
        assert row_of_cursor(app) == 8
        await pilot.press("R")
        assert row_of_cursor(app) == 0
        await pilot.press("end")
        assert row_of_cursor(app) in {1, 3, 5, 7, 9}


@frozen
class SlowTable(RowTable):
    """Much must be worked out to sort it: that ends when a test says so."""

    go_on: threading.Event = field(default_factory=threading.Event)

    def sorts_at_once(self, column: str) -> bool:
        return False

    def sorted_by(self, column: str, *, descending: bool) -> RowTable:
        if not self.go_on.wait(60):
            raise TimeoutError
        return RowTable.sorted_by(self, column, descending=descending)


def slow(rows: RowTable) -> SlowTable:
    return SlowTable(rows.columns, rows.rows, rows.keys)


async def test_keys_are_answered_while_rows_are_being_sorted() -> None:
    app, rows = TableApp(), slow(table(10))
    async with app.run_test(size=(80, 14)) as pilot:
        app.pane.show_table(rows)
        app.pane.table.focus()
        await pilot.press("less_than_sign", "less_than_sign", "down")
        await pilot.pause()
        assert row_of_cursor(app) == 1, "the rows stay until the others are there"
        assert "sorting  ·  2/10" in app.screen_text()
        assert "roof▼" not in app.screen_text()
        rows.go_on.set()
        await wait_until(pilot, lambda: "sorting" not in app.screen_text())  # which comes with a message after the rows
        assert row_of_cursor(app) == 8
        assert "roof▼" in app.screen_text()


async def test_of_several_orders_the_last_one_is_shown_and_no_other_is_made() -> None:
    app, rows = TableApp(), slow(table(10))
    async with app.run_test(size=(80, 14)) as pilot:
        app.pane.show_table(rows)
        app.pane.table.focus()
        await pilot.press("less_than_sign", "less_than_sign", "R", "slash", "3", "enter")
        rows.go_on.set()
        await settle(pilot)
        await settle(pilot)
        shown = app.pane.table.rows
        assert shown is not None
        assert [shown.key(i) for i in range(len(shown))] == [3]
        assert app.pane.table.order.sort == Sort("roof", descending=False)
        assert "sorting" not in app.screen_text()


async def test_rows_that_came_while_older_ones_were_sorted_are_sorted_next() -> None:
    app, old, new = TableApp(), slow(table(10)), slow(table(10, first=20))
    async with app.run_test(size=(80, 14)) as pilot:
        app.pane.show_table(old)
        app.pane.table.focus()
        await pilot.pause()
        app.pane.table.sort_by("roof")
        app.pane.show_table(new)
        threads = [thread for thread in threading.enumerate() if thread.name == ANALYSIS_THREAD]
        old.go_on.set()
        for thread in threads:
            await asyncio.to_thread(thread.join, 60)
        await pilot.pause()
        assert row_of_cursor(app) == 8, "rows that are sorted by now, until newer ones are"
        new.go_on.set()
        await settle(pilot)
        assert row_of_cursor(app) == 28
        app.pane.table.order.forget_orders()
        app.pane.show_table(table(3))
        assert row_of_cursor(app) == 0


async def test_an_order_that_cannot_be_made_says_so_and_the_next_one_is_shown(faults: list[str]) -> None:
    class Broken(SlowTable):
        def sorted_by(self, column: str, *, descending: bool) -> RowTable:
            raise ValueError("no such cell")

    app, rows = TableApp(), table(10)
    async with app.run_test(size=(80, 14)) as pilot:
        app.pane.show_table(Broken(rows.columns, rows.rows, rows.keys))
        app.pane.table.focus()
        await pilot.press("less_than_sign")
        await settle(pilot)
        assert "this pane failed: ValueError: no such cell" in " ".join(app.screen_text().split())
        app.pane.show_table(rows)
        await pilot.pause()
        assert "kernel<1>" in app.screen_text()
    assert len(faults) == 1
    faults.clear()


async def test_a_click_on_a_title_sorts_and_a_double_click_on_a_row_chooses() -> None:
    app = TableApp()
    async with app.run_test(size=(80, 14)) as pilot:
        app.pane.show_table(table(10))
        await pilot.pause()
        await pilot.click("VirtualTable", offset=(3, 1))
        await pilot.pause()
        assert "kernel▲" in app.screen_text()
        await pilot.click("VirtualTable", offset=(3, 4))
        assert app.pane.table.cursor == 2


async def test_the_cursor_stays_on_its_row_when_rows_change() -> None:
    app = TableApp()
    async with app.run_test(size=(80, 14)) as pilot:
        app.pane.show_table(table(30))
        app.pane.table.focus()
        await pilot.press(*["down"] * 12)
        assert row_of_cursor(app) == 12
        app.pane.show_table(table(30, first=5))
        await pilot.pause()
        assert row_of_cursor(app) == 12
        assert "kernel<12>" in app.screen_text()
        app.pane.show_table(table(3, first=50))
        await pilot.pause()
        assert row_of_cursor(app) == 50


async def test_the_filter_keeps_matching_rows_until_it_is_cleared() -> None:
    app = TableApp()
    async with app.run_test(size=(80, 14)) as pilot:
        app.pane.show_table(table(30))
        app.pane.table.focus()
        await pilot.press("slash", "<", "2", "enter")
        await pilot.pause()
        assert "1/11 filtered" in app.screen_text()
        await pilot.press("slash", "x", "enter")
        await pilot.pause()
        assert "no row matches the filter" in app.screen_text()
        await pilot.press("escape")
        await pilot.pause()
        assert "1/30" in app.screen_text()


async def test_an_empty_table_says_why() -> None:
    app = TableApp()
    async with app.run_test(size=(80, 14)) as pilot:
        app.pane.show_table(table(0), Unknown("this capture has no kernels", "ncu COMMAND"))
        await pilot.pause()
        assert "this capture has no kernels" in app.screen_text()
