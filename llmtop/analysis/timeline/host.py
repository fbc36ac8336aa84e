"""What a thread of the CPU did between two moments: the innermost and most telling of all that was recorded."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import chain, compress, islice
from operator import le
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from llmtop import whats
from llmtop.analysis.timeline.causes import DRIVER_WORK, Cause, cause_of_call, cause_of_os_call
from llmtop.analysis.timeline.file_waits import with_file_waits
from llmtop.analysis.timeline.work import gpu_by_join, gpu_title
from llmtop.columns import in_order
from llmtop.model import GPU_WORK, SpanKind
from llmtop.text import range_name

if TYPE_CHECKING:
    from llmtop.model import Trace, TrackId

LAUNCH_GAP_NS = 200_000
"""The longest idle time that can be the cost of a launch: ten times the 20 µs of a slow one (Machine Learning
Systems, Performance Engineering). A longer one is a pause: no request, a synchronisation, Python."""

Label: TypeAlias = tuple[Cause, str]
"""A cause, and the name of the call or range."""
Facet: TypeAlias = tuple[Label, int, int]
"""What a thread did from when to when."""

"""What a capture lacks that traced graphs as a whole, or not at all."""
DRAINING = frozenset({Cause.SYNC, Cause.COPY, Cause.ALLOCATION})
"""Calls that can keep a thread until the GPU has done all it was given: then it runs dry."""


@dataclass(slots=True)
class Layer:
    """Spans of one thread that do not overlap, in columns by start; `labels` has one for each."""

    starts: Sequence[int]
    ends: Sequence[int]
    labels: Sequence[Label]

    def __len__(self) -> int:
        return len(self.starts)

    def at(self, t_ns: int) -> Label | None:
        """What spans this moment, its end included and its start not."""
        i = bisect_left(self.starts, t_ns) - 1
        return self.labels[i] if i >= 0 and self.ends[i] >= t_ns else None

    def cut(self, free: Iterable[tuple[int, int]], pieces: list[Facet]) -> list[tuple[int, int]]:
        """Add what lies in the free stretches of time to the pieces; what remains free."""
        starts, ends = self.starts, self.ends
        rest = []
        for start, end in free:
            i = bisect_right(starts, start)
            if i and ends[i - 1] > start:
                i -= 1
            while i < len(starts) and starts[i] < end:
                since, until = max(starts[i], start), min(ends[i], end)
                if since > start:
                    rest.append((start, since))
                if until > since:
                    pieces.append((self.labels[i], since, until))
                start = until
                i += 1
            if start < end:
                rest.append((start, end))
        return rest


@dataclass(slots=True)
class HostThread:
    """All that is known of one thread.

    Attributes:
        waits: Calls that keep it waiting: where the GPU runs dry under one, that is why.
        layers: What it did, the most telling first: the profiler's cost, calls that wait, OS calls, being off the
            CPU, quick calls.
        ranges: The innermost NVTX ranges.
        code: What it ran outside of all this: the innermost of its ranges, Python functions and operators.
        outside: What to call time in which it did none of this.
        sampled_ns, functions: When it was sampled, and where it stood.
        untraced_ns: When it launched graphs whose work the capture does not have.
    """

    outside: Label
    waits: Layer | None = None
    layers: list[Layer] = field(default_factory=list)
    ranges: Layer | None = None
    code: Layer | None = None
    sampled_ns: Sequence[int] = ()
    functions: Sequence[str] = ()
    untraced_ns: Sequence[int] = ()

    def pieces(self, start: int, end: int) -> list[Facet]:
        """What it did in this time, without a rest."""
        pieces: list[Facet] = []
        free = [(start, end)]
        for layer in self.layers:
            free = layer.cut(free, pieces)
            if not free:
                return pieces
        if self.code is not None:
            free = self.code.cut(free, pieces)
        for since, until in free:
            pieces.append((self.outside, since, until))
        return pieces

    def pieces_before(self, start: int, end: int, rest: Label) -> list[Facet]:
        """What it did before a GPU's first work, as far as its ranges, Python or operators show what it is at.

        Calls outside of all these are those of a program that starts: `rest`, as is what nothing is known of.
        """
        is_at = self.code.at if self.code is not None else lambda t_ns: None
        return [
            (rest if is_at(since + 1) is None or label == self.outside else label, since, until)
            for label, since, until in self.pieces(start, end)
        ]

    def drained_by(self, t_ns: int) -> Cause | None:
        """The kind of call in which it waited for the GPU when that ran out of work."""
        label = self.waits.at(t_ns) if self.waits is not None else None
        return label[0] if label is not None and label[0] in DRAINING else None

    def range_at(self, t_ns: int) -> str:
        """The innermost NVTX range that is open at this moment; empty where none is."""
        if self.ranges is None:
            return ""
        i = bisect_right(self.ranges.starts, t_ns) - 1
        return self.ranges.labels[i][1] if i >= 0 and self.ranges.ends[i] > t_ns else ""

    def untraced_graph(self, after: int, before: int) -> int | None:
        """When it launched, between these moments, the first graph whose work the capture does not have."""
        i = bisect_left(self.untraced_ns, after)
        return next((at for at in self.untraced_ns[i : i + 1] if at < before), None)

    def functions_in(self, start: int, end: int) -> Sequence[str]:
        """Where it stood when it was sampled in this time."""
        return self.functions[bisect_left(self.sampled_ns, start) : bisect_right(self.sampled_ns, end)]


def host_threads(trace: Trace, outside: Label) -> dict[str, HostThread]:
    """What is known of the threads that call CUDA, by the id of their track.

    `outside` is what to call time of which nothing was recorded.
    """
    gpus = gpu_by_join(trace)
    launches = _layers(trace, SpanKind.LAUNCH, _launch, gpus)
    calls = _layers(trace, SpanKind.CALL, _call, gpus, _copies(trace))
    overhead, os_calls = _layers(trace, SpanKind.OVERHEAD, _overhead), _layers(trace, SpanKind.OS, _os_call)
    off_cpu, code = _layers(trace, SpanKind.OFF_CPU, _off_cpu), [_layers(trace, kind, of) for kind, of in _CODE.items()]
    samples, untraced = _layers(trace, SpanKind.SAMPLE, _sample), _untraced_graphs(trace)
    threads = {}
    for track in dict.fromkeys((*launches, *calls)):
        launched, called, in_os = (layers.get(track, _EMPTY) for layers in (launches, calls, os_calls))
        waits, quick = _parted(called)
        off = with_file_waits(off_cpu.get(track, _EMPTY), in_os, (launched, called))
        told = (overhead.get(track), waits, in_os, off)
        sampled = samples.get(track, _EMPTY)
        threads[track] = HostThread(
            outside,
            waits,
            [_flat(layer) for layer in (*told, _timed(_merged(launched, quick))) if layer],
            *_ranges([layers.get(track, _EMPTY) for layers in code]),
            sampled.starts,
            [name for _, name in sampled.labels],
            untraced.get(track, ()),
        )
    return threads


def is_graph_launch(call: str) -> bool:
    """Whether a call launches a CUDA graph, by its name."""
    return "GraphLaunch" in call


def _untraced_graphs(trace: Trace) -> Mapping[str, Sequence[int]]:
    """When graphs were launched that left no work, by thread; only of captures that say that they lack it."""
    spans = trace.spans.get(SpanKind.LAUNCH)
    if spans is None or trace.why_missing(whats.KERNELS_IN_GRAPHS) is None:
        return {}
    are_graphs = [is_graph_launch(name) for name in spans.names]
    row_by_join = {join: i for i, join in enumerate(spans.correlation) if are_graphs[spans.name_id[i]]}
    for table in (trace.spans[kind] for kind in GPU_WORK if kind in trace.spans):
        for join in row_by_join.keys() & table.correlation:
            del row_by_join[join]
    found: dict[str, list[int]] = defaultdict(list)
    for i in row_by_join.values():
        found[spans.tracks[spans.track_id[i]]].append(spans.start_ns[i])
    return found


_EMPTY = Layer((), (), ())


def _layers(
    trace: Trace,
    kind: str,
    label_of: Callable[[str], Label],
    gpus: Mapping[int, str] = MappingProxyType({}),
    copies: Mapping[int, str] = MappingProxyType({}),
) -> dict[str, Layer]:
    """The spans of a kind by track; calls whose work is in `gpus` or `copies` are told apart by GPU, or by copy."""
    spans = trace.spans.get(kind)
    if spans is None:
        return {}
    by_name = [label_of(name) for name in spans.names]
    labels = list(map(by_name.__getitem__, spans.name_id))
    if copies:
        labels = [_copying(label, copies.get(join)) for label, join in zip(labels, spans.correlation, strict=True)]
    if gpus:
        labels = [_at(label, gpus.get(join)) for label, join in zip(labels, spans.correlation, strict=True)]
    if len(spans.tracks) == 1:
        return {spans.tracks[0]: Layer(spans.start_ns, spans.end_ns, labels)}
    layer = Layer(spans.start_ns, spans.end_ns, labels)
    return {track: _only(layer, [i == own for i in spans.track_id]) for own, track in enumerate(spans.tracks)}


def _copies(trace: Trace) -> Mapping[int, str]:
    """The kind of each copy by its join key, of those whose calls differ from others: pageable, and within GPUs."""
    spans = trace.spans.get(SpanKind.MEMCPY)
    if spans is None:
        return {}
    kinds = [PAGEABLE if PAGEABLE in name else WITHIN if _ON_GPUS.search(name) else "" for name in spans.names]
    return {join: kinds[i] for join, i in zip(spans.correlation, spans.name_id, strict=True) if join >= 0 and kinds[i]}


PAGEABLE, WITHIN = "(pageable)", "(within GPUs)"
"""What the name of a call that copies ends with."""
_ON_GPUS = re.compile(r"\b[DPA]to[DPA]\b")


@lru_cache(maxsize=1024)
def _copying(label: Label, kind: str | None) -> Label:
    """The label of a call that makes such a copy; one between memories of GPUs returns at once, as a launch does."""
    if kind is None or label[0] is not Cause.COPY:
        return label
    return Cause.LAUNCH if kind == WITHIN else Cause.COPY, f"{label[1]} {kind}"


@lru_cache(maxsize=1024)
def _at(label: Label, gpu: TrackId | None) -> Label:
    """The label of a call that gives work to this GPU."""
    return label if gpu is None else (label[0], f"{label[1]}{_ON}{gpu_title(gpu)}")


def is_for_another(name: str, gpu: TrackId) -> bool:
    """Whether a call of this name, as `_at` makes it, gives work to another GPU than this one.

    >>> from llmtop import ids
    >>> is_for_another("cudaLaunchKernel on GPU 1", ids.gpu(0)), is_for_another("pread", ids.gpu(0))
    (True, False)
    """
    _, is_named, title = name.rpartition(_ON)
    return bool(is_named) and title != gpu_title(gpu)


_ON = " on "


def _only(layer: Layer, chosen: Sequence[bool]) -> Layer:
    starts, ends = (array("q", compress(column, chosen)) for column in (layer.starts, layer.ends))
    return Layer(starts, ends, list(compress(layer.labels, chosen)))


_QUICK = frozenset({Cause.LAUNCH, Cause.CALL})


def _parted(calls: Layer) -> tuple[Layer, Layer]:
    """Calls that wait, and quick ones."""
    is_quick = [cause in _QUICK for cause, _ in calls.labels]
    return _flat(_only(calls, [not quick for quick in is_quick])), _only(calls, is_quick)


def _timed(calls: Layer) -> Layer:
    """A launch call that lasts is told apart: it waited for something. A launch of a graph may last."""
    lasts = [end - start > LAUNCH_GAP_NS for start, end in zip(calls.starts, calls.ends, strict=True)]
    labels = [
        (Cause.SLOW_LAUNCH, label[1]) if long and label[0] is Cause.LAUNCH and "Graph" not in label[1] else label
        for label, long in zip(calls.labels, lasts, strict=True)
    ]
    return Layer(calls.starts, calls.ends, labels)


def _merged(one: Layer, other: Layer) -> Layer:
    if not one or not other:
        return one or other
    starts, ends = (array("q", chain(*columns)) for columns in ((one.starts, other.starts), (one.ends, other.ends)))
    starts, ends, order = in_order([starts, ends, array("q", range(len(starts)))])
    labels = [*one.labels, *other.labels]
    return Layer(starts, ends, [labels[i] for i in order])


def _flat(layer: Layer) -> Layer:
    """Of spans within each other the innermost."""
    if all(map(le, layer.ends, islice(layer.starts, 1, None))):
        return layer
    starts, ends, labels = array("q"), array("q"), []
    for start, end, label in _innermost(layer):
        starts.append(start)
        ends.append(end)
        labels.append(label)
    return Layer(starts, ends, labels)


def _innermost(layer: Layer) -> Iterator[tuple[int, int, Label]]:
    stack: list[tuple[int, Label]] = []
    since = 0
    finish = max(layer.ends)
    rows = zip(layer.starts, layer.ends, layer.labels, strict=True)
    for start, end, label in (*rows, (finish, finish, (Cause.UNKNOWN, ""))):
        while stack and stack[-1][0] <= start:
            until, outer = stack.pop()
            if until > since:
                yield since, until, outer
                since = until
        if stack and start > since:
            yield since, start, stack[-1][1]
        stack.append((end, label))
        since = start


def _ranges(layers: Sequence[Layer]) -> tuple[Layer | None, Layer | None]:
    """The innermost NVTX ranges, and the innermost of all code that is marked; layers as in `_CODE`."""
    ranges = _flat(layers[0]) if layers[0] else None
    if not any(layers[1:]):
        return ranges, ranges
    return ranges, _flat(reduce(_merged, layers))


def _launch(name: str) -> Label:
    return Cause.LAUNCH, name


def _call(name: str) -> Label:
    return cause_of_call(name), name


def _overhead(name: str) -> Label:
    return Cause.LOADING if name in DRIVER_WORK else Cause.PROFILER, name


def _os_call(name: str) -> Label:
    return cause_of_os_call(name), name


def _off_cpu(name: str) -> Label:
    return Cause.DESCHEDULED, name


def _range(name: str) -> Label:
    return Cause.OWN_CODE, range_name(name)


def _sample(name: str) -> Label:
    return Cause.OWN_CODE, name


_CODE: Mapping[str, Callable[[str], Label]] = {
    SpanKind.NVTX: _range,
    SpanKind.PYTHON: _sample,
    SpanKind.OPERATOR: _sample,
}
"""Kinds of spans that say what a thread runs, the outer ones first."""
