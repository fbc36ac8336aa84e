"""Files that llmtop writes: whole, its user's alone, and through no link."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from llmtop import files, notes
from llmtop.errors import FileError
from llmtop.tui.remembered import remember_columns, remembered_columns


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o777


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "report.txt"
    victim.write_text("as it was")
    link.symlink_to(victim)
    files.write_whole({link: ["a", "b"]})
    assert (victim.read_text(), link.read_text(), link.is_symlink(), mode(link)) == ("as it was", "ab", False, 0o600)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["report.txt", "victim"]


@pytest.mark.parametrize("there", ["file", "link", "dangling link"])
def test_what_is_new_never_takes_the_place_of_anything(tmp_path: Path, there: str) -> None:
    path = tmp_path / "a.svg"
    if there == "file":
        path.write_text("mine")
    else:
        path.symlink_to(tmp_path / ("b" if there == "link" else "none"))
        (tmp_path / "b").write_text("mine")
    with pytest.raises(FileExistsError):
        files.write_whole({path: "x"}, is_new=True)
    assert not (tmp_path / "none").exists()
    assert {one.read_text() for one in tmp_path.iterdir() if one.is_file()} <= {"mine"}


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before")

    def parts() -> object:
        yield "half"
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        files.write_whole({tmp_path / "a": parts(), tmp_path / "b": "x"})  # type: ignore[dict-item]
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a", "before")]


def test_a_pipe_and_a_device_are_written_as_they_are(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    files.write_whole({tmp_path / "pipe": "text", Path("/dev/null"): "gone"})
    assert os.read(reader, 10) == b"text"
    os.close(reader)


def test_screenshots_of_one_second_have_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMTOP_SCREENSHOTS", str(tmp_path))
    stems = []
    for _ in range(3):
        stems.append(files.new_stem("A table"))
        files.write_whole({stems[-1].with_suffix(".txt"): "x"}, is_new=True)
    assert len({*stems}) == 3


KEEP: list[Callable[[], object]] = [
    lambda: notes.keep(notes.NoteKind.NAME, "kernel", "mine"),
    lambda: remember_columns(["a"]),
]


@pytest.mark.parametrize("keep", KEEP)
@pytest.mark.parametrize("whose", ["all", "another user's", "above"])
def test_nothing_is_kept_in_a_folder_that_another_user_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: Callable[[], object], whose: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "state" / "llmtop"
    folder.mkdir(parents=True)
    if whose == "all":
        folder.chmod(0o777)
    elif os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    else:
        os.chown(folder if whose == "another user's" else folder.parent, 65534, 65534)
    with pytest.raises(PermissionError, match="is not this user's alone"):
        keep()
    assert not list(folder.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_nothing_is_made_where_another_users_link_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))
    (tmp_path / "home").mkdir()
    (tmp_path / "roots").mkdir()
    (tmp_path / "home" / "state").symlink_to(tmp_path / "roots")
    os.chown(tmp_path / "home", 65534, 65534)
    with pytest.raises(PermissionError):
        remember_columns(["a"])
    assert not list((tmp_path / "roots").iterdir())


@pytest.mark.parametrize("keep", KEEP)
def test_what_is_kept_is_its_users_alone_and_takes_the_place_of_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: Callable[[], object]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    keep()
    (file,) = (tmp_path / "state" / "llmtop").iterdir()
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)


def test_a_pipe_in_place_of_what_was_kept_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "llmtop").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "llmtop" / "explorer.json")
    os.mkfifo(tmp_path / "llmtop" / "notes.json")
    assert remembered_columns() == ()
    with pytest.raises(FileError, match="names and notes are not read"):
        notes.keep(notes.NoteKind.NAME, "kernel", "mine")
