"""Kernel sums and idle times equal to those of NVIDIA's own `nsys`, where that program is at hand."""

from __future__ import annotations

import csv
import io
import sqlite3
import subprocess
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import pytest

from llmtop.analysis.timeline.account import idle_account
from llmtop.parsers.registry import load
from llmtop.text import clean
from tests.nvidia_tools import tools
from tests.parsers.sample_reports import OTHERS, SAMPLE_TRACES, content

EXPORTS = sorted(SAMPLE_TRACES.rglob("*.sqlite*")) + sorted((OTHERS / "public").glob("*.sqlite"))

Sums = dict[str, tuple[int, int, int, int]]
"""Calls, total, shortest and longest ns by kernel name."""


@pytest.fixture(scope="module")
def nsys() -> Path:
    found = tools("nsys")
    if not found:
        pytest.skip("needs Nsight Systems' command line (nsys) on PATH, or below the folder that LLMTOP_NSIGHT names")
    return found[0]


def table_of(nsys: Path, command: str, export: Path, first: str) -> list[dict[str, str]]:
    """The rows that a command prints of an export, from the line on that begins with the first column's title."""
    done = subprocess.run(
        [str(nsys), *command.split(), "--format", "csv", "--force-export=false", str(export)],
        capture_output=True,
        text=True,
        check=True,
    )
    return list(csv.DictReader(io.StringIO(done.stdout[done.stdout.index(first) :])))


@pytest.fixture
def plain(export: Path, tmp_path: Path) -> Path:
    """A copy of the export: nsys reads no .xz, and would write beside its input."""
    copied = tmp_path / "export.sqlite"
    copied.write_bytes(content(export))
    return copied


def sums_of_nsys(nsys: Path, export: Path) -> Sums:
    rows = [row for row in table_of(nsys, "stats -r cuda_gpu_kern_sum", export, "Time (%)") if row["Name"]]
    columns = ("Instances", "Total Time (ns)", "Min (ns)", "Max (ns)")
    return {clean(row["Name"]): tuple(int(float(row[column])) for column in columns) for row in rows}  # type: ignore[misc]


def sums_of_llmtop(export: Path) -> Sums:
    kernels = load(export).kernels
    assert kernels is not None
    durations = defaultdict(list)
    for i in range(len(kernels)):
        durations[kernels.name(i)].append(int(kernels.duration_ns[i]))
    return {name: (len(times), sum(times), min(times), max(times)) for name, times in durations.items()}


@pytest.mark.parametrize("export", EXPORTS, ids=lambda path: path.name)
def test_kernel_sums_equal_nsys_stats(export: Path, plain: Path, nsys: Path) -> None:
    assert sums_of_llmtop(export) == sums_of_nsys(nsys, plain)


@pytest.mark.parametrize("export", EXPORTS, ids=lambda path: path.name)
def test_idle_time_between_works_equals_the_gaps_that_nsys_finds(export: Path, plain: Path, nsys: Path) -> None:
    with closing(sqlite3.connect(plain)) as database:
        kernels = [row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")]
    if "globalPid" not in kernels:
        pytest.skip("nsys finds no gaps in an export without process ids")
    gaps: Counter[int] = Counter()
    for row in table_of(nsys, "analyze -r gpu_gaps:gap=0:rows=-1", plain, "Row#"):
        gaps[int(row["Device ID"])] += int(row["Duration (ns)"])
    idle = {int(gpu.gpu.split(":")[1]): gpu.short_ns + gpu.pause_ns for gpu in idle_account(load(export)).gpus}
    assert idle == gaps
