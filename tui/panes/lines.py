"""Panes of more lines than fit: they move by lines and pages, and are searched as `less` is."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final, Generic

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.tui.panes.base import ROW_KEYS, Pane
from llmtop.tui.panes.view import RECORDED, V
from llmtop.tui.render.lines import line, prose
from llmtop.tui.render.search import FoundPart, marked, places_of
from llmtop.tui.textual_private import bindings_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual import events
    from textual.strip import Strip

    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look

DRAWN = "drawn"
"""In the place of a role: the text is a drawing, whose cells keep their places and whose blanks say something."""
_SEARCH_KEY: Final = "slash"
_HERE, _ELSEWHERE = "cursor", "selected"
"""The roles of the place that was gone to, and of the others."""


class PagedPane(Pane[V], Generic[V]):
    """A pane of more lines than fit, with a cursor or a page that keys move; of a file, unless it is told otherwise."""

    context = RECORDED

    BINDINGS: ClassVar[list[BindingType]] = [
        *ROW_KEYS,
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.at = 0

    @abstractmethod
    def count(self) -> int:
        """Places that `at` can take."""

    def scrolled(self, lines: list[Strip], height: int, hint: str = "", *, tells_place: bool = True) -> list[Strip]:
        """So many lines from `at` on; in the lower border which these are, where they are not all, behind a hint."""
        self.at = max(0, min(self.at, len(lines) - height))
        shown = lines[self.at : self.at + height]
        is_part = tells_place and len(shown) < len(lines)
        place = f"lines {self.at + 1} to {self.at + len(shown)} of {len(lines)}" if is_part else ""
        said = "  ".join(part for part in (hint, place) if part)
        if said != (self.border_subtitle or ""):  # setting it draws the whole pane again
            self.border_subtitle = Content(said)
        return shown

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


class SearchedPane(PagedPane[V], Generic[V]):
    """One in which `/` takes a text to look for: what is typed until Enter, or Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(_SEARCH_KEY, "search", "search", key_display="/", tooltip="Look for a text"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.search = ""
        self._is_searching = False

    @property
    def is_searching(self) -> bool:
        """Whether keys are text now."""
        return self._is_searching

    def action_search(self) -> None:
        """Take what is typed, until Enter or Escape, as what to look for."""
        self._is_searching = True
        self.look_for("")

    def look_for(self, text: str) -> None:
        """Take another text, letter by letter while it is typed; none ends the search."""
        self.search = text
        self.refresh_bindings()
        self.redraw()

    def said_search(self, found: str) -> Content:
        """What is looked for and what was found, in the border."""
        return Content(f"/{self.search}{'_' if self._is_searching else ''} {found}")

    async def on_key(self, event: events.Key) -> None:
        """While searching, keys are text; the one that begins it is taken here: those behind it may be here by now."""
        begins = event.key == _SEARCH_KEY and any(one.key == _SEARCH_KEY for one in bindings_of(self))
        if not self._is_searching and not begins:
            return
        event.stop()
        event.prevent_default()
        if not self._is_searching:
            self.action_search()
            return
        text = self.search
        if event.key in ("enter", "escape"):
            self._is_searching = False
            text = text if event.key == "enter" else ""
        elif event.key == "backspace":
            text = text[:-1]
        elif event.is_printable and event.character:
            text += event.character
        self.look_for(text)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """No key of the pane does anything else while text is typed."""
        return not self._is_searching and super().check_action(action, parameters)


class LinesPane(SearchedPane[V], Generic[V]):
    """A text of more lines than fit; moves by lines, and to where what is looked for stands."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "next_page", "page", show=False, tooltip="A page up or down"),
        Binding("n", "match(1)", "next match", key_display="n N", tooltip="The next or the last place of the text"),
        Binding("N", "match(-1)", "last match", show=False, tooltip="The next or the last place of the text"),
        Binding("escape", "end_search", "end search", tooltip="Mark nothing any more"),
    ]

    hint: ClassVar[str] = ""
    """What stands in the lower border, of keys that are nowhere else on the screen."""
    tells_place: bool = True
    """Whether it says which lines are on the screen."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Strip] = []
        self._places: tuple[tuple[FoundPart, ...], ...] = ()
        self._match = 0
        self._began_at = 0

    @abstractmethod
    def lines(self, view: V, width: int, look: Look) -> list[Strip]:
        """All of them."""

    def action_next_page(self) -> None:
        """Move on by what fits."""
        self.action_page(1)

    def text_lines(self) -> list[str]:
        return [strip.text for strip in self._lines]

    def draw(self, view: V, width: int, height: int, look: Look) -> list[Strip]:
        self._lines = self.lines(view, width, look)
        self._places = places_of(self.search, self.text_lines())
        self._match = min(self._match, max(0, len(self._places) - 1))
        shown = self.scrolled(self._lines, height, self.hint, tells_place=self.tells_place)
        if not self._places:
            return shown
        return [marked(strip, self._parts(i), look) for i, strip in enumerate(shown, self.at)]

    def _parts(self, line: int) -> Iterable[tuple[FoundPart, str]]:
        """The parts of a line to mark."""
        for i, places in enumerate(self._places):
            yield from ((one, _HERE if i == self._match else _ELSEWHERE) for one in places if one.line == line)

    def count(self) -> int:
        return max(1, len(self._lines) - self.size.height + 1)

    def subtitle(self, view: V) -> Content:
        if not self.search and not self._is_searching:
            return Content("")
        found = f"{self._match + 1} of {len(self._places)}" if self._places else "not found" if self.search else ""
        return self.said_search(found)

    def action_search(self) -> None:
        self._began_at = self.at
        super().action_search()

    def look_for(self, text: str) -> None:
        """Go to the first place from where the search began on; a search that ends without one goes back there."""
        self.search = text
        self._places = places_of(text, self.text_lines())
        self.at = self._began_at
        self._go_to(next((i for i, places in enumerate(self._places) if places[0].line >= self._began_at), 0))
        super().look_for(text)

    def action_match(self, step: int) -> None:
        """Go to the next place or the one before; after the last one comes the first."""
        if self._places:
            self._go_to((self._match + step) % len(self._places))
            self.redraw()

    def _go_to(self, match: int) -> None:
        """Bring a place onto the screen, where it is not on it: with a line before it."""
        self._match = match
        if match < len(self._places):
            line = self._places[match][0].line
            if not self.at <= line < self.at + self.size.height:
                self.at = max(0, min(line - 1, self.count() - 1))

    def action_end_search(self) -> None:
        """Stay here."""
        self._began_at = self.at
        self.look_for("")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Where nothing is looked for, its keys are free."""
        if action in ("match", "end_search") and not self.search:
            return False
        return super().check_action(action, parameters)


class MeaningsPane(LinesPane[None]):
    """Lines that are the same for every file."""

    def __init__(self) -> None:
        super().__init__()
        self._view = None


class TextPane(LinesPane["Paragraphs"]):
    """Paragraphs of (text, role), wrapped to the width."""

    def show_fault(self, said: str) -> None:
        self._view = ((said, "bad"),)
        super().show_fault(said)

    def show_text(self, paragraphs: Paragraphs) -> None:
        """Take a text in place of the last one."""
        self.at = 0
        self._view = paragraphs
        self.redraw()

    def lines(self, view: Paragraphs, width: int, look: Look) -> list[Strip]:
        return paragraphs_of(view, width, look)


def paragraphs_of(paragraphs: Paragraphs, width: int, look: Look) -> list[Strip]:
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
