"""All series of a trace as rows, worked out when they are seen: a server of many threads has thousands."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.series.summary import SeriesRow, names_of, series_row, why_no_series
from llmtop.analysis.tables import SORTED_AT_ONCE, fitted, places_by
from llmtop.analysis.views import Cell, Column
from llmtop.frozen import frozen
from llmtop.model import TrackKind, Unknown
from llmtop.units import quantity
from llmtop.vocabulary import is_part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from llmtop.model import Trace, TrackId

SeriesKey: TypeAlias = "tuple[TrackId, str]"
"""A series by its track and its metric."""
_COLUMNS = (
    Column("track", "of", width=24, shrink=1, help="the GPU, the server, the thread"),
    Column("name", "number", width=0),
    Column("last", "last", width=18, help="the newest; of a counter it is how fast it grew"),
    Column("least", "least", width=14, shrink=3),
    Column("mean", "mean", width=14, shrink=2),
    Column("most", "most", width=14, shrink=3),
    Column("source", "source", width=16, shrink=4, help="who read it"),
)
_FIRST = (TrackKind.SERVER, TrackKind.GPU, TrackKind.ENDPOINT, TrackKind.HOST, TrackKind.PROCESS)
"""What is asked for first: of a server there are hundreds of series, of its threads thousands."""
_NEWEST = 2
"""Samples that a counter's newest rate is made of."""
_VALUES: dict[str, Callable[[SeriesRow], float | Unknown]] = {
    "last": lambda row: row.last,
    "least": lambda row: row.least,
    "mean": lambda row: row.mean,
    "most": lambda row: row.most,
}
_AS_WIDE_AS_MAY_BE = tuple(" " * column.width for column in _COLUMNS if column.key in _VALUES)


@frozen
class SeriesTable:
    """An implementation of `views.TableView`: by track and metric, unless it is sorted.

    Attributes:
        known: Rows that are worked out already, without their samples.
    """

    trace: Trace
    keys: tuple[SeriesKey, ...]
    columns: tuple[Column, ...]
    widest: tuple[int, ...]
    known: Mapping[SeriesKey, SeriesRow] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    def row(self, key: SeriesKey) -> SeriesRow:
        """What the series of a key holds."""
        return series_row(self.trace, self.trace.series[key])

    def cells(self, row: int) -> Sequence[Cell]:
        """One cell per column: numbers with their units, which differ by row."""
        found = self._known(self.keys[row])
        values = (value_of(found) for value_of in _VALUES.values())
        told = [value if isinstance(value, Unknown) else quantity(value, found.unit) for value in values]
        return found.track, found.title, found.last_said or told[0], *told[1:], found.source

    def _known(self, key: SeriesKey) -> SeriesRow:
        return self.known.get(key) or self.row(key)

    def key(self, row: int) -> SeriesKey:
        """Its track and its metric."""
        return self.keys[row]

    def sorted_by(self, column: str, *, descending: bool) -> SeriesTable:
        """In another order: numbers by their values in their base units, whatever these are."""
        cells = [self._ordered_by(key, column) for key in self.keys]
        return replace(self, keys=tuple(self.keys[i] for i in places_by(cells, descending=descending)))

    def sorts_at_once(self, column: str) -> bool:
        """Whether its cells are known: of most numbers each series must be gone through."""
        return (column not in _VALUES or bool(self.known)) and len(self) <= SORTED_AT_ONCE

    def _ordered_by(self, key: SeriesKey, column: str) -> Cell:
        if column not in _VALUES:
            return self._texts(key)[column]
        if column == "last" and key not in self.known:  # of all that a series holds it takes the end
            last = series_row(self.trace, self.trace.series[key].newest(_NEWEST)).last
            if not isinstance(last, Unknown):
                return last
        return _VALUES[column](self._known(key))

    def filters_at_once(self, text: str) -> bool:
        """Whether they are few: names are known."""
        return len(self) <= SORTED_AT_ONCE

    def filtered(self, text: str) -> SeriesTable:
        """Those of a track, a number or a source whose name contains `text`, ignoring case."""
        wanted = text.casefold()
        found = (key for key in self.keys if any(wanted in one.casefold() for one in self._texts(key).values()))
        return replace(self, keys=tuple(found))

    def why_none(self) -> None:
        """A text can always be looked for."""

    def _texts(self, key: SeriesKey) -> dict[str, str]:
        series = self.trace.series[key]
        track, title = names_of(self.trace, series)
        return {"track": track, "name": title, "source": series.source}

    def fitted(self) -> SeriesTable:
        """With columns of numbers too no wider than their longest cell: all are worked out for that, and kept."""
        known = replace(self, known={key: replace(self.row(key), values=()) for key in self.keys})
        columns, widest = fitted(self.columns, [known.cells(i) for i in range(len(self))])
        return replace(known, columns=columns, widest=widest)


def series_table(trace: Trace) -> SeriesTable | Unknown:
    """All series of a trace but those that distributions are made of, or why there are none."""
    if why := why_no_series(trace):
        return why
    shown = (key for key, series in trace.series.items() if not is_part(series.metric))
    keys = tuple(sorted(shown, key=lambda key: (_place(trace, key[0]), key)))
    names = ((*names_of(trace, trace.series[key]), trace.series[key].source) for key in keys)
    columns, widest = fitted(_COLUMNS, [(track, title, *_AS_WIDE_AS_MAY_BE, source) for track, title, source in names])
    return SeriesTable(trace, keys, columns, widest)


def _place(trace: Trace, id: TrackId) -> int:
    kind = trace.tracks[id].kind if id in trace.tracks else None
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)
