"""What the explorer's panes share: views made off the screen's thread, pages of lines, a table with details."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from llmtop.analysis.tables import RowTable
from llmtop.model import Unknown
from llmtop.tui.aside import ANALYSING, Analysed, analyse_on_thread
from llmtop.tui.contents import Contents
from llmtop.tui.panes.base import Pane, look_of
from llmtop.tui.panes.table import TablePane, VirtualTable
from llmtop.tui.panes.view import RECORDED, View
from llmtop.tui.render.lines import line, prose
from llmtop.tui.render.look import Look

if TYPE_CHECKING:
    from collections.abc import Hashable

    from textual.app import ComposeResult
    from textual.strip import Strip

    from llmtop.analysis.views import Column
    from llmtop.model import Trace

V = TypeVar("V")
_ASKED = 40
"""Rows whose details are asked for how long they are."""
_BORDER = 2
_TABLE_LINES = _BORDER + 2
"""What a table has besides its rows: its header, and the line below."""
_MOST_DETAILS = 12
"""Lines that details take from a table that could use them."""
DRAWN = "drawn"
"""In the place of a role: the text is a drawing, whose cells keep their places and whose blanks say something."""


class KernelWanted(Message):
    """Show the details of one launch."""

    def __init__(self, launch: int) -> None:
        super().__init__()
        self.launch = launch


class PagedPane(Pane[V], Generic[V]):
    """A pane of more lines than fit, with a cursor or a page that keys move; of a file, unless it is told otherwise."""

    context = RECORDED

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


class LinesPane(PagedPane[V], Generic[V]):
    """A text of more lines than fit; moves by lines."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Strip] = []

    @abstractmethod
    def lines(self, view: V, width: int, look: Look) -> list[Strip]:
        """All of them."""

    def text_lines(self) -> list[str]:
        return [strip.text for strip in self._lines]

    def draw(self, view: V, width: int, height: int, look: Look) -> list[Strip]:
        self._lines = self.lines(view, width, look)
        self.at = min(self.at, self.count() - 1)
        return self._lines[self.at : self.at + height]

    def count(self) -> int:
        return max(1, len(self._lines) - self.size.height + 1)


class MeaningsPane(LinesPane[None]):
    """Lines that are the same for every file."""

    def __init__(self) -> None:
        super().__init__()
        self._view = None


class TextPane(LinesPane["tuple[tuple[str, str], ...]"]):
    """Paragraphs of (text, role), wrapped to the width."""

    def show_fault(self, said: str) -> None:
        self._view = ((said, "bad"),)
        super().show_fault(said)

    def show_text(self, paragraphs: tuple[tuple[str, str], ...]) -> None:
        """Take a text in place of the last one."""
        self.at = 0
        self._view = paragraphs
        self.redraw()

    def lines(self, view: tuple[tuple[str, str], ...], width: int, look: Look) -> list[Strip]:
        return paragraphs_of(view, width, look)


def paragraphs_of(paragraphs: tuple[tuple[str, str], ...], width: int, look: Look) -> list[Strip]:
    """Wrapped lines of (text, role) paragraphs; an empty text is an empty line, and a `DRAWN` one stays as it is."""
    return [
        strip
        for text, role in paragraphs
        for strip in (
            [line([(text, "value")], width, look)]
            if role == DRAWN
            else prose(text, width, look, role) or [line([("", "text")], width, look)]
        )
    ]


class ListPane(Vertical, View):
    """A table over the details of the row under its cursor.

    A subclass gives `analyse`, which may be slow, and `details`.
    """

    DEFAULT_CSS = """
    ListPane TablePane { height: 1fr; }
    ListPane TextPane { max-height: 12; }  /* until it is known what details need: see _share_room */
    ListPane.-low TextPane, ListPane.-empty TextPane { display: none; }
    ListPane.-open TextPane { display: block; max-height: 100%; }
    """
    COLUMNS: ClassVar[tuple[Column, ...]] = ()
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page_details(-1)", "details", show=False, priority=True, tooltip="A page of open details"),
        Binding("pagedown", "page_details(1)", "details", show=False, priority=True, tooltip="A page of open details"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.listing = TablePane(f"{self.number} {self.title}" if self.number else self.title)
        self.text = TextPane()
        self.text.can_focus = False
        self._trace: Trace | None = None

    def compose(self) -> ComposeResult:
        yield self.listing
        yield self.text

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Pages are the table's, unless the details have been given the room."""
        if action == "page_details":
            return self.has_class("-open")
        return super().check_action(action, parameters)

    def action_page_details(self, step: int) -> None:
        """Read on in details that do not fit."""
        self.text.action_page(step)

    def contents(self) -> Contents | Unknown:
        """The rows, and the details of the one under the cursor."""
        rows = self.listing.contents()
        return rows if isinstance(rows, Unknown) else replace(rows, lines=self.text.text_lines())

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
        analyse_on_thread(self, trace, self.analyse)

    def show_fault(self, said: str) -> None:
        self.listing.show_fault(said)

    def on_analysed(self, message: Analysed) -> None:
        rows = message.result
        if isinstance(rows, Exception):
            self.fail(rows)
        elif isinstance(rows, Unknown):
            self.listing.show_table(RowTable(self.COLUMNS, (), ()), rows)
        else:
            self.listing.show_table(rows)
            self._share_room()

    def on_resize(self) -> None:
        self.set_class(self.size.height < 18, "-low")
        self._share_room()

    def _share_room(self) -> None:
        """Give the details what the longest need: of what the table leaves, or else two fifths; the table the rest.

        The same for every row, as the table must not move with its cursor.
        """
        source, width = self.listing.table.source, self.size.width - _BORDER
        if self.has_class("-open") or source is None or not len(source) or width < 1:
            self._give_details(None)
            return
        with self.text.border():
            keys = [source.key(i) for i in range(min(len(source), _ASKED))]
            needed = max(len(paragraphs_of(self.details(key), width, look_of(self))) for key in keys) + _BORDER
            left = self.size.height - len(source) - _TABLE_LINES
            self._give_details(min(needed, max(left, min(_MOST_DETAILS, self.size.height * 2 // 5))))

    def _give_details(self, lines: int | None) -> None:
        """So many, or what the style sheet says."""
        self.text.styles.height = self.text.styles.max_height = lines

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        rows = event.table.rows
        if rows is not None and len(rows):
            with self.text.border():
                self.text.show_text(self.details(rows.key(event.table.cursor)))
        self.set_class(rows is None or not len(rows), "-empty")

    def on_virtual_table_chosen(self, event: VirtualTable.Chosen) -> None:
        """Give the details more room, or take it back."""
        self.toggle_class("-open")
        self._share_room()


def table_of(columns: tuple[Column, ...], rows: dict[Hashable, tuple[Any, ...]]) -> RowTable:
    """A table of rows by key; columns of text are no wider than their longest one."""
    widest = tuple(max((len(str(row[i])) for row in rows.values()), default=0) for i in range(len(columns)))
    fitted = tuple(_no_wider(column, longest) for column, longest in zip(columns, widest, strict=True))
    return RowTable(fitted, tuple(rows.values()), tuple(rows), widest)


def _no_wider(column: Column, longest: int) -> Column:
    needed = max(longest, len(column.title) + 1)  # and an arrow where it is sorted by
    return column if column.is_number or column.width <= needed else replace(column, width=needed)
