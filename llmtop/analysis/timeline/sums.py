"""What an account of idle time is added up in: time by what the gaps have in common, by cause and name."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from llmtop.analysis.timeline.causes import Cause
from llmtop.analysis.timeline.host import LAUNCH_GAP_NS, Label
from llmtop.columns import covered_by, in_order, is_rising, narrow
from llmtop.frozen import frozen

_FEW = 64
"""Pieces that are put in their places one by one."""
START_NS = 20_000
"""Within this time after its launch a work starts on a GPU that is idle: a slow launch (Machine Learning Systems,
Performance Engineering). One that takes longer waits for something else."""
NOT_LAUNCHED = "its launch is not in the capture"
NOT_TRACED = "outside CUDA calls"
GRAPHS_UNTRACED = "after graph launches whose work is not in the capture"
INSIDE, LOST, DARK = (Cause.GRAPH, ""), (Cause.UNKNOWN, NOT_LAUNCHED), (Cause.UNKNOWN, GRAPHS_UNTRACED)
MIGRATION, UNTOUCHED = (Cause.MIGRATION, ""), (Cause.NO_WORK, "until managed memory was touched")
"""Before a page migration: a gap as short as the driver takes from one to the next, and a longer one."""
LATENCY, TURNAROUND, QUEUED = (Cause.LATENCY, ""), (Cause.TURNAROUND, ""), (Cause.QUEUED, "")


@dataclass(slots=True)
class Sum:
    """What is added up under one cause and name."""

    ns: int = 0
    gaps: int = 0
    longest_ns: int = 0
    last_gap: int = -1
    in_gap_ns: int = 0
    functions: Counter[str] = field(default_factory=Counter)
    ranges: Counter[str] = field(default_factory=Counter)

    def add(self, ns: int, gap: int) -> None:
        """Add a piece of a gap; the pieces of one gap come one after the other."""
        if not ns:
            return
        self.ns += ns
        if gap == self.last_gap:
            ns += self.in_gap_ns
        else:
            self.gaps += 1
            self.last_gap = gap
        self.in_gap_ns = ns
        if ns > self.longest_ns:
            self.longest_ns = ns

    def add_gaps(self, ns: int, gaps: int, longest_ns: int) -> None:
        """Add whole gaps of which all is known."""
        self.ns += ns
        self.gaps += gaps
        self.longest_ns = max(self.longest_ns, longest_ns)


class Flags(NamedTuple):
    """What all parts of a gap share, as `IdlePart` has it."""

    drained_by: Cause | None = None
    is_short: bool = False
    before_graph: bool = False
    is_start: bool = False


@frozen
class IdlePieces:
    """All idle time of one GPU in columns by start: pieces that do not overlap, each with one label by its number."""

    labels: tuple[Label, ...]
    starts: array[int]
    ends: array[int]
    numbers: array[int]

    def within(self, start: int, end: int) -> dict[Label, int]:
        """How much of each label, in ns, lies between two moments."""
        found = covered_by(self.numbers, self.starts, self.ends, start, end)
        return {self.labels[number]: ns for number, ns in found.items()}


class PieceRecorder:
    """Takes pieces of idle time as they are added up: most of a long capture by their start, others in any order."""

    def __init__(self) -> None:
        self._numbers: dict[Label, int] = {}
        self._columns = array("q"), array("q"), array("i")
        self._others: list[tuple[int, int, int]] = []

    def number(self, label: Label) -> int:
        """The number that stands for a label."""
        return self._numbers.setdefault(label, len(self._numbers))

    def add(self, label: Label, start: int, end: int) -> None:
        """Take one; nothing where it does not last."""
        if end > start:
            self._others.append((start, end, self.number(label)))

    def add_columns(self, starts: bytes, ends: bytes, numbers: bytes) -> None:
        """Take many that last, by their start: integers of 8 bytes, numbers of 4."""
        for column, values in zip(self._columns, (starts, ends, numbers), strict=True):
            column.frombytes(values)

    def pieces(self) -> IdlePieces:
        """All of them, in order: few among millions are put in their places, as to sort all takes their room again."""
        starts, ends, numbers = self._columns
        if len(self._others) > _FEW or not is_rising(starts):
            for piece in self._others:
                self._put(len(starts), piece)
            starts, ends, numbers = in_order([starts, ends, numbers])
            return IdlePieces(tuple(self._numbers), starts, ends, narrow(numbers))
        for piece in sorted(self._others):
            self._put(bisect_right(starts, piece[0]), piece)
        return IdlePieces(tuple(self._numbers), starts, ends, narrow(numbers))

    def _put(self, at: int, piece: tuple[int, int, int]) -> None:
        for column, value in zip(self._columns, piece, strict=True):
            column.insert(at, value)


class IdleSums:
    """The parts of one GPU's idle time as they are added up; the pieces themselves where a recorder takes them."""

    def __init__(self, recorder: PieceRecorder | None = None) -> None:
        self.recorder = recorder
        self.by_flags: dict[Flags, dict[Label, Sum]] = defaultdict(lambda: defaultdict(Sum))
        self.between_ns = self.short = self.short_ns = self.late_ns = self.joined_ns = 0

    def add(self, flags: Flags, label: Label, start: int, end: int, gap: int) -> None:
        """Add a piece of a gap."""
        self.by_flags[flags][label].add(end - start, gap)
        if self.recorder is not None:
            self.recorder.add(label, start, end)

    def count(self, length: int, since: int, returned: int | None) -> None:
        """Count a gap as a whole; `returned` is when the call that launched its work did, where that is known."""
        self.between_ns += length
        if length > LAUNCH_GAP_NS:
            return
        self.short += 1
        self.short_ns += length
        if returned is not None:
            self.joined_ns += length
            self.late_ns += length if returned > since else 0


def waiting(ns: int, *, was_queued: bool) -> Label:
    """Why work that has been asked for does not run: in the first moments the GPU only takes it up."""
    if ns > START_NS:
        return QUEUED
    return TURNAROUND if was_queued else LATENCY
