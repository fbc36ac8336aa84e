"""The kernels of a report as a table, and all that is known of one launch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content

from llmtop.analysis.kernels.absent import no_kernels, not_of_kernels
from llmtop.analysis.kernels.duration_histograms import Histogram, kernel_histograms
from llmtop.analysis.kernels.nvtx_ranges import has_numbered, has_ranges
from llmtop.analysis.kernels.table import (
    Grouping,
    KernelRows,
    Totals,
    kernel_table,
)
from llmtop.analysis.views import TableView
from llmtop.model import Trace, Unknown
from llmtop.tui.panes.lines import PagedPane
from llmtop.tui.panes.report import NO_ROWS_YET, KernelWanted
from llmtop.tui.panes.table import TablePane, VirtualTable
from llmtop.tui.panes.view import View
from llmtop.tui.render.histograms import ROWS, across_of, draw_histograms
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from collections.abc import Collection

    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.tui.render.look import Look


_NO_KERNELS = Unknown("no kernels")
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
    Grouping.RANGE: "by NVTX range",
    Grouping.EACH_RANGE: "by each NVTX range alone",
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


class KernelsPane(Vertical, View[KernelRows]):
    """The kernel table: grouped, sorted, filtered; Enter opens a kernel; `h` shows histograms in its place."""

    number = 1
    title = "Kernels"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h", "histograms", "histograms", tooltip="Histograms of all launches, or the table again"),
        Binding("b", "group", "group by", tooltip="Group by name and shape, by name, not at all, or by NVTX range"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.listing = TablePane(
            f"{self.number} {self.title}", describe=_full_name, sum_up=self._sum_up, beside=_beside
        )
        self.histograms = HistogramsPane()
        self.grouping = Grouping.SHAPE
        self._trace: Trace | None = None

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return not_of_kernels(trace)

    def compose(self) -> ComposeResult:
        yield self.listing
        yield self.histograms

    def show_fault(self, said: str) -> None:
        self.listing.show_fault(said)

    def on_mount(self) -> None:
        self.histograms.display = False

    def action_histograms(self) -> None:
        """Show the histograms, or the table again."""
        shown, hidden = (self.listing, self.histograms) if self.histograms.display else (self.histograms, self.listing)
        shown.display = True
        self.screen.set_focus(self.listing.table if shown is self.listing else self.histograms)
        hidden.display = False

    def view(self, trace: Trace) -> KernelRows | Unknown:
        return no_kernels(trace) or kernel_table(trace, self.grouping)

    def rows(self, view: KernelRows, trace: Trace) -> KernelRows:
        return view

    def show(self, trace: Trace) -> None:
        """Take the trace; rows are decoded when they are seen."""
        self._trace = trace
        self.histograms.show(trace)
        rows = self.rows_of(trace)
        self.listing.show_table(NO_ROWS_YET if isinstance(rows, Unknown) else rows, no_kernels(trace) or _NO_KERNELS)

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

    def _sum_up(self, rows: TableView) -> str:
        return f"{_BY[self.grouping]}{_summed(rows.totals())}" if isinstance(rows, KernelRows) else ""

    def on_virtual_table_chosen(self, event: VirtualTable.Chosen) -> None:
        rows = event.table.rows
        if isinstance(rows, KernelRows):
            self.post_message(KernelWanted(rows.launch(event.table.cursor)))


def _summed(totals: Totals) -> str:
    share = "" if totals.share is None else f", {percent(100 * totals.share)}"
    time = f", {duration(totals.total_ns)}{share}" if totals.total_ns else ""
    rows, launches = (_counted(n, what) for n, what in ((totals.rows, "row"), (totals.launches, "launch")))
    return f": {rows}, {launches}{time}"


def _counted(count: int, what: str) -> str:
    plural = "es" if what.endswith("ch") else "s"
    return f"{count} {what}{plural if count != 1 else ''}"


def _beside(rows: TableView, columns: Collection[str]) -> TableView:
    return rows.beside(columns) if isinstance(rows, KernelRows) else rows


def _full_name(rows: TableView, row: int) -> str:
    """Of a range its name, which may be cut in its column; of what is a kernel's, the demangled name."""
    if not isinstance(rows, KernelRows):
        return ""
    if rows.grouping in (Grouping.RANGE, Grouping.EACH_RANGE):
        return str(rows.cells(row)[0])
    return rows.kernels.table.name(rows.launch(row))


VIEW: Final = KernelsPane
