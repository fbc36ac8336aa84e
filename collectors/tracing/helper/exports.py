"""Which functions a shared library has, and where: bpftrace refuses a whole program for one name that is not there.

The layout is that of elf(5), for 64-bit little-endian files: all machines that NVIDIA's libraries are made for.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection, Iterator
from pathlib import Path

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MAGIC = b"\x7fELF\x02\x01"
_LOAD, _DYNSYM, _FUNCTION = 1, 11, 2


def functions(path: str, wanted: Collection[str]) -> dict[str, int]:
    """Places in the file of those of the wanted functions that the library defines.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no such library, or a damaged one.
    """
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return dict(_found(data, {name.encode() for name in wanted}))
        except (struct.error, IndexError, OverflowError) as error:  # a place beyond what can be addressed
            raise ValueError(f"{path} is a damaged library: {error}") from error


def _found(data: mmap.mmap, wanted: set[bytes]) -> Iterator[tuple[str, int]]:
    magic, _, _, _, _, segments_at, sections_at, _, _, _, segment_count, _, section_count, _ = _HEADER.unpack_from(data)
    if not magic.startswith(_MAGIC):
        raise ValueError("no 64-bit little-endian ELF file")
    segments = [_SEGMENT.unpack_from(data, segments_at + place * _SEGMENT.size) for place in range(segment_count)]
    loads = [(address, size, offset) for kind, _, offset, address, _, size, *_ in segments if kind == _LOAD]
    sections = [_SECTION.unpack_from(data, sections_at + place * _SECTION.size) for place in range(section_count)]
    for _, kind, _, _, symbols_at, size, link, *_ in sections:
        if kind == _DYNSYM:
            names_at = sections[link][4]
            symbols = memoryview(data[symbols_at : symbols_at + size - size % _SYMBOL.size])
            for name, info, _, section, address, _ in _SYMBOL.iter_unpack(symbols):
                if info & 0xF == _FUNCTION and section:
                    text = _text(data, names_at + name)
                    if text in wanted:
                        yield text.decode(), _offset(loads, address)


def _text(data: mmap.mmap, place: int) -> bytes:
    end = data.find(b"\0", place, place + 256)
    return data[place:end] if end > place else b""


def _offset(loads: list[tuple[int, int, int]], address: int) -> int:
    for start, size, offset in loads:
        if start <= address < start + size:
            return offset + address - start
    raise ValueError("a function lies outside of what is loaded")
