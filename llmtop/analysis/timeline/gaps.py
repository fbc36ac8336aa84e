"""Why a GPU had nothing to do at a moment: the pieces of its idle time (`account`), by the gap that they lie in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.account import idle_pieces
from llmtop.analysis.timeline.causes import TITLES, Cause

if TYPE_CHECKING:
    from llmtop.analysis.timeline.levels import SpanLine
    from llmtop.model import Trace, TrackId


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which a GPU had nothing to do.

    Attributes:
        parts: What it is made of: cause, name of the call or range, ns; the largest first.
    """

    start_ns: int
    end_ns: int
    parts: tuple[tuple[Cause, str, int], ...]

    @property
    def cause(self) -> Cause:
        """That of most of it."""
        return self.parts[0][0] if self.parts else Cause.UNKNOWN

    @property
    def said(self) -> tuple[tuple[str, int], ...]:
        """The parts in words, with their ns."""
        return tuple((f"{TITLES[cause]} {name}".strip(), ns) for cause, name, ns in self.parts)


class Gaps:
    """The gaps of all GPUs of a trace; those that were asked for are kept."""

    def __init__(self, trace: Trace) -> None:
        self._pieces = idle_pieces(trace)
        self._start, self._end = trace.start_ns, trace.end_ns
        self._known: dict[tuple[TrackId, int], Gap] = {}

    def at(self, gpu: TrackId, work: SpanLine, t_ns: int) -> Gap | None:
        """The gap that a moment lies in; None where the GPU was at work, or is none of those that worked."""
        since, until = work.cover.free_at(t_ns, self._start, self._end)
        if gpu not in self._pieces or not since <= t_ns < until:
            return None
        key = gpu, since
        if key not in self._known:
            labels = self._pieces[gpu].within(since, until)
            parts = sorted(((cause, name, ns) for (cause, name), ns in labels.items()), key=_largest_first)
            self._known[key] = Gap(since, until, tuple(parts))
        return self._known[key]


def _largest_first(part: tuple[Cause, str, int]) -> tuple[int, str, str]:
    cause, name, ns = part
    return -ns, cause, name
