"""`llmtop share`: what it takes out is told, and nothing is written that was not wanted."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmtop import ids
from llmtop.cli import main
from llmtop.model import Track, TrackKind
from llmtop.parsers.registry import load
from llmtop.recording.secrets import Secrets
from llmtop.recording.writer import RecordingWriter
from tests.live_traces import live_trace
from tests.recording.test_secrets import ANONYMOUS, HOST, PLANTED, all_of, planted, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "incident.llmtop", planted(ANONYMOUS))


def share(*arguments: str | Path) -> int:
    return main(["share", *map(str, arguments)])


def on_terminal(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    keyboard = io.StringIO(answer)
    monkeypatch.setattr(keyboard, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", keyboard)


def test_a_copy_is_written_and_what_is_taken_out_is_told(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert share(path, "-o", tmp_path / "copy", "--yes", "--anonymise") == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert re.search(rf"  host names: 1, in \d+ places\n    {re.escape(HOST)} → host-1\n", said.err)
    assert "  what llmtop does not know: " in said.err
    assert "s3cret0123456789" not in said.err, "a key is not shown, only how it begins"
    assert PLANTED not in all_of(tmp_path / "copy")
    assert load(tmp_path / "copy").origin.host == "host-1"


@pytest.mark.parametrize("anonymise", [True, False])
def test_a_page_has_no_secret_and_loads_nothing(path: Path, tmp_path: Path, anonymise: bool) -> None:
    page = tmp_path / "page.html"
    assert share(path, "-o", page, "--yes", "--html", *(["--anonymise"] if anonymise else [])) == 0
    text = page.read_text()
    assert (PLANTED in text) is (not anonymise), "names of models stay unless they are asked to go"
    assert PLANTED not in text.replace(ANONYMOUS, "")
    assert "<h1>page.html</h1>" in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_on_a_terminal_it_asks(
    path: Path,
    tmp_path: Path,
    answer: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_terminal(monkeypatch, answer)
    assert share(path, "-o", tmp_path / "copy") == code
    said = capsys.readouterr().err
    assert said.index("Taken out:") < said.index("without these? [y/N]")
    assert (tmp_path / "copy").exists() is (code == 0)


def test_without_a_terminal_it_wants_to_be_told(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert share(path, "-o", tmp_path / "copy") == 2
    assert "--yes writes without asking" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_faults_are_told_in_one_line(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    cut = tmp_path / "cut.llmtop"
    cut.write_bytes(path.read_bytes()[:2048])
    for source, output, said in (
        (path, tmp_path / "mine", "is there already, and nothing is written over"),
        (path, tmp_path / "no" / "folder", "cannot be written: there is no folder"),
        (tmp_path / "nothing", tmp_path / "copy", "nothing"),
        (tmp_path / "mine", tmp_path / "copy", "is no recording of llmtop"),
        (cut, tmp_path / "copy", "is a recording without a moment"),
    ):
        assert share(source, "-o", output, "--yes") == 1
        assert said in capsys.readouterr().err.splitlines()[-1]
        assert not (tmp_path / "copy").exists()
    assert (tmp_path / "mine").read_text() == "mine"


def test_nothing_is_written_where_a_secret_would_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if a field were forgotten: what it says is in the copy as it was."""
    source = write(tmp_path / "incident.llmtop", planted())
    without = Secrets.without

    def forgetful(self: Secrets, document: Any) -> Any:
        forgotten = {"severity": f"of {document['host']}"} if "host" in (document or ()) else {}
        return without(self, document) | forgotten if forgotten else without(self, document)

    monkeypatch.setattr(Secrets, "without", forgetful)
    for how in ([], ["--html"]):
        assert share(source, "-o", tmp_path / "copy", "--yes", *how) == 1
        (said,) = capsys.readouterr().err.splitlines()
        assert "nothing was written: 's3crethost' is taken out and would still stand in the copy (severity 'of " in said
        assert not (tmp_path / "copy").exists()


def test_words_that_stay_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = RecordingWriter(tmp_path / "file", {"llmtop": "1", "host": "gpu"})
    trace = live_trace()
    programs = (Track(ids.neighbour(9), TrackKind.NEIGHBOUR, "bash"), Track(ids.HOST, TrackKind.HOST, "gpu"))
    writer.write(replace(trace, tracks={**trace.tracks, **{one.id: one for one in programs}}))
    writer.close()
    assert share(tmp_path / "file", "-o", tmp_path / "copy", "--yes", "--anonymise") == 0
    said = capsys.readouterr().err
    for word in ("gpu → host-1", "bash → program-"):
        assert re.search(rf"    {word}\d? \(where it is a name; elsewhere it may be a word\)\n", said)


def test_nothing_is_recorded_that_has_no_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert share("1", "-o", tmp_path / "no" / "folder", "--yes", "--seconds", "1") == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith(f"there is no folder {tmp_path / 'no'}; name another")


@pytest.mark.parametrize("how", [[], ["--attach"], ["-p"]])
def test_a_process_that_runs_is_recorded_first(
    how: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pid = str(1 << 22)
    assert share(*how, pid, "-o", tmp_path / "copy", "--yes", "--seconds", "1") == 1
    assert pid in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_one_thing_is_shared(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for sources in ((), (path, "--attach", "1")):
        assert share(*sources, "-o", tmp_path / "copy", "--yes") == 2
        assert "give one thing to share" in capsys.readouterr().err
