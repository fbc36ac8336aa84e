"""Every series of a trace in a line."""

from __future__ import annotations

import pytest

from llmtop import ids
from llmtop.analysis.series.summary import series_rows, why_no_series
from llmtop.model import NS_PER_S, Metric, Origin, Series, Trace, TrackId, Unknown

GPU = ids.gpu(0)


def trace_of(*series: Series) -> Trace:
    return Trace(Origin("made-up"), series={(one.track, one.metric.name): one for one in series})


def series(track: TrackId, metric: Metric, *values: float | None) -> Series:
    return Series.of(track, metric, "NVML", [(i * NS_PER_S, value) for i, value in enumerate(values)])


def test_a_gauge_is_told_by_its_values() -> None:
    (row,) = series_rows(trace_of(series(GPU, Metric("gpu.power", "W", title="power"), 1.0, None, 4.0, 1.0)))
    assert (row.track, row.title, row.unit, row.source, row.seconds) == (GPU, "power", "W", "NVML", 3.0)
    assert (row.least, row.mean, row.most, row.last) == (1.0, 2.0, 4.0, 1.0)


def test_a_counter_is_told_by_its_rates() -> None:
    (row,) = series_rows(trace_of(series(GPU, Metric("gpu.bytes", "bytes", counter=True), 100.0, 110.0, 140.0)))
    assert row.unit == "bytes/s"
    assert (row.least, row.mean, row.most, row.last) == pytest.approx((10.0, 20.0, 30.0, 30.0))


def test_what_has_no_value_says_why_and_is_not_zero() -> None:
    rows = series_rows(
        trace_of(series(GPU, Metric("a", "W"), None), series(GPU, Metric("b", "bytes", counter=True), 7.0))
    )
    assert [str(row.mean) for row in rows] == [
        "no sample has a value",
        "a counter tells with its second sample how fast it grows",
    ]
    assert all(isinstance(value, Unknown) for row in rows for value in (row.least, row.most, row.last))
    assert why_no_series(Trace(Origin("made-up"))) == Unknown("this file has no series of numbers")
