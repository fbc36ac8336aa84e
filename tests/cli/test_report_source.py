"""`llmtop report --by line|instruction`, in every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from llmtop.cli import main
from llmtop.model import Trace
from llmtop.parsers.registry import load
from tests.cli.by_tables import kernel_of, report_by
from tests.cli.test_report_by import SCHEMA
from tests.kernel_traces import LADDER, LLAMA, ROOT, TIMELINE, without_lines
from tests.parsers.sample_reports import content

DUMP = ROOT / "sample_traces" / "cuda-core" / "13.0" / "misaligned-store.nvcudmp.gz"
UNFUSED = LADDER.with_name("unfused.ncu-rep.xz")
SILU = "if (i < count) out[i] = in[i] / (1.0f + __expf(-in[i]));"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def command(*arguments: str | Path, code: int = 0) -> str:
        assert main(["report", *map(str, arguments)]) == code
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return command


@pytest.fixture(autouse=True)
def no_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmtop.parsers.disassembly.disassemblers", lambda: iter(()))
    monkeypatch.setattr("llmtop.parsers.ncu_rep.assembly.find_spec", lambda name: None)


@pytest.fixture(scope="module")
def silu() -> Trace:
    """One of two kernels that one could do the work of."""
    return kernel_of(UNFUSED, "silu")


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_lines_stand_in_every_format(kind: str, silu: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    said = report_by(silu, kind, "line", "silu").replace("\\", "").replace("&lt;", "<")
    assert "Lines of the source" in said
    assert "known_causes.cu" in said
    assert "long_scoreboard 75 %" in said
    assert "elementwise_mul_kernel known" not in said


@pytest.mark.parametrize("by", ["line", "instruction"])
def test_the_document_follows_the_schema(by: str, silu: Trace) -> None:
    found = json.loads(report_by(silu, "json", by, "silu"))
    SCHEMA.validate(found)
    assert found["by"]["by"] == by
    assert sum(row["share"] for row in found["by"]["rows"]) == pytest.approx(1)
    assert {row["kernel"] for row in found["by"]["rows"]} == {"silu_kernel"}
    for row in found["by"]["rows"]:
        assert sum(one["samples"] for one in row["waiting"]) == row["stalls"]


def test_what_was_not_sampled_is_unknown_in_the_document() -> None:
    llama = kernel_of(LLAMA, "catarray")
    found = json.loads(report_by(llama, "json", "instruction", "catarray"))
    SCHEMA.validate(found)
    row = found["by"]["rows"][0]
    assert row["samples"] == {"unknown": "the warps were not sampled", "remedy": "add --section SourceCounters"}
    assert row["executed"] > 0
    assert row["text"]["unknown"] == "this machine has no disassembler"


def test_csv_has_a_column_for_each_reason(run: Callable[..., str]) -> None:
    told = run(UNFUSED, "--by", "line", "--kernel", "silu", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(told)))
    assert [int(row["line"]) for row in rows] == [298, 299, 297, 296]
    assert rows[0]["text"] == SILU
    assert (rows[0]["samples"], rows[0]["long_scoreboard"], rows[0]["missing"]) == ("2893", "2120", "")
    told = run(UNFUSED, "--by", "instruction", "--kernel", "silu", "--format", "csv")
    row = next(csv.DictReader(io.StringIO(told)))
    assert (row["function"], row["text"]) == ("_Z11silu_kernelPKfPfi", "")
    assert row["missing"].startswith("text: this machine has no disassembler (pip install nvidia-cuda-nvdisasm")


@pytest.mark.parametrize("kind", ["text", "md", "html", "csv", "json"])
def test_code_without_lines_stands_in_every_format(kind: str) -> None:
    trace = load(LADDER.with_name("bank-conflicts.ncu-rep.xz"))
    without_lines(trace, "__pow", {0x3C0})
    said = report_by(trace, kind, "line").replace("\\", "")
    assert "__pow" in said
    if kind == "json":
        found = json.loads(said)
        SCHEMA.validate(found)
        rows = found["by"]["rows"]
        assert sum(row["share"] for row in rows) == pytest.approx(1)
        assert (rows[1]["function"], rows[1]["file"], rows[1]["line"]) == ("__pow", None, None)
    elif kind != "csv":
        assert "(no line)" in said


def test_what_has_no_lines_is_no_table(run: Callable[..., str]) -> None:
    command = "ncu --profile-from-start off --kernel-name nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNT"
    assert f"by instruction ({command}" in run(TIMELINE, "--by", "line", "--format", "csv", code=1)
    said = run(TIMELINE, "--by", "line", code=1)
    assert f"by instruction ({command}" in said
    assert said.count("\n") == 1
    said = run(DUMP, "--by", "line", "--format", "csv", code=1)
    assert "no samples of instructions: a core dump tells where kernels stood" in said
    assert "ncu" not in said
    assert 'no kernel has "nothing"' in run(UNFUSED, "--by", "line", "--kernel", "nothing", "--format", "csv", code=1)
    assert run(UNFUSED, "--by", "line", "--kernel", "nothing", code=1).count("\n") == 1
    assert "--kernel goes with --by" in run(UNFUSED, "--kernel", "silu", code=2)


@pytest.mark.parametrize("command", ["report", "open"])
def test_a_source_dir_that_is_no_folder_is_wrong_usage(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(UNFUSED), "--source-dir", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err
    assert f"--source-dir {tmp_path}/none: no such folder" in said
    assert said.count("\n") == 1


def test_a_folder_with_the_source_is_looked_into(run: Callable[..., str], tmp_path: Path) -> None:
    data = tmp_path / "report.ncu-rep"
    data.write_bytes(content(LADDER).replace(b"\x12/srv/llm/ladder.cu\x12", b"\x12/srv/llm/xadder.cu\x12"))
    told = " ".join(run(data, "--by", "line").split())
    assert "/srv/llm/ladder.cu: the report does not hold this file (name its folder: --source-dir DIR)" in told
    (tmp_path / "ladder.cu").write_text("\n\nfirst of the kernels\n\n\n\n\n")
    told = run(data, "--by", "line", "--source-dir", tmp_path)
    assert "first of the kernels" in told
    size = (tmp_path / "ladder.cu").stat().st_size
    assert f"ladder.cu: changed since: {size} bytes, 1766 when it was compiled" in " ".join(told.split())
