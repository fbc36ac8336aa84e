"""ELF files and cubins made by hand: what each field means, and what is damaged."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest

from llmtop.parsers import cubin as cubin_module
from llmtop.parsers import elf as elf_module
from llmtop.parsers.cubin import Cubin, CubinError
from llmtop.parsers.elf import ElfFormatError, ElfSections, Read, Relocation, Section
from tests.parsers.test_line_table import END, SET_ADDRESS, A, version_2

BITS, SYMBOLS, STRINGS, ADDENDS, NO_BITS, PLAIN = 1, 2, 3, 4, 8, 9
ONE_LINE = SET_ADDRESS + b"\x03\x04\x01" + END
"""Line 5 at the beginning."""
LINES = version_2(ONE_LINE)
AT = LINES.index(SET_ADDRESS) + 3
"""Of the address that is relocated."""


class Made(NamedTuple):
    """A section to be written."""

    name: str
    kind: int
    content: bytes = b""
    info: int = 0
    claimed: int | None = None
    """Its size, where that is not the content's."""


def elf(*sections: Made, is_large: bool = False) -> bytes:
    """A file with these sections from number 1 on; `is_large`: the first one counts them, as the header cannot."""
    every = [Made("", 0), *sections, Made(".shstrtab", STRINGS)]
    names = b"\0".join(one.name.encode() for one in every) + b"\0"
    every[-1] = every[-1]._replace(content=names)
    body, rows = b"", []
    for one in every:
        size = len(one.content) if one.claimed is None else one.claimed
        at = names.index(one.name.encode() + b"\0")
        rows.append([at, one.kind, 0, 0, 64 * (1 + len(every)) + len(body), size, 7, one.info, 0, 24])
        body += one.content
    count, number = len(rows), len(rows) - 1
    if is_large:
        rows[0][5:7] = [count, number]
        count, number = 0, 0xFFFF
    header = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack("<Q10xHHH", 64, 64, count, number)
    return header + b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in rows) + body


def symbols(*rows: tuple[str, int, int, int, int]) -> tuple[Made, Made]:
    """Sections of symbols: name, info, section, value and size of each."""
    names = b"\0".join(row[0].encode() for row in rows)
    stored = b"".join(struct.pack("<IBBHQQ", names.index(name.encode()), info, 0, *rest) for name, info, *rest in rows)
    return Made(".symtab", SYMBOLS, stored), Made(".strtab", STRINGS, names)


def reads(data: bytes) -> Read:
    return lambda at, size: data[at : at + size]


def sections(data: bytes) -> ElfSections:
    return ElfSections(reads(data), len(data))


@pytest.mark.parametrize("is_large", [False, True])
def test_sections_are_read_by_name(is_large: bool) -> None:
    made = elf(Made(".text", BITS, b"code" * 250), Made(".bss", NO_BITS, info=3, claimed=1 << 40), is_large=is_large)
    found = sections(made)
    assert found.sections[1:3] == (
        Section(1, ".text", BITS, 320, 1000, 0, 7, 24),
        Section(2, ".bss", NO_BITS, 1320, 0, 3, 7, 24),
    )
    assert [one.name for one in found.sections] == ["", ".text", ".bss", ".shstrtab"]
    text = found.section(".text")
    assert text is not None
    assert found.content(text) == b"code" * 250
    assert found.section(".data") is None
    assert found.symbols == ()


FUNCTION = ("f", 0x12, 1, 16, 32)


def test_symbols_know_their_names_and_whether_they_are_functions() -> None:
    table, names = symbols(FUNCTION, ("object", 0x11, 2, 8, 4))
    found = sections(elf(table._replace(content=table.content + b"rest"), names))
    assert [(one.index, one.name, one.is_function, one.section, one.value, one.size) for one in found.symbols] == [
        (0, "f", True, 1, 16, 32),
        (1, "object", False, 2, 8, 4),
    ]
    assert sections(elf(symbols(FUNCTION)[0])).symbols == (), "nothing names them"


def test_relocations_are_those_of_the_section_with_addends_and_without() -> None:
    found = sections(
        elf(
            Made(".text", BITS),
            Made(".rela", ADDENDS, struct.pack("<QQq", 3, 5 << 32 | 2, -8) + b"rest", info=1),
            Made(".rel", PLAIN, struct.pack("<QQ", 11, 6 << 32 | 2) + b"rest", info=1),
            Made(".rel", PLAIN, struct.pack("<QQ", 12, 7 << 32), info=2),
            Made(".text", BITS, bytes(24), info=1),
        )
    )
    assert list(found.relocations(found.sections[1])) == [Relocation(3, 5, -8), Relocation(11, 6, None)]


WHOLE = elf(*symbols(FUNCTION))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (WHOLE[:63], "it is no ELF file of 64 bits"),
        (b"\x7fELF\x01\x01" + WHOLE[6:], "it is no ELF file of 64 bits"),
        (WHOLE[:300], "its table of sections does not fit into it"),
        (WHOLE[:58] + b"\x41" + WHOLE[59:], "its table of sections does not fit into it"),
        (WHOLE[:62] + b"\x04" + WHOLE[63:], "it has no names of sections"),
        (
            elf(*symbols(FUNCTION)[:1], Made(".strtab", STRINGS, claimed=1 << 20)),
            "a section of it does not fit into it",
        ),
    ],
)
def test_what_is_damaged_is_told(data: bytes, said: str) -> None:
    with pytest.raises(ElfFormatError, match=said):
        _ = sections(data).symbols


def test_a_file_that_became_shorter_is_told() -> None:
    shorter = ElfSections(lambda at, size: WHOLE[at : at + size] if size >= 64 else b"", len(WHOLE))
    with pytest.raises(ElfFormatError, match="a section of it is cut short"):
        _ = shorter.symbols


def test_more_symbols_than_any_file_has_are_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf_module, "_MOST_SYMBOLS", 2)
    assert len(sections(elf(*symbols(FUNCTION, FUNCTION))).symbols) == 2
    with pytest.raises(ElfFormatError, match="more symbols than any"):
        _ = sections(elf(*symbols(FUNCTION, FUNCTION, FUNCTION))).symbols


def machine_code(*more: Made, lines: bytes = LINES, of: str = ".debug_line") -> Cubin:
    """Two functions, the second one 32 bytes into its section; lines at number 1, code at 2 and 3."""
    data = elf(
        Made(of, BITS, lines),
        Made(".text.f", BITS),
        Made(".text.g", BITS),
        *symbols((".text.g", 3, 3, 0, 0), ("f", 0x12, 2, 0, 64), ("g", 0x12, 3, 32, 64), ("g", 0x12, 2, 48, 16)),
        *more,
    )
    return Cubin(reads(data), len(data))


def test_functions_are_found_by_symbol_or_by_name() -> None:
    made = machine_code()
    found = [made.function(*asked) for asked in ((3, "g"), (-1, "g"), (1, "g"), (0, ".text.g"), (1, "h"))]
    assert [one and (one.index, one.value) for one in found] == [(3, 48), (2, 32), (2, 32), None, None]


@pytest.mark.parametrize(
    ("kind", "stored", "relocation"),
    [
        (ADDENDS, 0, struct.pack("<QQq", 0, 0, 48)),
        (ADDENDS, 99, struct.pack("<QQq", 0, 0, 48)),
        (PLAIN, 48, struct.pack("<QQ", 0, 0)),
        (PLAIN, 16, struct.pack("<QQ", 0, 2 << 32)),
    ],
)
def test_lines_begin_where_their_relocation_says(kind: int, stored: int, relocation: bytes) -> None:
    """From the section's symbol on or the function's, with the number that stands there or beside it."""
    second = version_2(b"\x00\x09\x02" + stored.to_bytes(8, "little") + b"\x01" + END)
    moved = struct.pack("<Q", len(LINES) + AT) + relocation[8:]
    made = machine_code(Made(".rel", kind, moved, info=1), lines=LINES + second)
    f, g = made.function(1, "f"), made.function(2, "g")
    assert f is not None
    assert g is not None
    assert made.lines(f).at(0) is None
    assert made.lines(g).at(15) is None
    row = made.lines(g).at(16)
    assert row is not None
    assert (row.offset, row.file, row.line) == (16, A, 1)
    assert made.ptx_lines(g).at(16) is None


def test_lines_of_the_intermediate_code_stand_in_their_own_section() -> None:
    relocation = struct.pack("<QQ", AT, 1 << 32)
    made = machine_code(Made(".rel", PLAIN, relocation, info=1), of=".nv_debug_line_sass")
    f = made.function(1, "f")
    assert f is not None
    assert made.lines(f).at(0) is None
    row = made.ptx_lines(f).at(0)
    assert row is not None
    assert row.line == 5


@pytest.mark.parametrize(
    ("lines", "place", "symbol", "is_one"),
    [
        (LINES, AT, 1, True),
        (LINES, AT + 1, 1, False),
        (LINES, AT, 4, False),
        (LINES, AT, 1 << 20, False),
        (LINES + SET_ADDRESS, len(LINES) + 3, 1, False),
        (SET_ADDRESS, 3, 1, False),
    ],
)
def test_relocations_of_anything_else_are_no_lines(lines: bytes, place: int, symbol: int, is_one: bool) -> None:
    made = machine_code(Made(".rel", PLAIN, struct.pack("<QQ", place, symbol << 32), info=1), lines=lines)
    f = made.function(1, "f")
    assert f is not None
    row = made.lines(f).at(1 << 40)
    assert (row and row.line) == (5 if is_one else None)


def test_a_function_of_more_lines_than_a_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine_code(Made(".rel", PLAIN, struct.pack("<QQ", AT, 1 << 32), info=1))
    f = made.function(1, "f")
    assert f is not None
    monkeypatch.setattr(cubin_module, "_MOST_ROWS", 2)  # a line and its end
    assert made.lines(f).at(0) is not None
    monkeypatch.setattr(cubin_module, "_MOST_ROWS", 1)
    with pytest.raises(CubinError, match="more lines than a program"):
        made.lines(f)


def test_intermediate_code_is_lines_of_text() -> None:
    stored = b"// \x1b[2J\0\tret;\0\0}\0\0"
    assert machine_code(Made(".nv_debug_ptx_txt.17", BITS, stored)).ptx == ("// ␛[2J", "    ret;", "", "}")
    assert machine_code(Made(".nv_debug_ptx_txt.x", BITS, stored)).ptx == ()
    with pytest.raises(CubinError, match="does not fit"):
        _ = machine_code(Made(".nv_debug_ptx_txt", BITS, b"x", claimed=1 << 20)).ptx
