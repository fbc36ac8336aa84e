"""The kernels of a report as a table, and all that is known of one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content

from llmtop.analysis.kernels import (
    Grouping,
    KernelRows,
    kernel_table,
    no_kernels,
)
from llmtop.analysis.views import TableView
from llmtop.model import Trace, Unknown
from llmtop.tui.panes.report import KernelWanted
from llmtop.tui.panes.table import TablePane, VirtualTable

if TYPE_CHECKING:
    from textual.app import ComposeResult


_NEXT = {Grouping.SHAPE: Grouping.NAME, Grouping.NAME: Grouping.LAUNCH, Grouping.LAUNCH: Grouping.SHAPE}
_BY = {Grouping.SHAPE: "by name and shape", Grouping.NAME: "by name", Grouping.LAUNCH: "every launch"}


class KernelsPane(Vertical):
    """The kernel table: grouped, sorted, filtered; Enter opens a kernel."""

    title = "Kernels"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "group", "group by", tooltip="Group by name and shape, by name, or not at all"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.listing = TablePane("1 Kernels", describe=_full_name)
        self.grouping = Grouping.SHAPE
        self._trace: Trace | None = None

    def compose(self) -> ComposeResult:
        yield self.listing

    def show(self, trace: Trace) -> None:
        """Take the trace; rows are decoded when they are seen."""
        self._trace = trace
        why = no_kernels(trace) or Unknown("no kernels")
        self.listing.show_table(kernel_table(trace, self.grouping), why)
        self.listing.table.border_subtitle = Content(_BY[self.grouping])

    def action_group(self) -> None:
        """Group in the next way."""
        self.grouping = _NEXT[self.grouping]
        if self._trace is not None:
            self.show(self._trace)

    def on_virtual_table_chosen(self, event: VirtualTable.Chosen) -> None:
        rows = event.table.rows
        if isinstance(rows, KernelRows):
            self.post_message(KernelWanted(rows.launch(event.table.cursor)))


def _full_name(rows: TableView, row: int) -> str:
    return rows.kernels.table.name(rows.launch(row)) if isinstance(rows, KernelRows) else ""
