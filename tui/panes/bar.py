"""Lines of one row that can be clicked: tabs, and the keys of a screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from llmtop.frozen import frozen
from llmtop.tui.key_names import key_name
from llmtop.tui.panes.base import DiffedWidget, look_of
from llmtop.tui.render.lines import line, width_of

if TYPE_CHECKING:
    from textual import events
    from textual.binding import ActiveBinding
    from textual.dom import DOMNode

_LAST = 2


@frozen
class Item:
    """A piece of a bar: its text, its role, and the action that a click runs (none if empty).

    Attributes:
        node: Whose action it is; None for one that names its target ("screen.view(0)").
    """

    text: str
    role: str
    action: str = ""
    node: DOMNode | None = None


class Bar(DiffedWidget):
    """One row of items."""

    DEFAULT_CSS = "Bar { height: 1; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._items: tuple[Item, ...] = ()

    def show_items(self, items: Sequence[Item]) -> None:
        """Take items in place of the last ones."""
        self._items = tuple(items)
        self.redraw()

    def on_resize(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        width = self.size.width
        if width:
            self.send_frame([line([(item.text, item.role) for item in self._items], width, look_of(self))])

    async def on_click(self, event: events.Click) -> None:
        right = 0
        for item in self._items:
            right += width_of(item.text)
            if event.x < right:
                if item.action:
                    await self.app.run_action(item.action, item.node or self)
                return


def tab_items(titles: Iterable[tuple[str, str]], active: int) -> list[Item]:
    """Tabs of (title, action), the active one in reverse."""
    items = [Item(" ", "text")]
    for i, (title, action) in enumerate(titles):
        # Brackets, so that the active tab is told without colour too.
        text = f"[{title}]" if i == active else f" {title} "
        items.append(Item(text, "cursor" if i == active else "text", action))
    return items


def key_items(bindings: Iterable[ActiveBinding], width: int) -> list[Item]:
    """The keys that a screen declares as shown, with what they do.

    The last two are the program's own, how to leave and where help is: without room, those before them go.
    """
    pairs: dict[str, tuple[Item, Item]] = {}
    for active in bindings:
        binding = active.binding
        if binding.show and active.enabled and binding.description:
            key = binding.key_display or key_name(binding.key)
            text = binding.description
            act = binding.action, active.node
            pair = Item(f" {key} ", "accent", *act), Item(f"{text} ", "dim", *act)
            pairs.setdefault(text, pair)  # one action may have several keys: the first is shown
    shown = list(pairs.values())
    while len(shown) > _LAST and sum(width_of(item.text) for pair in shown for item in pair) > width:
        shown.pop(-_LAST - 1)
    return [item for pair in shown for item in pair]


class KeyBar(Bar):
    """The keys that work where the focus is."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.renew())

    def on_resize(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Read the bindings again."""
        if self.size.width:
            self.show_items(key_items(self.screen.active_bindings.values(), self.size.width))
