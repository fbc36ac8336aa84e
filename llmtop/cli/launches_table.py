"""A table of parts of single launches, for `llmtop report --by occupancy|roofline|traffic`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.tables import csv_of
from llmtop.cli.documents import document_or_why
from llmtop.cli.part_table import PartTable, WantedTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from llmtop.analysis.views import TableView
    from llmtop.cli.documents import Json
    from llmtop.model import Trace, Unknown

PageT = TypeVar("PageT")


def launches_table(
    title: str,
    trace: Trace,
    wanted: WantedTable,
    found: dict[int, PageT | Unknown] | Unknown,
    *,
    table: Callable[[Trace, Mapping[int, PageT | Unknown]], TableView],
    parts: tuple[str, Callable[[PageT], Json]],
    said: Callable[[], list[str]],
) -> PartTable[dict[int, PageT | Unknown]]:
    """What was found of each launch, in every format.

    Args:
        title: What stands above it.
        trace: The report.
        wanted: What a user asks for.
        found: By launch, or why there is none.
        table: The rows of all launches, for text, Markdown, HTML and CSV.
        parts: In JSON the key beside the kernel's name, and what stands there of a launch.
        said: What stands with the table in sentences.
    """
    key, document = parts
    names = kernels_of(trace).short_name
    return PartTable(
        title,
        trace.origin.path,
        found,
        rows_of=lambda known: table(trace, known),
        document_of=lambda known: {
            "by": wanted.by,
            "rows": [
                {"kernel": names(i), "launch": i, key: document_or_why(page, document)} for i, page in known.items()
            ],
        },
        csv_of=lambda known: csv_of(table(trace, known)),
        said=said,
    )
