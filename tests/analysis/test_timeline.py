"""The rows of a timeline, its spans, and how one moves about in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from llmtop import columns, ids
from llmtop.analysis.tables import csv_of
from llmtop.analysis.timeline.account import idle_account
from llmtop.analysis.timeline.causes import Cause
from llmtop.analysis.timeline.explore import TimelineCursor
from llmtop.analysis.timeline.span_facts import between, partners_of, span_facts
from llmtop.analysis.timeline.span_table import SpansOfLine
from llmtop.analysis.timeline.spans import TraceTimeline
from llmtop.model import Track, TrackKind
from llmtop.parsers.registry import load
from tests.kernel_traces import TIMELINE
from tests.timeline_traces import COMPUTE, COPIES, GEMM, GPU, NORM, OTHER, THREAD, US, Made, scene, trace_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.timeline.rows import TimelineRow
    from llmtop.model import Trace


def all_rows(rows: tuple[TimelineRow, ...], level: int = 0) -> Iterator[tuple[int, TimelineRow]]:
    for row in rows:
        yield level, row
        yield from all_rows(row.below, level + 1)


def titles(trace: Trace) -> list[str]:
    return [f"{'  ' * level}{row.title}" for level, row in all_rows(TraceTimeline(trace).rows)]


def ready(trace: Trace) -> TraceTimeline:
    timeline = TraceTimeline(trace)
    for _, row in all_rows(timeline.rows):
        timeline.prepare(row)
    return timeline


def names_on(timeline: TraceTimeline, cursor: TimelineCursor) -> list[str]:
    """The lines on the screen, with the names of the spans of each."""
    found = []
    for place in timeline.places(cursor.opened):
        line = timeline.line(place)
        spans = "" if line is None else ", ".join(timeline.name(code)[1] for code in line.codes)
        found.append(f"{place.row.title if place.depth <= 0 else ''}: {spans}")
    return found


# -- rows ----------------------------------------------------------------------------------------------------------


def test_rows_go_from_gpus_to_streams_and_from_processes_to_threads_and_what_these_do() -> None:
    assert titles(scene()) == [
        "GPU 0",
        "  stream 7",
        "  stream 13",
        "  SM active",
        "process 100",
        "  thread 100",
        "    NVTX",
        "    NVTX nccl",
        "  +1 thread",
        "    thread 101 OS calls",
    ]


def test_the_gpu_and_the_stream_with_most_work_come_first_and_only_that_gpu_is_open() -> None:
    busy, quiet = ids.stream(ids.gpu(1), 5, 7), ids.stream(GPU, 5, 7)
    little = ids.stream(ids.gpu(1), 5, 9)
    made = [Made(quiet, "k", 0, 1), Made(little, "k", 0, 40), Made(busy, "k", 0, 90)]
    rows = TraceTimeline(trace_of({"kernel": made}, end=100)).rows
    assert [(row.title, row.is_open) for row in rows] == [("GPU 1", True), ("GPU 0 stream 7", False)]
    assert [row.title for row in rows[0].below] == ["stream 7", "stream 9"]


def test_the_thread_that_launches_most_comes_first_whatever_else_others_do() -> None:
    few, many, calls = (ids.thread(5, tid) for tid in (5, 6, 7))
    launches = [Made(few, "cudaLaunchKernel", 1, 2), *(Made(many, "cudaLaunchKernel", at, at + 1) for at in (3, 5))]
    trace = trace_of({"launch": launches, "call": [Made(calls, "cudaMalloc", at, at + 1) for at in range(99)]}, end=100)
    assert [title.strip() for title in titles(trace)][1:] == ["thread 6", "thread 5", "thread 7"]


def test_streams_and_threads_with_nothing_to_tell_are_folded_away_and_counted() -> None:
    unused = {
        track.id: track
        for number in range(30, 35)
        for track in [Track(ids.stream(GPU, 100, number), TrackKind.STREAM, f"stream {number}", GPU)]
    }
    trace = scene()
    timeline = TraceTimeline(replace(trace, tracks={**trace.tracks, **unused}))
    more = next(row for row in timeline.rows[0].below if row.title.startswith("+"))
    assert (more.title, more.is_open, len(more.below)) == ("+5 streams", False, 5)
    assert {row.note for row in more.below} == {"no work"}


def test_a_stream_of_two_processes_says_whose_it_is() -> None:
    one, other = ids.stream(GPU, 5, 7), ids.stream(GPU, 6, 7)
    rows = TraceTimeline(trace_of({"kernel": [Made(one, "k", 0, 9), Made(other, "k", 9, 12)]}, end=20)).rows
    assert [row.title for row in rows[0].below] == ["stream 7 (5)", "stream 7 (6)"]


def test_ranges_are_by_domain_but_not_by_colons_of_other_kinds() -> None:
    names = ("NCCL:ncclSend", "aten::mm", "note: text", "plain")
    made = [Made(THREAD, name, i, i + 1) for i, name in enumerate(names)]
    timeline = ready(trace_of({"nvtx": made, "launch": [Made(THREAD, "cudaLaunchKernel", 0, 1)]}, end=9))
    assert names_on(timeline, TimelineCursor(timeline))[2:] == [
        "NVTX: aten::mm, note: text, plain",
        "NVTX NCCL: NCCL:ncclSend",
    ]


def test_every_kind_of_span_has_a_row() -> None:
    kinds = (
        *("nvtx", "mark", "operator", "python", "region", "os", "off-cpu", "sample", "overhead", "launch", "call"),
        *("brief-call", "other-os", "some kind of tomorrow"),
    )
    made: dict[str, list[Made]] = {kind: [Made(THREAD, f"a {kind}", 1, 2)] for kind in kinds}
    made |= {kind: [Made(COMPUTE, f"a {kind}", 1, 2)] for kind in ("kernel", "memcpy", "memset", "graph", "sync")}
    made["page-fault"] = made["allocation"] = [Made(ids.gpu_process(GPU, 100), "managed", 1, 2)]
    timeline = ready(trace_of(made, end=9))
    lines = [timeline.line(place) for place in timeline.places({row.key for _, row in all_rows(timeline.rows)})]
    assert {timeline.name(code)[0] for line in lines if line is not None for code in line.codes} == set(made)
    assert all(timeline.way_to(timeline.code(kind, 0)) for kind in made)


def test_lines_of_ranges_within_each_other_show_where_the_row_is_open() -> None:
    timeline = ready(scene())
    cursor = TimelineCursor(timeline)
    lines = names_on(timeline, cursor)
    at = next(i for i, line in enumerate(lines) if line.startswith("NVTX:"))
    assert lines[at : at + 2] == ["NVTX: step 1, step 2", ": forward"]
    cursor.opened.discard(f"{THREAD}/nvtx")
    assert names_on(timeline, cursor)[at] == "NVTX: step 1, forward, step 2"


def test_the_cursor_stays_where_it_stood_when_its_line_is_gone() -> None:
    """On the row whose lines were closed, else on as many lines down, else on the last one."""
    timeline = ready(scene())
    cursor = TimelineCursor(timeline)
    places = cursor.places()
    assert (cursor.at([]), cursor.at(places)) == (0, 0)
    nested = next(i for i, place in enumerate(places) if place.depth == 1)
    cursor.move(nested)
    assert cursor.at(places) == nested
    assert cursor.at([*places[:nested], *places[nested + 1 :]]) == nested - 1, "the row itself"
    cursor.move(len(places))
    assert cursor.at(places) == len(places) - 1, "no further than the last"
    assert cursor.at(places[:-3]) == len(places) - 4
    cursor.move(-2)
    assert cursor.at(places) == len(places) - 6
    cursor.move(-len(places))
    assert cursor.at(places) == 0
    cursor.move(2)
    assert cursor.at([*places[:2], *places[3:]]) == 2


def test_long_tables_give_the_same_rows_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    short = ready(scene())
    known = names_on(short, TimelineCursor(short))
    monkeypatch.setattr(columns, "LONG", 1)
    long = ready(scene())
    assert names_on(long, TimelineCursor(long)) == known
    assert [row.title for _, row in all_rows(long.rows)] == [row.title for _, row in all_rows(short.rows)]


# -- spans ---------------------------------------------------------------------------------------------------------


def kernel(timeline: TraceTimeline, name: str, start: float) -> int:
    spans = timeline.tables["kernel"]
    rows = range(len(spans))
    at = next(i for i in rows if spans.names[spans.name_id[i]] == name and spans.start_ns[i] == start * US)
    return timeline.code("kernel", at)


def test_a_kernel_lies_in_the_ranges_of_the_thread_that_its_own_works_for() -> None:
    helper = OTHER
    made = {
        "nvtx": [Made(THREAD, "step 1", 0, 50 * US), Made(THREAD, "backward", 5 * US, 40 * US)],
        "launch": [Made(helper, "cudaLaunchKernel", 10 * US, 11 * US, 1)],
        "kernel": [Made(COMPUTE, GEMM, 20 * US, 30 * US, 1)],
    }
    timeline = ready(trace_of(made, end=60 * US))
    timeline.explain_gaps()
    assert span_facts(timeline, timeline.code("kernel", 0)).ranges == ("step 1", "backward")
    assert span_facts(timeline, timeline.code("launch", 0)).ranges == ("step 1", "backward")
    assert span_facts(timeline, timeline.code("nvtx", 1)).ranges == ("step 1",)


@pytest.mark.parametrize("long", [1, 20_000])
def test_a_kernel_tells_its_launch_its_latency_and_the_ranges_around_that(
    long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "LONG", long)
    timeline = ready(scene())
    facts = span_facts(timeline, kernel(timeline, GEMM, 16))
    assert (facts.what, facts.track, facts.duration_ns) == ("kernel", "GPU 0 stream 7", 12 * US)
    assert (facts.launch_ns, facts.queue_ns, facts.ranges) == (6 * US, 2 * US, ("step 1", "forward"))
    assert facts.partner == timeline.code("launch", 0)
    late = span_facts(timeline, kernel(timeline, NORM, 28))
    assert (late.launch_ns, late.queue_ns) == (8 * US, 4 * US)


def test_a_kernel_that_begins_before_its_launch_returns_was_not_queued() -> None:
    made = {"kernel": [Made(COMPUTE, "k", 3, 9, 1)], "launch": [Made(THREAD, "cudaLaunchKernel", 1, 4, 1)]}
    facts = span_facts(ready(trace_of(made, end=9)), TraceTimeline(trace_of(made, end=9)).code("kernel", 0))
    assert (facts.launch_ns, facts.queue_ns) == (2 * US, None)


def test_a_launch_tells_all_that_it_launched_and_a_copy_its_bytes() -> None:
    works = [Made(COMPUTE, "k", at, at + 1, 1) for at in (9, 5, 7)]
    made = {"kernel": works, "launch": [Made(THREAD, "cudaGraphLaunch", 1, 4, 1)]}
    timeline = ready(trace_of(made, end=20))
    facts = span_facts(timeline, timeline.code("launch", 0))
    assert facts.partners == 3
    assert facts.partner is not None
    assert timeline.times(facts.partner)[0] == 5 * US
    copied = ready(scene())
    assert span_facts(copied, copied.code("memcpy", 0)).bytes == 4096
    assert partners_of(copied, copied.code("memcpy", 0)) == (copied.code("call", 1),)
    assert partners_of(copied, copied.code("nvtx", 0)) == ()


def test_a_real_kernel_has_its_grid_and_block() -> None:
    trace = load(TIMELINE)
    timeline = TraceTimeline(trace)
    facts = span_facts(timeline, timeline.code("kernel", 100))
    assert trace.kernels is not None
    assert facts.grid == tuple(axis[100] for axis in trace.kernels.grid)
    assert facts.block == tuple(axis[100] for axis in trace.kernels.block)


def test_between_two_marks_is_the_share_of_work_and_the_kernels_that_began() -> None:
    timeline = ready(scene())
    measured = between(timeline, 80 * US, 20 * US)
    # 20-32 kernels, 40-45 the copy, 70-80 a part of the last kernel.
    ((title, share),) = measured.busy
    assert title == "GPU 0"
    assert share == pytest.approx(27 / 60)
    assert (measured.start_ns, measured.end_ns, measured.kernels) == (20 * US, 80 * US, 2)


def test_gaps_have_the_causes_that_the_account_has() -> None:
    trace = load(TIMELINE)
    timeline = ready(trace)
    timeline.explain_gaps()
    assert timeline.gaps is not None
    (gpu,) = idle_account(trace).gpus
    work = timeline.gpu_line(gpu.gpu)
    assert work is not None
    sums: dict[Cause, int] = {}
    moments = [trace.start_ns, *(end for end in work.cover.closes)]
    for moment in moments:
        gap = timeline.gaps.at(gpu.gpu, moment)
        assert gap is not None
        assert sum(ns for _, _, ns in gap.parts) == gap.end_ns - gap.start_ns
        for cause, _, ns in gap.parts:
            sums[cause] = sums.get(cause, 0) + ns
    known: dict[Cause, int] = {}
    for part in gpu.parts:
        known[part.cause] = known.get(part.cause, 0) + part.ns
    assert sums == known
    assert timeline.gaps.at(gpu.gpu, work.starts[0]) is None


# -- search --------------------------------------------------------------------------------------------------------


def test_a_search_goes_over_all_rows_in_the_order_of_time_and_around() -> None:
    timeline = ready(scene())
    cursor = TimelineCursor(timeline)
    cursor.find("STEP")
    assert cursor.matches is not None
    assert len(cursor.matches) == 2
    seen = []
    for step in (1, 1, 1, -1):
        assert cursor.next_match(step)
        assert cursor.pinned is not None
        seen.append((timeline.name(cursor.pinned)[1], cursor.match))
    assert seen == [("step 1", 0), ("step 2", 1), ("step 1", 0), ("step 2", 1)]


def test_a_match_in_a_folded_row_opens_what_it_is_in() -> None:
    timeline = ready(scene())
    cursor = TimelineCursor(timeline)
    assert not any(line.startswith("thread 101") for line in names_on(timeline, cursor))
    cursor.find("nanosleep")
    assert cursor.next_match(1)
    place = cursor.place()
    assert place is not None
    assert place.row.title == "thread 101 OS calls"
    assert cursor.span() == timeline.code("os", 0)


def test_a_search_for_what_is_not_there_goes_nowhere() -> None:
    cursor = TimelineCursor(ready(scene()))
    cursor.find("no such name")
    assert cursor.matches is not None
    assert len(cursor.matches) == 0
    assert not cursor.next_match(1)
    cursor.find("")
    assert cursor.matches is None


# -- moving --------------------------------------------------------------------------------------------------------


def test_from_a_launch_to_its_kernel_and_back() -> None:
    timeline = ready(scene())
    cursor = TimelineCursor(timeline)
    cursor.columns = 50
    cursor.jump(kernel(timeline, GEMM, 70))
    partner = cursor.partner()
    assert partner == timeline.code("launch", 2)
    cursor.jump(partner)
    place = cursor.place()
    assert place is not None
    assert (place.row.title, cursor.t_ns) == ("thread 100", 60 * US)
    assert cursor.partner() == kernel(timeline, GEMM, 70)


def test_a_jump_to_a_stream_of_a_closed_gpu_opens_that() -> None:
    timeline = ready(scene())
    cursor = TimelineCursor(timeline)
    cursor.opened.clear()
    cursor.jump(timeline.code("memcpy", 0))
    place = cursor.place()
    assert place is not None
    assert (place.row.key, GPU in cursor.opened) == (COPIES, True)


def test_the_next_and_the_last_span_of_a_row() -> None:
    timeline = ready(scene())
    cursor = TimelineCursor(timeline)
    cursor.columns = 10  # cells of 10 µs: two launches would share one
    cursor.jump(timeline.code("launch", 0))
    seen = []
    while cursor.beside(1):
        code = cursor.span()
        assert code is not None
        seen.append((timeline.name(code)[1], cursor.t_ns // US))
    assert seen == [
        ("cudaLaunchKernel", 20),
        ("cudaStreamSynchronize", 34),
        ("cudaMemcpyAsync", 38),
        ("cudaLaunchKernel", 60),
    ]
    assert cursor.beside(-1)
    assert cursor.t_ns == 38 * US


def test_a_window_follows_the_span_that_is_gone_to() -> None:
    timeline = ready(scene())
    cursor = TimelineCursor(timeline)
    cursor.columns = 20
    cursor.zoom(0.1)
    cursor.jump(kernel(timeline, GEMM, 70))
    assert cursor.window.holds(70 * US)
    assert cursor.window.length_ns == 10 * US


def test_a_span_is_fitted_and_the_whole_comes_back_with_what_lies_around_it() -> None:
    trace = scene()
    timeline = ready(replace(trace, start_ns=10 * US, end_ns=90 * US))
    cursor = TimelineCursor(timeline)
    cursor.columns = 10
    cursor.jump(kernel(timeline, GEMM, 16))
    cursor.fit()
    assert (cursor.window.start_ns, cursor.window.end_ns) == (14_800, 29_200)
    cursor.whole()
    assert (cursor.window.start_ns, cursor.window.end_ns) == (10 * US, 90 * US)
    cursor.whole()
    assert (cursor.window.start_ns, cursor.window.end_ns) == (0, 100 * US)


def test_two_marks_are_kept_and_a_third_begins_anew() -> None:
    cursor = TimelineCursor(ready(scene()))
    cursor.columns = 100
    for _ in range(3):
        cursor.mark()
        cursor.step(10)
    assert cursor.marks == (20 * US,)


def test_the_cursor_stays_within_what_is_shown() -> None:
    cursor = TimelineCursor(ready(scene()))
    cursor.columns = 100
    cursor.zoom(0.25)
    cursor.pan(0.5)
    assert cursor.t_ns == cursor.window.start_ns == 12_500
    cursor.edge(1)
    assert (cursor.window.end_ns, cursor.t_ns) == (100 * US, 100 * US - 1)
    cursor.step(5)
    assert cursor.window.end_ns == 100 * US
    cursor.move(999)
    assert cursor.place() == cursor.places()[-1]
    cursor.move(-999)
    assert cursor.place() == cursor.places()[0]


def test_a_closed_row_keeps_the_cursor_and_shows_all_in_one_line() -> None:
    timeline = ready(scene())
    cursor = TimelineCursor(timeline)
    cursor.jump(timeline.code("nvtx", 1))
    place = cursor.place()
    assert place is not None
    assert place.depth == 1, "forward stands within step 1"
    assert cursor.fold()
    place = cursor.place()
    assert place is not None
    assert (place.row.title, place.depth) == ("NVTX", -1)
    cursor.move(1)
    assert not cursor.fold(), "one line of ranges that do not overlap has nothing to open"


def test_the_spans_of_a_line_are_a_table_with_exact_times() -> None:
    timeline = ready(scene())
    cursor = TimelineCursor(timeline)
    cursor.jump(kernel(timeline, GEMM, 16))
    line = cursor.line()
    assert line is not None
    table = SpansOfLine.within(timeline, line, 17 * US, 29 * US)
    assert list(csv_of(table))[1:] == [
        f"kernel,{GEMM},16000,12000,,0,,\n",
        f"kernel,{NORM},28000,4000,,1,,\n",
    ]
    assert table.row_of(kernel(timeline, NORM, 28)) == 1
    assert table.row_of(kernel(timeline, GEMM, 70)) is None
    assert len(table.filtered("rms")) == 1
    assert table.sorted_by("duration", descending=False).cells(0)[1] == NORM
