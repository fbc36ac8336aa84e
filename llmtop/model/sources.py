"""What each collector reads: whom to ask why something is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from llmtop.frozen import frozen
from llmtop.model.series import Metric
from llmtop.model.tracks import TrackKind
from llmtop.model.values import What


@frozen
class SourceLane:
    """A line that a source adds to the picture of CPU and GPU: a gauge as it is, a counter as its growth per second.

    Attributes:
        kind: Whose it is: of the GPU that is shown, of the engine's process or thread, else of the first such track.
        high: The top of its scale; None for the largest value in the window.
    """

    metric: Metric
    kind: TrackKind
    high: float | None = None


@frozen
class Source:
    """A collector and what is its own to read: why something of it is not known, it alone says.

    Attributes:
        name: The collector's. What it lists as missing under this name is so of all that it reads.
        tracks: Kinds of tracks that it adds.
        families: What the names of its metrics begin with, where all that do so are its own: "gpu.".
        metrics: Those beside them; two sources may both read one.
        parts: Metrics that are there or missing together, by the name that they are then listed under with the track.
        whats: What it gives beside metrics: stacks.
        lanes: What it adds to the picture of CPU and GPU.
    """

    name: str
    tracks: tuple[TrackKind, ...] = ()
    families: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    parts: Mapping[str, tuple[Metric, ...]] = field(default_factory=dict)
    whats: tuple[What, ...] = ()
    lanes: tuple[SourceLane, ...] = ()

    def reads(self, metric: str) -> bool:
        """Whether a metric, by its name without labels, is its own to read."""
        mine = (*self.metrics, *(lane.metric for lane in self.lanes))
        return metric.startswith(self.families) or any(one.name == metric for one in mine)


class Sources:
    """All sources that look, best first: who is asked why something is not known."""

    def __init__(self, sources: Iterable[Source] = ()) -> None:
        self.all: Final = tuple(sources)
        self._readers: dict[str, tuple[Source, ...]] = {}

    def of_kind(self, kind: TrackKind) -> tuple[Source, ...]:
        """Those that add tracks of a kind."""
        return tuple(one for one in self.all if kind in one.tracks)

    def of_what(self, *whats: What) -> tuple[Source, ...]:
        """Those that give any of what no metric tells."""
        return tuple(one for one in self.all if not set(whats).isdisjoint(one.whats))

    def of_metric(self, metric: str) -> tuple[Source, ...]:
        """Those that read a metric, by its name without labels."""
        readers = self._readers.get(metric)
        if readers is None:  # asked for each number that is not known, in each frame
            readers = self._readers[metric] = tuple(one for one in self.all if one.reads(metric))
        return readers


NO_SOURCES = Sources()
