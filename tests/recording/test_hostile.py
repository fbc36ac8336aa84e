"""Recordings that somebody made to do harm: each is a sentence or a report, and nothing in it steers a terminal."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from llmtop.cli import main
from llmtop.errors import FileError
from llmtop.parsers.registry import load
from llmtop.recording.reader import RecordingReader
from llmtop.recording.row_reader import RowReader
from llmtop.recording.stretches import expanded, unpack_stretch
from llmtop.recording.writer import RecordingWriter
from llmtop.text import clean
from tests.hostile_recordings import block, made, misshapen, rows_of, steered
from tests.live_traces import TARGET, Scene, live_trace


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "plain.llmtop"
    writer = RecordingWriter(path, {"host": "gpu-7", "utc_ns": 5})
    for ticks in range(3, 8):
        writer.write(live_trace(Scene(), ticks=ticks), TARGET)
    writer.close()
    return path


def test_each_way_to_cost_much_ends(tmp_path: Path) -> None:
    for path in made(tmp_path / "made", small=True):
        with suppress(FileError):
            said = str(load(path).issues)
            assert clean(said) == said
        path.unlink()


@pytest.mark.parametrize("format", ["text", "md", "csv", "html", "json"])
def test_no_text_of_a_recording_steers_what_shows_it(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    path = steered(recording, tmp_path / "steered.llmtop")
    assert main(["report", str(path), "--format", format]) == 0
    shown = capsys.readouterr().out
    assert ("␛" in shown) is (format != "json")
    for line in shown.split("\n"):
        assert clean(line.replace("\t", "")) == line.replace("\t", "")
        assert not line.startswith("llmtop: forged")


def test_wrong_values_cost_what_they_are_of_alone(recording: Path, tmp_path: Path) -> None:
    rows = rows_of(recording)
    for seed in range(40):
        reader = RecordingReader(misshapen(rows, tmp_path / f"{seed}", random.Random(seed)))
        for t_ns in reader.times:
            assert reader.trace(t_ns).end_ns <= t_ns


def test_rows_claim_no_more_than_the_file_has(tmp_path: Path) -> None:
    (path,) = (one for one in made(tmp_path / "made", small=True) if one.name == "circle-shared")
    reader = RowReader(path)
    assert sum(row.length for row in reader.rows) <= path.stat().st_size
    assert reader.lost


def test_a_stretch_ends_before_it_takes_too_much() -> None:
    assert len(unpack_stretch([block("{}", "{}", bytes(60 << 20))], {}).told) == 1
    assert unpack_stretch([block("{}", "{}", bytes(65 << 20))], {}).told == []
    for ranges in ([(0, 10**12)], [(0, 10**12), (0, -(10**12))]):
        with pytest.raises(ValueError, match="more numbers"):
            expanded(ranges, 100)
