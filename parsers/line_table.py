"""Which line of the source each instruction was made from: line number programs of DWARF 2 to 5, as cubins have them.

A program is run from the relocations of its section on: each is of an instruction that sets an address, with which a
sequence begins, and says of which function that sequence is. So of a cubin with the lines of hundreds of functions only
those of the ones that are looked at are run.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from llmtop.frozen import frozen

_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
_END_SEQUENCE, _EXTENDED_SET_ADDRESS = 1, 2
_PATH, _DIRECTORY, _SIZE = 1, 2, 4
"""What an entry of DWARF 5 tells of a file."""
_MOST_LINES = 1 << 24
"""Of a file: a row of a later line, or of one before the first, is of none."""
_MOST_ROWS = 1 << 20
"""Of one sequence: more are damage."""
_FIXED_FORMS = {0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x1E: 16, 0x17: 4, 0x1F: 4, 0x0E: 4}
"""The bytes of forms of fixed length: data, MD5 sums, offsets into other sections."""
_STRING, _UDATA, _LINE_STRING, _OTHER_STRING = 0x08, 0x0F, 0x1F, 0x0E


class LineError(ValueError):
    """A program is damaged: half a sentence that says how."""


class SourceName(NamedTuple):
    """A file of the source, and how many bytes it had when it was compiled; 0 where that is not told."""

    path: str
    size: int


class LineRow(NamedTuple):
    """From `offset` of a function on, instructions are of this line; `file` None where they are of none."""

    offset: int
    file: SourceName | None
    line: int


class LineTable:
    """The rows of one function, by the offset.

    Of several at one place, which are the calls that were inlined there, the first counts as it does in Nsight Compute:
    the outermost. An end counts only where no other sequence goes on.
    """

    def __init__(self, rows: list[LineRow]) -> None:
        rows.sort(key=lambda row: (row.offset, row.file is None))
        first: dict[int, LineRow] = {}
        for row in rows:
            first.setdefault(row.offset, row)
        self._rows = list(first.values())
        self._offsets = list(first)

    def at(self, offset: int) -> LineRow | None:
        """The row that an instruction is of; None before the first."""
        i = bisect_right(self._offsets, offset) - 1
        return self._rows[i] if i >= 0 else None


class _Cursor:
    """Reads numbers from bytes, one after the other.

    Raises:
        LineError: They end before the number does.
    """

    def __init__(self, content: bytes, at: int, end: int) -> None:
        self.content, self.at, self.end = content, at, min(end, len(content))

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > self.end:
            raise LineError("a program of it ends in the middle of an instruction")
        found = self.content[self.at : self.at + size]
        self.at += size
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def leb(self) -> int:
        """A number of any length, seven bits a byte."""
        found = shift = 0
        while True:
            byte = self.number(1)
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return found
            if shift > 63:
                raise LineError("a number of it has no end")

    def signed_leb(self) -> int:
        at = self.at
        found = self.leb()
        bits = 7 * (self.at - at)
        return found - (1 << bits) if found >> (bits - 1) & 1 else found

    def text(self) -> str:
        end = self.content.find(b"\0", self.at, self.end)
        if end < 0:
            raise LineError("a name of it has no end")
        found = self.content[self.at : end]
        self.at = end + 1
        return found.decode(errors="replace")


@dataclass(frozen=True)
class LineProgram:
    """One line number program: where it lies in its section, and how it is written."""

    section: bytes
    start: int
    end: int
    strings: bytes = b""

    @cached_property
    def _header(self) -> _Header:
        return _header(self)

    def rows(self, at: int, base: int) -> Iterator[LineRow]:
        """The rows of the sequence that begins with the setting of an address at `at`, which stands for `base`."""
        yield from _run(self._header, _Cursor(self.section, at, self.end), base)


@frozen
class _Header:
    """What the instructions of a program mean, and the files that they name."""

    least: int
    line_base: int
    line_range: int
    opcode_base: int
    operands: bytes
    files: tuple[SourceName, ...]

    def file(self, index: int) -> SourceName | None:
        return self.files[index] if index < len(self.files) else None


def line_programs(section: bytes, strings: bytes = b"") -> Iterator[LineProgram]:
    """The programs of a section, one for each compilation; one that does not fit into it is not among them."""
    at = 0
    while at + 4 <= len(section):
        length = int.from_bytes(section[at : at + 4], "little")
        end = at + 4 + length
        if not length or end > len(section):
            return
        yield LineProgram(section, at, end, strings)
        at = end


def _header(unit: LineProgram) -> _Header:
    cursor = _Cursor(unit.section, unit.start + 4, unit.end)
    version = cursor.number(2)
    if not 2 <= version <= 5:
        raise LineError(f"it is of DWARF {version}")
    if version == 5:
        cursor.take(2)  # sizes of addresses and segments
    cursor.take(4)  # its length
    least = cursor.number(1)
    cursor.take(2 if version >= 4 else 1)  # operations of an instruction, and whether rows are statements by default
    line_base = cursor.number(1)
    line_range, opcode_base = cursor.number(1), cursor.number(1)
    if not line_range or not opcode_base:
        raise LineError("a program of it divides by nothing")
    operands = cursor.take(opcode_base - 1)
    files = _entries(cursor, unit.strings) if version == 5 else _files(cursor)
    signed = line_base - 256 if line_base > 127 else line_base
    return _Header(least, signed, line_range, opcode_base, operands, files)


def _files(cursor: _Cursor) -> tuple[SourceName, ...]:
    """The table before DWARF 5: the first file is number 1."""
    directories = [""]
    while name := cursor.text():
        directories.append(name)
    files = [SourceName("", 0)]
    while name := cursor.text():
        directory, _, size = cursor.leb(), cursor.leb(), cursor.leb()
        files.append(SourceName(_joined(directories, directory, name), size))
    return tuple(files)


def _entries(cursor: _Cursor, strings: bytes) -> tuple[SourceName, ...]:
    """The tables of DWARF 5: directories, then files, each with what it tells of them."""
    directories = [str(one.get(_PATH, "")) for one in _described(cursor, strings)]
    return tuple(
        SourceName(_joined(directories, _count(one, _DIRECTORY), str(one.get(_PATH, ""))), _count(one, _SIZE))
        for one in _described(cursor, strings)
    )


def _count(entry: dict[int, int | str], what: int) -> int:
    """A number that an entry tells; 0 where it tells none, or a text in its place."""
    told = entry.get(what)
    return told if isinstance(told, int) else 0


def _described(cursor: _Cursor, strings: bytes) -> Iterator[dict[int, int | str]]:
    formats = [(cursor.leb(), cursor.leb()) for _ in range(cursor.number(1))]
    for _ in range(cursor.leb() if formats else _no_more(cursor)):
        yield {what: _form(cursor, form, strings) for what, form in formats}


def _no_more(cursor: _Cursor) -> int:
    """Entries of which nothing is told are none, however many there are said to be."""
    cursor.leb()
    return 0


def _form(cursor: _Cursor, form: int, strings: bytes) -> int | str:
    if form == _STRING:
        return cursor.text()
    if form == _UDATA:
        return cursor.leb()
    if form not in _FIXED_FORMS:
        raise LineError(f"it describes files in the form {form:#x}")
    number = cursor.number(_FIXED_FORMS[form])
    return _Cursor(strings, number, len(strings)).text() if form in (_LINE_STRING, _OTHER_STRING) else number


def _joined(directories: list[str], directory: int, name: str) -> str:
    path = posixpath.join(directories[directory], name) if directory < len(directories) else name
    return posixpath.normpath(path) if path else path


def _run(header: _Header, cursor: _Cursor, base: int) -> Iterator[LineRow]:
    """One sequence; the first setting of an address is replaced by `base`, others count from it."""
    state = _Registers(base)
    for _ in range(_MOST_ROWS):
        opcode = cursor.number(1)
        if opcode >= header.opcode_base:
            advance, step = divmod(opcode - header.opcode_base, header.line_range)
            state.address += advance * header.least
            state.line += header.line_base + step
        elif opcode == 0:
            if _extended(cursor, state, base):
                yield LineRow(state.address, None, 0)
                return
        elif opcode != _COPY:
            _standard(header, cursor, state, opcode)
        if opcode == _COPY or opcode >= header.opcode_base:
            yield LineRow(state.address, header.file(state.file), state.line if 0 < state.line <= _MOST_LINES else 0)
    raise LineError("a sequence of it has no end")


@dataclass(slots=True)
class _Registers:
    """What a program changes as it runs."""

    address: int
    file: int = 1
    line: int = 1
    first: int | None = None


def _extended(cursor: _Cursor, state: _Registers, base: int) -> bool:
    """An instruction that tells its own length; whether it ends the sequence. NVIDIA's own are skipped."""
    operand = cursor.take(cursor.leb())
    kind = operand[0] if operand else 0
    if kind == _EXTENDED_SET_ADDRESS:
        stored = int.from_bytes(operand[1:], "little")
        state.first = stored if state.first is None else state.first
        state.address = base + stored - state.first
    return kind == _END_SEQUENCE


def _standard(header: _Header, cursor: _Cursor, state: _Registers, opcode: int) -> None:
    if opcode == _ADVANCE_PC:
        state.address += cursor.leb() * header.least
    elif opcode == _ADVANCE_LINE:
        state.line += cursor.signed_leb()
    elif opcode == _SET_FILE:
        state.file = cursor.leb()
    elif opcode == _CONST_ADD_PC:
        state.address += (255 - header.opcode_base) // header.line_range * header.least
    elif opcode == _FIXED_ADVANCE_PC:
        state.address += cursor.number(2)
    else:
        for _ in range(header.operands[opcode - 1]):
            cursor.leb()
