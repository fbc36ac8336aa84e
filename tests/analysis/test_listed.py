"""CUDA calls, copies, OS calls and allocations by name, against sums and interval arithmetic of their own."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import columns, ids
from llmtop.analysis.pages.cut import only_time
from llmtop.analysis.timeline.listed import SMALL, Listed, ListedRow, has_listed, listed
from llmtop.analysis.timeline.listed_table import listed_lines, listed_table, said_of_all
from llmtop.model import SpanTable, Trace, TrackId, Unknown
from tests.analysis.test_span_rows import OTHER, THREAD, trace
from tests.kernel_traces import span_table as table
from tests.nsys_capture import DTOH, HTOD, MS, PAGEABLE, PINNED, US, Capture
from tests.nsys_scenes import SCENES

STREAM = ids.stream(ids.gpu(0), 1, 7)
NO_BYTES = math.nan


def rows_of(of: Trace, what: Listed) -> dict[str, ListedRow]:
    found = listed(of, what)
    assert not isinstance(found, Unknown)
    return {row.name: row for row in found}


def calls(*rows: tuple[str, TrackId, int, int, int]) -> SpanTable:
    return table("call", *((*row, NO_BYTES) for row in rows))


def work(*rows: tuple[int, int, int]) -> SpanTable:
    return table("kernel", *(("k", STREAM, start, end, join, NO_BYTES) for start, end, join in rows))


def test_calls_have_their_statistics_share_of_wall_and_idle_time() -> None:
    made = trace(
        calls(("sync", THREAD, 0, 100, -1), ("sync", OTHER, 50, 300, -1), ("sync", THREAD, 900, 1000, 5)),
        table("launch", ("launch", THREAD, 350, 360, 1, NO_BYTES)),
        work((40, 200, 1), (950, 1000, 5)),
    )
    rows = rows_of(made, Listed.API)
    times = rows["sync"].times
    assert (times.count, times.total, times.mean, times.median, times.least, times.most) == (3, 450, 150, 100, 100, 250)
    assert times.deviation == pytest.approx(statistics.stdev([100, 250, 100]))
    assert (rows["sync"].threads, rows["sync"].wall) == (2, 450 / 2000)
    assert rows["sync"].idle_ns == 40 + 100 + 50, "two calls at once count once, and only while no GPU works"
    assert (rows["sync"].launched, rows["launch"].launched) == (1, 1)
    assert rows["launch"].times.deviation is None, "one number has no deviation"


def test_what_lies_outside_the_capture_is_no_share_of_it() -> None:
    made = replace(trace(table("os", ("poll", THREAD, -500, 250, -1, NO_BYTES)), work((900, 1000, 1))), start_ns=0)
    row = rows_of(made, Listed.OS)["poll"]
    assert (row.times.total, row.wall, row.idle_ns) == (750, 0.25, 250)


def test_a_call_of_threads_that_never_call_cuda_counts_and_no_gpu_waits_for_it() -> None:
    made = trace(table("os", ("read", THREAD, 0, 10, -1, NO_BYTES)), work((0, 5, 1)))
    others = {"other-os": table("other-os", ("read", OTHER, 0, 90, -1, NO_BYTES), ("poll", OTHER, 0, 9, -1, NO_BYTES))}
    rows = rows_of(replace(made, more_spans=others), Listed.OS)
    assert (rows["read"].times.count, rows["read"].times.total, rows["read"].idle_ns) == (2, 100, 5)
    assert isinstance(rows["poll"].idle_ns, Unknown)
    assert "never call CUDA" in " ".join(listed_lines([], rows["poll"]))


def test_without_gpu_work_idle_time_and_launches_are_unknown() -> None:
    row = rows_of(trace(calls(("sync", THREAD, 0, 100, -1))), Listed.API)["sync"]
    assert isinstance(row.idle_ns, Unknown)
    assert isinstance(row.launched, Unknown)
    columns_shown = [column.key for column in listed_table([row], Listed.API).columns]
    assert "launched" not in columns_shown


def copied(path: Path) -> Trace:
    """Ten pageable copies that keep their calls, five that do not, three pinned ones ten times as fast, by size."""
    made = Capture()
    for i in range(15):
        now = i * MS
        call = made.call("cudaMemcpyAsync", now, now + (400 * US if i < 10 else 50 * US))
        made.copy(now + 100 * US, now + 300 * US, call, HTOD, host=PAGEABLE, size=1 << 20)
    for i in range(3):
        now = (20 + i) * MS
        call = made.call("cudaMemcpyAsync", now, now + 5 * US)
        made.copy(now + 10 * US, now + 30 * US, call, HTOD, host=PINNED, size=1 << 20)
    call = made.call("cudaMemcpy", 30 * MS, 31 * MS)
    made.copy(30 * MS, 30 * MS + US, call, DTOH, host=PAGEABLE, size=SMALL - 1)
    call = made.call("cudaMemcpy", 32 * MS, 33 * MS)
    made.copy(32 * MS, 32 * MS + US, call, DTOH, host=PAGEABLE, size=SMALL)
    return made.trace(path)


def test_asynchronous_copies_that_pageable_memory_made_wait_are_counted(tmp_path: Path) -> None:
    rows = rows_of(copied(tmp_path), Listed.COPY)
    slow, fast, back = rows["copy HtoD (pageable)"], rows["copy HtoD"], rows["copy DtoH (pageable)"]
    assert (slow.held, fast.held, back.held) == (10, None, 0), "a synchronous call waits as it says"
    assert (slow.small, back.small) == (0, 1)
    assert slow.bytes_per_s == pytest.approx((1 << 20) / 200e-6)
    said = said_of_all(tuple(rows.values()))
    assert any("10 were asked for by calls that are asynchronous by name" in line for line in said)
    assert any("copy HtoD reaches 52.4 GB/s, 10.0 times as much" in line for line in said)
    assert len(said) == 2


def test_without_calls_it_is_not_known_whether_copies_kept_them() -> None:
    made = trace(table("memcpy", ("copy HtoD (pageable)", STREAM, 0, 10, 1, 4096.0)))
    assert isinstance(rows_of(made, Listed.COPY)["copy HtoD (pageable)"].held, Unknown)


def test_calls_that_allocate_stand_with_the_memory_that_they_got(tmp_path: Path) -> None:
    made = SCENES["allocation in the loop"].make().trace(tmp_path)
    rows = rows_of(made, Listed.ALLOCATION)
    assert set(rows) == {"cudaMalloc", "cudaFree"}
    assert rows["cudaMalloc"].times.median == 200 * US
    held = table("allocation", ("device memory", STREAM, 0, 50, -1, 512.0), ("device memory", STREAM, 5, 9, -1, 100.0))
    rows = rows_of(replace(made, spans={**made.spans, "allocation": held}), Listed.ALLOCATION)
    sizes = rows["device memory"].sizes
    assert sizes is not None
    assert (sizes.count, sizes.total, sizes.most) == (2, 612, 512)
    assert rows["device memory"].bytes_per_s is None, "memory that is held is not moved"


def test_allocations_in_steps_after_the_first_are_counted(tmp_path: Path) -> None:
    made = Capture()
    for step in range(4):
        now = step * MS
        made.nvtx("step", now, now + 900 * US)
        for name, at in (("cudaMalloc", 10), ("cudaMalloc", 20), ("cudaFree", 950)):
            made.call(name, now + at * US, now + (at + 5) * US)
        for i in (30, 50):
            call = made.call("cudaLaunchKernel", now + i * US, now + (i + 5) * US)
            made.kernel(now + (i + 10) * US, now + (i + 15) * US, call)
    rows = rows_of(made.trace(tmp_path), Listed.ALLOCATION)
    assert (rows["cudaMalloc"].in_steps, rows["cudaFree"].in_steps) == (6, 0)
    assert "6 of 8 in steps after the first one" in list(listed_lines([], rows["cudaMalloc"]))
    without = rows_of(trace(calls(("cudaMalloc", THREAD, 0, 9, -1)), work((20, 30, 1))), Listed.ALLOCATION)
    assert isinstance(without["cudaMalloc"].in_steps, Unknown)


def test_a_size_that_no_memory_has_is_shown_as_the_file_says() -> None:
    made = trace(
        table("memcpy", ("copy HtoD", STREAM, 0, 10, 1, float(1 << 63)), ("copy HtoD", STREAM, 20, 30, 2, 8.0))
    )
    sizes = rows_of(made, Listed.COPY)["copy HtoD"].sizes
    assert sizes is not None
    assert (sizes.most, sizes.least) == ((1 << 63) - 1, 8)


def test_only_what_a_trace_has_is_offered(tmp_path: Path) -> None:
    made = SCENES["allocation in the loop"].make().trace(tmp_path)
    assert [what for what in Listed if has_listed(made, what)] == [Listed.API, Listed.OS, Listed.ALLOCATION]
    launches = trace(table("launch", ("launch", THREAD, 0, 1, -1, NO_BYTES)))
    assert [what for what in Listed if has_listed(launches, what)] == [Listed.API]
    missing = listed(launches, Listed.COPY)
    assert isinstance(missing, Unknown)


def test_a_part_of_the_time_has_its_own_calls_alone() -> None:
    made = trace(calls(("sync", THREAD, 0, 100, -1), ("sync", THREAD, 600, 700, -1)), work((0, 90, 1), (600, 690, 2)))
    brief = table("brief-call", *(("attribute", THREAD, at, at + 1, -1, NO_BYTES) for at in (10, 20, 650)))
    part = only_time(replace(made, more_spans={"brief-call": brief}), 500, None)
    assert isinstance(part, Trace)
    assert {name: row.times.count for name, row in rows_of(part, Listed.API).items()} == {"sync": 1, "attribute": 1}


SPANS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([THREAD, OTHER]), st.integers(0, 80), st.integers(0, 40)),
    min_size=1,
    max_size=30,
)


@given(spans=SPANS, busy=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 30)), min_size=1, max_size=10))
def test_numbers_are_those_of_counting_each_nanosecond(
    spans: list[tuple[str, TrackId, int, int]], busy: list[tuple[int, int]]
) -> None:
    spans.sort(key=lambda span: span[2])
    busy.sort()
    made = replace(
        trace(
            calls(*((name, thread, start, start + length, -1) for name, thread, start, length in spans)),
            work(*((start, start + length, i) for i, (start, length) in enumerate(busy))),
        ),
        end_ns=200,
    )
    at_work = {t for start, length in busy for t in range(start, start + length)}
    found: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for name, thread, start, length in spans:
        found[name].append((thread, start, length))
    for is_long in (2, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columns, "LONG", is_long)
            rows = rows_of(made, Listed.API)
        assert rows.keys() == found.keys()
        for name, of in found.items():
            lengths = [length for _, _, length in of]
            inside = {t for _, start, length in of for t in range(start, start + length)}
            times, deviation = rows[name].times, statistics.stdev(lengths) if len(of) > 1 else None
            assert (times.count, times.total, times.median) == (len(of), sum(lengths), statistics.median(lengths))
            assert times.deviation == (None if deviation is None else pytest.approx(deviation, abs=1e-9))
            assert rows[name].idle_ns == len(inside - at_work)
            assert rows[name].wall == pytest.approx(sum(lengths) / 200 / len({thread for thread, _, _ in of}))
