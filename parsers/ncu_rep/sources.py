"""What a report holds of a program's code: the cubin, where it was loaded, source files. Read part by part.

Stepped through without protobuf, which would read all of a message: cubins may have hundreds of megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.message import DecodeError

from llmtop.errors import FileError
from llmtop.frozen import frozen
from llmtop.parsers.ncu_rep import ncu_rep_pb2 as pb
from llmtop.parsers.ncu_rep.container import Extent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmtop.parsers.ncu_rep.container import ReportFile

_ID, _CUBIN, _ARCHITECTURE, _FILES, _LOADED = 1, 4, 6, 8, 9
_FILE, _FILE_NAME, _FILE_TEXT = 1, 1, 2
_VARINT, _BITS_64, _BYTES, _BITS_32 = 0, 1, 2, 5
"""How a field is stored."""
_FIXED = {_BITS_64: 8, _BITS_32: 4}
_HEAD = 20
"""Bytes of the longest tag and number."""
_MAX_LOADED = 64 << 20
_MOST_FIELDS = 1 << 16
_MAX_NAME = 1 << 16


class Field(NamedTuple):
    """A field of a stored message: its number; of a number its value, of all else where its bytes lie."""

    number: int
    value: int
    extent: Extent


@frozen
class StoredCode:
    """The code that kernels of a report are of.

    Attributes:
        cubin: None where the report has none.
        major: Of the compute capability; 0 where it is not told.
        functions: Name, address and symbol of each that was loaded.
        files: The texts of source files by their path, as they are in the report.
    """

    cubin: Extent | None
    major: int
    functions: tuple[tuple[str, int, int], ...]
    files: Mapping[str, Extent]


def stored_id(file: ReportFile, extent: Extent) -> int | None:
    """By what kernels name this code."""
    return next((one.value for one in stored_fields(file, extent) if one.number == _ID), None)


def stored_code(file: ReportFile, extent: Extent) -> StoredCode:
    """Look through a source of a report.

    Raises:
        FileError: It is damaged.
    """
    found = {one.number: one for one in stored_fields(file, extent)}
    cubin, loaded, files = (found.get(number) for number in (_CUBIN, _LOADED, _FILES))
    return StoredCode(
        cubin=None if cubin is None or not cubin.extent.size else cubin.extent,
        major=found[_ARCHITECTURE].value >> 16 if _ARCHITECTURE in found else 0,
        functions=() if loaded is None else _functions(file, loaded.extent),
        files={} if files is None else dict(_files(file, files.extent)),
    )


def _functions(file: ReportFile, extent: Extent) -> tuple[tuple[str, int, int], ...]:
    if extent.size > _MAX_LOADED:
        raise _damaged(file, extent.offset)
    try:
        loaded = pb.Loaded.FromString(file.read(extent))
    except DecodeError as error:
        raise _damaged(file, extent.offset) from error
    return tuple((one.name.decode(errors="replace"), one.address, one.symbol) for one in loaded.functions)


def _files(file: ReportFile, extent: Extent) -> Iterator[tuple[str, Extent]]:
    for one in stored_fields(file, extent):
        if one.number == _FILE:
            parts = {part.number: part.extent for part in stored_fields(file, one.extent)}
            if {_FILE_NAME, _FILE_TEXT} <= parts.keys() and parts[_FILE_NAME].size <= _MAX_NAME:
                yield file.read(parts[_FILE_NAME]).decode(errors="replace"), parts[_FILE_TEXT]


def stored_fields(file: ReportFile, extent: Extent) -> Iterator[Field]:
    """The fields of a message, without their contents.

    Raises:
        FileError: It is damaged.
    """
    at = extent.offset
    for _ in range(_MOST_FIELDS):
        if at >= extent.end:
            return
        head = file.read(Extent(at, min(_HEAD, extent.end - at)))
        tag, used = _number(file, head, 0, at)
        kind = tag & 7
        value = size = 0
        if kind in (_VARINT, _BYTES):
            value, used = _number(file, head, used, at)
        if kind == _BYTES:
            size = value
        elif kind != _VARINT:
            size = _FIXED.get(kind, extent.size)
        field = Field(tag >> 3, value, Extent(at + used, size))
        if field.extent.end > extent.end:
            raise _damaged(file, at)
        yield field
        at = field.extent.end
    raise _damaged(file, at)


def _number(file: ReportFile, head: bytes, at: int, offset: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    found = 0
    for i, byte in enumerate(head[at : at + 10]):
        found |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return found, at + i + 1
    raise _damaged(file, offset)


def _damaged(file: ReportFile, at: int) -> FileError:
    return FileError(f"{file.path} is corrupted: the code of a kernel, at byte {at}, does not decode; copy it again")
