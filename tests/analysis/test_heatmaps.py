"""Latencies over time: counts by column and row, gaps where nobody looked, restarts, and what is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.histograms import Quantile
from llmtop.analysis.server.heatmaps import run_queue_heatmap, syscall_heatmap
from llmtop.analysis.views import HeatColumn, Heatmap
from llmtop.collectors.tracing.reports import Reports
from llmtop.collectors.tracing.wire import sample
from llmtop.model import NS_PER_S, Metric, Missing, Origin, Series, Trace, TrackId, Unknown, What
from llmtop.session import Recorder
from tests.live_traces import SOURCES

WINDOW = 10 * NS_PER_S
ATTACHED_S = 1


def counted(values: Mapping[tuple[TrackId, Metric], Sequence[tuple[int, float | None]]], end_s: int = 10) -> Trace:
    """A trace of counters with (second, value) samples."""
    series = {
        (track, metric.name): Series.of(track, metric, "eBPF", [(s * NS_PER_S, value) for s, value in samples])
        for (track, metric), samples in values.items()
    }
    return Trace(Origin("live"), 0, end_s * NS_PER_S, series=series)


def looked(
    seconds: Sequence[int], metric: Metric = v.SCHEDULER_OBSERVED, track: TrackId = ids.process(1)
) -> dict[tuple[TrackId, Metric], list[tuple[int, float | None]]]:
    """The probes were attached from 0 on and reported at these seconds."""
    return {(track, metric): [(s, float(s * NS_PER_S)) for s in seconds]}


def queued(upper: float, track: TrackId = ids.process(1)) -> tuple[TrackId, Metric]:
    return track, v.bucket(v.PROCESS_RUN_QUEUE_LATENCY, upper)


def heatmap(trace: Trace, columns: int = 10, known: Heatmap | None = None) -> Heatmap:
    made = run_queue_heatmap(trace, WINDOW, columns, known)
    assert isinstance(made, Heatmap)
    return made


def rates(made: Heatmap) -> list[list[float] | None]:
    return [None if column is None else list(column.rates) for column in made.columns]


EVERY_SECOND = looked(range(11))


def test_events_stand_in_the_column_and_row_where_they_happened() -> None:
    made = heatmap(
        counted(
            EVERY_SECOND
            | {
                queued(256): [(0, 0), (3, 5)],
                queued(512): [(0, 0), (3, 7), (8, 10)],
                queued(math.inf): [(0, 0), (3, 7), (8, 10)],
            }
        )
    )
    assert made.uppers == (256, 512, math.inf)
    assert made.start_ns == 0
    assert made.step_ns == NS_PER_S
    busy = {i: column for i, column in enumerate(rates(made)) if column != [0, 0, 0]}
    assert busy == {2: [5, 2, 0], 7: [0, 3, 0]}


@pytest.mark.parametrize(("attached_s", "is_known"), [(0.09, False), (0.11, True)])
def test_a_column_is_known_in_which_probes_looked_a_tenth_of_the_time(attached_s: float, is_known: bool) -> None:
    seen = [(i, (i - (1 - attached_s) * (i > 4)) * NS_PER_S) for i in range(11)]
    made = heatmap(counted({(ids.process(1), v.SCHEDULER_OBSERVED): seen, queued(256): [(0, 0.0), (10, 0.0)]}))
    assert [column is not None for column in made.columns] == [*[True] * 4, is_known, *[True] * 5]


def test_processes_are_added_up() -> None:
    made = heatmap(
        counted(
            EVERY_SECOND
            | looked(range(11), track=ids.process(2))
            | {queued(256): [(0, 0), (3, 5)], queued(256, ids.process(2)): [(0, 0), (3, 1)]}
        )
    )
    assert rates(made)[2] == [6]


def test_columns_narrower_than_a_poll_share_its_rate_and_wider_ones_take_the_mean() -> None:
    trace = counted(EVERY_SECOND | {queued(256): [(0, 0), (3, 6), (4, 6)]})
    assert rates(heatmap(trace, 20))[3:7] == [[0], [6], [6], [0]]
    assert rates(heatmap(trace, 5)) == [[0], [3], [0], [0], [0]]


def test_a_gap_is_not_a_column_without_events() -> None:
    """The probes were off from 3 s to 8 s: their clock stood, and no report came."""
    seconds = {(track, metric): [(0, 0.0), (1, 1e9), (2, 2e9), (3, 3e9), (8, 3e9), (9, 4e9), (10, 5e9)]
               for track, metric in EVERY_SECOND}  # fmt: skip
    made = heatmap(counted(seconds | {queued(256): [(0, 0), (2, 4), (9, 8)]}))
    assert rates(made) == [[0], [4], [0], None, None, None, None, None, [4], [0]]


def test_reports_that_stay_away_are_waited_for_only_so_long() -> None:
    """The last report is of 4 s: at 5 s the next may be late, at 10 s the probes are off."""
    made = heatmap(counted(looked(range(5)), end_s=5))
    assert made.seen_ns == 4 * NS_PER_S
    made = heatmap(counted(looked(range(5))))
    assert rates(made)[3:] == [[], None, None, None, None, None, None]
    assert made.seen_ns == 7.5 * NS_PER_S


def test_a_bound_that_is_first_seen_late_does_not_bring_all_that_was_before() -> None:
    """Reports tell a bound from its first use on, and say that it had been 0, also where shorter ones were counted."""
    made = heatmap(
        counted(
            EVERY_SECOND
            | {
                queued(256): [(0, 0), (1, 100)],
                queued(512): [(4, 0), (5, 101)],
                queued(math.inf): [(0, 0), (1, 100), (5, 101)],
            }
        )
    )
    assert rates(made)[0] == [100, 0, 0]
    assert rates(made)[4] == [0, 1, 0]


def test_counters_that_begin_again_bring_what_they_show_since() -> None:
    made = heatmap(counted(EVERY_SECOND | {queued(256): [(0, 0), (2, 50), (5, 3)]}))
    assert rates(made)[1] == [50]
    assert rates(made)[4] == [3]


def test_rates_are_made_with_the_time_that_was_looked() -> None:
    half: dict[tuple[TrackId, Metric], Sequence[tuple[int, float | None]]] = {
        key: [(s, s * NS_PER_S / 2) for s in range(11)] for key in EVERY_SECOND
    }
    made = heatmap(counted(half | {queued(256): [(0, 0), (3, 5)]}))
    assert rates(made)[2] == [10]


def test_quantiles_of_each_column() -> None:
    made = heatmap(
        counted(
            EVERY_SECOND
            | {queued(256): [(0, 0), (3, 98)], queued(512): [(0, 0), (3, 100)], queued(math.inf): [(0, 0), (3, 100)]}
        )
    )
    column = made.columns[2]
    assert column is not None
    assert column.p50 == Quantile(0.0, 256.0)
    assert column.p99 == Quantile(256.0, 512.0)
    assert made.columns[3] == HeatColumn((0, 0, 0))


def test_finished_columns_are_taken_over() -> None:
    values: dict[tuple[TrackId, Metric], list[tuple[int, float | None]]]
    values = {queued(256): [(0, 0), (3, 5)], queued(math.inf): [(0, 0), (3, 5), (10, 6)]}
    before = heatmap(counted(EVERY_SECOND | values))
    later = counted(looked(range(13)) | values | {queued(256): [(0, 0), (3, 5), (12, 7)]}, end_s=12)
    made = heatmap(later, known=before)
    assert made == heatmap(later)
    assert all(new is old for new, old in zip(made.columns[:8], before.columns[2:], strict=True))
    assert made.columns[-1] is not None


def test_of_system_calls_one_or_all_together() -> None:
    observed = looked(range(11), v.SYSCALL_TIMED)
    read, futex = (v.bucket(v.labelled(v.SYSCALL_LATENCY, name), 512) for name in ("read", "futex"))
    trace = counted(observed | {(ids.process(1), read): [(0, 0), (3, 5)], (ids.process(1), futex): [(0, 0), (3, 2)]})
    one, everything = syscall_heatmap(trace, "read", WINDOW, 10), syscall_heatmap(trace, None, WINDOW, 10)
    assert isinstance(one, Heatmap)
    assert isinstance(everything, Heatmap)
    assert (one.title, everything.title) == ("read", "all system calls")
    assert rates(one)[2] == [5]
    assert rates(everything)[2] == [7]


def test_without_probes_it_says_why() -> None:
    why = Unknown("only root may load probes", "sudo llmtop --attach PID")
    assert (
        run_queue_heatmap(Trace(Origin("live"), missing=(Missing(What("ebpf"), why),), sources=SOURCES), WINDOW, 10)
        == why
    )
    assert isinstance(syscall_heatmap(Trace(Origin("live")), None, WINDOW, 10), Unknown)


def test_what_the_probes_report_arrives_in_its_rows() -> None:
    """From the helper's slots through the recorder: nothing is lost, counted twice, or put into another row."""
    recorder, reports = Recorder(Origin("live")), Reports()
    truth = [{"3": 2}, {"3": 2, "4": 1}, {"3": 2, "4": 1}, {"2": 7, "3": 2, "4": 1}, {"2": 7, "3": 2, "4": 1, "27": 5}]
    for second, slots in enumerate(truth, 1):
        report = {
            "t": second * NS_PER_S,
            "elapsed": NS_PER_S,
            "queue": [[1, slots]],
            "waits": [[1, 1, 202, 1, 0, second]],
            "observed": {"calls": 0, "timed": 0, "scheduler": second * NS_PER_S},
        }
        readings = reports.readings(sample(report))
        recorder.append("ebpf", Trace(Origin("live"), second * NS_PER_S, second * NS_PER_S, readings=readings))
    made = run_queue_heatmap(recorder.freeze(), 5 * NS_PER_S, 5)
    assert isinstance(made, Heatmap)
    found = [{u: r for u, r in zip(made.uppers, column or (), strict=True) if r} for column in rates(made)]
    assert found == [{2048.0: 2}, {4096.0: 1}, {}, {1024.0: 7}, {math.inf: 5}]
