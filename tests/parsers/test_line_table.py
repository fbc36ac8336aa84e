"""Line number programs, made by hand: each instruction, each version of the header, and what is no program."""

from __future__ import annotations

import pytest

from llmtop.parsers.line_table import LineError, LineRow, LineTable, SourceName, line_programs

LENGTHS = bytes([0, 1, 1, 1, 1, 0, 0, 0, 1])
"""Of the nine standard instructions, how many numbers follow: opcodes from 10 on are special ones."""
SET_ADDRESS = b"\x00\x09\x02" + bytes(8)
END = b"\x00\x01\x01"
A, B = SourceName("/src/a.cu", 300), SourceName("b.cuh", 0)


def unit(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


def version_2(program: bytes, version: int = 2, line_range: int = 14, opcode_base: int = 10) -> bytes:
    """A program with the files a.cu (of 300 bytes, in /src) and b.cuh."""
    files = b"/src\0\0" + b"a.cu\0\x01\x00\xac\x02" + b"b.cuh\0\x00\x00\x00" + b"\0"
    least = b"\x04\x01" if version >= 4 else b"\x04"
    rest = least + b"\x01" + b"\xfb" + bytes([line_range, opcode_base]) + LENGTHS[: max(0, opcode_base - 1)] + files
    return unit(version.to_bytes(2, "little") + len(rest).to_bytes(4, "little") + rest + program)


def rows(section: bytes, base: int = 0, strings: bytes = b"") -> list[LineRow]:
    (program,) = line_programs(section, strings)
    return list(program.rows(section.index(SET_ADDRESS), base))


def test_every_instruction_does_what_the_standard_says() -> None:
    program = (
        SET_ADDRESS
        + b"\x03\x09\x01"  # 9 lines on, copy
        + b"\x02\x04\x01"  # 4 operations of 4 bytes on
        + b"\x04\x02\x03\x7d\x01"  # the second file, 3 lines back
        + bytes([10 + 5 + 3 + 14 * 2])  # 3 lines and 2 operations on, as one
        + b"\x08\x01"  # as far as opcode 255: (255 - 10) // 14 operations
        + b"\x09\x30\x00\x01"  # 48 bytes
        + b"\x05\x07\x06\x07"  # a column, a statement or none, the beginning of a block
        + b"\x00\x03\x90\x01\x02"  # NVIDIA's own, of inlining
        + b"\x01"
        + END
    )
    assert rows(version_2(program), 0x100) == [
        LineRow(0x100, A, 10),
        LineRow(0x110, A, 10),
        LineRow(0x110, B, 7),
        LineRow(0x118, B, 10),
        LineRow(0x118 + 4 * 17, B, 10),
        LineRow(0x118 + 4 * 17 + 48, B, 10),
        LineRow(0x118 + 4 * 17 + 48, B, 10),
        LineRow(0x118 + 4 * 17 + 48, None, 0),
    ]


@pytest.mark.parametrize(("line_range", "operations"), [(5, 49), (6, 40), (7, 35), (245, 1), (246, 0)])
def test_as_far_as_the_last_opcode_is_whole_ranges_of_lines(line_range: int, operations: int) -> None:
    """Of the 245 special opcodes from 10 on, however many lines they tell apart."""
    program = SET_ADDRESS + b"\x08\x01" + END
    assert rows(version_2(program, line_range=line_range))[0] == LineRow(4 * operations, A, 1)


def test_a_later_address_counts_from_the_first() -> None:
    first = b"\x00\x09\x02" + (0x40).to_bytes(8, "little")
    later = b"\x00\x09\x02" + (0x60).to_bytes(8, "little")
    section = version_2(first + b"\x01" + later + b"\x01" + END)
    (program,) = line_programs(section)
    assert [row.offset for row in program.rows(section.index(first), 0x1000)] == [0x1000, 0x1020, 0x1020]


@pytest.mark.parametrize("version", [3, 4])
def test_versions_between_have_the_same_tables(version: int) -> None:
    assert rows(version_2(SET_ADDRESS + b"\x01" + END, version))[0] == LineRow(0, A, 1)


def test_version_5_describes_its_tables() -> None:
    strings = b"zero\0/five\0c.cu\0"
    directories = b"\x01\x01\x1f" + b"\x02" + (0).to_bytes(4, "little") + (5).to_bytes(4, "little")
    files = (
        b"\x04\x01\x1f\x02\x0b\x04\x0f\x05\x1e"  # a path, a directory, a size, an MD5 sum
        + b"\x02"
        + ((0).to_bytes(4, "little") + b"\x00\x00" + bytes(16))
        + ((11).to_bytes(4, "little") + b"\x01\xc8\x01" + bytes(16))
    )
    rest = b"\x01\x01\x01\xfb\x0e\x0a" + LENGTHS + directories + files
    header = b"\x05\x00\x08\x00" + len(rest).to_bytes(4, "little") + rest
    assert rows(unit(header + SET_ADDRESS + b"\x01" + END), 0, strings)[0] == LineRow(
        0, SourceName("/five/c.cu", 200), 1
    )


def test_version_5_may_name_files_in_other_sections_and_tell_no_sizes() -> None:
    strings = b"zero\0/five\0c.cu\0"
    directories = b"\x01\x01\x08" + b"\x01" + b"/own\0"  # a path, as text
    files = b"\x01\x01\x0e" + b"\x02" + (11).to_bytes(4, "little") * 2  # a path, by its place among the strings
    rest = b"\x01\x01\x01\xfb\x0e\x0a" + LENGTHS + directories + files
    header = b"\x05\x00\x08\x00" + len(rest).to_bytes(4, "little") + rest
    assert rows(unit(header + SET_ADDRESS + b"\x01" + END), 0, strings)[0] == LineRow(0, SourceName("/own/c.cu", 0), 1)


@pytest.mark.parametrize(
    ("form", "size"), [(0x05, 2), (0x06, 4), (0x07, 8), (0x0B, 1), (0x0E, 4), (0x17, 4), (0x1E, 16), (0x1F, 4)]
)
def test_what_nobody_asks_for_is_passed_over_in_all_forms_of_fixed_length(form: int, size: int) -> None:
    """By the tables of DWARF 5 (7.5.6): data, MD5 sums, offsets."""
    files = b"\x03\x01\x08\x7e" + bytes([form]) + b"\x04\x0f" + b"\x02"  # a path, one of the writer's own, a size
    for name in (b"zero.cu", b"c.cu"):
        files += name + b"\0" + bytes(size) + b"\xc8\x01"
    rest = b"\x01\x01\x01\xfb\x0e\x0a" + LENGTHS + b"\x00\x00" + files
    header = b"\x05\x00\x08\x00" + len(rest).to_bytes(4, "little") + rest
    (first, *_) = rows(unit(header + SET_ADDRESS + b"\x01" + END), 0, b"any text\0")
    assert first == LineRow(0, SourceName("c.cu", 200), 1)


def test_texts_in_place_of_numbers_are_none() -> None:
    """A path, its directory and its size, all as text."""
    directories = b"\x01\x01\x08" + b"\x02" + b"/zero\0" + b"/one\0"
    files = b"\x03\x01\x08\x02\x08\x04\x08" + b"\x02" + b"a.cu\x001\0x\0" + b"b.cu\0one\x007\0"
    rest = b"\x01\x01\x01\xfb\x0e\x0a" + LENGTHS + directories + files
    header = b"\x05\x00\x08\x00" + len(rest).to_bytes(4, "little") + rest
    assert rows(unit(header + SET_ADDRESS + b"\x01" + END))[0] == LineRow(0, SourceName("/zero/b.cu", 0), 1)


def test_a_form_that_is_not_known_is_told() -> None:
    rest = b"\x01\x01\x01\xfb\x0e\x0a" + LENGTHS + b"\x01\x01\x7f\x01"
    header = b"\x05\x00\x08\x00" + len(rest).to_bytes(4, "little") + rest
    with pytest.raises(LineError, match="in the form 0x7f"):
        rows(unit(header + SET_ADDRESS + END))


def test_entries_without_a_description_are_none_however_many_are_claimed() -> None:
    rest = b"\x01\x01\x01\xfb\x0e\x0a" + LENGTHS + b"\x00\xff\xff\xff\xff\x0f" + b"\x00\x00"
    header = b"\x05\x00\x08\x00" + len(rest).to_bytes(4, "little") + rest
    assert rows(unit(header + SET_ADDRESS + b"\x01" + END))[0] == LineRow(0, None, 1)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (version_2(SET_ADDRESS + b"\x01", 9), "it is of DWARF 9"),
        (version_2(SET_ADDRESS + b"\x01", line_range=0), "divides by nothing"),
        (version_2(SET_ADDRESS + b"\x01"), "in the middle of an instruction"),
        (version_2(SET_ADDRESS + b"\x02" + b"\xff" * 12), "no end"),
    ],
)
def test_what_is_no_program_says_so(section: bytes, said: str) -> None:
    with pytest.raises(LineError, match=said):
        rows(section)


def test_programs_that_do_not_fit_are_none() -> None:
    whole = version_2(SET_ADDRESS + END)
    assert len(list(line_programs(whole * 2))) == 2
    assert len(list(line_programs(whole + whole[:-1]))) == 1
    assert list(line_programs(b"\xff\xff\xff\xff" + bytes(20))) == []
    assert list(line_programs(bytes(8))) == []


def test_of_several_rows_at_one_place_the_outermost_counts() -> None:
    table = LineTable(
        [LineRow(16, A, 5), LineRow(16, B, 9), LineRow(32, None, 0), LineRow(32, A, 6), LineRow(48, None, 0)]
    )
    assert table.at(0) is None
    assert [table.at(offset) for offset in (16, 31, 32, 48)] == [
        LineRow(16, A, 5),
        LineRow(16, A, 5),
        LineRow(32, A, 6),
        LineRow(48, None, 0),
    ]


def test_lines_that_no_file_has_are_none() -> None:
    below, beyond = b"\x03\x7e\x01", b"\x03\xff\xff\xff\xff\xff\xff\x00\x01"
    assert [row.line for row in rows(version_2(SET_ADDRESS + below + beyond + END))] == [0, 0, 0]


@pytest.mark.parametrize(("line", "told"), [(1 << 24, 1 << 24), ((1 << 24) + 1, 0)])
def test_the_last_line_that_a_file_may_have(line: int, told: int) -> None:
    on, number = line - 1, b""  # from the first line on, as a signed number of seven bits a byte
    for last in (False, False, False, True):
        number += bytes([on & 0x7F | (0 if last else 0x80)])
        on >>= 7
    assert rows(version_2(SET_ADDRESS + b"\x03" + number + b"\x01" + END))[0].line == told
