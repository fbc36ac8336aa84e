"""The rows of a recording, from its pages: of a whole file, of one that is still written, and of what is left of one.

SQLite refuses a file that is shorter than it says, and needs to write beside one that is in use. Here nothing leads
from page to page but what is left of a row behind its own: all pages that hold rows tell so by their first byte.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

from llmtop.frozen import frozen
from llmtop.recording.layout import INTEGER, LEAF, PAGE, ROOT, kept_here
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_COLUMNS = 4
_PAGES_AT_ONCE = 512
_PAGES = frozenset(1 << power for power in range(9, 16))
"""Sizes that a page may have; SQLite's largest one is written otherwise, and llmtop never did."""
_SHORTEST_ROW = 16
"""Bytes, with its place on the page."""


class DamagedRowError(Exception):
    """A row of which a part is missing, or makes no sense."""


def format_of(head: bytes) -> int:
    """The version of what its rows hold."""
    return int.from_bytes(head[60:64], "big")


@frozen
class StoredRow:
    """A row without its data.

    Attributes:
        body_at: Where in the file it begins.
        length: Its bytes, wherever they stand.
        data: Where in these bytes its data is.
        is_text: Whether that is text.
    """

    id: int
    kind: str
    t_ns: int
    body_at: int
    length: int
    data: slice
    is_text: bool


class RowReader:
    """The rows of a file as it is now: what is written later is not looked at.

    Args:
        path: A recording. It is kept open until nothing refers to this any more.

    Raises:
        OSError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        weakref.finalize(self, self._file.close)
        head = self._read(0, 100)
        self.format = format_of(head)
        page = int.from_bytes(head[16:18], "big")
        self._page = page if page in _PAGES else PAGE
        self._told = int.from_bytes(head[28:32], "big") * self._page
        self.size = os.fstat(self._file.fileno()).st_size
        """Bytes of the file when it was opened."""
        self.cut_bytes = max(0, self._told - self.size)
        """By how much it is shorter than it says itself (1.3.8): a copy that was cut."""
        self.lost = int(page != self._page)
        """Rows and pages that could not be read."""
        rows = {row.id: row for at, page in self._leaves() for row in self._rows(page, at)}
        self.rows: tuple[StoredRow, ...] = tuple(self._within_size(rows[id] for id in sorted(rows)))
        self.lost = max(self.lost, max(rows, default=0) - len(self.rows))

    def data(self, row: StoredRow) -> str | bytes:
        """What a row holds.

        Raises:
            DamagedRowError: Not all of it is there.
        """
        body = self._body(row.body_at, row.length)
        if len(body) < row.data.stop:
            raise DamagedRowError
        value = body[row.data]
        try:
            return value.decode() if row.is_text else value
        except UnicodeDecodeError as error:
            raise DamagedRowError from error

    def _read(self, at: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, at)

    def _within_size(self, rows: Iterable[StoredRow]) -> Iterator[StoredRow]:
        """Rows that do not claim more bytes together than the file has: each page is of one row alone."""
        left = self.size
        for row in rows:
            if row.length <= left:
                left -= row.length
                yield row

    def _leaves(self) -> Iterator[tuple[int, bytes]]:
        """Pages with rows, and where they begin; the first page has the schema."""
        step, start, empty = self._page * _PAGES_AT_ONCE, 0, bytes(self._page)
        while several := self._read(start, max(0, min(step, self.size - start))):
            firsts, at = several[:: self._page], -1
            for place in range(0, min(len(several), self._told - start), self._page):
                if several[place] == 0 and several.startswith(empty, place):
                    self.lost += 1  # none is written empty: the disk lost it
            while (at := firsts.find(LEAF, at + 1)) >= 0:
                yield start + at * self._page, several[at * self._page : (at + 1) * self._page]
            start += step

    def _rows(self, page: bytes, page_at: int) -> Iterator[StoredRow]:
        count, last = int.from_bytes(page[3:5], "big"), 0
        if count > len(page) // _SHORTEST_ROW:
            self.lost += 1
            return
        for i in range(8, 8 + 2 * count, 2):
            try:
                row = self._row(page, int.from_bytes(page[i : i + 2], "big"), page_at)
                if not last < row.id <= self.size // _SHORTEST_ROW:
                    raise DamagedRowError
            except (DamagedRowError, IndexError, UnicodeDecodeError):
                self.lost += 1
            else:
                last = row.id
                yield row

    def _row(self, page: bytes, at: int, page_at: int) -> StoredRow:
        length, at = _varint(page, at)
        id, at = _varint(page, at)
        if length > self.size or at + kept_here(length, self._page) > len(page):
            raise DamagedRowError
        codes, end = _header(page[at:])
        data = slice(end - _size(codes[3]), end)
        data_at = at + data.start
        t_at = data_at - _size(codes[2])
        kind = clean(page[t_at - _size(codes[1]) : t_at].decode())
        t_ns = int.from_bytes(page[t_at:data_at], "big", signed=True)
        return StoredRow(id, kind, t_ns, page_at + at, length, data, codes[3] % 2 == 1)

    def _body(self, at: int, length: int) -> bytes:
        """A whole row, put together of the pages that it stands on, none of which comes twice."""
        kept = kept_here(length, self._page)
        more = length - kept
        first = self._read(at, kept + (4 if more else 0))
        parts, link, read = [first[:kept]], first[kept:], {at // self._page + 1}
        while more > 0:
            number = int.from_bytes(link, "big")
            if number < ROOT or number in read:
                raise DamagedRowError
            read.add(number)
            part = self._read((number - 1) * self._page, 4 + min(more, self._page - 4))
            parts.append(part[4:])
            more, link = more - (len(part) - 4 if len(part) > 4 else more), part[:4]
        return b"".join(parts)


def _header(body: bytes) -> tuple[list[int], int]:
    """The types of the first four columns (2.1; newer versions may have more), and where their values end."""
    start, at = _varint(body, 0)
    codes: list[int] = []
    while at < start and len(codes) < _COLUMNS:
        code, at = _varint(body, at)
        codes.append(code)
    if len(codes) < _COLUMNS or codes[0] != 0 or codes[1] % 2 == 0 or codes[2] != INTEGER or codes[3] < 12:
        raise DamagedRowError
    return codes, start + sum(map(_size, codes))


def _size(code: int) -> int:
    """Bytes of a value by its type (2.1), of those that recordings have."""
    return (code - 12) // 2 if code >= 12 else 8 if code == INTEGER else 0


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """An integer of one to nine bytes (1.6) and where it ends.

    Raises:
        IndexError: It ends behind the content.
    """
    value, byte = 0, 128
    while byte >= 128 and value < 1 << 56:
        byte = content[at]
        value, at = value << 7 | byte & 127, at + 1
    return value, at
