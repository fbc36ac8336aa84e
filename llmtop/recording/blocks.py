"""The blocks that a recording keeps its numbers in: one for each moment, several in one compression.

A block goes on where the one before it ended: a server's metrics have the same names second after second, and most
values are what they were. Every so often a compression begins anew (`writer.STRETCH_NS`), so that nobody has to read
from the beginning.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

from llmtop.recording.documents import parsed, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

ENCODING: Final = 2
"""In 1 all series of a group stood in each row; in 2 those that have not moved in a stretch are in its first alone."""
_KNOWN: Final = (1, ENCODING)
_HEAD = struct.Struct("<BII")
"""The encoding, the CRC-32 of what follows, and how long that is unpacked."""
_LENGTHS = struct.Struct("<II")
"""Of the two texts that a block begins with, unpacked."""
_RAW: Final = -15
"""zlib's window of 32 kB, without a header and a sum of its own."""
_LEVEL: Final = 7
"""A fifth more time than the usual 6 and 1 % smaller; 8 takes five times as long for next to nothing."""
LONGEST: Final = 1 << 26
"""Bytes of a stretch unpacked: one of ten thousand series with ten minutes from before it takes as many."""
_OBJECTS: Final = 16
"""Bytes of memory of each byte of JSON."""
_BYTES = 8
"""Of a number."""


class BadBlockError(Exception):
    """A block that is damaged, or of an encoding that is not known."""


class BlockWriter:
    """Packs blocks one behind the other."""

    def __init__(self) -> None:
        # What has changed of a number looks random: matches of a few bytes are by chance, and cost more than they save.
        self._deflate = zlib.compressobj(_LEVEL, wbits=_RAW, strategy=zlib.Z_FILTERED)

    def pack(self, told: Any, directory: Any, columns: Iterable[bytes]) -> bytes:
        """One more block: what is told beside numbers, the directory of the columns, and the columns."""
        texts = [text_of(one).encode() for one in (told, directory)]
        content = b"".join((_LENGTHS.pack(*map(len, texts)), *texts, *columns))
        packed = self._deflate.compress(content) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _HEAD.pack(ENCODING, zlib.crc32(packed), len(content)) + packed


class BlockReader:
    """Unpacks what a `BlockWriter` has packed, in the same order and none left out."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=_RAW)
        self._directory: tuple[bytes, dict[str, Any]] = (b"", {})
        """The last one, as text and as what it says: most are like the one before."""
        self.size = 0
        """Bytes that were unpacked, and what became of them."""

    def unpack(self, block: bytes) -> tuple[bytes, dict[str, Any], bytes]:
        """The next block: the JSON of what is told, the directory of the columns, and the columns.

        Raises:
            BadBlockError: It cannot be read, nor any that follows it in its stretch.
        """
        try:
            encoding, crc, length = _HEAD.unpack_from(block)
            packed = block[_HEAD.size :]
            if encoding not in _KNOWN or zlib.crc32(packed) != crc or self.size + length > LONGEST:
                raise BadBlockError
            content = self._inflate.decompress(packed, length)
            if len(content) != length or self._inflate.unconsumed_tail:
                raise BadBlockError
            self.size += length
            told, directory = _LENGTHS.unpack_from(content)
            middle = _LENGTHS.size + told
            end = middle + directory
            self.size += _OBJECTS * told
            if (text := content[middle:end]) != self._directory[0]:
                self.size += _OBJECTS * directory
                self._directory = text, _directory(text)
            return content[_LENGTHS.size : middle], self._directory[1], content[end:]
        except (struct.error, zlib.error, ValueError) as error:
            raise BadBlockError from error


def _directory(text: bytes) -> dict[str, Any]:
    if not isinstance(directory := parsed(text), dict):
        raise BadBlockError
    return directory


def packed_row(changed: bytes) -> bytes:
    """What has changed in a row of numbers: their first bytes first, then their second ones, and so on."""
    return b"".join(changed[i::_BYTES] for i in range(_BYTES))


def unpacked_rows(packed: bytes, width: int, before: bytes = b"") -> bytes:
    """Rows of numbers as they were.

    They are taken together: each is added to the one before as it was packed, and all are put in order at once.

    Args:
        packed: What has changed from row to row: by XOR, each as `packed_row` has it.
        width: Numbers in a row.
        before: The row before them; empty where there is none.
    """
    size, now = width * _BYTES, int.from_bytes(packed_row(before), "little")
    rows = []
    for at in range(0, len(packed), size or 1):
        now ^= int.from_bytes(packed[at : at + size], "little")
        rows.append(now.to_bytes(size, "little"))
    numbers = bytearray(len(packed))
    for i in range(_BYTES):
        several = b"".join([row[i * width : (i + 1) * width] for row in rows])
        if several.strip(b"\0"):  # of whole numbers half are 0 everywhere
            numbers[i::_BYTES] = several
    return bytes(numbers)
