"""Nsight Systems exports: old and new schemas, several processes, and everything that can be wrong with the file."""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop import columns
from llmtop.analysis.pages.damage import damage
from llmtop.errors import FileError
from llmtop.model import SpanTable, Trace, What
from llmtop.parsers import nsys_export
from llmtop.parsers.nsys import MAGIC, NsysSqliteParser
from llmtop.parsers.registry import load
from tests.nsys_capture import Capture, add_table

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
EXPORTS = sorted((SAMPLES / "public").glob("*.sqlite"))
OURS = Path(__file__).parents[2] / "sample_traces" / "nsys" / "2025.3.2" / "llama-prefill-decode.sqlite.xz"

PID_A, PID_B = 111, 222
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
OLD_COLUMNS = (
    "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName",
    "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
)  # fmt: skip


def global_id(pid: int, tid: int = 0) -> int:
    return (1 << 48) | (pid << 24) | tid


def kernel_row(
    start: object, end: object, name: int = 1, *, pid: int = PID_A, stream: int = 7, correlation: object = 5
) -> tuple[object, ...]:
    return (start, end, 0, stream, correlation, global_id(pid), name, 2, 64, 2, 1, 128, 1, 1)


class Export:
    """A database under construction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA page_size = 1024")
            database.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
            database.commit()
        self.add(
            "META_DATA_EXPORT",
            ("name", "value"),
            [("EXPORT_SCHEMA_VERSION", "3.25.0"), ("EXPORT_PRODUCT_VERSION", "2026.2.1.210")],
        )
        self.add(
            "StringIds",
            ("id", "value"),
            [(1, "void at::gemm<float>(float *)"), (2, "gemm"), (3, "cudaLaunchKernel_v7000"), (4, "cudaFree")],
        )

    def add(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Export:
        with closing(sqlite3.connect(self.path)) as database:
            kind = " INTEGER" if table == KERNEL else ""
            names = ", ".join(f'"{column}"{kind}' for column in columns)
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({names})")
            database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)
            database.commit()
        return self

    def kernels(self, *rows: Sequence[object]) -> Export:
        return self.add(KERNEL, OLD_COLUMNS, rows)

    def parse(self) -> Trace:
        return NsysSqliteParser().parse(self.path)


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "capture.sqlite")


def test_kernels_become_columns(export: Export) -> None:
    trace = export.kernels(kernel_row(100, 350), kernel_row(400, 410, stream=9)).parse()
    table = trace.kernels
    assert table is not None
    assert table.names == ("void at::gemm<float>(float *)",)
    assert table.functions == ("gemm",)
    assert list(table.duration_ns) == [250, 10]
    assert list(table.start_ns) == [100, 400]
    assert [axis[0] for axis in table.grid] == [64, 2, 1]
    assert [axis[0] for axis in table.block] == [128, 1, 1]
    assert list(table.stream) == [7, 9]
    assert (trace.start_ns, trace.end_ns) == (100, 410)
    assert trace.origin.tool_version == "2026.2.1.210"
    assert trace.origin.facts["schema"] == "3.25.0"


def test_registers_and_shared_memory_are_read_where_the_export_has_them(export: Export) -> None:
    columns = (*OLD_COLUMNS, "registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
    rows = [(*kernel_row(0, 10), 168, 1024, 512), (*kernel_row(20, 30), None, 1024, None)]
    export.add(KERNEL, columns, rows)
    kernels = export.parse().kernels
    assert kernels is not None
    assert list(kernels.registers) == [168, -1]
    assert list(kernels.shared_bytes) == [1536, -1]


def test_kernel_spans_lie_on_the_stream_of_their_process(export: Export) -> None:
    trace = export.kernels(kernel_row(1, 2), kernel_row(3, 4, pid=PID_B)).parse()
    spans = trace.spans["kernel"]
    assert spans.tracks == (f"gpu:0/process:{PID_A}/stream:7", f"gpu:0/process:{PID_B}/stream:7")
    assert trace.tracks[spans.tracks[0]].parent == "gpu:0"


def test_a_process_that_sees_only_the_second_gpu_is_on_the_second_gpu(export: Export) -> None:
    export.add("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"), [(1, 0, PID_B)])
    export.add("TARGET_INFO_GPU", ("id", "name"), [(0, "NVIDIA H100"), (1, "NVIDIA H100")])
    trace = export.kernels(kernel_row(1, 2, pid=PID_B)).parse()
    assert trace.kernels is not None
    assert list(trace.kernels.device) == [1]
    assert trace.origin.gpu == "2x NVIDIA H100"


def test_the_same_correlation_id_in_two_processes_joins_nothing(export: Export) -> None:
    api = ("start", "end", "globalTid", "correlationId", "nameId")
    rows = [
        (10, 20, global_id(PID_A, 1), 5, 3),
        (11, 21, global_id(PID_B, 1), 5, 3),
        (30, 40, global_id(PID_A, 1), 6, 4),
    ]
    trace = export.add("CUPTI_ACTIVITY_KIND_RUNTIME", api, rows).kernels(kernel_row(25, 30)).parse()
    launches, kernels = trace.spans["launch"], trace.spans["kernel"]
    assert len(launches) == 2, "cudaFree launches nothing"
    joined = [i for i, key in enumerate(launches.correlation) if key == kernels.correlation[0]]
    assert [launches.tracks[launches.track_id[i]] for i in joined] == [f"thread:{PID_A}/1"]


def test_a_table_without_rows_is_one_that_was_not_collected(export: Export) -> None:
    """`nsys export --lazy=false` makes every table that a version knows."""
    export.add("OSRT_API", ("start", "end", "globalTid", "nameId"), ())
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", ("start", "end", "deviceId", "streamId", "correlationId"), ())
    trace = export.kernels(kernel_row(1, 2)).parse()
    assert trace.why_missing(What("OS calls")) is not None
    assert trace.why_missing(What("kernels in CUDA graphs")) is None


def test_columns_that_a_version_does_not_have_are_unknown(export: Export) -> None:
    columns = (
        "start",
        "end",
        "deviceId",
        "streamId",
        "correlationId",
        "demangledName",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
    )
    trace = export.add(KERNEL, columns, [(1, 5, 0, 7, 1, 1, 1, 1, 1, 1, 1, 1)]).parse()
    assert trace.kernels is not None
    assert trace.kernels.functions == ("void at::gemm<float>(float *)",)
    assert trace.spans["kernel"].tracks == ("gpu:0/process:0/stream:7",)


@pytest.mark.parametrize("row", [(None, 5), ("soon", 5), (9, 5), (1, None), (1.5, 3)])
def test_a_row_without_usable_times_is_left_out_and_counted(export: Export, row: tuple[object, object]) -> None:
    trace = export.kernels(kernel_row(10, 30), kernel_row(*row)).parse()
    assert trace.kernels is not None
    assert list(trace.kernels.duration_ns) == [20]
    assert [(issue.code, issue.count) for issue in trace.issues] == [("nsys-kernel-times", 1)]


def test_a_null_correlation_id_joins_nothing(export: Export) -> None:
    trace = export.kernels(kernel_row(1, 2, correlation=None), kernel_row(3, 4)).parse()
    assert trace.spans["kernel"].correlation[0] == -1
    assert trace.spans["kernel"].correlation[1] == (PID_A << 32) | 5


def test_rows_are_sorted_by_start(export: Export) -> None:
    trace = export.kernels(kernel_row(30, 31), kernel_row(10, 15), kernel_row(20, 22)).parse()
    assert trace.kernels is not None
    assert list(trace.kernels.start_ns) == [10, 20, 30]
    assert list(trace.kernels.duration_ns) == [5, 2, 1]


def test_copies_and_memsets_carry_their_bytes(export: Export) -> None:
    place = (0, 7, 1, global_id(PID_A))
    copies = [(1, 2, *place, 2, 4096), (3, 4, *place, 99, None)]
    columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "copyKind", "bytes")
    spans = export.add("CUPTI_ACTIVITY_KIND_MEMCPY", columns, copies).parse().spans["memcpy"]
    assert spans.names == ("copy DtoH", "copy")
    assert spans.amount[0] == 4096
    assert spans.amount[1] != spans.amount[1], "unknown is not zero bytes"


def test_nvtx_ranges_are_named_by_text_or_by_string_id(export: Export) -> None:
    columns = ("start", "end", "eventType", "text", "textId", "globalTid")
    tid = global_id(PID_A, 12)
    rows = [
        (1, 9, 59, "decode", None, tid),
        (2, 3, 60, None, 2, tid),
        (4, None, 59, "open", None, tid),
        (5, 6, 34, "mark", None, tid),
    ]
    spans = export.add("NVTX_EVENTS", columns, rows).parse().spans["nvtx"]
    assert [spans.names[i] for i in spans.name_id] == ["decode", "gemm"]
    assert spans.tracks == (f"thread:{PID_A}/12",)


def test_graphs_traced_whole_are_spans_and_their_kernels_are_missing(export: Export) -> None:
    columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId")
    rows = [(10, 50, 0, 7, 1, global_id(PID_A), 3), (60, 0, 0, 7, 2, global_id(PID_A), 3)]
    trace = export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", columns, rows).parse()
    assert trace.spans["graph"].names == ("CUDA graph 3",)
    assert list(trace.spans["graph"].end_ns) == [50], "a boundary row may end at 0"
    why = trace.why_missing(What("kernels"))
    assert why is not None
    assert why.remedy == "add --cuda-graph-trace=node"
    assert trace.kernels is not None
    assert len(trace.kernels) == 0


def test_a_capture_without_kernels_says_so(export: Export) -> None:
    why = export.parse().why_missing(What("kernels"))
    assert why is not None
    assert why.reason == "the capture has no CUDA kernels"


def test_text_that_is_not_utf_8_survives(export: Export) -> None:
    with closing(sqlite3.connect(export.path)) as database:
        database.execute("UPDATE StringIds SET value = CAST(X'FF1B5B324A' AS TEXT) WHERE id = 1")
        database.commit()
    table = export.kernels(kernel_row(1, 2)).parse().kernels
    assert table is not None
    assert table.names == ("\ufffd␛[2J",)


def test_a_name_that_is_not_in_the_file_does_not_cost_the_row(export: Export) -> None:
    table = export.kernels(kernel_row(1, 2, name=77)).parse().kernels
    assert table is not None
    assert table.names == ("kernel name 77 (not in the file)",)


def test_secrets_and_the_rest_of_the_environment_stay_out(export: Export) -> None:
    variable = "PROCESS_0:ENVIRONMENT_VARIABLE"
    rows = [
        ("PROCESS_0:COMMAND", "vllm"), ("PROCESS_0:ARGUMENT_0", "serve"), ("PROCESS_0:ARGUMENT_1", "--api-key=sk-1"),
        (variable, 'HOME="/home/me"'), (variable, 'VLLM_API_KEY="sk-2"'), (variable, 'CUDA_VISIBLE_DEVICES="0,1"'),
    ]  # fmt: skip
    facts = export.add("META_DATA_CAPTURE", ("name", "value"), rows).parse().origin.facts
    assert facts["command"] == "vllm serve --api-key=[redacted]"
    assert facts["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "sk-" not in str(facts)
    assert "HOME" not in facts


@pytest.mark.parametrize(("ms", "delay"), [("0", None), ("30000", "30000 ms")])
def test_that_the_profiler_waited_is_a_fact(export: Export, ms: str, delay: str | None) -> None:
    facts = export.add("META_DATA_CAPTURE", ("name", "value"), [("START_DELAY_MS", ms)]).parse().origin.facts
    assert facts.get("delay") == delay


def test_the_captures_own_warnings_are_issues(export: Export) -> None:
    export.add(
        "DIAGNOSTIC_EVENT",
        ("severity", "text"),
        [(1, "started"), (2, "Not all CUDA events"), (2, "Not all CUDA events")],
    )
    assert [issue.message for issue in export.parse().issues] == ["Not all CUDA events"]


def test_nothing_is_written_beside_the_input(export: Export) -> None:
    export.kernels(kernel_row(2, 3), kernel_row(1, 2))
    export.path.chmod(0o400)
    export.parse()
    assert [path.name for path in export.path.parent.iterdir()] == [export.path.name]


@pytest.mark.parametrize("name", ["a b.sqlite", "q?mode=rwc.sqlite", "h#1.sqlite", "100%41.sqlite"])
def test_a_path_is_never_read_as_a_url(tmp_path: Path, name: str) -> None:
    trace = Export(tmp_path / name).kernels(kernel_row(1, 2)).parse()
    assert trace.kernels is not None
    assert len(trace.kernels) == 1


def test_another_database_is_told_from_an_export(tmp_path: Path) -> None:
    path = tmp_path / "books.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE books (title)")
        database.commit()
    with pytest.raises(FileError, match="no Nsight Systems export"):
        NsysSqliteParser().parse(path)


def test_a_truncated_export_is_told_from_a_damaged_one(export: Export) -> None:
    export.kernels(*(kernel_row(i, i + 1) for i in range(200)))
    whole = export.path.read_bytes()
    for cut in (50, 1024, len(whole) // 2, len(whole) - 1):
        export.path.write_bytes(whole[:cut])
        with pytest.raises(FileError, match="truncated"):
            export.parse()
    export.path.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
    with pytest.raises(FileError, match="damaged"):
        export.parse()


@pytest.fixture(scope="module")
def small_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    export = Export(tmp_path_factory.mktemp("nsys") / "small.sqlite")
    return export.kernels(*(kernel_row(i, i + 1) for i in range(20))).path


@pytest.mark.parametrize("long", [1, columns.LONG], ids=["pages", "sqlite"])
@settings(deadline=None)
@given(place=st.integers(16), change=st.binary(min_size=1, max_size=12))
def test_changed_bytes_end_in_a_trace_or_in_one_sentence(
    small_export: Path, long: int, place: int, change: bytes
) -> None:
    whole = small_export.read_bytes()
    place %= len(whole)
    changed = small_export.with_name("changed.sqlite")
    changed.write_bytes((whole[:place] + change + whole[place + len(change) :])[: len(whole)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "LONG", long)
        result = parse_or_say(changed)
    if isinstance(result, str):
        assert str(changed) in result
        assert "\n" not in result
    else:
        assert result.kernels is not None
        assert len(result.kernels.duration_ns) == len(result.kernels)


def parse_or_say(path: Path) -> Trace | str:
    try:
        return NsysSqliteParser().parse(path)
    except FileError as error:
        return str(error)


def test_sniffing_wants_the_magic() -> None:
    parser = NsysSqliteParser()
    assert parser.sniff(MAGIC + b"\x10\x00", Path("x.bin"))
    assert not parser.sniff(b"SQLite format 2", Path("x.sqlite"))


needs_samples = pytest.mark.skipif(not EXPORTS, reason="the sample captures are not here")


@needs_samples
@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem)
def test_kernel_sums_equal_those_of_plain_sql(path: Path) -> None:
    """What `nsys stats -r cuda_gpu_kern_sum` sums: end - start by demangled name."""
    query = f"""SELECT value, count(*), sum("end" - start), min("end" - start), max("end" - start)
        FROM {KERNEL} JOIN StringIds ON id = demangledName GROUP BY value"""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        expected = {name: tuple(rest) for name, *rest in database.execute(query)}
    table = load(path).kernels
    assert table is not None
    durations: dict[str, list[float]] = {}
    for i, duration in enumerate(table.duration_ns):
        durations.setdefault(table.name(i), []).append(duration)
    assert {name: (len(d), sum(d), min(d), max(d)) for name, d in durations.items()} == expected


def test_the_llm_capture_has_its_phases() -> None:
    trace = load(OURS)
    assert _phase_counts(trace.spans["nvtx"]) == {"prefill": 1, "decode": 6}
    assert trace.origin.gpu == "NVIDIA H100 80GB HBM3"
    assert "not-a-real-secret" not in str(trace.origin)
    launches = set(trace.spans["launch"].correlation)
    assert all(key in launches for key in trace.spans["kernel"].correlation)


def _phase_counts(spans: SpanTable) -> dict[str, int]:
    names = [spans.names[i] for i in spans.name_id]
    return {name: names.count(name) for name in spans.names}


@pytest.mark.parametrize("way", ["pages", "sqlite"])
def test_a_long_capture_is_read_as_a_short_one(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = load(OURS)
    monkeypatch.setattr(columns, "LONG", 1)
    monkeypatch.setattr(nsys_export, "_BATCH", 1000)
    other = "_read_by_sqlite" if way == "pages" else "_from_pages"
    monkeypatch.setattr(nsys_export, other, refuse if way == "pages" else (lambda *_: None))
    long = load(OURS)
    assert spans_of(long) == spans_of(short)
    assert long.kernels is not None
    assert short.kernels is not None
    assert [getattr(long.kernels, one.name) for one in fields(long.kernels)] == [
        getattr(short.kernels, one.name) for one in fields(short.kernels)
    ]
    assert (long.start_ns, long.end_ns, long.tracks) == (short.start_ns, short.end_ns, short.tracks)


def refuse(*_: object) -> None:
    pytest.fail("SQLite was asked though the pages are plain")


@pytest.mark.parametrize("long", [1, columns.LONG], ids=["pages", "sqlite"])
def test_rows_that_cannot_be_used_are_counted_however_long_the_table(
    export: Export, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    export.kernels(kernel_row(10, 20), kernel_row("soon", 25), kernel_row(30, 29), kernel_row(40, 50))
    monkeypatch.setattr(columns, "LONG", long)
    trace = export.parse()
    assert list(trace.spans["kernel"].start_ns) == [10, 40]
    assert [(issue.code, issue.count) for issue in trace.issues] == [("nsys-kernel-times", 2)]


def spans_of(trace: Trace) -> dict[str, list[object]]:
    return {
        kind: [getattr(table, one.name) for one in fields(table) if one.name != "amount"]
        for kind, table in trace.spans.items()
    }


class _Endless:
    """A damaged table: SQLite gives the rows up to the fifth again and again."""

    def execute(self, sql: str, parameters: tuple[int, ...] = ()) -> _Endless:
        return self

    def columns(self, table: str) -> frozenset[str]:
        return frozenset({"start", "end"})

    def fetchone(self) -> tuple[int, int, bytes, bytes]:
        return 0, 5, b"", b""


def test_a_table_whose_rows_come_again_and_again_is_refused() -> None:
    with pytest.raises(sqlite3.DatabaseError, match="in no order"):
        nsys_export._fetched(cast("nsys_export.Export", _Endless()), "T", (), "1")


def test_a_file_is_let_go_as_soon_as_nobody_holds_its_trace() -> None:
    load(OURS)  # what is imported for it opens files of its own
    gc.collect()
    before = _files_open()
    gc.disable()  # no circle may hold it: who opens a thousand files would wait for Python to look for circles
    try:
        trace = load(OURS)
        assert trace.spans is not None
        assert _files_open() > before
        del trace
        assert _files_open() == before
    finally:
        gc.enable()


def _files_open() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize(("utc_ns", "told"), [(1, 1), (0, None), (-1, None), ("soon", None)])
def test_a_capture_that_does_not_tell_when_it_began_is_of_no_time(
    utc_ns: object, told: int | None, tmp_path: Path
) -> None:
    path = Capture().write(tmp_path / "capture.sqlite")
    add_table(path, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs", (utc_ns,))
    assert load(path).origin.utc_ns == told


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        ("CUDA device 0: Unified Memory cannot be traced on devices that don't support peer-to-peer transfers.", False),
        ("Installed CUDA driver version (12.4) is not supported by this build of Nsight Systems.", False),
        ("Not all CUDA events might have been collected.", False),
        ("No events were lost.", False),
        ("Some CUDA events may have been dropped.", False),
        ("1024 CUDA events were dropped.", True),
        ("Event buffer overflow: 12 events are lost.", True),
    ],
)
@pytest.mark.parametrize("level", [2, 3])
def test_what_the_tool_remarks_is_no_damage_unless_data_was_lost(
    export: Export, level: int, text: str, is_lost: bool
) -> None:
    trace = export.kernels(kernel_row(1, 2)).add("DIAGNOSTIC_EVENT", ("severity", "text"), [(level, text)]).parse()
    assert damage(trace) == ((text,) if is_lost else ())
    assert [issue.message for issue in trace.issues] == [text]
