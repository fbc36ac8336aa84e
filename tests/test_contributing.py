"""CONTRIBUTING's worked examples, performed as they stand there: what each costs, and that it breaks nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 500
"""An example's tests use seconds of CPU time; a busy machine may take minutes for them."""
pytestmark = pytest.mark.limit(TIMEOUT_S + 100)
CODE = ("llmtop", "tui", "collectors", "parsers")
COPIED = (*CODE, "tests", "docs", "sample_traces")
_SECTION = re.compile(r"^### An? (?P<kind>[\w ]+)\n(?P<text>.*?)(?=^##)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^```(?P<language>\w+) (?P<path>\S+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)

OF_ALL = {
    "parser": {
        "tests/parsers/test_registry.py": "",
        "tests/parsers/test_samples.py": "every_format",
    },
    "rule": {
        "tests/analysis/test_rules_books.py": "protocol or in_a_book or both_books or healthy",
        "tests/analysis/test_rules_live_matrix.py": "right_rules or has_a_situation",
        "tests/analysis/test_rules_unjudged.py": "",
    },
    "collector": {
        "tests/collectors/test_registry.py": "",
        "tests/collectors/test_contract.py": "",
        "tests/analysis/test_lanes.py": "",
        "tests/test_architecture.py": "know_none or knows_another or package_link or where_it_was_made",
    },
    "server": {"tests/servers/test_engines.py": "", "tests/test_verdicts_by_engine.py": ""},
    "view": {"tests/tui/test_explore.py": "of_one_digit or opens_on or has_the_views or have_a_tab"},
    "live view": {"tests/tui/test_live_parts.py": "", "tests/tui/test_views.py": "one_view"},
}
"""The tests that look at all of a kind, and which of a file, as after -k: none may need to know the new one."""
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


def all_blocks() -> tuple[Block, ...]:
    return tuple(block for blocks in examples().values() for block in blocks)


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
    """A copy of the sources, with what is compiled of them."""
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def python(project: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pytest_of(project: Path, *arguments: str) -> str:
    return python(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments)


def which(asked: Mapping[str, str]) -> str:
    """What to ask pytest for after -k, so that it runs some tests of some files and all of the others."""
    return " and ".join(f"(not {Path(path).name} or ({some}))" for path, some in asked.items() if some)


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


def test_the_examples_work_and_break_no_test(project: Path) -> None:
    for block in all_blocks():
        perform(block, project)
    for module, page in AFTER.values():
        (project / page).write_text(python(project, "-m", module))
    asked = {path: some for tests in OF_ALL.values() for path, some in tests.items()}
    paths = [*own_tests(all_blocks()), *asked]
    said = pytest_of(project, *paths, "-rp", "-k", which(asked))
    assert [path for path in paths if f"PASSED {path}::" not in said] == []
    assert str(project) in python(project, "-c", "import llmtop; print(llmtop.__file__)")


def test_an_example_without_its_line_is_missed(project: Path) -> None:
    for block in all_blocks():
        if block.language != "diff":
            perform(block, project)
    paths = [*own_tests(all_blocks()), "tests/collectors/test_registry.py"]
    paths.remove("tests/collectors/test_memory_pressure.py")  # which makes the collector itself
    with pytest.raises(AssertionError) as failed:
        pytest_of(project, *paths)
    assert [path for path in paths if not re.search(f"(FAILED|ERROR) {path}", str(failed.value))] == []


def test_the_examples_are_in_the_style_of_the_rest(project: Path) -> None:
    written = [block for block in all_blocks() if block.language == "python"]
    for block in written:
        perform(block, project)
    paths = [block.path for block in written]
    python(project, "-m", "ruff", "check", "--no-cache", *paths)
    python(project, "-m", "ruff", "format", "--no-cache", "--check", *paths)
