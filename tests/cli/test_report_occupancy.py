"""`llmtop report --by occupancy`, in every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from llmtop.cli import main
from llmtop.parsers.registry import load
from tests.cli.by_tables import report_by
from tests.cli.test_report_by import SCHEMA
from tests.kernel_traces import LADDER, TIMELINE

REGISTERS = LADDER.with_name("too-many-registers.ncu-rep.xz")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def command(*arguments: str | Path, code: int = 0) -> str:
        assert main(["report", *map(str, arguments)]) == code
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return command


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_occupancies_stand_in_every_format(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    said = " ".join(report_by(load(LADDER), kind, "occupancy").replace("\\", "").split())
    assert "Occupancy" in said
    assert "sgemm_vectorized: 40 → 32 registers" not in said
    assert "40 → 32 registers a thread: 2 blocks an SM in place of 1, occupancy 100 % in place of 50 %" in said
    assert "NVIDIA's occupancy calculator" in said.replace("&#x27;", "'")


def test_the_document_follows_the_schema() -> None:
    found = json.loads(report_by(load(REGISTERS), "json", "occupancy"))
    SCHEMA.validate(found)
    (row,) = found["by"]["rows"]
    told = row["occupancy"]
    assert (row["kernel"], row["launch"]) == ("too_many_registers", 0)
    assert (told["possible"], told["blocks_of_sm"], told["limited_by"]) == (0.125, 2, ["registers"])
    assert told["changes"][0]["values"] == {"registers": 168}
    assert told["curves"]["registers"][-2:] == [[136, 0.1875], [176, 0.125]]
    assert told["curves"]["shared_bytes"] == [[0, 0.125], [116736, 0.0625]]


def test_an_occupancy_that_is_not_known_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = report_by(load(LADDER.with_name("few-metrics.ncu-rep.xz")), "text", "occupancy")
    assert "copy_at_roof: achieved: occupancy not collected (add --section Occupancy)" in said


def test_what_is_not_known_is_unknown_in_the_document() -> None:
    few = json.loads(report_by(load(LADDER.with_name("few-metrics.ncu-rep.xz")), "json", "occupancy"))
    SCHEMA.validate(few)
    assert few["by"]["rows"][0]["occupancy"]["achieved"]["unknown"] == "occupancy not collected"
    timeline = json.loads(report_by(load(TIMELINE), "json", "occupancy"))
    SCHEMA.validate(timeline)
    assert timeline["by"]["unknown"] == "this capture has no counters of its kernels"


def test_csv_has_a_line_for_each_kernel(run: Callable[..., str]) -> None:
    rows = list(csv.DictReader(io.StringIO(run(LADDER, "--by", "occupancy", "--format", "csv"))))
    assert len(rows) == 5
    told = run(LADDER, "--by", "occupancy", "--kernel", "naive", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(told))
    assert (row["kernel"], row["possible (%)"], row["blocks"], row["threads"]) == ("sgemm_naive", "100.0", "2", "1024")
    assert row["what helps"] == "all warps of an SM have room"


def test_a_wrong_name_and_a_timeline_end_in_a_line(run: Callable[..., str]) -> None:
    assert 'no kernel has "nothing" in its name' in run(LADDER, "--by", "occupancy", "--kernel", "nothing", code=1)
    assert "no counters of its kernels (ncu " in run(TIMELINE, "--by", "occupancy", "--format", "csv", code=1)
    assert "--kernel goes with --by line" in run(LADDER, "--by", "step", "--kernel", "x", code=2)
