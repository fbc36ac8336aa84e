"""What the kernel and the processor count of a loop: when that is a finding, and when it is not."""

from __future__ import annotations

import pytest

from llmtop import vocabulary as v
from llmtop.analysis.rules import allocation_churn, cache_misses, thread_migrations
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.threads.details import ThreadDetails, thread_details
from llmtop.analysis.threads.events import events
from llmtop.model import Metric, Severity, Trace, Unknown
from tests.analysis.verdict_scenes import API, WELL, Thread, findings_of

LOOP = Thread(on_cpu=0.6, run_queue=0.1, launches=500, sync=0.1)
STALLED = {
    v.THREAD_CYCLES: 1.8e9,
    v.THREAD_INSTRUCTIONS: 0.9e9,
    v.THREAD_CACHE_REFERENCES: 1e7,
    v.THREAD_CACHE_MISSES: 4e6,
    v.THREAD_DTLB_MISSES: 1.8e6,
}


def trace_of(counted: dict[Metric, float], loop: Thread = LOOP, running: float = 8.0) -> Trace:
    counters = {(loop.track, metric): rate for metric, rate in counted.items()}
    return WELL.but(threads=(API, loop), counters=counters, running=running).trace()


@pytest.mark.parametrize(("faults", "is_told"), [(39_000.0, False), (41_000.0, True)])
def test_faults_are_told_from_where_they_are_felt(faults: float, is_told: bool) -> None:
    found = findings_of(allocation_churn, trace_of({v.THREAD_MINOR_FAULTS: faults}))
    assert bool(found) is is_told
    for one in found:
        assert (one.severity, one.message) == (
            Severity.INFO,
            "EngineCore: 41000 page faults/s, 2.0 % of its time at least",
        )
        assert "perf record -e page-faults" in one.next_command


def test_memory_that_is_touched_while_nothing_is_served_is_no_matter() -> None:
    assert not findings_of(allocation_churn, trace_of({v.THREAD_MINOR_FAULTS: 90_000.0}, running=0.0))


@pytest.mark.parametrize(
    ("moved", "loop", "is_told"),
    [
        (60.0, LOOP, True),
        (40.0, LOOP, False),
        (60.0, Thread(on_cpu=0.6, run_queue=0.01, launches=500, sync=0.1), False),
    ],
)
def test_migrations_are_told_of_a_loop_that_queues_for_cpus(moved: float, loop: Thread, is_told: bool) -> None:
    found = findings_of(thread_migrations, trace_of({v.THREAD_MIGRATIONS: moved}, loop))
    assert [one.message for one in found] == (
        ["EngineCore changes CPUs 60.0 /s, and waits for one 10 % of the time"] if is_told else []
    )


@pytest.mark.parametrize(
    ("changed", "is_told"),
    [
        ({}, True),
        ({v.THREAD_CACHE_MISSES: 3e6}, False),
        ({v.THREAD_INSTRUCTIONS: 2e9}, False),
        ({v.THREAD_CYCLES: 0.0}, False),
    ],
)
def test_cache_misses_are_told_where_they_cost(changed: dict[Metric, float], is_told: bool) -> None:
    found = findings_of(cache_misses, trace_of(STALLED | changed))
    assert [one.message for one in found] == (
        ["EngineCore waits for memory while it works: 40 % of its cache accesses miss, 0.50 instructions a cycle"]
        if is_told
        else []
    )
    resting = Thread(on_cpu=0.3, launches=500, sync=0.1)
    assert not findings_of(cache_misses, trace_of(STALLED, resting))


def test_without_counters_nothing_is_said_and_nothing_is_unjudged() -> None:
    diagnosed = diagnose(trace_of({}))
    rules = {allocation_churn.id, thread_migrations.id, cache_misses.id}
    assert not rules & {one.rule for one in diagnosed.findings}
    assert not rules & {one.rule for one in diagnosed.unjudged}


def test_events_are_ratios_of_what_was_counted() -> None:
    found = events(trace_of(STALLED), LOOP.track, 10 * 10**9)
    assert not isinstance(found, Unknown)
    assert (found.per_cycle, found.cache_miss_share, found.dtlb_misses_per_1000) == pytest.approx((0.5, 0.4, 2.0))
    asleep = events(trace_of(dict.fromkeys(STALLED, 0.0)), LOOP.track, 10 * 10**9)
    assert isinstance(asleep, Unknown)
    assert "has not run" in asleep.reason


def counted(trace: Trace) -> dict[str, str]:
    found = thread_details(trace, [(LOOP.pid, LOOP.tid)])
    assert isinstance(found, ThreadDetails)
    return {row.label: str(row.text) for row in dict(found.parts)["Counted by the kernel and the processor"]}


def test_the_details_of_a_thread_have_what_was_counted() -> None:
    whole = {v.THREAD_MINOR_FAULTS: 1200.0, v.THREAD_MAJOR_FAULTS: 0.0, v.THREAD_MIGRATIONS: 3.0}
    assert counted(trace_of(STALLED | whole)) == {
        "minor page faults": "1200 /s",
        "major page faults": "0 /s",
        "migrations": "3.00 /s",
        "instructions a cycle": "0.50",
        "last-level cache": "40 % of its accesses miss",
        "data TLB": "2.00 misses of 1,000 instructions",
    }
    assert counted(trace_of(whole))["processor"].startswith("no reading of CPU cycles yet")
