"""Kernel sums and idle times equal to those of NVIDIA's own `nsys`, where that program is at hand."""

from __future__ import annotations

import csv
import io
import math
import sqlite3
import subprocess
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from statistics import median

import pytest

from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.timeline.account import idle_account
from llmtop.model import Unknown
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
def test_launch_latency_and_queue_time_equal_nsys_stats(export: Path, plain: Path, nsys: Path) -> None:
    with closing(sqlite3.connect(plain)) as database:
        kernels = [row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")]
    if "globalPid" not in kernels:
        pytest.skip("nsys joins no calls to kernels in an export without process ids")
    rows: dict[tuple[str, int], list[dict[str, str]]] = defaultdict(list)
    for row in table_of(nsys, "stats -r cuda_kern_exec_sum", plain, "PID,"):
        rows[clean(row["Kernel Name"]), int(row["DevId"])].append(row)
    of, launches = kernels_of(load(export)), defaultdict(list)
    for i, gpu in enumerate(of.table.device):
        launches[of.table.name(i), gpu].append(i)
    compared = 0
    for key, own in launches.items():
        found, times = rows[key], of.launch_times
        queued = sum(not math.isnan(times.queue[i]) for i in own)
        known = [i for i in own if not math.isnan(times.latency[i])]
        assert (len(known), queued) == tuple(sum(int(row[count]) for row in found) for count in ("Count", "QCount"))
        if len(found) == 1:  # of one thread and one call nsys has the median of all launches of the name
            compared += 1
            assert _rounded(times.median_queue(own)) == found[0]["QMed (ns)"]
            if queued == len(own):  # then all of it is the latency and the kernel
                total = median(times.latency[i] + of.table.duration_ns[i] for i in own)
                assert f"{total:.1f}" == found[0]["TMed (ns)"]
    assert compared >= 1


def _rounded(median: float | Unknown) -> str:
    return "" if isinstance(median, Unknown) else f"{median:.1f}"


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
