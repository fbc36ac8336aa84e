"""The one container of all that is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llmtop.model.counts import CacheLine, EventCount, MemoryAccesses, ThreadScheduling
from llmtop.model.findings import Issue
from llmtop.model.kernels import KernelTable
from llmtop.model.marks import GpuFault, Mark, SanitizerError
from llmtop.model.notes import NO_NOTES, Notes
from llmtop.model.origins import Origin, RankPart
from llmtop.model.series import Metric, Reading, Series
from llmtop.model.sources import NO_SOURCES, Sources
from llmtop.model.spans import SpanTable
from llmtop.model.stacks import Stack, StackWindow
from llmtop.model.targets import Target
from llmtop.model.tracks import Track, TrackId, TrackKind
from llmtop.model.values import Missing, Unknown, What


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trace:
    """The one container. A collector's poll fills `readings`; the recorder and the parsers fill `series`.

    Its repr is short: a library that describes what it is given (Textual its workers) would otherwise write out
    ten minutes of thousands of series.
    """

    origin: Origin
    start_ns: int = 0
    end_ns: int = 0
    tracks: Mapping[TrackId, Track] = field(default_factory=dict)
    readings: tuple[Reading, ...] = ()
    series: Mapping[tuple[TrackId, str], Series] = field(default_factory=dict)
    spans: Mapping[str, SpanTable] = field(default_factory=dict)
    """By kind. A file's parser may read a kind only when it is asked for: what there is, `in` tells at once."""
    more_spans: Mapping[str, SpanTable] = field(default_factory=dict)
    """What nothing is concluded from, by kind, read only when it is asked for: calls and threads beside those in
    `spans`. None stands in both: "brief-call" goes with "call", "other-<kind>" is of threads that never call CUDA, and
    "allocator" has the moments at which threads asked an allocator of their program for memory, or gave it back.
    """
    stacks: Sequence[Stack] = ()
    kernels: KernelTable | None = None
    marks: tuple[Mark, ...] = ()
    issues: Sequence[Issue] = ()
    """Of a file that is read as it is looked at, more may follow at its end."""
    missing: tuple[Missing, ...] = ()
    gone: tuple[TrackId, ...] = ()
    """Ids of tracks that ended since the last poll (live only)."""
    stacks_end_ns: int = 0
    """When `stacks` were summed up (live only); 0 where they have no time of their own."""
    past_stacks: tuple[StackWindow, ...] = ()
    """`stacks` as they stood at earlier moments, oldest first (live only)."""
    sources: Sources = NO_SOURCES
    """Who reads what (live only)."""
    faults: tuple[GpuFault, ...] = ()
    """Of a core dump of a GPU: what its kernels failed with."""
    sanitizer: tuple[SanitizerError, ...] = ()
    """What compute-sanitizer reported."""
    counts: tuple[EventCount, ...] = ()
    """What perf stat counted, in the order in which it prints."""
    scheduling: tuple[ThreadScheduling, ...] = ()
    """What perf sched tells of each thread."""
    cache_lines: tuple[CacheLine, ...] = ()
    """What perf c2c tells, the one first for which CPUs fight most."""
    accesses: tuple[MemoryAccesses, ...] = ()
    """What perf mem tells, the heaviest first."""
    parts: tuple[RankPart, ...] = ()
    """The files that it was made of, where they are several, the one whose clock it has first."""
    notes: Notes = NO_NOTES
    """What the user calls its kernels, and wrote of them and of it: kept by llmtop, not in the file."""
    target: Target | None = None
    """Of a recording: the server that was observed. Live it is the session's, which may exchange it."""
    _of_kind: dict[TrackKind, tuple[Track, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<Trace {self.origin.kind} {self.start_ns}..{self.end_ns} ns: {len(self.series)} series>"

    def get(self, track: TrackId, metric: Metric) -> Series | None:
        """The series of a metric on a track, or None when it was never read."""
        return self.series.get((track, metric.name))

    def why_missing(self, *whats: What) -> Unknown | None:
        """The reason given for the first of `whats` that is listed as missing."""
        reasons = {missing.what: missing.why for missing in self.missing}
        return next((reasons[what] for what in whats if what in reasons), None)

    def tracks_of(self, kind: TrackKind) -> tuple[Track, ...]:
        """Tracks of a kind, in the order they were first seen."""
        if not self._of_kind:  # asked more than a hundred times a frame, of a dozen kinds of hundreds of tracks
            by_kind: dict[TrackKind, list[Track]] = {one: [] for one in TrackKind}
            for track in self.tracks.values():
                by_kind[track.kind].append(track)
            self._of_kind.update((one, tuple(tracks)) for one, tracks in by_kind.items())
        return self._of_kind[kind]
