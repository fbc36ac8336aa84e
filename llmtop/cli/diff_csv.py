"""`llmtop diff --format csv`: one row a kernel for each report beside the baseline; of one report its ladder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmtop.analysis.pages.diff.beside import function_changes
from llmtop.analysis.pages.diff.kernels import CallTimes, KernelChange, kernel_changes
from llmtop.analysis.pages.diff.lines import line_changes
from llmtop.analysis.pages.diff.page import ladder_section, says
from llmtop.analysis.tables import csv_line, csv_of

if TYPE_CHECKING:
    from llmtop.analysis.pages.diff.ladder import Rung
    from llmtop.analysis.pages.diff.lines import LineChange
    from llmtop.cli.diff_pages import Compared

_COLUMNS = (
    "report", "kernel", "family", "is", "told_by", "calls_a", "calls_b", "mean_a_ns", "mean_b_ns", "median_a_ns",
    "median_b_ns", "call_change_ns", "noise_ns", "noise_measured", "total_a_ns", "total_b_ns", "change_ns", "line_a",
    "line_b", "source",
)  # fmt: skip
_OF_A_LINE = "line"


def diff_csv(compared: Sequence[Compared]) -> Iterator[str]:
    """The table, line by line: calls and totals of a step where steps are compared; of stacks alone by function.

    Below the kernels of a report are the lines of their source that wait longer or shorter.
    """
    if not any(kernel_changes(one.before, one.after) for one in compared):
        yield from _functions(compared)
        return
    yield csv_line(_COLUMNS)
    for one in compared:
        for change in kernel_changes(one.before, one.after):
            yield csv_line((one.name, *_cells(one, change), "", "", ""))
        for line in line_changes(one.before, one.after):
            yield csv_line([_line_cells(one.name, line).get(column, "") for column in _COLUMNS])


def _line_cells(report: str, change: LineChange) -> dict[str, object]:
    """A line of a kernel's source: what a call costs is what this line does of it."""
    was, now = change.before, change.after
    return {
        "report": report,
        "kernel": change.kernel,
        "is": _OF_A_LINE,
        "mean_a_ns": "" if was is None else was.cost_ns,
        "mean_b_ns": "" if now is None else now.cost_ns,
        "call_change_ns": change.change_ns,
        "line_a": "" if was is None else was.place,
        "line_b": "" if now is None else now.place,
        "source": change.text,
    }


def _cells(one: Compared, change: KernelChange) -> Iterator[object]:
    both = change.before, change.after
    likeness = "" if change.likeness is None else str(change.likeness)
    yield from (change.name, str(change.family), says(one.before, one.after, change), likeness)
    yield from (0 if calls is None else f"{calls.calls:.12g}" for calls in both)
    yield from (_known(math.nan if calls is None else calls.mean_ns) for calls in both)
    yield from (_known(math.nan if calls is None else calls.median_ns) for calls in both)
    yield _known(change.call_ns)
    yield from (change.noise.ns, change.noise.is_known) if change.is_in_both else ("", "")
    yield from (_total(calls) for calls in both)
    yield change.total_ns if change.is_timed else ""


def _known(ns: float) -> object:
    return "" if math.isnan(ns) else ns


def _total(calls: CallTimes | None) -> object:
    return 0 if calls is None else "" if calls.times is None else calls.total_ns


def _functions(compared: Sequence[Compared]) -> Iterator[str]:
    yield csv_line(("report", "function", "unit", "own_share_a", "own_share_b"))
    for one in compared:
        for change in function_changes(one.before, one.after):
            yield csv_line((one.name, change.name, change.unit, change.before, change.after))


def ladder_csv(rungs: Sequence[Rung]) -> Iterator[str]:
    """The ladder, line by line."""
    table = ladder_section(rungs).table
    return iter(()) if table is None else csv_of(table)
