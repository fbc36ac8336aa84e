"""The panes of the live screen, one entry for each: where it stands, when it is of use, what it opens into.

What is shown where follows from three values: the room there is, what the trace has, and where the focus is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from llmtop.analysis.pages.gpus import gpu_processes_table, gpu_rows
from llmtop.analysis.series.readings import gpu_tracks, why_no_gpu
from llmtop.analysis.server.heatmaps import run_queue_heatmap, syscall_heatmap
from llmtop.analysis.threads.shares import threads_view
from llmtop.analysis.threads.syscalls import syscalls_table, syscalls_view
from llmtop.analysis.threads.table import threads_table
from llmtop.model import TrackKind, Unknown
from llmtop.tui.panes.gpu import GpuPane
from llmtop.tui.panes.heatmap import HeatSource
from llmtop.tui.panes.lanes import LanesPane
from llmtop.tui.panes.log import LogPane
from llmtop.tui.panes.roofline_live import RooflinePane
from llmtop.tui.panes.server import ServerPane
from llmtop.tui.panes.stall_flame import StallFlamePane
from llmtop.tui.panes.syscalls import SyscallsPane
from llmtop.tui.panes.threads import ThreadsPane

if TYPE_CHECKING:
    from llmtop.analysis.views import Heatmap, TableView
    from llmtop.model import Target, Trace
    from llmtop.servers.launch import Launched
    from llmtop.tui.panes.base import Pane

_SMALL = (60, 18)
"""Below this many columns or rows one pane is shown at a time."""
_WIDE = 100
_LARGE = (160, 50)
"""Columns and rows from which system calls have a place beside the others."""
_TALL = 36
"""Rows from which the findings get a third line."""
_KEYS_ROWS = 18
_MANY_GPUS, _CROWD = 4, 8
"""With more GPUs (MIG instances count too) than this a line for each needs more height than the server's numbers."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What the screen is about: a server (None: the GPUs alone), and the command that llmtop itself started."""

    target: Target | None
    launched: Launched | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """The screen's size in cells, and how many GPUs share it."""

    width: int
    height: int
    gpus: int = 0

    @property
    def is_small(self) -> bool:
        """Whether there is room for one pane only."""
        return self.width < _SMALL[0] or self.height < _SMALL[1]

    @property
    def is_wide(self) -> bool:
        """Whether two panes of text fit side by side."""
        return self.width >= _WIDE

    @property
    def is_tall(self) -> bool:
        """Whether there are rows to spare."""
        return self.height >= _TALL

    @property
    def is_large(self) -> bool:
        """Whether there is room for every pane."""
        return self.width >= _LARGE[0] and self.height >= _LARGE[1]

    @property
    def is_cramped(self) -> bool:
        """Whether lines for many GPUs need the room of the lanes."""
        return self.gpus > _MANY_GPUS and not self.is_tall

    @property
    def has_keys(self) -> bool:
        """Whether the last line lists keys."""
        return self.height >= _KEYS_ROWS

    def classes(self) -> dict[str, bool]:
        """What the style sheet is told."""
        return {
            "-wide": self.is_wide,
            "-roomy": not self.is_small and not self.is_tall,
            "-tall": self.is_tall,
            "-cramped": self.is_cramped,
            "-many-gpus": self.gpus > _MANY_GPUS and self.is_tall,
            "-crowd": self.gpus > _CROWD and self.is_tall,
        }


def gpu_lines(trace: Trace) -> int:
    """How many lines GPUs ask for: MIG instances have lines of their own."""
    return len(gpu_tracks(trace)) + len(trace.tracks_of(TrackKind.GPU_INSTANCE))


TableMaker: TypeAlias = "Callable[[Trace, Watched], TableView | Unknown]"


def _always(_: Watched, __: Room) -> bool:
    return True


def _with_a_server(watched: Watched, _: Room) -> bool:
    """Without a server to watch, its panes give their room to the GPUs; their digits still work."""
    return watched.target is not None


_NO_ROWS = Unknown("no rows")


@dataclass(frozen=True, slots=True)
class Place:
    """A pane of the live screen.

    Attributes:
        view: What kind of pane: its digit and title are its own.
        container: Where it stands: "top", "right", "middle" or "body".
        make: The pane; None where there is nothing for it to show.
        fits: Whether it has a place beside the others.
        has_data: Where given, the pane has its place only once the trace has had something for it: what comes and goes
            with the probes must not move the others.
        needs_gpu: On a machine without a GPU it folds into a line with the others, beside a server's own panes.
        table: The rows that it opens into when it is zoomed; why there are none keeps the pane itself.
        table_title: What stands above these rows; the pane's own title where empty.
        keeps_pane: Whether the pane stays above its rows.
        no_rows: Why there are none.
        heatmap: The latencies that it opens into instead, with the key h.
    """

    view: type[Pane[Any]]
    container: str
    make: Callable[[Watched], Pane[Any] | None]
    fits: Callable[[Watched, Room], bool] = _always
    has_data: Callable[[Trace], bool] | None = None
    needs_gpu: bool = False
    table: TableMaker | None = None
    table_title: str = ""
    keeps_pane: bool = False
    no_rows: Unknown = _NO_ROWS
    heatmap: HeatSource | None = None

    @property
    def number(self) -> int:
        """The digit of the pane."""
        return self.view.number


def _gpu_processes(trace: Trace, watched: Watched) -> TableView | Unknown:
    rows = gpu_rows(trace, watched.target)
    return rows if isinstance(rows, Unknown) else gpu_processes_table(rows)


def _threads(trace: Trace, _: Watched) -> TableView | Unknown:
    view = threads_view(trace)
    return view if isinstance(view, Unknown) else threads_table(trace, view)


def _system_calls(trace: Trace, _: Watched) -> TableView | Unknown:
    view = syscalls_view(trace)
    return view if isinstance(view, Unknown) else syscalls_table(view)


def _run_queue(trace: Trace, _: str | None, window_ns: int, columns: int, known: Heatmap | None) -> Heatmap | Unknown:
    return run_queue_heatmap(trace, window_ns, columns, known)


def _call_names(trace: Trace) -> tuple[str, ...]:
    view = syscalls_view(trace)
    return () if isinstance(view, Unknown) else tuple(call.name for call in view.calls)


PLACES = (
    Place(RooflinePane, "top", lambda watched: RooflinePane(watched.target), needs_gpu=True),
    Place(ServerPane, "right", lambda watched: ServerPane(watched.target), fits=_with_a_server),
    Place(
        GpuPane,
        "right",
        lambda watched: GpuPane(watched.target),
        table=_gpu_processes,
        table_title="Processes on the GPUs",
        keeps_pane=True,
        no_rows=Unknown("no process holds memory on a GPU, or the driver does not tell: see d"),
        needs_gpu=True,
    ),
    Place(
        ThreadsPane,
        "middle",
        lambda watched: ThreadsPane(watched.target),
        fits=_with_a_server,
        table=_threads,
        heatmap=HeatSource("from ready to run to on a CPU", _run_queue),
    ),
    Place(
        StallFlamePane,
        "middle",
        lambda watched: StallFlamePane(watched.target),
        fits=lambda watched, room: room.is_wide and watched.target is not None,
    ),
    Place(
        SyscallsPane,
        "middle",
        lambda watched: SyscallsPane(watched.target),
        fits=lambda watched, room: room.is_large and watched.launched is None,
        has_data=lambda trace: not isinstance(syscalls_view(trace), Unknown),
        table=_system_calls,
        heatmap=HeatSource("of system calls", syscall_heatmap, _call_names),
    ),
    Place(
        LogPane,
        "middle",
        lambda watched: LogPane(watched.launched) if watched.launched is not None else None,
        fits=lambda watched, _: watched.launched is not None,
    ),
    Place(LanesPane, "body", lambda watched: LanesPane(watched.target), fits=lambda _, room: not room.is_cramped),
)
"""In the order in which they stand on the screen, which is the order of Tab."""


def places_of_use(
    watched: Watched, room: Room, trace: Trace | None, had: frozenset[int] = frozenset()
) -> frozenset[int]:
    """The panes that have a place beside the others now; `had` are those that have had something to show."""
    fitting = (place for place in PLACES if place.fits(watched, room))
    with_data = frozenset(
        place.number
        for place in fitting
        if place.has_data is None or place.number in had or (trace is not None and place.has_data(trace))
    )
    return with_data - folded_places(watched, trace)


def folded_places(watched: Watched, trace: Trace | None) -> frozenset[int]:
    """The panes that a line stands for: those of GPUs, where a server runs without one."""
    if watched.target is None or trace is None or why_no_gpu(trace) is None:
        return frozenset()
    return frozenset(place.number for place in PLACES if place.needs_gpu)


class Form(StrEnum):
    """What takes the room of the panes."""

    PANES = "panes"
    TABLE = "table"
    HEATMAP = "heatmap"
    EVENTS = "events"


@dataclass(frozen=True, slots=True)
class Focus:
    """Where the user is: on a pane, in it alone, or in the event log.

    Attributes:
        is_lent: The pane has the screen to itself only because it has no place beside the others.
    """

    number: int = 1
    is_zoomed: bool = False
    is_lent: bool = False
    is_log_open: bool = False
    is_heatmap: bool = False


def form_of(focus: Focus, *, has_table: bool) -> Form:
    """What is shown: the event log, the heatmap or the rows of a zoomed pane, or panes."""
    if focus.is_log_open:
        return Form.EVENTS
    if focus.is_zoomed and focus.is_heatmap:
        return Form.HEATMAP
    return Form.TABLE if focus.is_zoomed and has_table else Form.PANES


def shown_panes(
    focus: Focus, form: Form, of_use: frozenset[int], *, is_small: bool, keeps_pane: bool
) -> frozenset[int]:
    """The panes on the screen: all that are of use, one alone, or none where rows or the log take its place."""
    if form in (Form.EVENTS, Form.HEATMAP) or (form is Form.TABLE and not keeps_pane):
        return frozenset()
    return frozenset({focus.number}) if focus.is_zoomed or is_small else of_use
