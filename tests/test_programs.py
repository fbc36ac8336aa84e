"""What llmtop starts: nothing of the current folder, nor what another user could have put there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from llmtop import programs
from llmtop.demo.lifeline import child_environment


def program(folder: Path, name: str = "perf") -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text("#!/bin/sh\necho it runs; pwd\n")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize("path", [".", "", "relative", ":", "./relative:."])
def test_relative_entries_of_the_path_are_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    program(tmp_path)
    program(tmp_path / "relative")
    monkeypatch.setenv("PATH", path)
    assert programs.find("perf") is None
    assert programs.environment()["PATH"] == ""


def test_a_program_that_all_can_write_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'open'}:{tmp_path / 'linked'}:{tmp_path / 'own'}")
    open_one, own = program(tmp_path / "open"), program(tmp_path / "own")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "perf").symlink_to(open_one)
    (tmp_path / "open").chmod(0o777)
    programs.is_trusted.cache_clear()
    assert programs.find("perf") == str(own)
    assert programs.why_none("perf").startswith(f"{open_one} is not run: another user can write it")
    assert programs.why_none("none-such") == "none-such is not installed"
    assert programs.environment()["PATH"] == f"{tmp_path / 'linked'}:{tmp_path / 'own'}"


def test_root_runs_what_root_alone_can_write(tmp_path: Path) -> None:
    """The folders of pytest are root's where root runs it, and else an ordinary user's."""
    file = program(tmp_path / "a")
    programs.is_trusted.cache_clear()
    assert programs.is_trusted(str(file), os.geteuid())
    if os.geteuid() != 0:
        assert not programs.is_trusted(str(file), 0)
        return
    assert programs.is_trusted("/usr/bin/env", 0)
    for part, user, group, mode in (
        (file, 65534, 0, 0o755),
        (file.parent, 65534, 0, 0o755),
        (tmp_path, 65534, 0, 0o755),
        (file.parent, 0, 65534, 0o775),
    ):
        os.chown(part, user, group)
        part.chmod(mode)
        programs.is_trusted.cache_clear()
        assert not programs.is_trusted(str(file), 0)
        os.chown(part, 0, 0)
        part.chmod(0o755)
        programs.is_trusted.cache_clear()
        assert programs.is_trusted(str(file), 0)


def test_a_program_runs_outside_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = programs.run([str(program(tmp_path))], capture_output=True, text=True, check=True)
    assert done.stdout == "it runs\n/\n"
    with pytest.raises(FileNotFoundError):
        programs.run(["./perf"])


def test_a_python_of_ours_imports_nothing_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("json", "llmtop", "ncu_report", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("print('of the current folder')")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import json, llmtop; print(json.__name__, llmtop.__name__)"
    done = programs.run(programs.python(code), capture_output=True, text=True, check=True)
    assert done.stdout == "json llmtop\n"


@pytest.mark.parametrize("given", ["", ":", "relative:/given"])
def test_the_demos_processes_see_no_relative_path(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("PYTHONPATH", given)
    assert all(path.startswith("/") for path in child_environment()["PYTHONPATH"].split(":"))
