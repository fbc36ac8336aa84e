"""A session is recorded on a thread of its own: from what it has kept on, to the last moment or the first failure."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from llmtop.analysis.rules.registry import diagnose
from llmtop.errors import FileError
from llmtop.model import LIVE, NS_PER_S, Target, Trace
from llmtop.recording.reader import RecordingReader
from llmtop.session import Recorder
from llmtop.session_recording import SessionRecording, begin_recording, new_path
from tests.live_traces import START_NS, TARGET, Scene, live_trace, poll

DEADLINE_S = 30.0


class Watching:
    """A session that has seen a minute, and sees another second each time that it is asked."""

    def __init__(self) -> None:
        self.target: Target | None = TARGET
        self.asked = 0
        self.is_asked = threading.Event()
        self._recorder = Recorder(LIVE)
        self._second = 0
        for _ in range(60):
            self._look()

    def trace(self) -> Trace:
        """One second later."""
        self._look()
        self.asked += 1
        if self.asked == 3:
            self.is_asked.set()
        return self._recorder.freeze()

    def _look(self) -> None:
        self._recorder.append("synthetic", poll(Scene(), self._second, START_NS + self._second * NS_PER_S))
        self._second += 1


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmtop.session_recording.PERIOD_S", 0.01)


def test_what_was_kept_and_what_comes_is_in_the_file(tmp_path: Path) -> None:
    watching = Watching()
    recording = begin_recording(watching, tmp_path / "file")
    assert watching.is_asked.wait(DEADLINE_S)
    recording.stop()
    assert (recording.is_running, recording.failure, recording.size) == (False, "", (tmp_path / "file").stat().st_size)
    written = RecordingReader(tmp_path / "file")
    assert len(written.times) == watching.asked
    newest = written.trace(written.times[-1])
    assert newest.start_ns == START_NS
    assert {len(one) for one in newest.series.values()} == {60 + watching.asked}
    assert written.target(written.times[-1]) == TARGET
    assert str(written.about["host"])


def test_a_full_disk_ends_the_recording_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, path = os.pwrite, tmp_path / "file"
    is_full = threading.Event()

    def pwrite(file: int, data: bytes, at: int) -> int:
        if is_full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    watching = Watching()
    recording = begin_recording(watching, path)
    assert watching.is_asked.wait(DEADLINE_S)
    is_full.set()
    recording._thread.join(DEADLINE_S)
    assert not recording.is_running
    assert recording.failure == f"the recording has stopped: No space left on device; {path} has all up to then"
    assert len(RecordingReader(path).times) >= 2
    recording.stop()


def test_that_the_disk_was_full_stands_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there already takes no more room: the last page says why nothing follows."""
    real, path, room = os.pwrite, tmp_path / "file", [1 << 30]

    def pwrite(file: int, data: bytes, at: int) -> int:
        if at >= room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    watching = Watching()
    recording = begin_recording(watching, path)
    assert watching.is_asked.wait(DEADLINE_S)
    room[0] = path.stat().st_size
    recording._thread.join(DEADLINE_S)
    said = "the recording stopped before its end: No space left on device; what came later is lost"
    assert [issue.message for issue in RecordingReader(path).issues] == [said]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def _remove(path: Path) -> None:
    path.unlink()


def _move(path: Path) -> None:
    path.rename(path.with_name("moved"))


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.rename(path)


def _cut(path: Path) -> None:
    os.truncate(path, 0)


def _write_over(path: Path) -> None:
    path.write_bytes(b"something else".ljust(1 << 20))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_remove, "the file was removed or moved away"),
        (_move, "the file was removed or moved away"),
        (_replace, "another file has taken its place"),
        (_cut, "another program cut the file or wrote into it"),
        (_write_over, "another program cut the file or wrote into it"),
    ],
)
@pytest.mark.parametrize("when", ["while it is written", "as it ends"])
def test_no_success_is_told_of_a_file_that_is_not_there(
    tmp_path: Path, change: Callable[[Path], None], why: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmtop.session_recording.PERIOD_S", DEADLINE_S if when == "as it ends" else 0.01)
    path = tmp_path / "file"
    recording = begin_recording(Watching(), path)
    change(path)
    if when == "as it ends":
        recording.end()
    recording._thread.join(DEADLINE_S)
    assert not recording.is_running
    assert recording.failure == f"the recording has stopped: {why}; {path} does not have it: record anew"
    assert recording.end_said == (recording.failure, "error")


def test_the_disk_takes_what_was_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, real = threading.Event(), os.fdatasync

    def fdatasync(file: int) -> None:
        real(file)
        synced.set()

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr("llmtop.session_recording.SYNCED_S", 0.0)
    recording = begin_recording(Watching(), tmp_path / "file")
    assert synced.wait(DEADLINE_S)
    assert recording.is_running
    recording.stop()


def test_a_fault_of_its_own_is_said(tmp_path: Path) -> None:
    class Failing(Watching):
        def trace(self) -> Trace:
            raise RuntimeError("no trace")

    recording = begin_recording(Failing(), tmp_path / "file")
    recording._thread.join(DEADLINE_S)
    assert recording.failure == "the recording has failed: RuntimeError: no trace; please report this"


def test_no_file_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match=r"file is there already, and a recording never writes over a file"):
        begin_recording(Watching(), tmp_path / "file")
    with pytest.raises(FileError, match=r"nowhere/file cannot be written: No such file or directory; name another"):
        begin_recording(Watching(), tmp_path / "nowhere" / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"HOME": "home"}, "home/.local/state/llmtop/recordings"),
        ({"HOME": "home", "XDG_STATE_HOME": "state"}, "state/llmtop/recordings"),
    ],
)
def test_a_recording_without_a_name_goes_where_state_is_kept(
    variables: dict[str, str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    first = new_path()
    assert (first.parent, first.suffix) == (tmp_path / folder, ".llmtop")
    for _ in range(3):
        new_path().touch()
    assert len(list(first.parent.iterdir())) == 3


def test_each_judgement_is_of_the_moment_written(tmp_path: Path) -> None:
    recording = SessionRecording(Watching(), tmp_path / "file")
    recording._write(is_last=True)
    recording._writer.close()
    rows = RecordingReader(tmp_path / "file")._rows
    (verdict,) = [row for row in rows.rows if row.kind == "verdict"]
    assert diagnose(live_trace(ticks=61)).verdict in str(rows.data(verdict))
