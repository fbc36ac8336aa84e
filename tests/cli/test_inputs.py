"""What paths of a command line stand for: standard input, patterns, archives, folders."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from llmtop.cli import main
from llmtop.cli.inputs import opened_inputs
from llmtop.errors import FileError, UsageError

FOLDED = b"python3;main;step 12\npython3;main 30\n"


def test_a_report_comes_through_a_pipe() -> None:
    command = [sys.executable, "-m", "llmtop", "report", "-"]
    printed = subprocess.run(command, input=FOLDED, capture_output=True, check=True).stdout.decode()
    assert printed.splitlines()[:2] == ["standard input", "  folded-stacks"]


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(buffer))
    return buffer


def test_standard_input_is_a_file_for_as_long_as_it_is_read(piped: io.BytesIO) -> None:
    piped.write(FOLDED)
    piped.seek(0)
    with opened_inputs([Path("-")]) as (path,):
        assert path.read_bytes() == FOLDED
    assert not path.exists()


def test_an_empty_pipe_says_so(piped: io.BytesIO) -> None:
    with (
        pytest.raises(FileError, match="standard input is empty: the command before the pipe wrote nothing"),
        opened_inputs([Path("-")]),
    ):
        pytest.fail("was taken")


def test_the_keyboard_is_no_report(monkeypatch: pytest.MonkeyPatch, piped: io.BytesIO) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(UsageError, match="pipe a report into it"), opened_inputs([Path("-")]):
        pytest.fail("was taken")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("none",), ["none cannot be read: No such file or directory"]),
        (("readme", "none"), ["readme is of no format that llmtop knows", "none cannot be read"]),
        (("empty",), ["empty is empty: the capture wrote nothing"]),
        (("folder",), ["folder is a folder without reports"]),
        (("stacks",), ["standard input is not a terminal"]),
        (("stacks", "none"), ["standard input is not a terminal"]),
        (("packed.gz",), ["standard input is not a terminal"]),
    ],
)
def test_without_a_terminal_what_is_wrong_with_the_files_comes_first(
    names: Sequence[str], said: Sequence[str], tmp_path: Path
) -> None:
    (tmp_path / "readme").write_text("hello")
    (tmp_path / "stacks").write_bytes(FOLDED)
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"hello"))
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    command = [sys.executable, "-m", "llmtop", "open", *names]
    done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True)
    assert done.returncode == 1
    for line, one in zip(done.stderr.splitlines(), said, strict=True):
        assert line.startswith(f"llmtop: {one}")


def test_patterns_are_what_they_match(tmp_path: Path) -> None:
    for name in ("rank1.x", "rank0.x", "[odd].x"):
        (tmp_path / name).write_bytes(FOLDED)
    with opened_inputs([tmp_path / "rank*.x", tmp_path / "[odd].x", tmp_path / "none*"]) as paths:
        assert paths == [tmp_path / name for name in ("rank0.x", "rank1.x", "[odd].x", "none*")]


def test_an_archive_of_several_reports_is_these(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", FOLDED)
        archive.writestr("b", FOLDED)
    with opened_inputs([path]) as paths:
        assert paths == [path / "a", path / "b"]


def test_a_folder_without_timelines_has_its_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "README").write_text("hello")
    (tmp_path / "folder" / "stacks").write_bytes(FOLDED)
    monkeypatch.chdir(tmp_path)
    assert main(["report", "folder"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["folder/stacks", "  folded-stacks"]
