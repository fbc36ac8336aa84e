"""Where commands write: `-` is standard output where text is written, and never the name of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.cli import main
from llmtop.recording.writer import RecordingWriter
from tests.live_traces import TARGET, Scene, live_trace


@pytest.fixture(autouse=True)
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    writer = RecordingWriter(Path("a.llmtop"), {"host": "gpu-7", "utc_ns": 5})
    writer.write(live_trace(Scene()), TARGET)
    writer.close()
    return "a.llmtop"


@pytest.mark.parametrize("command", ["report a.llmtop", "diff a.llmtop a.llmtop"])
def test_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main(command.split()) == 0
    plain = capsys.readouterr().out
    assert main([*command.split(), "-o", "-"]) == 0
    assert capsys.readouterr().out == plain
    assert not Path("-").exists()


@pytest.mark.parametrize("command", ["share a.llmtop --yes", "record --duration 1"])
def test_a_file_that_is_no_stream_is_not_called_a_dash(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*command.split(), "-o", "-"])
    assert "'-': this goes into a file alone" in capsys.readouterr().err
    assert not Path("-").exists()


def test_a_file_may_be_called_a_dash_all_the_same(recording: str) -> None:
    assert main(["share", recording, "--yes", "-o", "./-"]) == 0
    assert Path("-").read_bytes()
