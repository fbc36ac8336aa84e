"""The account of idle time: generated captures of which the cause is known, and sums against plain SQL."""

from __future__ import annotations

import gzip
import json
import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import accumulate, pairwise
from operator import mul
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop import columns
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.timeline import bulk
from llmtop.analysis.timeline.account import (
    AFTER,
    BEFORE,
    STEPS,
    GpuAccount,
    idle_account,
    idle_pieces,
)
from llmtop.analysis.timeline.causes import TITLES, Cause
from llmtop.analysis.timeline.host import HostThread, Label, Layer
from llmtop.analysis.timeline.idle_view import ASCII_LEVELS, idle_view, picture
from llmtop.analysis.timeline.sums import GRAPHS_UNTRACED, NOT_LAUNCHED, NOT_TRACED
from llmtop.analysis.timeline.work import GpuWork, busy_over_time, gpus_at_work
from llmtop.model import Origin, Trace, What
from llmtop.parsers.registry import load
from tests.kernel_traces import SAMPLES
from tests.nsys_capture import (
    BLOCKED,
    DEVICE,
    DTOD,
    DTOH,
    HTOD,
    MS,
    NO_STATE,
    PAGEABLE,
    PINNED,
    RUNNABLE,
    TID,
    UNINTERRUPTIBLE,
    US,
    Capture,
)


@pytest.fixture(scope="module", params=["in columns", "one by one"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """All of this holds of long captures, whose gaps are added in columns, as of short ones."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in columns":
            patch.setattr(columns, "LONG", 1)
            patch.setattr(bulk, "_PART", 3)
        yield


def only(trace: Trace) -> GpuAccount:
    (gpu,) = idle_account(trace).gpus
    assert sum(part.ns for part in gpu.parts) == gpu.idle_ns
    by_label: Counter[Label] = Counter()
    for part in gpu.parts:
        by_label[part.cause, part.name] += part.ns
    assert idle_pieces(trace)[gpu.gpu].within(gpu.start_ns, gpu.end_ns) == by_label
    return gpu


def told(trace: Trace) -> dict[tuple[str, str], int]:
    """Idle time between works by cause and name, in ns."""
    parts: dict[tuple[str, str], int] = {}
    for part in only(trace).parts:
        if part.name not in (BEFORE, AFTER):
            key = part.cause.value, part.name
            parts[key] = parts.get(key, 0) + part.ns
    return parts


def pair(capture: Capture, launch: tuple[int, int], *, end: int = 10 * MS) -> Capture:
    """Two kernels: [0, 1] ms, and from 10 ms on the one that `launch` gave the GPU."""
    capture.kernel(0, MS, capture.call("cudaLaunchKernel", -20, -10))
    capture.kernel(end, end + MS, capture.call("cudaLaunchKernel", *launch))
    return capture


@pytest.fixture
def capture() -> Capture:
    """One whose OS calls were traced."""
    made = Capture()
    made.os("write", -9, -8)
    return made


def test_a_gap_is_split_at_the_moment_its_work_had_been_asked_for(capture: Capture, tmp_path: Path) -> None:
    pair(capture, (10 * MS - 15 * US, 10 * MS - 5 * US))
    assert told(capture.trace(tmp_path)) == {
        ("own-code", ""): 9 * MS - 15 * US,
        ("launch", "cudaLaunchKernel"): 10 * US,
        ("launch-latency", ""): 5 * US,
    }


def test_work_that_was_queued_before_only_has_to_start(capture: Capture, tmp_path: Path) -> None:
    pair(capture, (500 * US, 510 * US), end=MS + 3 * US)
    assert told(capture.trace(tmp_path)) == {("turnaround", ""): 3 * US}


def test_queued_work_that_does_not_start_is_no_matter_of_launches(capture: Capture, tmp_path: Path) -> None:
    pair(capture, (500 * US, 510 * US))
    assert told(capture.trace(tmp_path)) == {("queued", ""): 9 * MS}


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        ("cudaStreamSynchronize", "sync"),
        ("cudaMemcpy", "copy"),
        ("cudaMalloc", "allocation"),
        ("cuLibraryLoadData", "code-loading"),
        ("cudaGraphInstantiate", "graph-building"),
        ("cudaEventRecord", "cuda-call"),
    ],
)
def test_calls_before_the_launch_are_what_the_gpu_waits_for(
    capture: Capture, tmp_path: Path, call: str, cause: str
) -> None:
    capture.call(call, 2 * MS, 8 * MS)
    pair(capture, (10 * MS - 10 * US, 10 * MS))
    assert told(capture.trace(tmp_path))[cause, call] == 6 * MS


def test_within_a_call_that_waits_what_the_system_does_is_the_calls_time(capture: Capture, tmp_path: Path) -> None:
    capture.call("cudaDeviceSynchronize", 2 * MS, 8 * MS)
    capture.os("ioctl", 3 * MS, 7 * MS)
    capture.off_cpu(3 * MS, 7 * MS, BLOCKED)
    pair(capture, (10 * MS - 10 * US, 10 * MS))
    parts = told(capture.trace(tmp_path))
    assert parts["sync", "cudaDeviceSynchronize"] == 6 * MS
    assert ("os-call", "ioctl") not in parts


def test_within_a_launch_call_a_lock_is_told(capture: Capture, tmp_path: Path) -> None:
    capture.os("pthread_mutex_lock", 3 * MS, 8 * MS)
    pair(capture, (2 * MS, 10 * MS))
    assert told(capture.trace(tmp_path)) == {
        ("own-code", ""): MS,
        ("slow-launch", "cudaLaunchKernel"): 3 * MS,
        ("os-call", "pthread_mutex_lock"): 5 * MS,
    }


def test_off_its_cpu_means_something_where_no_call_explains_it(capture: Capture, tmp_path: Path) -> None:
    capture.off_cpu(2 * MS, 5 * MS)
    capture.os("clock_nanosleep", 5 * MS, 7 * MS)
    capture.off_cpu(5 * MS, 7 * MS, BLOCKED)
    pair(capture, (10 * MS - 10 * US, 10 * MS))
    parts = told(capture.trace(tmp_path))
    assert parts["descheduled", "runnable"] == 3 * MS
    assert parts["os-call", "clock_nanosleep"] == 2 * MS
    assert ("descheduled", "blocked") not in parts


@pytest.mark.parametrize(
    ("state", "off_ms", "between", "until", "is_file_wait"),
    [
        (NO_STATE, 3, "", "read", True),
        (NO_STATE, 1, "", "read", False),  # it computed for most of the time
        (NO_STATE, 3, "", "pthread_cond_wait", False),
        (NO_STATE, 3, "cudaEventQuery", "read", False),
        (NO_STATE, 3, "poll", "fcntl", True),  # a question of some microseconds
        (BLOCKED, 3, "", "read", True),
        (UNINTERRUPTIBLE, 1, "", "read", True),
        (RUNNABLE, 3, "", "read", False),
    ],
)
def test_blocked_between_two_calls_on_files_is_a_wait_for_them(
    state: int, off_ms: int, between: str, until: str, is_file_wait: bool, capture: Capture, tmp_path: Path
) -> None:
    capture.os("pwrite", MS, 2 * MS)
    capture.off_cpu(3 * MS, (3 + off_ms) * MS, state)
    capture.os(until, 7 * MS, 8 * MS)
    if between:
        (capture.call if between.startswith("cuda") else capture.os)(between, 2500 * US, 2505 * US)
    pair(capture, (10 * MS - 10 * US, 10 * MS))
    parts = told(capture.trace(tmp_path))
    waited = parts.get(("os-call", "not traced, after pwrite"), 0)
    off = sum(ns for (cause, _), ns in parts.items() if cause == "descheduled")
    assert (waited, off) == ((off_ms * MS, 0) if is_file_wait else (0, off_ms * MS))


def test_own_code_is_named_by_the_innermost_range(capture: Capture, tmp_path: Path) -> None:
    capture.nvtx("step 3", 0, 20 * MS)
    capture.nvtx("tokenize, op_id = 77", 2 * MS, 6 * MS)
    capture.nvtx("hash", 3 * MS, 4 * MS)
    pair(capture, (10 * MS, 10 * MS))
    assert told(capture.trace(tmp_path)) == {
        ("own-code", "step #"): 5 * MS,
        ("own-code", "tokenize"): 3 * MS,
        ("own-code", "hash"): MS,
    }


@pytest.mark.parametrize(
    ("t_ns", "name"), [(9, ""), (10, "first"), (19, "first"), (20, ""), (30, "second"), (49, "second"), (50, "")]
)
def test_a_moment_is_in_a_range_from_its_start_until_its_end(t_ns: int, name: str) -> None:
    labels = [(Cause.SYNC, "first"), (Cause.COPY, "second")]
    thread = HostThread(outside=(Cause.CALL, ""), ranges=Layer([10, 30], [20, 50], labels))
    assert thread.range_at(t_ns) == name
    assert HostThread(outside=(Cause.CALL, "")).range_at(t_ns) == ""


def test_calls_say_in_which_range_they_were_made(capture: Capture, tmp_path: Path) -> None:
    capture.nvtx("step 3", 0, 20 * MS)
    capture.nvtx("read result", 4 * MS, 5 * MS)
    for start, end in ((2 * MS, 3 * MS), (4 * MS, 4 * MS + 10)):
        capture.call("cudaMalloc", start, end)
    pair(capture, (10 * MS, 10 * MS))
    (part,) = (part for part in only(capture.trace(tmp_path)).parts if part.cause is Cause.ALLOCATION)
    assert part.ranges == (("step #", MS), ("read result", 10))


def test_cpu_samples_say_where_own_code_stood(capture: Capture, tmp_path: Path) -> None:
    for at in (2, 3, 4):
        capture.sample(at * MS, "sha256", "main")
    capture.sample(500 * US, "elsewhere", "main")
    pair(capture, (10 * MS, 10 * MS))
    (part,) = (part for part in only(capture.trace(tmp_path)).parts if part.cause is Cause.OWN_CODE)
    assert part.functions == (("sha256", 3),)


def test_a_thread_that_waits_for_input_was_asked_for_nothing(capture: Capture, tmp_path: Path) -> None:
    capture.os("epoll_wait", MS, 9 * MS)
    pair(capture, (9 * MS, 10 * MS))
    assert told(capture.trace(tmp_path))["no-work", "epoll_wait"] == 8 * MS


def test_the_profilers_cost_is_not_the_programs(capture: Capture, tmp_path: Path) -> None:
    capture.overhead("CUPTI Buffer flush", 2 * MS, 8 * MS)
    capture.call("cudaEventRecord", 2 * MS, 8 * MS)
    pair(capture, (10 * MS, 10 * MS))
    assert told(capture.trace(tmp_path))["profiler", "CUPTI Buffer flush"] == 6 * MS


def test_a_loop_of_brief_queries_is_waiting(capture: Capture, tmp_path: Path) -> None:
    for at in range(2000):
        capture.call("cudaEventQuery", 2 * MS + at * US, 2 * MS + at * US + 900)
    pair(capture, (10 * MS, 10 * MS))
    assert told(capture.trace(tmp_path))["sync", "cudaEventQuery"] == 2000 * 900


def test_code_that_is_loaded_behind_a_launch_is_told(capture: Capture, tmp_path: Path) -> None:
    capture.driver(7, 3 * MS, 9 * MS)
    pair(capture, (2 * MS, 10 * MS))
    parts = told(capture.trace(tmp_path))
    assert parts["code-loading", "lazy function loading"] == 6 * MS
    assert parts["slow-launch", "cudaLaunchKernel"] == 2 * MS


def test_between_the_works_of_one_graph_no_thread_counts(capture: Capture, tmp_path: Path) -> None:
    graph = capture.call("cudaGraphLaunch", 0, 40 * US)
    for i in range(5):
        capture.kernel(50 * US + i * 100 * US, 50 * US + i * 100 * US + 90 * US, graph)
    capture.os("clock_nanosleep", 45 * US, 400 * US)
    assert told(capture.trace(tmp_path)) == {("graph", ""): 40 * US}


def test_between_two_graphs_the_thread_counts_again(capture: Capture, tmp_path: Path) -> None:
    for start in (0, MS):
        graph = capture.call("cudaGraphLaunch", start, start + 40 * US)
        capture.kernel(start + 50 * US, start + 100 * US, graph)
        capture.kernel(start + 110 * US, start + 200 * US, graph, stream=8)
    trace = capture.trace(tmp_path)
    gpu = only(trace)
    assert (gpu.graph_works, gpu.graph_launches) == (4, 2)
    assert told(trace)["graph", ""] == 20 * US
    assert {part.before_graph for part in gpu.parts if part.cause is Cause.LAUNCH} == {True}


def test_before_a_launch_that_comes_after_a_graph_the_thread_counts_again(capture: Capture, tmp_path: Path) -> None:
    graph = capture.call("cudaGraphLaunch", 0, 40 * US)
    capture.kernel(50 * US, 100 * US, graph)
    capture.kernel(110 * US, 200 * US, graph)
    capture.kernel(500 * US, 600 * US, capture.call("cudaLaunchKernel", 300 * US, 310 * US))
    parts = told(capture.trace(tmp_path))
    assert parts["graph", ""] == 10 * US
    assert sum(parts.values()) == 310 * US


def test_graphs_whose_launch_is_lost_are_known_by_their_common_id(capture: Capture, tmp_path: Path) -> None:
    capture.kernel(0, 10, 900)
    capture.kernel(30, 40, 900)
    capture.kernel(70, 80, 901)
    trace = capture.trace(tmp_path)
    assert told(trace) == {("graph", ""): 20, ("unknown", NOT_LAUNCHED): 30}
    (missing,) = idle_account(trace).unknown
    assert missing.what == NOT_LAUNCHED
    assert missing.why.remedy


def test_a_graph_traced_as_a_whole_is_busy(capture: Capture, tmp_path: Path) -> None:
    capture.graph(MS, 10 * MS, capture.call("cudaGraphLaunch", 0, 10))
    pair(capture, (500, 510))
    assert told(capture.trace(tmp_path)) == {}


def graphs_untraced(capture: Capture, *launched: int) -> Capture:
    """Graph launches without any work, as exports up to 2023.4 have them of graphs that were traced as a whole."""
    for at in launched:
        capture.call("cudaGraphLaunch", at, at + 10 * US)
    return capture


def test_a_gpu_may_be_busy_with_graphs_that_the_capture_does_not_have(capture: Capture, tmp_path: Path) -> None:
    graphs_untraced(capture, 2 * MS, 3 * MS)
    capture.call("cudaStreamSynchronize", 2 * MS + 10 * US, 9 * MS)
    trace = pair(capture, (10 * MS - 10 * US, 10 * MS)).trace(tmp_path)
    parts = told(trace)
    assert parts["unknown", GRAPHS_UNTRACED] == 8 * MS
    assert parts["own-code", ""] == MS, "until the graph was launched the GPU had nothing"
    assert "sync" not in {cause for cause, _ in parts}, "who waits for a graph does not keep the GPU idle"
    (missing,) = idle_account(trace).unknown
    assert missing.why.remedy == "add --cuda-graph-trace=node"
    assert "2 of 2 graph launches" in missing.why.reason
    (finding,) = (one for one in diagnose(trace).findings if one.rule == "idle-unknown")
    assert "or busy with CUDA graphs" in finding.message


def test_graphs_before_the_first_and_after_the_last_kernel_are_no_lack_of_work(tmp_path: Path) -> None:
    capture = graphs_untraced(Capture(), 0, 20 * MS)
    capture.kernel(10 * MS, 11 * MS, capture.call("cudaLaunchKernel", 9 * MS, 9 * MS + US))
    capture.call("cudaDeviceSynchronize", 20 * MS + 10 * US, 30 * MS)
    trace = capture.trace(tmp_path)
    assert told(trace) == {("unknown", GRAPHS_UNTRACED): 20 * MS}
    assert [(part.name, part.ns) for part in only(trace).parts if part.name in (BEFORE, AFTER)] == [(AFTER, 9 * MS)]


def all_told(trace: Trace) -> dict[tuple[str, str], int]:
    """Idle time by cause and name, all of it."""
    found: Counter[tuple[str, str]] = Counter()
    for part in only(trace).parts:
        found[part.cause.value, part.name] += part.ns
    return dict(found)


def test_what_was_launched_and_does_not_start_is_no_lack_of_work(capture: Capture, tmp_path: Path) -> None:
    capture.kernel(10 * MS, 11 * MS, capture.call("cudaLaunchKernel", MS, MS + US))
    capture.kernel(12 * MS, 13 * MS, capture.call("cudaLaunchKernel", 2 * MS, 2 * MS + US))
    assert all_told(capture.trace(tmp_path)) == {
        ("no-work", BEFORE): US,
        ("queued", ""): 10 * MS - US,
    }


def test_a_first_work_that_starts_as_any_does_is_where_the_program_begins(capture: Capture, tmp_path: Path) -> None:
    capture.call("cudaMalloc", MS, 9 * MS)
    capture.kernel(10 * MS, 11 * MS, capture.call("cudaLaunchKernel", 10 * MS - 15 * US, 10 * MS - 10 * US))
    assert all_told(capture.trace(tmp_path)) == {("no-work", BEFORE): 9 * MS}


def test_before_its_first_work_a_gpu_waits_for_what_the_launching_thread_is_at(
    capture: Capture, tmp_path: Path
) -> None:
    capture.nvtx("load", 2 * MS, 6 * MS)
    capture.call("cudaHostAlloc", 3 * MS, 4 * MS)
    capture.kernel(10 * MS, 11 * MS, capture.call("cudaLaunchKernel", 10 * MS - 15 * US, 10 * MS - 10 * US))
    assert all_told(capture.trace(tmp_path)) == {
        ("own-code", "load"): 3 * MS,
        ("allocation", "cudaHostAlloc"): MS,
        ("no-work", BEFORE): 4 * MS,
    }


def copying(capture: Capture, kind: int, host: int, lasts: int) -> None:
    """Ten kernels 10 ms apart, before each a copy whose call lasts so long."""
    for i in range(1, 11):
        now = i * 10 * MS
        call = capture.call("cudaMemcpyAsync", now - lasts - 10 * US, now - 10 * US)
        capture.copy(now - 12 * US, now - 11 * US, call, kind, host=host)
        capture.kernel(now, now + MS, capture.call("cudaLaunchKernel", now - 8 * US, now - 4 * US))


@pytest.mark.parametrize(
    ("kind", "host", "cause", "name", "says"),
    [
        (HTOD, PAGEABLE, "copy", "cudaMemcpyAsync (pageable)", "waits for copies of pageable memory"),
        (HTOD, PINNED, "copy", "cudaMemcpyAsync", "waits for copies"),
        (DTOD, DEVICE, "slow-launch", "cudaMemcpyAsync (within GPUs)", ""),
    ],
)
def test_only_copies_of_pageable_memory_are_said_to_be(
    capture: Capture, tmp_path: Path, kind: int, host: int, cause: str, name: str, says: str
) -> None:
    capture.kernel(0, MS, capture.call("cudaLaunchKernel", -20, -10))
    copying(capture, kind, host, 5 * MS)
    trace = capture.trace(tmp_path)
    assert told(trace)[cause, name] == 10 * (5 * MS - US)
    said = [one.message for one in diagnose(trace).findings if one.rule == "blocking-copies"]
    assert [one.endswith(says) for one in said] == [True] * bool(says)


EAGER = "AMD-AGI__TraceLens__eager_trace.json.gz"


@pytest.mark.parametrize("way", ["in columns"], indirect=True)
def test_idle_time_in_copies_of_a_public_trace_is_told_by_what_they_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_PART", 10_000)
    if not (path := SAMPLES / "public" / EAGER).exists():
        pytest.skip("needs ../shared/samples/public: captures of others, which are not shipped")
    with gzip.open(path) as file:
        events = [one for one in json.load(file)["traceEvents"] if one.get("ph") == "X"]
    works = [one for one in events if one["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}]
    busy: list[list[float]] = []
    for start, end in sorted((one["ts"], one["ts"] + one["dur"]) for one in works):
        if busy and start <= busy[-1][1]:
            busy[-1][1] = max(busy[-1][1], end)
        else:
            busy.append([start, end])
    copied = {one["args"]["correlation"]: one["name"] for one in works if one["cat"] == "gpu_memcpy"}
    idle: Counter[str] = Counter()
    for one in events:
        if one["cat"] == "cuda_runtime" and "Memcpy" in one["name"]:
            start, end = one["ts"], one["ts"] + one["dur"]
            idle[copied[one["args"]["correlation"]]] += end - start
            idle[copied[one["args"]["correlation"]]] -= sum(max(0, min(end, b) - max(start, a)) for a, b in busy)
    found = told(load(path))
    assert {key: ns / 1000 for key, ns in found.items() if "Memcpy" in key[1]} == {
        ("launch", "cudaMemcpyAsync (within GPUs)"): pytest.approx(idle["Memcpy DtoD (Device -> Device)"], abs=1),
        ("copy", "cudaMemcpyAsync"): pytest.approx(idle["Memcpy HtoD (Pinned -> Device)"], abs=1),
        ("copy", "cudaMemcpyAsync (pageable)"): pytest.approx(idle["Memcpy HtoD (Pageable -> Device)"], abs=1),
    }
    assert [one for one in diagnose(load(path)).findings if one.rule == "blocking-copies"] == []


AMD = "AMD-AGI__TraceLens__vllm_prefilldecode_piecewise_graph_execution.json.gz"


@pytest.mark.parametrize("way", ["in columns"], indirect=True)
def test_the_first_launch_of_a_public_trace_waits_as_long_as_its_events_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_PART", 10_000)
    if not (path := SAMPLES / "public" / AMD).exists():
        pytest.skip("needs ../shared/samples/public: captures of others, which are not shipped")
    with gzip.open(path) as file:
        events = [one for one in json.load(file)["traceEvents"] if one.get("ph") == "X"]
    first = min(
        (one for one in events if one["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}), key=lambda one: one["ts"]
    )
    (call,) = (
        one
        for one in events
        if one["cat"] == "cuda_runtime" and one["args"]["correlation"] == first["args"]["correlation"]
    )
    us = first["ts"] - call["ts"] - call["dur"]
    assert us > 147_000
    assert all_told(load(path))["queued", ""] == pytest.approx(us * 1000, abs=2)
    assert "queued-work" not in {one.rule for one in diagnose(load(path)).findings}, "it happens once"


def test_a_few_graphs_without_work_lie_at_the_edges_of_the_capture(capture: Capture, tmp_path: Path) -> None:
    for start in (0, MS):
        capture.kernel(start + 50 * US, start + 100 * US, capture.call("cudaGraphLaunch", start, start + 40 * US))
    trace = graphs_untraced(capture, 2 * MS).trace(tmp_path)
    assert not idle_account(trace).unknown
    assert trace.why_missing(What("kernels in CUDA graphs")) is None


def test_without_os_calls_time_outside_cuda_is_not_called_own_code(tmp_path: Path) -> None:
    capture = Capture()
    capture.nvtx("sample", 2 * MS, 5 * MS)
    trace = pair(capture, (10 * MS, 10 * MS)).trace(tmp_path)
    assert told(trace) == {("unknown", NOT_TRACED): 6 * MS, ("own-code", "sample"): 3 * MS}
    (missing,) = idle_account(trace).unknown
    assert "osrt" in missing.why.remedy


def test_without_any_cuda_call_nothing_is_told_of_the_cpu(tmp_path: Path) -> None:
    capture = Capture()
    capture.kernel(0, MS, -1)
    capture.kernel(3 * MS, 4 * MS, -1)
    assert told(capture.trace(tmp_path)) == {("unknown", NOT_LAUNCHED): 2 * MS}


def test_each_process_counts_its_own_launches(capture: Capture, tmp_path: Path) -> None:
    """The same correlation id in another process is another call."""
    pair(capture, (10 * MS - 10 * US, 10 * MS))
    capture.calls = 1
    capture.call("cudaLaunchKernel", 0, 10 * MS, pid=200, tid=201)
    assert told(capture.trace(tmp_path))["own-code", ""] == 9 * MS - 10 * US


def test_gpus_are_accounted_for_apart_and_in_sum(capture: Capture, tmp_path: Path) -> None:
    pair(capture, (10 * MS, 10 * MS))
    capture.kernel(0, 2 * MS, capture.call("cudaLaunchKernel", -40, -30), gpu=1)
    trace = capture.trace(tmp_path)
    first, second = idle_account(trace).gpus
    assert (first.gpu, second.gpu) == ("gpu:0", "gpu:1")
    assert (second.busy_ns, second.idle_ns) == (2 * MS, 9 * MS + 40)
    view = idle_view(trace)
    assert view.total is not None
    assert view.total.idle_ns == first.idle_ns + second.idle_ns == sum(row.ns for row in view.total.rows)
    assert sum(row.ns for row in view.total.causes) == view.total.idle_ns


def test_a_gap_under_which_a_call_had_waited_is_marked_so(capture: Capture, tmp_path: Path) -> None:
    copy = capture.call("cudaMemcpyAsync", 100, MS + 50 * US)
    capture.copy(MS - 10, MS, copy, DTOH, host=PAGEABLE)
    capture.kernel(0, MS - 100, capture.call("cudaLaunchKernel", -20, -10))
    capture.kernel(2 * MS, 3 * MS, capture.call("cudaLaunchKernel", 2 * MS - 5 * US, 2 * MS))
    marked = {(part.cause, part.drained_by) for part in only(capture.trace(tmp_path)).parts if part.ns > 100}
    assert marked == {
        (Cause.COPY, Cause.COPY),
        (Cause.OWN_CODE, Cause.COPY),
        (Cause.LAUNCH, Cause.COPY),
    }


def test_a_gpus_time_is_pictured_from_left_to_right(capture: Capture, tmp_path: Path) -> None:
    capture.kernel(0, 30 * MS, capture.call("cudaLaunchKernel", 0, 10))
    capture.kernel(60 * MS - US, 60 * MS, capture.call("cudaLaunchKernel", 30 * MS, 30 * MS + 10))
    view = idle_view(capture.trace(tmp_path))
    assert view.total is not None
    assert picture(view.total) == "█" * 30 + " " * 29 + "▁"
    assert picture(view.total, ASCII_LEVELS) == "#" * 30 + " " * 29 + "_"


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**8)), min_size=1, max_size=30), st.data())
def test_each_cell_of_the_line_is_the_work_of_its_stretch_by_interval_arithmetic(
    rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    works = sorted((start, start + length) for start, length in rows)
    starts, ends = (array("q", column) for column in zip(*works, strict=True))
    work = GpuWork(starts, ends, array("q", [-1] * len(works)), array("q", accumulate(ends, max)))
    start = works[0][0] - data.draw(st.integers(0, 10**9))
    end = work.reach[-1] + data.draw(st.integers(0, 10**9))
    shares = busy_over_time(work, start, end, STEPS)
    assert len(shares) == min(STEPS, end - start)
    for i, share in enumerate(shares):
        low, high = (start + (end - start) * step // len(shares) for step in (i, i + 1))
        clipped = [(max(low, a), min(high, b)) for a, b in works if max(low, a) < min(high, b)]
        ns, covered = 0, low
        for a, b in clipped:
            ns += max(0, b - max(a, covered))
            covered = max(covered, b)
        assert share == pytest.approx(ns / (high - low), abs=1e-12)
        assert (share == 0) == (ns == 0), "a level above the lowest says that there was work"
        assert (share == 1) == (ns == high - low)


def test_a_line_of_stretches_without_work_has_no_mark_there() -> None:
    starts = array("q", [95_000_003, 345_678_901, 618_000_007])
    ends = array("q", [95_000_103, 345_679_901, 618_123_457])
    work = GpuWork(starts, ends, array("q", [-1] * 3), ends)
    shares = busy_over_time(work, 95_000_003, 618_123_457, STEPS)
    assert [i for i, share in enumerate(shares) if share] == [0, 28, 59]


def test_a_trace_without_work_has_no_account() -> None:
    assert idle_account(Trace(Origin("live"))).gpus == ()
    assert idle_view(Trace(Origin("ncu-rep"))).why_not is not None


def test_every_cause_has_a_title() -> None:
    assert set(TITLES) == set(Cause)


_WORKS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 300), st.integers(0, 1)), min_size=1, max_size=30)
_SPANS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 900)), max_size=12)


@settings(deadline=None, max_examples=15)
@given(works=_WORKS, waits=_SPANS, system=_SPANS, ranges=_SPANS, off=_SPANS)
def test_it_adds_up_whatever_lies_over_each_other(
    tmp_path_factory: pytest.TempPathFactory,
    works: list[tuple[int, int, int]],
    waits: list[tuple[int, int]],
    system: list[tuple[int, int]],
    ranges: list[tuple[int, int]],
    off: list[tuple[int, int]],
) -> None:
    capture = Capture()
    for start, length, gpu in works:
        capture.kernel(start, start + length, capture.call("cudaLaunchKernel", start - 50, start + 20), gpu=gpu)
    for start, length in waits:
        capture.call("cudaStreamSynchronize", start, start + length)
    for start, length in system:
        capture.os("read", start, start + length)
    for start, length in ranges:
        capture.nvtx("range", start, start + length)
    for start, length in off:
        capture.off_cpu(start, start + length)
    account = idle_account(capture.trace(tmp_path_factory.mktemp("capture")))
    for one in account.gpus:
        own = [(start, start + length) for start, length, device in works if f"gpu:{device}" == one.gpu]
        busy = {t for start, end in own for t in range(start, end)}
        assert one.busy_ns == len(busy)
        assert sum(part.ns for part in one.parts) == one.idle_ns == one.end_ns - one.start_ns - len(busy)
        shares = one.busy_over_time
        edges = [one.start_ns + (one.end_ns - one.start_ns) * i // len(shares) for i in range(len(shares) + 1)]
        lengths = [high - low for low, high in pairwise(edges)]
        assert sum(map(mul, shares, lengths)) == pytest.approx(len(busy), abs=1e-6)


_AT, _NS = st.integers(0, 50), st.integers(0, 12)
_CALLED = ["cudaLaunchKernel", "cudaGraphLaunch", "cudaStreamSynchronize", "cudaMalloc", "cudaFree"]
_CALLS = st.lists(st.tuples(st.sampled_from(_CALLED), _AT, _NS, st.integers(0, 1)), max_size=20)
_KERNELS = st.lists(st.tuples(_AT, st.integers(0, 4), st.integers(-2, 20)), min_size=1, max_size=15)
_BESIDES = st.lists(st.tuples(st.sampled_from(["os", "off", "range", "sample"]), _AT, _NS), max_size=20)


@settings(deadline=None, max_examples=15)
@given(calls=_CALLS, kernels=_KERNELS, besides=_BESIDES, unit=st.sampled_from([1, US, 100 * US]))
def test_gaps_in_columns_have_the_account_of_gaps_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    calls: list[tuple[str, int, int, int]],
    kernels: list[tuple[int, int, int]],
    besides: list[tuple[str, int, int]],
    unit: int,
) -> None:
    capture = Capture()
    joins = [capture.call(name, at * unit, (at + ns) * unit, tid=TID + tid) for name, at, ns, tid in calls]
    for at, ns, call in kernels:
        join = joins[call] if 0 <= call < len(joins) else 10**6 + call
        capture.kernel(at * unit, (at + ns) * unit, join, gpu=call % 2)
    for what, at, ns in besides:
        start, end = at * unit, (at + ns) * unit
        if what == "sample":
            capture.sample(start, f"function {ns % 3}")
        elif what == "os":
            capture.os("read", start, end)
        elif what == "off":
            capture.off_cpu(start, end)
        else:
            capture.nvtx(f"range {ns % 3}", start, end)
    trace = capture.trace(tmp_path_factory.mktemp("capture"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "LONG", 1)
        in_columns = idle_account.__wrapped__(trace)
        patch.setattr(columns, "LONG", 1 << 40)
        one_by_one = idle_account.__wrapped__(trace)
    assert in_columns == one_by_one


def busy_by_sql(path: Path) -> dict[int, int]:
    """Time with any work, by GPU: each moment from which on there is none counts from the latest end before it."""
    tables = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        there = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        named = [f"CUPTI_ACTIVITY_KIND_{table}" for table in tables]
        works = " UNION ALL ".join(f'SELECT deviceId, start, "end" FROM {name}' for name in named if name in there)
        rows = database.execute(
            f"""WITH works(gpu, start, stop) AS ({works}), reached AS (
                    SELECT gpu, start, stop, max(stop) OVER (
                        PARTITION BY gpu ORDER BY start, stop ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
                    FROM works)
                SELECT gpu, sum(max(0, stop - max(start, coalesce(reach, start)))) FROM reached GROUP BY gpu"""
        )
        return dict(rows)


def busy_time_equals_plain_sql(path: Path, trace: Trace) -> None:
    account = idle_account(trace)
    assert gpus_at_work(trace) == {gpu.gpu for gpu in account.gpus}
    assert {int(gpu.gpu.split(":")[1]): gpu.busy_ns for gpu in account.gpus} == busy_by_sql(path)
    for gpu in account.gpus:
        assert sum(part.ns for part in gpu.parts) == gpu.idle_ns
