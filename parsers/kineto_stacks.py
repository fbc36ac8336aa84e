"""Where the CPU's time went, as folded stacks: Python's functions, operators and calls within each other."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from itertools import chain
from operator import neg
from typing import Final

from llmtop.columns import in_order
from llmtop.model import SpanKind, SpanTable, Stack, TrackId

_KINDS = (SpanKind.PYTHON, SpanKind.OPERATOR, SpanKind.CALL, SpanKind.LAUNCH)
"""Of spans from the same moment to the same moment, the outer ones first."""
FOLDED: Final = frozenset(_KINDS)


def folded(spans: Mapping[str, SpanTable]) -> tuple[Stack, ...]:
    """Each path of spans within each other on a thread, with the time of its own in ns; the heaviest first.

    Times that are rounded make spans overlap: what lasts longer than what it began in ends with it.
    """
    tables = [spans[kind] for kind in _KINDS if kind in spans]
    names, tracks = _TextNumbers(), _TextNumbers()
    tree = _Tree()
    for start, end, name, track in _rows(tables, names, tracks):
        tree.add(start, end, name, track)
    made = tree.stacks([*names], [TrackId(track) for track in tracks])
    return tuple(sorted(made, key=lambda stack: -stack.weight))


class _TextNumbers(dict[str, int]):
    """Texts in the order in which they are met."""

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self)
        return number


def _rows(tables: list[SpanTable], names: _TextNumbers, tracks: _TextNumbers) -> Iterator[tuple[int, int, int, int]]:
    """Start, end, name and track of all spans, by start, of several the longest first."""
    columns = (
        array("q", chain.from_iterable(map(neg, table.end_ns) for table in tables)),
        array("q", chain.from_iterable(table.start_ns for table in tables)),
        array("q", chain.from_iterable(_renumbered(table.name_id, table.names, names) for table in tables)),
        array("q", chain.from_iterable(_renumbered(table.track_id, table.tracks, tracks) for table in tables)),
    )
    ends, starts, name_ids, track_ids = in_order(columns)
    starts, ends, name_ids, track_ids = in_order((starts, ends, name_ids, track_ids))
    return zip(starts, map(neg, ends), name_ids, track_ids, strict=True)


def _renumbered(column: array[int], texts: tuple[str, ...], numbers: _TextNumbers) -> Iterator[int]:
    return map([numbers[text] for text in texts].__getitem__, column)


class _Tree:
    """Paths from threads on; `own_ns` of each is what is left of its time by those below it."""

    def __init__(self) -> None:
        self._paths: dict[tuple[int, int], int] = {}
        self._own_ns: list[int] = []
        self._open: dict[int, list[tuple[int, int]]] = {}

    def add(self, start: int, end: int, name: int, track: int) -> None:
        """Add a span; of one thread they have to come in the order of their starts."""
        is_open = self._open.get(track)
        if is_open is None:
            is_open = self._open[track] = []
        while is_open and is_open[-1][0] <= start:
            is_open.pop()
        above = ~track
        if is_open:
            until, above = is_open[-1]
            end = min(end, until)
            self._own_ns[above] -= end - start
        path = self._paths.setdefault((above, name), len(self._own_ns))
        if path == len(self._own_ns):
            self._own_ns.append(0)
        self._own_ns[path] += end - start
        is_open.append((end, path))

    def stacks(self, names: list[str], tracks: list[TrackId]) -> Iterator[Stack]:
        """Those with time of their own."""
        frames: list[tuple[str, ...]] = []
        threads: list[int] = []
        for (above, name), own in zip(self._paths, self._own_ns, strict=True):
            frames.append((names[name],) if above < 0 else (*frames[above], names[name]))
            threads.append(~above if above < 0 else threads[above])
            if own:
                yield Stack(frames[-1], float(own), "ns", "", tracks[threads[-1]])
