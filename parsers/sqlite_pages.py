"""Columns of integers from the pages of an SQLite file, by NumPy: in a fraction of the time that SQLite takes.

The format is stable and public (https://www.sqlite.org/fileformat.html; numbers in brackets are its sections). Only
what is plain is read here: tables with row ids, records that fit their page, integers. All else is `UnfitError`, a
damaged page too: whoever asks then asks SQLite, which knows the rest and says what is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from llmtop.frozen import frozen

if TYPE_CHECKING:
    from io import FileIO
    from pathlib import Path

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

_INTERIOR, _LEAF = 5, 13
"""Kinds of pages of a table (1.6)."""
_MOST_COLUMNS = 126
"""With more, the header of a record may say its length in two bytes."""
_BATCH_BYTES = 4 << 20
"""Pages that are decoded at once: they, and what is made of them, stay in the processor's caches."""
_SPARE = 8192
"""Bytes behind the last page: what a damaged record says of itself never leads behind them."""
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((code - 12) // 2 for code in range(12, 128))], np.int64)
"""Bytes of a value by its serial type (2.1)."""
_ZERO, _ONE = 8, 9
"""Serial types that are their own value."""
_INTEGERS = np.isin(np.arange(128), (1, 2, 3, 4, 5, 6, _ZERO, _ONE))


class UnfitError(Exception):
    """What only SQLite can read, or refuse."""


@frozen
class _File:
    """An open file of pages; `usable` is what of a page holds content."""

    file: FileIO
    page: int
    usable: int
    count: int

    def read(self, numbers: Integers) -> Bytes:
        """Pages by their numbers, from 1 on, one behind the other, with `_SPARE` zeros at the end."""
        if not 1 < numbers.min() <= numbers.max() <= self.count:
            raise UnfitError("a page that the file does not have")
        content = np.zeros(len(numbers) * self.page + _SPARE, np.uint8)
        breaks = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        for first, last in pairwise(breaks):
            self.file.seek((int(numbers[first]) - 1) * self.page)
            part = content.data[first * self.page : last * self.page]
            if self.file.readinto(part) != len(part):
                raise UnfitError("the file ends within a page")
        return content

    def leaves(self, root: int) -> Integers:
        """The numbers of a table's leaf pages, in the order of its row ids."""
        level = np.array([root])
        while len(level) <= self.count:  # below each interior page are two or more
            kind = self.read(level[:1])[0]
            if kind == _LEAF:
                return level
            pages = self.read(level)[:-_SPARE].reshape(-1, self.page)
            level = np.concatenate([self._children(page) for page in pages])
        raise UnfitError("no tree of pages")

    def _children(self, page: Bytes) -> Integers:
        """The pages below an interior one: one left of each cell, and one right of all."""
        cells = int.from_bytes(page[3:5].tobytes())
        places = page[12 : 12 + 2 * cells].view(">u2").astype(np.int64)
        if page[0] != _INTERIOR or not 0 < cells == len(places) or places.max() > self.usable - 5:
            raise UnfitError("no interior page of a table")
        left = page[places[:, np.newaxis] + np.arange(4)].view(">u4").ravel()
        return np.append(left, page[8:12].view(">u4")).astype(np.int64)


def integer_columns(path: Path, root: int, width: int, wanted: Sequence[int]) -> Iterator[list[Integers]]:
    """Some columns of all rows, part after part in the order of row ids.

    Args:
        path: The file, which nobody writes meanwhile.
        root: The number of the table's root page.
        width: How many columns the table has.
        wanted: Which of them, counted from 0; none may be the row id by another name, which is not in the record.

    Raises:
        UnfitError: The file is damaged, the table empty, or it holds something else than integers there.
    """
    if width > _MOST_COLUMNS:
        raise UnfitError("more columns than the first byte of a record can tell")
    with path.open("rb", buffering=0) as raw:
        head = raw.read(100)
        page = 65536 if head[16:18] == b"\0\1" else int.from_bytes(head[16:18])
        if page < 512:
            raise UnfitError("no size of a page")
        file = _File(raw, page, page - head[20], path.stat().st_size // page)
        leaves, step = file.leaves(root), _BATCH_BYTES // page
        for first in range(0, len(leaves), step):
            yield _decoded(file, file.read(leaves[first : first + step]), width, wanted)


def _decoded(file: _File, content: Bytes, width: int, wanted: Sequence[int]) -> list[Integers]:
    """The columns of the records on leaf pages."""
    pages, cells = _cells(file, content)
    payload, at = _varints(content, cells)
    _, at = _varints(content, at)  # the row id
    end = at + payload
    if payload.view(np.uint64).max() > file.usable - 35 or (end > pages + file.usable).any():
        raise UnfitError("a record that goes on on another page")
    if (content[at] != width + 1).any():
        raise UnfitError("a header of another length than the columns have")
    words: NDArray[Any] = np.ndarray(len(content) - 7, ">i8", content, 0, (1,))  # eight bytes from each place on
    codes = _codes(words, at + 1, width)
    return _values(words, codes, at + width + 1, end, wanted)


def _cells(file: _File, content: Bytes) -> tuple[Integers, Integers]:
    """Where each record begins, and where its page does."""
    heads = content[:-_SPARE].reshape(-1, file.page)
    counts = heads[:, 3].astype(np.int64) << 8 | heads[:, 4]
    if (heads[:, 0] != _LEAF).any() or not 0 < counts.min() <= counts.max() <= (file.usable - 8) // 2:
        raise UnfitError("no leaf page of a table")
    pages = np.repeat(np.arange(len(counts)) * file.page, counts)
    within = np.arange(len(pages)) - np.repeat(np.cumsum(counts) - counts, counts)
    pointers = pages + 8 + 2 * within
    places = content[pointers].astype(np.int64) << 8 | content[pointers + 1]
    if not 8 <= places.min() <= places.max() <= file.usable - 4:
        raise UnfitError("a record outside of its page")
    return pages, pages + places


def _varints(content: Bytes, at: Integers) -> tuple[Integers, Integers]:
    """Integers of one to nine bytes (1.6), and where they end; of nine bytes the value is not told right."""
    values = content[at].astype(np.int64)
    at, more = at + 1, np.flatnonzero(values >= 128)
    values &= 127
    for _ in range(8):
        if not len(more):
            break
        next_ = content[at[more]]
        values[more] = values[more] << 7 | next_ & 127
        at[more] += 1
        more = more[next_ >= 128]
    return values, at


def _codes(words: NDArray[Any], at: Integers, width: int) -> Bytes:
    """The serial types of all columns, a line for each column."""
    eights = [words[at + 8 * i] for i in range(-(-width // 8))]
    codes = np.stack([eight.view(np.uint8).reshape(-1, 8) for eight in eights], axis=1).reshape(len(at), -1)
    columns: Bytes = np.ascontiguousarray(codes.T[:width])
    if columns.max() > 127:
        raise UnfitError("a long text")
    return columns


def _values(words: NDArray[Any], codes: Bytes, at: Integers, end: Integers, wanted: Sequence[int]) -> list[Integers]:
    """The wanted columns of records whose values begin at `at`."""
    found = {}
    for place, column in enumerate(codes):
        code: Any = int(column[0]) if (column == column[0]).all() else column
        sizes = _SIZES[code]
        if place in wanted:
            if not np.all(_INTEGERS[code]):
                raise UnfitError("something else than an integer")
            found[place] = _integers(words, code, at, sizes)
        at = at + sizes
    if (at != end).any():
        raise UnfitError("a record of another length than it says")
    return [found[place] for place in wanted]


def _integers(words: NDArray[Any], code: Any, at: Integers, sizes: Integers) -> Integers:
    """Integers of some bytes each: the highest of the eight that begin there."""
    if isinstance(code, int) and code >= _ZERO:
        return np.full(len(at), code == _ONE, np.int64)
    values: Integers = words[at].astype(np.int64)
    values >>= np.minimum(64 - 8 * sizes, 63)
    return values if isinstance(code, int) else np.where(sizes > 0, values, code == _ONE)
