"""The CPU side of Nsight Systems exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.model import SpanTable, Trace
from tests.nsys_capture import BLOCKED, HTOD, MS, PAGEABLE, RUNNABLE, Capture


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
    capture.call("cudaStreamIsCapturing", 50, 400)
    capture.call("cudaStreamIsCapturing", 1000, 3000)
    capture.call("cudaMemsetAsync", 4000, 4100)
    names = [name for name, _, _ in rows(capture.trace(tmp_path), "call")]
    assert names == ["cudaStreamIsCapturing", "cudaMemsetAsync"]


def test_os_calls_are_those_of_threads_that_call_cuda(capture: Capture, tmp_path: Path) -> None:
    capture.os("poll", 5, 900, tid=555)
    capture.os("read", 41, 49)
    trace = capture.trace(tmp_path)
    assert rows(trace, "os") == [("read", 41, 49)]
    assert trace.end_ns == 49 - 9, "what the CPU did alone does not make the capture longer"


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


def test_an_export_of_damaged_kernels_alone_is_read(tmp_path: Path) -> None:
    capture = Capture()
    capture.kernel(30, 20, 1)
    trace = capture.trace(tmp_path)
    assert trace.kernels is not None
    assert len(trace.kernels) == 0
    assert [issue.code for issue in trace.issues] == ["nsys-kernel-times"]
