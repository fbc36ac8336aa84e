"""Every shipped capture whose cause is known is diagnosed so, and nothing false beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_known_cause_is_the_first_finding() -> None:
    command = [sys.executable, "benchmarks/known_causes.py", "--made"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert [row for row in rows if row[-2:] != ["yes", "- |"]] == []
    assert (done.returncode, done.stderr) == (0, "")
    samples = len(list((ROOT / "sample_traces").glob("n*/*/*.xz")))
    assert len(rows) >= samples + 12
