"""The kernels of a report as a table, and all that is known of one launch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.analysis.kernels.absent import no_kernels, not_of_kernels
from llmtop.analysis.kernels.duration_histograms import Histogram, kernel_histograms
from llmtop.analysis.kernels.in_time import launch_stretch
from llmtop.analysis.kernels.nvtx_ranges import has_numbered, has_ranges
from llmtop.analysis.kernels.table import (
    Grouping,
    KernelRows,
    Totals,
    has_counters,
    kernel_table,
)
from llmtop.model import Trace, Unknown
from llmtop.notes import NoteKind
from llmtop.text import clean
from llmtop.tui.panes.lines import PagedPane
from llmtop.tui.panes.report import IN_TIME, KernelWanted, ListPane
from llmtop.tui.panes.view import NoteWanted
from llmtop.tui.remembered import remember_columns, remembered_columns
from llmtop.tui.render.histograms import ROWS, across_of, draw_histograms
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from collections.abc import Collection

    from textual.app import ComposeResult
    from textual.strip import Strip
    from textual.widget import Widget

    from llmtop.analysis.kernels.table import ColumnField
    from llmtop.analysis.views import TableView
    from llmtop.model import Stretch
    from llmtop.tui.contents import Contents
    from llmtop.tui.panes.table import VirtualTable
    from llmtop.tui.render.look import Look


_NEXT = {
    Grouping.SHAPE: Grouping.NAME,
    Grouping.NAME: Grouping.LAUNCH,
    Grouping.LAUNCH: Grouping.RANGE,
    Grouping.RANGE: Grouping.EACH_RANGE,
    Grouping.EACH_RANGE: Grouping.SHAPE,
}
_BY = {
    Grouping.SHAPE: "by name and shape",
    Grouping.NAME: "by name",
    Grouping.LAUNCH: "every launch",
    Grouping.RANGE: "by range",
    Grouping.EACH_RANGE: "by each range alone",
}


class HistogramsPane(PagedPane["tuple[Histogram, ...]"]):
    """How the launches are spread over what they reach; moves by rows of histograms."""

    title = "Histograms"

    def view(self, trace: Trace) -> tuple[Histogram, ...] | Unknown:
        return no_kernels(trace) or kernel_histograms(trace)

    def subtitle(self, view: tuple[Histogram, ...]) -> Content:
        return Content(f"{sum(view[0].counts) + view[0].unknown} launches; of counters the median one of each kernel")

    def draw(self, view: tuple[Histogram, ...], width: int, height: int, look: Look) -> list[Strip]:
        self.at = min(self.at, self.count() - 1)
        return draw_histograms(view, width, height, look, top=self.at)

    def count(self) -> int:
        if not isinstance(self._view, tuple):
            return 1
        rows = math.ceil(sum(1 for one in self._view if one.counts) / across_of(self.size.width))
        return max(1, rows - self.size.height // ROWS + 1)


class KernelsPane(ListPane[KernelRows]):
    """The kernel table: grouped, sorted, filtered; Enter opens a kernel; `h` shows histograms in its place."""

    DEFAULT_CSS = """
    KernelsPane HistogramsPane { display: none; }
    KernelsPane.-histograms HistogramsPane { display: block; }
    KernelsPane.-histograms VirtualTable { display: none; }
    KernelsPane.-histograms StatusLine { display: none; }
    KernelsPane.-histograms Input { display: none; }
    """
    number = 1
    title = "Kernels"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h", "histograms", "histograms", tooltip="Histograms of all launches, or the table again"),
        Binding("b", "group", "group by", tooltip="Group by name and shape, by name, not at all, or by range"),
        Binding("c", "columns", "columns", tooltip="Metrics of the report as columns of the table"),
        Binding("e", "note('names')", "name", show=False, tooltip="What to call the kernel, in all reports"),
        Binding("a", "note('kernels')", "note", show=False, tooltip="A note on the kernel: its details have it"),
        IN_TIME,
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.histograms = HistogramsPane()
        self.grouping = Grouping.SHAPE
        self._was_moved = False
        self._metrics: tuple[str, ...] | None = None
        """Metrics that are columns; None where nobody has looked yet which were chosen the last time."""

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return not_of_kernels(trace)

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield self.histograms

    @property
    def _has_histograms(self) -> bool:
        return self.has_class("-histograms")

    @property
    def wanting_keys(self) -> Widget:
        return self.histograms if self._has_histograms else super().wanting_keys

    def contents(self) -> Contents | Unknown:
        return self.histograms.contents() if self._has_histograms else super().contents()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Histograms have no rows to filter or to find in time, and timelines no metrics."""
        if action in ("filter", "clear_filter", "in_time", "columns", "note") and self._has_histograms:
            return False
        if action == "columns":
            return self._trace is not None and has_counters(self._trace)
        return super().check_action(action, parameters)

    def action_histograms(self) -> None:
        """Show the histograms, or the table again."""
        self.toggle_class("-histograms")
        self.screen.set_focus(self.wanting_keys)

    def show(self, trace: Trace) -> None:
        self.histograms.show(trace)
        super().show(trace)

    def view(self, trace: Trace) -> KernelRows | Unknown:
        table = kernel_table(trace, self.grouping)
        more = self._metric_columns(trace) if has_counters(trace) else ()
        if self.context.baseline is not None:
            # Imported here: most files are looked at by themselves.
            from llmtop.analysis.pages.diff.beside_baseline import baseline_columns

            more = (*baseline_columns(trace, self.context.baseline.trace), *more)
        return no_kernels(trace) or replace(table, more=more)

    def _metric_columns(self, trace: Trace) -> tuple[ColumnField, ...]:
        """What was chosen, here or the last time, as far as the report has it."""
        if self._metrics is None:
            self._metrics = remembered_columns()
        if not self._metrics:
            return ()
        # Imported here: most tables have the columns that they come with.
        from llmtop.analysis.kernels.metric_columns import metric_columns

        return metric_columns(trace, self._metrics)

    def action_columns(self) -> None:
        """Let metrics be chosen as columns."""
        from llmtop.tui.screens.columns import ColumnsScreen

        if self._trace is not None and not no_kernels(self._trace):
            self.app.push_screen(ColumnsScreen(self._trace, self._metrics or (), self._take_columns))

    def action_note(self, kind: str) -> None:
        """Ask for what to call the kernel under the cursor, or for a note on it."""
        rows = self.table.rows
        if self._trace is None or not isinstance(rows, KernelRows) or not len(rows):
            return
        launch, notes = rows.launch(self.table.cursor), self._trace.notes
        name = rows.kernels.table.name(launch)
        wanted = NoteKind(kind)
        text = (notes.names if wanted is NoteKind.NAME else notes.kernels).get(name, "")
        self.post_message(NoteWanted(wanted, name, rows.kernels.short_name(launch), text))

    def _take_columns(self, names: tuple[str, ...]) -> None:
        """Show these, and remember them."""
        self._metrics = names
        try:
            remember_columns(names)
        except OSError as error:
            self.notify(f"the columns are not remembered: {clean(str(error))}", severity="warning", markup=False)
        if self._trace is not None:
            self.show(self._trace)

    def rows(self, view: KernelRows, trace: Trace) -> KernelRows:
        return view

    def action_group(self) -> None:
        """Group in the next way."""
        self.grouping = _NEXT[self.grouping]
        if self._trace is None:
            return
        if self.grouping is Grouping.RANGE and not has_ranges(self._trace):
            self.grouping = Grouping.SHAPE
        if self.grouping is Grouping.EACH_RANGE and not has_numbered(self._trace):
            self.grouping = Grouping.SHAPE
        self.show(self._trace)

    def summed(self, view: KernelRows, rows: TableView) -> str:
        if not isinstance(rows, KernelRows):
            return ""
        unsure = "" if rows.undecided is None or not len(rows) else f"; {rows.undecided.reason}"
        return f"{_BY[self.grouping]}{_summed(rows.totals())}{unsure}"

    def rows_beside(self, rows: TableView, columns: Collection[str]) -> TableView:
        return rows.beside(columns) if isinstance(rows, KernelRows) else rows

    def described(self, rows: TableView, row: int) -> str:
        """Of a range its name, which may be cut in its column; of what is a kernel's, the demangled name."""
        if not isinstance(rows, KernelRows):
            return ""
        if rows.grouping in (Grouping.RANGE, Grouping.EACH_RANGE):
            return str(rows.cells(row)[0])
        return rows.kernels.table.name(rows.launch(row))

    def full_name(self, rows: TableView, row: int) -> str:
        return self.described(rows, row)

    def when(self, view: KernelRows, trace: Trace, key: int) -> Stretch | Unknown:
        return launch_stretch(trace, self._launch(view))

    def opened(self, view: KernelRows, trace: Trace, key: int) -> KernelWanted:
        return KernelWanted(self._launch(view))

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        """Textual calls those of the bases too."""
        self._was_moved = self._was_moved or event.table.cursor > 0

    def kernel_here(self) -> int | None:
        rows = self.table.rows
        return (
            rows.launch(self.table.cursor) if self._was_moved and isinstance(rows, KernelRows) and len(rows) else None
        )

    def _launch(self, view: KernelRows) -> int:
        """The launch that stands for the row under the cursor.

        Not of the row's key: a filter by range leaves a part of its launches, and another one stands for these.
        """
        rows = self.table.rows
        return (rows if isinstance(rows, KernelRows) else view).launch(self.table.cursor)


def _summed(totals: Totals) -> str:
    share = "" if totals.share is None else f", {percent(100 * totals.share)}"
    time = f", {duration(totals.total_ns)}{share}" if totals.total_ns else ""
    rows, launches = (_counted(n, what) for n, what in ((totals.rows, "row"), (totals.launches, "launch")))
    return f": {rows}, {launches}{time}"


def _counted(count: int, what: str) -> str:
    plural = "es" if what.endswith("ch") else "s"
    return f"{count} {what}{plural if count != 1 else ''}"


VIEW: Final = KernelsPane
