"""Time off the CPU that a thread spends on files: asleep in the kernel, between one call on files and the next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.causes import Cause, OsWait, os_wait
from llmtop.vocabulary import OffCpu

if TYPE_CHECKING:
    from llmtop.analysis.timeline.host import Layer

NOT_TRACED_AFTER = "not traced, after "
"""What the name of such a time begins with; the call on files that came before follows."""
_BRIEF_NS = 20_000
"""Other OS calls that return within it are no other work: a question (poll), memory for what is read (mmap). Ours."""
_MOSTLY = 0.5
"""Of the time from call to call: a thread that computes there and loses its CPU is on it for more. Ours."""


def with_file_waits(off_cpu: Layer, os_calls: Layer, others: Sequence[Layer]) -> Layer:
    """The times off the CPU of a thread, those that are waits for files labelled as OS calls.

    nsys does not trace all calls on files (fsync, close), nor page faults. A thread that was blocked between two that
    it does trace, and did nothing else there, waited for files. Where the capture does not tell why it was off its
    CPU, it has to be off it for most of that time.

    Args:
        off_cpu: Labelled with a state (`vocabulary.OffCpu`), or none.
        os_calls: Of the same thread.
        others: Further calls of the thread, between which no time counts as one on files.
    """
    labels = list(off_cpu.labels)
    for row, call in _between_calls(off_cpu, os_calls, others):
        labels[row] = Cause.OS, f"{NOT_TRACED_AFTER}{call}"
    return replace(off_cpu, labels=labels)


def _between_calls(off_cpu: Layer, os_calls: Layer, others: Sequence[Layer]) -> Iterator[tuple[int, str]]:
    """The rows of such times, and the call before each."""
    on_files = {label for label in set(os_calls.labels) if os_wait(label[1]) is OsWait.FILES}
    calls = [
        (start, end, label)
        for start, end, label in zip(os_calls.starts, os_calls.ends, os_calls.labels, strict=True)
        if label in on_files or end - start > _BRIEF_NS
    ]
    starts = [start for start, _, _ in calls]
    for i, rows in groupby(range(len(off_cpu)), lambda row: bisect_right(starts, off_cpu.starts[row])):
        if not 0 < i < len(calls) or calls[i - 1][2] not in on_files or calls[i][2] not in on_files:
            continue
        _, since, (_, call) = calls[i - 1]
        if not any(_begins_within(layer, since, starts[i]) for layer in others):
            yield from ((row, call) for row in _blocked(off_cpu, rows, since, starts[i]))


def _begins_within(calls: Layer, since: int, until: int) -> bool:
    return bisect_left(calls.starts, since) < bisect_left(calls.starts, until)


def _blocked(off_cpu: Layer, rows: Iterable[int], since: int, until: int) -> Sequence[int]:
    """Those that wait for a device by what the capture says; all that may, where they are most of this time."""
    may = [row for row in rows if off_cpu.starts[row] >= since and off_cpu.labels[row][1] != OffCpu.RUNNABLE]
    if sum(off_cpu.ends[row] - off_cpu.starts[row] for row in may) >= _MOSTLY * (until - since):
        return may
    return [row for row in may if off_cpu.labels[row][1] == OffCpu.UNINTERRUPTIBLE]
