"""`llmtop report --format perfetto`: events as the Trace Event Format has them, with the numbers of the recording."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.cli import main
from llmtop.cli.report_perfetto import report_perfetto
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
    Trace,
    Track,
    TrackKind,
)
from llmtop.parsers.kineto_json import EventColumns, EventReader
from llmtop.recording.writer import RecordingWriter
from tests.live_traces import NO_GPU, NOTHING, Scene, live_trace, probed

HOSTILE = '"},{"ph":"X\x1b[2J'
SCENES = {"two": Scene(gpus=2), "no-gpu": NO_GPU, "nothing": NOTHING, "hostile": Scene(hostile=HOSTILE)}
ARGUMENTS = {"C": {"name", "pid", "ts", "args"}, "X": {"name", "pid", "tid", "ts", "dur"}, "M": {"name", "pid", "args"}}
"""What each kind of event must have, by the format's description."""


def events(trace: Trace) -> list[dict[str, Any]]:
    observed = trace if trace.origin.is_observed else replace(trace, origin=Origin(RECORDING, "x"))
    found: list[dict[str, Any]] = json.loads("".join(report_perfetto(observed)))["traceEvents"]
    return found


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
    slices = [(one["name"], one["ts"], one["dur"]) for one in events(trace) if one["ph"] == "X"]
    assert slices == [
        ("on CPU", 0, 2e6),
        ("waits for a CPU", 2e6, 1e6),
        ("sleeps: futex", 3e6, 1e6),
        ("sleeps", 4e6, 1e6),
    ]
    assert {(one["pid"], one.get("tid")) for one in events(trace)} == {(7, 8)}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_each_event_has_what_the_format_asks_for(scene: Scene) -> None:
    found = events(probed(live_trace(scene)))
    for one in found:
        assert one.keys() >= ARGUMENTS.get(one["ph"], {"name", "s", "ts"})
        assert all(isinstance(one[key], int) for key in ("pid", "tid") if key in one)
        assert one.get("dur", 0) >= 0
    names = [(one["pid"], one.get("tid")) for one in found if one["ph"] == "M"]
    assert len(names) == len(set(names)), "no two tracks are one"


def test_counters_are_the_samples_in_their_units() -> None:
    trace = live_trace(Scene(gpus=2))
    name = f"GPU 1: {trace.tracks[ids.gpu(1)].name}"
    (pid,) = [one["pid"] for one in events(trace) if one["ph"] == "M" and one["args"]["name"] == name]
    told = [(one["ts"], one["args"]["(%)"]) for one in events(trace) if one["name"] == "SM" and one["pid"] == pid]
    assert told == [(t / 1000, value) for t, value in trace.series[ids.gpu(1), v.GPU_SM.name].known]
    assert any(one["name"] == "own CPU" and one["args"].keys() == {"(ns/s)"} for one in events(trace))


def test_what_codes_and_bits_stand_for_is_told_when_it_changes() -> None:
    trace, key = live_trace(), (ids.gpu(0), v.GPU_CLOCK_REASONS.name)
    samples: list[tuple[int, float | None]] = list(enumerate((0.0, 0.0, None, 4.0, 4.0, 0x24, 0.0)))
    series = {**trace.series, key: Series.of(*key[:1], v.GPU_CLOCK_REASONS, "NVML", samples)}
    found = [one for one in events(replace(trace, series=series)) if one["name"].startswith("throttle: ")]
    assert [(one["ph"], one["ts"], one["name"], one["args"]["value"]) for one in found] == [
        ("i", 0, "throttle: none", 0.0),
        ("i", 0.003, "throttle: power cap", 4.0),
        ("i", 0.005, "throttle: power cap, too hot (driver slows it)", 0x24),
        ("i", 0.006, "throttle: none", 0.0),
    ]


def test_marks_and_findings_are_instants() -> None:
    scene = live_trace()
    mark = Mark(scene.end_ns - NS_PER_S, MarkKind.XID, ids.gpu(0), "XID 79", Severity.ERROR)
    found = events(replace(scene, marks=(mark,)))
    xid, *others = [one for one in found if one["ph"] == "i" and "severity" in one["args"]]
    assert (xid["name"], xid["ts"], xid["s"]) == ("XID 79", mark.t_ns / 1000, "p")
    (of_all,) = {one["pid"] for one in others}
    assert of_all != xid["pid"]
    names = {one["pid"]: one["args"]["name"] for one in found if one["name"] == "process_name"}
    assert (names[xid["pid"]].partition(":")[0], names[of_all]) == ("GPU 0", "findings and events")


def test_our_own_parser_of_chrome_traces_reads_it(tmp_path: Path) -> None:
    path, trace = tmp_path / "trace.json", slept([(1, 0, 0), (0, 1, 0)])
    path.write_text("".join(report_perfetto(trace)))
    with path.open("rb") as file:
        reader = EventReader(file, lambda done: None)
        columns, name = list(reader)
    assert (reader.found, reader.broken, reader.mended, reader.left_bytes) == (True, 0, 0, None)
    assert isinstance(columns, EventColumns)
    assert (columns.phase, list(columns.names)) == ("X", [b"on CPU", b"waits for a CPU"])
    assert isinstance(name, dict)
    assert name["args"] == {"name": "engine"}


def test_the_command_writes_it_of_recordings_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = RecordingWriter(tmp_path / "incident.llmtop", {})
    writer.write(live_trace())
    writer.close()
    assert main(["report", str(tmp_path / "incident.llmtop"), "--format", "perfetto", "-o", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out").read_text())["traceEvents"]
    (tmp_path / "stacks").write_text("a;b 1\n")
    assert main(["report", str(tmp_path / "stacks"), "--format", "perfetto"]) == 1
    assert "is no recording" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "stacks"), "--format", "perfetto", "-o", str(tmp_path / "none")]) == 1
    assert not (tmp_path / "none").exists()


def test_a_trace_of_a_tool_is_refused_before_a_word_is_written() -> None:
    with pytest.raises(FileError, match="is no recording"):
        report_perfetto(Trace(Origin("ncu-rep", "x")))
    assert events(Trace(LIVE)) == []
