"""What all that is shown has in common, of live and of recorded traces: where it stands, and what it is of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar

from textual.message import Message

from llmtop.analysis.series.recorded import told_of
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.tui.faults import FaultBorder
from llmtop.tui.textual_private import leave_out_keys

if TYPE_CHECKING:
    from textual.screen import Screen
    from textual.widget import Widget

    from llmtop.analysis.views import Heatmap, TableView
    from llmtop.model import CoreDump, Stretch, Target, Trace, TrackId, What
    from llmtop.notes import NoteKind
    from llmtop.servers.launch import Launched
    from llmtop.tui.render.look import Look

V = TypeVar("V")
Paragraphs: TypeAlias = "tuple[tuple[str, str], ...]"
"""Texts with the roles that they are drawn in."""

NO_ROWS = Unknown("this pane has no rows")
LAST_DIGIT: Final = 9


@frozen
class Baseline:
    """Another file, with what to call it."""

    name: str
    trace: Trace


@frozen
class Context:
    """What a view knows beside its trace.

    Attributes:
        target: The server that is watched; None for a file, and where the GPUs are watched alone.
        launched: The command that llmtop itself started.
        is_still: No other trace follows: a view of it is made once, beside the screen, as it may decode much of a file.
        baseline: What a file is compared with; None where no other one is.
    """

    target: Target | None = None
    launched: Launched | None = None
    is_still: bool = False
    baseline: Baseline | None = None

    @property
    def is_of_a_server(self) -> bool:
        """Whether there is a server, or may have been one: a file tells by itself what it is of."""
        return self.target is not None or self.is_still


RECORDED = Context(is_still=True)


@frozen
class Moment:
    """What a screen of a running server shows.

    Attributes:
        newest: What is known now, or when the picture was held.
        shown: The same as it stood at the moment.
        at_ns: The moment; None for the newest.
        window_ns: How much time views with an axis draw.
    """

    newest: Trace
    shown: Trace
    at_ns: int | None
    window_ns: int


class MomentWanted(Message):
    """Show another moment in all views (None: now)."""

    def __init__(self, t_ns: int | None) -> None:
        super().__init__()
        self.t_ns = t_ns

    def can_replace(self, message: Message) -> bool:
        """Of several steps only the last matters to the other views."""
        return isinstance(message, MomentWanted)


class WindowWanted(Message):
    """Show another stretch of time in every view with an axis."""

    def __init__(self, window_ns: int) -> None:
        super().__init__()
        self.window_ns = window_ns


class EventWanted(Message):
    """Open the log of events at the one that was at a moment."""

    def __init__(self, t_ns: int) -> None:
        super().__init__()
        self.t_ns = t_ns


class GpuWanted(Message):
    """Show this GPU (a track's id) in every view of one GPU; None lets each choose."""

    def __init__(self, gpu: TrackId | None) -> None:
        super().__init__()
        self.gpu = gpu


class DumpWanted(Message):
    """Open a core dump of a GPU over what is on the screen."""

    def __init__(self, dump: CoreDump) -> None:
        super().__init__()
        self.dump = dump


class CollectionWanted(Message):
    """Collect something that is not collected unasked, or no longer."""

    def __init__(self, what: What, is_wanted: bool) -> None:
        super().__init__()
        self.what = what
        self.is_wanted = is_wanted


class NoteWanted(Message):
    """Ask the user for a name or a note, and keep it.

    Attributes:
        key: The full name of the kernel; empty for the report on the screen.
        called: What it is of, in short.
        text: What there is.
    """

    def __init__(self, kind: NoteKind, key: str, called: str, text: str) -> None:
        super().__init__()
        self.kind, self.key, self.called, self.text = kind, key, called, text


class StretchWanted(Message):
    """Show a stretch of the file's time on its time axis."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__()
        self.stretch = stretch


def _no_choice(_: Trace) -> tuple[str, ...]:
    return ()


@frozen
class HeatSource:
    """Where a heatmap comes from.

    Attributes:
        title: What stands in the border.
        make: (trace, what of the choices, window in ns, columns, the last heatmap) to a heatmap, or why there is none.
        choices: What it can be of one by one; None stands for all together.
    """

    title: str
    make: Callable[[Trace, str | None, int, int, Heatmap | None], Heatmap | Unknown]
    choices: Callable[[Trace], Sequence[str]] = _no_choice

    @property
    def has_choices(self) -> bool:
        """Whether there is more than one thing to show."""
        return self.choices is not _no_choice


Suits: TypeAlias = "Callable[[Context], bool]"


def always(_: Context) -> bool:
    """Whatever is watched."""
    return True


def with_a_server(context: Context) -> bool:
    """Without a server to watch, its panes give their room to the GPUs; their digits still work."""
    return context.target is not None


@frozen
class Place:
    """Where a view stands on the live screen, when it is of use there, and what it opens into.

    Attributes:
        number: Its digit; a higher number is none, and Tab gets there.
        container: "top", "right", "middle" or "body".
        title: What it is called there; as in the explorer where empty.
        least: Columns and rows of the screen from which it stands beside the others.
        least_among_many: The same where lines for many GPUs want room.
        exists: Whether there can be anything for it to show.
        suits: Whether it stands beside the others at all; its digit opens it in any case.
        waits: It has its place only once the trace has had something for it (`View.why_not`): what comes and goes with
            the probes must not move the others.
        needs_gpu: On a machine without a GPU it folds into a line with the others, beside a server's own panes.
        rows_title: What stands above the rows that it opens into (`View.rows`); its own title where empty.
        keeps_pane: Whether it stays above its rows.
        no_rows: Why there are none.
        heatmap: The latencies that it opens into instead, with the key h.
    """

    number: int
    container: str
    title: str = ""
    least: tuple[int, int] = (0, 0)
    least_among_many: tuple[int, int] = (0, 0)
    exists: Suits = always
    suits: Suits = always
    waits: bool = False
    needs_gpu: bool = False
    rows_title: str = ""
    keeps_pane: bool = False
    no_rows: Unknown = NO_ROWS
    heatmap: HeatSource | None = None


class View(FaultBorder, Generic[V]):
    """A part of what is known: one thing to look at, in a file of its own, whatever the trace comes from.

    Registered in `recorded.MODULES` it is a tab of the explorer, in `live.MODULES` a pane of the live screen; both is
    fine. `view` is what it makes of a trace, and all else is of that alone: what a `Pane` draws, the rows that are
    searched, sorted, copied and written, what is said of one of them, what Enter on it opens. So far it is pure.
    Its keys are its `BINDINGS`; those that do nothing for what is shown, `check_action` takes away.
    It stands behind Textual's own class among the bases, as `FaultBorder` does.
    """

    number: int = 0
    """The digit that brings it to the front, in the explorer unless it stands elsewhere; 0 for none."""

    title: str = ""

    is_of_reports: ClassVar[bool] = True
    """Whether a report of kernels has it: what tabs show while a file is being read."""

    is_of_two: ClassVar[bool] = False
    """Whether it is of a file and its baseline: without one it is not there."""

    place: ClassVar[Place | None] = None
    """Where it stands on the live screen; None for a view of files alone."""

    of_files: ClassVar[frozenset[str]] = frozenset()
    """Actions of its keys that only a file has a use for: on the live screen these keys are the screen's."""

    of_live: ClassVar[frozenset[str]] = frozenset()
    """The same for traces that go on."""

    least_ns: ClassVar[int] = 0
    """How much newer than what is shown a trace must be to be shown. What is summed over many seconds need not follow
    each frame."""

    context: Context = RECORDED

    is_zoomed = False
    """Whether it has the screen to itself, and so may show more."""

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        """Why a trace has nothing for this view; None where it is shown."""
        return None

    def within(self, context: Context) -> Self:
        """Take what is known beside the trace; on the live screen it has the digit and the title of its place."""
        self.context = context
        leave_out_keys(self, self.of_live if context.is_still else self.of_files)
        if not context.is_still and self.place is not None:
            self.number, self.title = self.place.number, self.place.title or type(self).title
        return self

    def show(self, trace: Trace) -> None:
        """Take a trace."""
        raise NotImplementedError

    def show_moment(self, moment: Moment) -> None:
        """Take what the screen shows; a view with a time axis also what came after."""
        self.show(moment.shown)

    def choose_gpu(self, gpu: TrackId | None) -> None:
        """Be of this GPU from the next trace on; views of one GPU heed it."""

    @property
    def heading(self) -> str:
        """Its digit, where it has one, and its title."""
        return f"{self.number} {self.title}" if 0 < self.number <= LAST_DIGIT else self.title

    @property
    def wanting_keys(self) -> Widget:
        """The part of it that keys are for."""
        return self

    def view(self, trace: Trace) -> V | Unknown:
        """What to show of a trace, or why there is nothing to show."""
        raise NotImplementedError

    def view_of(self, trace: Trace) -> V | Unknown:
        """The same as it is told of this trace: a recording has no use for what helps who looks live."""
        return told_of(trace, self.view(trace))

    @classmethod
    def has_rows(cls) -> bool:
        """Whether there are rows in it, or it opens into some."""
        return cls.rows is not View.rows

    def rows(self, view: V, trace: Trace) -> TableView | Unknown:
        """Its rows; of a view that is drawn those that it opens into: why there are none keeps the drawing."""
        return NO_ROWS

    def rows_of(self, trace: Trace) -> TableView | Unknown:
        """Its rows of a trace."""
        if not self.has_rows():
            return NO_ROWS
        view = self.view_of(trace)
        return view if isinstance(view, Unknown) else self.rows(view, trace)

    def details(self, view: V, trace: Trace, key: Any, width: int, look: Look) -> Paragraphs:
        """What is said of a row below all of them, by the row's key; nothing where its cells are all there is."""
        return ()

    def summed(self, view: V, rows: TableView) -> str:
        """What is said of all rows together, or of those that a filter leaves."""
        return ""

    def full_name(self, rows: TableView, row: int) -> str:
        """The name that the cells of a row have in short; empty where they have it in full."""
        return ""

    def described(self, rows: TableView, row: int) -> str:
        """What the line below the rows says of one whose cells are all known: the full name, say."""
        return ""

    def rows_beside(self, rows: TableView, columns: Collection[str]) -> TableView:
        """The same rows as they read beside the columns of these keys, which are shown: none says what another does."""
        return rows

    @classmethod
    def opens_rows(cls) -> bool:
        """Whether Enter on a row does anything: there is more to say of it, or to go to."""
        return cls.details is not View.details or cls.opened is not View.opened

    def when(self, view: V, trace: Trace, key: Any) -> Stretch | Unknown:
        """From when to when a row is, by its key: its place in a timeline."""
        return Unknown("these rows are no stretches of time")

    def show_stretch(self, stretch: Stretch) -> None:
        """Show a stretch of the trace's time, from the next drawing on."""
        raise NotImplementedError

    @classmethod
    def has_time_axis(cls) -> bool:
        """Whether it can show any stretch of a trace's time."""
        return cls.show_stretch is not View.show_stretch

    def kernel_here(self) -> int | None:
        """A launch of the kernel that was gone to in it; None while that is the one it begins at."""
        return None

    def show_kernel(self, launch: int) -> None:
        """Show the kernel of a launch, from the next drawing on."""
        raise NotImplementedError

    @classmethod
    def is_of_one_kernel(cls) -> bool:
        """Whether it can show any kernel by itself."""
        return cls.show_kernel is not View.show_kernel

    def opened(self, view: V, trace: Trace, key: Any) -> Screen[None] | Message | Unknown | None:
        """What Enter on a row opens, or asks the screen for, by the row's key; None for nothing but more details."""
        return None
