"""All series of numbers over time, for `llmtop report --by series`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.pages.series import SeriesTable, series_table
from llmtop.analysis.tables import csv_of_rows
from llmtop.cli.documents import fact
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.model import Trace


def series_over_time(trace: Trace, wanted: WantedTable) -> PartTable[SeriesTable]:
    """What each series is of, between which values it goes and how it ends; counters as their growth per second."""
    found = series_table(trace)
    return PartTable(
        "Series",
        trace.origin.path,
        found,
        rows_of=SeriesTable.fitted,
        document_of=lambda found: {"by": wanted.by, "rows": [_document(row) for row in series_records(found)]},
        csv_of=lambda found: csv_of_rows(series_records(found)),
        said=lambda: [str(found)] if isinstance(found, Unknown) else [],
    )


def series_records(table: SeriesTable) -> Iterator[dict[str, str | float | Unknown]]:
    """What is the same in JSON and CSV."""
    for key in table.keys:
        track, metric = key
        row = table.row(key)
        yield {
            "track": track,
            "of": row.track,
            "metric": metric,
            "title": row.title,
            "unit": row.unit,
            "source": row.source,
            "samples": len(row.values),
            "seconds": row.seconds,
            "last": row.last,
            "last_said": row.last_said,
            "least": row.least,
            "mean": row.mean,
            "most": row.most,
        }


def _document(row: dict[str, str | float | Unknown]) -> Json:
    return {key: fact(value) for key, value in row.items()}
