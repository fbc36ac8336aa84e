"""The GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.analysis.gpus.models import short_gpu_name
from llmtop.analysis.pages.gpus import GpuRow, GpusView, gpu_processes_table, gpus_view
from llmtop.analysis.rules.scope import is_live
from llmtop.analysis.series.readings import gpu_tracks, why_kind_missing
from llmtop.model import TrackKind, Unknown
from llmtop.tui.panes.base import ROW_KEYS
from llmtop.tui.panes.lines import PagedPane
from llmtop.tui.panes.table import SORT_KEYS
from llmtop.tui.panes.view import GpuWanted, Place
from llmtop.tui.render.gpu import draw_gpus
from llmtop.tui.render.gpu_table import BY_GPU, SORTED_BY, Selection, listed

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.views import TableView
    from llmtop.model import Trace
    from llmtop.tui.render.look import Look


_MOST_LINES = 200
"""More than is known of the GPUs of one machine."""
_OF_TIMELINES = Unknown(
    "a tool's capture has no readings of the GPU's memory, power and clocks", "llmtop record keeps them"
)


class GpuPane(PagedPane[GpusView]):
    """Activity, memory, power, clocks and processes; of several GPUs one is selected and one may be pinned.

    With the screen to itself it has all that is known, which is scrolled to where it does not fit.

    Of a recording it is that of its last moment. Metrics that Nsight Systems samples are the timeline's and Series'.
    """

    title = "GPU"
    is_of_reports = False
    place = Place(
        3,
        "right",
        needs_gpu=True,
        rows_title="Processes on the GPUs",
        keeps_pane=True,
        no_rows=Unknown("no process holds memory on a GPU, or the driver does not tell: see d"),
    )
    ages_of = TrackKind.GPU
    of_live = frozenset({"pin"})
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "select(-1)", "select", show=False, tooltip="Select a GPU"),
        Binding("down,j", "select(1)", "select", show=False, tooltip="Select a GPU"),
        *ROW_KEYS,
        *SORT_KEYS,
        Binding("p", "pin", "pin", tooltip="Pin the GPU to the top, and into roofline and lanes"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.selection = Selection()
        self._lines: list[Strip] = []

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        if not is_live(trace):
            return _OF_TIMELINES
        return None if gpu_tracks(trace) else why_kind_missing(trace, TrackKind.GPU)

    def rows(self, view: GpusView, trace: Trace) -> TableView:
        return gpu_processes_table(view.rows)

    def view(self, trace: Trace) -> GpusView | Unknown:
        return gpus_view(trace, self.context.target, self._view if isinstance(self._view, GpusView) else None)

    def draw(self, view: GpusView, width: int, height: int, look: Look) -> list[Strip]:
        # Without the focus no row is under the cursor: two cursors on a screen would be one too many.
        shown = self.selection if self.has_focus else replace(self.selection, selected=None)
        most = max(height, _MOST_LINES) if self.is_zoomed else height
        self._lines = draw_gpus(view, width, most, look, shown, is_zoomed=self.is_zoomed)
        return self.scrolled(self._lines, height)

    def count(self) -> int:
        return max(1, len(self._lines) - self.size.height + 1)

    def text_lines(self) -> list[str]:
        return [strip.text for strip in self._lines]

    def subtitle(self, view: GpusView) -> Content:
        sources = {gauge.source for row in view.rows for gauge in row.activity if gauge.source}
        name = short_gpu_name(view.rows[0].name)
        name = name if len(view.rows) == 1 else f"{len(view.rows)} x {name}"
        return Content("  ".join([name, *sorted(sources)]))

    @property
    def gpus(self) -> tuple[GpuRow, ...]:
        """The GPUs in the order in which they are listed."""
        return () if isinstance(self._view, Unknown) else listed(self._view.rows, self.selection)

    def on_focus(self) -> None:
        if self.selection.selected is None and self.gpus:
            self.selection = replace(self.selection, selected=self.gpus[0].track)
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """One GPU cannot be selected, sorted or pinned: its keys are not offered."""
        if action in ("select", "sort", "reverse", "pin"):
            return len(self.gpus) > 1
        if action in ("move", "page", "edge"):
            return self.count() > 1
        return super().check_action(action, parameters)

    def action_select(self, step: int) -> None:
        """Select another GPU."""
        tracks = [row.track for row in self.gpus]
        at = tracks.index(self.selection.selected) + step if self.selection.selected in tracks else 0
        self._select(replace(self.selection, selected=tracks[max(0, min(at, len(tracks) - 1))]))

    def action_sort(self, step: int) -> None:
        """Sort by the next column on the left or right."""
        self._select(replace(self.selection, sort=(self.selection.sort or BY_GPU).beside(SORTED_BY, step)))

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._select(replace(self.selection, sort=(self.selection.sort or BY_GPU).reversed))

    def action_pin(self) -> None:
        """Pin the selected GPU, or let the pinned one go."""
        chosen = self.selection.selected
        pinned = None if chosen == self.selection.pinned else chosen
        self._select(replace(self.selection, pinned=pinned))
        self.post_message(GpuWanted(pinned))

    def _select(self, selection: Selection) -> None:
        self.selection = selection
        self.redraw()


VIEW: Final = GpuPane
