"""Rows added to an SQLite file so that it is whole after each single write.

SQLite itself would keep a journal or a WAL beside the file: a copy without it is damaged, a folder that may only be
read cannot be opened, and what a killed program leaves there somebody has to clear up. Here pages are only added, and
what is there already changes by one page at a time: first what is new is written, behind all that is known, then the
first page says how long the database is by now, then one page leads to what is new. Whoever looks in between, or after
a kill, sees the rows up to the one before.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llmtop.recording.layout import (
    APPLICATION_ID,
    FORMAT,
    INTERIOR,
    LEAF,
    LOCK_BYTES,
    LOCKS_AT,
    MAGIC,
    PAGE,
    ROOT,
    kept_here,
    record,
    schema,
    varint,
)

if TYPE_CHECKING:
    from pathlib import Path

_SQLITE_VERSION = 3_008_000
"""The oldest SQLite that has all that the file uses (1.3.22)."""
_PATIENCE = 20
"""Rows that wait for somebody who reads by SQLite; then the next is written all the same."""


@dataclass(slots=True)
class _TreePage:
    """A page of a tree (1.6), filled from its end; `head` bytes before it are something else's."""

    kind: int
    head: int = 0
    number: int = 0
    cells: list[bytes] = field(default_factory=list)
    right: int = 0
    """Of an interior page: the last page below it."""
    keys: list[tuple[int, int]] = field(default_factory=list)
    """Of an interior page: its cells as (page, last row in it)."""
    used: int = 0

    def fits(self, size: int) -> bool:
        """Whether there is room for a cell."""
        fixed = self.head + (12 if self.kind == INTERIOR else 8)
        return fixed + self.used + size + 2 * (len(self.cells) + 1) <= PAGE

    def add(self, cell: bytes) -> None:
        self.cells.append(cell)
        self.used += len(cell)

    def hang(self, child: int, last_row: int) -> None:
        """Put a page below this one, before the last."""
        self.keys.append((child, last_row))
        self.add(child.to_bytes(4, "big") + varint(last_row))

    def content(self) -> bytes:
        """The page without what stands before it."""
        places, at = bytearray(), PAGE
        for cell in self.cells:
            at -= len(cell)
            places += at.to_bytes(2, "big")
        start = struct.pack(">BHHHB", self.kind, 0, len(self.cells), at, 0)
        if self.kind == INTERIOR:
            start += self.right.to_bytes(4, "big")
        front = start + places
        return front + bytes(at - self.head - len(front)) + b"".join(reversed(self.cells))


class ForeignChangeError(Exception):
    """Somebody else removed, moved, cut or wrote over a file that is being written."""


class RowWriter:
    """Adds rows to a new file, each (kind, moment, data).

    Raises:
        FileExistsError: There is such a file: nothing is ever written over.
        OSError: It cannot be made or written; what is in it stays whole.
        ForeignChangeError: The file is no longer what was written: nothing can be added any more.
    """

    def __init__(self, path: Path) -> None:
        self._name = path
        self._head = b""
        """How the file begins, as it was written last."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._schema = _TreePage(LEAF, head=100)
        for row, values in enumerate(schema(), 1):
            body = record(values)
            self._schema.add(varint(len(body)) + varint(row) + body)
        self._path = [_TreePage(LEAF, number=ROOT)]
        """From the root to the page that is filled."""
        self._reserve = ROOT + 1
        """A free page (1.5): where the disk is full, it takes the row that says so. 0 once it is taken."""
        self._pages = self._reserve
        self._changes = 0
        self._rows = 0
        self._spare: list[int] = []
        """Pages that nothing leads to any more: the next new one takes their place."""
        self._waiting: list[tuple[str, int, str | bytes]] = []
        self._write(ROOT, self._path[0].content())
        self._write(self._reserve, (bytes(8) + b"free, for the last row").ljust(PAGE, b"\0"))
        self._publish()

    @property
    def size(self) -> int:
        """Bytes."""
        return self._pages * PAGE

    def append(self, kind: str, t_ns: int, data: str | bytes) -> None:
        """Add a row; while somebody reads the file through SQLite it waits for the next one."""
        self._waiting.append((kind, t_ns, data))
        self.flush(is_patient=len(self._waiting) < _PATIENCE)

    def give_up(self) -> None:
        """Forget the rows that wait: the disk did not take them. For one more there is room in any case."""
        self._waiting.clear()
        self._spare += [self._reserve] if self._reserve else []
        self._reserve = 0

    def flush(self, *, is_patient: bool = False) -> None:
        """Write what waits."""
        if not self._waiting or not self._lock(is_patient=is_patient):
            return
        try:
            while self._waiting:
                self._add(*self._waiting[0])
                del self._waiting[0]
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, LOCK_BYTES, LOCKS_AT)

    def check(self) -> None:
        """See that the file is where it was made, and as it was written.

        Raises:
            ForeignChangeError: It is not, in words.
        """
        now = os.fstat(self._file)
        try:
            named = self._name.stat()
        except OSError as error:
            raise ForeignChangeError("the file was removed or moved away") from error
        if not os.path.samestat(now, named):
            raise ForeignChangeError("another file has taken its place")
        if now.st_size < self.size or os.pread(self._file, len(self._head), 0) != self._head:
            raise ForeignChangeError("another program cut the file or wrote into it")

    def sync(self) -> None:
        """Have the disk take all that was written; may block for as long as the disk does."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Write what waits, and see that the disk has it all."""
        try:
            self.flush()
            self.sync()
        finally:
            os.close(self._file)

    def _lock(self, *, is_patient: bool) -> bool:
        """Keep those out that read through SQLite (os_unix.c); file systems without locks have none such."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, LOCK_BYTES, LOCKS_AT)
        except OSError as error:
            return not (is_patient and error.errno in (errno.EAGAIN, errno.EACCES))
        return True

    def _add(self, kind: str, t_ns: int, data: str | bytes) -> None:
        pages, leaf = self._pages, self._path[-1]
        try:
            cell = self._cell(self._rows + 1, record((None, kind, t_ns, data)))
            new = None if leaf.fits(len(cell)) else self._new(_TreePage(LEAF), cell)
        except OSError:
            self._pages = pages  # nothing leads to what was written of them
            raise
        if new is None:
            self._rows += 1
            leaf.add(cell)
            self._publish(leaf)
        else:
            self._follow(len(self._path) - 1, leaf, self._rows, [new])
            self._rows += 1

    def _cell(self, row: int, body: bytes) -> bytes:
        """A row for a leaf page; what is too long of it is written behind, from its end on."""
        kept = kept_here(len(body))
        following = b""
        if kept < len(body):
            parts = [body[at : at + PAGE - 4] for at in range(kept, len(body), PAGE - 4)]
            numbers = [self._number() for _ in parts]
            for part, number, after in zip(parts, numbers, [*numbers[1:], 0], strict=True):
                self._write(number, (after.to_bytes(4, "big") + part).ljust(PAGE, b"\0"))
            following = numbers[0].to_bytes(4, "big")
        return varint(len(body)) + varint(row) + body[:kept] + following

    def _follow(self, depth: int, left: _TreePage, last_row: int, after: list[_TreePage]) -> None:
        """Have pages come after the one at a depth of the path, in whose place `left` stands.

        Args:
            depth: 0 for the root.
            left: It, or what has been made of it.
            last_row: The last one in or below `left`.
            after: What then leads to the newest row, the highest first.
        """
        if depth == 0:
            moved = self._new(_TreePage(left.kind, cells=left.cells, used=left.used, keys=left.keys, right=left.right))
            root = _TreePage(INTERIOR, number=ROOT, right=after[0].number)
            root.hang(moved.number, last_row)
            self._path = [root, *after]
            self._publish(root)
            return
        parent = self._path[depth - 1]
        if parent.fits(4 + len(varint(last_row))):
            parent.hang(left.number, last_row)
            parent.right = after[0].number
            self._path[depth:] = after
            self._publish(parent)
            return
        self._split(depth, left, last_row, after)

    def _split(self, depth: int, left: _TreePage, last_row: int, after: list[_TreePage]) -> None:
        """Where the page above is full: one like it without its last page, and one beside it with that and the new."""
        parent = self._path[depth - 1]
        beside = _TreePage(INTERIOR, right=after[0].number)
        beside.hang(left.number, last_row)
        *keys, (child, last) = parent.keys
        shorter = _TreePage(INTERIOR, cells=parent.cells[:-1], keys=keys, right=child)
        shorter.used = parent.used - len(parent.cells[-1])
        if depth > 1:
            self._new(shorter)
        self._follow(depth - 1, shorter, last, [self._new(beside), *after])
        if depth > 1:
            self._spare.append(parent.number)

    def _new(self, page: _TreePage, *cells: bytes) -> _TreePage:
        """Write a page behind all others."""
        for cell in cells:
            page.add(cell)
        page.number = self._number()
        self._write(page.number, page.content())
        return page

    def _number(self) -> int:
        if self._spare:
            return self._spare.pop()
        self._pages += 1
        return self._pages

    def _publish(self, changed: _TreePage | None = None) -> None:
        """Say how long the database is, then write the one page that leads to what is new."""
        self._changes += 1
        head = struct.pack(
            ">16sH6B12I20x2I",
            *(
                MAGIC,
                PAGE,
                1,
                1,
                0,
                64,
                32,
                32,
                self._changes,
                self._pages,
                self._reserve,
                self._reserve > 0,
                1,
                4,
                0,
                0,
                1,
                FORMAT,
                0,
            ),
            *(APPLICATION_ID, self._changes, _SQLITE_VERSION),
        )
        self._write(1, head + self._schema.content())
        self._head = head
        if changed is not None:
            self._write(changed.number, changed.content())

    def _write(self, number: int, content: bytes) -> None:
        at, left = (number - 1) * PAGE, memoryview(content)
        while left:
            written = os.pwrite(self._file, left, at)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            at, left = at + written, left[written:]
