"""What a timeline holds besides kernels: NVTX ranges with the GPU time in them, and tables of copies and calls."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.binding import Binding, BindingType

from llmtop.analysis.timeline.listed import Listed, ListedRow, has_listed, listed
from llmtop.analysis.timeline.listed_table import TITLES as TABLE_TITLES
from llmtop.analysis.timeline.listed_table import listed_lines, listed_table, spread_text
from llmtop.analysis.timeline.span_rows import COLLECTIVE, TITLES, SpanRow, span_cells, span_rows
from llmtop.analysis.views import Column
from llmtop.model import SpanKind, Trace, Unknown
from llmtop.tui.panes.report import ListPane, table_of
from llmtop.units import binary_bytes, count, duration, percent, si

if TYPE_CHECKING:
    from llmtop.analysis.tables import RowTable
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look

_MEANINGS: Mapping[str, str] = {
    SpanKind.NVTX: (
        "a range that the program itself marks: NVTX, or in PyTorch record_function and the profiler's steps"
    ),
    SpanKind.MARK: "a moment that the program itself marks (NVTX)",
    COLLECTIVE: (
        "what a kernel exchanges with other ranks, as PyTorch's profiler or NCCL's NVTX ranges tell it; the "
        "rate is the algorithm bandwidth"
    ),
    SpanKind.MEMCPY: "data moved by the GPU's copy engines or by a kernel of the driver",
    SpanKind.MEMSET: "memory filled by the GPU",
    SpanKind.GRAPH: "a CUDA graph that was traced as a whole",
    SpanKind.OPERATOR: "an operator of PyTorch, with those that it calls",
    SpanKind.PYTHON: "a function of Python, with all that it calls",
    SpanKind.LAUNCH: "a call that launches kernels; it returns before they run",
    SpanKind.CALL: "another call of the CUDA API: copies, allocations, synchronisation, loading of code",
    SpanKind.GPU_RANGE: (
        "a range as it ran on the GPU, from the first to the last work launched in it, idle time included"
    ),
    SpanKind.REGION: "a call of another library: MPI, UCX, cuDNN, cuBLAS, OpenACC, OpenMP ...",
    SpanKind.SYNC: "a wait for an event, a stream or a context, as the GPU saw it",
    SpanKind.PAGE_FAULT: "pages of unified memory that were elsewhere when they were used",
    SpanKind.ALLOCATION: "memory that was held, from getting it to giving it back",
    SpanKind.OS: "a call of the C library that may block",
    SpanKind.ON_CPU: "a thread that ran, by the CPU that it ran on",
    SpanKind.OFF_CPU: "a thread that had no CPU: it waited for one, or for something else",
    SpanKind.OVERHEAD: "what the profiler itself cost",
}

_NO_TIMELINE = Unknown("this file has no timeline")
_KERNELS_ALONE = Unknown("the capture has kernels and nothing else", "collect more: the Session view has the command")
_COLUMNS = (
    Column("kind", "kind", width=11, shrink=1, help="range, copy, CUDA call, OS call ...: / finds it"),
    Column("name", "name", width=0, help="of the range, the copy's direction, the call"),
    Column("count", "count", "1", width=7, help="how many"),
    Column("total", "total", "ns", width=8, help="time added up; ranges within each other count each"),
    Column("mean", "mean", "ns", width=8, shrink=2, help="of one"),
    Column("longest", "longest", "ns", width=8, shrink=3, help="the longest one"),
    Column(
        "gpu", "GPU time", "ns", width=8, shrink=1, help="of what its thread launched in the range, operator or call"
    ),
    Column("launches", "launched", "1", width=8, shrink=5, help="kernels, copies and graphs launched in it"),
    Column("bytes", "bytes", "bytes", width=9, shrink=6, help="moved, of copies and fills"),
    Column("rate", "rate", "bytes/s", width=9, shrink=4, help="bytes over the time"),
)
_RECORDED = Column("recorded", "recorded", width=24, shrink=7, help="what else is told of them: categories, payloads")


class SpansPane(ListPane["dict[Hashable, SpanRow] | tuple[ListedRow, ...]"]):
    """All kinds of spans by name, NVTX ranges first; the filter finds kinds too. Or one kind, with all that is told."""

    number = 4
    title = "Spans"
    is_of_reports = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "list", "list", tooltip="All spans; CUDA calls, copies, OS calls or allocations in full"),
        Binding("e", "each", "each range", tooltip="Ranges by their full names, or without numbers again"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.each = False
        self.listed: Listed | None = None
        """What is shown in full; None for all."""

    def action_list(self) -> None:
        """Show the next of what the trace has in full, or all again."""
        if self._trace is None:
            return
        order = (None, *(what for what in Listed if has_listed(self._trace, what)))
        self.listed = order[(order.index(self.listed) + 1) % len(order)]
        self.table.border_title = self.heading
        self.table.order.sort = None
        self.refresh_bindings()
        self.show(self._trace)

    def action_each(self) -> None:
        """Show each name of a range alone, or those that differ by numbers as one again."""
        self.each = not self.each
        if self._trace is not None:
            self.show(self._trace)

    @property
    def heading(self) -> str:
        """Its digit and its title, and what is shown in full."""
        return super().heading if self.listed is None else f"{super().heading}: {TABLE_TITLES[self.listed]}"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ranges stand among all spans alone."""
        return self.listed is None if action == "each" else super().check_action(action, parameters)

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return None if trace.spans else _NO_TIMELINE

    def view(self, trace: Trace) -> dict[Hashable, SpanRow] | tuple[ListedRow, ...] | Unknown:
        if self.listed is not None:
            return listed(trace, self.listed)
        return {(row.kind, row.name): row for row in span_rows(trace, each=self.each)} or _KERNELS_ALONE

    def rows(self, view: dict[Hashable, SpanRow] | tuple[ListedRow, ...], trace: Trace) -> RowTable:
        if isinstance(view, tuple):
            return listed_table(view, self.listed or Listed.API)
        columns = (*_COLUMNS, *([_RECORDED] if any(row.recorded for row in view.values()) else []))
        return table_of(columns, {key: span_cells(row)[: len(columns)] for key, row in view.items()})

    def details(
        self, view: dict[Hashable, SpanRow] | tuple[ListedRow, ...], trace: Trace, key: Any, width: int, look: Look
    ) -> Paragraphs:
        if not isinstance(view, tuple):
            return tuple(_details(view[key]))
        return (view[key].name, "title"), *((line, "text") for line in listed_lines(view, view[key]))


def _details(row: SpanRow) -> Iterator[tuple[str, str]]:
    yield f"{row.what or TITLES[row.kind]}: {row.name}", "title"
    yield _MEANINGS[row.kind], "dim"
    times = "once" if row.count == 1 else f"{count(row.count)} times"
    yield f"{times}, {duration(row.total_ns)}{'' if row.count == 1 else ' together'}", "text"
    if row.times is not None and row.count > 1:
        yield spread_text(row.times, duration), "text"
    if row.gpu_ns is not None and row.launches is not None:
        share = f" ({percent(100 * row.gpu_ns / row.total_ns)} of its own time)" if row.total_ns else ""
        yield f"launched in it: {count(row.launches)}, {duration(row.gpu_ns)} of GPU time{share}", "value"
    if row.bytes is not None:
        rate = "" if row.bytes_per_s is None else f" at {si(row.bytes_per_s, 'B/s')}"
        yield f"{binary_bytes(row.bytes)}{rate}", "value"
    if row.speed:
        yield row.speed, "value"
    if row.recorded:
        yield f"recorded: {row.recorded}", "text"


VIEW: Final = SpansPane
