"""The CPU side of Nsight Systems exports."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from llmtop import ids
from llmtop.model import SpanTable, Trace
from llmtop.parsers import nsys_export, nsys_host
from llmtop.parsers.nsys import NsysSqliteParser
from tests.nsys_capture import BLOCKED, HTOD, MS, PAGEABLE, RUNNABLE, Capture, global_id

SAMPLES = Path(__file__).parents[3] / "shared" / "samples" / "public"


@pytest.fixture
def capture() -> Capture:
    """One kernel, launched by the thread that the other rows are of."""
    made = Capture()
    made.kernel(30, 40, made.call("cudaLaunchKernel", 10, 20))
    return made


def rows(trace: Trace, kind: str) -> list[tuple[str, int, int]]:
    table: SpanTable = trace.spans[kind]
    assert set(table.tracks) == {"thread:100/101"}
    names = [table.names[i] for i in table.name_id]
    return list(zip(names, table.start_ns, table.end_ns, strict=True))


def test_calls_that_launch_are_told_from_others_and_lose_their_version(capture: Capture, tmp_path: Path) -> None:
    capture.call("cudaDeviceSynchronize", 50, 60)
    trace = capture.trace(tmp_path)
    assert rows(trace, "launch") == [("cudaLaunchKernel", 10, 20)]
    assert rows(trace, "call") == [("cudaDeviceSynchronize", 50, 60)]
    assert trace.spans["launch"].correlation[0] == trace.spans["kernel"].correlation[0]


def test_brief_queries_are_left_out_and_brief_work_is_not(capture: Capture, tmp_path: Path) -> None:
    capture.call("cudaStreamIsCapturing", 50, 1049)
    capture.call("cudaStreamIsCapturing", 2000, 3000)
    capture.call("cudaMemsetAsync", 4000, 4100)
    names = [name for name, _, _ in rows(capture.trace(tmp_path), "call")]
    assert names == ["cudaStreamIsCapturing", "cudaMemsetAsync"]


def test_os_calls_are_those_of_threads_that_call_cuda(capture: Capture, tmp_path: Path) -> None:
    capture.os("poll", 5, 900, tid=555)
    capture.os("read", 41, 49)
    trace = capture.trace(tmp_path)
    assert rows(trace, "os") == [("read", 41, 49)]
    assert trace.end_ns == 49 - 9, "what the CPU did alone does not make the capture longer"


def test_when_calls_were_traced_is_no_call(capture: Capture, tmp_path: Path) -> None:
    """As NVIDIA's own sums have it: rows of classes 31 and 32."""
    capture.os("OS runtime libraries profiling started", 41, 41)
    capture.os("read", 41, 49)
    path = capture.write(tmp_path / "capture.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE OSRT_API SET eventClass = CASE WHEN start = end THEN 31 ELSE 27 END")
        database.commit()
    assert rows(NsysSqliteParser().parse(path), "os") == [("read", 41, 49)]


def test_of_all_classes_of_rows_those_of_tracing_are_no_calls(capture: Capture, tmp_path: Path) -> None:
    """ENUM_NSYS_EVENT_CLASS has two or more of each library that is traced: that it began, and that it ended."""
    for number in range(100):
        capture.os(f"class {number}", 50 + number, 60 + number)
    path = capture.write(tmp_path / "capture.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE OSRT_API SET eventClass = start - 50 WHERE start >= 50")
        database.commit()
    calls = {name for name, *_ in rows(NsysSqliteParser().parse(path), "os")}
    left_out = [number for number in range(100) if f"class {number}" not in calls]
    assert left_out == [*range(31, 37), *range(45, 48), 79, 80, 84, 85, 87, 88, 90, 91]


def test_a_thread_is_off_its_cpu_from_going_to_coming(capture: Capture, tmp_path: Path) -> None:
    capture.off_cpu(100, 150, BLOCKED)
    capture.off_cpu(160, 170, RUNNABLE)
    capture.off_cpu(180, 190, 0)
    capture.tables["SCHED_EVENTS"].append((200, 0, 0, capture.tables["SCHED_EVENTS"][0][3], 0))
    found = rows(capture.trace(tmp_path), "off-cpu")
    assert found == [("blocked", 100, 150), ("runnable", 160, 170), ("", 180, 190)], "the last one never came back"


def test_a_sample_is_named_by_its_innermost_known_function(capture: Capture, tmp_path: Path) -> None:
    capture.sample(25, "", "tokenize", "main")
    capture.sample(27, "")
    assert rows(capture.trace(tmp_path), "sample") == [("tokenize", 25, 25)]


def test_the_profilers_cost_and_the_drivers_work_are_told_apart(capture: Capture, tmp_path: Path) -> None:
    capture.driver(7, 12, 18)
    capture.driver(3, 300, 350)
    capture.overhead("CUPTI Buffer flush", 200, 250)
    found = rows(capture.trace(tmp_path), "overhead")
    assert found == [("lazy function loading", 12, 18), ("CUPTI Buffer flush", 200, 250), ("overhead", 300, 350)]


def test_work_of_the_driver_is_named_by_its_number(capture: Capture, tmp_path: Path) -> None:
    """ENUM_CUPTI_OVERHEAD_TYPE as nsys exports it."""
    for kind in range(1, 10):
        capture.driver(kind, 100 * kind, 100 * kind + 50)
    named = {start // 100: name for name, start, _ in rows(capture.trace(tmp_path), "overhead") if name != "overhead"}
    assert named == {2: "JIT compilation", 6: "module loading", 7: "lazy function loading", 8: "command buffer full"}


def test_states_of_threads_off_their_cpu(capture: Capture, tmp_path: Path) -> None:
    """ENUM_SAMPLING_THREAD_STATE; what a newer nsys may add has no name."""
    for state in range(8):
        capture.off_cpu(100 * state, 100 * state + 50, state)
    named = {start // 100: name for name, start, _ in rows(capture.trace(tmp_path), "off-cpu") if name}
    assert named == {1: "runnable", 2: "blocked", 3: "blocked, uninterruptible", 6: "runnable"}


def test_a_copy_says_whether_its_host_memory_is_pageable(capture: Capture, tmp_path: Path) -> None:
    for start, host in ((50, PAGEABLE), (70, 1)):
        capture.copy(start, start + 5, capture.call("cudaMemcpyAsync", start - 5, start), HTOD, host=host)
    copies = capture.trace(tmp_path).spans["memcpy"]
    assert [copies.names[i] for i in copies.name_id] == ["copy HtoD (pageable)", "copy HtoD"]


def test_copies_are_named_by_their_numbers(capture: Capture, tmp_path: Path) -> None:
    """ENUM_CUDA_MEMCPY_OPER; what a newer nsys may add is a copy."""
    for kind in range(15):
        capture.copy(100 * kind, 100 * kind + 50, capture.call("cudaMemcpyAsync", 100 * kind, 100 * kind + 9), kind)
    copies = capture.trace(tmp_path).spans["memcpy"]
    ways = ("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
    moved = ("migration HtoD", "migration DtoH", "migration DtoD")
    assert [copies.names[i] for i in copies.name_id] == ["copy", *(f"copy {way}" for way in ways), *moved, "copy"]


def test_what_was_not_collected_is_missing_with_what_collects_it(capture: Capture, tmp_path: Path) -> None:
    trace = capture.trace(tmp_path)
    remedies = {str(missing.what): missing.why.remedy for missing in trace.missing}
    assert "osrt" in remedies["OS calls"]
    assert "--cpuctxsw" in remedies["CPU scheduling"]
    assert "--sample" in remedies["CPU samples"]


@pytest.mark.parametrize("table", ["OSRT_API", "SCHED_EVENTS", "SAMPLING_CALLCHAINS", "PROFILER_OVERHEAD"])
def test_rows_of_other_types_cost_only_themselves(capture: Capture, tmp_path: Path, table: str) -> None:
    capture.os("read", 41, 49)
    capture.off_cpu(100, 150)
    capture.sample(25, "main")
    capture.overhead("flush", 200, 2 * MS)
    width = len(capture.tables[table][0])
    for junk in (None, "text", 1.5, b"\xff"):
        capture.tables[table].append((junk,) * width)
    trace = capture.trace(tmp_path)
    assert {kind: len(trace.spans[kind]) for kind in ("os", "off-cpu", "sample", "overhead")} == dict.fromkeys(
        ("os", "off-cpu", "sample", "overhead"), 1
    )


def test_os_calls_that_end_before_they_begin_are_left_out_and_told(capture: Capture, tmp_path: Path) -> None:
    capture.os("read", 41, 49)
    capture.os("write", 49, 41)
    trace = capture.trace(tmp_path)
    assert len(trace.spans["os"]) == 1
    assert [(issue.code, issue.count) for issue in trace.issues] == [("nsys-os-times", 1)]


def test_an_export_of_damaged_kernels_alone_is_read(tmp_path: Path) -> None:
    capture = Capture()
    capture.kernel(30, 20, 1)
    trace = capture.trace(tmp_path)
    assert trace.kernels is not None
    assert len(trace.kernels) == 0
    assert [issue.code for issue in trace.issues] == ["nsys-kernel-times"]


def test_what_tells_nothing_is_read_only_when_it_is_asked_for(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brief calls, and what threads did that never call CUDA."""
    capture.call("cudaStreamIsCapturing", 50, 400)
    capture.os("poll", 5, 900, tid=555)
    capture.os("read", 41, 49)
    capture.off_cpu(100, 150, BLOCKED, tid=555)
    capture.sample(25, "work", tid=555)
    read: list[str] = []
    whole = nsys_export.read_parts

    def noted(export: nsys_export.Export, table: str, *rest: Any) -> list[nsys_export.Rows]:
        read.append(table)
        return whole(export, table, *rest)

    for module in (nsys_export, nsys_host):
        monkeypatch.setattr(module, "read_parts", noted)
    trace = capture.trace(tmp_path)
    assert set(trace.more_spans) == {"brief-call", "other-os", "other-off-cpu", "other-sample"}
    assert {"os", "off-cpu", "sample"} < set(trace.spans)
    assert "OSRT_API" not in read, "that there are some is known without reading them"
    assert ids.thread(100, 555) not in trace.tracks
    found = {kind: [table.names[i] for i in table.name_id] for kind, table in trace.more_spans.items()}
    assert found == {
        "brief-call": ["cudaStreamIsCapturing"],
        "other-os": ["poll"],
        "other-off-cpu": ["blocked"],
        "other-sample": ["work"],
    }
    assert trace.tracks[ids.thread(100, 555)].parent == ids.process(100)
    assert trace.spans["os"] is trace.spans["os"], "and once"
    assert read.count("OSRT_API") == 2


def test_every_call_and_thread_is_in_one_kind(tmp_path: Path) -> None:
    """What `spans` and `more_spans` have together is what the tables have."""
    path = SAMPLES / "NCAR__GPU_workshop__miniweather_baseline.sqlite"
    if not path.exists():
        pytest.skip("needs a capture of others, which is not shipped")
    trace = NsysSqliteParser().parse(path)
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        count = {
            table: database.execute(f"SELECT count(*) FROM {table} WHERE eventClass NOT IN (31, 32)").fetchone()[0]
            for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "OSRT_API")
        }
    calls = len(trace.spans["launch"]) + len(trace.spans["call"]) + len(trace.more_spans["brief-call"])
    assert calls == count["CUPTI_ACTIVITY_KIND_RUNTIME"]
    assert len(trace.spans["os"]) + len(trace.more_spans["other-os"]) == count["OSRT_API"]


def damage_first_leaf(path: Path, table: str) -> None:
    """Spoil the page with the first rows of a table that has several."""
    with closing(sqlite3.connect(path)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * size + 12)
        leaf = int.from_bytes(file.read(2))  # the cell of the first child
        file.seek((root - 1) * size + leaf)
        first = int.from_bytes(file.read(4))
        file.seek((first - 1) * size)
        file.write(b"\xee" * size)


def test_stacks_that_are_found_damaged_when_they_are_asked_for_are_told(capture: Capture, tmp_path: Path) -> None:
    for at in range(3000):
        capture.sample(1000 + at, "read", "main")
    path = capture.write(tmp_path / "capture.sqlite")
    damage_first_leaf(path, "SAMPLING_CALLCHAINS")
    trace = NsysSqliteParser().parse(path)
    assert [issue.code for issue in trace.issues] == ["nsys-damaged"]
    assert list(trace.stacks) == []
    assert [issue.code for issue in trace.issues] == ["nsys-damaged", "nsys-stacks-lost"]
    assert len(trace.spans["kernel"]) == 1


def test_a_table_that_is_found_damaged_late_costs_itself_and_is_told(capture: Capture, tmp_path: Path) -> None:
    for at in range(3000):
        capture.os("read", 1000 + at, 1000 + at)
    path = capture.write(tmp_path / "capture.sqlite")
    damage_first_leaf(path, "OSRT_API")
    trace = NsysSqliteParser().parse(path)
    assert [issue.code for issue in trace.issues] == ["nsys-damaged"]
    assert len(trace.spans["os"]) == 0
    assert [issue.code for issue in trace.issues] == ["nsys-damaged", "nsys-os-lost"]
    assert len(trace.spans["kernel"]) == 1


def test_threads_and_processes_have_the_names_that_the_capture_tells(capture: Capture, tmp_path: Path) -> None:
    capture.tables["ThreadNames"].append((capture.string("EngineCore"), 20, global_id(100, 101)))
    capture.tables["PROCESSES"].append((global_id(100), 100, "vllm"))
    capture.tables["TARGET_INFO_NVTX_CUDA_STREAM"].append(("copies", 100, 0, 1, 7))
    tracks = capture.trace(tmp_path).tracks
    assert tracks[ids.thread(100, 101)].name == "EngineCore (101)"
    assert tracks[ids.process(100)].name == "vllm (100)"
    assert tracks[ids.stream(ids.gpu(0), 100, 7)].name == "copies (stream 7)"
