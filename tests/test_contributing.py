"""CONTRIBUTING's worked examples, performed as they stand there: what each costs, and that it breaks nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODE = ("llmtop", "tui", "collectors", "parsers")
COPIED = (*CODE, "tests", "docs", "sample_traces")
_SECTION = re.compile(r"^### An? (?P<kind>\w+)\n(?P<text>.*?)(?=^##)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^```(?P<language>\w+) (?P<path>\S+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)

OF_ALL = {
    "parser": (
        ("tests/parsers/test_parsers_registry.py",),
        ("tests/parsers/test_parsers_samples.py", "-k", "two-functions or every_format"),
    ),
    "rule": (
        (
            "tests/analysis/test_analysis_rules_books.py",
            "tests/analysis/test_analysis_rules_live_matrix.py",
            "tests/analysis/test_analysis_rules_unjudged.py",
        ),
    ),
    "collector": (
        (
            "tests/collectors/test_collectors_registry.py",
            "tests/collectors/test_collectors_contract.py",
            "tests/analysis/test_analysis_lanes.py",
            "tests/test_architecture.py",
        ),
    ),
    "server": (("tests/servers/test_servers_engines.py", "tests/test_verdicts_by_engine.py"),),
    "view": (
        ("tests/tui/test_tui_explore.py", "-k", "of_one_digit or opens_on or has_the_views or have_a_tab"),
        ("tests/tui/test_tui_faults.py", "-k", "recorded and (Functions or Stacks)"),
    ),
}
"""The tests that look at all of a kind, as pytest is asked for them: none of them may need to know the new one."""
AFTER = {"parser": ("llmtop.cli.formats", "docs/formats.md")}
"""What `make manual` writes anew: module and page."""


@dataclass(frozen=True)
class Block:
    """A file to write, or with "diff" lines to add to one."""

    language: str
    path: str
    body: str

    @property
    def added(self) -> list[str]:
        """The lines that a diff adds."""
        return [line[1:] for line in self.body.splitlines() if line.startswith("+")]

    @property
    def is_code(self) -> bool:
        return self.path.split("/")[0] in CODE


@cache
def examples() -> dict[str, tuple[Block, ...]]:
    sections = _SECTION.finditer((ROOT / "CONTRIBUTING.md").read_text())
    blocks = {one["kind"]: tuple(Block(*block) for block in _BLOCK.findall(one["text"])) for one in sections}
    return {kind: found for kind, found in blocks.items() if found}


def perform(block: Block, place: Path) -> None:
    path = place / block.path
    if block.language != "diff":
        assert not path.exists(), f"{block.path} is there already"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.body)
        return
    (after,) = [line[1:] for line in block.body.splitlines() if line.startswith(" ")]
    lines = path.read_text().splitlines()
    place_in_file = lines.index(after) + 1
    path.write_text("\n".join([*lines[:place_in_file], *block.added, *lines[place_in_file:], ""]))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the sources."""
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def python(project: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=project, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pytest_of(project: Path, *arguments: str) -> str:
    return python(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments)


def own_tests(blocks: tuple[Block, ...]) -> list[str]:
    return [block.path for block in blocks if block.path.startswith("tests/")]


@pytest.mark.parametrize("kind", OF_ALL)
def test_an_example_costs_one_file_and_one_line(kind: str) -> None:
    blocks = examples()[kind]
    written = [block for block in blocks if block.language != "diff" and block.is_code]
    edited = [block for block in blocks if block.language == "diff" and block.is_code]
    assert len(written) == 1
    assert [len(block.added) for block in edited] == [1]
    assert len(own_tests(blocks)) == 1


def test_every_example_is_performed() -> None:
    assert examples().keys() == OF_ALL.keys()


@pytest.mark.parametrize("kind", OF_ALL)
def test_an_example_works_and_breaks_no_test(kind: str, project: Path) -> None:
    blocks = examples()[kind]
    for block in blocks:
        perform(block, project)
    if kind in AFTER:
        module, page = AFTER[kind]
        (project / page).write_text(python(project, "-m", module))
    for asked in (own_tests(blocks), *OF_ALL[kind]):
        assert " passed" in pytest_of(project, *asked)
    assert str(project) in python(project, "-c", "import llmtop; print(llmtop.__file__)")


@pytest.mark.parametrize("kind", OF_ALL)
def test_an_example_without_its_line_is_missed(kind: str, project: Path) -> None:
    blocks = examples()[kind]
    for block in blocks:
        if block.language != "diff":
            perform(block, project)
    with pytest.raises(AssertionError, match="failed"):
        pytest_of(project, *own_tests(blocks), *OF_ALL[kind][0])


@pytest.mark.parametrize("kind", OF_ALL)
def test_an_example_is_in_the_style_of_the_rest(kind: str, project: Path) -> None:
    written = [block for block in examples()[kind] if block.language == "python"]
    for block in written:
        perform(block, project)
    paths = [block.path for block in written]
    python(project, "-m", "ruff", "check", "--no-cache", *paths)
    python(project, "-m", "ruff", "format", "--no-cache", "--check", *paths)
