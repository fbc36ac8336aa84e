"""The CPU side of an Nsight Systems capture: CUDA and OS calls, time off the CPU, samples, the cost of the profiler.

Of other things than CUDA calls those of threads that make such calls stand apart: a capture of a whole machine holds
millions of rows of threads that never feed a GPU.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from llmtop import whats
from llmtop.columns import first_rows, in_order
from llmtop.lazy import LazyDictionary
from llmtop.model import API_CALLS, Missing, SpanKind, SpanTable, Unknown
from llmtop.parsers.nsys_export import (
    Capture,
    Columns,
    Condition,
    Export,
    LateReader,
    Rows,
    SqlColumns,
    count_damaged,
    joined,
    read_parts,
    read_rows,
    span_table,
    unless_of_tracing,
)
from llmtop.parsers.nsys_results import CALLS, results
from llmtop.vocabulary import OffCpu

SAMPLES = ("COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS")
"""When threads were sampled, and their stacks."""
_OS_CALLS = "OSRT_API"
_SCHEDULING = "SCHED_EVENTS"
_OVERHEADS = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
_TELLING = re.compile("Mem|Sync|Query|[Aa]lloc|Free|Register|Graph|Module|Library")
"""Names of CUDA calls that give a GPU work, or wait: they are read however brief."""
_BRIEF_NS = 1000
"""Other calls than these are left out below it: questions of which PyTorch asks several for each kernel."""
_VERSION = re.compile(r"_v\d+$")
_DRIVER_WORK = {2: "JIT compilation", 6: "module loading", 7: "lazy function loading", 8: "command buffer full"}
"""ENUM_CUPTI_OVERHEAD_TYPE: what the driver does of itself. The other types are the profiler's cost."""
_OFF_CPU = {1: OffCpu.RUNNABLE, 2: OffCpu.BLOCKED, 3: OffCpu.UNINTERRUPTIBLE, 6: OffCpu.RUNNABLE}
"""ENUM_SAMPLING_THREAD_STATE at the moment a thread was taken off the CPU; 0 where the export does not tell."""
OfThreads: TypeAlias = Callable[[Export], Condition]


def api_calls(capture: Capture) -> Iterator[tuple[str, SpanTable]]:
    """Calls of CUDA that launch, and others that may matter: launch, call."""
    parts = _calls(capture, _is_launch, _is_call)
    for kind, rows in zip(API_CALLS, parts, strict=True):
        calls = _named_spans(capture, kind, rows)
        yield kind, replace(calls, notes=LazyDictionary(partial(results, capture, calls)))


def late_kinds(export: Export) -> Mapping[str, LateReader]:
    """What else of threads that call CUDA an export has, and how it is read."""
    overheads = any(export.has(table, "start", "end", "globalTid", "nameId") for table in _OVERHEADS)
    there: dict[str, tuple[bool, LateReader]] = {
        SpanKind.OS: (_has_os_calls(export), partial(_os_calls, kind=SpanKind.OS, of_threads=_of_callers)),
        SpanKind.OFF_CPU: (_has_scheduling(export), partial(_off_cpu, kind=SpanKind.OFF_CPU, of_threads=_of_callers)),
        SpanKind.SAMPLE: (has_samples(export), partial(_samples, kind=SpanKind.SAMPLE, of_threads=_of_callers)),
        SpanKind.OVERHEAD: (overheads, _overhead),
    }
    return {kind: reader for kind, (is_there, reader) in there.items() if is_there}


def more_kinds(export: Export) -> Mapping[str, LateReader]:
    """What an export has of calls that tell nothing, and of threads that never call CUDA, and how it is read."""
    has_calls = export.has(CALLS, "start", "end", "nameId")
    others = export.has(CALLS, "globalTid")
    there: dict[str, tuple[bool, LateReader]] = {
        SpanKind.BRIEF_CALL: (has_calls, _brief_calls),
        SpanKind.OTHER_OS: (
            others and _has_os_calls(export),
            partial(_os_calls, kind=SpanKind.OTHER_OS, of_threads=_of_others),
        ),
        SpanKind.OTHER_OFF_CPU: (
            others and _has_scheduling(export),
            partial(_off_cpu, kind=SpanKind.OTHER_OFF_CPU, of_threads=_of_others),
        ),
        SpanKind.OTHER_SAMPLE: (
            others and has_samples(export),
            partial(_samples, kind=SpanKind.OTHER_SAMPLE, of_threads=_of_others),
        ),
    }
    return {kind: reader for kind, (is_there, reader) in there.items() if is_there}


def missing_of_host(export: Export) -> Iterator[Missing]:
    """What was not collected, by the kind of span. A table is there only where something was recorded."""
    if not export.has(CALLS):
        yield Missing(whats.CUDA_CALLS, Unknown("the capture has no CUDA calls", "add --trace=cuda"))
    if not export.has(_OS_CALLS):
        yield Missing(whats.OS_CALLS, Unknown("the capture has no OS calls", "add --trace=osrt"))
    if not export.has(_SCHEDULING):
        why = Unknown("the capture does not tell when threads ran", "add --cpuctxsw=process-tree")
        yield Missing(whats.CPU_SCHEDULING, why)
    if not export.has(SAMPLES[1]):
        yield Missing(whats.CPU_SAMPLES, Unknown("the capture has no CPU samples", "add --sample=process-tree"))


def _is_launch(texts: Mapping[int, str], of: Columns) -> Any:
    return of.among(of.integer("nameId"), [key for key, text in texts.items() if "Launch" in text])


def _is_call(texts: Mapping[int, str], of: Columns) -> Any:
    told = [key for key, text in texts.items() if _TELLING.search(text)]
    lasts = of.integer("end") - of.integer("start") >= _BRIEF_NS
    return of.choose(_is_launch(texts, of), 0, of.choose(of.among(of.integer("nameId"), told), 1, lasts))


def _is_brief(texts: Mapping[int, str], of: Columns) -> Any:
    return of.choose(_is_launch(texts, of), 0, of.choose(_is_call(texts, of), 0, 1))


def _calls(capture: Capture, *parts: Callable[[Mapping[int, str], Columns], Any]) -> Sequence[Rows]:
    """The calls of CUDA for which each condition holds."""
    export = capture.export
    if not export.has(CALLS, "start", "end", "nameId"):
        return [Rows([array("q") for _ in range(5)])] * len(parts)
    texts = export.strings(export.distinct(CALLS, "nameId"))
    return read_parts(export, CALLS, _call, [partial(part, texts) for part in parts])


def _brief_calls(capture: Capture) -> SpanTable:
    return _named_spans(capture, SpanKind.BRIEF_CALL, *_calls(capture, _is_brief))


def _os_calls(capture: Capture, *, kind: str, of_threads: OfThreads) -> SpanTable:
    threads = of_threads(capture.export)
    rows = read_rows(capture.export, _OS_CALLS, _call, lambda of: unless_of_tracing(of, threads(of)))
    return _named_spans(capture, kind, rows)


def _has_os_calls(export: Export) -> bool:
    return export.has(_OS_CALLS, "start", "end", "nameId", "globalTid")


def _named_spans(capture: Capture, kind: str, rows: Rows) -> SpanTable:
    """Calls by the name that `nameId` gives them, without the number of its version."""
    count_damaged(capture.issues, kind, rows)
    texts = capture.export.strings(first_rows(rows.columns[2]))
    return span_table(
        kind, rows, lambda key: _VERSION.sub("", texts.get(key, f"call {key}")), capture.devices.thread_track
    )


def _call(of: Columns) -> Sequence[Any]:
    return of.integer("nameId"), of.integer("globalTid"), of.join


def _of_callers(export: Export) -> Condition:
    """The condition that a row is of a thread that calls CUDA; where nothing tells which do, of any."""
    if not export.has(CALLS, "globalTid"):
        return lambda _: 1
    callers = export.distinct(CALLS, "globalTid")
    return lambda of: of.among(of.integer("globalTid"), callers)


def _of_others(export: Export) -> Condition:
    """The condition that a row is of a thread that never calls CUDA."""
    is_caller = _of_callers(export)
    return lambda of: of.choose(is_caller(of), 0, 1)


def _off_cpu(capture: Capture, *, kind: str, of_threads: OfThreads) -> SpanTable:
    """From the moment a thread was taken off its CPU to the one it got one again."""
    rows = read_rows(capture.export, _SCHEDULING, _switch, of_threads(capture.export))
    count_damaged(capture.issues, kind, rows)
    columns = [array("q") for _ in range(5)]
    since: dict[int, tuple[int, int]] = {}
    starts, _, threads, are_in, states = rows.columns
    for start, thread, is_in, state in zip(starts, threads, are_in, states, strict=True):
        if not is_in:
            since.setdefault(thread, (start, state))
        elif thread in since:
            left, state = since.pop(thread)
            for column, value in zip(columns, (left, start, state, thread, -1), strict=True):
                column.append(value)
    return span_table(kind, Rows(in_order(columns)), lambda key: _OFF_CPU.get(key, ""), capture.devices.thread_track)


def _switch(of: Columns) -> Sequence[Any]:
    return of.integer("globalTid"), of.integer("isSchedIn"), of.integer("threadState")


def _has_scheduling(export: Export) -> bool:
    return export.has(_SCHEDULING, "start", "isSchedIn", "globalTid")


def has_samples(export: Export) -> bool:
    """Whether CPUs were sampled, with stacks."""
    events, chains = SAMPLES
    return export.has(events, "id", "start", "globalTid") and export.has(chains, "id", "symbol", "stackDepth")


def _samples(capture: Capture, *, kind: str, of_threads: OfThreads) -> SpanTable:
    """CPU samples that have a stack, without length, named by the innermost function that has a name."""
    export, (events, chains) = capture.export, SAMPLES
    named = "AND unresolved IS NOT 1" if export.has(chains, "unresolved") else ""
    leaves = f"SELECT id, symbol, min(stackDepth) FROM {chains} WHERE symbol IS NOT NULL {named} GROUP BY id"
    texts = export.strings(export.distinct(chains, "symbol"))
    threads = of_threads(export)(SqlColumns(export.columns(events), checked=True))
    columns = [array("q") for _ in range(5)]
    for start, symbol, thread in export.execute(
        f"SELECT start, symbol, globalTid FROM {events} JOIN ({leaves}) USING (id) "
        f"WHERE typeof(start) = 'integer' AND typeof(globalTid) = 'integer' AND {threads} ORDER BY start"
    ):
        if symbol in texts:
            for column, value in zip(columns, (start, start, symbol, thread, -1), strict=True):
                column.append(value)
    return span_table(kind, Rows(columns), texts.__getitem__, capture.devices.thread_track)


def _overhead(capture: Capture) -> SpanTable:
    """What the profiler cost its program, and what the driver did behind a call: compile, load code."""
    export = capture.export
    present = [table for table in _OVERHEADS if export.has(table, "start", "end", "globalTid", "nameId")]
    texts = export.strings(set().union(*(export.distinct(table, "nameId") for table in present)))
    texts |= {-kind: name for kind, name in _DRIVER_WORK.items()}
    rows = joined([read_rows(export, table, _overhead_keys, _of_callers(export)) for table in present])
    count_damaged(capture.issues, SpanKind.OVERHEAD, rows)
    return span_table(SpanKind.OVERHEAD, rows, lambda key: texts.get(key, "profiler"), capture.devices.thread_track)


def _overhead_keys(of: Columns) -> Sequence[Any]:
    """As name the kind of the driver's work (negative), else the text of the row."""
    kind, name = of.integer("overheadType"), of.integer("nameId")
    return of.choose(of.among(kind, _DRIVER_WORK), kind * -1, name), of.integer("globalTid"), -1
