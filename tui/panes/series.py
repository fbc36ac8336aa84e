"""All numbers over time that a file has."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from llmtop.analysis.series.summary import SeriesRow, series_rows, why_no_series
from llmtop.analysis.views import Column
from llmtop.model import Trace, Unknown
from llmtop.tui.panes.base import look_of
from llmtop.tui.panes.report import DRAWN, ListPane, table_of
from llmtop.tui.render.lines import spark
from llmtop.units import count, quantity

if TYPE_CHECKING:
    from llmtop.analysis.tables import RowTable
    from llmtop.analysis.views import Cell


class SeriesPane(ListPane):
    """A row for each series; below it the course of the one under the cursor."""

    number = 9
    title = "Series"
    is_of_reports = False
    COLUMNS = (
        Column("track", "of", width=24, shrink=1, help="the GPU, the server, the thread"),
        Column("title", "number", width=0),
        Column("last", "last", width=14, help="the newest; of a counter it is how fast it grew"),
        Column("least", "least", width=14, shrink=3),
        Column("mean", "mean", width=14, shrink=2),
        Column("most", "most", width=14, shrink=3),
        Column("source", "source", width=16, shrink=4, help="who read it"),
    )

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: dict[Hashable, SeriesRow] = {}

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return why_no_series(trace)

    def analyse(self, trace: Trace) -> RowTable | Unknown:
        self._rows = dict(enumerate(series_rows(trace)))
        return why_no_series(trace) or table_of(self.COLUMNS, {key: _cells(row) for key, row in self._rows.items()})

    def details(self, key: Hashable) -> tuple[tuple[str, str], ...]:
        row = self._rows[key]
        drawn = spark([value for _, value in row.values], max(8, self.size.width - 4), look_of(self))
        return (
            (f"{row.track}: {row.title}", "title"),
            (drawn, DRAWN),
            (f"samples: {count(len(row.values))} over {quantity(row.seconds, 's')}, by {row.source}", "dim"),
        )


def _cells(row: SeriesRow) -> tuple[Cell, ...]:
    told = (value if isinstance(value, Unknown) else quantity(value, row.unit) for value in _values(row))
    return row.track, row.title, *told, row.source


def _values(row: SeriesRow) -> tuple[float | Unknown, ...]:
    return row.last, row.least, row.mean, row.most


VIEW: Final = SeriesPane
