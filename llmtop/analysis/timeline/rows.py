"""The rows of a timeline: GPUs with their streams, processes with their threads, and what else each has over time."""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, Final, TypeAlias

from llmtop import ids
from llmtop.analysis.timeline.work import gpu_title
from llmtop.columns import alike, first_rows, picked
from llmtop.frozen import frozen
from llmtop.model import API_CALLS, GPU_WORK, SpanKind, TrackKind

if TYPE_CHECKING:
    from llmtop.model import Series, SpanTable, Trace, TrackId

ALL_API_CALLS: Final = (*API_CALLS, SpanKind.BRIEF_CALL)
_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    SpanKind.KERNEL: ("kernel", ""),
    SpanKind.MEMCPY: ("copy", ""),
    SpanKind.MEMSET: ("memset", ""),
    SpanKind.GRAPH: ("CUDA graph", ""),
    SpanKind.SYNC: ("GPU wait", "waits"),
    SpanKind.GPU_RANGE: ("range on the GPU", "ranges"),
    SpanKind.PAGE_FAULT: ("page fault", "page faults"),
    SpanKind.ALLOCATION: ("allocation", "allocations"),
    SpanKind.LAUNCH: ("launch call", ""),
    SpanKind.CALL: ("CUDA call", ""),
    SpanKind.BRIEF_CALL: ("brief CUDA call", ""),
    SpanKind.ALLOCATOR: ("allocator", "allocator"),
    SpanKind.NVTX: ("NVTX range", "NVTX"),
    SpanKind.MARK: ("NVTX mark", "NVTX marks"),
    SpanKind.OPERATOR: ("operator", "operators"),
    SpanKind.PYTHON: ("Python function", "Python"),
    SpanKind.REGION: ("library call", "libraries"),
    SpanKind.OS: ("OS call", "OS calls"),
    SpanKind.ON_CPU: ("on a CPU", "on a CPU"),
    SpanKind.OFF_CPU: ("off the CPU", "off the CPU"),
    SpanKind.SAMPLE: ("CPU sample", "CPU samples"),
    SpanKind.OVERHEAD: ("profiler", "profiler"),
}
"""The kinds of spans in the order in which they stand below their track: what to call one, and a row of them."""
_OTHER: Final = "other-"
"""What kinds begin with that are of threads which never call CUDA."""
TrackRows: TypeAlias = "array[int] | range"
"""Rows of a table; a range where they are all of them."""
_BACKGROUND = frozenset({SpanKind.OS, SpanKind.ON_CPU, SpanKind.OFF_CPU, SpanKind.SAMPLE, SpanKind.OVERHEAD})
"""What any thread does: one with nothing else takes no part in the GPU's work."""
_WEIGHTS: Final[Mapping[str, float]] = {SpanKind.LAUNCH: 1e12, SpanKind.CALL: 1e6, **dict.fromkeys(_BACKGROUND, 1e-9)}
_LITTLE, _BARELY = 0.005, 0.1
"""Streams and threads with less than this share of what the busiest one has are folded away, but for a few; all those
that do nothing but what stands in the background."""
_FEW = 4
"""Rows that are kept open where they are used at all."""
_GPU_TRACKS = frozenset({TrackKind.GPU, TrackKind.GPU_INSTANCE, TrackKind.GPU_PROCESS, TrackKind.STREAM})
_HOST_TRACKS = frozenset({TrackKind.PROCESS, TrackKind.THREAD, None})
"""None is what belongs to no thread that is known."""
_MOST_DOMAINS = 8
"""Of NVTX that have a row each; of more, all have one."""
_DOMAIN = re.compile(r"([A-Za-z_][\w.-]*):(?=[^:\s])")
"""What an NVTX domain's ranges begin with; not C++'s `aten::mm`, nor a colon in a sentence."""


def kind_of(kind: str) -> str:
    """A kind, whichever threads it is of.

    >>> kind_of("other-os"), kind_of("os")
    ('os', 'os')
    """
    return kind.removeprefix(_OTHER)


def kind_title(kind: str) -> str:
    """What to call a span of a kind; of one that nothing here knows its own name."""
    return _KINDS.get(kind_of(kind), (kind, kind))[0]


def _group_title(kind: str) -> str:
    return _KINDS.get(kind_of(kind), (kind, kind))[1]


def in_usual_order(kinds: Iterable[str]) -> list[str]:
    """The kinds as they stand below each other, those that nothing here knows last."""
    places = {kind: place for place, kind in enumerate(_KINDS)}
    return sorted(kinds, key=lambda kind: (places.get(kind_of(kind), len(places)), kind))


@frozen
class TimelineRow:
    """One row, and those that stand below it where it is open.

    Attributes:
        key: What it is, whatever its place: a track's id and what of it.
        kinds: Of the spans on its line; () of one that only holds others.
        tracks: Whose spans these are.
        names: Of NVTX ranges of one domain the names, by their number in the table; None for all.
        is_stacked: Whether spans within each other stand on lines of their own where it is open.
        series: What its line is a graph of, in place of spans.
        note: Said in place of a line.
        use: What it is ordered by, the most first.
        is_open: Whether it is so until somebody closes it.
    """

    key: str
    title: str
    kinds: tuple[str, ...] = ()
    tracks: tuple[TrackId, ...] = ()
    names: frozenset[int] | None = None
    is_stacked: bool = True
    series: Series | None = None
    note: str = ""
    use: float = 0.0
    is_open: bool = True
    below: tuple[TimelineRow, ...] = ()

    @property
    def gpu(self) -> TrackId | None:
        """Of the row of a whole GPU its id."""
        is_whole = self.kinds[:1] and self.kinds[0] in GPU_WORK and not self.key.count("/")
        return ids.gpu_of(self.key) if is_whole else None


@dataclass
class _Uses:
    """How much of each kind each track has: its rows, how many they are, and their time together."""

    parts: Mapping[str, Mapping[TrackId, TrackRows]]
    spans: dict[str, Counter[TrackId]] = field(default_factory=lambda: defaultdict(Counter))
    ns: dict[str, Counter[TrackId]] = field(default_factory=lambda: defaultdict(Counter))

    @property
    def tracks(self) -> tuple[TrackId, ...]:
        """All that have any."""
        return tuple(dict.fromkeys(track for counted in self.spans.values() for track in counted))

    def kinds(self, tracks: Iterable[TrackId], kinds: Iterable[str]) -> tuple[str, ...]:
        """Those kinds that any of the tracks has."""
        own = tuple(tracks)
        return tuple(kind for kind in kinds if any(self.spans[kind][track] for track in own))

    def work_ns(self, track: TrackId) -> int:
        """Of a stream, how long it had work."""
        return sum(self.ns[kind][track] for kind in GPU_WORK)

    def of_thread(self, track: TrackId) -> float:
        """Launches first, then other calls, then what else it does; least what happens in the background."""
        return sum(counted[track] * _WEIGHTS.get(kind_of(kind), 1.0) for kind, counted in self.spans.items())

    def groups(self, tracks: Iterable[TrackId]) -> tuple[str, ...]:
        """The kinds that have a row of their own below these tracks."""
        return self.kinds(tracks, (kind for kind in self.parts if _group_title(kind)))


def rows_by_track(spans: SpanTable) -> dict[TrackId, TrackRows]:
    """The rows of each track's spans."""
    numbers = first_rows(spans.track_id)
    if len(numbers) == 1:
        return {spans.tracks[number]: range(len(spans)) for number in numbers}
    return {spans.tracks[spans.track_id[rows[0]]]: rows for rows in alike([spans.track_id])} if numbers else {}


def timeline_rows(
    trace: Trace, tables: Mapping[str, SpanTable], parts: Mapping[str, Mapping[TrackId, TrackRows]]
) -> tuple[TimelineRow, ...]:
    """All rows, those with the most use first: GPUs by their work, processes and threads by their launches.

    Args:
        trace: Whose tracks and series are shown.
        tables: The spans that are shown, by kind.
        parts: The rows of each kind's spans by track (`rows_by_track`).
    """
    uses = _uses(tables, parts)
    series: dict[TrackId, list[TimelineRow]] = defaultdict(list)
    for (track, name), samples in trace.series.items():
        if len(samples):
            title = samples.metric.title or name
            series[track].append(TimelineRow(f"{track}/series/{name}", title, series=samples))
    rows = [*_gpu_rows(trace, uses, series), *_process_rows(trace, uses, series)]
    rest = [row for own in series.values() for row in own]  # what has a row of its own has taken its series
    return (*rows, TimelineRow("host", "host", below=tuple(rest))) if rest else tuple(rows)


def _uses(tables: Mapping[str, SpanTable], parts: Mapping[str, Mapping[TrackId, TrackRows]]) -> _Uses:
    uses = _Uses(parts)
    for kind, by_track in parts.items():
        spans = tables[kind]
        for track, rows in by_track.items():
            uses.spans[kind][track] = len(rows)
            if kind in GPU_WORK:
                whole = len(rows) == len(spans)
                ends = sum(spans.end_ns if whole else map(spans.end_ns.__getitem__, rows))
                uses.ns[kind][track] = ends - sum(spans.start_ns if whole else map(spans.start_ns.__getitem__, rows))
    return uses


# -- GPUs ------------------------------------------------------------------------------------------------------


def _gpu_rows(trace: Trace, uses: _Uses, series: dict[TrackId, list[TimelineRow]]) -> Iterator[TimelineRow]:
    streams: dict[TrackId, list[TrackId]] = defaultdict(list)
    idle = (track.id for track in trace.tracks_of(TrackKind.STREAM))
    for track in dict.fromkeys((*uses.tracks, *idle, *series)):
        if ids.kind(track) in _GPU_TRACKS:
            streams[ids.gpu_of(track)].append(track)
    rows = [_gpu_row(trace, uses, gpu, own, series) for gpu, own in streams.items()]
    order = {str(gpu): place for place, gpu in enumerate(gpu for part in trace.parts for gpu in part.gpus)}
    rows.sort(key=lambda row: (order.get(row.key, len(order)), _by_use(row)))  # ranks are compared in their own order
    for place, row in enumerate(rows):
        yield row if place == 0 else replace(row, is_open=False)


def _gpu_row(
    trace: Trace, uses: _Uses, gpu: TrackId, streams: list[TrackId], series: dict[TrackId, list[TimelineRow]]
) -> TimelineRow:
    own = [track for track in streams if ids.kind(track) is TrackKind.STREAM or uses.work_ns(track)]
    below = [_stream_row(trace, uses, track, own) for track in own]
    working = [row for row in below if row.use]
    title = gpu_title(gpu)
    if len(working) == 1:
        title = f"{title} {working[0].title}"
        below.remove(working[0])
    rest = [
        TimelineRow(f"{gpu}/{kind}", _group_title(kind), (kind,), tuple(streams), is_open=False)
        for kind in uses.groups(streams)
    ]
    rest += [row for track in streams for row in series.pop(track, [])]
    use = sum(map(uses.work_ns, own))
    return TimelineRow(
        gpu,
        title,
        uses.kinds(own, GPU_WORK),
        tuple(own),
        is_stacked=False,
        note="" if use else "no work",
        use=use,
        below=(*_folded(sorted(below, key=_by_use), "stream", gpu), *rest),
    )


def _stream_row(trace: Trace, uses: _Uses, track: TrackId, all_streams: list[TrackId]) -> TimelineRow:
    name = trace.tracks[track].name if track in trace.tracks else str(track)
    if len({ids.pid(one) for one in all_streams if ids.kind(one) is TrackKind.STREAM}) > 1:
        name = f"{name} ({ids.pid(track)})"
    use = uses.work_ns(track)
    kinds = uses.kinds((track,), GPU_WORK)
    return TimelineRow(str(track), name, kinds, (track,), use=use, is_open=False, note="" if use else "no work")


# -- processes -------------------------------------------------------------------------------------------------


def _process_rows(trace: Trace, uses: _Uses, series: dict[TrackId, list[TimelineRow]]) -> Iterator[TimelineRow]:
    threads: dict[TrackId, list[TrackId]] = defaultdict(list)
    idle = (track.id for track in trace.tracks_of(TrackKind.THREAD))
    for track in dict.fromkeys((*sorted(uses.tracks), *idle, *series)):
        if ids.kind(track) in _HOST_TRACKS:
            threads[_process_of(track)].append(track)
    for process, tracks in sorted(threads.items(), key=lambda pair: -sum(map(uses.of_thread, pair[1]))):
        own = [track for track in tracks if track != process]
        below = sorted((_thread_row(trace, uses, track) for track in own), key=_by_use)
        graphs = [row for track in tracks for row in series.pop(track, [])]
        name = trace.tracks[process].name if process in trace.tracks else str(process) or "no process"
        number = f"{len(own)} thread{'s' * (len(own) != 1)}"
        launches = sum(uses.spans[SpanKind.LAUNCH][track] for track in own)
        yield TimelineRow(
            str(process) or "process",
            name,
            note=f"{number}, {launches:,} launches" if launches else number,
            below=(*_folded(below, "thread", process), *_groups(trace, uses, process), *graphs),
        )


def _process_of(track: TrackId) -> TrackId:
    return ids.process_of(track) if ids.kind(track) is TrackKind.THREAD else track


def _thread_row(trace: Trace, uses: _Uses, track: TrackId) -> TimelineRow:
    name = trace.tracks[track].name if track in trace.tracks else str(track) or "no thread"
    below = tuple(_groups(trace, uses, track))
    kinds, use = uses.kinds((track,), ALL_API_CALLS), uses.of_thread(track)
    if not kinds and len(below) == 1:
        return replace(below[0], title=f"{name} {below[0].title}", use=use)
    note = "" if kinds or below else "nothing recorded"
    return TimelineRow(str(track), name, kinds, (track,), note=note, use=use, below=below)


def _groups(trace: Trace, uses: _Uses, track: TrackId) -> Iterator[TimelineRow]:
    """What stands below a thread, or below a process as a whole: a row for each kind, and for each NVTX domain."""
    for kind in uses.groups((track,)):
        is_shown = kind_of(kind) not in _BACKGROUND and kind != SpanKind.PYTHON
        row = TimelineRow(f"{track}/{kind}", _group_title(kind), (kind,), (track,), is_open=is_shown)
        if kind != SpanKind.NVTX:
            yield row
            continue
        for domain, names in _domains(trace.spans[kind], uses.parts[kind][track]).items():
            title = f"NVTX {domain}".strip() if trace.origin.has_nvtx else f"{trace.origin.range_term}s"
            yield replace(row, key=f"{row.key}/{domain}" if domain else row.key, title=title, names=names)


def _domains(spans: SpanTable, rows: TrackRows) -> dict[str, frozenset[int] | None]:
    """The names of each domain that these rows are of, "" for the default one; it stands first."""
    domains: dict[str, set[int]] = defaultdict(set)
    for name in first_rows(picked(spans.name_id, rows) if isinstance(rows, array) else spans.name_id):
        found = _DOMAIN.match(spans.names[name])
        domains[found[1] if found else ""].add(name)
    if len(domains) == 1 or len(domains) > _MOST_DOMAINS:
        return {next(iter(domains)) if len(domains) == 1 else "": None}
    return {domain: frozenset(domains[domain]) for domain in sorted(domains)}


# -- order -----------------------------------------------------------------------------------------------------


def _by_use(row: TimelineRow) -> tuple[float, int, str]:
    return -row.use, len(row.key), row.key


def _folded(rows: list[TimelineRow], what: str, of: str) -> list[TimelineRow]:
    """Rows by use, those without any or with little of it in one that is closed and counts them."""
    most = max((row.use for row in rows), default=0.0)
    is_kept = [row.use >= _LITTLE * most > 0 or (i < _FEW and row.use > _BARELY) for i, row in enumerate(rows)]
    kept, little = list(compress(rows, is_kept)), [row for row, stays in zip(rows, is_kept, strict=True) if not stays]
    if len(little) < 2 and not (kept and little):
        return rows
    how = "with little or no work" if what == "stream" else "that do little or nothing for the GPU"
    title = f"+{len(little)} {what}{'s' * (len(little) > 1)}"
    return [*kept, TimelineRow(f"{of}/more", title, note=how, is_open=False, below=tuple(little))]
