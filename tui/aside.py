"""Work that would hold up the screen: done on a thread, whose end is a message."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from textual.message import Message

from llmtop.freed import give_back_freed
from llmtop.model import Unknown
from llmtop.tui.turns import take_short_turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.widget import Widget

_T = TypeVar("_T")
ANALYSING = Unknown("analysing")
ANALYSIS_THREAD = "llmtop analysis"


class Analysed(Message, bubble=False):
    """What a thread made of something, a trace say: the result, or the error that it ended with."""

    def __init__(self, of: object, result: Any) -> None:
        super().__init__()
        self.of = of
        self.result = result


def analyse_on_thread(widget: Widget, of: _T, work: Callable[[_T], Any]) -> None:
    """Do `work`, which may decode much of a report, on a thread; the widget gets an `Analysed`.

    A daemon thread of our own, because leaving the program would wait for the threads of Textual's workers.
    """
    take_short_turns()

    def run() -> None:
        result: Any
        try:
            result = work(of)
        except Exception as error:  # the border of the thread: the pane shows it
            result = error
        give_back_freed()
        if widget.is_running:
            widget.post_message(Analysed(of, result))

    threading.Thread(target=run, name=ANALYSIS_THREAD, daemon=True).start()
