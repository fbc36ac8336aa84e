"""What one poll of the GPUs brings together, gaps included."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llmtop import whats
from llmtop.frozen import frozen
from llmtop.model import LIVE, Mark, Metric, Missing, Reading, Trace, Track, TrackId, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = "NVML"
NOT_READ = Unknown("it was not read")


class DueTimer:
    """Tells when something is due again.

    Args:
        period_ns: From one time to the next.
        first_ns: From the first to the second, where that is to come earlier: two looks make a rate.
    """

    def __init__(self, period_ns: int, first_ns: int | None = None) -> None:
        self._period_ns = period_ns
        self._first_ns = period_ns if first_ns is None else first_ns
        self._due_ns: int | None = None
        self._is_first = True

    def is_due(self, now_ns: int) -> bool:
        """Whether it is time; if so, the next time is set."""
        if self._due_ns is not None and now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + (self._first_ns if self._is_first else self._period_ns)
        self._is_first = False
        return True

    def hurry(self) -> None:
        """Make it due at once."""
        self._due_ns = None


@frozen
class Due:
    """What a poll reads beside the fast values."""

    slow: bool
    costly: bool
    links: bool


@dataclass(slots=True)
class NvmlPoll:
    """What one poll brings together.

    Attributes:
        alive: (track, metric) pairs whose newest reading has a value; kept from poll to poll, so that a metric that
            loses its value gets one reading without one: history shows a gap, and "last" is not the old value.
    """

    t_ns: int
    alive: dict[tuple[TrackId, str], Metric]
    readings: list[Reading] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    gone: list[TrackId] = field(default_factory=list)

    def read(self, track: TrackId, metric: Metric, value: float, source: str = SOURCE) -> None:
        """Add a value."""
        self.alive[track, metric.name] = metric
        self.readings.append(Reading(track, metric, self.t_ns, value, source))

    def lacks(self, track: TrackId, metric: Metric, why: Unknown, source: str = SOURCE) -> None:
        """Say why a metric has no value."""
        self.missing.append(Missing(whats.reading(track, metric), why))
        self.gap(track, metric, source)

    def told(self, track: TrackId, metric: Metric) -> float | Unknown:
        """What this poll has of a metric so far, or why it has none."""
        values = (one.value for one in reversed(self.readings) if one.track == track and one.metric is metric)
        if (value := next(values, None)) is not None:
            return value
        what = whats.reading(track, metric)
        return next((one.why for one in self.missing if one.what == what), NOT_READ)

    def gap(self, track: TrackId, metric: Metric, source: str = SOURCE) -> None:
        """End the line of a metric that had values."""
        if self.alive.pop((track, metric.name), None) is not None:
            self.readings.append(Reading(track, metric, self.t_ns, None, source))

    def gap_all(self, track: TrackId) -> None:
        """End every line of a track and of those under it, and take back the values that this poll had of them."""
        self.readings = [one for one in self.readings if one.value is None or not _is_under(track, one.track)]
        for owner, name in list(self.alive):
            if _is_under(track, owner):
                self.gap(owner, self.alive[owner, name])

    def add(self, other: NvmlPoll) -> None:
        """What one GPU brought."""
        self.readings += other.readings
        self.missing += other.missing
        self.marks += other.marks
        self.gone += other.gone

    def forget(self, track: TrackId) -> None:
        """A track ended."""
        self.gone.append(track)
        for key in [key for key in self.alive if key[0] == track]:
            del self.alive[key]

    def trace(self, tracks: Mapping[TrackId, Track]) -> Trace:
        """The poll's result."""
        return Trace(
            LIVE,
            self.t_ns,
            self.t_ns,
            tracks=tracks,
            readings=tuple(self.readings),
            marks=tuple(self.marks),
            missing=tuple(self.missing),
            gone=tuple(self.gone),
        )


def _is_under(track: TrackId, other: str) -> bool:
    return other == track or other.startswith(f"{track}/")
