"""The functions of a program or library: by their place in its ELF file, and the other way round (elf(5)).

Of 64-bit little-endian files: all machines that NVIDIA's libraries are made for. Names stay in the file until they are
asked for (libtorch has megabytes of them), and what the processes of a server share is read once.
"""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

_HEADER = struct.Struct("<16s HHI QQQ I HHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_SIZE = _SYMBOL.size
_LITTLE_64 = b"\x7fELF\x02\x01"
_LOAD = 1
_SYMTAB, _DYNSYM = 2, 11
_NOTE = 7
_BUILD_ID = struct.pack("<I4s", 3, b"GNU")
"""NT_GNU_BUILD_ID and the name of who defines it, in a note after two lengths; the id follows (elf.h)."""
_FUNCTION, _INDIRECT_FUNCTION = 2, 10
"""STT_FUNC and STT_GNU_IFUNC (elf.h)."""
_FUNCTION_INFOS = frozenset(info for info in range(256) if info & 15 in (_FUNCTION, _INDIRECT_FUNCTION))
_CHUNK = 1 << 16
"""Symbols that are sorted at a time: all of libtorch's at once would take 50 MB for a moment."""
_MOST_SYMBOLS = 1 << 24
"""That are read of one table: one that claims more is damaged."""
_BACK = 8
"""Functions before the nearest that are tried: one may lie within another."""
_LONGEST_NAME, _LONGEST_WANTED = 4096, 256


class ElfError(ValueError):
    """This is no ELF file that can be read here: 64 bits, little-endian."""


class _Section(NamedTuple):
    """Elf64_Shdr; `link` is the number of the section with the names, of a table of symbols."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class Site(NamedTuple):
    """A byte of a file where a probe can be.

    Attributes:
        place: Its offset.
        semaphore: That of the counter that has to be above 0 for the program to come there; 0 where there is none.
    """

    place: int
    semaphore: int = 0


class Elf:
    """What a file says of itself: which sections it has, and where its bytes are loaded.

    Args:
        descriptor: The file, open for reading.

    Raises:
        ElfError: It is no ELF file of this machine's kind, or a damaged one; so below.
    """

    def __init__(self, descriptor: int) -> None:
        self._size = os.fstat(descriptor).st_size
        ident, *_, segments_at, sections_at, _, _, segment_size, segments, section_size, sections, _ = _HEADER.unpack(
            self.read(descriptor, 0, _HEADER.size)
        )
        if not ident.startswith(_LITTLE_64) or segment_size != _SEGMENT.size or section_size not in (0, _SECTION.size):
            raise ElfError("not an ELF file of 64 bits, little-endian")
        self._loads: list[tuple[int, int, int]] = [
            (offset, size, address)
            for kind, _, offset, address, _, size, _, _ in _SEGMENT.iter_unpack(
                self.read(descriptor, segments_at, segments * _SEGMENT.size)
            )
            if kind == _LOAD
        ]
        tables = self.read(descriptor, sections_at, sections * _SECTION.size)
        self.sections = [_Section(*one) for one in _SECTION.iter_unpack(tables)]

    def names_of(self, table: _Section) -> _Section:
        """The section with the names of a table of symbols."""
        if table.link >= len(self.sections):
            raise ElfError("its symbols name a section that is not there")
        return self.sections[table.link]

    def address(self, offset: int) -> int | None:
        """Where a byte of the file is loaded; None where it is not."""
        return next((offset - at + start for at, size, start in self._loads if at <= offset < at + size), None)

    def offset(self, address: int) -> int:
        """The byte of the file that is loaded there."""
        for at, size, start in self._loads:
            if start <= address < start + size:
                return at + address - start
        raise ElfError("a function lies outside of what is loaded")

    def read(self, descriptor: int, offset: int, size: int) -> bytes:
        """Some of the file."""
        if offset + size > self._size:
            raise ElfError("it ends before its tables do")
        data = os.pread(descriptor, size, offset)
        if len(data) != size:
            raise ElfError("it was cut while it was read")
        return data


def exported(path: str, wanted: Collection[str]) -> dict[str, int]:
    """Places in the file of those of the wanted functions that a library defines.

    Raises:
        OSError: The file cannot be read.
        ElfError: It is no such library, or a damaged one.
    """
    names = {name.encode(): name for name in wanted}
    with open(path, "rb") as file:
        elf = Elf(file.fileno())
        found = functions_of(elf, file.fileno(), is_exported=True)
        return {names[name]: elf.offset(address) for name, address in found if name in names}


def functions_of(elf: Elf, descriptor: int, *, is_exported: bool) -> Iterator[tuple[bytes, int]]:
    """Names and addresses of the functions that a file defines: those that it exports, else of all that it tells of.

    Raises:
        ElfError: Its tables are damaged.
    """
    for table in (one for one in elf.sections if one.kind == (_DYNSYM if is_exported else _SYMTAB)):
        texts = elf.names_of(table)
        text = elf.read(descriptor, texts.offset, texts.size)
        symbols = elf.read(descriptor, table.offset, table.size - table.size % _SYMBOL_SIZE)
        for at, info, _, section, address, _ in _SYMBOL.iter_unpack(symbols):
            if info & 15 == _FUNCTION and section:
                yield text[at : at + _LONGEST_WANTED].partition(b"\0")[0], address


class _SymbolRun:
    """Some of the functions, by address."""

    def __init__(self, table: bytes) -> None:
        words, halves = memoryview(table).cast("Q"), memoryview(table).cast("I")
        starts, sizes, names = words[1::3].tolist(), words[2::3].tolist(), halves[0::6].tolist()
        kept = [i for i, info in enumerate(table[4::_SYMBOL_SIZE]) if info in _FUNCTION_INFOS and starts[i]]
        kept.sort(key=starts.__getitem__)
        self.starts = array("Q", [starts[i] for i in kept])
        self.sizes = array("Q", [sizes[i] for i in kept])
        self.names = array("I", [names[i] for i in kept])

    def holding(self, address: int) -> Iterator[tuple[int, int]]:
        """The start and the name's place of functions that hold an address, the nearest first."""
        i = bisect_right(self.starts, address) - 1
        for j in range(i, max(-1, i - _BACK), -1):
            if address - self.starts[j] < (self.sizes[j] or 1):
                yield self.starts[j], self.names[j]


class ElfFunctions:
    """The functions of one file.

    Args:
        descriptor: The file, open for reading; it is needed again for names, by this or another descriptor.
        debug_files: The folder with debug files by build-id, for those whose own functions have been stripped.

    Raises:
        ElfError: It is no ELF file of this machine's kind, or a damaged one.
    """

    def __init__(self, descriptor: int, debug_files: str = "") -> None:
        self._elf = Elf(descriptor)
        chosen = next((one for kind in (_SYMTAB, _DYNSYM) for one in self._elf.sections if one.kind == kind), None)
        is_complete = chosen is not None and chosen.kind == _SYMTAB
        self._debug = None if is_complete or not debug_files else self._debug_file(descriptor, debug_files)
        """What knows the functions that are not exported: a debug file, open, and its functions."""
        self._runs: list[_SymbolRun] = []
        self._strings: int
        """Where names lie, if there are any."""
        self._name_of: dict[int, str] = {}
        if chosen is not None:
            self._strings = self._elf.names_of(chosen).offset
            self._runs = list(self._read_runs(descriptor, chosen.offset, chosen.size // _SYMBOL_SIZE))

    def name(self, descriptor: int, offset: int) -> str | None:
        """The function that holds a byte of the file; None where no function is known."""
        address = self._elf.address(offset)
        return None if address is None else self._name_at(descriptor, address)

    def _name_at(self, descriptor: int, address: int) -> str | None:
        found = [place for run in self._runs for place in run.holding(address)]
        if not found:
            return self._debug[1]._name_at(self._debug[0], address) if self._debug else None
        nearest = max(start for start, _ in found)
        names = [self._named(descriptor, place) for start, place in found if start == nearest]
        # A function of many names is best known by its plain one: recv, not __recv or __libc_recv.
        return min(names, key=lambda name: (len(name) - len(name.lstrip("_")), len(name), name))

    def _debug_file(self, descriptor: int, folder: str) -> tuple[int, ElfFunctions] | None:
        """The debug file of this one: its symbols have the addresses that this file's segments are loaded at."""
        notes = (self._elf.read(descriptor, one.offset, one.size) for one in self._elf.sections if one.kind == _NOTE)
        ids = [note[16:].hex() for note in notes if note[8:16] == _BUILD_ID]
        try:
            found = os.open(f"{folder}/{ids[0][:2]}/{ids[0][2:]}.debug", os.O_RDONLY | os.O_CLOEXEC)
        except (IndexError, OSError):  # it has no such note, or nobody has installed its debug file
            return None
        weakref.finalize(self, os.close, found)
        try:
            return found, ElfFunctions(found)
        except ElfError:
            return None

    def _named(self, descriptor: int, place: int) -> str:
        name = self._name_of.get(place)
        if name is None:
            raw = os.pread(descriptor, _LONGEST_NAME, self._strings + place).partition(b"\0")[0]
            name = self._name_of[place] = demangled(raw).decode("utf-8", "replace")
        return name

    def _read_runs(self, descriptor: int, at: int, symbols: int) -> Iterator[_SymbolRun]:
        for first in range(0, min(symbols, _MOST_SYMBOLS), _CHUNK):
            count = min(_CHUNK, symbols - first)
            run = _SymbolRun(self._elf.read(descriptor, at + first * _SYMBOL_SIZE, count * _SYMBOL_SIZE))
            if run.starts:
                yield run


def demangled(name: bytes) -> bytes:
    """A C++ function as its source names it; any other name as it is."""
    if not name.startswith(b"_Z") or len(name) >= _LONGEST_NAME or _cxa_demangle is None:
        return name
    status = ctypes.c_int()
    found = _cxa_demangle(name, None, None, ctypes.byref(status))
    if not found:
        return name
    try:
        return ctypes.string_at(found)
    finally:
        _free(found)


def _demangler() -> Any:
    """The C++ library's own; None where there is none, and names stay as the linker knows them."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except OSError:
        return None
    demangle.restype = ctypes.c_void_p
    return demangle


_cxa_demangle = _demangler()
_free = ctypes.CDLL(None).free
_free.argtypes = (ctypes.c_void_p,)
