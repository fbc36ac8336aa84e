"""Stretches of a recording, unpacked: what changed from moment to moment, and the samples of each series."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from llmtop.lazy import LazySequence
from llmtop.model import Stack, StackWindow
from llmtop.recording.blocks import BadBlockError, BlockReader, unpacked_row

_NUMBER_BYTES = 8


@dataclass(slots=True)
class SampleColumn:
    """Samples of one series, oldest first."""

    times: array[int]
    values: array[float]

    def add(self, times: array[int], values: array[float]) -> None:
        """Add samples; those that are there already are left out, others may be older."""
        if times[0] > self.times[-1]:
            self.times = self.times + times  # series that are read together have one array of times
            self.values += values
            return
        both = dict(zip(self.times, self.values, strict=True)) | dict(zip(times, values, strict=True))
        self.times = array("q", sorted(both))
        self.values = array("d", map(both.__getitem__, self.times))


@dataclass(slots=True)
class StoredMoment:
    """What a block tells beside samples.

    Attributes:
        told: What has changed since the block before, as JSON: docs/recording.md has its fields.
        stacks: Stacks that were written with it, and whether they are kept for later.
    """

    told: bytes
    stacks: tuple[tuple[StackWindow, bool], ...]


@dataclass(slots=True)
class StoredStretch:
    """The moments of one compression, and all their samples by the numbers of series."""

    moments: list[StoredMoment]
    groups: list[SampleGroup]


@dataclass(slots=True)
class SampleGroup:
    """Series that were read together."""

    numbers: tuple[int, ...]
    times: array[int] = field(default_factory=lambda: array("q"))
    first: array[float] = field(default_factory=lambda: array("d"))
    """The first row, of all series."""
    moving: list[int] = field(default_factory=list)
    """Places of the series that the other rows are of; those that joined later are missing in the rows before."""
    rows: list[bytes] = field(default_factory=list)
    last: int = 0
    """The last row as one integer."""

    def add(self, content: _Content, count: int, moved: Sequence[int] | None) -> None:
        """Take so many rows.

        Args:
            content: Where they stand.
            count: How many.
            moved: Places of the series that move from here on; None of a group of which all always do.
        """
        times, rows = content.take(count * _NUMBER_BYTES), list[bytes]()
        if not self.first:
            self.first.frombytes(unpacked_row(content.take(len(self.numbers) * _NUMBER_BYTES), 0)[0])
            moved = range(len(self.numbers)) if moved is None else moved
            rows.append(b"")
        if moved:
            self.last |= int.from_bytes(self._firsts(moved), "little") << (8 * _NUMBER_BYTES * len(self.moving))
            self.moving += moved
        width = len(self.moving) * _NUMBER_BYTES
        for _ in range(count - len(rows)):
            row, self.last = unpacked_row(content.take(width), self.last)
            rows.append(row)
        self.times.frombytes(times)
        self.rows += rows

    def columns(self) -> dict[int, array[float]]:
        """The values of each series that moves, by its place."""
        firsts, width = self._firsts(self.moving), len(self.moving)
        rows = array("d", b"".join(row + firsts[len(row) :] for row in self.rows))
        return {place: rows[i::width] for i, place in enumerate(self.moving)}

    def _firsts(self, places: Iterable[int]) -> bytes:
        return array("d", map(self.first.__getitem__, places)).tobytes()


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
    reader, groups, moments = BlockReader(), list[SampleGroup](), list[StoredMoment]()
    for block in blocks:
        try:
            told, directory, columns = reader.unpack(block)
            content = _Content(columns)
            groups += [SampleGroup(tuple(expanded(numbers))) for numbers in directory.get("groups", ())]
            for group, count, *moved in directory.get("samples", ()):
                groups[group].add(content, count, expanded(moved[0]) if moved else None)
            windows = tuple(_window(content, stacks, *one) for one in directory.get("stacks", ()))
        except (BadBlockError, TypeError, ValueError, IndexError):
            break
        moments.append(StoredMoment(told, windows))
    return StoredStretch(moments, groups)


def columns_of(stretches: Iterable[StoredStretch]) -> dict[int, SampleColumn]:
    """The samples of several stretches that follow each other, each series in one piece, by its number.

    Most series are read together with the same others all the time: what these have is joined at once.
    """
    joined: dict[tuple[int, ...], list[list[SampleGroup]]] = {}
    for group in (group for stretch in stretches for group in stretch.groups if group.times):
        same = joined.setdefault(group.numbers, [])
        if not same or group.times[0] <= same[-1][-1].times[-1]:  # nothing new has come: it is written once more
            same.append([])
        same[-1].append(group)
    columns: dict[int, SampleColumn] = {}
    for groups in (groups for same in joined.values() for groups in same):
        times = array("q", b"".join(group.times for group in groups))
        for number, values in zip(groups[0].numbers, _joined(groups), strict=True):
            if (column := columns.get(number)) is None:
                columns[number] = SampleColumn(times, values)
            else:
                column.add(times, values)
    return columns


def _joined(groups: Sequence[SampleGroup]) -> Iterator[array[float]]:
    """The values of each series of groups that are of the same ones and follow each other."""
    counts, columns = [len(group.times) for group in groups], [group.columns() for group in groups]
    moving = set(chain.from_iterable(columns))
    for place, firsts in enumerate(zip(*(group.first for group in groups), strict=True)):
        if place not in moving and firsts.count(firsts[0]) == len(firsts):
            yield array("d", firsts[:1]) * sum(counts)
        else:
            parts = zip(columns, firsts, counts, strict=True)
            yield array("d", b"".join(one.get(place) or array("d", (first,)) * n for one, first, n in parts))


def _window(
    content: _Content, stacks: Mapping[int, Stack], end_ns: int, count: int, is_kept: bool
) -> tuple[StackWindow, bool]:
    numbers, weights = array("I"), array("d")
    numbers.frombytes(content.take(count * numbers.itemsize))
    weights.frombytes(unpacked_row(content.take(count * _NUMBER_BYTES), 0)[0])
    several = LazySequence(partial(_stacks, numbers, weights, stacks)) if numbers else ()
    return StackWindow(end_ns, several), is_kept


def _stacks(numbers: array[int], weights: array[float], stacks: Mapping[int, Stack]) -> tuple[Stack, ...]:
    """Stacks with their weights; of a damaged file some are not known."""
    pairs = ((stacks[number], weight) for number, weight in zip(numbers, weights, strict=True) if number in stacks)
    return tuple(Stack(one.frames, weight, one.unit, one.state, one.track) for one, weight in pairs)


def expanded(ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Numbers of which `writer.ranges` has told."""
    return list(chain.from_iterable(range(first, first + count) for first, count in ranges))
