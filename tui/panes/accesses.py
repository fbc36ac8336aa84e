"""Accesses to memory that perf mem has sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.analysis.threads.memory_accesses import (
    NO_ACCESSES,
    TITLE,
    accesses_of,
    accesses_table,
    said_of_accesses,
)
from llmtop.model import MemoryAccesses, Trace, Unknown
from llmtop.tui.panes.report import ListPane

if TYPE_CHECKING:
    from llmtop.analysis.tables import RowTable
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look


class AccessesPane(ListPane[tuple[MemoryAccesses, ...]]):
    """A row for accesses that are alike; below it all that is told of them, and who answers how much."""

    number = 1
    title = TITLE
    is_of_reports = False

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return None if trace.accesses else NO_ACCESSES

    def view(self, trace: Trace) -> tuple[MemoryAccesses, ...] | Unknown:
        return accesses_of(trace)

    def rows(self, view: tuple[MemoryAccesses, ...], trace: Trace) -> RowTable:
        return accesses_table(view)

    def details(self, view: tuple[MemoryAccesses, ...], trace: Trace, key: int, width: int, look: Look) -> Paragraphs:
        one = view[key]
        told = {"of": one.object, "data": one.data_symbol, "in": one.data_object, "TLB": one.tlb, "snoop": one.snoop}
        line = ", ".join(f"{name} {value}" for name, value in {**told, "locked": one.locked}.items() if value)
        return (
            (f"{one.symbol or one.object}: {one.level}", "title"),
            (line, "text"),
            *((said, "dim") for said in said_of_accesses(view)),
        )


VIEW: Final = AccessesPane
