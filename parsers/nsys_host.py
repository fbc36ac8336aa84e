"""The CPU side of an Nsight Systems capture: CUDA and OS calls, time off the CPU, samples, the cost of the profiler.

Of other things than CUDA calls only those of threads that make such calls are read: a capture of a whole machine holds
millions of rows of threads that never feed a GPU.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from llmtop import whats
from llmtop.columns import in_order
from llmtop.model import Issue, Missing, SpanTable, Unknown
from llmtop.parsers.nsys_export import (
    Columns,
    Condition,
    Devices,
    Export,
    Rows,
    SqlColumns,
    count_damaged,
    read_parts,
    read_rows,
    span_table,
)

_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_SAMPLES = ("COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS")
_OVERHEADS = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
_TELLING = re.compile("Mem|Sync|Query|[Aa]lloc|Free|Register|Graph|Module|Library")
"""Names of CUDA calls that give a GPU work, or wait: they are read however brief."""
_BRIEF_NS = 1000
"""Other calls than these are left out below it: questions of which PyTorch asks several for each kernel."""
_VERSION = re.compile(r"_v\d+$")
_DRIVER_WORK = {2: "JIT compilation", 6: "module loading", 7: "lazy function loading", 8: "command buffer full"}
"""ENUM_CUPTI_OVERHEAD_TYPE: what the driver does of itself. The other types are the profiler's cost."""
_OFF_CPU = {1: "runnable", 2: "blocked", 3: "blocked, uninterruptible", 6: "runnable"}
"""ENUM_SAMPLING_THREAD_STATE at the moment a thread was taken off the CPU; 0 where the export does not tell."""


def host_spans(export: Export, devices: Devices, issues: list[Issue]) -> Iterator[tuple[str, SpanTable]]:
    """Spans by kind: launch, call (of CUDA, other than launches), os, off-cpu, sample, overhead."""
    yield from _calls(export, devices, issues)
    yield from _os_calls(export, devices, issues)
    yield from _off_cpu(export, devices)
    yield from _samples(export, devices)
    yield from _overhead(export, devices, issues)


def missing_of_host(export: Export) -> Iterator[Missing]:
    """What was not collected, by the kind of span. A table is there only where something was recorded."""
    if not export.has(_RUNTIME):
        yield Missing(whats.CUDA_CALLS, Unknown("the capture has no CUDA calls", "add --trace=cuda"))
    if not export.has("OSRT_API"):
        yield Missing(whats.OS_CALLS, Unknown("the capture has no OS calls", "add --trace=osrt"))
    if not export.has("SCHED_EVENTS"):
        why = Unknown("the capture does not tell when threads ran", "add --cpuctxsw=process-tree")
        yield Missing(whats.CPU_SCHEDULING, why)
    if not export.has(_SAMPLES[1]):
        yield Missing(whats.CPU_SAMPLES, Unknown("the capture has no CPU samples", "add --sample=process-tree"))


def _calls(export: Export, devices: Devices, issues: list[Issue]) -> Iterator[tuple[str, SpanTable]]:
    """Calls of the CUDA API: those that launch, and others that may matter."""
    if not export.has(_RUNTIME, "start", "end", "nameId"):
        return
    texts = export.strings(export.distinct(_RUNTIME, "nameId"))
    launches = [key for key, text in texts.items() if "Launch" in text]
    told = [key for key, text in texts.items() if _TELLING.search(text)]

    def is_launch(of: Columns) -> Any:
        return of.among(of.integer("nameId"), launches)

    def is_call(of: Columns) -> Any:
        lasts = of.integer("end") - of.integer("start") >= _BRIEF_NS
        return of.choose(is_launch(of), 0, of.choose(of.among(of.integer("nameId"), told), 1, lasts))

    parts = read_parts(export, _RUNTIME, _call, [is_launch, is_call])
    for kind, rows in zip(("launch", "call"), parts, strict=True):
        yield kind, _named_spans(devices, issues, kind, rows, texts)


def _os_calls(export: Export, devices: Devices, issues: list[Issue]) -> Iterator[tuple[str, SpanTable]]:
    table = "OSRT_API"
    if export.has(table, "start", "end", "nameId", "globalTid"):
        texts = export.strings(export.distinct(table, "nameId"))
        rows = read_rows(export, table, _call, _of_callers(export))
        yield "os", _named_spans(devices, issues, "os", rows, texts)


def _named_spans(devices: Devices, issues: list[Issue], kind: str, rows: Rows, texts: Mapping[int, str]) -> SpanTable:
    """Calls by the name that `nameId` gives them, without the number of its version."""
    count_damaged(issues, kind, rows)
    return span_table(kind, rows, lambda key: _VERSION.sub("", texts.get(key, f"call {key}")), devices.thread_track)


def _call(of: Columns) -> Sequence[Any]:
    return of.integer("nameId"), of.integer("globalTid"), of.join


def _of_callers(export: Export) -> Condition:
    """The condition that a row is of a thread that calls CUDA."""
    if not export.has(_RUNTIME, "globalTid"):
        return lambda _: 1
    callers = export.distinct(_RUNTIME, "globalTid")
    return lambda of: of.among(of.integer("globalTid"), callers)


def _off_cpu(export: Export, devices: Devices) -> Iterator[tuple[str, SpanTable]]:
    """From the moment a thread was taken off its CPU to the one it got one again."""
    table = "SCHED_EVENTS"
    if not export.has(table, "start", "isSchedIn", "globalTid"):
        return
    of = SqlColumns(export.columns(table), checked=True)
    columns = [array("q") for _ in range(5)]
    since: dict[int, tuple[int, int]] = {}
    order = "typeof(start) = 'integer' AND typeof(globalTid) = 'integer'"
    query = f"SELECT start, globalTid, isSchedIn, {of.integer('threadState')} FROM {table} WHERE {order}"
    for start, thread, is_in, state in export.execute(f"{query} AND {_of_callers(export)(of)} ORDER BY start"):
        if not is_in:
            since.setdefault(thread, (start, state))
        elif thread in since:
            left, state = since.pop(thread)
            for column, value in zip(columns, (left, start, state, thread, -1), strict=True):
                column.append(value)
    yield (
        "off-cpu",
        span_table("off-cpu", Rows(in_order(columns)), lambda key: _OFF_CPU.get(key, ""), devices.thread_track),
    )


def _samples(export: Export, devices: Devices) -> Iterator[tuple[str, SpanTable]]:
    """CPU samples that have a stack, without length, named by the innermost function that has a name."""
    events, chains = _SAMPLES
    if not (export.has(events, "id", "start", "globalTid") and export.has(chains, "id", "symbol", "stackDepth")):
        return
    named = "AND unresolved IS NOT 1" if export.has(chains, "unresolved") else ""
    leaves = f"SELECT id, symbol, min(stackDepth) FROM {chains} WHERE symbol IS NOT NULL {named} GROUP BY id"
    texts = export.strings(export.distinct(chains, "symbol"))
    of_callers = _of_callers(export)(SqlColumns(export.columns(events), checked=True))
    columns = [array("q") for _ in range(5)]
    for start, symbol, thread in export.execute(
        f"SELECT start, symbol, globalTid FROM {events} JOIN ({leaves}) USING (id) "
        f"WHERE typeof(start) = 'integer' AND typeof(globalTid) = 'integer' AND {of_callers} ORDER BY start"
    ):
        if symbol in texts:
            for column, value in zip(columns, (start, start, symbol, thread, -1), strict=True):
                column.append(value)
    yield "sample", span_table("sample", Rows(columns), texts.__getitem__, devices.thread_track)


def _overhead(export: Export, devices: Devices, issues: list[Issue]) -> Iterator[tuple[str, SpanTable]]:
    """What the profiler cost its program, and what the driver did behind a call: compile, load code."""
    present = [table for table in _OVERHEADS if export.has(table, "start", "end", "globalTid", "nameId")]
    if not present:
        return
    texts = export.strings(set().union(*(export.distinct(table, "nameId") for table in present)))
    texts |= {-kind: name for kind, name in _DRIVER_WORK.items()}
    parts = [read_rows(export, table, _overhead_keys, _of_callers(export)) for table in present]
    for rows in parts:
        count_damaged(issues, "overhead", rows)
    columns = [array("q", chain.from_iterable(rows.columns[i] for rows in parts)) for i in range(5)]
    yield (
        "overhead",
        span_table("overhead", Rows(in_order(columns)), lambda key: texts.get(key, "profiler"), devices.thread_track),
    )


def _overhead_keys(of: Columns) -> Sequence[Any]:
    """As name the kind of the driver's work (negative), else the text of the row."""
    kind, name = of.integer("overheadType"), of.integer("nameId")
    return of.choose(of.among(kind, _DRIVER_WORK), kind * -1, name), of.integer("globalTid"), -1
