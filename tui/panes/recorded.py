"""The views of files: which there are, and which of them a file has something for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmtop.tui.panes.view import LAST_DIGIT, RECORDED

if TYPE_CHECKING:
    from llmtop.model import Trace
    from llmtop.tui.panes.view import Context, View

MODULES = (
    "kernels",
    "gpu_faults",
    "stalls",
    "roofline",
    "sections",
    "spans",
    "stacks",
    "threads",
    "syscalls",
    "series",
    "gpu",
    "findings",
    "session",
    "source",
    "idle",
    "steps",
    "timeline",
    "memory",
    "diff",
)
"""The modules beside this one whose `VIEW` shows a part of a file; the first that a file has is what it opens on. A new
one is one file and one line here."""

VIEWS: tuple[type[View[Any]], ...] = tuple(import_module(f"llmtop.tui.panes.{name}").VIEW for name in MODULES)


def views_of(trace: Trace | None, context: Context = RECORDED) -> tuple[type[View[Any]], ...]:
    """The views that a file has something for, the one to open on first; of one that is not read yet, a report's."""
    if trace is None:
        return tuple(view for view in VIEWS if view.is_of_reports)
    return tuple(view for view in VIEWS if _applies(view, trace, context))


def _applies(view: type[View[Any]], trace: Trace, context: Context) -> bool:
    if view.is_of_two and context.baseline is None:
        return False
    try:
        return view.why_not(trace) is None
    except Exception:  # the border: the view is shown, and says what is wrong with it
        return True


def by_digit(views: tuple[type[View[Any]], ...]) -> dict[type[View[Any]], int]:
    """In the order of their tabs: by their digits, those without one last. Of two with one digit the first has it."""
    first = {view.number: view for view in reversed(views)}
    digits = {view: view.number if first[view.number] is view else 0 for view in views}
    return dict(sorted(digits.items(), key=lambda one: one[1] or LAST_DIGIT + 1))
