"""Memory over time of a capture: how much each device held, at most when, and who held it then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from llmtop.analysis.timeline.memory import has_memory, memory_pools
from llmtop.analysis.timeline.memory_table import MemoryRow, memory_rows, memory_table, owner_lines, pool_lines
from llmtop.model import Trace, Unknown
from llmtop.tui.panes.lines import DRAWN
from llmtop.tui.panes.report import ListPane
from llmtop.tui.render.lines import spark

if TYPE_CHECKING:
    from llmtop.analysis.tables import RowTable
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look

_NOT_TOLD = Unknown(
    "nothing in this file tells of memory that was got or given back",
    "nsys profile --cuda-memory-usage=true; torch.profiler.profile(profile_memory=True)",
)


class MemoryPane(ListPane[tuple[MemoryRow, ...]]):
    """A row for each device and kind of memory, and below it who held most at its peak."""

    title = "Memory"
    is_of_reports = False

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return None if has_memory(trace) else _NOT_TOLD

    def view(self, trace: Trace) -> tuple[MemoryRow, ...] | Unknown:
        pools = memory_pools(trace)
        return pools if isinstance(pools, Unknown) else memory_rows(pools, trace)

    def rows(self, view: tuple[MemoryRow, ...], trace: Trace) -> RowTable:
        return memory_table(view)

    def details(self, view: tuple[MemoryRow, ...], trace: Trace, key: int, width: int, look: Look) -> Paragraphs:
        row = view[key]
        if row.owner is not None:
            return (row.owner.name, "title"), *((line, "text") for line in owner_lines(row))
        return tuple(_of_pool(row, trace, max(8, width), look))


def _of_pool(row: MemoryRow, trace: Trace, width: int, look: Look) -> Iterator[tuple[str, str]]:
    pool = row.pool
    yield f"{row.title}: {pool.name}, the whole capture from left to right:", "title"
    start, end = min(trace.start_ns, pool.times[0]), max(trace.end_ns, pool.times[-1])
    yield spark(pool.over_time(start, end, min(width, max(1, end - start))), width, look), DRAWN
    yield from ((line, "text") for line in pool_lines(pool, trace.start_ns))


VIEW: Final = MemoryPane
