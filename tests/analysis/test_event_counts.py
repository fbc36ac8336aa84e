"""What counts of perf stat mean, and the rule on what they say of caches."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from llmtop.analysis.rules import counted_cache_misses
from llmtop.analysis.threads.event_counts import CountRow, EventCounts, counts_table, event_counts, said_of_counts
from llmtop.model import NS_PER_S, EventCount, Finding, Origin, Trace, Track, TrackId, TrackKind, Unknown
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import SAMPLE_TRACES

SERVE = TrackId("process:42")
STALLED = {"task-clock": 9e9, "cycles": 1e9, "instructions": 4e8, "cache-references": 1e6, "cache-misses": 5e5}


def trace_of(counts: Mapping[str, float | Unknown], track: TrackId = SERVE, seconds: float = 10) -> Trace:
    units = {"task-clock": "ns", "energy": "Joules"}
    return Trace(
        Origin("perf-stat"),
        end_ns=round(seconds * NS_PER_S),
        tracks={track: Track(track, TrackKind.PROCESS, "serve")},
        counts=tuple(EventCount(track, event, count, units.get(event, "1")) for event, count in counts.items()),
    )


def meanings(counts: Mapping[str, float | Unknown], seconds: float = 10) -> dict[str, str]:
    found = event_counts(trace_of(counts, seconds=seconds))
    assert isinstance(found, EventCounts)
    return {row.counted.event: row.meaning for row in found.rows}


def test_counts_mean_what_stands_beside_them() -> None:
    assert meanings(
        {
            "task-clock": 5e9,
            "cycles": 1.5e10,
            "instructions": 3e10,
            "branches": 4e6,
            "branch-misses": 1e5,
            "LLC-loads": 8e6,
            "LLC-load-misses": 2e6,
            "cache-misses": 50.0,
            "major-faults": Unknown("none"),
        }
    ) == {
        "task-clock": "0.50 CPUs in use",
        "cycles": "3.00 GHz",
        "instructions": "2.00 a cycle",
        "branches": "800 k/s on a CPU",
        "branch-misses": "2.5 % of branches",
        "LLC-loads": "1.60 M/s on a CPU",
        "LLC-load-misses": "25 % of LLC-loads",
        "cache-misses": "10.0 /s on a CPU",
        "major-faults": "",
    }


def test_counts_of_another_pmu_or_mode_are_not_put_beside() -> None:
    said = meanings(
        {"cpu_core/cycles/": 100.0, "cpu_atom/instructions/": 50.0, "cycles:k": 10.0, "instructions:u": 5.0}
    )
    assert set(said.values()) == {"", "5.00 /s", "0.50 /s"}
    of_each = {"cpu_core/cycles/u": 100.0, "cpu_core/instructions/u": 50.0, "cycles:u": 1.0, "instructions:u": 5.0}
    assert meanings(of_each) == {
        "cpu_core/cycles/u": "",
        "cpu_core/instructions/u": "0.50 a cycle",
        "cycles:u": "",
        "instructions:u": "5.00 a cycle",
    }


def test_without_a_time_nothing_is_said_of_a_second() -> None:
    assert meanings({"task-clock": 5e9, "page-faults": 10.0}, 0) == {
        "task-clock": "",
        "page-faults": "2.00 /s on a CPU",
    }
    assert meanings({"page-faults": 10.0, "energy": 20.0}, 0) == {"page-faults": "", "energy": ""}
    assert meanings({"page-faults": 10.0, "energy": 20.0}) == {"page-faults": "1.00 /s", "energy": "2.00 Joules/s"}


def test_columns_that_say_nothing_are_not_there() -> None:
    found = event_counts(trace_of({"page-faults": 10.0, "cycles": Unknown("none", "ask")}))
    assert isinstance(found, EventCounts)
    table = counts_table(found)
    assert [column.key for column in table.columns] == ["name", "count", "meaning"]
    assert table.cells(1) == ["cycles", Unknown("none", "ask"), ""]
    assert said_of_counts(found) == ["of serve in 10.0 s", "cycles: none (ask)"]


def test_a_share_of_a_counter_and_threads_have_columns() -> None:
    one = EventCount(SERVE, "cycles", 5.0, counted_share=0.5, spread=0.1)
    other = EventCount(TrackId("process:43"), "cycles", 6.0, counted_share=1.0)
    table = counts_table(EventCounts((CountRow(one, "a", "x"), CountRow(other, "b", "")), 0.0))
    assert [column.key for column in table.columns] == ["name", "of", "count", "meaning", "spread", "share"]
    assert [*map(list, table.rows)] == [["cycles", "a", 5.0, "x", 0.1, 0.5], ["cycles", "b", 6.0, "", None, None]]


def found_in(counts: dict[str, float], **more: float) -> list[Finding]:
    return list(counted_cache_misses.check(trace_of({**counts, **more})))


def test_a_program_that_waits_for_memory_is_told() -> None:
    (found,) = found_in(STALLED, **{"dTLB-load-misses": 4e5})
    assert (
        found.message
        == "serve waits for memory while it works: 50 % of its cache accesses miss, 0.40 instructions a cycle"
    )
    assert found.evidence[0].endswith(
        "0.40 instructions a cycle, 1.00 data TLB misses of 1,000 instructions (perf stat, cache-misses)"
    )
    assert found.next_command == "sudo perf record -e cache-misses -g -p 42 -- sleep 5"


@pytest.mark.parametrize(
    ("changed", "is_told"),
    [
        ({"cache-misses": 3.5e5}, True),
        ({"cache-misses": 3.49e5}, False),
        ({"instructions": 1e9}, False),
        ({"instructions": 0.99e9}, True),
        ({"task-clock": 5e9}, True),
        ({"task-clock": 4.9e9}, False),
    ],
)
def test_limits(changed: dict[str, float], is_told: bool) -> None:
    assert bool(found_in(STALLED, **changed)) is is_told


@pytest.mark.parametrize("event", ["cycles", "instructions", "cache-references", "cache-misses"])
def test_nothing_is_said_without_one_of_the_counts(event: str) -> None:
    counts: dict[str, float | Unknown] = {**STALLED, event: Unknown("not supported")}
    assert not list(counted_cache_misses.check(trace_of(counts)))


def test_no_clock_is_no_obstacle_and_a_thread_is_asked_for_by_its_id() -> None:
    counts: dict[str, float | Unknown] = {**STALLED, "task-clock": Unknown("not asked for")}
    (found,) = counted_cache_misses.check(trace_of(counts, TrackId("thread:0/43")))
    assert "-t 43" in found.next_command
    (of_all,) = counted_cache_misses.check(trace_of(counts, TrackId("process:0")))
    assert " -a " in of_all.next_command


def test_the_sample_has_the_finding() -> None:
    trace = load(SAMPLE_TRACES / "perf" / "6.1.187" / "memory-bound.perf-stat.txt")
    (found,) = counted_cache_misses.check(trace)
    assert (found.subject, found.evidence[0]) == (
        "process 4242",
        "process 4242: 43 % of its last-level cache accesses miss, 0.46 instructions a cycle, "
        "4.89 data TLB misses of 1,000 instructions (perf stat, cache-misses)",
    )
