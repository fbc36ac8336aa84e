"""Which metrics stand in the kernel table: all that a report has, to choose from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from llmtop.analysis.kernels.metric_columns import metric_labels, metric_names
from llmtop.analysis.kernels.section_page import value_text
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.views import Column
from llmtop.model import Unknown
from llmtop.tui.panes.bar import KeyBar
from llmtop.tui.panes.report import table_of
from llmtop.tui.panes.table import TablePane, VirtualTable
from llmtop.tui.remembered import MOST_COLUMNS
from llmtop.tui.screens.base import Dialog

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from llmtop.analysis.tables import RowTable
    from llmtop.analysis.views import Cell
    from llmtop.model import Trace

_COLUMNS = (
    Column("shown", "column", width=7, help="whether it stands in the kernel table"),
    Column("name", "metric", width=0, help="the tool's own name"),
    Column("label", "label", width=30, shrink=2, help="what the tool's sections call it"),
    Column("value", "value", width=18, shrink=1, help="of the kernel with the most time"),
)
_NOT_HERE = Unknown("this report does not have it")


class ColumnsScreen(Dialog):
    """Enter puts a metric into the table or takes it out; whoever opened this is told at once."""

    DEFAULT_CSS = "ColumnsScreen TablePane { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "show or hide", tooltip="The metric as a column of the table, or no longer"),
        Binding("escape,q,c", "dismiss", "back", tooltip="Back to the kernels"),
    ]

    def __init__(self, trace: Trace, chosen: Sequence[str], take: Callable[[tuple[str, ...]], None]) -> None:
        """Choose among the metrics of a report; `take` gets all that are chosen, whenever they change."""
        super().__init__()
        self._trace, self._take = trace, take
        self._chosen = tuple(chosen)
        self._names = metric_names(trace, chosen)
        self._labels = metric_labels(trace)
        self.listing = TablePane("Metrics as columns of the kernel table")

    def compose(self) -> ComposeResult:
        yield self.listing
        yield KeyBar(id="keys")

    def show_fault(self, said: str) -> None:
        self.listing.show_fault(said)

    def on_mount(self) -> None:
        self.listing.show_table(self._rows(), Unknown("this capture has no metrics of its kernels"))
        self.listing.table.focus()

    def _rows(self) -> RowTable:
        return table_of(_COLUMNS, {name: self._cells(name) for name in self._names})

    def _cells(self, name: str) -> tuple[Cell, ...]:
        kernels = kernels_of(self._trace)
        value = kernels.metrics(kernels.standing()[0]).get(name, _NOT_HERE)
        text = value if isinstance(value, str | Unknown) else value_text(value, kernels.unit(name))
        return "shown" if name in self._chosen else "", name, self._labels.get(name, ""), text

    def action_choose(self) -> None:
        """As a click on the row does."""
        self.listing.table.choose()

    def on_virtual_table_chosen(self, event: VirtualTable.Chosen) -> None:
        """Take the metric under the cursor in, or out again."""
        event.stop()
        rows = self.listing.table.rows
        if rows is None or not len(rows):
            return
        name = str(rows.key(self.listing.table.cursor))
        if name in self._chosen:
            self._chosen = tuple(one for one in self._chosen if one != name)
        elif len(self._chosen) < MOST_COLUMNS:
            self._chosen = (*self._chosen, name)
        else:
            self.notify(f"there are {MOST_COLUMNS} columns already: take one out", severity="warning", markup=False)
            return
        self._take(self._chosen)
        self.listing.show_table(self._rows())
