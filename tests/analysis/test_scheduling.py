"""Which threads were queued for a CPU, as a table and as a finding."""

from __future__ import annotations

import pytest

from llmtop.analysis.rules import run_queue_delays
from llmtop.analysis.threads.scheduling import said_of_scheduling, scheduling_rows, scheduling_table
from llmtop.model import Finding, Origin, Severity, ThreadScheduling, Trace, Track, TrackId, TrackKind, Unknown
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import SAMPLE_TRACES

NOT_TOLD = Unknown("no delays", "ask for them")


def told(
    tid: int, ran_ms: float, delay_ms: float | Unknown, switches: int = 10, at: int | None = None
) -> ThreadScheduling:
    mean = delay_ms if isinstance(delay_ms, Unknown) else delay_ms * 1e6
    most = mean if isinstance(mean, Unknown) else 2 * mean
    return ThreadScheduling(TrackId(f"thread:0/{tid}"), ran_ms * 1e6, switches, mean, most, at)


def trace_of(*threads: ThreadScheduling) -> Trace:
    tracks = {one.track: Track(one.track, TrackKind.THREAD, f"t{one.track.partition('/')[2]}") for one in threads}
    return Trace(Origin("perf-sched"), tracks=tracks, scheduling=threads)


def found_in(*threads: ThreadScheduling) -> list[Finding]:
    return list(run_queue_delays.check(trace_of(*threads)))


def test_the_one_that_was_queued_longest_stands_first() -> None:
    rows = scheduling_rows(trace_of(told(1, 10, 1), told(2, 10, NOT_TOLD), told(3, 30, 9), told(4, 0, 0)))
    assert not isinstance(rows, Unknown)
    assert [(row.name, row.tid) for row in rows] == [("t3", 3), ("t1", 1), ("t2", 2), ("t4", 4)]
    assert (rows[0].queued_ns, rows[0].share) == (90e6, 0.75)
    assert rows[2].share == NOT_TOLD
    assert isinstance(rows[3].share, Unknown)


def test_columns_that_nothing_is_known_of_are_not_there() -> None:
    rows = scheduling_rows(trace_of(told(1, 10, 1, at=1_500_000_000)))
    assert not isinstance(rows, Unknown)
    table = scheduling_table(rows)
    assert [column.key for column in table.columns] == [
        *("name", "tid", "ran", "queued", "share", "switches", "mean", "most", "at")
    ]
    assert list(table.cells(0)) == ["t1", "1", 10e6, 10e6, 0.5, 10, 1e6, 2e6, "1.500000 s"]


def test_threads_of_one_name_are_told_as_that() -> None:
    trace = load(SAMPLE_TRACES / "perf" / "5.10" / "web-latency.perf-sched.txt")
    rows = scheduling_rows(trace)
    assert not isinstance(rows, Unknown)
    assert (rows[0].name, rows[0].tid) == ("tokenizer (8 threads)", None)
    assert said_of_scheduling(rows) == [
        "threads of one name are one row, with how many they are: perf sched latency -p tells each"
    ]
    assert said_of_scheduling(rows[1:2]) == []
    (found,) = run_queue_delays.check(trace)
    assert (found.next_command, found.no_command != "") == ("", True)
    assert found.message == (
        "tokenizer (8 threads) was queued for a CPU 39 % of the time it wanted one; so were 2 others, 5 % and more"
    )


@pytest.mark.parametrize(
    ("thread", "is_told"),
    [
        (told(1, 380, 2), True),
        (told(1, 381, 2), False),
        (told(1, 1, 2), True),
        (told(1, 1, 1.99), False),
        (told(1, 1, NOT_TOLD), False),
    ],
)
def test_limits(thread: ThreadScheduling, is_told: bool) -> None:
    assert bool(found_in(thread)) is is_told


def test_the_finding_says_who_and_when() -> None:
    (found,) = found_in(told(7, 100, 10, at=2_000_000_000), told(8, 100, 1))
    assert (found.subject, found.severity, found.share) == ("t7 (7)", Severity.WARNING, 0.5)
    assert found.message == "t7 (7) was queued for a CPU 50 % of the time it wanted one"
    assert found.evidence == (
        "t7 (7): ran 100 ms, queued 100 ms, 10.0 ms each time, at most 20.0 ms (began at 2.000000 s) (perf sched)",
    )
    assert found.next_command == "taskset -cp 7"
    assert found.place is None


def test_at_most_five_threads_are_evidence() -> None:
    (found,) = found_in(*(told(tid, 100, 10) for tid in range(1, 8)))
    assert len(found.evidence) == 5
    assert found.message.endswith("; so were 6 others, 5 % and more")


def test_in_a_timeline_it_has_a_place() -> None:
    trace = load(SAMPLE_TRACES / "perf" / "6.1.187" / "crowded-timehist.perf-sched.txt")
    (found,) = run_queue_delays.check(trace)
    assert found.subject == "compute (17678)"
    assert found.place is not None
    assert trace.start_ns <= found.place.start_ns < found.place.end_ns <= trace.end_ns
    assert found.place.end_ns - found.place.start_ns == pytest.approx(108.6e6, rel=0.01)
