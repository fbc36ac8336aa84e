"""The machine code of GPUs (cubins): which functions they hold, and the lines that these were made from."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

from llmtop.parsers.elf import ElfFormatError, ElfSections, Read, Section, Symbol
from llmtop.parsers.line_table import LineError, LineProgram, LineRow, LineTable, line_programs
from llmtop.text import clean

_LINES, _PTX_LINES, _PTX = ".debug_line", ".nv_debug_line_sass", re.compile(r"\.nv_debug_ptx_txt(\.\d+)?")
_STRINGS = ".debug_line_str"
_SET_ADDRESS = b"\x00\x09\x02"
"""An instruction of nine bytes, of which the address that is relocated has eight."""
_MOST_LINES = _MOST_ROWS = 1 << 20


class CubinError(ValueError):
    """A cubin is damaged, or none: half a sentence that says how."""


class Cubin:
    """A cubin, of which is read what is asked for.

    Args:
        read: Gives its bytes.
        size: How many there are.

    Raises:
        CubinError: It is none, or damaged; every method may raise it too.
    """

    def __init__(self, read: Read, size: int) -> None:
        try:
            self._elf = ElfSections(read, size)
            self._functions = {one.index: one for one in self._elf.symbols if one.is_function}
        except ElfFormatError as error:
            raise CubinError(str(error)) from error

    def function(self, symbol: int, name: str) -> Symbol | None:
        """A function by its symbol, or else by its name."""
        found = self._functions.get(symbol)
        if found is not None and found.name == name:
            return found
        return next((one for one in self._functions.values() if one.name == name), None)

    def code(self, function: Symbol) -> bytes:
        """The machine code of a function."""
        try:
            sections = self._elf.sections
            found = self._elf.content(sections[function.section]) if function.section < len(sections) else b""
        except ElfFormatError as error:
            raise CubinError(str(error)) from error
        return found[function.value : function.value + function.size]

    def lines(self, function: Symbol) -> LineTable:
        """The lines of the source that a function was made from; none where it was compiled without them."""
        return self._lines(_LINES, function)

    def ptx_lines(self, function: Symbol) -> LineTable:
        """The same in the intermediate code of `ptx`."""
        return self._lines(_PTX_LINES, function)

    @cached_property
    def ptx(self) -> tuple[str, ...]:
        """The lines of the intermediate code, clean; none where it was left out."""
        try:
            found = next((one for one in self._elf.sections if _PTX.fullmatch(one.name)), None)
            stored = b"" if found is None else self._elf.content(found)
        except ElfFormatError as error:
            raise CubinError(str(error)) from error
        lines = stored.rstrip(b"\0").split(b"\0", _MOST_LINES) if stored else ()
        return tuple(clean(line.decode(errors="replace").expandtabs(4)) for line in lines)

    def _lines(self, name: str, function: Symbol) -> LineTable:
        try:
            section = self._elf.section(name)
            return LineTable([] if section is None else self._rows(section, function))
        except (ElfFormatError, LineError) as error:
            raise CubinError(str(error)) from error

    def _rows(self, section: Section, function: Symbol) -> list[LineRow]:
        content, programs = self._programs(section)
        starts = [unit.start for unit in programs]
        symbols = self._elf.symbols
        rows: list[LineRow] = []
        for one in self._elf.relocations(section):
            symbol = symbols[one.symbol] if one.symbol < len(symbols) else None
            at = one.offset - len(_SET_ADDRESS)
            i = bisect_right(starts, at) - 1
            if symbol is None or symbol.section != function.section or i < 0:
                continue
            if at < programs[i].end and content[at : one.offset] == _SET_ADDRESS:
                stored = int.from_bytes(content[one.offset : one.offset + 8], "little")
                base = symbol.value - function.value + (stored if one.addend is None else one.addend)
                rows += programs[i].rows(at, base)
            if len(rows) > _MOST_ROWS:
                raise LineError("one function of it has more lines than a program")
        return rows

    def _programs(self, section: Section) -> tuple[bytes, list[LineProgram]]:
        strings = self._elf.section(_STRINGS)
        content = self._elf.content(section)
        return content, list(line_programs(content, b"" if strings is None else self._elf.content(strings)))
