"""Stretches of a recording, unpacked: what changed from moment to moment, and the samples of each series."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from llmtop.model import StackWindow
from llmtop.recording.blocks import BadBlockError, BlockReader, unpacked_row

if TYPE_CHECKING:
    from llmtop.model import Stack

_NUMBER_BYTES = 8


@dataclass(slots=True)
class SampleColumn:
    """Samples of one series, oldest first."""

    times: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, times: array[int], values: array[float]) -> None:
        """Add samples; those that are there already are left out, others may be older."""
        if not self.times or times[0] > self.times[-1]:
            self.times += times
            self.values += values
            return
        both = dict(zip(self.times, self.values, strict=True)) | dict(zip(times, values, strict=True))
        self.times = array("q", sorted(both))
        self.values = array("d", map(both.__getitem__, self.times))


@dataclass(slots=True)
class StoredMoment:
    """What a block tells beside samples.

    Attributes:
        document: What has changed since the block before, as docs/recording.md has it.
        stacks: Stacks that were written with it, and whether they are kept for later.
    """

    document: Mapping[str, Any]
    stacks: tuple[tuple[StackWindow, bool], ...]


@dataclass(slots=True)
class StoredStretch:
    """The moments of one compression, and all their samples by the numbers of series."""

    moments: list[StoredMoment]
    columns: Mapping[int, SampleColumn]


@dataclass(slots=True)
class _SampleGroup:
    """Series that were read together."""

    numbers: Sequence[int]
    times: array[int] = field(default_factory=lambda: array("q"))
    rows: array[float] = field(default_factory=lambda: array("d"))
    last: int = 0

    def add(self, content: _Content, count: int) -> None:
        """Take so many rows."""
        self.times.frombytes(content.take(count * _NUMBER_BYTES))
        for _ in range(count):
            row, self.last = unpacked_row(content.take(len(self.numbers) * _NUMBER_BYTES), self.last)
            self.rows.frombytes(row)

    def columns(self) -> Iterator[tuple[int, array[float]]]:
        """The values of each series."""
        width = len(self.numbers)
        return ((number, self.rows[i::width]) for i, number in enumerate(self.numbers))


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
    reader, groups, moments = BlockReader(), list[_SampleGroup](), list[StoredMoment]()
    for block in blocks:
        try:
            document, columns = reader.unpack(block)
            content = _Content(columns)
            groups += [_SampleGroup(expanded(numbers)) for numbers in document.get("groups", ())]
            for group, count in document.get("samples", ()):
                groups[group].add(content, count)
            windows = tuple(_window(content, stacks, *told) for told in document.get("stacks", ()))
        except (BadBlockError, TypeError, ValueError, IndexError):
            break
        moments.append(StoredMoment(document, windows))
    columns_of: dict[int, SampleColumn] = {}
    for one in groups:
        for number, values in one.columns():
            columns_of.setdefault(number, SampleColumn()).add(one.times, values)
    return StoredStretch(moments, columns_of)


def _window(
    content: _Content, stacks: Mapping[int, Stack], end_ns: int, count: int, is_kept: bool
) -> tuple[StackWindow, bool]:
    numbers, weights = array("I"), array("d")
    numbers.frombytes(content.take(count * numbers.itemsize))
    weights.frombytes(unpacked_row(content.take(count * _NUMBER_BYTES), 0)[0])
    pairs = zip(numbers, weights, strict=True)
    known = tuple(replace(stacks[number], weight=weight) for number, weight in pairs if number in stacks)
    return StackWindow(end_ns, known), is_kept


def expanded(ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Numbers of which `writer.ranges` has told."""
    return list(chain.from_iterable(range(first, first + count) for first, count in ranges))
