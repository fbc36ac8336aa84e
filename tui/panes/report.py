"""What the explorer's panes share: views made off the screen's thread, pages of lines, a table with details."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from llmtop.analysis.tables import RowTable
from llmtop.model import Unknown
from llmtop.tui.panes.base import Pane
from llmtop.tui.panes.table import TablePane, VirtualTable
from llmtop.tui.render.lines import Part, line, prose
from llmtop.tui.render.look import Look

if TYPE_CHECKING:
    from collections.abc import Hashable

    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.analysis.views import Column
    from llmtop.model import Trace

V = TypeVar("V")
ANALYSING = Unknown("analysing")


class KernelWanted(Message):
    """Show the details of one launch."""

    def __init__(self, launch: int) -> None:
        super().__init__()
        self.launch = launch


class ReportPane(Pane[V]):
    """A pane whose view may decode much of a report: it is made on a thread, once, when the pane is first seen."""

    def _renew(self) -> None:
        if self._stale and self._trace is not None:
            self._stale = False
            self._view = ANALYSING
            self.run_worker(partial(self._analyse, self._trace), thread=True, exclusive=True, exit_on_error=False)
        self._paint()

    def _analyse(self, trace: Trace) -> None:
        try:
            view = self.view(trace)
        except Exception as error:  # the border: a fault in a view costs only its pane
            self.app.call_from_thread(self._take_fault, error)
        else:
            self.app.call_from_thread(self._take, view)

    def _take(self, view: V | Unknown) -> None:
        self._view = view
        self._paint()

    def _take_fault(self, error: Exception) -> None:
        self._fail(error)
        self._paint()


class PagedPane(ReportPane[V], Generic[V]):
    """A pane of more lines than fit, with a cursor or a page that keys move."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "move", show=False, tooltip="Move the cursor"),
        Binding("down,j", "move(1)", "move", show=False, tooltip="Move the cursor"),
        Binding("pageup", "page(-1)", "page", show=False, tooltip="A page up or down"),
        Binding("pagedown", "page(1)", "page", show=False, tooltip="A page up or down"),
        Binding("home,g", "edge(-1)", "first", show=False, tooltip="First or last row"),
        Binding("end,G", "edge(1)", "last", show=False, tooltip="First or last row"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.at = 0

    @abstractmethod
    def count(self) -> int:
        """Places that `at` can take."""

    def _go(self, at: int) -> None:
        self.at = max(0, min(at, self.count() - 1))
        self.redraw()

    def action_move(self, step: int) -> None:
        """Move by one."""
        self._go(self.at + step)

    def action_page(self, step: int) -> None:
        """Move by what fits."""
        self._go(self.at + step * max(1, self.size.height - 2))

    def action_edge(self, side: int) -> None:
        """Move to the beginning or the end."""
        self._go(0 if side < 0 else self.count() - 1)

    def on_mouse_scroll_down(self) -> None:
        self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-1)


class TextPane(PagedPane["tuple[tuple[str, str], ...]"]):
    """Paragraphs of (text, role), wrapped to the width; moves by lines."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Strip] = []

    def show_text(self, paragraphs: tuple[tuple[str, str], ...]) -> None:
        """Take a text in place of the last one."""
        self.at = 0
        self._view = paragraphs
        self.redraw()

    def count(self) -> int:
        return max(1, len(self._lines) - self.size.height + 1)

    def draw(self, view: tuple[tuple[str, str], ...], width: int, height: int, look: Look) -> list[Strip]:
        self._lines = paragraphs_of(view, width, look)
        self.at = min(self.at, self.count() - 1)
        return self._lines[self.at : self.at + height]


def paragraphs_of(paragraphs: tuple[tuple[str, str], ...], width: int, look: Look) -> list[Strip]:
    """Wrapped lines of (text, role) paragraphs; an empty text is an empty line."""
    return [
        strip
        for text, role in paragraphs
        for strip in (prose(text, width, look, role) or [line([("", "text")], width, look)])
    ]


def shown_fact(key: str, value: object, width: int) -> tuple[str, list[Part]]:
    """A key and its value for `columns`, an unknown one with its reason."""
    if isinstance(value, Unknown):
        return key, [(str(value), "dim")]
    return key, [(str(value), "text")]


class ListPane(Vertical):
    """A table over the details of the row under its cursor.

    A subclass gives `analyse`, which may be slow, and `details`.
    """

    DEFAULT_CSS = """
    ListPane TablePane { height: 1fr; }
    ListPane TextPane { height: 40%; max-height: 12; }
    ListPane.-low TextPane, ListPane.-empty TextPane { display: none; }
    ListPane.-open TextPane { display: block; height: 2fr; max-height: 100%; }
    """
    title: ClassVar[str] = ""
    number: ClassVar[int] = 0
    COLUMNS: ClassVar[tuple[Column, ...]] = ()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.listing = TablePane(f"{self.number} {self.title}" if self.number else self.title)
        self.text = TextPane()
        self.text.can_focus = False
        self._trace: Trace | None = None

    def compose(self) -> ComposeResult:
        yield self.listing
        yield self.text

    def analyse(self, trace: Trace) -> RowTable | Unknown:
        """The rows, or why there are none; runs on a thread."""
        raise NotImplementedError

    def details(self, key: Any) -> tuple[tuple[str, str], ...]:
        """What to say of a row, by its key."""
        raise NotImplementedError

    def show(self, trace: Trace) -> None:
        """Take the trace; the work starts at once, as a list is made when it is first seen."""
        self._trace = trace
        self.listing.show_table(RowTable(self.COLUMNS, (), ()), ANALYSING)
        self.run_worker(partial(self._work, trace), thread=True, exclusive=True, exit_on_error=False)

    def _work(self, trace: Trace) -> None:
        try:
            rows = self.analyse(trace)
        except Exception as error:  # the border: a fault in a view costs only its pane
            self.app.call_from_thread(self._take, _fault(error))
        else:
            self.app.call_from_thread(self._take, rows)

    def _take(self, rows: RowTable | Unknown) -> None:
        if isinstance(rows, Unknown):
            self.listing.show_table(RowTable(self.COLUMNS, (), ()), rows)
        else:
            self.listing.show_table(rows)

    def on_resize(self) -> None:
        self.set_class(self.size.height < 18, "-low")

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        rows = event.table.rows
        if rows is not None and len(rows):
            self.text.show_text(self.details(rows.key(event.table.cursor)))
        self.set_class(rows is None or not len(rows), "-empty")

    def on_virtual_table_chosen(self, event: VirtualTable.Chosen) -> None:
        """Give the details more room, or take it back."""
        self.toggle_class("-open")


def _fault(error: Exception) -> Unknown:
    return Unknown(f"this pane failed: {type(error).__name__}: {error}; please report this")


def table_of(columns: tuple[Column, ...], rows: dict[Hashable, tuple[Any, ...]]) -> RowTable:
    """A table of rows by key."""
    return RowTable(columns, tuple(rows.values()), tuple(rows))
