"""A trigger's recording: what was before it and after it is kept, within bounds, whatever happens meanwhile."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.pages.triggers import trigger
from llmtop.model import LIVE, NS_PER_S, Reading, Target, Trace, Track, TrackKind
from llmtop.recording.reader import RecordingReader
from llmtop.session import Recorder
from llmtop.session_triggers import IncidentRecorder, KeptIncidents, incidents_in
from tests.live_traces import TARGET

HOST = Track(ids.HOST, TrackKind.HOST, "host")


class Loaded:
    """A session in which the load is told, second by second."""

    def __init__(self) -> None:
        self.target: Target | None = TARGET
        self._recorder = Recorder(LIVE)
        self._second = 0

    def tell(self, load: float) -> None:
        t_ns = (1000 + self._second) * NS_PER_S
        self._second += 1
        readings = (Reading(HOST.id, v.HOST_LOAD, t_ns, load, "test"),)
        self._recorder.append("test", Trace(LIVE, t_ns, t_ns, {HOST.id: HOST}, readings))

    def trace(self) -> Trace:
        return self._recorder.freeze()


class Scene:
    """The loads of some seconds, looked at with one trigger, or more."""

    def __init__(self, folder: Path, kept: KeptIncidents | None = None, *others: str) -> None:
        self.session, self.said = Loaded(), list[str]()
        self.incidents = IncidentRecorder(
            self.session,
            [*map(trigger, ("host.load > 4 for 2s", *others))],
            folder,
            after_s=3,
            kept=kept or KeptIncidents(),
            tell=self.said.append,
        )

    def see(self, *loads: float) -> list[Path]:
        found = list[Path]()
        for load in loads:
            self.session.tell(load)
            found += self.incidents.look()
        return found


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmtop.session_recording.PERIOD_S", 0.01)


def test_what_was_before_and_after_is_in_the_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (path,) = scene.see(*[1.0] * 20, 5.0, 5.0, 5.0, 5.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    recording = RecordingReader(path)
    newest = recording.trace(recording.times[-1])
    load = newest.series[ids.HOST, v.HOST_LOAD.name]
    assert list(load.values) == [1.0] * 20 + [5.0] * 4 + [1.0] * 3
    assert path.parent == tmp_path
    assert path.name.startswith("incident-")
    assert path.name.endswith("-host.load.llmtop")
    assert newest.origin.facts["trigger"] == "host.load > 4 for 2s"
    assert scene.said[0] == f"host.load > 4 for 2s: recording to {path}"
    assert scene.said[1].startswith("recorded 00:00:0")


def test_that_nothing_held_is_said_and_what_nobody_could_judge(tmp_path: Path) -> None:
    scene = Scene(tmp_path, None, "kv_usage > 90%")
    assert scene.see(1.0, 1.0, 1.0) == []
    assert list(scene.incidents.said_of_silence()) == [
        "no condition held: nothing was written",
        "kv_usage > 90%: kv_usage was not known in all the time: llmtop snapshot says why",
    ]


def test_an_incident_that_goes_on_is_recorded_once_and_not_for_ever(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert len(scene.see(*[9.0] * 1500)) == 1
    assert scene.see(1.0) == []
    assert len(scene.see(9.0, 9.0, 9.0, 1.0, 1.0, 1.0, 1.0)) == 1


def test_the_oldest_make_room_and_nothing_else_does(tmp_path: Path) -> None:
    others = ["20260101-000000.llmtop", "incident-mine.llmtop", "incident-20260101-000000-a.txt", "notes"]
    for name in others:
        (tmp_path / name).write_text("mine")
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / "incident-20260101-000000-link.llmtop").symlink_to(outside)
    for day in range(1, 6):
        old = tmp_path / f"incident-2026010{day}-000000-kv_usage.llmtop"
        old.write_bytes(b"x" * 10)
        os.utime(old, (old.stat().st_mtime - 100 * (6 - day),) * 2)
    scene = Scene(tmp_path, KeptIncidents(count=3))
    scene.see(9.0, 9.0, 9.0, 1.0, 1.0, 1.0, 1.0)
    names = [path.name for path in sorted(incidents_in(tmp_path))]
    assert names[:2] == ["incident-20260104-000000-kv_usage.llmtop", "incident-20260105-000000-kv_usage.llmtop"]
    assert len(names) == 3
    assert all((tmp_path / name).exists() for name in others)
    assert outside.read_text() == "mine"
    assert sum("is removed" in said for said in scene.said) == 3


@pytest.mark.parametrize("kept", [KeptIncidents(size=25), KeptIncidents(age_s=250.0)])
def test_size_and_age_are_bounds_too(tmp_path: Path, kept: KeptIncidents) -> None:
    for day in range(1, 6):
        old = tmp_path / f"incident-2026010{day}-000000-kv_usage.llmtop"
        old.write_bytes(b"x" * 10)
        os.utime(old, (old.stat().st_mtime - 100 * (6 - day),) * 2)
    Scene(tmp_path, kept).see(9.0, 9.0, 9.0)
    assert [path.name[:17] for path in sorted(incidents_in(tmp_path))][:2] == ["incident-20260104", "incident-20260105"]
    assert len(incidents_in(tmp_path)) == 3


def test_a_full_disk_costs_this_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pwrite(file: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    scene = Scene(tmp_path)
    monkeypatch.setattr(os, "pwrite", pwrite)
    assert scene.see(9.0, 9.0, 9.0, 9.0) == []
    assert "No space left on device" in scene.said[-1]
    assert scene.said[-1].endswith("it is tried again in a minute")
    scene.see(*[9.0] * 30)
    assert len(scene.said) == 1
    monkeypatch.undo()
    assert len(scene.see(*[9.0] * 40, 1.0, 1.0, 1.0, 1.0)) == 1


def test_what_is_written_when_somebody_ends_it_is_complete(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.see(1.0, 9.0, 9.0, 9.0) == []
    (path,) = scene.incidents.end()
    assert list(scene.incidents.end()) == []
    recording = RecordingReader(path)
    assert len(recording.trace(recording.times[-1]).series[ids.HOST, v.HOST_LOAD.name]) == 4
