"""The fault border: what goes wrong in a part of a screen costs that part, which says so, and never the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from textual.message import Message
from textual.widget import Widget

from llmtop.model import Issue, Severity
from llmtop.text import clean
from llmtop.tui.textual_private import GuardedWidget

if TYPE_CHECKING:
    from textual.dom import DOMNode


def fault_text(error: Exception, what: str = "pane") -> str:
    """What a part of a screen (`what`) says of an error in it."""
    return f"this {what} failed: {type(error).__name__}: {clean(str(error))}; please report this"


class FaultBorder(GuardedWidget):
    """A widget whose faults end with it: in what it does with messages, events, timers and calls from outside.

    Textual ends the program with an exception that leaves a widget. A subclass says with `show_fault` what went wrong.
    It stands behind Textual's own class among the bases, since style sheets follow the first one alone.
    """

    class Failed(Message):
        """A part of the screen has failed."""

        def __init__(self, issue: Issue) -> None:
            super().__init__()
            self.issue = issue

    def show_fault(self, said: str) -> None:
        """Say what went wrong, in place of what would be shown."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """Take an error: it is said here, and counted among the faults of the program."""
        self.show_fault(self.count_fault(error))

    def count_fault(self, error: Exception, what: str = "pane") -> str:
        """Count an error of a part of this among the faults of the program; what to say of it."""
        said = fault_text(error, what)
        self.post_message(self.Failed(Issue(Severity.ERROR, f"pane-{type(self).__name__.lower()}", said)))
        return said

    @contextmanager
    def border(self) -> Iterator[None]:
        """For work on behalf of this widget: an error costs the rest of that work."""
        try:
            yield
        except Exception as error:  # the border
            self.fail(error)


def border_around(node: object) -> FaultBorder | None:
    """The innermost border that a widget stands in; None for the program itself."""
    nodes: list[DOMNode] = node.ancestors_with_self if isinstance(node, Widget) else []
    return next((one for one in nodes if isinstance(one, FaultBorder)), None)
