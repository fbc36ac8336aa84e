"""Names and notes of a user: kept in llmtop's own state, and shown with what they are of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.pages.launch import launch_view
from llmtop.analysis.pages.noted import note_lines
from llmtop.cli import main
from llmtop.errors import FileError
from llmtop.model import NO_NOTES
from llmtop.notes import LONGEST, SCHEMA, NoteKind, digest_of, keep, noted
from llmtop.parsers.registry import load
from llmtop.state import state_folder
from tests.cli.test_report_by import SCHEMA as REPORT_SCHEMA
from tests.kernel_traces import LADDER, Launch, report

TRACE = report(Launch("gemm(int)", function="gemm"), Launch("step(int)", function="step"))


def file() -> Path:
    return state_folder() / "notes.json"


def written(text: str) -> Path:
    file().parent.mkdir(parents=True, exist_ok=True)
    file().write_text(text, encoding="utf-8")
    return file()


def test_without_any_a_trace_stays_the_one_it_is() -> None:
    assert noted(TRACE) is TRACE
    assert TRACE.notes is NO_NOTES
    assert not file().exists()


def test_a_name_stands_for_the_kernel_in_every_report() -> None:
    keep(NoteKind.NAME, "gemm(int)", "my gemm")
    assert kernels_of(noted(TRACE)).short_names == ("my gemm", "step")
    other = report(Launch("other(int)", function="other"), Launch("gemm(int)", function="gemm"))
    assert kernels_of(noted(other)).short_names == ("other", "my gemm")


def test_two_kernels_of_one_name_are_told_apart() -> None:
    for name in ("gemm(int)", "step(int)"):
        keep(NoteKind.NAME, name, "same")
    assert len(set(kernels_of(noted(TRACE)).short_names)) == 2


def test_notes_are_shown_with_what_they_are_of(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(b"content")
    keep(NoteKind.NAME, "gemm(int)", "my gemm")
    keep(NoteKind.KERNEL, "gemm(int)", "slow since Monday")
    keep(NoteKind.REPORT, digest_of(path), "before the change")
    trace = noted(TRACE, digest_of(path))
    assert note_lines(trace) == ("note: before the change", "note on my gemm: slow since Monday")
    assert (launch_view(trace, 0).note, launch_view(trace, 1).note) == ("slow since Monday", "")
    assert note_lines(noted(TRACE, "another")) == ("note on my gemm: slow since Monday",)


@pytest.mark.parametrize("kind", ["text", "md", "html", "json"])
def test_reports_have_names_and_notes(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = next(one for one in kernels_of(load(LADDER)).table.names if one.startswith("sgemm_naive"))
    keep(NoteKind.NAME, name, "my gemm")
    keep(NoteKind.KERNEL, name, "slow since Monday")
    keep(NoteKind.REPORT, digest_of(LADDER), "before the change")
    assert main(["report", str(LADDER), "--format", kind]) == 0
    said = capsys.readouterr().out
    assert all(text in said for text in ("my gemm", "slow since Monday", "before the change"))
    if kind == "json":
        document = json.loads(said)
        REPORT_SCHEMA.validate(document)
        (kernel,) = document["notes"]["kernels"]
        assert kernel == {"demangled": name, "name": "my gemm", "note": "slow since Monday"}
        assert "my gemm" in [one["title"] for one in document["kernels"]]


def test_a_diff_has_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    name = next(one for one in kernels_of(load(LADDER)).table.names if one.startswith("sgemm_naive"))
    keep(NoteKind.NAME, name, "my gemm")
    assert main(["diff", str(LADDER), str(LADDER), "--format", "csv"]) == 0
    assert "B,my gemm," in capsys.readouterr().out


def test_what_is_emptied_is_taken_out() -> None:
    keep(NoteKind.NAME, "gemm(int)", "my gemm")
    trace = noted(TRACE)
    keep(NoteKind.NAME, "gemm(int)", "  ")
    assert noted(trace).notes == NO_NOTES
    assert json.loads(file().read_text())["names"] == {}


def test_a_report_is_known_by_its_content_wherever_it_lies(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path, content in zip(paths, (b"x" * 5_000_000, b"x" * 5_000_000, b"x" * 5_000_001), strict=True):
        path.write_bytes(content)
    one, same, other = map(digest_of, paths)
    assert one == same != other
    assert digest_of(tmp_path) == digest_of(tmp_path / "none") == ""


def test_what_is_typed_is_cleaned_and_bounded() -> None:
    keep(NoteKind.NAME, "gemm(int)", "\x1b[31m" + "x" * 2 * LONGEST)
    name = noted(TRACE).notes.names["gemm(int)"]
    assert "\x1b" not in name
    assert len(name) == LONGEST


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"schema": "other/1"}', f'{{"schema": "{SCHEMA}", "names": {{"gemm(int)": 1}}}}', "[" * 100_000],
    ids=["cut", "list", "foreign", "number", "deep"],
)
def test_a_file_that_is_not_llmtops_is_said_and_left_as_it_is(text: str) -> None:
    path = written(text)
    trace = noted(TRACE)
    (issue,) = trace.issues
    assert issue.message.startswith("names and notes are not read: ")
    assert "it is left as it is: mend it, or move it away to begin anew" in issue.message
    assert trace.notes is NO_NOTES
    assert noted(trace).issues == (issue,), "said once"
    with pytest.raises(FileError, match="left as it is"):
        keep(NoteKind.NAME, "gemm(int)", "my gemm")
    assert path.read_text() == text


def test_what_llmtop_does_not_know_in_it_stays() -> None:
    path = written(json.dumps({"schema": SCHEMA, "names": {"a": "b"}, "later": [1]}))
    keep(NoteKind.NAME, "gemm(int)", "my gemm")
    kept = json.loads(path.read_text())
    assert (kept["names"], kept["later"]) == ({"a": "b", "gemm(int)": "my gemm"}, [1])


def test_a_change_of_another_explorer_is_kept() -> None:
    keep(NoteKind.NAME, "gemm(int)", "my gemm")
    keep(NoteKind.NAME, "step(int)", "my step")
    assert noted(TRACE).notes.names == {"gemm(int)": "my gemm", "step(int)": "my step"}


def test_a_write_that_fails_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(NoteKind.NAME, "gemm(int)", "my gemm")
    before = file().read_text()

    def full(*names: str, **folders: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        keep(NoteKind.NAME, "gemm(int)", "another")
    assert file().read_text() == before
    assert list(file().parent.iterdir()) == [file()]


def test_a_folder_that_takes_no_file_is_said() -> None:
    state_folder().parent.mkdir(parents=True, exist_ok=True)
    state_folder().write_text("a file where the folder would be")
    with pytest.raises(FileError, match="names and notes are not read"):
        keep(NoteKind.NAME, "gemm(int)", "my gemm")
