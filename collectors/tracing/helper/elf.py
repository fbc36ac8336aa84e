"""The functions of a program or library: by their place in its ELF file, and the other way round (elf(5)).

Of 64-bit little-endian files: all machines that NVIDIA's libraries are made for. Names stay in the file until they are
asked for (libtorch has megabytes of them), and what the processes of a server share is read once.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import struct
import time
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .system import regular_file

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
_MOST_SECTIONS = 1 << 12
"""Libraries have some tens; with debugging information a hundred."""
_MOST_SEGMENTS = 1 << 8
_MOST_AT_ONCE = 1 << 26
"""Bytes of a table that is taken in whole: names of a library's functions. libtorch has half of it."""
_MOST_BYTES = 1 << 28
"""Of one file's tables together."""
_READ_S = 1.0
"""Processor time for the tables of one file: a million symbols take a fifth."""
_READ_ALL_S = 10.0
"""Likewise for all files of one process."""
_BACK = 8
"""Functions before the nearest that are tried: one may lie within another."""
_REFERENCE = re.compile(rb"[ST][0-9A-Z]*_")
_FEW_REFERENCES = 30
"""They make a name at most 3 ** 10 times as long: 20 ms."""
_WRITE_OUT_S = 0.1
_MOST_REFUSED = 3
"""Of the names of one file; then the others stay as they are."""
_LONGEST_NAME, _LONGEST_WANTED = 4096, 256


class ElfError(ValueError):
    """This is no ELF file that can be read here: 64 bits, little-endian."""


class ReadingTime:
    """The processor time that files of each process have taken: a process of absurd files loses its own names only."""

    def __init__(self) -> None:
        self._spent_s: dict[int, float] = {}

    @contextmanager
    def of(self, pid: int) -> Iterator[None]:
        """Read one file of a process.

        Raises:
            ElfError: Those before have taken too long.
        """
        if self._spent_s.get(pid, 0.0) > _READ_ALL_S:
            raise ElfError("the files of its process take too long")
        began_s = time.thread_time()
        try:
            yield
        finally:
            self._spent_s[pid] = self._spent_s.get(pid, 0.0) + time.thread_time() - began_s

    def forget(self, pid: int) -> None:
        """The process has ended, or runs another program."""
        self._spent_s.pop(pid, None)


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
        self._left = _MOST_BYTES
        self._began_s = time.thread_time()
        ident, *_, segments_at, sections_at, _, _, segment_size, segments, section_size, sections, _ = _HEADER.unpack(
            self.read(descriptor, 0, _HEADER.size)
        )
        if not ident.startswith(_LITTLE_64) or segment_size != _SEGMENT.size or section_size not in (0, _SECTION.size):
            raise ElfError("not an ELF file of 64 bits, little-endian")
        if sections > _MOST_SECTIONS or segments > _MOST_SEGMENTS:
            raise ElfError("it claims more tables than a library has")
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
        if table.size > self._left:  # before any of it is read
            raise ElfError("its tables are larger than a library's")
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
        self._left -= size
        if size > _MOST_AT_ONCE or self._left < 0 or time.thread_time() - self._began_s > _READ_S:
            raise ElfError("its tables are larger than a library's")
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
    with regular_file(path) as file:
        elf = Elf(file)
        found = functions_of(elf, file, is_exported=True)
        return {names[name]: elf.offset(address) for name, address in found if name in names}


def functions_of(elf: Elf, descriptor: int, *, is_exported: bool) -> Iterator[tuple[bytes, int]]:
    """Names and addresses of the functions that a file defines: those that it exports, else of all that it tells of.

    Raises:
        ElfError: Its tables are damaged.
    """
    # There is one of each kind (elf(5), SHT_DYNSYM): a file with more of them was made to take our time.
    table = next((one for one in elf.sections if one.kind == (_DYNSYM if is_exported else _SYMTAB)), None)
    if table is None:
        return
    texts = elf.names_of(table)
    text = elf.read(descriptor, texts.offset, texts.size)
    for first in range(0, table.size // _SYMBOL_SIZE, _CHUNK):
        size = min(_CHUNK, table.size // _SYMBOL_SIZE - first) * _SYMBOL_SIZE
        symbols = elf.read(descriptor, table.offset + first * _SYMBOL_SIZE, size)
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
        self._refused = 0
        """Names that were too long when they were written out."""
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
            plain = demangled(raw) if self._refused < _MOST_REFUSED else raw
            self._refused += plain is None
            name = self._name_of[place] = (plain or raw).decode("utf-8", "replace")
        return name

    def _read_runs(self, descriptor: int, at: int, symbols: int) -> Iterator[_SymbolRun]:
        for first in range(0, symbols, _CHUNK):
            count = min(_CHUNK, symbols - first)
            run = _SymbolRun(self._elf.read(descriptor, at + first * _SYMBOL_SIZE, count * _SYMBOL_SIZE))
            if run.starts:
                yield run


def demangled(name: bytes) -> bytes | None:
    """A C++ function as its source names it; any other name as it is. None of one that was made to take our time.

    A name may refer to its own parts, and two hundred letters can so stand for gigabytes. One that refers to many is
    written out by a child that the kernel ends.
    """
    if not name.startswith(b"_Z") or len(name) >= _LONGEST_NAME or _cxa_demangle is None:
        return name
    if len(_REFERENCE.findall(name)) <= _FEW_REFERENCES:
        return _written_out(name)
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, _WRITE_OUT_S)
            os.write(writable, _written_out(name)[:_LONGEST_NAME])
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as answer:
        plain = answer.read()
    os.waitpid(child, 0)
    return plain or None


def _written_out(name: bytes) -> bytes:
    assert _cxa_demangle is not None
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
