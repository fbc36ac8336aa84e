"""`llmtop report --by traffic`, in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest

from llmtop.cli import main
from llmtop.parsers.registry import load
from tests.cli.by_tables import kernel_of, report_by
from tests.cli.test_report_by import SCHEMA
from tests.kernel_traces import LADDER, LLAMA, TIMELINE, Launch
from tests.kernel_traces import report as made

COPY = LADDER.with_name("copy-at-roof.ncu-rep.xz")


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_traffic_stands_in_every_format(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    said = report_by(load(COPY), kind, "traffic").replace("\\", "")
    assert "Memory chart" in said
    assert "1008 MiB" in said
    assert "MemoryWorkloadAnalysis_Chart" in said


def test_the_document_follows_the_schema() -> None:
    found = json.loads(report_by(load(COPY), "json", "traffic"))
    SCHEMA.validate(found)
    (row,) = found["by"]["rows"]
    units = {one["unit"]: one for one in row["units"]}
    assert units["global"]["read_bytes"] == units["L2"]["written_bytes"] == 2**30
    assert (units["shared"]["reads"], units["shared"]["read_bytes"], units["shared"]["of"]) == (0, None, "wavefronts")
    assert units["local"]["hits_percent"] is None
    assert units["L1/TEX"]["busy_percent"] == pytest.approx(19.3, abs=0.1)


def test_what_was_not_counted_is_unknown_in_the_document() -> None:
    found = json.loads(report_by(kernel_of(LLAMA, "nvjet"), "json", "traffic", "nvjet"))
    SCHEMA.validate(found)
    units = {one["unit"]: one for one in found["by"]["rows"][0]["units"]}
    assert units["global"]["reads"]["unknown"] == "traffic between units not collected"
    nothing = json.loads(report_by(made(Launch("scale")), "json", "traffic"))
    SCHEMA.validate(nothing)
    assert nothing["by"]["rows"][0]["units"]["remedy"].startswith("ncu ")
    timeline = json.loads(report_by(load(TIMELINE), "json", "traffic"))
    SCHEMA.validate(timeline)
    assert timeline["by"]["unknown"] == "this capture has no counters of its kernels"


def test_csv_has_a_line_for_each_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(COPY), "--by", "traffic", "--kernel", "copy", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["unit"] for row in rows[-3:]] == ["device", "system", "peer"]
    assert float(rows[0]["read (bytes)"]) == 2**30
    assert rows[0]["missing"] == ""
