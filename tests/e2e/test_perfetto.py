"""What `llmtop report --format perfetto` writes, in Perfetto's own trace processor: it is all there, and as meant."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import llmtop
from llmtop import vocabulary as v
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series.rates import rate_samples
from llmtop.analysis.timeline.rows import kind_title
from llmtop.cli import main
from llmtop.demo.replays import REPLAYS
from llmtop.frozen import frozen
from llmtop.ids import pid, tid
from llmtop.model import API_CALLS, GPU_WORK, SpanKind, SpanTable, Trace, TrackKind
from llmtop.parsers.registry import load
from tests.e2e.trace_processor import WHY_NOT, TraceProcessor, is_here, trace_processor
from tests.nsys_capture import PID, Capture

pytestmark = [pytest.mark.oracle, pytest.mark.skipif(not is_here(), reason=WHY_NOT)]
SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
DEMO = SAMPLES / "recording/1/demo-server.llmtop.xz"
RECORDINGS = {DEMO.name.partition(".")[0]: DEMO} | {name: replay.path for name, replay in REPLAYS.items()}
COUNTERS = """
    SELECT above.name AS of, counter_track.name, counter_track.unit, counter.ts, counter.value
    FROM counter JOIN counter_track ON counter.track_id = counter_track.id
    JOIN track AS own ON counter.track_id = own.id LEFT JOIN track AS above ON own.parent_id = above.id
    ORDER BY counter.ts
"""
STATES = """
    SELECT process.pid, thread.tid, slice.name, slice.ts, slice.dur
    FROM slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid) JOIN process USING (upid)
    ORDER BY slice.ts
"""
INSTANTS = """
    SELECT track.name AS of, slice.name, slice.ts, slice.dur
    FROM slice JOIN track ON slice.track_id = track.id WHERE slice.dur = 0
"""
ON_LINES = """
    SELECT track.name AS of, slice.name, slice.ts, slice.dur, extract_arg(slice.arg_set_id, 'debug.bytes') AS bytes
    FROM slice JOIN track ON slice.track_id = track.id
"""
ARROWS = """
    SELECT a.name AS from_name, a.ts AS from_ts, b.name AS to_name, b.ts AS to_ts
    FROM flow JOIN slice AS a ON flow.slice_out = a.id JOIN slice AS b ON flow.slice_in = b.id
"""


@frozen
class Loaded:
    """A recording, by us and by Perfetto."""

    ours: Trace
    perfetto: TraceProcessor


@pytest.fixture(scope="module")
def processor() -> Iterator[TraceProcessor]:
    with trace_processor() as processor:
        yield processor


@pytest.fixture(scope="module", params=list(RECORDINGS.values()), ids=list(RECORDINGS))
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, processor: TraceProcessor
) -> Loaded:
    written = tmp_path_factory.mktemp("perfetto") / "trace.pftrace"
    assert main(["report", str(request.param), "--format", "perfetto", "-o", str(written)]) == 0
    processor.load(written)
    return Loaded(load(request.param), processor)


def test_nothing_is_refused_or_lost(loaded: Loaded) -> None:
    wrong = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
    assert loaded.perfetto.ask(wrong) == []


def test_processes_and_threads_are_named(loaded: Loaded) -> None:
    """Besides the one that Linux calls swapper, which every trace in Perfetto has, nothing is without a name."""
    tracks = loaded.ours.tracks
    threads = Counter((pid(id), tid(id), one.name) for id, one in tracks.items() if one.kind is TrackKind.THREAD)
    told = loaded.perfetto.ask("SELECT pid, tid, thread.name FROM thread JOIN process USING (upid) WHERE upid > 0")
    assert threads <= Counter(told)
    assert all(process == thread for process, thread, _ in Counter(told) - threads), "Perfetto's own: the first threads"
    processes = Counter(loaded.perfetto.ask("SELECT pid, name FROM process WHERE upid > 0"))
    assert processes == Counter((pid(one.id), one.name) for one in loaded.ours.tracks_of(TrackKind.PROCESS))


def test_what_is_no_process_has_a_name_and_no_pid(loaded: Loaded) -> None:
    names = [name for (name,) in loaded.perfetto.ask("SELECT name FROM track WHERE name IS NOT NULL")]
    for kind in (TrackKind.GPU, TrackKind.HOST, TrackKind.SERVER, TrackKind.ENDPOINT, TrackKind.NEIGHBOUR):
        for track in loaded.ours.tracks_of(kind):
            assert any(name.endswith(track.name) for name in names)
    gpus = [one for one in loaded.perfetto.ask("SELECT name, type FROM track") if str(one[0]).startswith("GPU 0: ")]
    assert len(gpus) == len(loaded.ours.tracks_of(TrackKind.GPU))
    assert all(type.startswith("global") for _, type in gpus)


def test_each_number_is_there_at_its_time_in_its_unit(loaded: Loaded) -> None:
    """Of counters their rates, from the look on that they are counted from. Parts of numbers (buckets) are left out."""
    ours = list[tuple[str, str, int, float]]()
    alike = Counter((track, one.metric.title or one.metric.name) for (track, _), one in loaded.ours.series.items())
    for (track, _), series in loaded.ours.series.items():
        metric = series.metric
        if loaded.ours.tracks[track].kind is TrackKind.THREAD or v.is_part(metric):
            continue
        unit = f"{metric.unit}/s" if metric.counter else metric.unit
        rates = zip(series.times[:-1], (rate for _, rate in rate_samples(series)), strict=True)
        samples = rates if metric.counter else series
        name = metric.title or metric.name
        name = f"{name} ({metric.name})" if alike[track, name] > 1 else name  # of two sources
        ours += [(name, unit, t, value) for t, value in samples if value is not None]
    told = sorted(tuple(one[1:]) for one in loaded.perfetto.ask(COUNTERS))
    ours.sort()
    assert ours
    assert told == ours


def test_the_gpus_numbers_are_of_the_gpu(loaded: Loaded) -> None:
    told = [one[1:] for one in loaded.perfetto.ask(COUNTERS) if str(one[0]).startswith("GPU 0: ")]
    for gpu in loaded.ours.tracks_of(TrackKind.GPU):
        assert [one[2:] for one in told if one[:2] == ("power", "W")] == list(
            loaded.ours.series[gpu.id, "gpu.power"].known
        )


def test_threads_are_in_their_states_without_a_gap_or_overlap(loaded: Loaded) -> None:
    """From the first look at a thread to the last, in each stretch in what the clocks say that it did mostly."""
    looks: dict[tuple[int, int], dict[int, float]] = {}
    for (track, name), series in loaded.ours.series.items():
        if name == v.THREAD_ON_CPU.name and len(values := dict(series.known)) > 1:
            looks[pid(track), tid(track)] = values
    states: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    for process, thread, name, t_ns, dur_ns in loaded.perfetto.ask(STATES):
        states.setdefault((process, thread), []).append((name, t_ns, t_ns + dur_ns))
    assert states.keys() == looks.keys()
    for thread, slices in states.items():
        values = looks[thread]
        assert [end for *_, end in slices[:-1]] == [start for _, start, _ in slices[1:]]
        assert (slices[0][1], slices[-1][2]) == (min(values), max(values))
        for name, start_ns, end_ns in slices:
            assert name in ("on CPU", "waits for a CPU", "sleeps") or name.startswith("sleeps: ")
            busy = (values[end_ns] - values[start_ns]) / (end_ns - start_ns)
            assert busy >= 0.5 if name == "on CPU" else busy <= 0.5


def said_changes(trace: Trace) -> Iterator[tuple[str, int, int]]:
    """What codes and bits stand for, when they become another."""
    for (track, _), series in trace.series.items():
        if series.metric.unit in v.SIGNS and trace.tracks[track].kind is not TrackKind.THREAD:
            for (_, before), (t_ns, value) in pairwise([(0, None), *series.known]):
                if value != before:
                    yield f"{series.metric.title}: {v.said(series.metric, value or 0.0)}", t_ns, 0


def test_events_and_findings_are_told_when_they_were(loaded: Loaded) -> None:
    ours = Counter((mark.text, mark.t_ns, 0) for mark in loaded.ours.marks)
    ours.update(said_changes(loaded.ours))
    ours.update((finding.headline(), loaded.ours.end_ns, 0) for finding in diagnose(loaded.ours).findings)
    told = loaded.perfetto.ask(INSTANTS)
    assert ours
    assert Counter(tuple(one[1:]) for one in told) == ours
    assert {of.partition(":")[0] for of, name, *_ in told if name.startswith("XID")} <= {"GPU 0"}


# -- timelines -------------------------------------------------------------------------------------------------


def captured(path: Path) -> None:
    """Work that overlaps on a stream, a graph of three kernels, ranges that cross each other, two processes."""
    made = Capture()
    for of in (PID, PID + 1):
        call = made.call("cudaLaunchKernel", 10, 20, pid=of, tid=of)
        made.kernel(30, 60, call, pid=of)
        graph = made.call("cudaGraphLaunch", 30, 45, pid=of, tid=of)
        for i in range(3):
            made.kernel(50 + 20 * i, 65 + 20 * i, graph, name=f"node {i}", pid=of)
        made.copy(130, 140, made.call("cudaMemcpyAsync", 50, 52, pid=of, tid=of), pid=of)
    made.nvtx("one", 5, 40)
    made.nvtx("two", 20, 60)
    made.nvtx("moment", 25, 25)
    made.os("poll", 0, 100)
    made.write(path)


TIMELINES = [*sorted((SAMPLES / "nsys").rglob("*.xz")), *sorted((SAMPLES / "kineto").rglob("*.gz")), None]


@pytest.fixture(scope="module", params=TIMELINES, ids=[path.name if path else "made-up" for path in TIMELINES])
def timeline(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, processor: TraceProcessor
) -> Loaded:
    folder = tmp_path_factory.mktemp("perfetto")
    if (path := request.param) is None:
        captured(path := folder / "made.sqlite")
    assert main(["report", str(path), "--format", "perfetto", "-o", str(folder / "trace.pftrace")]) == 0
    processor.load(folder / "trace.pftrace")
    return Loaded(load(path), processor)


def drawn(trace: Trace) -> list[SpanTable]:
    """Allocations are told by counters."""
    tables = [*trace.spans.values(), *trace.more_spans.values()]
    return [table for table in tables if table.kind not in (SpanKind.ALLOCATION, SpanKind.CAPTURED)]


def test_nothing_of_a_timeline_is_refused_or_lost(timeline: Loaded) -> None:
    test_nothing_is_refused_or_lost(timeline)


def test_each_span_is_there_with_its_times_and_bytes(timeline: Loaded) -> None:
    ours: Counter[tuple[str, int, int, float | None]] = Counter()
    for table in drawn(timeline.ours):
        names = map(table.names.__getitem__, table.name_id)
        for name, start_ns, end_ns, amount in zip(names, table.start_ns, table.end_ns, table.amount, strict=True):
            ours[name, start_ns, end_ns - start_ns, None if math.isnan(amount) else amount] += 1
    told = Counter(tuple(one[1:]) for one in timeline.perfetto.ask(ON_LINES))
    assert ours
    assert told == ours


def test_times_by_kernel_are_those_of_our_own_table(timeline: Loaded) -> None:
    """Kernels, copies and fills: on the lines of streams alone."""
    kinds = {kind_title(kind) for kind in GPU_WORK}
    ours: dict[str, tuple[int, float]] = {}
    for row in llmtop.table(timeline.ours, "spans").rows():
        if row["kind"] in kinds:
            calls, ns = ours.get(str(row["name"]), (0, 0.0))
            assert isinstance(row["duration"], float | int)
            ours[str(row["name"])] = calls + 1, ns + row["duration"]
    told: dict[str, tuple[int, float]] = {}
    for of, name, _, ns, _ in timeline.perfetto.ask(ON_LINES):
        if of.startswith("stream "):
            calls, before = told.get(name, (0, 0.0))
            told[name] = calls + 1, before + ns
    assert ours
    assert told == ours


def test_arrows_go_from_each_launch_to_its_work(timeline: Loaded) -> None:
    """Of several kernels of one launch from each to the next."""
    joined: dict[int, list[tuple[int, int, str]]] = {}
    for table in drawn(timeline.ours):
        for row, join in enumerate(table.correlation if table.kind in (*API_CALLS, *GPU_WORK) else ()):
            is_work = table.kind in GPU_WORK
            if join >= 0:
                joined.setdefault(join, []).append((table.start_ns[row], is_work, table.names[table.name_id[row]]))
    ours: Counter[tuple[str, int, str, int]] = Counter()
    for several in joined.values():
        for (start_ns, _, name), (later_ns, _, later) in pairwise(sorted(several)):
            ours[name, start_ns, later, later_ns] += 1
    assert ours
    assert Counter(timeline.perfetto.ask(ARROWS)) == ours


def test_threads_and_streams_are_where_they_belong(timeline: Loaded) -> None:
    """Processes of Linux alone have a PID; a stream stands below its GPU."""
    tracks = timeline.ours.tracks
    processes = {pid(one.id) for one in timeline.ours.tracks_of(TrackKind.PROCESS)}
    assert {one for (one,) in timeline.perfetto.ask("SELECT pid FROM process WHERE upid > 0")} == {
        one for one in processes if one > 0
    }
    above = dict(
        timeline.perfetto.ask("SELECT t.name, a.name AS above FROM track AS t JOIN track AS a ON t.parent_id = a.id")
    )
    streams = [one for one in tracks.values() if one.kind is TrackKind.STREAM]
    lines = {name for name in above if name.startswith("stream ")}
    assert len(lines) == len(streams)
    assert all(above[line].startswith("GPU 0: ") for line in lines)
