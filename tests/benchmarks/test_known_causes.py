"""Every capture whose cause is known is diagnosed so, and nothing false beside it: ours, made ones, other people's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel_traces import SAMPLES

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = SAMPLES / "public"


def right_rows(*arguments: str | Path) -> list[list[str]]:
    """The rows that the script prints, each of which has to be right."""
    command = [sys.executable, "benchmarks/known_causes.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert [row for row in rows if row[-2:] != ["yes", "-"]] == []
    assert (done.returncode, done.stderr) == (0, "")
    return rows


def test_every_known_cause_is_the_first_finding() -> None:
    rows = right_rows("--made")
    samples = len(list((ROOT / "sample_traces").glob("n*/*/*.xz")))
    assert len(rows) >= samples + 12
    tools = {tool for _, tool, *_ in rows}
    assert "made: 2.9.1, 3.25.0, 3.30.1" in tools, "the same is said of old and new exports"


def test_other_peoples_reports_of_old_and_new_versions_are_read_right() -> None:
    if not (PUBLIC / "SOURCES.csv").exists():
        pytest.skip("needs ../shared/samples/public: captures of others, which are not shipped")
    rows = right_rows("--public", PUBLIC)
    tools = {tool for _, tool, *_ in rows}
    assert len(rows) >= 26
    assert len({tool for tool in tools if tool.startswith("ncu-rep ")}) >= 5
    assert len({tool.partition("schema ")[2] for tool in tools if tool.startswith("nsys-sqlite ")}) >= 4
