"""The views of files: which there are, and which of them a file has something for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from llmtop.tui.panes.view import LAST_DIGIT, RECORDED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from llmtop.model import Trace
    from llmtop.tui.panes.view import Context, View

MODULES = (
    "kernels",
    "gpu_faults",
    "counts",
    "scheduling",
    "cache_lines",
    "accesses",
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
    "occupancy",
    "memory_chart",
    "speed_of_light",
    "roofline_levels",
    "warps",
    "instruction_mix",
    "pm_samples",
    "section_tables",
    "diff",
)
"""The modules beside this one whose `VIEW` shows a part of a file; the first that a file has is what it opens on. A new
one is one file and one line here."""


def _is_of_time(trace: Trace, _: Context) -> bool:
    return bool(trace.spans)


def _is_of_a_system(trace: Trace, _: Context) -> bool:
    return bool(trace.tracks or trace.stacks or trace.series)


def _is_of_a_fault(trace: Trace, _: Context) -> bool:
    return bool(trace.faults)


def _is_scheduled(trace: Trace, _: Context) -> bool:
    return bool(trace.scheduling)


def _is_of_caches(trace: Trace, _: Context) -> bool:
    return bool(trace.cache_lines)


def _is_of_accesses(trace: Trace, _: Context) -> bool:
    return bool(trace.accesses)


def _is_counted(trace: Trace, _: Context) -> bool:
    return bool(trace.counts)


def _is_of_kernels(trace: Trace, _: Context) -> bool:
    return not trace.spans


def _is_compared(_: Trace, context: Context) -> bool:
    return context.baseline is not None


_NEEDS: Final[Mapping[str, Callable[[Trace, Context], bool]]] = {
    "gpu_faults": _is_of_a_fault,
    "counts": _is_counted,
    "cache_lines": _is_of_caches,
    "accesses": _is_of_accesses,
    "scheduling": _is_scheduled,
    **dict.fromkeys(("spans", "steps", "timeline", "memory"), _is_of_time),
    **dict.fromkeys(("stacks", "threads", "syscalls", "series", "gpu"), _is_of_a_system),
    **dict.fromkeys(("occupancy", "memory_chart", "speed_of_light", "roofline_levels", "warps"), _is_of_kernels),
    **dict.fromkeys(("instruction_mix", "pm_samples", "section_tables"), _is_of_kernels),
    "diff": _is_compared,
}
"""What a file must have at least for the module of a view to be loaded: a report of kernels is on the screen sooner
without those of timelines and servers. `View.why_not` decides; a view that is not listed here is always asked."""


@cache
def _view(module: str) -> type[View[Any]]:
    kind: type[View[Any]] = import_module(f"llmtop.tui.panes.{module}").VIEW
    return kind


def all_views() -> tuple[type[View[Any]], ...]:
    """Every view of files, whatever they hold."""
    return tuple(map(_view, MODULES))


def views_of(trace: Trace | None, context: Context = RECORDED) -> tuple[type[View[Any]], ...]:
    """The views that a file has something for, the one to open on first; of one that is not read yet, a report's."""
    if trace is None:
        always = (_view(name) for name in MODULES if name not in _NEEDS)
        return tuple(view for view in always if view.is_of_reports)
    needed = (_view(name) for name in MODULES if name not in _NEEDS or _NEEDS[name](trace, context))
    return tuple(view for view in needed if _applies(view, trace, context))


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
