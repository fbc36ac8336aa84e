"""What is read back of a recording is what was shown, at each moment."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import ids
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series.readings import as_of
from llmtop.cli.snapshot_json import snapshot_document
from llmtop.errors import FileError
from llmtop.facts import OriginFact
from llmtop.model import (
    LIVE,
    NS_PER_S,
    RECORDING,
    Fact,
    Finding,
    Issue,
    Mark,
    MarkKind,
    Metric,
    Missing,
    Origin,
    ProcessEnd,
    Reading,
    Restart,
    Series,
    Severity,
    Stack,
    Target,
    Trace,
    Track,
    TrackId,
    TrackKind,
    Unknown,
    UnknownKind,
    What,
    XidReport,
)
from llmtop.parsers.registry import load
from llmtop.recording.copies import RecordedRows, write_copy
from llmtop.recording.layout import FORMAT
from llmtop.recording.reader import RecordingReader
from llmtop.recording.row_reader import RowReader
from llmtop.recording.row_writer import RowWriter
from llmtop.recording.writer import STACKS_NS, STRETCH_NS, RecordingWriter
from llmtop.replay import Replay
from llmtop.session import Recorder
from llmtop.text import clean
from tests.analysis.verdict_scenes import SITUATIONS
from tests.live_traces import AMPERE, NO_GPU, NOTHING, SOURCES, START_NS, TARGET, Scene, live_trace, poll, probed

ABOUT: dict[str, Fact] = {"host": "gpu-7", "utc_ns": 5}
LIVE_SCENES = {
    "one": Scene(),
    "eight": Scene(gpus=8),
    "still": Scene(is_moving=False),
    "idle": Scene(is_idle=True),
    "ampere": AMPERE,
    "no-gpu": NO_GPU,
    "nothing": NOTHING,
    "hostile": Scene(hostile="[bold]\x1b[2J<b>"),
}


def write(path: Path, traces: Iterable[Trace], target: Target | None = None) -> RecordingReader:
    writer = RecordingWriter(path, ABOUT)
    for trace in traces:
        writer.write(trace, target)
    writer.close()
    return RecordingReader(path)


def held(trace: Trace) -> dict[str, Any]:
    """All that a trace holds; of its origin what is not of the file."""
    return {
        "times": (trace.start_ns, trace.end_ns, trace.stacks_end_ns),
        "origin": trace.origin.facts,
        "tracks": list(trace.tracks.items()),
        "series": [
            (key, one.track, one.metric, one.metric.unit, one.metric.title, one.source, list(one))
            for key, one in trace.series.items()
        ],
        "marks": trace.marks,
        "issues": tuple(trace.issues),
        "missing": trace.missing,
        "sources": trace.sources.all,
        "stacks": tuple(trace.stacks),
        "past": [(window.end_ns, tuple(window.stacks)) for window in trace.past_stacks],
    }


def shown(trace: Trace, target: Target | None = TARGET) -> dict[str, Any]:
    """All that a script is told, findings included."""
    return snapshot_document(trace, target, 10.0)


def kept(trace: Trace) -> Trace:
    """The same as of a recording, for which some remedies come too late, and which knows the time of day."""
    return replace(trace, origin=replace(trace.origin, kind=RECORDING, utc_ns=0))


def recorded(scene: Scene, ticks: int) -> list[Trace]:
    """What the recorder held at each tick."""
    recorder = Recorder(LIVE)
    recorder.tell_sources(SOURCES.all)
    traces = []
    for tick in range(ticks):
        recorder.append("synthetic", poll(scene, tick, START_NS + tick * NS_PER_S))
        traces.append(recorder.freeze())
    return traces


@pytest.mark.parametrize("scene", LIVE_SCENES.values(), ids=LIVE_SCENES.keys())
def test_each_moment_of_a_scene_is_read_back(scene: Scene, tmp_path: Path) -> None:
    """Each fourth from the 40th second on; over a minute, after which all is written once more."""
    traces = recorded(replace(scene, hostile=clean(scene.hostile)), 130)[40:]
    recording = write(tmp_path / "file", traces, TARGET)
    assert recording.times == [trace.end_ns for trace in traces]
    assert recording.issues == ()
    for trace in traces[::4]:
        again = recording.trace(trace.end_ns)
        assert held(again) == held(trace)
        assert (again.origin.kind, again.origin.host, again.origin.utc_ns) == (RECORDING, "gpu-7", 5)
    for trace in traces[::30]:
        assert shown(recording.trace(trace.end_ns)) == shown(kept(trace))
        assert recording.target(trace.end_ns) == TARGET


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_situation_is_judged_as_it_was(name: str, tmp_path: Path) -> None:
    trace = SITUATIONS[name][0].trace()
    moments = [*(as_of(trace, trace.start_ns + s * NS_PER_S) for s in (20, 50, 80)), trace]
    recording = write(tmp_path / "file", moments)
    for moment in moments:
        again = recording.trace(moment.end_ns)
        assert diagnose(again) == diagnose(kept(moment))
        assert shown(again, None) == shown(kept(moment), None)


def test_the_parser_gives_the_newest_moment(tmp_path: Path) -> None:
    trace = probed(live_trace())
    write(tmp_path / "file", [trace], TARGET)
    opened = load(tmp_path / "file")
    assert held(opened) == held(trace)
    assert opened.target == TARGET
    assert opened.origin == Origin(RECORDING, str(tmp_path / "file"), utc_ns=5, host="gpu-7")


# -- what comes and goes ---------------------------------------------------------------------------------------


LOAD, HEAT = Metric("test.load", "%", title="load"), Metric("test.heat", "°C", counter=True)
TRACKS = tuple(ids.thread(7, tid) for tid in (1, 2, 3))
Event = tuple[str, int]
EVENTS = st.tuples(
    st.sampled_from(["read", "read both", "nothing", "gone", "fact", "late", "stacks", "mark", "missing", "skip"]),
    st.integers(0, 2),
)


def happen(recorder: Recorder, event: Event, t_ns: int) -> None:
    """One poll of a made-up collector."""
    what, which = event
    track = TRACKS[which]
    made = Track(track, TrackKind.THREAD, f"thread {which}", facts={"cpu": t_ns % 7, "gpu": Unknown("none", "buy one")})
    metrics = {"read": [LOAD], "read both": [LOAD, HEAT], "late": [HEAT]}.get(what, [])
    value = None if t_ns % 5 == 0 else t_ns / 7
    trace = Trace(
        LIVE,
        t_ns,
        t_ns,
        tracks={track: made} if metrics or what == "fact" else {},
        readings=tuple(Reading(track, one, t_ns, value, "a" if t_ns % 11 else "b") for one in metrics),
        marks=(Mark(t_ns, MarkKind.EXEC, track, "happened"),) * 2 if what == "mark" else (),
        missing=(Missing(What("thread"), Unknown(f"not {which}")),) if what == "missing" else (),
        issues=(Issue(Severity.INFO, "odd", "odd"),) if what == "nothing" else (),
        stacks=(Stack(("a", f"b{which}"), float(t_ns % 13), "ns", "futex", track),) if what == "stacks" else (),
        gone=(track,) if what == "gone" else (),
    )
    recorder.append("late" if what == "late" else "test", trace)


@given(st.lists(EVENTS, min_size=1, max_size=80), st.integers(1, 4))
def test_whatever_comes_and_goes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], each: int
) -> None:
    """Written after each so many polls that are seconds apart; those that are skipped are half a minute."""
    recorder, traces, t_ns = Recorder(LIVE, window_s=100), [], 1000 * NS_PER_S
    for i, event in enumerate(events):
        t_ns += 31 * NS_PER_S if event[0] == "skip" else NS_PER_S
        happen(recorder, event, t_ns)
        if i % each == 0:
            traces.append(recorder.freeze())
    recording = write(tmp_path_factory.mktemp("recording") / "file", traces)
    for trace in [*traces, *reversed(traces)]:
        told, was = held(recording.trace(trace.end_ns)), held(trace)
        assert told["times"][:2] == was["times"][:2]
        assert 0 <= was["times"][2] - told["times"][2] < STACKS_NS  # stacks of the moment are written as often
        for part in ("tracks", "marks", "issues", "missing", "origin"):
            assert told[part] == was[part], part
        assert [one[:-1] for one in told["series"]] == [one[:-1] for one in was["series"]]
        for (*_, samples), (*_, before) in zip(told["series"], was["series"], strict=True):
            assert repr(samples) == repr(before[-len(samples) :])
            assert len(before) - len(samples) <= len([t for t, _ in before if t < trace.start_ns])


@pytest.mark.parametrize("at_s", [0, 20, 59, 60, 75])
def test_what_a_thread_might_run_on_before_is_told_in_the_next_stretch_too(at_s: int, tmp_path: Path) -> None:
    """By a collector that does not say so itself: held to fewer CPUs at 20 s, to others with the next stretch."""
    traces = []
    for s in range(80):
        cpus = "0-63" if s < 20 else "0-3" if s < 60 else "4-7"
        thread = Track(TRACKS[0], TrackKind.THREAD, "worker", facts={"cpu": s % 4, "cpus": cpus})
        other = Track(TRACKS[1], TrackKind.THREAD, "other", facts={"cpu": s % 3, "cpus": "0-63"})
        traces.append(Trace(LIVE, 0, s * NS_PER_S, tracks={one.id: one for one in (thread, other)}))
    recording = write(tmp_path / "file", traces)
    facts = recording.trace(at_s * NS_PER_S).tracks[TRACKS[0]].facts
    told = {20: ("0-63", 20), 59: ("0-63", 20), 60: ("0-3", 60), 75: ("0-3", 60)}.get(at_s)
    assert (facts.get("cpus_before"), facts.get("cpus_since_ns")) == (
        (told[0], told[1] * NS_PER_S) if told else (None, None)
    )
    assert "cpus_before" not in recording.trace(at_s * NS_PER_S).tracks[TRACKS[1]].facts


VALUES = st.sampled_from([0.0, -0.0, 1.0, 1.5, 1e-310, 1e300, float("inf"), None])
ROWS = st.lists(st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=3), min_size=1, max_size=6)


def together(samples: list[tuple[int, tuple[float | None, ...]]]) -> Trace:
    """Series that are read together, one on each of `TRACKS`."""
    columns = {track: [(t_ns, row[i]) for t_ns, row in samples] for i, track in enumerate(TRACKS)}
    series = {(track, LOAD.name): Series.of(track, LOAD, "test", column) for track, column in columns.items()}
    return Trace(LIVE, samples[0][0], samples[-1][0], series=series)


@given(ROWS, st.sampled_from([1, 25]))
def test_series_that_are_read_together_may_move_or_stand_still(
    tmp_path_factory: pytest.TempPathFactory, moments: list[list[tuple[float | None, ...]]], apart_s: int
) -> None:
    """One to three rows a moment, each value with its sign and its bits; moments of one stretch, and of several."""
    samples, ends = list[tuple[int, tuple[float | None, ...]]](), []
    for moment in moments:
        t_ns = (samples[-1][0] if samples else START_NS) + apart_s * NS_PER_S
        samples += [(t_ns + i, row) for i, row in enumerate(moment)]
        ends.append(len(samples))
    traces = [together(samples[:end]) for end in ends]
    recording = write(tmp_path_factory.mktemp("recording") / "file", traces)
    for trace in traces:
        again = recording.trace(trace.end_ns)
        assert {key: repr(list(one)) for key, one in again.series.items()} == {
            key: repr(list(one)) for key, one in trace.series.items()
        }


def test_series_that_stand_still_take_room_once_a_stretch(tmp_path: Path) -> None:
    """A server has a thousand of them, and each second a few others."""
    thousand = tuple(ids.thread(8, tid) for tid in range(1000))

    def block_bytes(still: tuple[TrackId, ...]) -> list[int]:
        recorder, traces = Recorder(LIVE), []
        for second in range(20):
            t_ns = START_NS + second * NS_PER_S
            values = {**dict.fromkeys(still, 7.25), TRACKS[0]: second / 7}
            readings = tuple(Reading(track, LOAD, t_ns, value, "a") for track, value in values.items())
            recorder.append("test", Trace(LIVE, t_ns, t_ns, readings=readings))
            traces.append(recorder.freeze())
        path = tmp_path / str(len(still))
        write(path, traces)
        return [len(row.columns or b"") for row in RecordedRows(path) if row.kind in ("stretch", "moment")]

    first, *others = block_bytes(thousand)
    assert first == 8 + 8 * 1001
    assert others == [8 + 8] * 19 == block_bytes(())[1:]


def stacked(t_s: int, *weights: float) -> Trace:
    """The stacks of a moment: of several, the frames but the last are the same."""
    stacks = tuple(Stack(("run", "step", f"wait {i}"), weight, "ns", "futex") for i, weight in enumerate(weights))
    return Trace(LIVE, t_s * NS_PER_S, t_s * NS_PER_S, stacks=stacks)


def test_stacks_are_written_now_and_then_with_each_frame_once(tmp_path: Path) -> None:
    recorder, traces = Recorder(LIVE), []
    for second in range(100, 175):
        recorder.append("perf", stacked(second, second * 1.5, 2.0))
        traces.append(recorder.freeze())
    recording = write(tmp_path / "file", traces)
    for trace in traces:
        again = recording.trace(trace.end_ns)
        assert tuple(again.past_stacks[-1].stacks) == trace.past_stacks[-1].stacks
        assert trace.stacks_end_ns - again.stacks_end_ns < 10 * NS_PER_S
    again = recording.trace(traces[60].end_ns)  # where all is written once more
    assert (again.stacks_end_ns, again.stacks) == (traces[60].stacks_end_ns, traces[60].stacks)
    kinds = [row.kind for row in RowReader(tmp_path / "file").rows]
    assert (kinds.count("frame"), kinds.count("stack")) == (4, 2)


def test_stacks_of_a_collector_that_has_fallen_silent_are_over(tmp_path: Path) -> None:
    recorder = Recorder(LIVE)
    recorder.append("perf", stacked(100, 5.0))
    with_stacks = recorder.freeze()
    recorder.append("proc", Trace(LIVE, 200 * NS_PER_S, 200 * NS_PER_S))
    recording = write(tmp_path / "file", [with_stacks, recorder.freeze()])
    assert recording.trace(100 * NS_PER_S).stacks == with_stacks.stacks
    assert recording.trace(200 * NS_PER_S).stacks == ()


def test_of_what_was_awaited_the_reason_is_kept(tmp_path: Path) -> None:
    awaited = Unknown("not looked at yet", "wait a second", UnknownKind.PASSING)
    lacking = Unknown("it is not installed", "install it")
    missing = (Missing(What("thread"), awaited), Missing(What("gpu"), lacking))
    track = Track(ids.thread(1, 1), TrackKind.THREAD, "x", facts={"a": awaited, "b": lacking})
    trace = Trace(LIVE, 1, 2, tracks={track.id: track}, missing=missing)
    again = write(tmp_path / "file", [trace]).trace(2)
    told = Unknown("not looked at yet", "", UnknownKind.PASSING)
    assert [one.why for one in again.missing] == [told, lacking]
    assert again.tracks[track.id].facts == {"a": told, "b": lacking}


@pytest.mark.parametrize(
    ("before_s", "trigger", "begin_s"),
    [(1.0, "", -1.0), (2.0, "", -2.0), (2.1, "", 0.0), (1.0, "x > 1", 0.0)],
    ids=["a look", "a slow look", "kept from before", "a condition"],
)
def test_it_begins_with_its_first_look_and_not_with_what_was_kept(
    before_s: float, trigger: str, begin_s: float, tmp_path: Path
) -> None:
    writer, first_ns = RecordingWriter(tmp_path / "file", {**ABOUT, OriginFact.TRIGGER: trigger}), 100 * NS_PER_S
    for end_ns in (first_ns, first_ns + NS_PER_S):
        writer.write(Trace(LIVE, first_ns - int(before_s * NS_PER_S), end_ns), None)
    writer.close()
    reader = RecordingReader(tmp_path / "file")
    assert reader.begin_ns - first_ns == begin_s * NS_PER_S
    assert f" of 00:00:0{1 - begin_s:.0f}" in Replay(reader).said


def test_marks_keep_what_they_are_about(tmp_path: Path) -> None:
    about = (ProcessEnd(7, "killed by SIGKILL", False), ProcessEnd(8, Unknown("nobody saw it"), True), Restart(9))
    marks = [
        Mark(START_NS + i, MarkKind.PROCESS, "process:7", "ended", Severity.ERROR, "EngineCore", one)
        for i, one in enumerate((*about, XidReport(79, "fell off the bus", "reset it"), None))
    ]
    trace = Trace(LIVE, START_NS, START_NS + 9, marks=tuple(marks))
    assert write(tmp_path / "file", [trace]).trace(trace.end_ns).marks == tuple(marks)


def test_findings_are_written_as_they_stood(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "file", ABOUT)
    found = Finding("kv-bound", Severity.WARNING, "server", "KV is full", ("99 %",), "raise it")
    for t_ns in (1, 2, 3):
        writer.judge(t_ns, found.message, [found] if t_ns < 3 else [])
    writer.close()
    rows = [row for row in RowReader(tmp_path / "file").rows if row.kind == "verdict"]
    assert [row.t_ns for row in rows] == [1, 3]
    with closing(sqlite3.connect(tmp_path / "file")) as database:
        assert database.execute("SELECT t_ns, rule, message FROM finding").fetchall() == [(1, "kv-bound", "KV is full")]


def test_anybody_may_ask_by_sql(tmp_path: Path) -> None:
    write(tmp_path / "file", [live_trace()], TARGET)
    with closing(sqlite3.connect(tmp_path / "file")) as database:
        views = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'view'")]
        counts = {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in views}
        (unit,) = database.execute("SELECT unit FROM series WHERE track = 'gpu:0' AND metric = 'gpu.dram'").fetchone()
    assert unit == "%"
    assert counts.keys() == {"track", "series", "mark", "frame", "stack", "finding"}
    assert counts["track"] == len(live_trace().tracks)


# -- what is damaged, or of another version --------------------------------------------------------------------


def test_of_a_cut_copy_each_moment_that_is_left_is_as_it_was(tmp_path: Path) -> None:
    path, traces = tmp_path / "file", recorded(Scene(), 150)
    write(path, traces)
    whole = path.read_bytes()
    for tenth in range(5, 10):  # what there is of all series takes the first pages
        path.write_bytes(whole[: len(whole) * tenth // 10])
        recording = RecordingReader(path)
        assert len(recording.times) > 150 * (tenth - 4) // 6 - 15
        assert recording.issues[0].code == "recording-cut", "also where it ends between two rows"
        for t_ns in recording.times[:-3:10]:
            assert held(recording.trace(t_ns)) | {"issues": ()} == held(traces[(t_ns - START_NS) // NS_PER_S])


def test_a_whole_one_and_one_that_is_still_written_are_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, recorded(Scene(), 5))
    assert RecordingReader(path).issues == ()
    with path.open("ab") as file:
        file.write(bytes(2048))  # pages come before the first one tells of them
    assert RecordingReader(path).issues == ()


def test_damage_is_said_and_ends_with_its_stretch(tmp_path: Path) -> None:
    path, traces = tmp_path / "file", recorded(Scene(), 150)
    write(path, traces)
    rows = RowReader(path).rows
    content = bytearray(path.read_bytes())
    moment = [row for row in rows if row.kind == "moment"][20]
    content[moment.body_at + 40] ^= 255
    path.write_bytes(content)
    recording = RecordingReader(path)
    before, after = traces[15], traces[70]
    assert held(recording.trace(before.end_ns))["tracks"] == held(before)["tracks"]
    lost = recording.trace(traces[40].end_ns)
    assert lost.end_ns == traces[20].end_ns, "the newest moment before that can be read"
    samples = next(iter(recording.trace(after.end_ns).series.values()))
    assert [t - START_NS for t, _ in samples] == [s * NS_PER_S for s in (*range(21), *range(60, 71))]
    assert [issue.code for issue in recording.trace(after.end_ns).issues] == ["recording-damaged"]


def test_what_a_newer_version_has_added_is_skipped_and_said(tmp_path: Path) -> None:
    """More kinds of rows, more fields, words that this version does not have."""
    path, trace = tmp_path / "file", live_trace(ticks=5)
    write(path, [trace])
    old = RowReader(path)
    writer = RowWriter(tmp_path / "newer")
    for row in old.rows:
        data = old.data(row)
        writer.append(row.kind, row.t_ns, data.replace("{", '{"more":{"of":1},', 1) if isinstance(data, str) else data)
        writer.append("hologram", row.t_ns, b"\0\1")
    writer.append("mark", 1, '{"t_ns":1,"kind":"wonder","track":"","said":"x"}')
    writer.close()
    content = bytearray((tmp_path / "newer").read_bytes())
    content[60:64] = (FORMAT + 1).to_bytes(4, "big")
    (tmp_path / "newer").write_bytes(content)
    again = RecordingReader(tmp_path / "newer").trace(trace.end_ns)
    assert held(again) | {"issues": ()} == held(trace)
    (issue,) = again.issues
    assert issue.message == "a newer llmtop has written what this one does not know: hologram and mark"


def test_a_track_of_a_kind_that_is_not_known_costs_only_itself(tmp_path: Path) -> None:
    """As a newer version would write it."""
    trace = live_trace(ticks=5)
    newer = replace(trace.tracks[ids.HOST], kind="rack")  # type: ignore[arg-type]
    recording = write(tmp_path / "file", [replace(trace, tracks={**trace.tracks, ids.HOST: newer})])
    again = recording.trace(trace.end_ns)
    assert again.tracks == {id: track for id, track in trace.tracks.items() if id != ids.HOST}
    assert recording.issues[0].message == "a newer llmtop has written what this one does not know: track"


def test_a_server_is_read_back_whatever_its_config_says(tmp_path: Path) -> None:
    """As the config.json of each model on Hugging Face has it: true and false beside numbers and texts."""
    trace, config = live_trace(ticks=5), {"use_cache": True, "tie_word_embeddings": False, "layers": 28, "eps": 1e-5}
    target = replace(TARGET, config=config)
    recording = write(tmp_path / "file", [trace], target)
    assert recording.target(trace.end_ns) == target
    assert not recording.issues


def test_what_is_not_known_of_a_server_costs_only_itself(tmp_path: Path) -> None:
    trace = live_trace(ticks=5)
    newer = replace(TARGET, config={"layers": [28, 29]})  # type: ignore[dict-item]
    recording = write(tmp_path / "file", [trace], newer)
    assert recording.target(trace.end_ns) == replace(TARGET, config={})
    said = "a newer llmtop has written what this one does not know: the server's config"
    assert [issue.message for issue in recording.issues] == [said]


def test_a_recording_without_a_moment_is_refused(tmp_path: Path) -> None:
    RecordingWriter(tmp_path / "file", ABOUT).close()
    with pytest.raises(FileError, match="is a recording without a moment"):
        load(tmp_path / "file")


def test_all_is_written_once_more_each_minute(tmp_path: Path) -> None:
    write(tmp_path / "file", recorded(Scene(), 150))
    times = [row.t_ns - START_NS for row in RowReader(tmp_path / "file").rows if row.kind == "stretch"]
    assert times == [0, STRETCH_NS, 2 * STRETCH_NS]


def test_tracks_and_facts_that_are_none_cost_themselves_alone(tmp_path: Path) -> None:
    trace = live_trace()
    write(tmp_path / "file", [trace])
    known = list(trace.tracks)

    def strange(document: Any) -> Any:
        if "tracks" in document:
            document["tracks"][known[0]] = 5
            document["tracks"][known[1]]["facts"] = ["no", "facts"]
            document["tracks"][known[2]]["facts"] = {"good": 1.5, "bad": [1], "why": {"reason": "not known"}}
        return document

    write_copy(RecordedRows(tmp_path / "file"), tmp_path / "copy", strange)
    recording = RecordingReader(tmp_path / "copy")
    found = recording.trace(recording.times[-1])
    assert list(found.tracks) == known[1:]
    assert found.tracks[known[1]].facts == {}
    assert found.tracks[known[2]].facts == {"good": 1.5, "why": Unknown("not known")}
    for t_ns in (recording.times[-1], recording.times[0], recording.times[-1]):  # looking twice finds no more
        recording.trace(t_ns)
        assert [issue.message.rpartition(": ")[2] for issue in recording.issues] == ["fact and track"]
        assert [issue.count for issue in recording.issues] == [2]
