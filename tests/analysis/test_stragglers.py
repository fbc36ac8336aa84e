"""GPUs that keep step and GPUs that do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.gpus.stragglers import in_words, stragglers
from llmtop.analysis.rules import straggler
from llmtop.analysis.series.readings import server_gpus
from llmtop.model import NS_PER_S, Metric, Origin, Series, Trace, Track, TrackId, TrackKind
from tests.analysis.verdict_scenes import findings_of


def trace_of(values: dict[Metric, list[list[float]]], *, process: bool = True) -> Trace:
    """A trace of GPUs: for each metric and GPU the values of the last seconds, oldest first."""
    count = len(next(iter(values.values())))
    end_ns = 100 * NS_PER_S
    series = {}
    for metric, rows in values.items():
        for i, row in enumerate(rows):
            times = [end_ns - (len(row) - 1 - j) * NS_PER_S for j in range(len(row))]
            series[ids.gpu(i), metric.name] = Series.of(ids.gpu(i), metric, "GPM", list(zip(times, row, strict=True)))
    tracks = {ids.gpu(i): Track(ids.gpu(i), TrackKind.GPU, "H100") for i in range(count)}
    if process:
        tracks[ids.process(7)] = Track(ids.process(7), TrackKind.PROCESS, "Worker")
        for i in range(count):
            own = ids.gpu_process(ids.gpu(i), 7)
            tracks[own] = Track(own, TrackKind.GPU_PROCESS, "Worker", parent=ids.gpu(i))
    return Trace(Origin("live"), 0, end_ns, tracks=tracks, series=series)


def departing(values: dict[Metric, list[list[float]]]) -> dict[TrackId, str]:
    trace = trace_of(values)
    found = stragglers(trace, [trace.tracks_of(TrackKind.GPU)])
    return {track: in_words(departures) for track, departures in found.items()}


def steady(*levels: float) -> list[list[float]]:
    return [[level] * 20 for level in levels]


def test_a_slow_clock_among_eight_is_named_with_its_reason() -> None:
    values = {
        v.GPU_SM_CLOCK: steady(1980, 1980, 1965, 1410, 1980, 1950, 1980, 1980),
        v.GPU_CLOCK_REASONS: steady(*[64.0] * 8),
    }
    found = departing(values)
    assert list(found) == [ids.gpu(3)]
    assert found[ids.gpu(3)] == "SM clock 1410 MHz, its 7 peers' 1980 MHz (too hot (hardware slows it))"


@pytest.mark.parametrize(
    "clocks", [(1980, 1965, 1950), (1980, 1900, 1820, 1850), (1400, 1500, 1600, 1700), (1980,), ()]
)
def test_usual_differences_are_no_finding(clocks: tuple[float, ...]) -> None:
    assert not departing({v.GPU_SM_CLOCK: steady(*clocks)})


@pytest.mark.parametrize(("clock", "departs"), [(1741, False), (1740, True)])
def test_a_clock_departs_by_what_the_others_differ(clock: int, departs: bool) -> None:
    """A modified z-score of 3.5: 3.5 * 1.4826 * 50 MHz, the median of the distances from the median, are 259.5 MHz."""
    others = (1950, 1950, 1950, 2000, 2000, 2050, 2050, 2050)
    assert bool(departing({v.GPU_SM_CLOCK: steady(*others, clock)})) is departs


def test_two_gpus_need_a_large_ratio_and_the_lower_is_named() -> None:
    assert not departing({v.GPU_DRAM: steady(80, 50)})
    assert list(departing({v.GPU_DRAM: steady(80, 30)})) == [ids.gpu(1)]
    assert not departing({v.GPU_DRAM: steady(2.0, 0.5)})


def test_activity_departs_upwards_too() -> None:
    found = departing({v.GPU_UTIL: steady(40, 42, 95, 41)})
    assert list(found) == [ids.gpu(2)]
    assert "GPU busy 95 %, its 3 peers' 41 %" in found[ids.gpu(2)]


def test_several_measures_are_one_reason() -> None:
    found = departing({v.GPU_SM_CLOCK: steady(1980, 1980, 1200), v.GPU_DRAM: steady(80, 80, 40)})
    assert found[ids.gpu(2)].count(";") == 1


def test_a_burst_is_no_straggler() -> None:
    rows = [[80.0] * 20, [80.0] * 20, [80.0] * 12 + [10.0] * 5 + [80.0] * 3]
    assert not departing({v.GPU_DRAM: rows})


def test_a_short_history_is_no_verdict() -> None:
    assert not departing({v.GPU_SM_CLOCK: [[1980.0] * 4, [1980.0] * 4, [1000.0] * 4]})


def test_an_idle_gpu_of_nobody_is_not_compared() -> None:
    trace = trace_of({v.GPU_UTIL: steady(90, 91, 0)}, process=False)
    assert [track.id for track in server_gpus(trace)] == ["gpu:0", "gpu:1"]
    assert not findings_of(straggler, trace)


def test_a_hung_rank_of_the_server_is_compared() -> None:
    trace = trace_of({v.GPU_UTIL: steady(90, 91, 0)})
    [finding] = findings_of(straggler, trace)
    assert finding.subject == "GPU 2"
    assert "how work is shared out" in finding.action
    assert finding.evidence == ("GPU busy 0 %, its 2 peers' 90 %",)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9), st.permutations(range(9)))
def test_order_does_not_matter_and_most_are_never_named(levels: list[float], order: list[int]) -> None:
    found = departing({v.GPU_DRAM: steady(*levels)})
    assert len(found) <= len(levels) / 2
    shuffled = [i for i in order if i < len(levels)]
    again = departing({v.GPU_DRAM: steady(*(levels[i] for i in shuffled))})
    assert sorted(levels[int(track[4:])] for track in found) == sorted(
        levels[shuffled[int(track[4:])]] for track in again
    )
