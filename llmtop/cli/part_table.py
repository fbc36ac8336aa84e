"""The table that `llmtop report --by` adds: what it has to give to every format of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from llmtop.cli.documents import FoundT, document_or_why
from llmtop.cli.report_rows import UNKNOWN
from llmtop.errors import FileError
from llmtop.frozen import frozen
from llmtop.model import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from llmtop.analysis.views import TableView
    from llmtop.cli.documents import Json


@frozen
class PartTable(Generic[FoundT]):
    """What was found for the table, and how that reads in each format.

    Attributes:
        title: What stands above it.
        path: The report's, for messages.
        found: What its rows are made of, or why there are none.
        rows_of: The table that text, Markdown and HTML show of it.
        document_of: The object under "by" in JSON.
        csv_of: The lines of CSV, the first of them with titles.
        said: What stands with the table in sentences; of one without rows, why.
        part: What part of the trace it is of, where that has to be said.
        more: The options that list all of its rows.
        before: Tables that stand before it, where a format has room for several.
    """

    title: str
    path: str
    found: FoundT | Unknown
    rows_of: Callable[[FoundT], TableView]
    document_of: Callable[[FoundT], Json]
    csv_of: Callable[[FoundT], Iterator[str]]
    said: Callable[[], list[str]]
    part: str = ""
    more: str = "--format csv"
    before: tuple[PartTable[Any], ...] = ()

    def known(self) -> FoundT:
        """What was found.

        Raises:
            FileError: Nothing, and why: all the rest of a report is no answer to who asked for one table.
        """
        if isinstance(self.found, Unknown):
            raise FileError(f"{self.path}: {self.found}")
        return self.found

    def sentences(self) -> list[str]:
        """All that stands with the table."""
        return [self.part, *self.said()] if self.part else self.said()

    def rows(self) -> TableView | Unknown:
        """Its rows, or why there are none."""
        return self.found if isinstance(self.found, Unknown) else self.rows_of(self.found)

    def document(self) -> Json:
        """As JSON."""
        return document_or_why(self.found, self.document_of)

    def csv(self) -> Iterator[str]:
        """As lines of CSV.

        Raises:
            FileError: There are no rows: nothing else of CSV could say why.
        """
        return self.csv_of(self.known())


@frozen
class WantedTable:
    """What a user asks a table of.

    Attributes:
        by: What its rows are: one of `llmtop.cli.report.BY`.
        kernel: Of the code of kernels, a part of their name; empty for all.
        within: The name of ranges to whose time it is cut; empty for all of the time.
        each_range: NVTX ranges by their full names.
    """

    by: str
    kernel: str = ""
    within: str = ""
    each_range: bool = False


def why_dashes(table: TableView, most: int, shown: Sequence[int] | None = None) -> Iterator[str]:
    """Why cells of the first rows are not known, each reason once: for formats in which a cell cannot say it.

    Args:
        table: The table.
        most: Rows that are shown.
        shown: Columns that are; None for all.
    """
    rows = (table.cells(i) for i in range(min(most, len(table))))
    cells = (row[i] for row in rows for i in (range(len(row)) if shown is None else shown))
    yield from dict.fromkeys(f"{UNKNOWN}: {one.general or one.reason}" for one in cells if isinstance(one, Unknown))
