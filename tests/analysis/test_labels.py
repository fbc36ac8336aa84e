"""Labelled series are found by metric and track, anew only when their names change."""

from __future__ import annotations

from llmtop.analysis.series.labels import labelled, labels
from llmtop.model import Metric, Origin, Series, Trace, TrackId

M = Metric("m", "")


def trace(*keys: tuple[str, str]) -> Trace:
    found = ((TrackId(track), name) for track, name in keys)
    series = {key: Series.of(key[0], Metric(key[1], ""), "s", [(1, 1.0)]) for key in found}
    return Trace(Origin("live"), series=series)


def test_labels_are_found_by_metric_and_track() -> None:
    seen = trace(("a", "m|x"), ("a", "m"), ("b", "m|y"), ("a", "m|z"), ("a", "other|x"))
    assert labels(seen, M) == {"a": ("x", "z"), "b": ("y",)}
    assert labels(seen, Metric("none", "")) == {}


def test_a_label_may_hold_a_bar() -> None:
    assert labels(trace(("a", "m|x|y")), M) == {"a": ("x|y",)}


def test_a_trace_with_another_series_is_looked_at_anew() -> None:
    assert labels(trace(("a", "m|x")), M) == {"a": ("x",)}
    assert labels(trace(("a", "m|x"), ("a", "m|new")), M) == {"a": ("x", "new")}


def test_series_without_labels_do_not_matter() -> None:
    assert labelled(trace(("a", "m|x"), ("neighbour:7", "cpu"))) == labelled(trace(("a", "m|x")))


def test_a_series_that_has_gone_is_no_longer_told() -> None:
    assert labels(trace(("a", "m|x"), ("a", "m|y"), ("b", "cpu")), M) == {"a": ("x", "y")}
    assert labels(trace(("a", "m|y"), ("b", "cpu")), M) == {"a": ("y",)}
    assert labels(trace(("a", "m|y")), M) == {"a": ("y",)}
