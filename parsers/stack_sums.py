"""Stacks as they are read: equal ones of a thread are one, and names are made harmless once each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.model import Stack, Track, TrackKind
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.model import TrackId

UNNAMED = "[unknown]"


def placed(name: object, file: object, line: object) -> str:
    """A function with its place, as py-spy's folded stacks have it; what is no text or number is left out.

    >>> placed("step", "engine.py", 65), placed("step", "engine.py", None), placed(None, "", 3)
    ('step (engine.py:65)', 'step (engine.py)', '')
    """
    function = name if isinstance(name, str) else ""
    if not isinstance(file, str) or not file or f"({file}" in function:
        return function
    return f"{function} ({file}:{line})" if isinstance(line, int) else f"{function} ({file})"


class StackSums:
    """Sums of the weights of stacks, by their unit, thread and frames."""

    def __init__(self) -> None:
        self._weights: dict[tuple[str, TrackId, tuple[str, ...]], float] = {}
        self._names: dict[str, str] = {}
        self.tracks: dict[TrackId, Track] = {}

    def add(self, track: TrackId, frames: Sequence[str], weight: float, unit: str) -> None:
        """Add one, its root first. A frame without a name is "[unknown]"."""
        key = unit, track, tuple(map(self._named, frames))
        self._weights[key] = self._weights.get(key, 0.0) + weight

    def thread(self, name: str, pid: int, tid: int) -> TrackId:
        """The track of a thread, made when it is new; what it was called first counts."""
        id = ids.thread(pid, tid)
        if id not in self.tracks:
            self.tracks[id] = Track(id, TrackKind.THREAD, self._named(name))
        return id

    def stacks(self) -> tuple[Stack, ...]:
        """Those with weight, the heaviest first."""
        heaviest_first = sorted(self._weights.items(), key=lambda pair: -pair[1])
        return tuple(
            Stack(frames, weight, unit, "", track) for (unit, track, frames), weight in heaviest_first if weight
        )

    def _named(self, frame: str) -> str:
        name = self._names.get(frame)
        if name is None:
            name = self._names[frame] = clean(frame.strip()) or UNNAMED
        return name
