"""Why a GPU had nothing to do at a moment: the pieces of its idle time (`account`), by the gap that they lie in."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.account import gap_pieces, graph_works, host_of
from llmtop.analysis.timeline.causes import TITLES, Cause
from llmtop.analysis.timeline.work import work_by_gpu
from llmtop.frozen import frozen

if TYPE_CHECKING:
    from llmtop.analysis.timeline.work import GpuWork
    from llmtop.model import Trace, TrackId


@frozen
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
    """The gaps of all GPUs of a trace, each looked at when it is asked for, and kept."""

    def __init__(self, trace: Trace) -> None:
        self._work = work_by_gpu(trace)
        self._host = host_of(trace)
        self._graphs = {gpu: graph_works(work, self._host.graphs)[1] for gpu, work in self._work.items()}
        self._bounds = trace.start_ns, trace.end_ns
        self._known: dict[tuple[TrackId, int], Gap] = {}

    def at(self, gpu: TrackId, t_ns: int) -> Gap | None:
        """The gap that a moment lies in; None where the GPU was at work, or is none of those that worked."""
        work = self._work.get(gpu)
        i = 0 if work is None else bisect_right(work.starts, t_ns)
        if work is None or (i and work.reach[i - 1] > t_ns):
            return None
        key = gpu, i
        if key not in self._known:
            self._known[key] = self._gap(gpu, work, i)
        return self._known[key]

    def _gap(self, gpu: TrackId, work: GpuWork, i: int) -> Gap:
        since = work.reach[i - 1] if i else min(self._bounds[0], work.starts[0])
        until = work.starts[i] if i < len(work) else max(self._bounds[1], work.reach[-1])
        labels = gap_pieces(work, self._host, self._graphs[gpu], i, self._bounds).within(since, until)
        parts = sorted(((cause, name, ns) for (cause, name), ns in labels.items()), key=_largest_first)
        return Gap(since, until, tuple(parts))


def _largest_first(part: tuple[Cause, str, int]) -> tuple[int, str, str]:
    cause, name, ns = part
    return -ns, cause, name
