"""Reports in archives: one and several, by name, and archives that are damaged, hostile or something else."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop.errors import FileError
from llmtop.parsers import archives, compressed
from llmtop.parsers.registry import load, reports_within

FOLDED = b"python3;main;step 12\npython3;main 30\n"
OTHER = b"python3;wait 5\n"


def zipped(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tarred(mode: str) -> Callable[[Path, Mapping[str, bytes]], Path]:
    def write(path: Path, files: Mapping[str, bytes]) -> Path:
        with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return path

    return write


WRITERS = {"zip": zipped, "tar": tarred("w"), "tar.gz": tarred("w:gz"), "tar.xz": tarred("w:xz")}
each_kind = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


def refusal(path: Path) -> str:
    with pytest.raises(FileError) as caught:
        load(path)
    said = str(caught.value)
    assert "\n" not in said
    return said


@each_kind
def test_the_only_report_of_an_archive_is_what_it_is(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(tmp_path / "run", {"run/README": b"hello", "run/": b"", "run/stacks": FOLDED})
    trace = load(path)
    assert trace.origin.path == str(path)
    assert sum(stack.weight for stack in trace.stacks) == 42
    assert [one.name for one in tmp_path.iterdir()] == ["run"], "nothing is written beside it"


@each_kind
def test_of_several_each_has_a_name(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(tmp_path / "run", {"a/x": FOLDED, "b/x": OTHER, "c.txt": b"none"})
    assert refusal(path) == f"{path} has 2 reports: name one, as in {path}/a/x"
    assert reports_within(path) == [path / "a" / "x", path / "b" / "x"]
    trace = load(path / "b" / "x")
    assert trace.origin.path == f"{path}/b/x"
    assert sum(stack.weight for stack in trace.stacks) == 5


def test_what_is_not_there_says_what_is(tmp_path: Path) -> None:
    path = zipped(tmp_path / "run.zip", {str(i): FOLDED for i in range(7)})
    assert refusal(path / "nope") == f"{path} has no file nope; it has 0, 1, 2, 3, 4 ..."
    plain = tmp_path / "plain"
    plain.write_bytes(FOLDED)
    assert refusal(plain / "x") == f"{plain} is a file and no archive: nothing is in it"
    assert reports_within(plain) == []


def test_an_archive_without_a_report_says_so(tmp_path: Path) -> None:
    path = zipped(tmp_path / "run.zip", {"a.txt": b"hello", ".hidden": FOLDED})
    assert refusal(path).startswith(f"{path} is an archive without a report; llmtop opens ")


@pytest.mark.parametrize("name", ["../../escaped", "/escaped", "a/../../escaped"])
@each_kind
def test_names_that_lead_out_of_an_archive_lead_nowhere(write: Callable[..., Path], name: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    assert sum(stack.weight for stack in load(write(inside / "run", {name: FOLDED})).stacks) == 42
    assert not list(tmp_path.rglob("escaped"))


def test_links_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert "is an archive without a report" in refusal(path)


@each_kind
def test_a_bomb_ends_in_a_sentence(write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "RATIO_FROM", 1 << 16)
    monkeypatch.setattr(compressed, "MAX_RATIO", 20)
    monkeypatch.setattr(compressed, "MAX_UNPACKED", 3 << 20)
    path = write(tmp_path / "run", {"stacks": b"a;b 1\n" * 1_000_000})
    assert "which no report does; if you trust it, unpack it yourself and open the result" in refusal(path)


def test_too_many_files_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_FILES", 3)
    for write in (zipped, tarred("w")):
        path = write(tmp_path / "run", {str(i): FOLDED for i in range(4)})
        assert refusal(path) == f"{path} has more than 3 files: unpack it and open those of interest"
        assert "has 3 reports" in refusal(write(tmp_path / "run", {str(i): FOLDED for i in range(3)}))


def test_an_archive_with_a_password_says_so(tmp_path: Path) -> None:
    data = bytearray(zipped(tmp_path / "run.zip", {"stacks": FOLDED}).read_bytes())
    for at in (data.index(b"PK\x03\x04") + 6, data.index(b"PK\x01\x02") + 8):
        data[at] |= 1  # the flag of encryption
    path = tmp_path / "locked"
    path.write_bytes(bytes(data))
    assert "cannot be unpacked: File 'stacks' is encrypted, password required for extraction" in refusal(path)


DAMAGE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@each_kind
@DAMAGE
@given(st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(0, 255)), max_size=4), st.integers(0, 1 << 14))
def test_changed_bytes_and_cuts_cost_no_more_than_a_sentence(
    write: Callable[..., Path], tmp_path: Path, changes: list[tuple[int, int]], cut: int
) -> None:
    path = write(tmp_path / "run", {"a": FOLDED, "b": OTHER})
    data = bytearray(path.read_bytes())
    for place, byte in changes:
        data[place % len(data)] = byte
    path.write_bytes(bytes(data[: 1 + cut % len(data)]))
    try:
        for report in reports_within(path):
            load(report)
        load(path)
    except FileError as error:
        refusal = str(error)
        assert "\n" not in refusal
