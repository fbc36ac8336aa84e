"""All that a report holds of one launch: what limits it and why, its place in the roofline, every metric."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content

from llmtop.analysis.kernels.in_time import launch_stretch
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.pages.launch import LaunchView, launch_view
from llmtop.analysis.views import Column, RooflineView, TableView
from llmtop.model import Trace, Unknown, Value
from llmtop.tui.aside import ANALYSING, Analysed, analyse_on_thread
from llmtop.tui.panes.bar import KeyBar
from llmtop.tui.panes.base import Pane
from llmtop.tui.panes.lines import LinesPane
from llmtop.tui.panes.report import table_of
from llmtop.tui.panes.table import TablePane
from llmtop.tui.panes.view import StretchWanted
from llmtop.tui.render.launch import launch_lines
from llmtop.tui.render.roofline import draw_roofline
from llmtop.tui.screens.base import Dialog
from llmtop.tui.textual_private import leave_out_keys
from llmtop.units import quantity

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.geometry import Size
    from textual.strip import Strip

    from llmtop.analysis.kernels.counters import Counters
    from llmtop.analysis.kernels.elsewhere import Elsewhere
    from llmtop.analysis.tables import RowTable
    from llmtop.analysis.views import Cell
    from llmtop.model import KernelDetails
    from llmtop.tui.panes.view import Baseline
    from llmtop.tui.render.look import Look

_OTHERS = "others"
BESIDE = (
    Column("change", "change", "%", width=8, shrink=1, help="more than in the baseline", is_signed=True),
    Column("baseline", "baseline", width=18, shrink=2, help="the value there, of the launch that stands for its calls"),
)
_NOT_THERE = Unknown("the baseline does not have this metric of the kernel")
_COLUMNS = (
    Column("label", "metric", width=0, help="the tool's label, or its name where it has none; below is the name"),
    Column("value", "value", width=18, help="scaled for reading"),
    *BESIDE,
    Column("section", "section", width=24, shrink=1, help="of the report; others: in no section's first table"),
    Column("name", "name", width=44, shrink=4, help="the tool's own name"),
    Column("exact", "exact", width=20, shrink=3, help="as the report has it"),
    Column("unit", "unit", width=12, shrink=2),
)
_ALONE = tuple(column for column in _COLUMNS if column not in BESIDE)
"""Where no other report is the baseline."""
_NO_METRICS = Unknown("this capture has no metrics of its kernels: it tells when they ran, not how")


def metrics_table(details: KernelDetails | None, launch: int, others: Counters | None = None) -> RowTable:
    """The metrics of a launch: the tables of its sections in the tool's order, then all others by name.

    Args:
        details: Of the report.
        launch: Counted from 0.
        others: The metrics of the same kernel in a baseline, to stand beside these; None where there is none.
    """
    rows = {} if details is None else dict(_metric_rows(details, launch))
    if others is None or details is None:
        return table_of(_ALONE, rows)
    metrics = details.metrics(launch)
    return table_of(_COLUMNS, {key: _with_other(cells, metrics, others) for key, cells in rows.items()})


def _with_other(cells: tuple[Cell, ...], metrics: Counters, others: Counters) -> tuple[Cell, ...]:
    """The cells of a metric with what the baseline has, and by how much that is less."""
    label, shown, section, name, exact, unit = cells
    mine, theirs = metrics[str(name)], others.get(str(name))
    if theirs is None:
        return label, shown, _NOT_THERE, _NOT_THERE, section, name, exact, unit
    _, other, *_ = _cells("", "", str(name), theirs, str(unit))
    return label, shown, _change(mine, theirs), other, section, name, exact, unit


def _change(value: Value, before: Value) -> Cell:
    if isinstance(value, str) or isinstance(before, str):
        return None
    return 100 * (value / before - 1) if before and math.isfinite(value / before) else None


def _metric_rows(details: KernelDetails, launch: int) -> Iterator[tuple[Hashable, tuple[Cell, ...]]]:
    metrics = details.metrics(launch)
    told: set[str] = set()
    for section in details.tables(launch):
        for name, label in section.rows:
            if name in metrics:
                told.add(name)
                yield (
                    (section.id, name),
                    _cells(label or name, section.title or section.id, name, metrics[name], details.unit(name)),
                )
    for name in sorted(metrics.keys() - told, key=_rank):
        yield (_OTHERS, name), _cells(name, _OTHERS, name, metrics[name], details.unit(name))


def _rank(name: str) -> tuple[bool, str]:
    """By name; breakdowns, which only list other metrics, last."""
    return name.startswith("breakdown:"), name.casefold()


def _cells(label: str, section: str, name: str, value: Value, unit: str) -> tuple[Cell, ...]:
    if isinstance(value, str):
        return label, value, section, name, value, unit
    if value != value:
        why = Unknown("the tool wrote no number (NaN)")
        return label, why, section, name, why, unit
    is_count = unit in ("", "1") and float(value).is_integer()
    shown = f"{value:.0f}" if is_count else quantity(value, unit)
    return label, shown, section, name, repr(value), unit


def _whole_metric(rows: TableView, row: int) -> str:
    """Name and value at full length: both are often cut in the table."""
    *_, name, exact, unit = rows.cells(row)
    return f"{name} = {exact} {unit}"


class LaunchPane(LinesPane[LaunchView]):
    """What a launch is, what limits it, what to do: lines that scroll."""

    title = "Kernel"
    tells_place = False

    def __init__(self) -> None:
        super().__init__()
        leave_out_keys(self, ("search", "match", "end_search"))  # n is the next launch there, / finds a metric

    def take(self, view: LaunchView | Unknown) -> None:
        """Show a launch from its first line on."""
        self._view, self.at = view, 0
        self.redraw()

    def subtitle(self, view: LaunchView) -> Content:
        count = len(self._lines)
        last = min(count, self.at + self.size.height)
        lines = f"  lines {self.at + 1} to {last} of {count}" if self.count() > 1 else ""
        return Content(f"launch {view.launch + 1} of {view.launches}{lines}")

    def lines(self, view: LaunchView, width: int, look: Look) -> list[Strip]:
        return launch_lines(view, width, look)


class LaunchRooflinePane(Pane[RooflineView]):
    """One launch against every memory level that was collected."""

    title = "Roofline"
    can_focus = False

    def take(self, view: RooflineView | Unknown) -> None:
        """Show a launch."""
        self._view = view
        self.redraw()

    def draw(self, view: RooflineView, width: int, height: int, look: Look) -> list[Strip]:
        return draw_roofline(view, width, height, look)


def _launch_view(
    trace: Trace, launch: int, reports: Sequence[tuple[str, Trace]], baseline: Baseline | None
) -> LaunchView:
    """Of a launch, and where there is a baseline what differs from that."""
    view = launch_view(trace, launch, reports)
    if baseline is None:
        return view
    # Imported here: most files are looked at by themselves.
    from llmtop.analysis.pages.diff.beside_baseline import launch_beside

    beside = launch_beside(trace, launch, baseline.trace)
    return replace(view, beside=replace(beside, said=f"{baseline.name}: {beside.said}"))


class KernelScreen(Dialog):
    """One launch, and from it to the next and the last one of the capture."""

    DEFAULT_CSS = """
    KernelScreen #about { height: 3fr; }
    KernelScreen #metrics { height: 2fr; }
    KernelScreen LaunchPane { width: 3fr; }
    KernelScreen LaunchRooflinePane { width: 2fr; }
    KernelScreen.-metrics #about { height: 2fr; }
    KernelScreen.-metrics #metrics { height: 3fr; }
    KernelScreen.-narrow LaunchRooflinePane { display: none; }
    KernelScreen.-short #metrics { height: 6; }
    KernelScreen.-short.-metrics #about { height: 5; }
    KernelScreen.-short.-metrics #metrics { height: 1fr; }
    KernelScreen.-tiny #metrics { display: none; }
    KernelScreen.-tiny #about { height: 1fr; }
    KernelScreen.-tiny.-metrics #metrics { display: block; }
    KernelScreen.-tiny.-metrics #about { display: none; }
    KernelScreen.-bare #about { height: 1fr; }
    KernelScreen.-bare #metrics { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "dismiss", "back", tooltip="Back to the list"),
        Binding("n", "step(1)", "next launch", tooltip="The next launch of the capture"),
        Binding("p", "step(-1)", "last launch", tooltip="The launch before this one"),
        Binding("o", "other_report", "other report", tooltip="The same kernel in another report that is open"),
        Binding("t", "in_time", "timeline", tooltip="Its place in the timeline"),
        Binding("slash", "find", "find a metric", key_display="/", tooltip="Filter the metrics"),
        Binding("tab,shift+tab", "turn", "metrics", key_display="Tab", tooltip="Summary or metrics"),
    ]

    def __init__(
        self,
        trace: Trace,
        launch: int,
        reports: Sequence[tuple[str, Trace]] = (),
        baseline: Baseline | None = None,
    ) -> None:
        """Show a launch; `reports` are those that are open, by what they are called, `baseline` what it is held to."""
        super().__init__()
        self._trace, self._launch, self._reports = trace, launch, tuple(reports)
        self._baseline = baseline
        self._below = trace
        self._elsewhere: tuple[Elsewhere, ...] = ()
        self._about = LaunchPane()
        self._roofline = LaunchRooflinePane()
        self.listing = TablePane("Metrics by section", describe=_whole_metric, id="metrics")

    def compose(self) -> ComposeResult:
        with Horizontal(id="about"):
            yield self._about
            yield self._roofline
        yield self.listing
        yield KeyBar(id="keys")

    @property
    def _details(self) -> KernelDetails | None:
        return kernels_of(self._trace).table.details

    def show_fault(self, said: str) -> None:
        why = Unknown(said)
        self._take(why, why)

    def on_mount(self) -> None:
        self._take(ANALYSING, ANALYSING)
        self._show()
        self._about.focus()

    def _show(self) -> None:
        """Read the launch: its rules on a thread, its metrics, which are decoded by now, at once."""
        self._fit(self.size)
        if len(self._reports) > 1:
            name = next((name for name, trace in self._reports if trace is self._trace), "")
            self._about.title = f"{LaunchPane.title}  {name}".rstrip()
        baseline = None if self._baseline is None or self._baseline.trace is self._trace else self._baseline
        asked = partial(_launch_view, launch=self._launch, reports=self._reports, baseline=baseline)
        analyse_on_thread(self, self._trace, asked)
        self._show_metrics(None)

    def _show_metrics(self, others: Counters | None) -> None:
        with self.listing.border():
            self.listing.show_table(metrics_table(self._details, self._launch, others), _NO_METRICS)

    def on_analysed(self, message: Analysed) -> None:
        """Take the view, if it is still that of the launch that is wanted."""
        view = message.result
        if message.of is not self._trace:
            return
        if isinstance(view, Exception):
            self.fail(view)
        elif view.launch == self._launch:
            self._elsewhere = view.elsewhere
            self._take(view, view.roofline)
            if self._baseline is not None and view.beside is not None and view.beside.launch is not None:
                self._show_metrics(kernels_of(self._baseline.trace).metrics(view.beside.launch))
            self.refresh_bindings()

    def _take(self, about: LaunchView | Unknown, roofline: RooflineView | Unknown) -> None:
        self._about.take(about)
        self._roofline.take(roofline)

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size)

    def _fit(self, size: Size) -> None:
        """Arrange the parts for what there is to show in the room that there is."""
        self.set_class(size.height < 30, "-short")
        self.set_class(size.height < 18, "-tiny")
        self.set_class(size.height < 14, "-low")  # of any screen: without its list of keys
        self.set_class(size.width < 100 or self._details is None, "-narrow")
        self.set_class(self._details is None, "-bare")

    def action_step(self, step: int) -> None:
        """Show the launch beside this one, in the order of the capture."""
        wanted = self._launch + step
        if 0 <= wanted < len(kernels_of(self._trace).table):
            self._launch = wanted
            self._show()

    def action_other_report(self) -> None:
        """Show the kernel as the next report has it that has it."""
        other = self._elsewhere[0]
        self._trace, self._launch, self._elsewhere = other.trace, other.launch, ()
        self._give_metrics_room(False)
        self.set_focus(self._about)
        self._show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Another report can be shown where one has the kernel; the one below is of the file that it was opened of."""
        if action == "in_time":
            return bool(self._trace.spans) and self._trace is self._below
        if action == "other_report":
            return bool(self._elsewhere)
        return super().check_action(action, parameters)

    def action_in_time(self) -> None:
        """Go back, and to where the launch is in the timeline."""
        stretch = launch_stretch(self._trace, self._launch)
        if isinstance(stretch, Unknown):
            self.notify(str(stretch), markup=False)
        else:
            self.app.screen_stack[-2].post_message(StretchWanted(stretch))
            self.dismiss()

    def action_turn(self) -> None:
        """Give the summary or the metrics the focus, and more room."""
        to_metrics = self._give_metrics_room(not self.has_class("-metrics"))
        self.set_focus(self.listing.table if to_metrics else self._about)  # at once: a key may follow

    def action_find(self) -> None:
        """Open the filter of the metrics."""
        if self._give_metrics_room(True):
            self.listing.action_filter()

    def _give_metrics_room(self, wanted: bool) -> bool:
        """Whether the metrics have the larger part now: where there are any."""
        has_it = wanted and self._details is not None
        self.set_class(has_it, "-metrics")
        return has_it
