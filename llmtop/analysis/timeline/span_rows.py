"""What a timeline holds besides kernels, by kind and name: NVTX ranges, copies, CUDA calls, OS calls."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from llmtop.analysis.timeline.collectives import Collective, collectives, speed_text
from llmtop.analysis.timeline.listed import Statistics
from llmtop.analysis.timeline.ranges import Demands, demands
from llmtop.analysis.views import Cell
from llmtop.frozen import frozen
from llmtop.model import API_CALLS, GPU_WORK, NS_PER_S, SpanKind, SpanTable, Trace, Value
from llmtop.text import range_name

COLLECTIVE = "collective"
"""Kernels that exchange with other ranks: a kind of rows, and not of spans."""
TITLES: Mapping[str, str] = {
    SpanKind.NVTX: "NVTX range",
    SpanKind.MARK: "NVTX mark",
    COLLECTIVE: "collective",
    SpanKind.MEMCPY: "copy",
    SpanKind.MEMSET: "memset",
    SpanKind.GRAPH: "CUDA graph",
    SpanKind.OPERATOR: "operator",
    SpanKind.PYTHON: "Python call",
    SpanKind.LAUNCH: "launch call",
    SpanKind.CALL: "CUDA call",
    SpanKind.GPU_RANGE: "GPU range",
    SpanKind.REGION: "library",
    SpanKind.SYNC: "GPU wait",
    SpanKind.PAGE_FAULT: "page fault",
    SpanKind.ALLOCATION: "allocation",
    SpanKind.OS: "OS call",
    SpanKind.ON_CPU: "on a CPU",
    SpanKind.OFF_CPU: "off the CPU",
    SpanKind.OVERHEAD: "profiler",
}
"""The kinds of spans that are listed, in this order; kernels have a table of their own, but for what they send to other
ranks, of which a row has those of one operation, size and group."""
_ASKING = frozenset({SpanKind.NVTX, SpanKind.OPERATOR, SpanKind.PYTHON, SpanKind.REGION})
"""What a thread is in as it gives GPUs work."""
_LISTED_VALUES = 3
"""Values of one key that are listed."""


@frozen
class SpanRow:
    """All spans of one kind and name.

    NVTX ranges that differ by numbers or addresses only are one (`range_name`), unless each is wanted.

    Attributes:
        total_ns: Their time added up; spans within each other, and on several threads, count each.
        bytes: Moved by those that say; None where none does.
        times: All that is to be told of how long they last.
        gpu_ns: Of a range, an operator, a Python or library call the GPU time of what was launched in it (`claims`),
            and how many launches; None of others, and where the capture has no GPU work or no calls.
        recorded: What else is told of them, in words: "category io; payload 1 to 8".
        speed: Of collectives, how fast they were.
        what: What to call one where that is not what `TITLES` has.
    """

    kind: str
    name: str
    count: int
    total_ns: int
    longest_ns: int
    bytes: float | None
    gpu_ns: int | None
    launches: int | None
    times: Statistics | None = field(default=None, compare=False)
    recorded: str = ""
    speed: str = ""
    what: str = field(default="", compare=False)

    @property
    def bytes_per_s(self) -> float | None:
        """While it ran; None of what held its bytes and moved none."""
        if self.bytes is None or not self.total_ns or self.kind == SpanKind.ALLOCATION:
            return None
        return self.bytes * NS_PER_S / self.total_ns


def span_cells(row: SpanRow) -> tuple[Cell, ...]:
    """As tables show it: kind, name, count; total, mean and longest; GPU time, launches; bytes, bytes a second."""
    times = row.total_ns, row.total_ns / row.count, row.longest_ns
    told = row.recorded or None
    return (
        row.what or TITLES[row.kind],
        row.name,
        row.count,
        *times,
        row.gpu_ns,
        row.launches,
        row.bytes,
        row.bytes_per_s,
        told,
    )


def span_rows(trace: Trace, *, each: bool = False) -> tuple[SpanRow, ...]:
    """Rows by kind, those with the most time first; with each name of an NVTX range alone where that is wanted."""
    is_told = all(not trace.spans.keys().isdisjoint(kinds) for kinds in (_ASKING, API_CALLS, GPU_WORK))
    launched = demands(trace) if is_told else None
    rows = []
    for kind in TITLES:
        if (spans := trace.spans.get(kind)) is not None:
            found = _rows(spans, launched if kind in _ASKING else None, each=each)
            term = trace.origin.range_term if kind == SpanKind.NVTX else ""
            rows += sorted((replace(row, what=term) for row in found), key=lambda row: -row.total_ns)
        elif kind == COLLECTIVE:
            rows += sorted(_sent(trace), key=lambda row: -row.total_ns)
    return tuple(rows)


def _sent(trace: Trace) -> Iterator[SpanRow]:
    """What kernels send to other ranks, those alike as one row."""
    if (kernels := trace.spans.get(SpanKind.KERNEL)) is None:
        return
    members: dict[Collective, list[int]] = defaultdict(list)
    for row, one in collectives(trace).items():
        members[one].append(row)
    for one, own in members.items():
        lengths = array("q", (kernels.end_ns[i] - kernels.start_ns[i] for i in own))
        times = Statistics.of(lengths)
        sent = None if one.bytes is None else float(one.bytes * len(own))
        speed = speed_text(one, lengths)
        yield SpanRow(COLLECTIVE, one.title, len(own), times.total, times.most, sent, None, None, times, speed=speed)


def _rows(spans: SpanTable, launched: Demands | None, *, each: bool) -> Iterator[SpanRow]:
    titles = [range_name(name) if spans.kind == SpanKind.NVTX and not each else name for name in spans.names]
    members: dict[str, list[int]] = defaultdict(list)
    for i, name_id in enumerate(spans.name_id):
        members[titles[name_id]].append(i)
    for name, places in members.items():
        times = Statistics.of(array("q", (spans.end_ns[i] - spans.start_ns[i] for i in places)))
        moved = [spans.amount[i] for i in places if spans.amount[i] == spans.amount[i]]
        work = _launched(launched, spans, places) if launched is not None else None
        yield SpanRow(
            kind=spans.kind,
            name=name,
            count=len(places),
            total_ns=times.total,
            longest_ns=times.most,
            bytes=sum(moved) if moved else None,
            gpu_ns=work[0] if work else None,
            launches=work[1] if work else None,
            times=times,
            recorded=recorded_text([spans.notes[i] for i in places if i in spans.notes]) if spans.notes else "",
        )


def recorded_text(notes: Sequence[Mapping[str, Value]]) -> str:
    """What is told of spans beside name and time, in words.

    >>> recorded_text([{"category": "io (3)", "payload": 1}, {"category": "io (3)", "payload": 8}])
    'category io (3); payload 1 to 8'
    >>> recorded_text([{"Root": "a"}, {"Root": "b"}, {"Root": "c"}, {"Root": "d"}])
    'Root a, b, c and 1 more'
    """
    values: dict[str, list[Value]] = defaultdict(list)
    for note in notes:
        for key, value in note.items():
            values[key].append(value)
    return "; ".join(f"{key} {_of_values(list(dict.fromkeys(own)))}" for key, own in values.items())


def _of_values(values: Sequence[Value]) -> str:
    numbers = [value for value in values if not isinstance(value, str)]
    if len(values) > 1 and len(numbers) == len(values):
        return f"{min(numbers)} to {max(numbers)}"
    more = f" and {len(values) - _LISTED_VALUES} more" if len(values) > _LISTED_VALUES else ""
    return ", ".join(map(str, values[:_LISTED_VALUES])) + more


def _launched(asked: Demands, ranges: SpanTable, places: list[int]) -> tuple[int, int]:
    """GPU time of what was launched in these ranges, of a graph all its kernels, and how many calls launched it."""
    within = [
        asked.of(ranges.tracks[ranges.track_id[i]]).work_within(ranges.start_ns[i], ranges.end_ns[i]) for i in places
    ]
    return sum(ns for ns, _ in within), sum(calls for _, calls in within)
