"""A timeline from one moment to another alone, as if the capture had begun and ended there."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop.analysis.kernels.breakdown.within import common
from llmtop.analysis.kernels.nvtx_ranges import WINDOW_FACT, only_launches
from llmtop.columns import lengths
from llmtop.lazy import renumbered
from llmtop.model import API_CALLS, GPU_WORK, NS_PER_S, Missing, SpanKind, SpanTable, Unknown
from llmtop.units import duration

if TYPE_CHECKING:
    from collections.abc import Collection

    from llmtop.analysis.kernels.breakdown.within import RangeTimes
    from llmtop.model import KernelTable, Trace

_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": NS_PER_S}
_MOMENT = rf"(\d+(?:\.\d+)?|\.\d+)\s*({'|'.join(_UNITS)})"
_BETWEEN = re.compile(rf"\s*(?:{_MOMENT})?\s*:\s*(?:{_MOMENT})?\s*")
_NUMBER = rf"(\d+(?:\.\d+)?|\.\d+)\s*({'|'.join(_UNITS)})?"
_NUMBERS = re.compile(rf"\s*(?:{_NUMBER})?\s*:\s*(?:{_NUMBER})?\s*")
_OF_ALL = Unknown("stacks are of the whole capture: their moments are not known", "the report without --range has them")


def moments(text: str) -> tuple[int, int | None] | None:
    """From when to when, in ns since the capture began; None in place of the end for its end, and of other texts.

    >>> moments("2.5s:3.1s"), moments("10ms:"), moments(":250us"), moments("decode"), moments("llm:step 1")
    ((2500000000, 3100000000), (10000000, None), (0, 250000), None, None)
    """
    match = _BETWEEN.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    first, first_unit, last, last_unit = match.groups()
    return _ns(first, first_unit) if first else 0, _ns(last, last_unit) if last else None


def lacks_units(text: str) -> bool:
    """Whether a text looks like two moments of which one has no unit.

    >>> lacks_units("3:2"), lacks_units("0.5:2ms"), lacks_units(":7"), lacks_units("3s:2s"), lacks_units("step:2")
    (True, True, True, False, False)
    """
    match = _NUMBERS.fullmatch(text)
    return match is not None and any(match[group] and not match[group + 1] for group in (1, 3))


def _ns(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])


def only_time(trace: Trace, since: int, until: int | None) -> Trace | Unknown:
    """A trace of this time alone; why not, where it has none of it.

    Spans that reach over an edge are cut there. Calls before it that asked for work in it stay: who asked is known.

    Args:
        trace: Any trace.
        since: From when on, in ns after its beginning.
        until: Until when; None to its end.
    """
    if not trace.spans:
        return Unknown("it has no timeline", "--range takes the name of an NVTX range of such a report")
    length = trace.end_ns - trace.start_ns
    if since >= (length if until is None else min(until, length)):
        return _no_time(since, until, length)
    until = length if until is None else min(until, length)
    start, end = trace.start_ns + since, trace.start_ns + until
    rows = {kind: _rows(spans, start, end) for kind, spans in trace.spans.items()}
    works = ((trace.spans[kind], rows[kind]) for kind in GPU_WORK if kind in rows)
    asked = {join for table, own in works for i in own if (join := table.correlation[i]) >= 0}
    for kind in API_CALLS:
        if kind in rows:
            rows[kind] = _with_asked(trace.spans[kind], rows[kind], asked)
    spans = {kind: _cut(table, rows[kind], start, end) for kind, table in trace.spans.items() if len(rows[kind])}
    facts = {**trace.origin.facts, WINDOW_FACT: f"{duration(since)} to {duration(until)}"}
    return replace(
        trace,
        start_ns=start,
        end_ns=end,
        origin=replace(trace.origin, facts=facts),
        spans=spans,
        more_spans={kind: _within(table, start, end) for kind, table in trace.more_spans.items()},
        kernels=_kernels(trace, rows.get(SpanKind.KERNEL, ()), start, end),
        series={key: one.between(start, end) for key, one in trace.series.items()},
        marks=tuple(mark for mark in trace.marks if start <= mark.t_ns <= end),
        stacks=(),
        missing=(*trace.missing, *([Missing(whats.STACKS, _OF_ALL)] if trace.stacks else [])),
    )


def only_begun_in(trace: Trace, times: RangeTimes) -> Trace:
    """A trace with the calls that began in ranges, the work that they asked for, and what was allocated meanwhile."""
    rows = {kind: _begun_in(trace.spans[kind], times) for kind in trace.spans if kind in _OF_THREADS}
    more = {kind: _begun_in(trace.more_spans[kind], times) for kind in trace.more_spans if kind in _OF_THREADS}
    asked = {trace.spans[kind].correlation[i] for kind in API_CALLS if kind in rows for i in rows[kind]} - {-1}
    for kind in (*GPU_WORK, SpanKind.ALLOCATION):
        if (spans := trace.spans.get(kind)) is not None:
            rows[kind] = array("q", (i for i in range(len(spans)) if _is_of(spans, i, asked, times)))
    kernels = None if trace.kernels is None else only_launches(trace.kernels, rows.get("kernel", ()))
    return replace(
        trace,
        spans={kind: _chosen(trace.spans[kind], own) for kind, own in rows.items() if len(own)},
        more_spans={kind: _chosen(trace.more_spans[kind], own) for kind, own in more.items()},
        kernels=kernels,
    )


_OF_THREADS = frozenset({*API_CALLS, SpanKind.BRIEF_CALL, SpanKind.OS, SpanKind.OTHER_OS})


def _begun_in(spans: SpanTable, times: RangeTimes) -> array[int]:
    opened = [times.on_thread(track) for track in spans.tracks]
    rows = zip(spans.start_ns, spans.track_id, strict=True)
    return array("q", (i for i, (start, track) in enumerate(rows) if any(common(opened[track], start, start + 1))))


def _is_of(spans: SpanTable, row: int, asked: Collection[int], times: RangeTimes) -> bool:
    """Whether a call in the ranges asked for it; where no call is told, whether it began on the GPU meanwhile."""
    if (join := spans.correlation[row]) >= 0:
        return join in asked
    start, gpu = spans.start_ns[row], ids.gpu_of(spans.tracks[spans.track_id[row]])
    return any(common(times.on_gpus.get(gpu, ()), start, start + 1))


def _chosen(spans: SpanTable, rows: Sequence[int]) -> SpanTable:
    return _cut(spans, rows, spans.start_ns[0], max(spans.end_ns)) if len(rows) else _cut(spans, (), 0, 0)


def _no_time(since: int, until: int | None, length: int) -> Unknown:
    why = f"from {duration(since)} on there is nothing of it"
    if until is not None and until <= since:
        why = f"the end, {duration(until)}, is not after the beginning, {duration(since)}"
    return Unknown(f"{why}: the capture is {duration(length)} long", "--range START:END, as in 10ms:20ms")


def _rows(spans: SpanTable, start: int, end: int) -> array[int]:
    """The spans with any of this time; of those without length, the ones that are in it."""
    columns = zip(spans.start_ns, spans.end_ns, strict=True)
    return array("q", (i for i, (a, b) in enumerate(columns) if a < end and (b > start or a == b == start)))


def _within(spans: SpanTable, start: int, end: int) -> SpanTable:
    return _cut(spans, _rows(spans, start, end), start, end)


def _with_asked(calls: SpanTable, rows: Sequence[int], asked: Collection[int]) -> array[int]:
    return array("q", sorted({*rows, *(i for i, join in enumerate(calls.correlation) if join in asked)}))


def _cut(spans: SpanTable, rows: Iterable[int], start: int, end: int) -> SpanTable:
    """These spans, cut at the edges that they reach over; those that ended before asked for work in it."""

    def begins(i: int) -> int:
        return max(spans.start_ns[i], start) if spans.end_ns[i] > start else spans.start_ns[i]

    order = sorted(rows, key=begins)
    names, tracks, joins = (
        array("q", map(column.__getitem__, order)) for column in (spans.name_id, spans.track_id, spans.correlation)
    )
    starts, ends = array("q", map(begins, order)), array("q", (min(spans.end_ns[i], end) for i in order))
    amount = array("d", map(spans.amount.__getitem__, order))
    notes = renumbered(spans.notes, order)
    return SpanTable(spans.kind, spans.names, spans.tracks, names, tracks, starts, ends, joins, amount, notes)


def _kernels(trace: Trace, rows: Sequence[int], start: int, end: int) -> KernelTable | None:
    """The launches of the kernels that are left, with what of their time is left."""
    table, spans = trace.kernels, trace.spans.get(SpanKind.KERNEL)
    if table is None or spans is None or len(spans) != len(table):
        return table
    left = _cut(spans, rows, start, end)
    return replace(only_launches(table, rows), start_ns=left.start_ns, duration_ns=lengths(left.start_ns, left.end_ns))
