"""The key for the views beyond the nine that have a digit: the same on the live screen and in the explorer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import ActiveBinding, Binding, BindingType

from llmtop.frozen import frozen
from llmtop.tui.screens.base import FullScreen
from llmtop.tui.screens.holding import SHORT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_KEY = "M"


@frozen
class ViewBeyond:
    """A view that has no digit.

    Attributes:
        is_shown: It is the one that keys are for.
        show: Makes it that one.
    """

    title: str
    is_shown: bool
    show: Callable[[], None]


class NumberedScreen(FullScreen):
    """A screen of views with digits, and of some without."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding(_KEY, "beyond", "more")]

    def views_beyond(self) -> Sequence[ViewBeyond]:
        """The views that are there and have no digit, in the order of Tab."""
        raise NotImplementedError

    def action_beyond(self) -> None:
        """Show the first of them, or the one after that which is shown; say that there is none."""
        beyond = self.views_beyond()
        if not beyond:
            self.notify("every view here has a digit", severity="warning", markup=False, timeout=SHORT_S)
            return
        at = next((i for i, view in enumerate(beyond) if view.is_shown), -1)
        beyond[(at + 1) % len(beyond)].show()

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Textual's, with the names of these views; without any the key is none."""
        found = super().active_bindings
        titles = [view.title for view in self.views_beyond()]
        if (one := found.get(_KEY)) is not None and one.node is self:
            if titles:
                found[_KEY] = one._replace(binding=replace(one.binding, tooltip=f"One by one: {', '.join(titles)}"))
            else:
                del found[_KEY]
        return found
