"""`llmtop report --where`."""

from __future__ import annotations

import csv
import io
import json

import pytest

from llmtop.cli import main
from tests.kernel_traces import LADDER, TIMELINE


def test_all_formats_have_the_chosen_kernels_alone(capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--where", "duration > 1ms and roof > 5"]
    assert main(["report", str(LADDER), *where, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["name"] for row in rows] == ["sgemm_coalesced", "sgemm_smem"]
    assert main(["report", str(LADDER), *where, "--format", "json", "--by", "warps"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["kernel"] for row in found["by"]["rows"]] == ["sgemm_coalesced", "sgemm_smem"]
    assert main(["report", str(LADDER), *where]) == 0
    assert "  only kernels for which duration > 1ms and roof > 5\n" in capsys.readouterr().out


def test_a_timeline_without_the_others_has_no_time_between_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(TIMELINE), "--where", "mean > 100us", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {kernel["calls"] for kernel in found["kernels"]} == {9, 12, 4}
    assert found["timeline"] == {"unknown": "only kernels for which mean > 100us are looked at", "remedy": WHOLE}


WHOLE = "the report without --where has it"


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        ("duration >", 2, '--where duration >: the condition ends where a value after ">" is expected'),
        ("dramm% > 1", 1, "no column and no metric is called dramm%; the nearest is dram% (docs/filters.md)"),
        ("duration > 1", 2, "duration needs a unit, as in duration > 1us (docs/filters.md)"),
        ("duration > 1 and dramm% > 1", 1, "no column and no metric is called dramm%"),
        ("dram% > 2s", 2, "--where dram% > 2s: dram% is no time, as 2s is"),
        ("name > f", 2, "name is a text, and no text is > another"),
        ("dram% > 200", 1, "there is no kernel for which dram% > 200"),
    ],
)
def test_errors_are_one_line(where: str, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(LADDER), "--where", where]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
