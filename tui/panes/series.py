"""All numbers over time that a trace has, live and of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.analysis.pages.series import SeriesKey, SeriesTable, series_table
from llmtop.analysis.series.summary import why_no_series
from llmtop.tui.panes.base import SLOW_NS
from llmtop.tui.panes.lines import DRAWN
from llmtop.tui.panes.report import ListPane
from llmtop.tui.panes.view import Place
from llmtop.tui.render.lines import spark
from llmtop.units import count, quantity

if TYPE_CHECKING:
    from llmtop.model import Trace, Unknown
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look


class SeriesPane(ListPane[SeriesTable]):
    """A row for each series; below it the course of the one under the cursor."""

    number = 9
    title = "Series"
    is_of_reports = False
    place = Place(9, "body", suits=lambda _: False)
    least_ns = SLOW_NS

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return why_no_series(trace)

    def view(self, trace: Trace) -> SeriesTable | Unknown:
        return series_table(trace)

    def rows(self, view: SeriesTable, trace: Trace) -> SeriesTable:
        return view.fitted() if self.context.is_still else view

    def details(self, view: SeriesTable, trace: Trace, key: SeriesKey, width: int, look: Look) -> Paragraphs:
        if key not in view.trace.series:  # it has ended, and the rows are those of before
            return ()
        row = view.row(key)
        drawn = spark([value for _, value in row.values], max(8, width), look)
        return (
            (f"{row.track}: {row.title}", "title"),
            (drawn, DRAWN),
            (f"samples: {count(len(row.values))} over {quantity(row.seconds, 's')}, by {row.source}", "dim"),
        )


VIEW: Final = SeriesPane
