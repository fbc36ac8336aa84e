"""Where the time of each GPU of a timeline went: at work, and by cause the time in which it had nothing to do."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType

from llmtop.analysis.kernels.absent import not_of_kernels
from llmtop.analysis.timeline.causes import MEANINGS
from llmtop.analysis.timeline.idle_view import IdleOfGpu, IdleRow, IdleView, idle_view, picture
from llmtop.analysis.timeline.longest import longest_gaps
from llmtop.analysis.timeline.work import gpu_title, work_by_gpu
from llmtop.analysis.views import Cell, Column
from llmtop.model import Stretch, Trace, Unknown
from llmtop.tui.panes.lines import DRAWN
from llmtop.tui.panes.report import IN_TIME, ListPane, table_of
from llmtop.tui.screens.causes import CausesScreen
from llmtop.units import count, duration, percent

if TYPE_CHECKING:
    from llmtop.analysis.tables import RowTable
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look


_AT_WORK = "with a kernel, a copy or a graph running; those that overlap count once. From left to right:"
_COLUMNS = (
    Column("gpu", "GPU", width=6, help="which GPU; all together add up their times"),
    Column("cause", "time of the GPU", width=23, help="at work, or why it had nothing to do"),
    Column("name", "call or range", width=0, help="the CUDA or OS call, or the range, of the thread"),
    Column("ns", "time", "ns", width=8, help="all of it"),
    Column("share", "capture", "ratio", width=7, shrink=1, help="share of the capture's time"),
    Column("idle", "idle", "ratio", width=6, shrink=2, help="share of the idle time"),
    Column("gaps", "gaps", "1", width=6, shrink=4, help="in how many gaps"),
    Column("longest", "longest", "ns", width=8, shrink=3, help="the most of it in one gap"),
)
_OF_ONE_GPU = (replace(_COLUMNS[0], shrink=5), *_COLUMNS[1:])
"""Which GPU is the same in every row, so that anything else says more."""
_NO_GAP = Unknown("this is the time at work, and no gap")
_BUSY = "busy", ""
"""In the place of a cause and a name: the row of a GPU's work."""


class IdlePane(ListPane[IdleView]):
    """The idle account; the rows of a GPU add up to the capture."""

    number = 7
    title = "Idle"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "meanings", "meanings", tooltip="What each cause means"),
        IN_TIME,
    ]

    def action_meanings(self) -> None:
        """List all causes with what they mean."""
        self.app.push_screen(CausesScreen())

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return None if trace.spans else not_of_kernels(trace)

    def view(self, trace: Trace) -> IdleView | Unknown:
        view = idle_view(trace)
        if view.why_not is None:
            longest_gaps(trace)  # here, on a thread: what is said of a row asks for it
        return view.why_not or view

    def rows(self, view: IdleView, trace: Trace) -> RowTable:
        rows: dict[Hashable, tuple[Cell, ...]] = {}
        for gpu in _gpus(view):
            share = _share(gpu.busy_ns, gpu)
            rows[gpu.title, *_BUSY] = gpu.title, "at work", "", gpu.busy_ns, share, None, None, None
            for row in gpu.rows:
                times = row.ns, _share(row.ns, gpu), row.share, row.gaps, row.longest_ns
                rows[gpu.title, row.cause, row.name] = gpu.title, row.title, row.name, *times
        return table_of(_OF_ONE_GPU if len(view.gpus) == 1 else _COLUMNS, rows)

    def details(self, view: IdleView, trace: Trace, key: tuple[str, str, str], width: int, look: Look) -> Paragraphs:
        title, cause, name = key
        gpu = next(one for one in _gpus(view) if one.title == title)
        if (cause, name) == _BUSY:
            return (_summary(gpu), "title"), (_AT_WORK, "text"), (picture(gpu, f" {look.glyphs.spark}"), DRAWN)
        row = next(one for one in gpu.rows if (one.cause, one.name) == (cause, name))
        reason = next((str(missing.why) for missing in view.unknown if missing.what == name), "")
        return tuple(_details(row, reason, self._began_ns(view, trace, key)))

    def when(self, view: IdleView, trace: Trace, key: tuple[str, str, str]) -> Stretch | Unknown:
        title, cause, name = key
        gpus = [gpu for gpu in work_by_gpu(trace) if title in (gpu_title(gpu), _gpus(view)[0].title)]
        return longest_gaps(trace).of(gpus, [(cause, name)]) or _NO_GAP

    def _began_ns(self, view: IdleView, trace: Trace, key: tuple[str, str, str]) -> int | None:
        """When the gap with most of a row's time began, counted from the begin of the capture."""
        gap = self.when(view, trace, key)
        return gap.start_ns - trace.start_ns if isinstance(gap, Stretch) else None


def _gpus(view: IdleView) -> tuple[IdleOfGpu, ...]:
    """All together, where they are several, and each."""
    return view.gpus if view.total is None or len(view.gpus) < 2 else (view.total, *view.gpus)


def _share(ns: int, gpu: IdleOfGpu) -> float:
    return ns / gpu.capture_ns if gpu.capture_ns else 0.0


def _summary(gpu: IdleOfGpu) -> str:
    idle, busy, capture = percent(100 * _share(gpu.idle_ns, gpu)), duration(gpu.busy_ns), duration(gpu.capture_ns)
    together = " together" if gpu.title.endswith("GPUs") else ""
    return f"{gpu.title}{together}: at work {busy} of {capture}, nothing to do for {idle}"


def _gaps(gaps: int) -> str:
    """How many gaps.

    >>> _gaps(1), _gaps(1425)
    ('1 gap', '1,425 gaps')
    """
    return "1 gap" if gaps == 1 else f"{count(gaps)} gaps"


def _details(row: IdleRow, reason: str, began_ns: int | None) -> Iterator[tuple[str, str]]:
    yield f"{row.title}: {row.name}" if row.name else row.title, "title"
    yield MEANINGS[row.cause], "text"
    began = "" if began_ns is None else f", which began {duration(began_ns)} into the capture"
    yield f"{duration(row.ns)} in {_gaps(row.gaps)}, the most in one {duration(row.longest_ns)}{began}", "text"
    if reason:
        yield reason, "warn"
    for function, samples in row.functions:
        yield f"CPU samples in {function}: {samples}", "text"
    for name, ns in row.ranges:
        yield f"in the range {name}: {duration(ns)}", "text"
    if row.drained_ns:
        share = percent(100 * row.drained_ns / row.ns)
        yield f"{share} of it in gaps that began as the GPU ran dry under a call that waited for it", "text"


VIEW: Final = IdlePane
