"""Cache lines that CPUs fight for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.analysis.threads.cache_lines import NO_LINES, TITLE, SharedLine, code_of, line_rows, lines_table, waits
from llmtop.model import LineAccess, Trace, Unknown
from llmtop.tui.panes.report import ListPane
from llmtop.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.tables import RowTable
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look


class CacheLinesPane(ListPane[tuple[SharedLine, ...]]):
    """A row for each line; below it what each place in the code does at which offset."""

    number = 1
    title = TITLE
    is_of_reports = False

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return None if trace.cache_lines else NO_LINES

    def view(self, trace: Trace) -> tuple[SharedLine, ...] | Unknown:
        return line_rows(trace)

    def rows(self, view: tuple[SharedLine, ...], trace: Trace) -> RowTable:
        return lines_table(view)

    def details(self, view: tuple[SharedLine, ...], trace: Trace, key: int, width: int, look: Look) -> Paragraphs:
        return tuple(_details(view[key]))


def _details(row: SharedLine) -> Iterator[tuple[str, str]]:
    yield f"cache line {row.line.address}", "title"
    if isinstance(row.sharing, Unknown):
        yield str(row.sharing), "text"
    for access in row.line.accesses:
        yield _said(access), "text"


def _said(access: LineAccess) -> str:
    whose = "".join(f" {name} {id}" for name, id in (("pid", access.pid), ("tid", access.tid)) if id is not None)
    place = f" {access.place}" if access.place else ""
    shares = f"waits {percent(100 * waits(access)):>5}  stores {percent(100 * access.stores_share):>5}"
    who = f"{code_of(access)} ({access.object}){place}{whose}"
    return f"+{access.offset:#04x} {shares}  {who}, {access.cpus} CPUs, nodes {access.node or '?'}"


VIEW: Final = CacheLinesPane
