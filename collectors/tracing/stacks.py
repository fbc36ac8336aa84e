"""The stacks that helpers report, summed up over the last seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from llmtop import ids
from llmtop.collectors.kernel_frames import without_tracer
from llmtop.collectors.tracing.causes import FileOf, cause_of_sleep, file_of
from llmtop.collectors.tracing.wire import Sample
from llmtop.model import Stack, TrackId
from llmtop.text import clean
from llmtop.vocabulary import ON_CPU, STACKS_WINDOW_NS

MOST_STACKS = 400
"""Of a server with 800 different ones, these held 99.5 % of the time."""
LIGHTER_STACKS = "(lighter stacks, together)"

_StackKey: TypeAlias = "tuple[TrackId, str, tuple[str, ...]]"
"""Track, state and frames."""


def _together(light: Iterable[tuple[_StackKey, float]]) -> tuple[Stack, ...]:
    """One stack for each thread and state, which says that it stands for many: no time is lost."""
    sums: dict[tuple[TrackId, str], float] = {}
    for (track, state, _), ns in light:
        sums[track, state] = sums.get((track, state), 0.0) + ns
    return tuple(Stack((LIGHTER_STACKS,), ns, "ns", state, track) for (track, state), ns in sums.items())


class StackBuffer:
    """Keeps the stacks of the last seconds.

    Args:
        file_of: What a file descriptor of a process points to.
    """

    def __init__(self, file_of: FileOf = file_of) -> None:
        self._file_of = file_of
        self._kept: deque[tuple[int, dict[_StackKey, float]]] = deque()
        self._names: dict[str, str] = {}

    def keep(self, report: Sample) -> None:
        """Take in the stacks of one more report."""
        self._kept.append((int(report["t"]), self._weights(report)))

    def summed(self, now_ns: int) -> tuple[Stack, ...]:
        """The stacks of the last `STACKS_WINDOW_NS`, the heaviest first."""
        while self._kept and self._kept[0][0] < now_ns - STACKS_WINDOW_NS:
            self._kept.popleft()
        sums: dict[_StackKey, float] = {}
        for _, weights in self._kept:
            for key, ns in weights.items():
                sums[key] = sums.get(key, 0.0) + ns
        ranked = sorted(sums.items(), key=lambda item: -item[1])
        heaviest = tuple(Stack(frames, ns, "ns", state, track) for (track, state, frames), ns in ranked[:MOST_STACKS])
        return heaviest + _together(ranked[MOST_STACKS:])

    def _weights(self, report: Sample) -> dict[_StackKey, float]:
        weights: dict[_StackKey, float] = {}
        for pid, tid, call, state, descriptor, frames, ns in report.get("stacks", ()):
            cause = cause_of_sleep(pid, call, state, descriptor, self._file_of).value
            key = (ids.thread(pid, tid), cause, self._clean(without_tracer(frames)))
            weights[key] = weights.get(key, 0.0) + ns
        for pid, tid, cause_name, frames, ns in report.get("asleep", ()):
            key = (ids.thread(pid, tid), cause_name, self._clean(without_tracer(frames)))
            weights[key] = weights.get(key, 0.0) + ns
        for pid, tid, frames, ns in report.get("running", ()):
            key = (ids.thread(pid, tid), ON_CPU, self._clean(frames))
            weights[key] = weights.get(key, 0.0) + ns
        return weights

    def _clean(self, frames: Iterable[str]) -> tuple[str, ...]:
        names = self._names
        return tuple(names.get(frame) or names.setdefault(frame, clean(frame)) for frame in frames)
