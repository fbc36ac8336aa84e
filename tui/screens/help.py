"""The help screen, made of the screen below it: keys that work now, what a table's columns mean, other panes' keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar

from textual.binding import Binding, BindingType

from llmtop.model import Unknown
from llmtop.tui.key_names import key_name
from llmtop.tui.panes.base import Pane, look_of
from llmtop.tui.panes.lines import LinesPane
from llmtop.tui.panes.table import TablePane, VirtualTable
from llmtop.tui.render.keys import draw_keys
from llmtop.tui.screens.base import Dialog
from llmtop.tui.textual_private import bindings_of

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.screen import Screen
    from textual.strip import Strip
    from textual.widget import Widget

    from llmtop.tui.render.look import Look

KeyLine: TypeAlias = tuple[str, str]
"""Keys, and what they do."""
KeyPart: TypeAlias = tuple[str, list[KeyLine]]
"""The title of a part of the help, and its lines."""
W = TypeVar("W")

_BORDER = 2
_UNTITLED: Final = "Text"
_NO_TERMINALS = "super+"
"""No terminal that is known sends such a key."""
_OUR_WORDS = {
    "Focus Next": "The next pane, or the one before (Shift)",
    "Focus Previous": "The next pane, or the one before (Shift)",
    "Copy selected text": "Copy what the mouse has marked",
    "Quit the app and return to the command prompt.": "Leave",
    "Open the command palette": "All commands, to search by name",
}
"""For what Textual binds itself."""


def key_lines(bindings: Iterable[Binding]) -> list[KeyLine]:
    """Each action once, in the order of declaration, with all its keys; actions without a text are left out."""
    keys_by_text: dict[str, list[str]] = {}
    for binding in bindings:
        text = binding.tooltip or binding.description
        if text and not binding.key.startswith(_NO_TERMINALS):
            keys_by_text.setdefault(_OUR_WORDS.get(text, text), []).append(key_name(binding.key))
    return [(" ".join(dict.fromkeys(keys)), text) for text, keys in keys_by_text.items()]


def active_keys(screen: Screen[object]) -> list[KeyLine]:
    """What works now, where the focus is; what every Textual program has (Tab, copying) comes last."""
    lines = key_lines(active.binding for active in screen.active_bindings.values() if active.enabled)
    return sorted(lines, key=lambda line: line[1] in _OUR_WORDS.values())


def keys_elsewhere(screen: Screen[object]) -> list[KeyPart]:
    """Of each pane and table on the screen that could have the focus and has not: its keys beyond those of now."""
    known = {text for _, text in active_keys(screen)}
    focused = () if screen.focused is None else screen.focused.ancestors_with_self
    beside = [widget for widget in _on_screen(screen) if widget not in focused]
    panes = [(pane.heading or _UNTITLED, [pane, *pane.query("*")]) for pane in _of(Pane, beside) if pane.focusable]
    tables = [(table.heading, [table, table.table]) for table in _of(TablePane, beside)]
    keys = ((title, key_lines(_bindings_of(widgets))) for title, widgets in (*panes, *tables))
    fresh = ((title, [line for line in lines if line[1] not in known]) for title, lines in keys)
    return [(title, lines) for title, lines in fresh if lines]


def columns_here(screen: Screen[object]) -> list[KeyPart]:
    """What the columns of the table on the screen mean, where their titles do not say it all."""
    lines = [
        (column.title, column.help[:1].upper() + column.help[1:])
        for table in _of(VirtualTable, _on_screen(screen))
        for column in (table.rows.columns if table.rows is not None else ())
        if column.help
    ]
    return [("Columns", lines)] if lines else []


def _on_screen(screen: Screen[object]) -> list[Widget]:
    """What is seen: not in a tab behind, nor folded away."""
    return [widget for widget in screen.query("*") if widget.size.area and widget.is_on_screen]


def _of(kind: type[W], widgets: Iterable[Widget]) -> Iterable[W]:
    return (widget for widget in widgets if isinstance(widget, kind))


def _bindings_of(widgets: Iterable[Widget]) -> Iterable[Binding]:
    return (one for widget in widgets for one in bindings_of(widget))


class HelpPane(LinesPane["tuple[KeyPart, ...]"]):
    """Parts of keys with their titles."""

    title = "Keys"
    hint = "↑ ↓ scroll, / search, Esc closes"

    def __init__(self, parts: tuple[KeyPart, ...]) -> None:
        super().__init__(id="help")
        self._view = parts

    def lines(self, view: tuple[KeyPart, ...], width: int, look: Look) -> list[Strip]:
        return draw_keys(view, width, look)

    def on_resize(self) -> None:
        """As high as its text, where the screen is."""
        if not isinstance(self._view, Unknown):
            self.styles.height = len(self.lines(self._view, self.size.width, look_of(self))) + _BORDER


class HelpScreen(Dialog):
    """Every key that does something on the screen below, and what the columns there mean.

    Args:
        below: The screen that it is asked for on.
    """

    BINDINGS: ClassVar[list[BindingType]] = [("escape,question_mark,q", "dismiss", "close")]

    def __init__(self, below: Screen[object]) -> None:
        super().__init__()
        self._parts = (("", active_keys(below)), *columns_here(below), *keys_elsewhere(below))

    def compose(self) -> ComposeResult:
        yield HelpPane(self._parts)
