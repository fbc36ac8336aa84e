"""A recording played: where it stands, how fast it goes, and that its traces are those that were shown."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from llmtop import ids
from llmtop.model import LIVE, NS_PER_S, Mark, MarkKind, Severity, Trace
from llmtop.recording.reader import RecordingReader
from llmtop.recording.writer import RecordingWriter
from llmtop.replay import Replay, moment_of
from llmtop.session import Recorder
from tests.live_traces import START_NS, TARGET, Scene, poll

SECONDS = 120
DEADLINE_S = 30.0


class Clock:
    """Seconds that pass when they are told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> RecordingReader:
    """Two minutes of a server, with an event in the 45th second and another verdict in the 20th and the 80th."""
    path = tmp_path_factory.mktemp("recording") / "file"
    writer = RecordingWriter(path, {"host": "gpu-7", "utc_ns": 1_760_000_000 * NS_PER_S})
    recorder = Recorder(LIVE)
    for second in range(SECONDS + 1):
        t_ns = START_NS + second * NS_PER_S
        recorder.append("synthetic", poll(Scene(), second, t_ns))
        if second == 45:
            recorder.mark(Mark(t_ns - NS_PER_S // 2, MarkKind.XID, ids.gpu(0), "XID 79", Severity.ERROR))
        writer.write(recorder.freeze(), TARGET)
        if second in (20, 80):
            writer.judge(t_ns, f"found in second {second}", ())
    writer.close()
    return RecordingReader(path)


def second(replay: Replay) -> float:
    """Where it stands, from the beginning of the recording."""
    return (replay.at_ns - START_NS) / NS_PER_S


def test_it_begins_at_the_end_and_plays_from_the_start(recording: RecordingReader) -> None:
    clock = Clock()
    replay = Replay(recording, clock)
    assert (second(replay), replay.state, replay.target) == (SECONDS, "paused", TARGET)
    replay.toggle()
    clock.now += 7.5
    assert (second(replay), replay.state) == (7.5, "playing")
    assert replay.trace().end_ns == START_NS + 7 * NS_PER_S
    replay.toggle()
    clock.now += 100
    assert (second(replay), replay.state) == (7.5, "paused")


def test_speeds_hold_from_where_they_were_chosen(recording: RecordingReader) -> None:
    clock = Clock()
    replay = Replay(recording, clock)
    replay.toggle()
    clock.now += 10
    replay.change_speed(1)
    clock.now += 10
    assert (second(replay), replay.state) == (30, "playing 2x")
    for _ in range(9):
        replay.change_speed(-1)
    clock.now += 8
    assert (second(replay), replay.state) == (32, "playing 0.25x")
    for _ in range(20):
        replay.change_speed(1)
    clock.now += 1
    assert (second(replay), replay.state) == (SECONDS, "paused")


def test_steps_stand_still_at_moments_and_at_the_ends(recording: RecordingReader) -> None:
    clock = Clock()
    replay = Replay(recording, clock)
    replay.step(1)
    assert second(replay) == SECONDS
    replay.step(-2)
    assert second(replay) == SECONDS - 2
    replay.toggle()
    clock.now += 0.7
    replay.step(-1)
    assert (second(replay), replay.state) == (SECONDS - 3, "paused")
    replay.seek(0)
    replay.step(-1)
    assert second(replay) == 0


def test_events_and_changes_of_findings_are_places(recording: RecordingReader) -> None:
    replay = Replay(recording, Clock())
    seen = []
    while replay.seek_among(replay.verdicts, -1):
        seen.append(second(replay))
    assert seen == [80, 20]
    assert replay.seek_among(replay.events, 1)
    assert second(replay) == 30, "the scene's own"
    assert replay.seek_among(replay.events, 1)
    assert second(replay) == 45, "the first moment that knows of it"
    assert [mark.said for mark in replay.trace().marks if mark.kind is MarkKind.XID] == ["XID 79"]
    assert not replay.seek_among(replay.events, 1)
    assert second(replay) == 45


def test_it_says_whose_of_when_and_where(recording: RecordingReader) -> None:
    replay = Replay(recording, Clock())
    replay.seek(START_NS + 61 * NS_PER_S)
    state, place, of = replay.said.split(", ")
    assert (state, place) == ("recording paused", "00:01:01 of 00:02:00")
    assert of.startswith("of gpu-7 at 2025-10-09 ")


def test_news_come_while_it_plays(recording: RecordingReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replay, "interval_s", 0.01)
    replay, told = Replay(recording), threading.Semaphore(0)
    replay.on_news = told.release
    replay.start()
    assert told.acquire(timeout=DEADLINE_S), "of where it stands"
    assert not told.acquire(timeout=0.1), "nothing is new while it stands still"
    replay.toggle()
    assert told.acquire(timeout=DEADLINE_S)
    replay.stop()
    assert not replay._thread.is_alive()


def test_each_trace_is_the_one_that_was_shown(recording: RecordingReader) -> None:
    replay = Replay(recording, Clock())
    replay.seek(START_NS + 50 * NS_PER_S)
    trace = replay.trace()
    assert isinstance(trace, Trace)
    assert {series.last_t_ns for series in trace.series.values()} == {trace.end_ns}


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "1.5", "--5", "٣", ":"])
def test_what_is_no_time_leads_nowhere(text: str) -> None:
    assert moment_of(text, 5, 0) is None


def test_an_incident_begins_where_its_condition_held(tmp_path: Path) -> None:
    writer, recorder = RecordingWriter(tmp_path / "file", {"trigger": "kv_usage > 90%"}), Recorder(LIVE)
    for of_time in range(-20, 31):  # what was kept before is in the first moment
        recorder.append("synthetic", poll(Scene(), of_time + 20, START_NS + of_time * NS_PER_S))
        if of_time >= 0:
            writer.write(recorder.freeze(), TARGET)
    writer.close()
    clock = Clock()
    replay = Replay(RecordingReader(tmp_path / "file"), clock)
    assert (second(replay), replay.state) == (0, "paused")
    assert replay.trace().start_ns == START_NS - 20 * NS_PER_S
    assert replay.said == "recording paused, 00:00:00 of 00:00:30, at kv_usage > 90%"
    replay.toggle()
    clock.now += 5
    assert (second(replay), replay.said) == (5, "recording playing, 00:00:05 of 00:00:30")
    replay.seek(START_NS + 8 * NS_PER_S)
    assert replay.seek_among(replay.events, -1)
    assert second(replay) == 0


def test_of_a_cut_copy_it_is_said_that_its_end_is_lost(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "whole", {})
    recorder = Recorder(LIVE)
    for second in range(31):
        recorder.append("synthetic", poll(Scene(), second, START_NS + second * NS_PER_S))
        writer.write(recorder.freeze(), TARGET)
    writer.close()
    content = (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(content[: len(content) * 3 // 4])
    assert Replay(RecordingReader(tmp_path / "whole")).said == "recording paused, 00:00:30 of 00:00:30"
    replay = Replay(RecordingReader(tmp_path / "cut"))
    assert START_NS < replay.at_ns < START_NS + 30 * NS_PER_S
    assert replay.said.endswith(", cut short")
