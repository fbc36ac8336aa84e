"""Cache lines that CPUs fight for: whether falsely, and the finding."""

from __future__ import annotations

import pytest

from llmtop.analysis.rules import false_sharing
from llmtop.analysis.threads.cache_lines import LOADS, SharedLine, Sharing, line_rows, lines_table
from llmtop.model import CacheLine, Finding, LineAccess, Origin, Trace, Unknown
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import SAMPLE_TRACES


def access(offset: int, waits: float, stores: float, name: str = "code") -> LineAccess:
    return LineAccess(offset, name, "serve", "a.cc:1", "0", waits, 0.0, 0.0, stores, 2)


READS, WRITES = access(0, 1.0, 0.0, "reader"), access(8, 0.0, 1.0, "writer")


def trace_of(*accesses: LineAccess, hitm: int = 100, loads: int | None = 1000) -> Trace:
    line = CacheLine("0x40", 0.5, "0", hitm - 30, 30, 0, 500, 400, 0, 0, accesses)
    return Trace(Origin("perf-c2c", facts={} if loads is None else {LOADS: loads}), cache_lines=(line,))


def row_of(*accesses: LineAccess, loads: int | None = 1000) -> SharedLine:
    rows = line_rows(trace_of(*accesses, loads=loads))
    assert not isinstance(rows, Unknown)
    return rows[0]


def found_in(trace: Trace) -> list[Finding]:
    return list(false_sharing.check(trace))


def test_who_reads_another_offset_than_is_written_shares_the_line_alone() -> None:
    row = row_of(READS, WRITES)
    assert (row.sharing, row.reader, row.writer) == (Sharing.FALSE, READS, WRITES)
    assert row.waiting_share == 0.1
    same = row_of(access(8, 1.0, 0.0), WRITES)
    assert same.sharing is Sharing.TRUE


def test_of_several_readers_the_one_apart_is_told() -> None:
    apart, beside = access(16, 0.2, 0.0, "apart"), access(8, 0.8, 0.0, "beside")
    row = row_of(beside, apart, WRITES)
    assert (row.sharing, row.reader) == (Sharing.FALSE, apart)


def test_who_hardly_takes_part_does_not_count() -> None:
    assert row_of(access(8, 0.96, 0.0), access(0, 0.04, 0.0), WRITES).sharing is Sharing.TRUE
    assert row_of(access(8, 0.95, 0.0), access(0, 0.05, 0.0), WRITES).sharing is Sharing.FALSE


def test_what_is_not_told_is_unknown() -> None:
    assert isinstance(row_of().sharing, Unknown)
    assert isinstance(row_of(READS).sharing, Unknown)
    assert isinstance(row_of(READS, WRITES, loads=None).waiting_share, Unknown)
    assert found_in(trace_of(READS, WRITES, loads=None)) == []


@pytest.mark.parametrize(
    ("hitm", "loads", "is_told"),
    [(100, 10_000, True), (99, 10_000, False), (100, 10_001, False), (40, 1000, True), (20, 30, True)],
)
def test_limits(hitm: int, loads: int, is_told: bool) -> None:
    assert bool(found_in(trace_of(READS, WRITES, hitm=hitm, loads=loads))) is is_told


def test_a_few_samples_tell_nothing() -> None:
    few = CacheLine("0x40", 1.0, "0", 19, 0, 0, 20, 20, 0, 0, (READS, WRITES))
    assert found_in(Trace(Origin("perf-c2c", facts={LOADS: 20}), cache_lines=(few,))) == []


def test_the_finding_of_the_sample() -> None:
    trace = load(SAMPLE_TRACES / "perf" / "6.1" / "two-counters.perf-c2c.txt")
    (found,) = found_in(trace)
    assert found.message == (
        "Scheduler::poll_queue waits for a cache line that Metrics::add_token writes elsewhere: "
        "2,267 sampled loads (10 % of all)"
    )
    assert found.evidence == (
        "line 0x55d0c41e70c0: read at +0x0 by Scheduler::poll_queue (serve, scheduler.cc:212; 12 CPUs), "
        "written at +0x8 by Metrics::add_token (serve, metrics.cc:61; 8 CPUs) (perf c2c)",
        "loads that met a modified copy: 1,003 in a cache of the same socket, 1,264 in one of another",
    )


def test_the_table_of_the_sample() -> None:
    rows = line_rows(load(SAMPLE_TRACES / "perf" / "6.1" / "two-counters.perf-c2c.txt"))
    assert not isinstance(rows, Unknown)
    table = lines_table(rows)
    assert list(table.cells(1))[:5] == [
        "__pthread_mutex_lock", "__pthread_mutex_unlock", "one variable", "0x7f83a0c05480", 784,
    ]  # fmt: skip
    assert table.cells(1)[6] == pytest.approx(382 / 784)


def test_lines_of_an_old_report_are_judged_too() -> None:
    (found,) = found_in(load(SAMPLE_TRACES / "perf" / "4.20" / "one-socket.perf-c2c.txt"))
    assert found.subject == "reader_thread"
