"""What else is told of a GPU: each fact in its words, the gravest first, and worked out as seldom as it moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.gpus.health import health
from llmtop.analysis.pages.gpus import GpusView, gpus_view
from llmtop.model import NS_PER_S, Fact, Metric, Series, Trace, TrackId, Unknown
from tests.live_traces import TARGET, Scene, live_trace


def steady(gpus: int = 1) -> Trace:
    return live_trace(Scene(gpus=gpus, is_moving=False), ticks=30)


def with_value(trace: Trace, track: TrackId, metric: Metric, value: float | None) -> Trace:
    """The trace with one series of a constant value in place of what there was."""
    samples = [(trace.end_ns - i * NS_PER_S, value) for i in range(30, -1, -1)]
    series = Series.of(track, metric, "NVML", samples)
    return replace(trace, series={**trace.series, (track, metric.name): series})


def with_facts(trace: Trace, track: TrackId, **facts: Fact) -> Trace:
    old = trace.tracks[track]
    return replace(trace, tracks={**trace.tracks, track: replace(old, facts={**old.facts, **facts})})


@pytest.mark.parametrize(
    ("readings", "facts", "expected"),
    [
        ({v.GPU_ECC_CORRECTED: 3, v.GPU_ECC_UNCORRECTED: 0}, {}, ("ECC", "3 errors corrected, 0 not", "info")),
        ({v.GPU_ECC_CORRECTED: 3, v.GPU_ECC_UNCORRECTED: 1}, {}, ("ECC", "3 errors corrected, 1 not", "error")),
        ({}, {"ecc": "disabled"}, ("ECC", "off", "warning")),
        (
            {v.GPU_PCIE_GENERATION: 1, v.GPU_PCIE_WIDTH: 16},
            {"pcie_max_generation": 5, "pcie_max_width": 16},
            ("PCIe link", "gen 1 x16 (of gen 5 x16)", "info"),
        ),
        (
            {v.GPU_PCIE_GENERATION: 5, v.GPU_PCIE_WIDTH: 8, v.GPU_PCIE_REPLAYS: 7},
            {"pcie_max_generation": 5, "pcie_max_width": 16},
            ("PCIe link", "gen 5 x8 (of gen 5 x16), 7 replays", "warning"),
        ),
        ({v.GPU_NVLINK_ACTIVE: 18}, {"nvlinks": 18}, ("NVLink", "18 of 18 up", "info")),
        ({v.GPU_NVLINK_ACTIVE: 17}, {"nvlinks": 18}, ("NVLink", "17 of 18 up", "warning")),
        (
            {v.GPU_NVLINK_ACTIVE: 18, v.GPU_NVLINK_ERRORS: 2},
            {"nvlinks": 18},
            ("NVLink", "18 of 18 up, 2 errors", "warning"),
        ),
        ({v.GPU_ROWS_CORRECTED: 1, v.GPU_ROWS_UNCORRECTED: 1}, {}, ("memory rows", "2 replaced", "info")),
        (
            {v.GPU_ROWS_CORRECTED: 1, v.GPU_ROWS_UNCORRECTED: 1},
            {"row_remapping": "failed"},
            ("memory rows", "a faulty row could not be replaced: the GPU needs service", "error"),
        ),
        (
            {v.GPU_ROWS_CORRECTED: 1, v.GPU_ROWS_UNCORRECTED: 1},
            {"row_remapping": "pending"},
            ("memory rows", "a faulty row is to be replaced: reset the GPU", "warning"),
        ),
        ({}, {"recovery_action": "reset the GPU"}, ("recovery", "the driver asks: reset the GPU", "error")),
        ({v.GPU_TEMPERATURE_MEMORY: 88}, {}, ("memory temperature", "88 °C", "info")),
    ],
)
def test_health_in_words(readings: dict[Metric, float], facts: dict[str, Fact], expected: tuple[str, str, str]) -> None:
    trace = with_facts(steady(), ids.gpu(0), **facts)
    for metric, value in readings.items():
        trace = with_value(trace, ids.gpu(0), metric, value)
    found = [(fact.title, fact.text, fact.severity.value) for fact in health(trace, trace.tracks[ids.gpu(0)])]
    assert expected in found
    assert [severity for *_, severity in found] == sorted(
        (s for *_, s in found), key=["error", "warning", "info"].index
    )


def test_what_is_not_known_of_a_gpus_health_is_not_said() -> None:
    trace = with_facts(steady(), ids.gpu(0), ecc=Unknown("no"), nvlinks=Unknown("none"), recovery_action=Unknown("old"))
    trace = with_value(trace, ids.gpu(0), v.GPU_ECC_CORRECTED, None)
    titles = {fact.title for fact in health(trace, trace.tracks[ids.gpu(0)])}
    assert titles <= {"clocks", "chip", "driver", "UUID"}


def test_throttling_is_a_share_of_the_last_minute() -> None:
    trace = steady()
    metric = v.labelled(v.GPU_THROTTLED, v.ThrottleReason.POWER_CAP)
    series = Series.of(
        ids.gpu(0), metric, "NVML", [(trace.end_ns - 30 * NS_PER_S, 0.0), (trace.end_ns, 15.0 * NS_PER_S)]
    )
    trace = replace(trace, series={**trace.series, (ids.gpu(0), metric.name): series})
    texts = {fact.title: fact.text for fact in health(trace, trace.tracks[ids.gpu(0)])}
    assert texts["throttled"] == "power cap 50 % of the last minute"


def view_of(trace: Trace) -> GpusView:
    view = gpus_view(trace, TARGET)
    assert isinstance(view, GpusView)
    return view


def test_what_moves_slowly_is_worked_out_every_two_seconds() -> None:
    trace = steady()
    first = view_of(trace)
    soon, later = (replace(trace, end_ns=trace.end_ns + seconds * NS_PER_S) for seconds in (1, 2))
    again = gpus_view(soon, TARGET, first)
    assert isinstance(again, GpusView)
    assert again.efficiency is first.efficiency
    assert [row.health for row in again.rows] == [row.health for row in first.rows] != [()]
    third = gpus_view(later, TARGET, again)
    before = gpus_view(replace(trace, end_ns=trace.end_ns - NS_PER_S), TARGET, first)
    assert isinstance(third, GpusView)
    assert isinstance(before, GpusView)
    assert third.efficiency is not first.efficiency
    assert before.efficiency is not first.efficiency
