"""The tables of a trace, by name: those that views show and `llmtop report` prints, and what they are made of."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from llmtop import whats
from llmtop.analysis.kernels.absent import no_kernels
from llmtop.analysis.kernels.breakdown.breakdown import By, breakdown
from llmtop.analysis.kernels.breakdown.breakdown_table import breakdown_table
from llmtop.analysis.kernels.occupancy_table import occupancy_pages, occupancy_table
from llmtop.analysis.kernels.source_table import CodeBy, code_rows
from llmtop.analysis.kernels.table import Grouping, kernel_table, kernels_of
from llmtop.analysis.kernels.traffic_table import charts, traffic_table
from llmtop.analysis.pages.report import entries
from llmtop.analysis.pages.series import series_table
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series.summary import why_no_series
from llmtop.analysis.threads.functions import functions
from llmtop.analysis.timeline.capture import why_no_work
from llmtop.analysis.timeline.listed import Listed, listed
from llmtop.analysis.timeline.listed_table import listed_table
from llmtop.analysis.timeline.memory import memory_pools
from llmtop.analysis.timeline.memory_table import memory_rows, memory_table
from llmtop.analysis.timeline.rows import kind_title
from llmtop.analysis.timeline.span_facts import track_name
from llmtop.analysis.timeline.span_rows import recorded_text
from llmtop.analysis.timeline.span_table import COLUMNS as SPAN_COLUMNS
from llmtop.analysis.views import Column
from llmtop.cli.report_series import series_records
from llmtop.cli.report_source import code_records
from llmtop.errors import FileError, UsageError
from llmtop.model import Unknown
from llmtop.python.frame import Frame
from llmtop.python.section_frames import KERNEL, PAGES, faults_frame, levels_frame, page_frame, series_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from llmtop.analysis.kernels.stalls import Stalls
    from llmtop.analysis.pages.report import Entry
    from llmtop.analysis.views import Cell, TableView
    from llmtop.model import SpanTable, Trace

_Found = TypeVar("_Found")
_Made: TypeAlias = "Callable[[Trace, str], Frame | Unknown]"
"""Makes a table of a trace, of kernels with a part of their name alone; or says why there is none."""


def table(trace: Trace, name: str, *, kernel: str = "") -> Frame:
    """A table of a trace; it is worked out with each call, and nothing of it before.

    Args:
        trace: What `llmtop.load` gave.
        name: One of `llmtop.TABLES`.
        kernel: Of tables by kernel, those alone with this in their name.

    Raises:
        FileError: The trace cannot have it, and what would bring it; or no kernel has such a name.
        UsageError: There is no such table, or it is not of kernels.
    """
    if name not in TABLES:
        raise UsageError(f"no table {name!r}: there are {', '.join(TABLES)}")
    if kernel and name not in _OF_KERNELS:
        raise UsageError(f"kernel= goes with {', '.join(_OF_KERNELS)}, not with {name}")
    found = _no_such_kernel(trace, kernel) or _MAKERS[name](trace, kernel)
    if isinstance(found, Unknown):
        raise FileError(f"{trace.origin.path}: {found}")
    return found


def _no_such_kernel(trace: Trace, kernel: str) -> Unknown | None:
    if not kernel or no_kernels(trace) is not None or kernels_of(trace).standing(kernel):
        return None
    return Unknown(f'no kernel has "{kernel}" in its name')


# -- kernels ----------------------------------------------------------------------------------------------------------

_METRICS = (
    *KERNEL,
    Column("metric", "metric", help="by the tool's own name"),
    Column("value", "value", help="a number in the unit of its row, or a text"),
    Column("unit", "unit", help="of the value; empty where it has none"),
)
_STALLS = (
    *KERNEL,
    Column("reason", "reason", help="what warps wait for"),
    Column("share", "share", "ratio", help="of the waiting of the kernel's warps"),
)


def _kernels(trace: Trace, kernel: str) -> Frame | Unknown:
    """A row for each launch where each was measured by itself, else for each name, grid and block."""
    if (why := no_kernels(trace)) is not None:
        return why
    has_counters = kernels_of(trace).table.details is not None
    rows = kernel_table(trace, Grouping.LAUNCH if has_counters else Grouping.SHAPE).filtered(kernel)
    full = Column("full_name", "full name", help="demangled")
    cells = ((*rows.cells(i), rows.kernels.table.name(rows.launch(i))) for i in range(len(rows)))
    return Frame.of((*rows.columns, full), cells)


def _metrics(trace: Trace, kernel: str) -> Frame | Unknown:
    unit = kernels_of(trace).unit
    rows = (
        (*which, metric, value, unit(metric))
        for which, one in _measured(trace, kernel)
        for metric, value in one.metrics.items()
    )
    return _why_no_counters(trace) or Frame.of(_METRICS, rows)


def _stalls(trace: Trace, kernel: str) -> Frame | Unknown:
    rows = (
        (*which, reason, share)
        for which, one in _measured(trace, kernel)
        for reason, share in _shares(one.facts.stalls)
    )
    return _why_no_counters(trace) or Frame.of(_STALLS, rows)


def _why_no_counters(trace: Trace) -> Unknown | None:
    kernels = kernels_of(trace)
    return no_kernels(trace) or (kernels.no_counters if kernels.table.details is None else None)


def _measured(trace: Trace, kernel: str) -> Iterator[tuple[tuple[str, int], Entry]]:
    """The launches of kernels with this in their name, each with the cells that say which it is."""
    wanted = kernel.casefold()
    for one in entries(trace):
        if any(wanted in name.casefold() for name in (one.short, one.demangled)):
            yield (one.short, one.row.launches[0]), one


def _shares(stalls: Stalls | Unknown) -> Sequence[tuple[str | Unknown, float | Unknown]]:
    return ((stalls, stalls),) if isinstance(stalls, Unknown) else stalls.shares


_CODE = (
    *KERNEL,
    Column("file", "file"),
    Column("line", "line", "1", help="from 1 on"),
    Column("function", "function", help="of an instruction, and of code without lines"),
    Column("offset", "offset", "bytes", help="of an instruction from the beginning of its function"),
    Column("address", "address", "1", help="of an instruction"),
    Column("text", "text", help="of the source; of an instruction where a disassembler is found"),
    Column("share", "share", "ratio", help="of the kernel's waiting warps, as they were sampled"),
    Column("samples", "samples", "1", help="of its warps, waiting or not"),
    Column("stalls", "stalls", "1", help="of these, waiting"),
    Column("not_issued", "not issued", "1", help="of these, while the scheduler issued nothing"),
    Column("executed", "executed", "1", help="times that a warp executed it"),
    Column("thread_share", "threads", "ratio", help="of the warp's threads, those that took part"),
    Column("l2_bytes", "to L2", "bytes", help="asked of L2 for global memory"),
    Column("l2_excess", "excess", "bytes", help="of these beyond what the access needs at least"),
    Column("shared", "shared", "1", help="wavefronts of shared memory"),
    Column("shared_excess", "excess", "1", help="of these beyond what the access needs at least"),
)


def _code(by: CodeBy, trace: Trace, kernel: str) -> Frame | Unknown:
    """With a column of samples for each reason to wait."""
    rows = code_rows(trace, by, kernel)
    return rows if isinstance(rows, Unknown) else _of_records(_CODE, code_records(rows))


def _occupancy(trace: Trace, kernel: str) -> Frame | Unknown:
    return _shown(occupancy_pages(trace, kernel), lambda pages: occupancy_table(trace, pages))


def _traffic(trace: Trace, kernel: str) -> Frame | Unknown:
    return _shown(charts(trace, kernel), lambda found: traffic_table(trace, found))


# -- timelines --------------------------------------------------------------------------------------------------------

_SPANS = (*SPAN_COLUMNS, Column("track", "track", help="the thread with its process, the stream with its GPU"))


def _spans(trace: Trace, kernel: str) -> Frame | Unknown:
    if not trace.spans:
        return why_no_work(trace) or Unknown("the capture has no spans")
    return Frame.of(_SPANS, (row for spans in trace.spans.values() for row in _rows_of_kind(trace, spans)))


def _rows_of_kind(trace: Trace, spans: SpanTable) -> Iterator[Sequence[Cell]]:
    kind = kind_title(spans.kind)
    tracks = [track_name(trace, one) for one in spans.tracks]
    for i, start in enumerate(spans.start_ns):
        amount, join = spans.amount[i], spans.correlation[i]
        yield (
            kind,
            spans.names[spans.name_id[i]],
            start - trace.start_ns,
            spans.end_ns[i] - start,
            amount if amount == amount else None,
            None if join < 0 else join,
            recorded_text([spans.notes[i]]) if i in spans.notes else None,
            tracks[spans.track_id[i]],
        )


def _steps(by: By, trace: Trace, kernel: str) -> Frame | Unknown:
    """Time by what a row of `By` is."""
    return _shown(breakdown(trace, by), lambda found: breakdown_table(found, trace.start_ns, is_whole=True))


def _listed(what: Listed, trace: Trace, kernel: str) -> Frame | Unknown:
    return _shown(listed(trace, what), lambda found: listed_table(found, what, is_whole=True))


def _memory(trace: Trace, kernel: str) -> Frame | Unknown:
    return _shown(memory_pools(trace), lambda pools: memory_table(memory_rows(pools, trace)))


# -- stacks -----------------------------------------------------------------------------------------------------------

_FUNCTIONS = (
    Column("function", "function"),
    Column("unit", "unit", help="of own and total"),
    Column("own", "own", "1", help="in the function itself, in the unit of its row"),
    Column("total", "total", "1", help="in it and in what it calls, in the unit of its row"),
    Column("own_share", "own share", "ratio", help="of all stacks of this unit"),
    Column("total_share", "total share", "ratio", help="of all stacks of this unit"),
)


def _functions(trace: Trace, kernel: str) -> Frame | Unknown:
    found = functions(trace)
    if not found:
        return trace.why_missing(whats.STACKS) or Unknown("the capture has no stacks")
    rows = (
        (share.name, one.unit, share.own, share.total, share.own_share, share.total_share)
        for one in found
        for share in one.shares
    )
    return Frame.of(_FUNCTIONS, rows)


# -- numbers over time, moments, findings ------------------------------------------------------------------------------

_SERIES = (
    Column("track", "track", help="its id"),
    Column("of", "of", help="the GPU, the server, the thread"),
    Column("metric", "metric", help="its id"),
    Column("title", "title"),
    Column("unit", "unit", help="of the values; of a counter they are its growth a second"),
    Column("source", "source", help="who read it"),
    Column("samples", "samples", "1"),
    Column("seconds", "seconds", "s", help="from the first sample to the last"),
    Column("last", "last", "1", help="the newest value, in the unit of its row"),
    Column("last_said", "last said", help="what it stands for, where it is a code"),
    Column("least", "least", "1", help="in the unit of its row; so are mean and most"),
    Column("mean", "mean", "1"),
    Column("most", "most", "1"),
)
_SAMPLES = (
    Column("track", "track", help="as in series"),
    Column("metric", "metric", help="as in series"),
    Column("time", "time", "ns", help="since the capture began"),
    Column("value", "value", "1", help="in the unit of its row; a counter as it stood, its rate is in series"),
    Column("unit", "unit", help="of the value"),
)
_MARKS = (
    Column("time", "time", "ns", help="since the capture began"),
    Column("kind", "kind"),
    Column("severity", "severity", help="info, warning or error"),
    Column("track", "track", help="whom it happened to"),
    Column("text", "text", help="what happened"),
)
_FINDINGS = (
    Column("rule", "rule", help="which of the rules found it"),
    Column("severity", "severity", help="info, warning or error"),
    Column("subject", "subject", help="what it is about"),
    Column("message", "message"),
    Column("evidence", "evidence", help="the numbers that it rests on"),
    Column("action", "action", help="what to do about it"),
    Column("next_command", "next command"),
    Column("source", "source", help="of the evidence"),
    Column("at_stake", "at stake", "ns", help="that acting on it can save at most, as far as the evidence tells"),
)


def _samples(trace: Trace, kernel: str) -> Frame | Unknown:
    rows = (
        (track, metric, t_ns - trace.start_ns, value, one.metric.unit)
        for (track, metric), one in trace.series.items()
        for t_ns, value in one
    )
    return why_no_series(trace) or Frame.of(_SAMPLES, rows)


def _series(trace: Trace, kernel: str) -> Frame | Unknown:
    found = series_table(trace)
    return found if isinstance(found, Unknown) else _of_records(_SERIES, series_records(found))


def _marks(trace: Trace, kernel: str) -> Frame:
    rows = ((one.t_ns - trace.start_ns, one.kind, one.severity, one.track, one.text) for one in trace.marks)
    return Frame.of(_MARKS, rows)


def _faults(trace: Trace, kernel: str) -> Frame | Unknown:
    return faults_frame(trace)


def _findings(trace: Trace, kernel: str) -> Frame:
    rows = (
        (
            one.rule,
            one.severity,
            one.subject,
            one.message,
            "; ".join(one.evidence),
            one.action,
            one.next_command,
            one.source,
            one.at_stake_ns,
        )
        for one in diagnose(trace).findings
    )
    return Frame.of(_FINDINGS, rows)


# -- how they are made ------------------------------------------------------------------------------------------------


def _of_records(known: Sequence[Column], records: Iterator[Mapping[str, Cell]]) -> Frame:
    """Rows of the same keys, each the key of a column; those that are not known count samples."""
    rows, by_key = list(records), {column.key: column for column in known}
    keys = list(rows[0]) if rows else list(by_key)
    columns = [by_key.get(key) or Column(key, key, "1", help="samples that waited for this") for key in keys]
    return Frame.of(columns, (list(row.values()) for row in rows))


def _shown(found: _Found | Unknown, make: Callable[[_Found], TableView]) -> Frame | Unknown:
    """What a view shows of what was found."""
    if isinstance(found, Unknown):
        return found
    rows = make(found)
    return Frame.of(rows.columns, map(rows.cells, range(len(rows))))


_MAKERS: Mapping[str, _Made] = {
    "kernels": _kernels,
    "metrics": _metrics,
    "stalls": _stalls,
    "lines": partial(_code, CodeBy.LINE),
    "instructions": partial(_code, CodeBy.INSTRUCTION),
    "occupancy": _occupancy,
    "traffic": _traffic,
    "levels": levels_frame,
    **{name: partial(page_frame, page_of) for name, page_of in PAGES.items()},
    "pm_series": series_frame,
    "spans": _spans,
    "steps": partial(_steps, By.STEP),
    "ranges": partial(_steps, By.NVTX),
    "streams": partial(_steps, By.STREAM),
    "ranks": partial(_steps, By.RANK),
    "calls": partial(_listed, Listed.API),
    "copies": partial(_listed, Listed.COPY),
    "os_calls": partial(_listed, Listed.OS),
    "allocations": partial(_listed, Listed.ALLOCATION),
    "memory": _memory,
    "functions": _functions,
    "series": _series,
    "samples": _samples,
    "marks": _marks,
    "faults": _faults,
    "findings": _findings,
}
TABLES = tuple(_MAKERS)
"""The names of all tables."""
_OF_KERNELS = (
    "kernels", "metrics", "stalls", "lines", "instructions", "occupancy", "traffic", "levels", *PAGES, "pm_series",
)  # fmt: skip
