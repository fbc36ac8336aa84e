"""Where in time the longest gap of some causes is."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.account import idle_pieces
from llmtop.model import Stretch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from llmtop.analysis.timeline.sums import IdlePieces
    from llmtop.model import IdleTime, Trace, TrackId


@lru_cache(maxsize=1)
def longest_gaps(trace: Trace) -> LongestGaps:
    """The gaps of a timeline's GPUs, to be asked for; of a long capture this takes as long as the idle account."""
    return LongestGaps(trace)


class LongestGaps:
    """The pieces of each GPU's idle time, by the gap that they lie in."""

    def __init__(self, trace: Trace) -> None:
        self._gpus = {gpu: _PiecesByGap(pieces) for gpu, pieces in idle_pieces(trace).items()}

    def about(self, idle: IdleTime) -> Stretch | None:
        """The gap with most of this idle time; None where there is none."""
        return self.of([idle.gpu], idle.labels)

    def of(self, gpus: Iterable[TrackId], labels: Collection[tuple[str, str]]) -> Stretch | None:
        """From when to when the gap of one of these GPUs is that has most time of these causes and names, in ns."""
        found = [(*self._gpus[gpu].longest(labels), gpu) for gpu in gpus if gpu in self._gpus]
        ns, start, end, gpu = max(found, key=lambda one: one[0], default=(0, 0, 0, None))
        return Stretch(start, end, gpu) if ns else None


class _PiecesByGap:
    def __init__(self, pieces: IdlePieces) -> None:
        import numpy as np

        self._labels = pieces.labels
        self._starts, self._ends, self._numbers = map(np.asarray, (pieces.starts, pieces.ends, pieces.numbers))
        # The pieces of a gap follow each other without anything between; between two gaps there is work.
        self._first = np.flatnonzero(np.append(True, self._starts[1:] != self._ends[:-1])[: len(self._starts)])

    def longest(self, labels: Collection[tuple[str, str]]) -> tuple[int, int, int]:
        """How much time of these the gap with most has, and from when to when that gap is; 0 where none has any."""
        import numpy as np

        numbers = [number for number, label in enumerate(self._labels) if label in labels]
        if not numbers:
            return 0, 0, 0
        ns = np.add.reduceat((self._ends - self._starts) * np.isin(self._numbers, numbers), self._first)
        gap = int(ns.argmax())
        after = self._first[gap + 1] if gap + 1 < len(self._first) else len(self._starts)
        return int(ns[gap]), int(self._starts[self._first[gap]]), int(self._ends[after - 1])
