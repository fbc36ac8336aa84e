"""What one poll of the GPUs brings together, gaps included."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llmtop.model import Mark, Metric, Missing, Origin, Reading, Trace, Track, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = "NVML"


@dataclass(slots=True)
class News:
    """What one poll brings together.

    Attributes:
        alive: (track, metric) pairs whose newest reading has a value; kept from poll to poll, so that a metric that
            loses its value gets one reading without one: history shows a gap, and "last" is not the old value.
    """

    t_ns: int
    alive: dict[tuple[str, str], Metric]
    readings: list[Reading] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def read(self, track: str, metric: Metric, value: float, source: str = SOURCE) -> None:
        """Add a value."""
        self.alive[track, metric.name] = metric
        self.readings.append(Reading(track, metric, self.t_ns, value, source))

    def lacks(self, track: str, metric: Metric, why: Unknown, source: str = SOURCE) -> None:
        """Say why a metric has no value."""
        self.missing.append(Missing(f"{track}/{metric.name}", why))
        self.gap(track, metric, source)

    def gap(self, track: str, metric: Metric, source: str = SOURCE) -> None:
        """End the line of a metric that had values."""
        if self.alive.pop((track, metric.name), None) is not None:
            self.readings.append(Reading(track, metric, self.t_ns, None, source))

    def gap_all(self, track: str) -> None:
        """End every line of a track and of those under it, and take back the values that this poll had of them."""
        self.readings = [one for one in self.readings if one.value is None or not _is_under(track, one.track)]
        for owner, name in list(self.alive):
            if _is_under(track, owner):
                self.gap(owner, self.alive[owner, name])

    def forget(self, track: str) -> None:
        """A track ended."""
        self.gone.append(track)
        for key in [key for key in self.alive if key[0] == track]:
            del self.alive[key]

    def trace(self, tracks: Mapping[str, Track]) -> Trace:
        """The poll's result."""
        return Trace(
            Origin("live"),
            self.t_ns,
            self.t_ns,
            tracks=tracks,
            readings=tuple(self.readings),
            marks=tuple(self.marks),
            missing=tuple(self.missing),
            gone=tuple(self.gone),
        )


def _is_under(track: str, other: str) -> bool:
    return other == track or other.startswith(f"{track}/")
