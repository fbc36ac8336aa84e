"""Kernel sums equal to those of NVIDIA's own `nsys stats`, where that program is installed."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from llmtop.parsers.registry import load
from llmtop.text import clean
from tests.parsers.sample_reports import OTHERS, SAMPLE_TRACES, content

EXPORTS = sorted(SAMPLE_TRACES.rglob("*.sqlite*")) + sorted((OTHERS / "public").glob("*.sqlite"))

Sums = dict[str, tuple[int, int, int, int]]
"""Calls, total, shortest and longest ns by kernel name."""


def sums_of_nsys(export: Path) -> Sums:
    done = subprocess.run(
        ["nsys", "stats", "-r", "cuda_gpu_kern_sum", "--format", "csv", "--force-export=false", str(export)],
        capture_output=True,
        text=True,
        check=True,
    )
    table = done.stdout[done.stdout.index("Time (%)") :]
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["Name"]]
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
def test_kernel_sums_equal_nsys_stats(export: Path, tmp_path: Path) -> None:
    if shutil.which("nsys") is None:
        pytest.skip("needs Nsight Systems' command line (nsys) on PATH")
    plain = tmp_path / "export.sqlite"  # nsys reads no .xz, and would write beside its input
    plain.write_bytes(content(export))
    assert sums_of_llmtop(export) == sums_of_nsys(plain)
