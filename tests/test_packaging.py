"""What an installation brings, and what the script that tries it on a fresh machine makes of what it sees."""

from __future__ import annotations

import os
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_file_of_a_package_that_is_no_module_is_named() -> None:
    """Setuptools takes along what package-data names, and nothing else."""
    named = {path for package, patterns in SETTINGS["package-data"].items() for path in files(package, patterns)}
    linked = [ROOT / "llmtop" / link.name for link in (ROOT / "llmtop").iterdir() if link.is_symlink()]
    found = {path for base in (ROOT / "llmtop", *linked) for path in base.rglob("*") if path.is_file()}
    data = {path for path in found if path.suffix not in (".py", ".pyc", ".so")}
    assert len(data) > 20
    assert data - named - stubs(data) == set()


def files(package: str, patterns: list[str]) -> list[Path]:
    folder = ROOT.joinpath(*package.split("."))
    return [path for pattern in patterns for path in folder.glob(pattern)]


def stubs(data: set[Path]) -> set[Path]:
    """Typing stubs, which setuptools takes along by itself."""
    return {path for path in data if path.suffix == ".pyi"}


def test_other_files_that_are_installed_are_there() -> None:
    installed = [ROOT / name for names in SETTINGS["data-files"].values() for name in names]
    assert installed == [ROOT / "docs/llmtop.1"]
    assert all(path.is_file() for path in installed)


@pytest.fixture(scope="module")
def fresh_machine() -> ModuleType:
    loader = SourceFileLoader("fresh_machine", str(ROOT / "scripts/fresh-machine"))
    spec = spec_from_loader("fresh_machine", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_lines_before_the_screen_are_what_one_sees_go_by(fresh_machine: ModuleType) -> None:
    seen = b"pip\r\n\x1b[33mwarning\x1b[0m\r\n\r\nllmtop demo\r\n\x1b]0;title\x07\x1b[?1049h\x1b[2Jscreen\r\nof\r\n"
    assert fresh_machine.lines_before_screen(seen) == 4
    assert fresh_machine.plain(b"\x1b[33mwarning\x1b[0m\r\n") == "warning\n"


def test_a_program_in_a_terminal_is_asked_to_leave_once_its_screen_has_stood(
    fresh_machine: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh_machine, "LOOK_S", 0.1)
    screen = "stty raw -echo; printf 'one\\n\\033[?1049hscreen'; test $(head -c 1) = q; exit 7"
    seen, code = fresh_machine.in_terminal(["sh", "-c", screen], os.environ, 20.0, until_screen=True)
    assert (fresh_machine.lines_before_screen(seen), code) == (1, 7)


def test_what_takes_too_long_is_ended_and_said_so(fresh_machine: ModuleType) -> None:
    assert fresh_machine.in_terminal(["sleep", "1000"], os.environ, 0.1, until_screen=False) == (b"", 124)
