"""`llmtop report --by warps|mix|samples|sections`, in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest

from llmtop.cli import main
from llmtop.cli.part_table import WantedTable
from llmtop.cli.report_by import part_table
from llmtop.cli.report_pages import PAGES
from llmtop.model import Trace, Unknown
from llmtop.parsers.registry import load
from tests.cli.by_tables import kernel_of, report_by
from tests.cli.test_report_by import SCHEMA
from tests.kernel_traces import LADDER, LLAMA, TIMELINE, Launch
from tests.kernel_traces import report as made

LOADS = {"smsp__issue_active.avg.per_cycle_active": 0.25, "smsp__warps_eligible.avg.per_cycle_active": 0.5}
SAID = {"warps": "long_scoreboard", "mix": "FFMA", "samples": "read_throughput", "sections": "L1/TEX Cache Throughput"}


@pytest.fixture(scope="module")
def smem() -> Trace:
    """The ladder's kernel that uses shared memory, alone."""
    return kernel_of(LADDER, "sgemm_smem")


@pytest.mark.parametrize("by", PAGES)
@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_pages_stand_in_every_format(kind: str, by: str, smem: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    said = report_by(smem, kind, by, "sgemm_smem").replace("\\", "")
    assert PAGES[by][0] in said
    assert SAID[by] in said


@pytest.mark.parametrize("by", PAGES)
def test_the_document_follows_the_schema(by: str, smem: Trace) -> None:
    found = json.loads(report_by(smem, "json", by, "sgemm_smem"))
    SCHEMA.validate(found)
    (kernel,) = found["by"]["rows"]
    assert (kernel["kernel"], kernel["missing"]) == ("sgemm_smem", None)
    rows = [row for part in kernel["parts"] for row in part["rows"]]
    assert SAID[by] in {row["name"] for row in rows}
    assert all("samples" in row for row in rows) is (by == "samples")


@pytest.mark.parametrize("by", PAGES)
def test_what_was_not_counted_is_unknown_in_the_document(by: str) -> None:
    nothing = json.loads(report_by(made(Launch("scale")), "json", by))
    SCHEMA.validate(nothing)
    assert nothing["by"]["rows"][0]["parts"]["unknown"]
    table = part_table(load(TIMELINE), WantedTable(by))
    assert isinstance(table.found, Unknown)
    assert table.found.reason == "this capture has no counters of its kernels"


def test_csv_has_numbers_in_their_units_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(LADDER), "--by", "warps", "--kernel", "sgemm_smem", "--format", "csv"]) == 0
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert float(rows["active"]["value"]) == pytest.approx(15.77, abs=0.01)
    assert rows["active"]["metric"] == "smsp__warps_active.avg.per_cycle_active"
    assert float(rows["mio_throttle"]["share"]) == pytest.approx(0.554, abs=0.001)
    assert rows["mio_throttle"]["advice"].startswith("use fewer, wider accesses")


def test_what_the_report_does_not_have_has_its_reason_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    said = report_by(kernel_of(LLAMA, "reduce"), "text", "sections", "reduce")
    assert "3 of 3 kernels: Local Memory Spilling Request Overhead: " in said
    assert "does not count it (ncu --query-metrics lists what the GPU counts)" in said


def test_csv_says_which_half_is_missing_in_a_row_of_its_own() -> None:
    *_, last = csv.DictReader(io.StringIO(report_by(made(Launch("k", metrics=LOADS)), "csv", "warps")))
    assert (last["kernel"], last["name"], last["value"]) == ("k", "", "")
    assert last["missing"].startswith("value: ")
