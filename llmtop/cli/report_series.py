"""All series of numbers over time, for `llmtop report --by series`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.pages.series import SeriesTable, series_table
from llmtop.analysis.tables import csv_of_rows
from llmtop.cli.documents import fact
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.model import NS_PER_S, Unknown

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
        unit, scale = ("ratio", 1 / NS_PER_S) if row.unit == _TIME_IN_TIME else (row.unit, 1)
        yield {
            "track": track,
            "of": row.track,
            "metric": metric,
            "title": row.title,
            "unit": unit,
            "source": row.source,
            "samples": len(row.values),
            "seconds": row.seconds,
            "last": _scaled(row.last, scale),
            "last_said": row.last_said,
            "least": _scaled(row.least, scale),
            "mean": _scaled(row.mean, scale),
            "most": _scaled(row.most, scale),
        }


_TIME_IN_TIME = "ns/s"
"""Of a counter of times its growth a second: a share of the time, which nobody reads in billionths."""


def _scaled(value: float | Unknown, scale: float) -> float | Unknown:
    return value if isinstance(value, Unknown) else value * scale


def _document(row: dict[str, str | float | Unknown]) -> Json:
    return {key: fact(value) for key, value in row.items()}
