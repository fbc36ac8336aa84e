"""PyTorch traces: every value beside what plain JSON and arithmetic written apart give, on all traces at hand."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop import ids, whats
from llmtop.analysis.kernels.absent import no_kernels
from llmtop.cli.report_html import report_html
from llmtop.cli.report_md import report_md
from llmtop.cli.report_text import report_text
from llmtop.cli.text_layout import TextStyle
from llmtop.errors import FileError
from llmtop.model import SpanTable, Trace, TrackKind
from llmtop.parsers import kineto_json
from llmtop.parsers.progress import CURRENT, ReadingProgress
from llmtop.parsers.registry import load
from tests.parsers.kineto_files import (
    QWEN,
    SHIPPED,
    document,
    few_events,
    kernel_pair,
    kineto_traces,
    needs_qwen,
    span,
    written,
)

KINDS = {
    "kernel": ("kernel",),
    "memcpy": ("gpu_memcpy", "memcpy"),
    "memset": ("gpu_memset", "memset"),
    "python": ("python_function",),
    "overhead": ("overhead",),
    "sync": ("cuda_sync",),
}


Both: TypeAlias = tuple[list[dict[str, Any]], Trace]


@pytest.fixture(scope="module", params=kineto_traces(), ids=lambda path: path.name[:40])
def both(request: pytest.FixtureRequest) -> Both:
    """The events as JSON has them, and the trace; read once, as some are large."""
    return document(request.param)["traceEvents"], load(request.param)


def ns(microseconds: object) -> int:
    return int(Decimal(str(microseconds)) * 1000)


def opened(tmp_path: Path, data: bytes) -> Trace:
    path = tmp_path / "some.json"
    path.write_bytes(data)
    return load(path)


def opened_or_refused(tmp_path: Path, data: bytes) -> Trace | str:
    try:
        return opened(tmp_path, data)
    except FileError as error:
        return str(error)


def of_kind(events: list[dict[str, Any]], *categories: str) -> list[dict[str, Any]]:
    return [one for one in events if one.get("ph") == "X" and one.get("cat", "").lower() in categories]


def triples(table: SpanTable, zero: int) -> Counter[tuple[str, int, int]]:
    rows = zip(table.name_id, table.start_ns, table.end_ns, strict=True)
    return Counter((table.names[name], start + zero, end + zero) for name, start, end in rows)


def zero_ns(events: list[dict[str, Any]]) -> int:
    return min(ns(one["ts"]) for one in events if one.get("ph") == "X" and one.get("cat") != "Trace")


def told(events: list[dict[str, Any]]) -> Counter[tuple[str, int, int]]:
    return Counter((one["name"], ns(one["ts"]), ns(one["ts"]) + ns(one["dur"])) for one in events)


def test_spans_have_the_names_and_the_times_of_the_file(both: Both) -> None:
    events, trace = both
    zero = zero_ns(events)
    steps = [one for one in of_kind(events, "operator") if one["name"].startswith("ProfilerStep")]
    operators = [one for one in of_kind(events, "cpu_op", "operator") if one not in steps]
    calls = of_kind(events, "cuda_runtime", "cuda_driver", "runtime")
    expected = {
        "kernel": of_kind(events, "kernel"),
        "python": of_kind(events, "python_function"),
        "operator": operators,
        "nvtx": [*of_kind(events, "user_annotation"), *steps],
        "launch": [one for one in calls if "Launch" in one["name"]],
        "call": [one for one in calls if "Launch" not in one["name"]],
        "sync": of_kind(events, "cuda_sync"),
        "gpu-range": of_kind(events, "gpu_user_annotation"),
    }
    read = {kind: triples(trace.spans[kind], zero) for kind in expected if kind in trace.spans}
    assert read == {kind: told(own) for kind, own in expected.items() if own}
    for kind in ("memcpy", "memset"):
        table, own = trace.spans.get(kind), of_kind(events, *KINDS[kind])
        assert (0 if table is None else len(table)) == len(own)
        if table is not None:
            assert sum(table.amount) == sum(one["args"]["bytes"] for one in own)
            assert sum(table.end_ns) - sum(table.start_ns) == sum(ns(one["dur"]) for one in own)


def test_tables_are_in_order_and_name_tracks_that_there_are(both: Both) -> None:
    _, trace = both
    for table in trace.spans.values():
        assert list(table.start_ns) == sorted(table.start_ns)
        assert set(table.tracks) <= trace.tracks.keys()
        assert {track.parent for track in trace.tracks.values()} - {None} <= trace.tracks.keys()
    assert trace.start_ns <= trace.end_ns


def test_launches_of_kernels_are_those_of_the_file(both: Both) -> None:
    events, trace = both
    own = sorted(of_kind(events, "kernel"), key=lambda one: ns(one["ts"]))
    table = trace.kernels
    assert table is not None
    assert len(table) == len(own)
    seen, expected = Counter[object](), Counter[object]()
    for i in range(len(table)):
        sizes = (*(column[i] for column in table.grid), *(column[i] for column in table.block))
        facts = (table.device[i], table.stream[i], table.registers[i], table.shared_bytes[i], table.duration_ns[i])
        seen[table.name(i), sizes, facts] += 1
    for one in own:
        args = one["args"]
        more = (args.get("registers per thread", -1), args.get("shared memory", -1), float(ns(one["dur"])))
        expected[
            one["name"],
            (*args.get("grid", [-1] * 3), *args.get("block", [-1] * 3)),
            (args["device"], args["stream"], *more),
        ] += 1
    assert seen == expected


def test_kernels_are_joined_to_the_calls_that_launched_them(both: Both) -> None:
    events, trace = both
    if "kernel" not in trace.spans:
        pytest.skip("has no kernels")
    calls = of_kind(events, "cuda_runtime", "cuda_driver", "runtime")
    by_join = {one["args"]["correlation"] for one in calls if "correlation" in one["args"]} - {0}
    joined = sum(one["args"]["correlation"] in by_join for one in of_kind(events, "kernel"))
    launches = {join for kind in ("launch", "call") for join in trace.spans[kind].correlation} - {-1}
    assert sum(join in launches for join in trace.spans["kernel"].correlation) == joined
    assert joined > 0


def test_memory_is_what_each_allocation_left(both: Both) -> None:
    events, trace = both
    last: dict[tuple[object, str], tuple[int, float]] = {}
    counted: Counter[tuple[object, str]] = Counter()
    for one in (one for one in events if one.get("name") == "[memory]"):
        args = one["args"]
        device = ids.gpu(args["Device Id"]) if args["Device Type"] == 1 else ids.process(int(one["pid"]))
        if "Total Allocated" in args:
            told_now = {"torch.allocated": args["Total Allocated"]}
            if args["Device Type"] == 1:
                told_now["torch.reserved"] = args["Total Reserved"]
        else:
            before = last.get((device, "torch.allocated_since_start"), (0, 0.0))[1]
            told_now = {"torch.allocated_since_start": before + args["Bytes"]}
        for name, value in told_now.items():
            counted[device, name] += 1
            if ns(one["ts"]) >= last.get((device, name), (0, 0.0))[0]:
                last[device, name] = ns(one["ts"]), value
    assert {key: len(series) for key, series in trace.series.items()} == counted
    assert {key: series.last for key, series in trace.series.items()} == {
        key: value for key, (_, value) in last.items()
    }


def test_stacks_add_up_to_the_time_that_threads_spent_in_spans(both: Both) -> None:
    _, trace = both
    by_thread: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for kind in ("python", "operator", "call", "launch"):
        table = trace.spans.get(kind)
        for i in range(len(table) if table is not None else 0):
            assert table is not None
            by_thread[table.tracks[table.track_id[i]]].append((table.start_ns[i], table.end_ns[i]))
    spent = Counter[str]()
    for thread, pairs in by_thread.items():
        until = -math.inf
        for start, end in sorted(pairs, key=lambda pair: (pair[0], -pair[1])):
            if start >= until:  # what begins within another one ends with it
                spent[thread] += end - start
                until = end
    assert Counter({thread: int(sum(s.weight for s in trace.stacks if s.track == thread)) for thread in spent}) == spent
    assert all(stack.weight > 0 for stack in trace.stacks)


@needs_qwen
def test_kernel_times_are_those_of_tracelens() -> None:
    """AMD-AGI/TraceLens, tests/traces/h100: its own kernel_summary.csv of this trace."""
    table = load(QWEN).kernels
    assert table is not None
    rows = list(csv.DictReader((QWEN.parent / "AMD-AGI__TraceLens__kernel_summary.csv").read_text().splitlines()))
    assert sum(table.duration_ns) == pytest.approx(45_432_700, abs=50)
    theirs, ours = defaultdict[str, list[float]](lambda: [0, 0.0]), defaultdict[str, list[float]](lambda: [0, 0.0])
    for row in rows:
        theirs[row["Kernel name"]][0] += int(row["Kernel duration (µs)_count"])
        theirs[row["Kernel name"]][1] += float(row["Kernel duration (µs)_sum"])
    for i in range(len(table)):
        ours[table.name(i)][0] += 1
        ours[table.name(i)][1] += table.duration_ns[i] / 1000
    assert ours.keys() == theirs.keys()
    assert {name: ours[name] == pytest.approx(theirs[name], abs=0.01) for name in ours} == dict.fromkeys(ours, True)


@needs_qwen
def test_busy_time_is_that_of_tracelens() -> None:
    """Its gpu_timeline.csv is of the one step, from its first work to its last."""
    trace = load(QWEN)
    step = trace.spans["gpu-range"]
    pairs = sorted(
        (start, end)
        for kind in ("kernel", "memcpy", "memset")
        for start, end in zip(trace.spans[kind].start_ns, trace.spans[kind].end_ns, strict=True)
        if step.start_ns[0] <= start and end <= step.end_ns[0]
    )
    busy, until = 0, 0
    for start, end in pairs:
        busy += max(0, end - max(start, until))
        until = max(until, end)
    rows = csv.DictReader((QWEN.parent / "AMD-AGI__TraceLens__gpu_timeline.csv").read_text().splitlines())
    theirs = {row["type"]: float(row["time ms"]) * 1e6 for row in rows}
    assert (busy, until - pairs[0][0]) == pytest.approx((theirs["busy_time"], theirs["total_time"]), abs=20)


def test_facts_of_the_shipped_trace() -> None:
    trace = load(SHIPPED)
    assert trace.origin.facts == {
        "recorded with": "record_shapes",
        "CUDA runtime": "13.0",
        "CUDA driver": "13.0",
        "recorded": "207 ms",
        "first event": "2026-11-21 01:23:56.385508 UTC",
        "times": "to the nanosecond",
    }
    assert trace.issues == ()
    assert trace.tracks[ids.gpu(0)].facts == {
        "sm_count": 132, "memory_total": 85017493504, "compute_capability": "9.0",
    }  # fmt: skip
    assert [track.name for track in trace.tracks_of(TrackKind.STREAM)] == ["stream 7"]
    assert trace.why_missing(whats.SHAPES) is None
    assert str(trace.why_missing(whats.PYTHON_CALLS)) == (
        "recorded without Python's functions (torch.profiler.profile(..., with_stack=True))"
    )


@pytest.mark.parametrize(("number", "facts"), [(0, {}), (1, {"sm_count": 1, "memory_total": 1}), ("8", {}), (-1, {})])
def test_what_a_gpu_has_none_of_is_not_told(number: object, facts: dict[str, int], tmp_path: Path) -> None:
    device = {"id": 0, "name": "NVIDIA X", "numSms": number, "totalGlobalMem": number}
    trace = opened(tmp_path, written(few_events(), deviceProperties=[device]))
    assert trace.tracks[ids.gpu(0)].facts == facts


@pytest.mark.parametrize("indent", [None, 0, 2, 4])
def test_any_layout_is_read_alike(indent: int | None, tmp_path: Path) -> None:
    trace = opened(tmp_path, written(few_events(), indent))
    assert {kind: len(table) for kind, table in trace.spans.items()} == {
        "nvtx": 1, "operator": 1, "kernel": 2, "memcpy": 1, "call": 1, "launch": 2,
    }  # fmt: skip
    copies, table = trace.spans["memcpy"], trace.kernels
    assert (copies.names, list(copies.amount), list(copies.correlation)) == (("copy DtoH (pageable)",), [4096.0], [3])
    assert table is not None
    assert (table.functions, [c[0] for c in (*table.grid, *table.block)]) == (("step",), [4, 2, 1, 128, 1, 1])
    assert (table.registers[0], table.shared_bytes[0], list(table.start_ns)) == (32, 1024, [30_000, 70_000])
    assert (trace.start_ns, trace.end_ns, trace.origin.gpu) == (0, 200_000, "NVIDIA X")
    assert {stack.frames: stack.weight for stack in trace.stacks} == {
        ("aten::mm",): 84_000, ("aten::mm", "cudaLaunchKernel"): 16_000, ("cudaMemcpyAsync",): 20_000,
    }  # fmt: skip


def test_keys_in_another_order_are_read_alike(tmp_path: Path) -> None:
    turned = [dict(reversed(one.items())) for one in few_events()]
    read, again = (opened(tmp_path, written(events)) for events in (few_events(), turned))
    for kind, table in read.spans.items():
        assert triples(again.spans[kind], 0) == triples(table, 0)
    assert list(again.stacks) == list(read.stacks)


def test_no_digit_of_a_time_is_lost(tmp_path: Path) -> None:
    events = [
        span("cpu_op", "a", 4367210385508.747, 1.003),
        span("cpu_op", "b", 4367210385509.75, 2.5),
        {"cat": "cpu_op", "ph": "X", "name": "c", "pid": 1, "tid": 1, "ts": 4367210385512.251, "dur": 0.5},
    ]
    table = opened(tmp_path, written(events, baseTimeNanoseconds=10**18)).spans["operator"]
    assert list(table.start_ns) == [0, 1003, 3504]
    assert list(table.end_ns) == [1003, 3503, 4004]


@pytest.mark.parametrize(
    ("at_ns", "is_told"),
    [(10**18, False), (10**18 + 1, True), (4 * 10**18 - 1, True), (4 * 10**18, False)],
)
def test_a_trace_on_the_clock_on_the_wall_tells_when_it_began(tmp_path: Path, at_ns: int, is_told: bool) -> None:
    first_ns = 1_000_000
    trace = opened(tmp_path, written(few_events(), baseTimeNanoseconds=at_ns - first_ns))
    assert trace.origin.utc_ns == (at_ns if is_told else None)


def test_whole_microseconds_are_said_to_be_no_finer(tmp_path: Path) -> None:
    trace = opened(tmp_path, written(few_events()))
    assert trace.origin.facts["times"] == "whole microseconds"
    assert [issue.code for issue in trace.issues] == ["kineto-microseconds"]


def test_names_of_processes_and_threads_are_those_of_the_program(tmp_path: Path) -> None:
    named = [
        {"ph": "M", "name": "process_name", "pid": 10, "args": {"name": "python3"}},
        {"ph": "M", "name": "thread_name", "pid": 10, "tid": 10, "args": {"name": "thread 10 (main)\x1b"}},
    ]
    cost = span("overhead", "Activity Buffer Request", 1000, 5, -1, tid=0)
    tracks = opened(tmp_path, written([*few_events(), *named, cost])).tracks
    assert (tracks[ids.process(-1)].name, tracks[ids.thread(-1, 0)].name) == ("profiler", "on some thread")
    assert (tracks[ids.process(10)].name, tracks[ids.thread(10, 10)].name) == ("python3 10", "thread 10 (main)␛")
    assert tracks[ids.stream(ids.gpu(0), 10, 7)].parent == ids.gpu(0)


def test_spans_of_other_tools_are_regions(tmp_path: Path) -> None:
    events = [
        {"ph": "B", "name": "outer", "pid": "web", "tid": "main", "ts": 10},
        {"ph": "B", "name": "inner", "pid": "web", "tid": "main", "ts": 12},
        {"ph": "E", "pid": "web", "tid": "main", "ts": 15},
        {"ph": "E", "pid": "web", "tid": "main", "ts": 20},
        {"ph": "b", "cat": "net", "id": 1, "name": "load", "pid": "web", "tid": "main", "ts": 11},
        {"ph": "e", "cat": "net", "id": 1, "name": "load", "pid": "web", "tid": "io", "ts": 18},
        {"ph": "E", "pid": "web", "tid": "main", "ts": 30},
        {"ph": "C", "name": "heap", "pid": "web", "ts": 12, "args": {"used": 3, "free": 4.5}},
    ]
    trace = opened(tmp_path, json.dumps(events).encode())
    assert triples(trace.spans["region"], 10_000) == Counter(
        {("outer", 10_000, 20_000): 1, ("inner", 12_000, 15_000): 1, ("load", 11_000, 18_000): 1}
    )
    assert {name: list(series) for (_, name), series in trace.series.items()} == {
        "counter.heap used": [(2000, 3.0)],
        "counter.heap free": [(2000, 4.5)],
    }
    assert [issue.code for issue in trace.issues] == ["kineto-times", "kineto-microseconds"]
    assert {track.name for track in trace.tracks.values()} == {"web", "main"}


def test_counters_are_of_the_gpu_that_their_row_or_their_name_tells_else_of_their_process(tmp_path: Path) -> None:
    def sample(name: str, pid: object, at: int, **args: object) -> dict[str, Any]:
        return {"ph": "C", "name": name, "pid": pid, "ts": at, "args": args}

    events = [
        span("user_annotation", "all", 1000, 100),
        sample("load", "GPU 3", 1020, value=0.5),
        sample("load", "GPU 3", 1010, load="7"),
        sample("Device 2 heat", 10, 1010, celsius=60),
        sample("heap", 10, 1010, value=1, odd="much"),
        sample("heap", 11, 1010, value=2, none=None),
        {"ph": "C", "name": "no time", "pid": 10, "args": {"value": 1}},
        {"ph": "C", "name": "no numbers", "pid": 10, "ts": 1010, "args": [1]},
    ]
    trace = opened(tmp_path, written(events))
    assert {key: list(series) for key, series in trace.series.items()} == {
        (ids.gpu(3), "counter.load"): [(10_000, 7.0), (20_000, 0.5)],
        (ids.gpu(2), "counter.Device 2 heat celsius"): [(10_000, 60.0)],
        (ids.process(10), "counter.heap"): [(10_000, 1.0)],
        (ids.process(11), "counter.heap"): [(10_000, 2.0)],
    }
    assert [issue.count for issue in trace.issues if issue.code == "kineto-times"] == [2]


DEFECTS = {
    "quotes": (b'"aten::mm"', b'"load "C" of "x""', 'load "C" of "x"'),
    "a path": (b'"aten::mm"', rb'"C:\users\new"', "C:\\users\\new"),
    "a path with an end": (b'"aten::mm"', b'"D:\\dir\\"', "D:\\dir\\"),
    "a control character": (b'"aten::mm"', b'"a\x01b\nc"', "a\u2401b\u240ac"),
    "no UTF-8": (b'"aten::mm"', b'"a\xff\xfeb"', "a\ufffd\ufffdb"),
    "an escape": (b'"aten::mm"', rb'"\u00e9\"\ud800"', 'é"\ufffd'),
}


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.parametrize("indent", [None, 2])
def test_names_that_are_written_wrong_are_read(defect: str, indent: int | None, tmp_path: Path) -> None:
    before, after, name = DEFECTS[defect]
    trace = opened(tmp_path, written(few_events(), indent).replace(before, after))
    assert trace.spans["operator"].names == (name,)
    assert sum(map(len, trace.spans.values())) == len(few_events())


def test_trailing_commas_and_numbers_of_any_length_are_read(tmp_path: Path) -> None:
    data = written([*few_events(), *kernel_pair(2**63 + 5, 1200), span("cpu_op", "x", 10**30, 1)])
    trace = opened(tmp_path, data.replace(b'  ],\n  "traceName"', b',\n  ],\n  "traceName"'))
    assert len(trace.spans["kernel"]) == 3
    assert list(trace.spans["kernel"].correlation) == [1, 2, -1]
    assert [issue.code for issue in trace.issues] == ["kineto-times", "kineto-microseconds"]


@pytest.mark.parametrize(
    ("event", "odd"),
    [
        (span("cpu_op", "a", "soon", 5), 1),
        (span("cpu_op", "a", 10, -1), 1),
        (span("cpu_op", "a", 10, 0), 0),
        ({"ph": "B", "name": "a", "pid": 1, "tid": 1, "ts": None}, 1),
        ({"ph": "B", "name": "a", "pid": 1, "tid": 1, "ts": 10}, 1),
        ({"ph": "E", "name": "a", "pid": 1, "tid": 1, "ts": 10}, 1),
        ({"ph": "C", "name": "a", "pid": 1, "args": {"a": 1}}, 1),
    ],
)
def test_each_event_without_a_usable_time_is_counted_once(tmp_path: Path, event: dict[str, Any], odd: int) -> None:
    trace = opened(tmp_path, written([*few_events(), event]))
    assert [issue.count for issue in trace.issues if issue.code == "kineto-times"] == [odd] * bool(odd)


def test_what_cannot_be_read_is_counted_and_costs_only_itself(tmp_path: Path) -> None:
    data = written(few_events()).replace(b'"name": "aten::mm"', b'"name": {]')
    trace = opened(tmp_path, data)
    assert sum(map(len, trace.spans.values())) == len(few_events()) - 1
    assert ("kineto-broken", 1) in [(issue.code, issue.count) for issue in trace.issues]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("chunk", [64, 1 << 22])
def test_a_cut_file_has_all_events_before_the_cut(
    indent: int | None, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto_json, "CHUNK", chunk)
    events = few_events()
    data = written(events, indent)
    begin, ends, depth = data.index(b"traceEvents"), [], 0
    for i in range(begin, data.rindex(b"]")):
        depth += {ord("{"): 1, ord("}"): -1}.get(data[i], 0)
        if data[i] == ord("}") and depth == 0:
            ends.append(i + 1)
    assert len(ends) == len(events)
    inside = range(data.index(b"[", begin) + 1, data.rindex(b"]"))
    near_ends = {end + by for end in ends for by in (-1, 0, 1, 2)} & set(inside)
    for cut in sorted({*near_ends, *inside[::23]}):
        whole = sum(end <= cut for end in ends)
        if not whole:
            with pytest.raises(FileError, match="holds no events"):
                opened(tmp_path, data[:cut])
            continue
        trace = opened(tmp_path, data[:cut])
        assert sum(map(len, trace.spans.values())) == whole
        (issue,) = (issue for issue in trace.issues if issue.code == "kineto-cut")
        left = len(data[ends[whole - 1] : cut].strip(b", \n"))
        assert f"the {whole} spans that are whole are shown" in issue.message
        assert (f"of another ({left} B) is left out" in issue.message) == (left > 0)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"schema": "1.1.1-chakra.0.0.4", "nodes": [{"id": 1}]}', "a PyTorch execution trace"),
        (b'{"a": 1}', "JSON, but no trace: it has no list traceEvents"),
        (b"[{}]", "holds no events: nothing was recorded"),
        (b'{"traceEvents": []}', "holds no events: nothing was recorded"),
        (b'{"traceEvents": [{"ph": "X", "na', "holds no events: what there is of them is cut or damaged"),
    ],
)
def test_what_is_no_trace_is_refused_in_a_line(data: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=said) as caught:
        opened(tmp_path, data)
    assert "\n" not in str(caught.value)


def test_steps_of_joined_files_are_all_read(tmp_path: Path) -> None:
    data = written(few_events()) + b"\n" + written(kernel_pair(9, 5000))
    trace = opened(tmp_path, data)
    assert len(trace.spans["kernel"]) == 3
    assert not [issue for issue in trace.issues if issue.code == "kineto-cut"]
    assert [issue.count for issue in trace.issues if issue.code == "kineto-joined"] == [1]
    alone = opened(tmp_path, written(few_events()))
    assert not [issue for issue in alone.issues if issue.code == "kineto-joined"]


WHOLE = written(few_events(), baseTimeNanoseconds=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, len(WHOLE)), st.integers(0, 30), st.binary(max_size=30), st.integers(20, 300))
def test_no_bytes_give_a_traceback(tmp_path: Path, at: int, removed: int, added: bytes, chunk: int) -> None:
    before, kineto_json.CHUNK = kineto_json.CHUNK, chunk
    try:
        read = opened_or_refused(tmp_path, WHOLE[:at] + added + WHOLE[at + removed :])
    finally:
        kineto_json.CHUNK = before
    assert "\n" not in read if isinstance(read, str) else read.spans or read.series


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.recursive(
        st.none()
        | st.integers()
        | st.floats()
        | st.text()
        | st.sampled_from(["X", "B", "E", "M", "C", "i", "[memory]"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "grid"]), inner)
        ),
        max_leaves=20,
    )
)
def test_no_values_give_a_traceback(tmp_path: Path, value: object) -> None:
    event = few_events()[1] | (value if isinstance(value, dict) else {"args": value})
    trace = opened(tmp_path, json.dumps({"traceEvents": [value, event, *kernel_pair(1, 1)]}).encode())
    assert len(trace.spans["kernel"]) >= 1


def test_reading_tells_how_far_it_is_and_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_json, "CHUNK", 400)
    data = written(few_events())
    seen: list[str] = []

    class Watched(ReadingProgress):
        @property
        def is_stopped(self) -> bool:
            seen.append(self.text)
            return self.text[12:16] >= "50 %"

    at = CURRENT.set(Watched())
    try:
        with pytest.raises(FileError, match=r"some\.json: reading it was stopped"):
            opened(tmp_path, data)
    finally:
        CURRENT.reset(at)
    assert seen[1] == f"{100 * 400 // len(data)} %, Esc stops it"
    assert len(seen) < len(data) / 400


@pytest.mark.parametrize(
    ("digits", "ns"),
    [
        (None, 0),
        (b"5", 500),
        (b"0004", 0),
        (b"0006", 1),
        (b"123", 123),
        (b"5" + b"0" * 24, 500),
        (b"0" * 17 + b"9" * 9, 0),
    ],
)
def test_digits_behind_the_point_of_microseconds_however_many_are_nanoseconds(digits: bytes | None, ns: int) -> None:
    assert kineto_json._Thousandths()[digits] == ns


def test_a_cut_file_says_so_above_all_else(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    data = written(few_events())
    path.write_bytes(data[: data.index(b"void step")])
    trace = load(path)
    why = "the file ends before its list of events does, and no kernel stands before that"
    assert str(no_kernels(trace)) == f"{why} (copy it again)"
    text = "".join(report_text(trace, TextStyle(400))).splitlines()
    assert text[1].startswith("  damaged: the file ends before its list of events does")
    markdown, page = "".join(report_md(trace)), "".join(report_html(trace))
    assert markdown.index("damaged") < markdown.index("No kernels")
    assert page.index("damaged:</strong> the file ends before") < page.index("</header>")
