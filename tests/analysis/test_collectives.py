"""What kernels send to other ranks: sizes, groups and bandwidths, by PyTorch's and by NCCL's own words."""

from __future__ import annotations

import gzip
import json
import sqlite3
import struct
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from llmtop import ids
from llmtop.analysis.kernels.collective_clock import clocks
from llmtop.analysis.kernels.communication import communication
from llmtop.analysis.pages.cut import only_time
from llmtop.analysis.pages.launch import launch_view
from llmtop.analysis.timeline.collectives import Collective, collectives, speed_text
from llmtop.analysis.timeline.join import joined
from llmtop.analysis.timeline.span_facts import span_facts
from llmtop.analysis.timeline.span_rows import span_rows
from llmtop.analysis.timeline.spans import TraceTimeline
from llmtop.model import ClockBasis, ClockFit, Trace, Unknown
from llmtop.parsers.registry import load
from tests.kernel_traces import SAMPLES
from tests.nsys_capture import PID, TID, US, Capture, add_table, global_id

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def of(operation: str, ranks: int | None, size: int | None = 8_000_000) -> Collective:
    return Collective(operation, size, ranks=ranks)


@pytest.mark.parametrize(
    ("operation", "factor"),
    # The table of NCCL tests' doc/PERFORMANCE.md, for 8 ranks.
    [
        ("all-reduce", 2 * 7 / 8),
        ("all-gather", 7 / 8),
        ("reduce-scatter", 7 / 8),
        ("all-to-all", 7 / 8),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send", 1.0),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(operation: str, factor: float) -> None:
    algorithm, bus = of(operation, 8).bandwidths(1_000_000)
    assert algorithm == 8e9
    assert bus == pytest.approx(8e9 * factor)


def test_what_is_not_told_makes_no_bandwidth() -> None:
    assert of("all-reduce", None).bandwidths(1000) == (8e12, None)
    assert "how many ranks the group has is not in the capture" in speed_text(of("all-reduce", None), [1000])
    assert of("all-reduce", 2, None).bandwidths(1000) == (None, None)
    assert "does not say how much it sends" in speed_text(of("all-reduce", 2, None), [1000])
    assert of("broadcast", None).bandwidths(0) == (None, None)


# -- PyTorch ----------------------------------------------------------------------------------------------------------


def kernel(name: str, start: int, ns: int, **told: object) -> dict[str, Any]:
    args = {"device": 0, "stream": 7, "correlation": start, "grid": [1, 1, 1], "block": [32, 1, 1], **told}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": ns / 1000, "args": args}


def told(name: str, sent: int, got: int, group: str = "0", dtype: str = "BFloat16") -> dict[str, object]:
    return {
        "Collective name": name,
        "In msg nelems": sent,
        "Out msg nelems": got,
        "dtype": dtype,
        "Group size": 4,
        "Process Group Name": group,
        "Process Group Description": "tensor parallel" if group == "1" else "undefined",
        "Process Group Ranks": "[0, 1, 2, 3]",
    }


def pytorch(path: Path, *events: Mapping[str, Any]) -> Trace:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return load(path)


@pytest.mark.parametrize(
    ("name", "sent", "got", "operation", "size"),
    [
        ("allreduce", 1000, 1000, "all-reduce", 2000),
        ("_allgather_base", 1000, 4000, "all-gather", 8000),
        ("reduce_scatter_tensor_coalesced", 4000, 1000, "reduce-scatter", 8000),
        ("all_to_allv", 4000, 3000, "all-to-all", 8000),
        ("broadcast", 1000, 1000, "broadcast", 2000),
        ("recv", 0, 1000, "receive", 2000),
    ],
)
def test_the_size_is_that_of_nccl_tests(
    tmp_path: Path, name: str, sent: int, got: int, operation: str, size: int
) -> None:
    trace = pytorch(tmp_path / "t.json", kernel("gemm", 1, 100), kernel(ALL_REDUCE, 9, 500, **told(name, sent, got)))
    assert collectives(trace) == {
        1: Collective(operation, size, "BFloat16", 4, "0 [0, 1, 2, 3]", "group 0"),
    }


@pytest.mark.parametrize(("dtype", "size"), [("Float8_e4m3fn", 1000), ("Half", 2000), ("Double", 8000), ("Odd", None)])
def test_elements_have_the_size_of_their_type(tmp_path: Path, dtype: str, size: int | None) -> None:
    asked = told("allreduce", 1000, 1000, dtype=dtype)
    trace = pytorch(tmp_path / "t.json", kernel("gemm", 1, 100), kernel(ALL_REDUCE, 9, 500, **asked))
    assert collectives(trace)[1].bytes == size


def test_what_an_operator_asked_for_is_told_of_the_kernels_that_it_launched(tmp_path: Path) -> None:
    asks = {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 2, "ts": 1, "dur": 10}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2, "ts": 4, "dur": 1}
    before = {**call, "ts": 0.5, "dur": 0.2, "args": {"correlation": 8}}
    trace = pytorch(
        tmp_path / "t.json",
        asks | {"args": told("allreduce", 500, 500, "1", "Float")},
        before,
        call | {"args": {"correlation": 20}},
        kernel(ALL_REDUCE, 8, 100),
        kernel(ALL_REDUCE, 20, 100),
    )
    assert collectives(trace) == {
        1: Collective("all-reduce", 2000, "Float", 4, "1 [0, 1, 2, 3]", "tensor parallel"),
    }


def test_details_tables_and_reports_say_what_is_sent(tmp_path: Path) -> None:
    events = [kernel(ALL_REDUCE, at, 500, **told("allreduce", 2**20, 2**20, "1")) for at in (1, 10, 20)]
    trace = pytorch(tmp_path / "t.json", *events)
    title = "all-reduce 2.00 MiB BFloat16, tensor parallel of 4 ranks"
    (row,) = [one for one in span_rows(trace) if one.kind == "collective"]
    assert (row.name, row.count, row.bytes) == (title, 3, 3 * 2**21)
    bus = 2**21 / 500e-9 * 2 * 3 / 4
    assert row.speed.startswith(f"median {bus / 1e12:.2f} TB/s of bus bandwidth, median ")
    assert launch_view(trace, 0).sent.startswith(f"{title}: {bus / 1e12:.2f} TB/s of bus bandwidth")
    timeline = TraceTimeline(trace)
    first, recorded = span_facts(timeline, timeline.code("kernel", 0)).told
    assert first.startswith(f"{title}: {bus / 1e12:.2f} TB/s of bus bandwidth")
    assert "Process Group Name: 1; Process Group Description: tensor parallel" in recorded


@pytest.mark.skipif(not SAMPLES.exists(), reason="the samples are not here")
@pytest.mark.parametrize(
    "name",
    [
        "AMD-AGI__TraceLens__eager_trace.json.gz",
        "facebookresearch__HolisticTraceAnalysis__nccl_data.json.gz",
    ],
)
def test_other_peoples_collectives_are_as_their_files_have_them(name: str) -> None:
    path = SAMPLES / "public" / name
    written = [
        event
        for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if event.get("cat") == "kernel" and "Collective name" in event.get("args", {})
    ]
    size = {"Float": 4, "BFloat16": 2, "Byte": 1, "Long": 8}
    want = sorted(
        (max(event["args"]["In msg nelems"], event["args"]["Out msg nelems"]) * size[event["args"]["dtype"]])
        for event in written
    )
    trace = load(path)
    assert len(want) > 0
    assert sorted(one.bytes or 0 for one in collectives(trace).values()) == want
    rows = [row for row in span_rows(trace) if row.kind == "collective"]
    assert sum(row.count for row in rows) == len(written)
    lengths = sum(event["dur"] for event in written) * 1000
    assert sum(row.total_ns for row in rows) == pytest.approx(lengths, abs=len(written))


# -- NCCL's NVTX ranges -----------------------------------------------------------------------------------------------

COMM, REDUCE, GATHER, OPERATIONS = 16777227, 16777223, 16777224, 16777232
_COMMUNICATOR = 0xC0FFEE0000000001


def payload(schema: int, form: str, *values: float, domain: int = 1) -> bytes:
    own = struct.pack(f"<{form}", *values)
    return struct.pack("<IIIIQQ", domain, 0, schema, 0, len(own), 32 + len(own)) + own


def with_payloads(tmp_path: Path) -> Trace:
    """A rank that makes a communicator of 4, then reduces 1 MiB and gathers 1 KiB from each."""
    made = Capture()
    for text, start, end in (("ncclCommInitRank", 0, 5 * US), ("ncclAllReduce", 10 * US, 30 * US)):
        made.nvtx(text, start, end)
    made.nvtx("ncclAllGather", 40 * US, 60 * US)
    first = made.call("cudaLaunchKernelExC", 12 * US, 14 * US)
    second = made.call("cudaLaunchKernelExC", 45 * US, 46 * US)
    third = made.call("cudaLaunchKernelExC", 70 * US, 71 * US)
    made.kernel(100 * US, 200 * US, first, ALL_REDUCE)
    made.kernel(200 * US, 210 * US, second, "ncclDevKernel_AllGather_RING_LL")
    made.kernel(220 * US, 230 * US, third, "ncclDevKernel_AllGather_RING_LL")
    path = made.write(tmp_path / "nccl.sqlite")
    schemas = [
        (1, COMM, 0, 18, "NCCL communicator ID", None, None),
        (1, COMM, 1, 5, "No. of ranks", None, 8),
        (1, COMM, 2, 5, "Rank", None, 12),
        (1, REDUCE, 0, 18, "NCCL communicator ID", None, None),
        (1, REDUCE, 1, 22, "Message size [bytes]", None, 8),
        (1, REDUCE, 2, OPERATIONS, "Reduction operation", None, 16),
        (1, GATHER, 0, 18, "NCCL communicator ID", None, None),
        (1, GATHER, 1, 22, "Message size [bytes]", None, 8),
    ]
    add_table(
        path,
        "NVTX_PAYLOAD_SCHEMA_ENTRIES",
        "domainId schemaId idx type name:TEXT flags offset",
        *schemas,
    )
    add_table(
        path,
        "NVTX_PAYLOAD_ENUM_ENTRIES",
        "domainId schemaId name:TEXT value",
        (1, OPERATIONS, "Sum", 0),
        (1, OPERATIONS, "Max", 2),
    )
    told = {
        "ncclCommInitRank": payload(COMM, "Qii", _COMMUNICATOR, 4, 1),
        "ncclAllReduce": payload(REDUCE, "QQi4x", _COMMUNICATOR, 1 << 20, 2),
        "ncclAllGather": payload(GATHER, "QQ", _COMMUNICATOR, 1024),
    }
    _set(path, "binaryData", told)
    return load(path)


def _set(path: Path, column: str, values: Mapping[str, object]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(NVTX_EVENTS)")}
        if column not in columns:
            connection.execute(f"ALTER TABLE NVTX_EVENTS ADD COLUMN {column}")
        for text, value in values.items():
            connection.execute(f"UPDATE NVTX_EVENTS SET {column} = ? WHERE text = ?", (value, text))


def test_payloads_of_nccl_s_ranges_tell_size_and_group_of_what_they_launched(tmp_path: Path) -> None:
    trace = with_payloads(tmp_path)
    group = f"{_COMMUNICATOR:#x}"
    assert collectives(trace) == {
        0: Collective("all-reduce", 1 << 20, "", 4, group, f"communicator {group}"),
        1: Collective("all-gather", 4 * 1024, "", 4, group, f"communicator {group}"),
    }
    ranges = trace.spans["nvtx"]
    told = {ranges.names[ranges.name_id[row]]: note for row, note in ranges.notes.items()}
    assert told["ncclAllReduce"] == {
        "NCCL communicator ID": _COMMUNICATOR,
        "Message size [bytes]": 1 << 20,
        "Reduction operation": "Max",
    }
    assert told["ncclCommInitRank"] == {"NCCL communicator ID": _COMMUNICATOR, "No. of ranks": 4, "Rank": 1}


NUMBERS = (
    (1, "b", -1), (2, "B", 255), (3, "h", -2), (4, "H", 65535), (5, "i", -3), (6, "I", 4294967295), (7, "q", -4),
    (8, "Q", 1 << 60), (9, "q", -5), (10, "Q", 1 << 61), (11, "b", -6), (12, "B", 254), (13, "h", -7), (14, "H", 65534),
    (15, "i", -8), (16, "I", 4294967294), (17, "q", -9), (18, "Q", 1 << 62), (19, "f", 0.5), (20, "d", 0.25),
    (22, "Q", 1 << 59), (23, "Q", 1 << 58), (42, "e", 1.5), (43, "f", -0.5), (44, "d", -0.25), (90, "I", 4294967293),
    (128, "Q", 1 << 57),
)  # fmt: skip
"""Each type of NVTX_PAYLOAD_ENTRY_TYPE that is a number, what C calls it, and a value that no narrower one holds."""


def test_numbers_of_a_payload_are_of_the_type_that_its_schema_says(tmp_path: Path) -> None:
    """And one that is a pointer to something, or that would lie beyond its end, is none."""
    made = Capture()
    made.kernel(100, 200, made.call("cudaLaunchKernel", 0, 10), "k")
    made.nvtx("all", 10, 20)
    path = made.write(tmp_path / "t.sqlite")
    forms = "".join(form for _, form, _ in NUMBERS)
    schema: list[tuple[object, ...]] = [
        (0, 7, i, kind, f"{kind}", None, struct.calcsize(f"<{forms[:i]}")) for i, (kind, _, _) in enumerate(NUMBERS)
    ]
    whole = struct.calcsize(f"<{forms}")
    schema += [(0, 7, 97, 8, "pointer", 4, 0), (0, 7, 98, 1, "beyond", None, whole), (0, 7, 99, 21, "text", None, 0)]
    add_table(path, "NVTX_PAYLOAD_SCHEMA_ENTRIES", "domainId schemaId idx type name:TEXT flags offset", *schema)
    _set(path, "binaryData", {"all": payload(7, forms, *(value for _, _, value in NUMBERS), domain=0)})
    (note,) = load(path).spans["nvtx"].notes.values()
    assert dict(note) == {str(kind): value for kind, _, value in NUMBERS}


def test_numbers_without_an_offset_lie_as_in_a_c_structure(tmp_path: Path) -> None:
    """Up to an array, after which only told offsets are known."""
    made = Capture()
    made.kernel(100, 200, made.call("cudaLaunchKernel", 0, 10), "k")
    made.nvtx("all", 10, 20)
    path = made.write(tmp_path / "t.sqlite")
    schema: list[tuple[object, ...]] = [
        (0, 7, 0, 11, "a", None, None), (0, 7, 1, 17, "b", None, None), (0, 7, 2, 13, "c", None, None),
        (0, 7, 3, 15, "array", 16, None), (0, 7, 4, 15, "lost", None, None), (0, 7, 5, 15, "told", None, 28),
        (0, 7, 6, 11, "next", None, None),
    ]  # fmt: skip
    add_table(path, "NVTX_PAYLOAD_SCHEMA_ENTRIES", "domainId schemaId idx type name:TEXT flags offset", *schema)
    _set(path, "binaryData", {"all": payload(7, "b7xqh2xiiib", 1, 1 << 40, 300, 5, 6, 7, 8, domain=0)})
    (note,) = load(path).spans["nvtx"].notes.values()
    assert dict(note) == {"a": 1, "b": 1 << 40, "c": 300, "told": 7, "next": 8}


def test_a_payload_without_its_schema_is_told_as_that(tmp_path: Path) -> None:
    made = Capture()
    made.kernel(100, 200, made.call("cudaLaunchKernel", 0, 10), "k")
    for text in ("whole", "cut", "odd"):
        made.nvtx(text, 10, 20)
    path = made.write(tmp_path / "t.sqlite")
    _set(path, "binaryData", {"whole": payload(7, "Q", 1), "cut": b"123", "odd": payload(7, "Q", 1)[:-2]})
    ranges = load(path).spans["nvtx"]
    assert sorted(str(note["payload"]) for note in ranges.notes.values()) == [
        "3 bytes",
        "38 bytes without a schema in this export",
        "40 bytes without a schema in this export",
    ]


def test_categories_values_and_ranges_that_are_started_and_ended_are_told(tmp_path: Path) -> None:
    made = Capture()
    made.kernel(100, 200, made.call("cudaLaunchKernel", 0, 10), "k")
    for i, text in enumerate(("read", "count", "json", "plain", "handed over")):
        made.nvtx(text, 10 + 10 * i, 15 + 10 * i)
    path = made.write(tmp_path / "t.sqlite")
    named = (0, None, 33, "storage", global_id(PID, TID), 3)
    _set(path, "category", {"read": 3})
    _set(path, "int64Value", {"count": -5})
    _set(path, "jsonText", {"json": '{"rows": 7, "from": "disk", "all": true}', "plain": "not [json"})
    _set(path, "eventType", {"handed over": 60})
    _set(path, "endGlobalTid", {"handed over": global_id(PID, 999)})
    with closing(sqlite3.connect(path)) as connection, connection:
        columns = 'start, "end", eventType, text, globalTid, category'
        connection.execute(f"INSERT INTO NVTX_EVENTS ({columns}) VALUES (?, ?, ?, ?, ?, ?)", named)
    trace = load(path)
    ranges = trace.spans["nvtx"]
    told = {ranges.names[ranges.name_id[row]]: dict(note) for row, note in ranges.notes.items()}
    assert told == {
        "read": {"category": "storage (3)"},
        "count": {"payload": -5},
        "json": {"rows": 7, "from": "disk", "all": "true"},
        "plain": {"payload": "not [json"},
        "handed over": {"kind of range": "started and ended", "ended on thread": 999},
    }
    recorded = {row.name: row.recorded for row in span_rows(trace) if row.kind == "nvtx"}
    assert recorded["read"] == "category storage (3)"
    timeline = TraceTimeline(trace)
    assert span_facts(timeline, timeline.code("nvtx", 1)).told == ("payload: -5",)


# -- several ranks ----------------------------------------------------------------------------------------------------


def rank(path: Path, offset: int, groups: tuple[str, ...], number: int = 20) -> Trace:
    """All-reduces of 100 µs, one each ms, of these groups by turns; the offset is in µs."""
    given = (told("allreduce", 1, 1, groups[i % len(groups)]) for i in range(number))
    return pytorch(path, *(kernel(ALL_REDUCE, 1 + offset + 1000 * i, 100_000, **one) for i, one in enumerate(given)))


def test_operations_of_different_groups_are_not_the_same_one(tmp_path: Path) -> None:
    traces = [rank(tmp_path / f"{i}.json", 3 * i, (group,)) for i, group in enumerate("112")]
    _, same, other = clocks(traces)
    assert isinstance(same, ClockFit)
    assert same.basis is ClockBasis.COLLECTIVES
    assert isinstance(other, Unknown)
    alike = joined(traces[:2], ["rank 0", "rank 1"], [ClockFit(ClockBasis.FIRST)] * 2, "run")
    assert [one.matched for one in communication(alike)] == [20, 20]
    others = [rank(tmp_path / "a.json", 0, ("1",)), rank(tmp_path / "b.json", 3, ("2",))]
    apart = joined(others, ["rank 0", "rank 1"], [ClockFit(ClockBasis.FIRST)] * 2, "run")
    assert [one.matched for one in communication(apart)] == [0, 0]


@pytest.mark.parametrize(("both", "is_told"), [(3, False), (4, True)])
def test_four_collectives_are_the_fewest_that_tell_two_clocks_apart(tmp_path: Path, both: int, is_told: bool) -> None:
    one, other = (rank(tmp_path / f"{offset}.json", offset, ("1",), both) for offset in (0, 7))
    _, fit = clocks([one, other])
    if is_told:
        assert isinstance(fit, ClockFit)
        assert (fit.basis, fit.offset_ns, fit.drift, fit.residual_ns) == (ClockBasis.COLLECTIVES, 0, 0.0, 0.0)
        assert (fit.matched, fit.is_sure) == (both, True)
    else:
        assert isinstance(fit, Unknown)
        assert "its collectives are not those of the first file" in fit.reason


def test_what_is_told_of_spans_stays_with_them_in_a_part_of_the_time_and_of_several_files(tmp_path: Path) -> None:
    cut = only_time(rank(tmp_path / "t.json", 0, ("1", "2")), 10 * 10**6, None)
    assert not isinstance(cut, Unknown)
    assert [one.group.split()[0] for _, one in sorted(collectives(cut).items())] == ["1", "2"] * 5
    files = [rank(tmp_path / f"{group}.json", 5, (group,)) for group in "12"]
    both = joined(files, ["a", "b"], [ClockFit(ClockBasis.FIRST)] * 2, "run")
    kernels = both.spans["kernel"]
    by_gpu = {(ids.gpu_of(kernels.tracks[kernels.track_id[i]]), one.group[0]) for i, one in collectives(both).items()}
    assert by_gpu == {("gpu:a", "1"), ("gpu:b", "2")}
    assert median(one.bytes or 0 for one in collectives(both).values()) == 2


@pytest.mark.parametrize(("key", "is_told"), [((1 << 61) - 1, True), (1 << 61, False)])
def test_how_large_the_keys_of_two_files_may_be(tmp_path: Path, key: int, is_told: bool) -> None:
    """So that those of both fit beside each other."""
    files = [pytorch(tmp_path / f"{name}.json", kernel("k", 1, 5, correlation=key)) for name in "ab"]
    both = joined(files, ["a", "b"], [ClockFit(ClockBasis.FIRST)] * 2, "run")
    assert sorted(both.spans["kernel"].correlation) == ([2 * key, 2 * key + 1] if is_told else [-1, -1])


def test_what_all_files_say_alike_is_said_of_them_together(tmp_path: Path) -> None:
    first, second = (
        replace(one, origin=replace(one.origin, facts={"PyTorch": "2.9", "host": host}))
        for host, one in ((host, rank(tmp_path / f"{host}.json", 0, ("1",))) for host in "ab")
    )
    both = joined([first, second], ["a", "b"], [ClockFit(ClockBasis.FIRST)] * 2, "run")
    assert both.origin.facts["PyTorch"] == "2.9"
    assert "host" not in both.origin.facts
