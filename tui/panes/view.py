"""What all that is shown has in common, of live and of recorded traces: where it stands, and what it is of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from llmtop.model import Unknown
from llmtop.tui.faults import FaultBorder
from llmtop.tui.textual_private import leave_out_keys

if TYPE_CHECKING:
    from textual.screen import Screen

    from llmtop.analysis.views import TableView
    from llmtop.model import Target, Trace
    from llmtop.servers.launch import Launched
    from llmtop.tui.panes.heatmap import HeatSource

NO_ROWS = Unknown("this pane has no rows")


@dataclass(frozen=True, slots=True)
class Context:
    """What a view knows beside its trace.

    Attributes:
        target: The server that is watched; None for a file, and where the GPUs are watched alone.
        launched: The command that llmtop itself started.
        is_still: No other trace follows: a view of it is made once, beside the screen, as it may decode much of a file.
    """

    target: Target | None = None
    launched: Launched | None = None
    is_still: bool = False


RECORDED = Context(is_still=True)

Suits: TypeAlias = "Callable[[Context], bool]"


def always(_: Context) -> bool:
    """Whatever is watched."""
    return True


def with_a_server(context: Context) -> bool:
    """Without a server to watch, its panes give their room to the GPUs; their digits still work."""
    return context.target is not None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a view stands on the live screen, when it is of use there, and what it opens into.

    Attributes:
        number: Its digit.
        container: "top", "right", "middle" or "body".
        title: What it is called there; as in the explorer where empty.
        least: Columns and rows of the screen from which it stands beside the others.
        least_among_many: The same where lines for many GPUs want room.
        exists: Whether there can be anything for it to show.
        suits: Whether it stands beside the others at all; its digit opens it in any case.
        waits: It has its place only once the trace has had something for it (`View.why_not`): what comes and goes with
            the probes must not move the others.
        needs_gpu: On a machine without a GPU it folds into a line with the others, beside a server's own panes.
        rows_title: What stands above the rows that it opens into (`View.table`); its own title where empty.
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


class View(FaultBorder):
    """A part of what is known: one thing to look at, in a file of its own, whatever the trace comes from.

    Registered in `recorded.MODULES` it is a tab of the explorer, in `live.MODULES` a pane of the live screen; both is
    fine. Its keys are its `BINDINGS`; those that do nothing for what is shown, `check_action` takes away.
    It stands behind Textual's own class among the bases, as `FaultBorder` does.
    """

    number: int = 0
    """The digit that brings it to the front, in the explorer unless it stands elsewhere; 0 for none."""

    title: str = ""

    is_of_reports: ClassVar[bool] = True
    """Whether a report of kernels has it: what tabs show while a file is being read."""

    place: ClassVar[Place | None] = None
    """Where it stands on the live screen; None for a view of files alone."""

    of_files: ClassVar[frozenset[str]] = frozenset()
    """Actions of its keys that only a file has a use for: on the live screen these keys are the screen's."""

    of_live: ClassVar[frozenset[str]] = frozenset()
    """The same for traces that go on."""

    context: Context = RECORDED

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

    def table(self, trace: Trace) -> TableView | Unknown:
        """What it opens into when it is zoomed; why there are none keeps the pane itself."""
        return NO_ROWS

    def opened(self, trace: Trace, key: object) -> Screen[None] | Unknown | None:
        """What Enter on a row opens, by the row's key; None for nothing."""
        return None
