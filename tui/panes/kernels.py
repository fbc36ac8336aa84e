"""The kernels of a report as a table, and all that is known of one launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content

from llmtop.analysis.kernels import (
    Grouping,
    KernelRows,
    dimensions,
    kernel_table,
    kernels_of,
    no_kernels,
    roofline_view,
)
from llmtop.analysis.views import Column, RooflineView, TableView
from llmtop.model import Quantity, Trace, Unknown
from llmtop.tui.panes.report import KernelWanted, ReportPane, TextPane, table_of
from llmtop.tui.panes.table import TablePane, VirtualTable
from llmtop.tui.render.roofline import draw_roofline
from llmtop.tui.screens.base import Dialog
from llmtop.units import duration, percent, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.analysis.tables import RowTable
    from llmtop.tui.render.look import Look

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


_METRIC_COLUMNS = (
    Column("metric", "metric", width=0, help="the tool's own name"),
    Column("value", "value", width=18, help="scaled for reading"),
    Column("exact", "exact", width=22, shrink=2, help="as the report has it"),
    Column("unit", "unit", width=14, shrink=3),
)


def metrics_table(metrics: Mapping[str, Quantity]) -> RowTable:
    """All metrics of a launch, by name."""
    return table_of(_METRIC_COLUMNS, {name: _metric_row(name, metrics[name]) for name in sorted(metrics, key=_rank)})


def _rank(name: str) -> tuple[bool, str]:
    """By name; breakdowns, which only list other metrics, last."""
    return name.startswith("breakdown:"), name.casefold()


def _whole_metric(rows: TableView, row: int) -> str:
    """Name and value at full length: both are often cut in the table."""
    name, _, exact, unit = rows.cells(row)
    return f"{name} = {exact} {unit}"


def _metric_row(name: str, metric: Quantity) -> tuple[str | Unknown, ...]:
    value = metric.value
    if isinstance(value, str):
        return name, value, value, metric.unit
    if value != value:
        why = Unknown("the tool wrote no number (NaN)")
        return name, why, why, metric.unit
    is_count = metric.unit in ("", "1") and float(value).is_integer()
    return name, f"{value:.0f}" if is_count else quantity(value, metric.unit), repr(value), metric.unit


def launch_facts(trace: Trace, launch: int) -> tuple[tuple[str, str], ...]:
    """What a launch is and what was found out about it, as paragraphs."""
    return tuple(_launch_facts(trace, launch))


def _launch_facts(trace: Trace, launch: int) -> Iterator[tuple[str, str]]:
    kernels = kernels_of(trace)
    facts, ns = kernels.facts(launch), kernels.table.duration_ns[launch]
    yield kernels.table.name(launch), "title"
    time = duration(ns) if ns == ns else "not collected"
    share = kernels.share(ns)
    part = f", {percent(share * 100)} of all kernels" if share is not None else ""
    shape = f"grid {dimensions(kernels.grid(launch))} x block {dimensions(kernels.block(launch))}"
    yield f"launch {launch}: {time}{part}; {shape}", "text"
    yield f"bound: {facts.bound if isinstance(facts.bound, Unknown) else facts.bound.bound}", "value"
    known = {
        "occupancy": (facts.occupancy, "%"),
        "registers a thread": (facts.registers, "1"),
        "waves": (facts.waves, "1"),
    }
    for name, (value, unit) in known.items():
        text = quantity(value, unit) if isinstance(value, float) else str(value)
        yield f"{name}: {text}", "dim" if isinstance(value, Unknown) else "text"
    details = kernels.table.details
    if details is not None and (ranges := details.ranges(launch)):
        yield "NVTX: " + " > ".join(ranges), "text"


class LaunchRooflinePane(ReportPane[RooflineView]):
    """One launch against every memory level that was collected."""

    title = "Roofline"

    def __init__(self, launch: int) -> None:
        super().__init__()
        self.can_focus = False
        self._launch = launch

    def view(self, trace: Trace) -> RooflineView | Unknown:
        return roofline_view(trace, self._launch)

    def draw(self, view: RooflineView, width: int, height: int, look: Look) -> list[Strip]:
        return draw_roofline(view, width, height, look)


class KernelScreen(Dialog):
    """All that a report holds of one launch."""

    DEFAULT_CSS = """
    KernelScreen #about { height: 40%; max-height: 20; }
    KernelScreen.-low #about { height: 7; }
    KernelScreen.-low LaunchRooflinePane { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "dismiss", "back", tooltip="Back to the list")
    ]

    def __init__(self, trace: Trace, launch: int) -> None:
        super().__init__()
        self._trace, self._launch = trace, launch
        self._facts = TextPane()
        self._roofline = LaunchRooflinePane(launch)
        self.listing = TablePane("Metrics", describe=_whole_metric)

    def compose(self) -> ComposeResult:
        with Horizontal(id="about"):
            yield self._facts
            yield self._roofline
        yield self.listing

    def on_mount(self) -> None:
        self._facts.can_focus = False
        self._facts.border_title = Content("Kernel")
        self._facts.show_text(launch_facts(self._trace, self._launch))
        self._roofline.show(self._trace)
        metrics = kernels_of(self._trace).metrics(self._launch)
        why = Unknown("this capture has no metrics of its kernels", "ncu --set full COMMAND")
        self.listing.show_table(metrics_table(metrics), why)
        self.listing.table.focus()

    def on_resize(self) -> None:
        self.set_class(self.size.height < 30 or self.size.width < 100, "-low")
