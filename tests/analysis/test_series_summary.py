"""Every series of a trace in a line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.pages import series as series_page
from llmtop.analysis.pages.series import SeriesTable, series_table
from llmtop.analysis.series.summary import SeriesRow, has_series_alone, series_row, why_no_series
from llmtop.analysis.tables import SORTED_AT_ONCE
from llmtop.cli.report_series import series_records
from llmtop.model import NS_PER_S, Metric, Origin, Series, Stack, Trace, Track, TrackId, TrackKind, Unknown

GPU = ids.gpu(0)


def trace_of(*series: Series) -> Trace:
    return Trace(Origin("made-up"), series={(one.track, one.metric.name): one for one in series})


def series(track: TrackId, metric: Metric, *values: float | None) -> Series:
    return Series.of(track, metric, "NVML", [(i * NS_PER_S, value) for i, value in enumerate(values)])


def rows_of(trace: Trace) -> list[SeriesRow]:
    table = series_table(trace)
    assert isinstance(table, SeriesTable)
    return [table.row(key) for key in table.keys]


def test_a_gauge_is_told_by_its_values() -> None:
    (row,) = rows_of(trace_of(series(GPU, Metric("gpu.power", "W", title="power"), 1.0, None, 4.0, 1.0)))
    assert (row.track, row.title, row.unit, row.source, row.seconds) == (GPU, "power", "W", "NVML", 3.0)
    assert (row.least, row.mean, row.most, row.last) == (1.0, 2.0, 4.0, 1.0)


@pytest.mark.parametrize(
    ("metric", "value", "told"),
    [
        (v.GPU_CLOCK_REASONS, 0.0, "none"),
        (v.GPU_CLOCK_REASONS, 4.0, "power cap"),
        (v.PROCESS_STATE, 2.0, "stopped"),
    ],
)
def test_what_stands_for_something_is_told_in_words(metric: Metric, value: float, told: str) -> None:
    table = series_table(trace_of(series(GPU, metric, 0.0, value)))
    assert isinstance(table, SeriesTable)
    _, _, last, *others, _ = table.cells(0)
    assert last == told
    assert [str(other) for other in others] == ["it stands for something, and is no quantity"] * 3


def test_time_in_time_is_a_share_of_it_in_tables_for_machines() -> None:
    """Half of a second, then all of it, in each second."""
    trace = trace_of(series(GPU, v.GPU_THROTTLED, 0.0, 0.5e9, 1.5e9), series(GPU, v.GPU_POWER, 5.0))
    table = series_table(trace)
    assert isinstance(table, SeriesTable)
    found = {record["metric"]: record for record in series_records(table)}
    throttled, power = found[v.GPU_THROTTLED.name], found[v.GPU_POWER.name]
    assert [throttled[key] for key in ("unit", "least", "mean", "most", "last")] == ["ratio", 0.5, 0.75, 1.0, 1.0]
    assert [power[key] for key in ("unit", "last")] == ["W", 5.0]


def test_a_counter_is_told_by_its_rates() -> None:
    (row,) = rows_of(trace_of(series(GPU, Metric("gpu.bytes", "bytes", counter=True), 100.0, 110.0, 140.0)))
    assert row.unit == "bytes/s"
    assert (row.least, row.mean, row.most, row.last) == pytest.approx((10.0, 20.0, 30.0, 30.0))


def test_what_a_server_and_its_gpus_tell_comes_before_their_surroundings() -> None:
    metric = Metric("x", "W")
    kinds = (TrackKind.THREAD, TrackKind.PROCESS, TrackKind.HOST, TrackKind.ENDPOINT, TrackKind.GPU, TrackKind.SERVER)
    tracks = {TrackId(kind): Track(TrackId(kind), kind, kind.value) for kind in kinds}
    found = rows_of(replace(trace_of(*(series(id, metric, 1.0) for id in (*tracks, TrackId("a")))), tracks=tracks))
    assert [row.track for row in found] == ["server", "gpu", "endpoint", "host", "process", "a", "thread"]


def test_what_has_no_value_says_why_and_is_not_zero() -> None:
    rows = rows_of(trace_of(series(GPU, Metric("a", "W"), None), series(GPU, Metric("b", "bytes", counter=True), 7.0)))
    assert [str(row.mean) for row in rows] == [
        "no sample has a value",
        "a counter tells with its second sample how fast it grows",
    ]
    assert all(isinstance(value, Unknown) for row in rows for value in (row.least, row.most, row.last))
    why = why_no_series(Trace(Origin("made-up")))
    assert isinstance(why, Unknown)
    assert (why.reason, "llmtop record" in why.remedy) == ("this file has no series of numbers", True)


@pytest.mark.parametrize(
    ("trace", "is_all"),
    [
        (trace_of(series(GPU, Metric("a", "W"), 1.0)), True),
        (replace(trace_of(series(GPU, Metric("a", "W"), 1.0)), stacks=(Stack(("main",), 1.0, "ns"),)), False),
        (Trace(Origin("made-up"), stacks=(Stack(("main",), 1.0, "ns"),)), False),
        (Trace(Origin("made-up")), False),
    ],
)
def test_whether_numbers_are_all_that_there_is(trace: Trace, is_all: bool) -> None:
    assert has_series_alone(trace) is is_all


def table_of(*several: Series) -> SeriesTable:
    table = series_table(trace_of(*several))
    assert isinstance(table, SeriesTable)
    return table


POWER, BYTES = Metric("power", "W", title="board power"), Metric("bytes", "bytes", counter=True)


def test_rows_are_sorted_by_their_numbers_and_not_by_how_these_are_written() -> None:
    watts = [series(ids.gpu(i), POWER, value) for i, value in enumerate((900.0, None, 1500.0, 80.0))]
    table = table_of(*watts)
    column = [one.key for one in table.columns].index("last")
    ordered = table.sorted_by("last", descending=True)
    assert [ordered.cells(i)[column] for i in range(3)] == ["1500 W", "900 W", "80.0 W"]
    assert isinstance(ordered.cells(3)[column], Unknown)
    by_gpu = ordered.sorted_by("track", descending=True)
    assert [track for track, _ in by_gpu.keys] == [ids.gpu(i) for i in (3, 2, 1, 0)]


def test_rows_are_found_by_what_they_are_of_their_number_or_who_read_it() -> None:
    table = table_of(series(GPU, POWER, 1.0), series(ids.gpu(1), BYTES, 1.0, 2.0))
    assert [table.filtered(text).keys for text in ("BOARD", "900")] == [((GPU, "power"),), ()]
    assert len(table.filtered("nvml")) == 2


def test_on_a_narrow_screen_who_read_it_goes_first_and_the_newest_value_stays() -> None:
    """Columns are worth a comparison of two rows: their widths do not depend on what the rows hold by now."""
    columns = table_of(series(GPU, POWER, 1.0)).columns
    leaving = sorted((one for one in reversed(columns) if one.shrink), key=lambda one: -one.shrink)
    assert [one.key for one in leaving] == ["source", "most", "least", "mean", "track"]
    assert {one.key: one.width for one in columns if one.key in ("last", "least", "mean", "most")} == {
        "last": 18,
        **dict.fromkeys(("least", "mean", "most"), 14),
    }


def test_columns_that_are_fitted_are_no_wider_than_what_stands_in_them() -> None:
    widths = {one.key: one.width for one in table_of(series(GPU, POWER, 1.0)).fitted().columns}
    assert (widths["last"], widths["source"]) == (len("1.00 W"), len("source "))


def test_a_frame_has_time_to_sort_by_what_is_known() -> None:
    table = table_of(series(GPU, POWER, 1.0))
    assert [table.sorts_at_once(one.key) for one in table.columns] == [True, True, *[False] * 4, True]
    assert all(table.fitted().sorts_at_once(one.key) for one in table.columns)
    many = replace(table, keys=table.keys * (SORTED_AT_ONCE + 1))
    assert not many.sorts_at_once("source")


def test_numbers_of_fitted_rows_are_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large file that takes a part of a second, which keys must not wait for; samples are read when seen."""
    table = table_of(series(GPU, POWER, 1.0, 5.0), series(ids.gpu(1), POWER, 2.0, None, 3.0)).fitted()
    cells, row = [table.cells(i) for i in range(2)], table.row(table.key(0))
    assert [value for _, value in row.values] == [1.0, 5.0]
    asked: list[Series] = []
    monkeypatch.setattr(series_page, "series_row", lambda trace, one: asked.append(one) or series_row(trace, one))  # type: ignore[func-returns-value]
    for column, first in (("last", 0), ("least", 1), ("mean", 0), ("most", 0)):
        ordered = table.sorted_by(column, descending=True).filtered("power")
        assert [ordered.cells(i) for i in range(2)] == [cells[first], cells[1 - first]], column
    assert asked == []
    table.row(table.key(0))
    assert len(asked) == 1
