"""Nsight Systems captures, as SQLite exports (`nsys export --type sqlite`), schema 2.9 to 3.30.

The schema changes from version to version: tables exist only where something was captured, and columns come and go.
So every table may be absent and every column is asked for by name. Times are nanoseconds since the capture began.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from llmtop import whats
from llmtop.columns import first_rows, lengths, narrow, replaced
from llmtop.errors import FileError
from llmtop.facts import OriginFact
from llmtop.lazy import LazyDictionary, LazyMapping, LazySequence
from llmtop.model import (
    GPU_WORK,
    MIGRATED,
    NVPROF,
    Fact,
    Issue,
    KernelTable,
    Missing,
    Origin,
    Severity,
    SpanKind,
    SpanTable,
    Trace,
    Unknown,
)
from llmtop.parsers import nsys_directory, nsys_report, nvprof
from llmtop.parsers.base import complaint_severity
from llmtop.parsers.nsys import NsysSqliteParser
from llmtop.parsers.nsys_export import (
    DAMAGE,
    Capture,
    Columns,
    Devices,
    Export,
    LateReader,
    aside,
    count_damaged,
    late,
    read_rows,
    span_table,
    unpacked,
)
from llmtop.parsers.nsys_gpus import migration_notes, more_of_gpus
from llmtop.parsers.nsys_graphs import captured, has_nodes
from llmtop.parsers.nsys_host import api_calls, has_samples, late_kinds, missing_of_host, more_kinds
from llmtop.parsers.nsys_nvtx import nvtx
from llmtop.parsers.nsys_payloads import EVENTS as NVTX_EVENTS
from llmtop.parsers.nsys_series import series
from llmtop.parsers.nsys_stacks import stacks
from llmtop.text import clean, redact, shell_command

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_REGISTERS = "registersPerThread"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_EXPORT_FACTS = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""The same table; the second name up to 2023.2."""
_EXPORT_AGAIN = "export it again: nsys export --type sqlite FILE.nsys-rep"

_COPY_KINDS = {
    1: "copy HtoD",
    2: "copy DtoH",
    3: "copy HtoA",
    4: "copy AtoH",
    5: "copy AtoA",
    6: "copy AtoD",
    7: "copy DtoA",
    8: "copy DtoD",
    9: "copy HtoH",
    10: "copy PtoP",
    11: "migration HtoD",
    12: "migration DtoH",
    13: "migration DtoD",
}
_MIGRATIONS = (11, 12, 13)
"""ENUM_CUDA_MEMCPY_OPER; A is an array of textures, and migrations are those of unified memory."""
_COMPLAINTS = (2, 3)
"""ENUM_DIAGNOSTIC_SEVERITY_LEVEL: warnings and errors."""
_ENVIRONMENT = "ENVIRONMENT_VARIABLE"
_RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""The variables by which torchrun, MPI and Slurm tell a process its rank, and how many ranks there are."""
_SHOWN_VARIABLES = ("CUDA_", "NCCL_", "OMP_", "PYTORCH_", "SGLANG_", "TORCH_", "TRTLLM_", "VLLM_")
"""A capture holds the whole environment. Only variables that change how a server runs are kept, and those redacted."""


def read_report(path: Path) -> Trace:
    """What the export beside a report says, or one that is made of it now.

    Raises:
        FileError: There is none, and none can be made or read.
    """
    if (beside := nsys_report.beside(path)) is not None:
        with suppress(FileError):
            return _exported(read_export(beside), path, beside)
    export = nsys_report.exported(path)
    try:
        return _exported(read_export(export), path, export)
    except FileError as error:
        export.unlink(missing_ok=True)
        raise FileError(f"{path}: nsys has made an export of it that cannot be read: {error}") from error


def _exported(trace: Trace, report: Path, export: Path) -> Trace:
    """The trace of an export as that of its report."""
    facts = {**trace.origin.facts, "export": clean(str(export))}
    return replace(trace, origin=replace(trace.origin, path=str(report), facts=facts))


def open_export(path: Path) -> Export:
    """A database of either tool, or a folder of tables."""
    if path.is_dir():
        return nsys_directory.DirectoryExport(path)
    export = Export(path)
    return nvprof.NvprofExport(path) if nvprof.is_profile(export.tables) else export


def read_export(path: Path) -> Trace:
    """Read kernels, launches, copies, graphs and NVTX ranges.

    Raises:
        FileError: It is truncated, corrupted, or a database of something else.
    """
    if not path.is_dir():
        _check_length(path)
    try:
        # SQLite works without the interpreter's lock: kernels and all else are read side by side.
        others = aside(partial(_read_spans, path))
        return _read(open_export(path), path, others)
    except DAMAGE as error:
        what = "folder of tables" if path.is_dir() else "SQLite database"
        raise FileError(f"{path} is a damaged {what} ({clean(str(error))}); {_EXPORT_AGAIN}") from error


def _check_length(path: Path) -> None:
    """Compare the file's size with the one its header states (https://www.sqlite.org/fileformat.html, 1.3)."""
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100:
        raise FileError(f"{path} is truncated: it ends within the SQLite header; {_EXPORT_AGAIN}")
    page, pages = struct.unpack_from(">H", header, 16)[0], struct.unpack_from(">I", header, 28)[0]
    # The page count holds only if the file was last written by a version that keeps it: two counters then agree.
    stated = (65536 if page == 1 else page) * pages if header[24:28] == header[92:96] else 0
    if (size := path.stat().st_size) < stated:
        raise FileError(f"{path} is truncated: {size} of {stated} bytes are there; copy or export it again")


def _read_spans(path: Path) -> tuple[Mapping[str, SpanTable], Capture]:
    """All that analysis goes through but kernels: spans by kind, where there are any."""
    export = open_export(path)
    capture = Capture(export, Devices(export), [])
    return {kind: table for kind, table in _early_spans(capture) if len(table)}, capture


def _read(export: Export, path: Path, others: Future[tuple[Mapping[str, SpanTable], Capture]]) -> Trace:
    if not export.tables & {*_EXPORT_FACTS, _KERNELS, _RUNTIME}:
        raise FileError(f"{path} is an SQLite database, but no Nsight Systems export: it has none of its tables")
    devices = Devices(export)
    damaged: list[Issue] = []
    kernels, kernel_spans = _kernels(export, devices, damaged)
    early, capture = others.result()
    read = dict(early)
    if kernel_spans is not None and len(kernel_spans):
        read[SpanKind.KERNEL] = kernel_spans
    for track in devices.tracks.values():
        capture.devices.tracks.add(track)
    if export.damage:
        said = f"pages of the file are damaged, and rows on them are lost ({clean(export.damage)}); {_EXPORT_AGAIN}"
        capture.issues.append(Issue(Severity.ERROR, "nsys-damaged", said))
    capture.issues.extend((*damaged, *_diagnostics(export)))
    return Trace(
        origin=_origin(export, path, devices),
        start_ns=min((table.start_ns[0] for table in read.values()), default=0),
        end_ns=max((max(table.end_ns) for table in read.values()), default=0),
        tracks=capture.devices.tracks,
        spans=_lazily(capture, read, _late_kinds(export, read.get(SpanKind.KERNEL))),
        more_spans=_lazily(capture, {}, more_kinds(export)),
        series=series(capture),
        stacks=LazySequence(partial(stacks, capture)) if has_samples(export) else (),
        kernels=kernels,
        issues=capture.issues,
        missing=tuple(_missing(export, kernels, read)),
    )


def _late_kinds(export: Export, kernels: SpanTable | None) -> Mapping[str, LateReader]:
    """All that is read when a view asks for it."""
    graphs: dict[str, LateReader] = {}
    if kernels is not None and has_nodes(export):
        graphs[SpanKind.CAPTURED] = partial(captured, kernels=kernels)
    return {**late_kinds(export), **more_of_gpus(export), **graphs}


def _lazily(
    capture: Capture, read: Mapping[str, SpanTable], readers: Mapping[str, LateReader]
) -> LazyMapping[str, SpanTable]:
    return LazyMapping(read, {kind: late(capture, kind, reader) for kind, reader in readers.items()})


def _kernels(export: Export, devices: Devices, issues: list[Issue]) -> tuple[KernelTable, SpanTable | None]:
    """The kernel table, and the same launches as spans that share its columns."""
    if not export.has(_KERNELS, "start", "end"):
        return _NO_KERNELS, None
    name = "demangledName" if "demangledName" in export.columns(_KERNELS) else "shortName"
    sizes = [f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"]
    others = (*sizes, _REGISTERS)

    def keys(of: Columns) -> Sequence[Any]:
        return of.integer(name), of.stream, of.join, *map(of.integer, others), _shared(of), of.integer("shortName")

    rows = read_rows(export, _KERNELS, keys)
    count_damaged(issues, SpanKind.KERNEL, rows)
    *kept, function = rows.columns[5:]
    gx, gy, gz, bx, by, bz, registers, shared = map(narrow, kept)
    function_by_name = {key: function[row] for key, row in first_rows(rows.columns[2]).items()}
    texts = export.strings({*function_by_name, *function_by_name.values()})
    spans = span_table(
        SpanKind.KERNEL, rows, lambda key: texts.get(key, f"kernel name {key} (not in the file)"), devices.stream_track
    )
    places = {key: unpacked(key) for key in first_rows(rows.columns[3])}
    gpu_by_key = {key: devices.gpu(pid, device) for key, (pid, device, _) in places.items()}
    stream_by_key = {key: stream for key, (_, _, stream) in places.items()}
    functions = {texts[key]: texts[short] for key, short in function_by_name.items() if {key, short} <= texts.keys()}
    table = KernelTable(
        names=spans.names,
        functions=tuple(functions.get(name, name) for name in spans.names),
        name_id=spans.name_id,
        grid=(gx, gy, gz),
        block=(bx, by, bz),
        start_ns=spans.start_ns,
        duration_ns=lengths(spans.start_ns, spans.end_ns),
        device=replaced(rows.columns[3], gpu_by_key),
        stream=replaced(rows.columns[3], stream_by_key),
        registers=registers,
        shared_bytes=shared,
    )
    return table, spans


def _shared(of: Columns) -> Any:
    """Shared memory of a block, static and dynamic; below 0 where one of them is not there."""
    static, dynamic = of.integer("staticSharedMemory"), of.integer("dynamicSharedMemory")
    return of.choose((static >= 0) & (dynamic >= 0), static + dynamic, -1)


_NOTHING: array[int] = array("q")
_NO_KERNELS = KernelTable((), (), _NOTHING, (_NOTHING,) * 3, (_NOTHING,) * 3, _NOTHING, array("d"), _NOTHING, _NOTHING)


def _early_spans(capture: Capture) -> Iterator[tuple[str, SpanTable]]:
    """The kinds that a capture's length goes by, but kernels."""
    yield from api_calls(capture)
    on_gpu = (
        (SpanKind.MEMCPY, "CUPTI_ACTIVITY_KIND_MEMCPY", _copy_key, _copy_name, "bytes"),
        (SpanKind.MEMSET, "CUPTI_ACTIVITY_KIND_MEMSET", lambda of: of.integer("value"), lambda _: "memset", "bytes"),
        (SpanKind.GRAPH, _GRAPHS, lambda of: of.integer("graphId"), lambda key: f"CUDA graph {key}", ""),
    )
    for kind, table, key_of, name_of, amount in on_gpu:
        if capture.export.has(table, "start", "end"):
            rows = read_rows(capture.export, table, partial(_gpu_work, key_of=key_of, amount=amount))
            count_damaged(capture.issues, kind, rows)
            made = span_table(kind, rows, name_of, capture.devices.stream_track, bytes_at=5 if amount else None)
            if any(name.startswith("migration") for name in made.names):
                made = replace(made, notes=LazyDictionary(partial(migration_notes, capture, made)))
            yield kind, made
    yield from nvtx(capture)


def _gpu_work(of: Columns, *, key_of: Callable[[Columns], Any], amount: str) -> Sequence[Any]:
    # Of other work than copies the column of their kind is not there, and no kind.
    is_moved = of.among(of.integer("copyKind"), _MIGRATIONS) & (of.join < 0)
    return key_of(of), of.stream, of.choose(is_moved, MIGRATED, of.join), of.integer(amount)


def _copy_key(of: Columns) -> Any:
    """Twice the kind of copy, plus one where an end of it is pageable host memory (ENUM_CUDA_MEM_KIND 0)."""
    is_pageable = of.among(of.integer("srcKind"), [0]) | of.among(of.integer("dstKind"), [0])
    return of.integer("copyKind") * 2 + is_pageable


def _copy_name(key: int) -> str:
    return _COPY_KINDS.get(key >> 1, "copy") + (" (pageable)" if key & 1 else "")


def _missing(export: Export, kernels: KernelTable, spans: Mapping[str, SpanTable]) -> Iterable[Missing]:
    graphs = "graphs were traced as a whole" if SpanKind.GRAPH in spans else _why_graphs_left_nothing(spans)
    if not len(kernels):
        reason = "the capture has no CUDA kernels"
        remedy = "add --trace=cuda,nvtx,osrt, and let it run while the GPU works"
        if export.has(_RUNTIME):
            remedy = "CUDA was traced: record while the GPU works, and of programs that fork add "
            remedy += "--trace-fork-before-exec=true"
        if graphs:
            reason, remedy = f"the capture has no CUDA kernels: {graphs}", _BY_NODE
        yield Missing(whats.KERNELS, Unknown(reason, remedy))
    elif graphs:
        yield Missing(whats.KERNELS_IN_GRAPHS, Unknown(f"{graphs}: their kernels are not listed", _BY_NODE))
    if not export.has(NVTX_EVENTS):
        yield Missing(whats.NVTX, Unknown("the capture has no NVTX ranges", "add --trace=nvtx"))
    yield from missing_of_host(export)


_BY_NODE = "add --cuda-graph-trace=node"


def _why_graphs_left_nothing(spans: Mapping[str, SpanTable]) -> str:
    """Why most graph launches have no work; empty where they have.

    Up to 2023.4 the exporter had no table for graphs that were traced as a whole, which has been the default of drivers
    from CUDA 11.7 on. At the edges of a capture a few launches are without work in any version.
    """
    launches = spans.get(SpanKind.LAUNCH)
    are_graphs = ["GraphLaunch" in name for name in launches.names] if launches is not None else []
    if launches is None or not any(are_graphs):
        return ""
    of_graphs = {join for join, name in zip(launches.correlation, launches.name_id, strict=True) if are_graphs[name]}
    left = len(of_graphs)
    for kind in GPU_WORK:
        left -= len(of_graphs.intersection(spans[kind].correlation)) if kind in spans else 0
    if left <= len(of_graphs) / 2:
        return ""
    return f"{left} of {len(of_graphs)} graph launches have no work in the capture, so they were traced as a whole"


def _diagnostics(export: Export) -> Iterator[Issue]:
    """The capture's own warnings and errors."""
    for severity, text in dict.fromkeys(export.rows("DIAGNOSTIC_EVENT", "severity", "text")):
        if severity in _COMPLAINTS:
            yield Issue(complaint_severity(str(text)), "nsys-diagnostic", " ".join(str(text).split()))


def _origin(export: Export, path: Path, devices: Devices) -> Origin:
    exported, captured_by = dict(_pairs(export, _EXPORT_FACTS)), list(_pairs(export, ("META_DATA_CAPTURE",)))
    rank, ranks = _rank(value for name, value in captured_by if name.endswith(_ENVIRONMENT))
    facts = _facts(export, exported, captured_by)
    return Origin(
        kind=NVPROF if isinstance(export, nvprof.NvprofExport) else NsysSqliteParser.name,
        path=str(path),
        tool_version=exported.get("EXPORT_PRODUCT_VERSION", ""),
        gpu=_gpu_names(devices.names),
        facts=facts,
        utc_ns=_began(export),
        rank=rank,
        ranks=ranks,
        host=str(facts.get("host", "")),
    )


def _began(export: Export) -> int | None:
    """When the capture's clock read 0, in UTC."""
    began = next((utc for (utc,) in export.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")), None)
    return began if isinstance(began, int) and began > 0 else None


def _rank(assignments: Iterable[str]) -> tuple[int | None, int | None]:
    """The rank that whatever started the process gave it, and of how many."""
    pairs = (assignment.replace('"', "").partition("=") for assignment in assignments)
    numbers = {name: int(value) for name, _, value in pairs if value.isascii() and value.isdigit() and len(value) < 7}
    return next(((numbers[rank], numbers.get(ranks)) for rank, ranks in _RANKS if rank in numbers), (None, None))


def _gpu_names(names: Mapping[object, str]) -> str:
    """The models of all GPUs.

    >>> _gpu_names({0: "NVIDIA H100", 1: "NVIDIA H100"})
    '2x NVIDIA H100'
    """
    counts = {name: list(names.values()).count(name) for name in dict.fromkeys(names.values())}
    return ", ".join(name if count == 1 else f"{count}x {name}" for name, count in counts.items())


def _pairs(export: Export, tables: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names and values of the first of these tables that is there."""
    for table in tables:
        if table in export.tables:
            for name, value in export.rows(table, "name", "value"):
                yield str(name), str(value)
            return


def _facts(export: Export, exported: Mapping[str, str], capture: Sequence[tuple[str, str]]) -> dict[str, Fact]:
    words = [value for name, value in capture if name.startswith("PROCESS_0:") and _is_command(name)]
    wanted = {
        "schema": exported.get("EXPORT_SCHEMA_VERSION", ""),
        OriginFact.COMMAND: shell_command(words),
        OriginFact.DIRECTORY: next((redact(value) for name, value in capture if name == "PROCESS_0:WORKING_DIR"), ""),
        "traced": ", ".join(value for name, value in capture if name == "CAPTURE_EVENT_TYPE"),
        "delay": next((f"{ms} ms" for name, ms in capture if name == "START_DELAY_MS" and ms.strip("0")), ""),
        "started": next((str(utc) for (utc,) in export.rows("TARGET_INFO_SESSION_START_TIME", "utcTime")), ""),
        "host": next((value for name, value in capture if name == "DEVICE_DISPLAY_NAME"), ""),
        **_variables(value for name, value in capture if name.endswith(_ENVIRONMENT)),
    }
    return {name: value for name, value in wanted.items() if value}


def _is_command(name: str) -> bool:
    """COMMAND, then ARGUMENT_0, ARGUMENT_1 ... in the order of the file."""
    return name.endswith(":COMMAND") or ":ARGUMENT_" in name


def _variables(assignments: Iterable[str]) -> dict[str, str]:
    """The environment variables that matter to a server."""
    shown = (assignment for assignment in assignments if assignment.startswith(_SHOWN_VARIABLES))
    pairs = (redact(assignment.replace('"', "")).partition("=") for assignment in shown)
    return {name: value for name, _, value in pairs}
