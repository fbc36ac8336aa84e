"""Sources that are looked for in folders: whose paths they are, how long they may be, and what is doubted."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.model import SourceText, Unknown
from llmtop.parsers import source_files
from llmtop.parsers.source_files import found_source

TEN_BYTES = "int a = 1;"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.cu").write_text(TEN_BYTES)
    return tmp_path


@pytest.mark.parametrize("file", [r"C:\build\src\a.cu", r"..\src\a.cu", "/build/src/a.cu", "./src/../src/a.cu"])
def test_paths_of_any_system_are_looked_for_by_their_end(folder: Path, file: str) -> None:
    found = found_source(file, [folder], 10)
    assert isinstance(found, SourceText)
    assert (found.lines, found.found, found.doubt) == ((TEN_BYTES,), str(folder / "src" / "a.cu"), "")


@pytest.mark.parametrize(
    ("bytes_then", "doubt"), [(0, ""), (10, ""), (9, "changed since: 10 bytes, 9 when it was compiled")]
)
def test_a_file_of_another_length_is_doubted_where_its_length_was_told(
    folder: Path, bytes_then: int, doubt: str
) -> None:
    found = found_source("src/a.cu", [folder], bytes_then)
    assert isinstance(found, SourceText)
    assert found.doubt == doubt


def test_what_no_folder_has_is_told_with_all_that_were_looked_into(folder: Path) -> None:
    found = found_source("/build/b.cu", [folder / "src", folder], 0)
    assert found == Unknown(f"no folder of --source-dir has b.cu: {folder / 'src'}, {folder}")


def test_the_longest_file_that_is_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MAX_SOURCE", 10)
    assert isinstance(found_source("src/a.cu", [folder], 0), SourceText)
    monkeypatch.setattr(source_files, "MAX_SOURCE", 9)
    assert found_source("src/a.cu", [folder], 0) == Unknown(f"{folder / 'src' / 'a.cu'} is too long for a source file")
