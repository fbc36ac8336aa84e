"""Stretches of a recording, unpacked: what changed from moment to moment, and the samples of each series."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from operator import ge
from typing import Any, Final

from llmtop.lazy import LazySequence
from llmtop.model import Stack, StackWindow
from llmtop.recording.blocks import LONGEST, BadBlockError, BlockReader, unpacked_rows
from llmtop.recording.documents import WRONG_SHAPE

_NUMBER_BYTES = 8
_STACK_BYTES = 4
"""Of a stack's number."""
_STACK_ROOM, _ROW_ROOM = 128, 64
"""Bytes of a stack as an object; what a row of samples takes to unpack, as bytes that take as long."""
_COPIES = 3
"""Of series that move, while they are put together."""
LARGEST: Final = 2 * LONGEST
"""What a stretch may take in memory, in bytes."""
_LATEST_NS = 1 << 62
"""Times of samples lie between 0 and this: no clock reaches it in a century."""


@dataclass(slots=True)
class SampleColumns:
    """Samples of series by their numbers, oldest first. Arrays may be of several series, so they are never changed."""

    times: dict[int, array[int]] = field(default_factory=dict)
    values: dict[int, array[float]] = field(default_factory=dict)

    def add(self, number: int, times: array[int], values: array[float]) -> None:
        """Add samples of a series; those that are there already are left out, others may be older."""
        known = self.times.get(number)
        if known is None:
            self.times[number], self.values[number] = times, values
        elif times[0] > known[-1]:
            self.times[number], self.values[number] = known + times, self.values[number] + values
        else:
            both = dict(zip(known, self.values[number], strict=True)) | dict(zip(times, values, strict=True))
            self.times[number] = array("q", sorted(both))
            self.values[number] = array("d", map(both.__getitem__, self.times[number]))

    def join(self, number: int, before: int) -> None:
        """Have a series go on where another one has ended, if there are samples of both."""
        if number in self.times and before in self.times:
            times, values = self.times[number], self.values[number]
            self.times[number], self.values[number] = self.times[before], self.values[before]
            self.add(number, times, values)


@dataclass(slots=True)
class StoredStretch:
    """The moments of one compression.

    Attributes:
        told: What has changed from moment to moment, as JSON: docs/recording.md has its fields.
        stacks: Those that were written with each, and whether they are kept for later.
        groups: All samples.
        size: Bytes that it takes once it is put together, at most.
    """

    told: list[bytes] = field(default_factory=list)
    stacks: list[tuple[tuple[StackWindow, bool], ...]] = field(default_factory=list)
    groups: list[SampleGroup] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class SampleGroup:
    """Series that were read together."""

    numbers: tuple[int, ...]
    times: array[int] = field(default_factory=lambda: array("q"))
    first: array[int] = field(default_factory=lambda: array("Q"))
    """The bits of the first row, of all series."""
    moving: list[int] = field(default_factory=list)
    """Places of the series that the other rows are of; those that joined later are missing in the rows before."""
    _packed: dict[int, list[bytes]] = field(default_factory=dict)
    """Rows as they are in the file, by how many series moved by then."""
    _rows: array[float] = field(default_factory=lambda: array("d"))
    """The same unpacked, each with all series that move in the end."""

    def add(self, content: _Content, count: int, moved: Sequence[int] | None) -> None:
        """Take so many rows.

        Args:
            content: Where they stand.
            count: How many.
            moved: Places of the series that move from here on; None of a group of which all always do.
        """
        times, rows = array("q", content.take(count * _NUMBER_BYTES)), count
        last_ns = self.times[-1] if self.times else -1
        if not last_ns < times[0] <= times[-1] < _LATEST_NS or any(map(ge, times, islice(times, 1, None))):
            raise BadBlockError
        if not self.first:
            self.first.frombytes(unpacked_rows(content.take(len(self.numbers) * _NUMBER_BYTES), len(self.numbers)))
            moved, rows = range(len(self.numbers)) if moved is None else moved, count - 1
        if moved:
            self._firsts(moved)  # raises what is damaged
            self.moving += moved
        if moving := len(self.moving):
            packed = content.take(rows * moving * _NUMBER_BYTES)
            self._packed.setdefault(moving, []).append(packed)
        self.times += times

    def size(self, more: int = 0) -> int:
        """Bytes that it takes once it is put together, at most, with so many rows more."""
        cells = len(self.numbers) + _COPIES * len(self.moving)
        return (len(self.times) + more) * (_ROW_ROOM + _NUMBER_BYTES * cells)

    def columns(self) -> Callable[[int], array[Any]]:
        """What gives the bits of all values of the series at a place, once no rows are added any more."""
        if self._packed:
            self._rows, self._packed = self._unpacked(), {}
        at = {place: i for i, place in enumerate(self.moving)}
        rows, count, width, first = self._rows, len(self.times), len(self.moving), self.first
        return lambda place: rows[at[place] :: width] if place in at else first[place : place + 1] * count

    def _unpacked(self) -> array[float]:
        firsts = row = self._firsts(self.moving)
        moved = []
        for moving, packed in self._packed.items():
            size = moving * _NUMBER_BYTES
            rows = unpacked_rows(b"".join(packed), moving, row[:size])
            if size < len(firsts):
                rows = b"".join(rows[at : at + size] + firsts[size:] for at in range(0, len(rows), size))
            moved.append(rows)
            row = rows[-len(firsts) :] or row
        standing = len(self.times) - sum(map(len, moved)) // len(firsts)
        return array("d", b"".join([firsts * standing, *moved]))

    def _firsts(self, places: Iterable[int]) -> bytes:
        return array("Q", map(self.first.__getitem__, places)).tobytes()


class _Content:
    """The columns of a block, one behind the other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next bytes.

        Raises:
            BadBlockError: There are not so many.
        """
        part = self._content[self._at : self._at + size]
        if len(part) != size:
            raise BadBlockError
        self._at += size
        return part


def unpack_stretch(blocks: Iterable[bytes], stacks: Mapping[int, Stack]) -> StoredStretch:
    """Unpack as many blocks of a stretch as can be.

    Args:
        blocks: From the first one on.
        stacks: By number, without their weights.
    """
    reader, stretch = BlockReader(), StoredStretch()
    groups, size = stretch.groups, 0
    for block in blocks:
        try:
            told, directory, columns = reader.unpack(block)
            content, room = _Content(columns), len(columns) // _NUMBER_BYTES
            for numbers in directory.get("groups", ()):
                groups.append(SampleGroup(tuple(expanded(numbers, room))))
                room -= len(groups[-1].numbers) + 1  # a first row, and its time
            for number, count, *moved in directory.get("samples", ()):
                group = groups[number]
                before = group.size()
                _check(reader.size + size + group.size(count) - before)
                group.add(content, count, expanded(moved[0], len(group.numbers)) if moved else None)
                size += group.size() - before
            size += sum(_STACK_ROOM * count for _, count, _ in directory.get("stacks", ()))
            _check(reader.size + size)
            windows = _windows(content, stacks, directory.get("stacks", ()))
        except (BadBlockError, *WRONG_SHAPE):
            break
        stretch.told.append(told)
        stretch.stacks.append(windows)
    stretch.size = reader.size + size
    return stretch


def _check(size: int) -> None:
    if size > LARGEST:
        raise BadBlockError


def columns_of(stretches: Iterable[StoredStretch]) -> SampleColumns:
    """The samples of several stretches that follow each other, each series in one piece, by its number.

    Most series are read together with the same others all the time: what these have is joined at once.
    """
    joined: dict[tuple[int, ...], list[list[SampleGroup]]] = {}
    for group in (group for stretch in stretches for group in stretch.groups if group.times):
        same = joined.setdefault(group.numbers, [])
        if not same or group.times[0] <= same[-1][-1].times[-1]:  # nothing new has come: it is written once more
            same.append([])
        same[-1].append(group)
    columns = SampleColumns()
    for groups in (groups for same in joined.values() for groups in same):
        times = array("q", b"".join(group.times for group in groups))
        for number, values in zip(groups[0].numbers, _joined(groups), strict=True):
            columns.add(number, times, values)
    return columns


def _joined(groups: Sequence[SampleGroup]) -> Iterator[array[float]]:
    """The values of each series of groups that are of the same ones and follow each other.

    Those that never move and have the same value have one array: most stand at 0.
    """
    columns, count = [group.columns() for group in groups], sum(len(group.times) for group in groups)
    moving = set(chain.from_iterable(group.moving for group in groups))
    standing: dict[int, array[float]] = {}
    for place, firsts in enumerate(zip(*(group.first for group in groups), strict=True)):
        if place in moving or firsts.count(firsts[0]) < len(firsts):
            yield array("d", b"".join([column(place) for column in columns]))
            continue
        if firsts[0] not in standing:
            standing[firsts[0]] = array("d", (array("Q", firsts[:1]) * count).tobytes())
        yield standing[firsts[0]]


def _windows(
    content: _Content, stacks: Mapping[int, Stack], told: Iterable[tuple[int, int, bool]]
) -> tuple[tuple[StackWindow, bool], ...]:
    """The stacks of a moment, and whether they are kept for later: mostly they are told once for each, and are one."""
    made: dict[tuple[int, bytes, bytes], StackWindow] = {}
    found = []
    for end_ns, count, is_kept in told:
        numbers, weights = content.take(count * _STACK_BYTES), content.take(count * _NUMBER_BYTES)
        if (window := made.get((end_ns, numbers, weights))) is None:
            several = LazySequence(partial(_stacks, numbers, weights, stacks)) if count else ()
            window = made[end_ns, numbers, weights] = StackWindow(end_ns, several)
        found.append((window, is_kept))
    return tuple(found)


def _stacks(numbers: bytes, weights: bytes, stacks: Mapping[int, Stack]) -> tuple[Stack, ...]:
    """Stacks with their weights; of a damaged file some are not known."""
    each = array("d", unpacked_rows(weights, len(weights) // _NUMBER_BYTES))
    pairs = zip(map(stacks.get, array("I", numbers)), each, strict=True)
    known = ((one, weight) for one, weight in pairs if one is not None and 0 <= weight < math.inf)
    return tuple(Stack(one.frames, weight, one.unit, one.state, one.track) for one, weight in known)


def expanded(ranges: Collection[tuple[int, int]], most: int) -> list[int]:
    """Numbers of which `writer.ranges` has told.

    Raises:
        ValueError: They are more than there can be.
    """
    counts = [count for _, count in ranges]
    if sum(counts) > most or min(counts, default=0) < 0:
        raise ValueError("more numbers than there can be")
    return [number for first, count in ranges for number in range(first, first + count)]
