"""What the columns of every table are: their widths, and which of them go first, beside what has to stand in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llmtop.analysis.kernels import occupancy_table, roofline_levels_table, source_table, table, traffic_table
from llmtop.analysis.kernels.breakdown import breakdown_table
from llmtop.analysis.pages import series
from llmtop.analysis.pages.diff import lines, page
from llmtop.analysis.pages.diff.beside_baseline import baseline_columns
from llmtop.analysis.pages.events import events_table
from llmtop.analysis.pages.gpus import gpu_processes_table
from llmtop.analysis.threads import cache_lines, event_counts, memory_accesses, scheduling
from llmtop.analysis.threads.shares import ThreadsView
from llmtop.analysis.threads.syscalls import SyscallsView, syscalls_table
from llmtop.analysis.threads.table import threads_table
from llmtop.analysis.timeline import listed_table, memory_table, span_table
from llmtop.analysis.views import Column
from llmtop.model import LIVE, Trace
from llmtop.units import quantity

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

ANALYSIS = Path(table.__file__ or "").parent.parent
DECLARED = {
    str(Path(module.__file__ or "").relative_to(ANALYSIS)): module
    for module in (breakdown_table, cache_lines, event_counts, lines, listed_table, memory_accesses, memory_table,
                   occupancy_table, page, roofline_levels_table, scheduling, series, source_table, span_table, table,
                   traffic_table)
}  # fmt: skip
"""The modules whose columns stand in constants."""
MADE: dict[str, Callable[[], Iterable[Column]]] = {
    "pages/diff/beside_baseline.py": lambda: (one.column for one in baseline_columns(Trace(LIVE), Trace(LIVE))),
    "pages/events.py": lambda: events_table((), 0).columns,
    "pages/gpus.py": lambda: gpu_processes_table(()).columns,
    "threads/syscalls.py": lambda: syscalls_table(SyscallsView((), 1.0, "")).columns,
    "threads/table.py": lambda: threads_table(Trace(LIVE), ThreadsView((), (), 1.0, "")).columns,
}
"""Those whose columns are made with each table."""


def columns_in(constant: object) -> Iterator[Column]:
    """The columns that a module's constant is made of."""
    if isinstance(constant, Column):
        yield constant
    elif isinstance(column := getattr(constant, "column", None), Column):
        yield column
    elif isinstance(constant, Mapping | tuple):
        for one in constant.values() if isinstance(constant, Mapping) else constant:
            yield from columns_in(one)


def columns_of(place: str) -> Iterable[Column]:
    """The columns of a file of analysis, each once."""
    if place in MADE:
        return MADE[place]()
    return dict.fromkeys(column for constant in vars(DECLARED[place]).values() for column in columns_in(constant))


PLACES = [*DECLARED, *MADE]


def test_no_table_is_left_out() -> None:
    having = {str(path.relative_to(ANALYSIS)) for path in ANALYSIS.rglob("*.py") if " Column(" in path.read_text()}
    assert having <= {*PLACES}


@pytest.mark.parametrize("place", PLACES)
def test_columns_as_they_are_declared(place: str, snapshot: SnapshotAssertion) -> None:
    """A width, or what is left over; and when a column goes on a narrow screen, the highest first, 0 never."""
    lines = [
        f"{one.key:13} {one.title:24} {one.unit:8} {one.width or 'rest':>4}  goes {one.shrink:<2}"
        f" {one.pair:6} {'+' * one.is_signed:1} {one.help}".rstrip()
        for one in columns_of(place)
    ]
    assert "\n".join(lines) == snapshot


LARGE = {"ns": 99.9e6, "bytes": 99.9 * (1 << 40), "bytes/s": 99.9e12, "FLOP/s": 99.9e15, "%": 99.9, "ratio": 0.999}
"""Of each unit a number that takes as many characters as any: 99.9 with a prefix, or 100."""


@pytest.mark.parametrize("place", PLACES)
def test_titles_and_numbers_have_room(place: str) -> None:
    """A number that is cut is another number. How high counts may be, each table knows."""
    for one in columns_of(place):
        number = quantity(LARGE[one.unit], one.unit) if one.unit in LARGE else ""
        assert one.width == 0 or max(len(one.title), len(number) + one.is_signed) <= one.width, one
