"""Sums of calls, copies, ranges and launches equal to those of NVIDIA's own `nsys stats`, where it is at hand."""

from __future__ import annotations

import csv
import io
import random
import sqlite3
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from llmtop import ids
from llmtop.analysis.timeline.listed import Listed, ListedRow, Statistics, listed
from llmtop.analysis.timeline.span_rows import span_rows
from llmtop.analysis.timeline.unified import unified_memory
from llmtop.model import SpanTable, Trace, Unknown
from llmtop.parsers.registry import load
from llmtop.text import clean
from tests.cli.by_tables import report_by
from tests.cli.test_report_by import document
from tests.parsers.nsys_stats import EXPORTS, VERSION, Row, export, nsys, read, stats, tables
from tests.parsers.sample_reports import SAMPLE_TRACES, content

__all__ = ["export", "nsys"]
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
Key: TypeAlias = tuple[str, ...]
Durations: TypeAlias = dict[Key, list[int]]


class Sums(NamedTuple):
    """Of all with one key, in ns or bytes."""

    number: int
    total: float
    least: float
    most: float


def told(rows: Iterable[Row], key: str, count: str = "Num Calls", unit: str = "ns") -> dict[Key, Sums]:
    """What nsys sums up, with versions of one call as one."""
    parts: dict[Key, list[Sums]] = defaultdict(list)
    for row in rows:
        numbers = (float(row[f"{what} ({unit})"]) for what in ("Total" if unit == "MB" else "Total Time", "Min", "Max"))
        parts[(VERSION.sub("", clean(row[key])),)].append(Sums(int(row[count]), *numbers))
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


@pytest.mark.parametrize(
    ("report", "what"), [("cuda_api_sum", Listed.API), ("osrt_sum", Listed.OS), ("cuda_gpu_mem_time_sum", Listed.COPY)]
)
def test_each_listed_number_equals_that_of_nsys_stats(nsys: Path, export: Path, report: str, what: Listed) -> None:
    rows, key = stats(nsys, report, export), "Operation" if what is Listed.COPY else "Name"
    by_name = {VERSION.sub("", clean(row[key])): row for row in rows}
    assert len(by_name) == len(rows), "no call of these captures is of two versions"
    ours = {_OPERATIONS.get(row.name.removesuffix(" (pageable)"), row.name): row for row in found_in(export, what)}
    assert ours.keys() == by_name.keys()
    for name, row in ours.items():
        assert numbers(row.times) == pytest.approx(numbers_told(by_name[name], "ns", "Total Time"), abs=0.06), name


def test_ranges_last_as_nsys_stats_says(nsys: Path, export: Path) -> None:
    rows = stats(nsys, "nvtx_sum", export)
    by_name = {clean(row["Range"]): row for row in rows}
    ours = {row.name: row.times for row in span_rows(read(export), each=True) if row.kind == "nvtx"}
    assert ours.keys() == by_name.keys()
    for name, row in by_name.items():
        times = ours[name]
        assert times is not None
        assert numbers(times) == pytest.approx(numbers_told(row, "ns", "Total Time"), abs=0.06), name


def test_sizes_listed_equal_those_of_nsys_stats(nsys: Path, export: Path) -> None:
    by_name = {clean(row["Operation"]): row for row in stats(nsys, "cuda_gpu_mem_size_sum", export)}
    ours = {_OPERATIONS[row.name.removesuffix(" (pageable)")]: row for row in found_in(export, Listed.COPY)}
    assert ours.keys() == by_name.keys()
    for name, row in ours.items():
        assert row.sizes is not None
        in_mb = [number / 1e6 for number in numbers(row.sizes)]
        assert in_mb == pytest.approx(numbers_told(by_name[name], "MB", "Total"), abs=0.0006), name


def found_in(export: Path, what: Listed) -> tuple[ListedRow, ...]:
    rows = listed(read(export), what)
    assert not isinstance(rows, Unknown)
    return rows


def numbers(of: Statistics) -> list[float]:
    return [of.total, of.mean, of.median, of.least, of.most, of.deviation or 0.0]


def numbers_told(row: Row, unit: str, total: str) -> list[float]:
    return [float(row[f"{what} ({unit})"] or 0) for what in (total, "Avg", "Med", "Min", "Max", "StdDev")]


def test_asynchronous_copies_of_pageable_memory_are_those_that_nsys_finds(nsys: Path, export: Path) -> None:
    """All whose call waits for them are among those that its rule lists, which does not ask whether it does."""
    command = [str(nsys), "analyze", "-r", "cuda_memcpy_async:rows=-1", "--format", "csv", "--force-export=false"]
    said = subprocess.run([*command, str(export)], capture_output=True, text=True, check=True).stdout
    lines = [line for line in said.splitlines() if line]
    if "There were no problems detected" not in said and not any("Src Kind" in line for line in lines):
        pytest.skip("its rule needs columns that this export lacks")
    first = next((i for i, line in enumerate(lines) if "Src Kind" in line), len(lines))
    rows = listed(read(export), Listed.COPY)
    held = 0 if isinstance(rows, Unknown) else sum(row.held for row in rows if isinstance(row.held, int))
    assert held <= len(lines) - first - 1


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
        key = (row["PID"], row["TID"], row["DevId"], VERSION.sub("", row["API Name"]), clean(row["Kernel Name"]))
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


# -- unified memory ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with the tables that nsys makes of unified memory: migrations and faults of some pages."""
    sample = next(path for path in EXPORTS if "llama-prefill-decode" in path.name)
    path = tmp_path_factory.mktemp("unified") / "export.sqlite"
    path.write_bytes(content(sample))
    draw = random.Random(5)
    with closing(sqlite3.connect(path)) as database, database:
        (start,) = database.execute("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        process, device, stream = database.execute(
            "SELECT globalPid, deviceId, streamId FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1"
        ).fetchone()
        copies = 'start, "end", deviceId, contextId, streamId, correlationId, globalPid, bytes, copyKind'
        database.execute(
            "CREATE TABLE IF NOT EXISTS CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, "
            "contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, "
            "copyKind INTEGER, srcKind INTEGER, dstKind INTEGER, virtualAddress INTEGER)"
        )
        database.execute(
            "CREATE TABLE CUDA_UM_CPU_PAGE_FAULT_EVENTS (start INTEGER, globalPid INTEGER, address INTEGER, "
            "CpuInstruction INTEGER)"
        )
        database.execute(
            "CREATE TABLE CUDA_UM_GPU_PAGE_FAULT_EVENTS (start INTEGER, end INTEGER, globalPid INTEGER, "
            "deviceId INTEGER, address INTEGER, numberOfPageFaults INTEGER, faultAccessType INTEGER)"
        )
        known = [key for (key,) in database.execute("SELECT id FROM StringIds LIMIT 3")]
        for i in range(60):
            at, page = start + 1000 * i, 0x7F0000000000 + 65536 * draw.randrange(5)
            row = (at, at + draw.randrange(1, 900), device, 1, stream, 0, process, 4096 * draw.randrange(1, 17))
            database.execute(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY ({copies}, virtualAddress) VALUES (?,?,?,?,?,?,?,?,?,?)",
                (*row, draw.choice((11, 12)), page),
            )
            database.execute(
                "INSERT INTO CUDA_UM_CPU_PAGE_FAULT_EVENTS VALUES (?,?,?,?)", (at, process, page, draw.choice(known))
            )
            database.execute(
                "INSERT INTO CUDA_UM_GPU_PAGE_FAULT_EVENTS VALUES (?,?,?,?,?,?,?)",
                (at, at + 10, process, device, page, draw.randrange(1, 300), 1),
            )
    return path


def test_unified_memory_is_that_of_nsys(nsys: Path, unified: Path) -> None:
    found = unified_memory(read(unified))
    assert found is not None
    (total,) = (list(row.values()) for row in stats(nsys, "um_total_sum", unified))
    whole = found.whole
    assert [float(value) for value in total[2:4]] == [whole.cpu_faults, whole.gpu_faults]
    assert [float(value) for value in total[:2]] == [
        pytest.approx(whole.to_gpu / 1e6, abs=0.001),
        pytest.approx(whole.to_cpu / 1e6, abs=0.001),
    ]
    rows = [list(row.values()) for row in stats(nsys, "um_sum", unified)]
    theirs = {int(row[0], 16): [float(value or 0) for value in row[1:5]] for row in rows}
    ours = {int(one.address, 16): one for one in found.pages}
    assert theirs.keys() == ours.keys()
    for address, (to_gpu, to_cpu, cpu, gpu) in theirs.items():
        page = ours[address]
        assert (cpu, gpu) == (page.cpu_faults, page.gpu_faults)
        assert to_gpu == pytest.approx(page.to_gpu / 1e6, abs=0.001)
        assert to_cpu == pytest.approx(page.to_cpu / 1e6, abs=0.001)
    by_instruction = [list(row.values()) for row in stats(nsys, "um_cpu_page_faults_sum", unified)]
    assert {(str(name), int(number)) for number, name in by_instruction} == set(found.instructions)


def test_unified_memory_stands_below_the_copies(unified: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    said = report_by(read(unified), "text", "copy")
    assert "unified memory: " in said
    assert "60 CPU and " in said
    assert unified_memory(load(SAMPLE_TRACES / "nsys" / "2025.3.2" / "llama-prefill-decode.sqlite.xz")) is None


def test_unified_memory_is_told_in_the_document_and_in_csv(unified: Path) -> None:
    with closing(sqlite3.connect(unified)) as database:
        moved = dict(
            database.execute(
                "SELECT copyKind, sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY 1 HAVING copyKind > 10"
            )
        )
        (faults,) = database.execute("SELECT sum(numberOfPageFaults) FROM CUDA_UM_GPU_PAGE_FAULT_EVENTS").fetchone()
    told = document(read(unified), "copy")["by"]["unified"]
    assert (told["to_gpu_bytes"], told["to_cpu_bytes"]) == (moved[11], moved[12])
    assert (told["cpu_faults"], told["gpu_faults"]) == (60, faults)
    assert sum(one["gpu_faults"] for one in told["addresses"]) == faults
    assert sum(one["cpu_faults"] for one in told["instructions"]) == 60
    rows = list(csv.DictReader(io.StringIO(report_by(read(unified), "csv", "copy"))))
    whole, *pages = (row for row in rows if row["kind"] == "unified")
    sums = ("to_gpu_bytes", "to_cpu_bytes", "cpu_faults", "gpu_faults")
    assert [int(whole[key]) for key in sums] == [told[key] for key in sums]
    assert int(whole["total_bytes"]) == moved[11] + moved[12]
    assert [(row["name"], row["total_ns"]) for row in pages] == [
        (one["address"], str(one["ns"])) for one in told["addresses"]
    ]
    assert [row["cpu_faults"] for row in rows if row["kind"] == "faulting-instruction"] == [
        str(one["cpu_faults"]) for one in told["instructions"]
    ]
    assert {row["to_gpu_bytes"] for row in rows if row["kind"] == "memcpy"} == {""}


def test_a_capture_without_unified_memory_says_so_in_the_document() -> None:
    sample = SAMPLE_TRACES / "nsys" / "2025.3.2" / "llama-prefill-decode.sqlite.xz"
    assert document(load(sample), "copy")["by"]["unified"] is None
    assert "unified" not in document(load(sample), "api")["by"]
