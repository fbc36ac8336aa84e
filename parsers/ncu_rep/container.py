r"""The container of a .ncu-rep: a chain of blocks that must end exactly at the end of the file.

    "NVR\0" | u32 n | file header (n bytes)
    until the end of the file:  u32 m | BlockHeader (m bytes) | payload
    payload: sources, kernel results, then range, command list and graph results, each as u32 length | message

All integers are little-endian. Sources hold the cubins, most of a file's bytes; they are stepped over, and read when a
kernel's code is looked at.
The format is described in the Customization Guide of Nsight Compute, "Report file format", version 7.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from llmtop.errors import FileError
from llmtop.frozen import frozen
from llmtop.parsers.ncu_rep import MAGIC
from llmtop.parsers.ncu_rep.ncu_rep_pb2 import BlockHeader
from llmtop.units import binary_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH = 4
_MAX_HEADER = 256 << 20
"""A block header carries strings and session facts; the largest seen is 0.1 MB. More is damage, not truncation."""
_MAX_PAYLOAD = 1 << 40


@frozen
class Extent:
    """Where a message lies in the file."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The first byte after it."""
        return self.offset + self.size


@frozen
class Block:
    """One block: its header, where its sources and kernel results lie, and how many entries are of kinds not read."""

    header: BlockHeader
    sources: tuple[Extent, ...]
    kernels: tuple[Extent, ...]
    others: int


class ReportFile:
    """An open report. It stays readable when its name is removed, and is closed with its last reader.

    Read with pread instead of mapped: a file that another program cuts short while it is mapped kills the reader.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)
        self.size = os.fstat(self._fd).st_size

    def read(self, extent: Extent) -> bytes:
        """The bytes of an extent.

        Raises:
            FileError: They are not there any more, or the disk cannot give them.
        """
        try:
            data = os.pread(self._fd, extent.size, extent.offset)
        except OSError as error:
            raise FileError(f"{self.path} cannot be read: {error.strerror}") from error
        if len(data) != extent.size:
            raise FileError(f"{self.path} became shorter while it was read; open it when its writer is done")
        return data

    @property
    def open_path(self) -> Path:
        """Where other programs find it while it is open here, though its name may have been removed."""
        return Path(f"/proc/{os.getpid()}/fd/{self._fd}")

    def length_at(self, offset: int) -> int:
        """The u32 at `offset`."""
        return int.from_bytes(self.read(Extent(offset, _LENGTH)), "little")


def read_blocks(file: ReportFile) -> Iterator[Block]:
    """Walk the chain of blocks.

    Raises:
        FileError: The chain is broken: truncated when it needs more than the file has, corrupted otherwise.
    """
    if file.read(Extent(0, min(len(MAGIC), file.size))) != MAGIC:
        raise FileError(f"{file.path} is not an Nsight Compute report: it does not start with NVR")
    offset = _message_at(file, len(MAGIC), "the file header").end
    number = 0
    while offset < file.size:
        extent = _message_at(file, offset, f"the header of block {number}")
        header = _header(file, extent, number)
        end = extent.end + header.payload_size
        if header.payload_size > _MAX_PAYLOAD:
            raise _corrupted(file, f"block {number} claims {binary_bytes(header.payload_size)}")
        if end > file.size:
            raise _truncated(file, f"block {number} of the chain", end - file.size)
        yield _block(file, header, number, extent.end, end)
        offset = end
        number += 1


def _message_at(file: ReportFile, offset: int, what: str) -> Extent:
    """The extent of the length-prefixed header at `offset`."""
    if offset + _LENGTH > file.size:
        raise _truncated(file, what, offset + _LENGTH - file.size)
    extent = Extent(offset + _LENGTH, file.length_at(offset))
    if extent.size > _MAX_HEADER:
        raise _corrupted(file, f"{what} claims {binary_bytes(extent.size)}")
    if extent.end > file.size:
        raise _truncated(file, what, extent.end - file.size)
    return extent


def _header(file: ReportFile, extent: Extent, number: int) -> BlockHeader:
    """Decode a block header."""
    try:
        return BlockHeader.FromString(file.read(extent))
    except DecodeError as error:
        where = f"the header of block {number}, at byte {extent.offset},"
        raise _corrupted(file, f"{where} does not decode") from error


def _block(file: ReportFile, header: BlockHeader, number: int, start: int, end: int) -> Block:
    """Step through the entries of a payload, which must fill it."""
    others = header.num_range_results + header.num_cmdlist_results + header.num_graph_results
    sources: list[Extent] = []
    kernels: list[Extent] = []
    offset = start
    for entry in range(header.num_sources + header.num_results + others):
        if offset + _LENGTH > end or (extent := Extent(offset + _LENGTH, file.length_at(offset))).end > end:
            raise _corrupted(file, f"entry {entry} of block {number}, at byte {offset}, does not fit into the block")
        if entry < header.num_sources:
            sources.append(extent)
        elif entry < header.num_sources + header.num_results:
            kernels.append(extent)
        offset = extent.end
    if offset != end:
        raise _corrupted(file, f"the entries of block {number} leave {end - offset} bytes of it over")
    return Block(header, tuple(sources), tuple(kernels), others)


def _truncated(file: ReportFile, what: str, lacking: int) -> FileError:
    return FileError(
        f"{file.path} is truncated: {what} needs {binary_bytes(lacking)} past the end of the file; copy it again"
    )


def _corrupted(file: ReportFile, what: str) -> FileError:
    return FileError(f"{file.path} is corrupted: {what}; copy it again")
