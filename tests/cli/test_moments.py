"""`--at` and `--range` of a recording that is longer than a report looks back, and of one that a condition began."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmtop.cli import main
from llmtop.facts import OriginFact
from llmtop.model import LIVE, NS_PER_S, Fact
from llmtop.recording.writer import RecordingWriter
from llmtop.session import Recorder
from tests.live_traces import START_NS, TARGET, Scene, poll

SECONDS, KEPT = 150, 60
ABOUT: dict[str, Fact] = {"host": "gpu-7", "utc_ns": 0}
TRIGGER = "kv_usage > 90% for 10s"


def recorded(path: Path, about: dict[str, Fact], seconds: int = SECONDS) -> Path:
    """A server for so long, of which a minute was kept at each moment."""
    writer, recorder = RecordingWriter(path, about), Recorder(LIVE, KEPT)
    for second in range(seconds + 1):
        recorder.append("synthetic", poll(Scene(), second, START_NS + second * NS_PER_S))
        writer.write(recorder.freeze(), TARGET)
    writer.close()
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("recording") / "long.llmtop", ABOUT)


def told(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> str:
    assert main(["report", str(path), *arguments]) == 0
    return capsys.readouterr().out


def observed(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(capsys, path, "--format", "json", *arguments))["source"]["observed"]
    return found


@pytest.mark.parametrize(
    ("arguments", "since", "until"),
    [
        ([], 90, 150),
        (["--at", "2:00"], 60, 120),
        (["--at=-0:50"], 40, 100),
        (["--at", "20"], 0, 20),
        (["--range", "70s:90s"], 70, 90),
        (["--range", "10s:90s"], 30, 90),  # a minute was kept
        (["--range", "140s:"], 140, 150),
        (["--range", ":20s"], 0, 20),
    ],
)
def test_a_report_is_of_the_moment_that_is_asked_for(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], since: int, until: int
) -> None:
    of = observed(capsys, path, *arguments)
    assert of["start_utc_ns"] == START_NS + since * NS_PER_S
    assert of["end_utc_ns"] == START_NS + until * NS_PER_S
    assert (of["moment_s"], of["recorded_s"]) == (until, SECONDS)


def test_numbers_are_of_that_time_alone(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, path, "--at", "20", "--format", "csv") != told(capsys, path, "--at", "40", "--format", "csv")
    cut = told(capsys, path, "--range", "70s:90s", "--format", "csv")
    assert cut != told(capsys, path, "--at", "90", "--format", "csv")


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_what_a_report_leaves_out_of_a_recording_is_said(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    end = "at the end of 00:02:30 that were recorded (--at TIME: another moment)"
    earlier = "at 00:02:00 of 00:02:30 that were recorded (--at TIME: another moment)"
    assert end in told(capsys, path, "--format", kind).replace("\\", "")
    assert earlier in told(capsys, path, "--format", kind, "--at", "2:00").replace("\\", "")
    whole = recorded(tmp_path / "whole.llmtop", ABOUT, KEPT // 2)
    assert "that were recorded" not in told(capsys, whole, "--format", kind)


def test_an_incident_says_when_its_condition_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    incident = recorded(tmp_path / "incident.llmtop", {**ABOUT, OriginFact.TRIGGER: TRIGGER}, KEPT // 2)
    assert f"recorded by: {TRIGGER}, which held at the first moment (--at 0)" in told(capsys, incident)
    assert f"recorded by: {TRIGGER}\n" in told(capsys, incident, "--at", "0")
    assert observed(capsys, incident, "--at", "0")["moment_s"] == 0


def test_a_page_to_share_is_of_a_moment_too(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    share = ["share", str(path), "-o", str(page), "--yes", "--at", "2:00"]
    assert main(share) == 2
    assert "--at takes the moment of a page: it goes with --html" in capsys.readouterr().err
    assert main([*share, "--html"]) == 0
    assert "at 00:02:00 of 00:02:30 that were recorded" in page.read_text()
    assert main(["share", str(path), "-o", str(tmp_path / "none"), "--yes", "--html", "--at", "5:00"]) == 2
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--at", "soon"], 2, "--at soon: a moment is 90, 2:00 or 1:02:00 from the beginning, -1:00 before the end"),
        (["--at", "5:00"], 2, "long.llmtop, which is 00:02:30 long"),
        (["--at", "5", "--range", "1s:2s"], 2, "--at takes a moment of one recording, without --range"),
        (["--range", "200s:"], 1, "nothing is left of that range: the recording is 00:02:30 long"),
        (["--range", "3:4"], 2, "of a recording a range is from one moment to another, as in 20s:28s"),
        (["--range", "decode"], 2, "of a recording a range is from one moment to another, as in 20s:28s"),
    ],
)
def test_what_is_no_moment_of_it_is_told_in_one_line(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    assert main(["report", str(path), *arguments]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_only_a_recording_has_moments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stacks = tmp_path / "stacks.folded"
    stacks.write_text("main;loop 3\n")
    assert main(["report", str(stacks), "--at", "1:00"]) == 2
    assert f"--at takes a moment of a recording, and {stacks} is none" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "none"), "--at", "1:00"]) == 1
    assert "No such file" in capsys.readouterr().err
