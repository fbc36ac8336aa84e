"""System calls: sums over processes, rates over the time that was looked, percentiles, kinds."""

from __future__ import annotations

import math

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.histograms import Quantile
from llmtop.analysis.threads.syscalls import NOT_TIMED, Category, category_of, syscalls_table, syscalls_view
from llmtop.model import NS_PER_S, Metric, Missing, Origin, Series, Trace, TrackId, Unknown, What
from tests.live_traces import SOURCES

NOW = 100 * NS_PER_S
S = NS_PER_S


def trace(series: dict[tuple[TrackId, Metric], list[tuple[int, float | None]]], *missing: Missing) -> Trace:
    made = {
        (track, metric.name): Series.of(track, metric, "eBPF", samples) for (track, metric), samples in series.items()
    }
    return Trace(Origin("live"), end_ns=NOW, series=made, missing=missing, sources=SOURCES)


def counter(before: float, after: float) -> list[tuple[int, float | None]]:
    """What a counter of probes looks like that last moved 30 s ago and then 2 s ago."""
    return [(NOW - 30 * S, before), (NOW - 2 * S, after)]


def of(
    pid: int, name: str, count: float, observed_s: float = 5, **timed: float
) -> dict[tuple[TrackId, Metric], list[tuple[int, float | None]]]:
    track = ids.process(pid)
    series = {
        (track, v.SYSCALL_OBSERVED): counter(0, observed_s * S),
        (track, v.labelled(v.SYSCALL_COUNT, name)): counter(1000, 1000 + count),
    }
    if timed:
        series |= {
            (track, v.labelled(v.SYSCALL_ERRORS, name)): counter(1, 1 + timed.get("errors", 0)),
            (track, v.labelled(v.SYSCALL_TIME, name)): counter(7, 7 + timed["ns"]),
            (track, v.bucket(v.labelled(v.SYSCALL_LATENCY, name), 1024)): counter(900, 900 + timed["fast"]),
            (track, v.bucket(v.labelled(v.SYSCALL_LATENCY, name), 2048)): counter(1000, 1000 + count),
            (track, v.bucket(v.labelled(v.SYSCALL_LATENCY, name), math.inf)): counter(1000, 1000 + count),
        }
    return series


def test_a_rate_is_over_the_time_that_was_looked_not_over_the_window() -> None:
    view = syscalls_view(trace(of(7, "read", 500, observed_s=5, ns=5e5, fast=250, errors=3)))
    assert not isinstance(view, Unknown)
    (call,) = view.calls
    assert (call.name, call.count, call.per_second, call.errors, call.total_ns) == ("read", 500, 100, 3, 5e5)
    assert view.observed_s == 5


def test_percentiles_are_within_the_bucket_where_the_rank_falls() -> None:
    view = syscalls_view(trace(of(7, "read", 500, ns=5e5, fast=250)))
    assert not isinstance(view, Unknown)
    assert view.calls[0].p50 == Quantile(0.0, 1024.0)
    assert view.calls[0].p99 == Quantile(1024.0, 2048.0)


def test_a_tracer_that_only_sums_times_up_has_no_percentiles() -> None:
    why = Unknown("perf adds call times up and keeps no distribution", "use eBPF probes")
    of_perf = of(7, "read", 500, ns=5e5, fast=0, errors=3)
    of_perf = {key: samples for key, samples in of_perf.items() if not key[1].name.startswith("syscall.latency")}
    view = syscalls_view(trace(of_perf, Missing(What("syscall.latency"), why)))
    assert not isinstance(view, Unknown)
    (call,) = view.calls
    assert (call.count, call.errors, call.total_ns, call.p50, call.p99) == (500, 3, 5e5, why, why)
    no_errors = Unknown("this perf counts no errors")
    view = syscalls_view(
        trace(of_perf, Missing(What("syscall.latency"), why), Missing(What("syscall.errors"), no_errors))
    )
    assert not isinstance(view, Unknown)
    assert view.calls[0].errors == no_errors
    assert view.source == "eBPF"


def test_processes_are_added_up() -> None:
    view = syscalls_view(trace(of(7, "read", 500, ns=5e5, fast=500) | of(8, "read", 100, ns=1e5, fast=0)))
    assert not isinstance(view, Unknown)
    (call,) = view.calls
    assert (call.count, call.per_second, call.total_ns) == (600, 120, 6e5)
    assert call.p99 == Quantile(1024.0, 2048.0)


def test_what_was_only_counted_has_no_times() -> None:
    view = syscalls_view(trace(of(7, "sched_yield", 5000)))
    assert not isinstance(view, Unknown)
    (call,) = view.calls
    assert call.count == 5000
    assert call.total_ns == call.p50 == call.errors == NOT_TIMED


def test_calls_that_did_not_happen_in_the_window_are_left_out() -> None:
    view = syscalls_view(trace(of(7, "read", 0) | of(7, "write", 1)))
    assert not isinstance(view, Unknown)
    assert [call.name for call in view.calls] == ["write"]


def test_a_helper_that_was_started_again_counts_from_its_start() -> None:
    series = of(7, "write", 5)
    series[ids.process(7), v.labelled(v.SYSCALL_COUNT, "write")] = [
        (NOW - 30 * S, 1000),
        (NOW - 5 * S, 0),
        (NOW - 2 * S, 40),
    ]
    view = syscalls_view(trace(series))
    assert not isinstance(view, Unknown)
    assert view.calls[0].count == 40


def test_a_server_that_asks_nothing_is_seen_asking_nothing() -> None:
    view = syscalls_view(trace({(ids.process(7), v.SYSCALL_OBSERVED): counter(0, 5 * S)}))
    assert not isinstance(view, Unknown)
    assert (view.calls, view.observed_s) == ((), 5)


def test_without_probes_it_says_why() -> None:
    why = Unknown("only root may load probes", "sudo llmtop ...")
    assert syscalls_view(trace({}, Missing(What("ebpf"), why))) == why
    assert isinstance(syscalls_view(trace({})), Unknown)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("read", "data"),
        ("pwritev2", "data"),
        ("recvmsg", "data"),
        ("sendfile", "data"),
        ("mmap", "memory"),
        ("madvise", "memory"),
        ("futex", "threads"),
        ("clone3", "threads"),
        ("sched_yield", "spin"),
        ("ppoll (no wait)", "spin"),
        ("ppoll", "wait"),
        ("pselect6", "wait"),
        ("epoll_pwait2", "wait"),
        ("clock_nanosleep", "sleep"),
        ("ioctl", "driver"),
        ("openat", "files"),
        ("readlink", "files"),
        ("syscall_999", "other"),
    ],
)
def test_kinds(name: str, kind: str) -> None:
    assert category_of(name).name == kind


def test_the_table_says_what_to_look_at_next() -> None:
    view = syscalls_view(trace(of(7, "sched_yield", 5000) | of(7, "read", 500, ns=5e5, fast=250)))
    assert not isinstance(view, Unknown)
    table = syscalls_table(view)
    assert [table.cells(row)[0] for row in range(len(table))] == ["read", "sched_yield"]
    kinds: list[Category] = [call.category for call in view.calls]
    assert all("-p PID" in kind.next_step for kind in kinds)
    assert all(str(table.cells(row)[-1]).endswith("-p 7") for row in range(len(table)))
    assert table.sorted_by("rate", descending=True).key(0) == "sched_yield"


def test_errors_are_counted_in_whole_numbers() -> None:
    view = syscalls_view(trace(of(7, "read", 500, ns=5e5, fast=250, errors=3)))
    assert not isinstance(view, Unknown)
    (errors,) = (cell for cell in syscalls_table(view).cells(0) if isinstance(cell, int))
    assert errors == 3  # "3", where a float would be drawn as "3.00"


def test_the_first_slow_call_does_not_make_all_calls_slow() -> None:
    """A bound that nothing had reached begins with 0, though the 1000 calls before were below it too."""
    fast = of(7, "read", 100, ns=5e5, fast=99)
    latency = v.labelled(v.SYSCALL_LATENCY, "read")
    late: list[tuple[int, float | None]] = [(NOW - 3 * S, 0.0), (NOW - 2 * S, 1100.0)]
    view = syscalls_view(trace(fast | {(ids.process(7), v.bucket(latency, 1 << 30)): late}))
    assert not isinstance(view, Unknown)
    assert view.calls[0].p50 == Quantile(0.0, 1024.0)
    assert view.calls[0].p99 == Quantile(0.0, 1024.0)
