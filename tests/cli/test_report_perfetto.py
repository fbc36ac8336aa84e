"""`llmtop report --format perfetto`: packets as Perfetto's messages have them, of recordings and timelines."""

from __future__ import annotations

import tracemalloc
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.cli import main
from llmtop.cli.report_perfetto import refuse_what_has_no_time, write_perfetto
from llmtop.errors import FileError
from llmtop.model import (
    LIVE,
    NS_PER_S,
    RECORDING,
    Mark,
    MarkKind,
    Metric,
    Origin,
    Series,
    Severity,
    SpanTable,
    Trace,
    Track,
    TrackKind,
)
from llmtop.recording.writer import RecordingWriter
from tests.live_traces import NO_GPU, NOTHING, Scene, live_trace, probed
from tests.perfetto_trace import Event, written
from tests.timeline_traces import COMPUTE, COPIES, GPU, MAIN, OTHER, PID, THREAD, US, Made, scene, table, trace_of

HOSTILE = '\x0a\xff"},{"ph":"X\x1b[2J'
SCENES = {"two": Scene(gpus=2), "no-gpu": NO_GPU, "nothing": NOTHING, "hostile": Scene(hostile=HOSTILE)}


def slept(seconds: list[tuple[float, float, float]]) -> Trace:
    """A thread that was on a CPU, queued and asleep for such shares of each second."""
    thread, sums = ids.thread(7, 8), [0.0, 0.0, 0.0]
    samples: dict[Metric, list[tuple[int, float | None]]] = {
        v.THREAD_ON_CPU: [(0, 0.0)],
        v.THREAD_RUN_QUEUE: [(0, 0.0)],
        v.labelled(v.THREAD_BLOCKED, "futex"): [(0, 0.0)],
    }
    for second, shares in enumerate(seconds, 1):
        sums = [total + share * NS_PER_S for total, share in zip(sums, shares, strict=True)]
        for (_, of), total in zip(samples.items(), sums, strict=True):
            of.append((second * NS_PER_S, total))
    series = {(thread, metric.name): Series.of(thread, metric, "test", of) for metric, of in samples.items()}
    tracks = {thread: Track(thread, TrackKind.THREAD, "engine")}
    return Trace(Origin(RECORDING, "x"), end_ns=len(seconds) * NS_PER_S, tracks=tracks, series=series)


def test_a_thread_is_in_what_took_most_of_each_stretch() -> None:
    trace = slept([(0.9, 0.1, 0), (0.6, 0.2, 0.2), (0.1, 0.7, 0.2), (0.2, 0.2, 0.6), (0, 0, 0)])
    assert [(name, start, end) for _, name, start, end in written(trace).slices()] == [
        ("on CPU", 0, 2 * NS_PER_S),
        ("waits for a CPU", 2 * NS_PER_S, 3 * NS_PER_S),
        ("sleeps: futex", 3 * NS_PER_S, 4 * NS_PER_S),
        ("sleeps", 4 * NS_PER_S, 5 * NS_PER_S),
    ]
    (thread,) = [one.thread for one in written(trace).tracks.values() if one.HasField("thread")]
    assert (thread.pid, thread.tid, thread.thread_name) == (7, 8, "engine")


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_all_of_a_moment_is_on_a_track_of_its_own(scene: Scene) -> None:
    trace = probed(live_trace(scene))
    found = written(trace)
    assert all(start <= end for *_, start, end in found.slices())
    processes = [one.process.pid for one in found.tracks.values() if one.HasField("process")]
    known = (*trace.tracks_of(TrackKind.PROCESS), *trace.tracks_of(TrackKind.THREAD))
    assert sorted(processes) == sorted({ids.pid(one.id) for one in known})
    counters = [one.on for one in found.of("COUNTER")]
    assert len(set(counters)) == len({one.track for one in found.of("COUNTER")}), "no two counters look alike"


def test_counters_are_the_samples_in_their_units() -> None:
    trace = live_trace(Scene(gpus=2))
    found, on = written(trace), (f"GPU 1: {trace.tracks[ids.gpu(1)].name}", "SM")
    told = [one for one in found.of("COUNTER") if one.on == on]
    assert [(one.t_ns, one.value) for one in told] == list(trace.series[ids.gpu(1), v.GPU_SM.name].known)
    assert {found.tracks[one.track].counter.unit_name for one in told} == {"%"}
    rates = {found.tracks[one.track].counter.unit_name for one in found.of("COUNTER") if one.on[-1] == "own CPU"}
    assert rates == {"ns/s"}


def test_what_codes_and_bits_stand_for_is_told_when_it_changes() -> None:
    trace, key = live_trace(), (ids.gpu(0), v.GPU_CLOCK_REASONS.name)
    samples: list[tuple[int, float | None]] = list(enumerate((0.0, 0.0, None, 4.0, 4.0, 0x24, 0.0)))
    series = {**trace.series, key: Series.of(*key[:1], v.GPU_CLOCK_REASONS, "NVML", samples)}
    found = [one for one in written(replace(trace, series=series)).events if one.name.startswith("throttle: ")]
    assert [(one.type, one.t_ns, one.name, one.args["value"]) for one in found] == [
        ("INSTANT", 0, "throttle: none", 0.0),
        ("INSTANT", 3, "throttle: power cap", 4.0),
        ("INSTANT", 5, "throttle: power cap, too hot (driver slows it)", 0x24),
        ("INSTANT", 6, "throttle: none", 0.0),
    ]


def test_marks_and_findings_are_instants() -> None:
    scene = live_trace()
    mark = Mark(scene.end_ns - NS_PER_S, MarkKind.XID, ids.gpu(0), "XID 79", Severity.ERROR)
    xid, *others = [one for one in written(replace(scene, marks=(mark,))).of("INSTANT") if "severity" in one.args]
    assert (xid.name, xid.t_ns, xid.on) == ("XID 79", mark.t_ns, (f"GPU 0: {scene.tracks[ids.gpu(0)].name}",))
    assert {one.on for one in others} == {("findings and events",)}


# -- timelines -------------------------------------------------------------------------------------------------


def test_spans_are_on_the_lines_of_their_streams_and_threads() -> None:
    found = set(written(scene()).slices())
    gpu, thread = "GPU 0: NVIDIA H100", f"thread {MAIN}"
    assert ((gpu, "stream 13"), "copy HtoD", 40 * US, 45 * US) in found
    assert ((thread, "CUDA API"), "cudaMemcpyAsync", 38 * US, 42 * US) in found
    assert ((thread, "NVTX"), "forward", 8 * US, 40 * US) in found
    assert ((f"thread {ids.tid(OTHER)}", "OS runtime"), "nanosleep", 0, 100 * US) in found
    assert len(found) == sum(map(len, scene().spans.values()))


def test_arrows_are_of_launches_and_their_work() -> None:
    flows: dict[int, list[Event]] = {}
    for one in written(scene()).of("SLICE_BEGIN"):
        flows.setdefault(one.flow, []).append(one)
    del flows[0]
    assert sorted(sorted(one.on[-1] for one in several) for several in flows.values()) == [
        ["CUDA API", "stream 13"],
        *[["CUDA API", "stream 7"]] * 3,
    ]
    (copied,) = [one for one in written(scene()).of("SLICE_BEGIN") if one.name == "copy HtoD"]
    assert copied.args == {"bytes": 4096.0}


def test_spans_that_cross_each_other_are_beside_each_other() -> None:
    """What begins together is within the longest, what ends as another begins is before it."""
    spans = [
        Made(THREAD, "short", 0, 10),
        Made(THREAD, "long", 0, 40),
        Made(THREAD, "crosses", 30, 50),
        Made(THREAD, "next", 40, 60),
        Made(THREAD, "moment", 40, 40),
        Made(THREAD, "crosses too", 45, 70),
    ]
    found = written(trace_of({"nvtx": spans}, end=70))
    lines: dict[int, list[str]] = {}
    for one in found.events:
        if one.name:
            lines.setdefault(one.track, []).append(one.name)
    assert list(lines.values()) == [["long", "short", "next", "moment"], ["crosses"], ["crosses too"]]
    assert {found.tracks[track].name for track in lines} == {"NVTX"}, "which is what has Perfetto draw them as one"
    ends = {name: end for _, name, _, end in found.slices()}
    assert ends == {one.name: one.end * US for one in spans if one.end > one.start}


def test_streams_of_several_processes_are_told_apart() -> None:
    other = ids.stream(GPU, PID + 1, 7)
    found = written(trace_of({"kernel": [Made(COMPUTE, "a", 0, 1), Made(other, "b", 0, 1)]}, end=1))
    assert [on for on, *_ in found.slices()] == [
        ("GPU 0: NVIDIA H100", f"stream 7, process {PID}"),
        ("GPU 0: NVIDIA H100", f"stream 7, process {PID + 1}"),
    ]


def test_ranks_and_what_is_no_thread_have_no_pid() -> None:
    """On two machines a PID may be of two programs; -1 is what PyTorch calls none."""
    ranks = [ids.of_rank(THREAD, f"rank {i}", is_only_gpu=True) for i in range(2)]
    steps = [Made(one, "step", 0, 1) for one in (*ranks, ids.thread(-1, 0))]
    spans = {"nvtx": table("nvtx", [*steps, Made(ids.NONE, "step", 0, 1)])}
    found = written(replace(trace_of({"nvtx": steps}, end=1), spans=spans))
    assert not any(one.HasField("process") or one.HasField("thread") for one in found.tracks.values())
    assert len(list(found.slices())) == 4


def test_allocations_are_left_to_counters() -> None:
    trace = trace_of({"allocation": [Made(COMPUTE, "held", 0, 5)], "kernel": [Made(COPIES, "a", 0, 1)]}, end=5)
    assert [name for _, name, *_ in written(trace).slices()] == ["a"]


class Sink:
    """A file that keeps nothing."""

    def write(self, content: bytes) -> int:
        return len(content)


@pytest.mark.parametrize("count", [1_000, 100_000])
def test_no_more_is_kept_than_is_open(count: int) -> None:
    """However many spans there are: beside their columns, less than a byte of each."""
    zeros, starts = array("q", bytes(8 * count)), array("q", range(0, 2 * count, 2))
    ends, nothing = array("q", range(1, 2 * count, 2)), array("d", [float("nan")]) * count
    kernels = SpanTable("kernel", ("a",), (COMPUTE,), zeros, zeros, starts, ends, starts, nothing)
    trace = trace_of({"kernel": [Made(COMPUTE, "a", 0, 1)]}, end=count)
    tracemalloc.start()
    try:
        write_perfetto(replace(trace, spans={"kernel": kernels}), Sink())  # type: ignore[arg-type]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


# -- the command -----------------------------------------------------------------------------------------------


def recording(folder: Path) -> str:
    writer = RecordingWriter(folder / "incident.llmtop", {})
    writer.write(live_trace())
    writer.close()
    return str(folder / "incident.llmtop")


def test_the_command_writes_the_same_to_a_file_and_to_a_pipe(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["report", recording(tmp_path), "--format", "perfetto", "-o", str(tmp_path / "out")]) == 0
    assert main(["report", str(tmp_path / "incident.llmtop"), "--format", "perfetto"]) == 0
    assert capfdbinary.readouterr().out == (tmp_path / "out").read_bytes()


def test_a_terminal_is_not_written_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["report", recording(tmp_path), "--format", "perfetto"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "no text: name a file for it, -o trace.pftrace" in told.err


def test_what_has_no_time_is_refused_before_a_word_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stacks").write_text("a;b 1\n")
    assert main(["report", str(tmp_path / "stacks"), "--format", "perfetto"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "has nothing that goes over time" in line
    assert main(["report", str(tmp_path / "stacks"), "--format", "perfetto", "-o", str(tmp_path / "none")]) == 1
    assert not (tmp_path / "none").exists()
    with pytest.raises(FileError, match="nothing that goes over time"):
        refuse_what_has_no_time(Trace(Origin("ncu-rep", "x")))
    assert written(Trace(LIVE)).events == []


def test_a_full_disk_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", recording(tmp_path), "--format", "perfetto", "-o", "/dev/full"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "/dev/full cannot be written: No space left on device" in line
