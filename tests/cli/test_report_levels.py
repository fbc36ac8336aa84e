"""`llmtop report --by roofline`, in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest

from llmtop.cli import main
from llmtop.parsers.registry import load
from tests.cli.by_tables import kernel_of, report_by
from tests.cli.test_report_by import SCHEMA
from tests.kernel_traces import LADDER, TIMELINE, Launch
from tests.kernel_traces import report as made


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_levels_stand_in_every_format(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    said = report_by(load(LADDER), kind, "roofline").replace("\\", "")
    assert "Roofline by level" in said
    assert "8.14 TFLOP/s" in said
    assert "sgemm_naive: the nearest ceiling is that of L1" in said


def test_the_document_follows_the_schema() -> None:
    found = json.loads(report_by(kernel_of(LADDER, "sgemm_naive"), "json", "roofline", "sgemm_naive"))
    SCHEMA.validate(found)
    (row,) = found["by"]["rows"]
    l1, l2, dram = row["levels"]
    assert (l1["level"], l2["level"], dram["level"]) == ("L1", "L2", "DRAM")
    assert l1["intensity"] * l1["bytes_per_s"] == pytest.approx(dram["intensity"] * dram["bytes_per_s"])
    assert l1["roof_share"] == pytest.approx(0.0598, abs=1e-4)


def test_what_was_not_counted_is_unknown_in_the_document() -> None:
    nothing = json.loads(report_by(made(Launch("scale")), "json", "roofline"))
    SCHEMA.validate(nothing)
    assert nothing["by"]["rows"][0]["levels"]["unknown"] == "no FLOP counters were collected"
    timeline = json.loads(report_by(load(TIMELINE), "json", "roofline"))
    SCHEMA.validate(timeline)
    assert timeline["by"]["unknown"] == "this capture has no counters of its kernels"


def test_csv_has_a_line_for_each_level(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(LADDER), "--by", "roofline", "--kernel", "sgemm_naive", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["level"] for row in rows] == ["L1", "L2", "DRAM"]
    assert {row["missing"] for row in rows} == {""}
