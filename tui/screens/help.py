"""The help screen, made from the bindings of the screen it is called on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import ActiveBinding

_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "escape": "Esc",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}


def key_lines(bindings: Iterable[ActiveBinding]) -> list[tuple[str, str]]:
    """(keys, what they do) of each action once, in the order of declaration; actions without a text are left out."""
    keys_by_text: dict[str, list[str]] = {}
    for active in bindings:
        binding = active.binding
        text = binding.tooltip or binding.description
        if active.enabled and text:
            keys_by_text.setdefault(text, []).append(key_name(binding.key))
    return [(" ".join(dict.fromkeys(keys)), text) for text, keys in keys_by_text.items()]


def key_name(key: str) -> str:
    """What to call a key: `Ctrl+p`, `?`, `Esc`."""
    modifier, plus, name = key.rpartition("+")
    return modifier.capitalize() + plus + (_NAMES.get(name) or (name if len(name) == 1 else name.capitalize()))


class HelpScreen(ModalScreen[None]):
    """Every key that does something on the screen below."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,question_mark,q", "dismiss", "close")]

    def __init__(self, bindings: list[ActiveBinding]) -> None:
        super().__init__()
        self._lines = key_lines(bindings)

    def compose(self) -> ComposeResult:
        width = max((len(keys) for keys, _ in self._lines), default=0)
        text = "\n".join(f"{keys:>{width}}  {what}" for keys, what in self._lines)
        with VerticalScroll(id="help") as box:
            box.border_title = Content("Keys")
            box.border_subtitle = Content("Esc closes")
            yield Static(Content(text))
