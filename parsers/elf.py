"""ELF files of 64 bits, as far as cubins need it: sections, functions, relocations.

Written for this, and not taken from pyelftools: that refuses cubins' relocations, which are what says where the lines
of a function begin, and takes 50 ms to import, a third of what a source view may take to open. Everything is read when
it is asked for, through `read`, so that a cubin of hundreds of megabytes costs what of it is looked at.
The format is that of the System V ABI; all numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeAlias

from llmtop.frozen import frozen

Read: TypeAlias = "Callable[[int, int], bytes]"
"""The bytes at an offset, so many of them, or fewer at the end."""

_MAGIC = b"\x7fELF\x02\x01"
"""Of 64 bits, little-endian."""
_HEADER = struct.Struct("<40xQ10xHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION, _RELOCATION_WITH_ADDEND = struct.Struct("<QQ"), struct.Struct("<QQq")
_SYMBOLS, _WITH_ADDENDS, _NO_BITS, _RELOCATIONS = 2, 4, 8, 9
"""Types of sections."""
_FUNCTION = 2
"""The type of a symbol."""
_EXTENDED = 0xFFFF
"""An index that stands in the first section, as it is too large for the header."""
_MOST_SYMBOLS = 1 << 20
_MAX_SECTION = 1 << 28
"""Bytes of one that is read as a whole: line tables and texts of the largest libraries are a tenth of it."""


class ElfFormatError(ValueError):
    """It is no such file, or it is damaged: half a sentence that says how."""


@frozen
class Section:
    """A section: its place in the table, where its bytes lie, and what `link` and `info` say it is of."""

    index: int
    name: str
    kind: int
    offset: int
    size: int
    info: int
    link: int
    entry: int


@frozen
class Symbol:
    """A symbol: a value within its section, and how many bytes it is of."""

    index: int
    name: str
    is_function: bool
    section: int
    value: int
    size: int


@frozen
class Relocation:
    """That the bytes at `offset` of a section are the address of a symbol, and `addend` more where it is told here."""

    offset: int
    symbol: int
    addend: int | None


class ElfSections:
    """An ELF file.

    Args:
        read: Gives its bytes.
        size: How many there are.

    Raises:
        ElfFormatError: It is none of these.
    """

    def __init__(self, read: Read, size: int) -> None:
        self._read, self._size = read, size
        header = read(0, _HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            raise ElfFormatError("it is no ELF file of 64 bits")
        table, entry, count, names = _HEADER.unpack(header)
        # Of more sections than the header can count the first one tells how many, and where their names are.
        first = _SECTION.unpack(read(table, _SECTION.size).ljust(_SECTION.size, b"\0"))
        self._count, self._names = count or first[5], first[6] if names == _EXTENDED else names
        if entry != _SECTION.size or table + self._count * entry > size:
            raise ElfFormatError("its table of sections does not fit into it")
        self._table = table

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """All of them, in the order of the file."""
        rows = list(_SECTION.iter_unpack(self._read(self._table, self._count * _SECTION.size)))
        if self._names >= len(rows):
            raise ElfFormatError("it has no names of sections")
        names = self._bytes(rows[self._names][4], rows[self._names][5])
        return tuple(
            Section(i, _text(names, name), kind, offset, 0 if kind == _NO_BITS else size, info, link, entry)
            for i, (name, kind, _, _, offset, size, link, info, _, entry) in enumerate(rows)
        )

    def section(self, name: str) -> Section | None:
        """The first one of this name."""
        return next((one for one in self.sections if one.name == name), None)

    def content(self, section: Section) -> bytes:
        """The bytes of a section.

        Raises:
            ElfFormatError: They are not in the file.
        """
        return self._bytes(section.offset, section.size)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """All symbols, in the order of their table; none where there is no table."""
        table = next((one for one in self.sections if one.kind == _SYMBOLS), None)
        names = self.section(".strtab")
        if table is None or names is None:
            return ()
        texts, stored = self.content(names), self.content(table)
        if len(stored) > _MOST_SYMBOLS * _SYMBOL.size:
            raise ElfFormatError("it has more symbols than any")
        return tuple(
            Symbol(i, _text(texts, name), info & 15 == _FUNCTION, section, value, size)
            for i, (name, info, _, section, value, size) in enumerate(
                _SYMBOL.iter_unpack(stored[: len(stored) // _SYMBOL.size * _SYMBOL.size])
            )
        )

    def relocations(self, section: Section) -> Iterator[Relocation]:
        """Those of a section, as they are stored."""
        for one in self.sections:
            if one.info == section.index and one.kind in (_WITH_ADDENDS, _RELOCATIONS):
                layout = _RELOCATION_WITH_ADDEND if one.kind == _WITH_ADDENDS else _RELOCATION
                stored = self.content(one)
                for offset, info, *addend in layout.iter_unpack(stored[: len(stored) // layout.size * layout.size]):
                    yield Relocation(offset, info >> 32, addend[0] if addend else None)

    def _bytes(self, offset: int, size: int) -> bytes:
        if size > _MAX_SECTION or offset + size > self._size:
            raise ElfFormatError("a section of it does not fit into it")
        found = self._read(offset, size)
        if len(found) != size:
            raise ElfFormatError("a section of it is cut short")
        return found


def _text(table: bytes, at: int) -> str:
    """The text at a place of a table of texts that end with a zero."""
    end = table.find(b"\0", at)
    return table[at : len(table) if end < 0 else end].decode(errors="replace")
