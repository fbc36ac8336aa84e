"""Sums of calls, copies, ranges and launches equal to those of NVIDIA's own `nsys stats`, where it is at hand."""

from __future__ import annotations

import csv
import io
import re
import sqlite3
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from llmtop import ids
from llmtop.model import SpanTable, Trace
from llmtop.parsers.registry import load
from llmtop.text import clean
from tests.nvidia_tools import tools
from tests.parsers.sample_reports import OTHERS, SAMPLE_TRACES, content

EXPORTS = sorted(SAMPLE_TRACES.rglob("*.sqlite*")) + sorted(OTHERS.rglob("*.sqlite"))
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_VERSION = re.compile(r"_v\d+$")
Key: TypeAlias = tuple[str, ...]
Durations: TypeAlias = dict[Key, list[int]]
Row: TypeAlias = dict[str, str]


class Sums(NamedTuple):
    """Of all with one key, in ns or bytes."""

    number: int
    total: float
    least: float
    most: float


@pytest.fixture(scope="module")
def nsys() -> Path:
    found = tools("nsys")
    if not found:
        pytest.skip("needs Nsight Systems' command line (nsys) on PATH, or below the folder that LLMTOP_NSIGHT names")
    return next((program for program in found if "2023.4.4" in str(program)), found[0])


@pytest.fixture(params=EXPORTS, ids=lambda path: path.name, scope="module")
def export(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: nsys reads no .xz, and would write beside its input."""
    copied = tmp_path_factory.mktemp("stats") / "export.sqlite"
    copied.write_bytes(content(request.param))
    return copied


@cache
def read(export: Path) -> Trace:
    return load(export)


def stats(nsys: Path, report: str, export: Path) -> list[Row]:
    """The rows of a report; none where nsys says that the export lacks what it takes."""
    command = [str(nsys), "stats", "-r", report, "--format", "csv", "--force-export=false", str(export)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in said.splitlines() if line]
    if any(line.startswith("SKIPPED") for line in lines):
        pytest.skip(next(line for line in lines if line.startswith("SKIPPED"))[:200].replace(str(export), "it"))
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("Processing")) + 1 :]
    return list(csv.DictReader(io.StringIO("\n".join(table))))


def told(rows: Iterable[Row], key: str, count: str = "Num Calls", unit: str = "ns") -> dict[Key, Sums]:
    """What nsys sums up, with versions of one call as one."""
    parts: dict[Key, list[Sums]] = defaultdict(list)
    for row in rows:
        numbers = (float(row[f"{what} ({unit})"]) for what in ("Total" if unit == "MB" else "Total Time", "Min", "Max"))
        parts[(_VERSION.sub("", clean(row[key])),)].append(Sums(int(row[count]), *numbers))
    return {
        name: Sums(sum(one.number for one in of), sum(one.total for one in of), min(one.least for one in of),
                   max(one.most for one in of))
        for name, of in parts.items()
    }  # fmt: skip


def summed(trace: Trace, *kinds: str) -> dict[Key, Sums]:
    """The same of what llmtop reads."""
    found: Durations = defaultdict(list)
    for table in tables(trace, *kinds):
        for name, start, end in zip(table.name_id, table.start_ns, table.end_ns, strict=True):
            found[(table.names[name],)].append(end - start)
    return {name: Sums(len(all_), sum(all_), min(all_), max(all_)) for name, all_ in found.items()}


def tables(trace: Trace, *kinds: str) -> Iterator[SpanTable]:
    for kind in kinds:
        for spans in (trace.spans, trace.more_spans):
            if kind in spans:
                yield spans[kind]


@pytest.mark.parametrize(
    ("report", "key", "count", "kinds"),
    [
        ("cuda_api_sum", "Name", "Num Calls", ("launch", "call", "brief-call")),
        ("osrt_sum", "Name", "Num Calls", ("os", "other-os")),
        ("nvtx_sum", "Range", "Instances", ("nvtx",)),
    ],
)
def test_sums_equal_nsys_stats(
    nsys: Path, export: Path, report: str, key: str, count: str, kinds: tuple[str, ...]
) -> None:
    expected = told(stats(nsys, report, export), key, count)
    assert expected
    assert summed(read(export), *kinds) == expected


def test_pushed_and_started_ranges_together_are_all(nsys: Path, export: Path) -> None:
    both = [row for report in ("nvtx_pushpop_sum", "nvtx_startend_sum") for row in stats(nsys, report, export)]
    assert summed(read(export), "nvtx") == told(both, "Range", "Instances")


_OPERATIONS = {
    "copy HtoD": "[CUDA memcpy Host-to-Device]",
    "copy DtoH": "[CUDA memcpy Device-to-Host]",
    "copy DtoD": "[CUDA memcpy Device-to-Device]",
    "copy HtoH": "[CUDA memcpy Host-to-Host]",
    "copy PtoP": "[CUDA memcpy Peer-to-Peer]",
    "memset": "[CUDA memset]",
}


def operations(trace: Trace, of: Callable[[SpanTable, int], float]) -> dict[Key, Sums]:
    """Copies and fills, pageable or not, by the name that nsys gives them."""
    found: dict[Key, list[float]] = defaultdict(list)
    for table in tables(trace, "memcpy", "memset"):
        for i, name in enumerate(table.name_id):
            found[(_OPERATIONS[table.names[name].removesuffix(" (pageable)")],)].append(of(table, i))
    return {name: Sums(len(all_), sum(all_), min(all_), max(all_)) for name, all_ in found.items()}


def test_times_of_copies_equal_nsys_stats(nsys: Path, export: Path) -> None:
    expected = told(stats(nsys, "cuda_gpu_mem_time_sum", export), "Operation", "Count")
    assert operations(read(export), lambda table, i: table.end_ns[i] - table.start_ns[i]) == expected


def test_sizes_of_copies_equal_nsys_stats(nsys: Path, export: Path) -> None:
    expected = told(stats(nsys, "cuda_gpu_mem_size_sum", export), "Operation", "Count", "MB")
    found = operations(read(export), lambda table, i: table.amount[i] / 1e6)
    assert found.keys() == expected.keys()
    for name, sums in found.items():
        assert sums == pytest.approx(expected[name], abs=0.0006), name


def launches(trace: Trace) -> dict[Key, list[tuple[int, int | None, int, int]]]:
    """Times of the call, in the queue (None where it did not wait there), of the kernel and of all, by launch."""
    found: dict[Key, list[tuple[int, int | None, int, int]]] = defaultdict(list)
    calls = {
        join: (table, i)
        for table in tables(trace, "launch", "call", "brief-call")
        for i, join in enumerate(table.correlation)
    }
    kernels, table = trace.spans["kernel"], trace.kernels
    assert table is not None
    for i, join in enumerate(kernels.correlation):
        if join not in calls or join < 0:
            continue
        of, at = calls[join]
        start, end = kernels.start_ns[i], kernels.end_ns[i]
        thread = of.tracks[of.track_id[at]]
        pid, tid = str(ids.pid(thread)), thread.rpartition("/")[2]
        gpu = ids.gpu_index(ids.gpu_of(kernels.tracks[kernels.track_id[i]]))
        key = (pid, tid, str(gpu), of.names[of.name_id[at]], kernels.names[kernels.name_id[i]])
        waited = start - of.end_ns[at]
        called, ended = of.start_ns[at], of.end_ns[at]
        whole = max(end, ended) - called
        found[key].append((ended - called, waited if waited >= 0 else None, end - start, whole))
    return found


def test_launches_and_their_time_in_the_queue_equal_nsys_stats(nsys: Path, export: Path) -> None:
    with closing(sqlite3.connect(export)) as database:
        if "globalPid" not in [row[1] for row in database.execute(f"PRAGMA table_info({_KERNELS})")]:
            pytest.skip("nsys joins nothing in an export without process ids")
    rows = stats(nsys, "cuda_kern_exec_sum", export)
    found = launches(read(export))
    assert len(rows) == len(found)
    for row in rows:
        key = (row["PID"], row["TID"], row["DevId"], _VERSION.sub("", row["API Name"]), clean(row["Kernel Name"]))
        times = found[key]
        assert (len(times), sum(queue is not None for _, queue, _, _ in times)) == (
            int(row["Count"]),
            int(row["QCount"]),
        )
        for letter, column in zip("AQKT", zip(*times, strict=True), strict=True):
            known = [value for value in column if value is not None]
            if known:
                told_by_nsys = [float(row[f"{letter}{what} (ns)"]) for what in ("Avg", "Med", "Min", "Max")]
                ours = [statistics.mean(known), statistics.median(known), min(known), max(known)]
                assert ours == pytest.approx(told_by_nsys, abs=0.06), (key, letter)
