"""Columns read from the pages of a database: what SQLite reads, or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop.parsers import sqlite_pages
from llmtop.parsers.sqlite_pages import UnfitError, integer_columns

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-200, 200) | st.sampled_from([0, 1])
OTHERS = st.none() | st.text(max_size=12) | st.floats(allow_nan=False)
ROWS = st.lists(st.tuples(INTEGERS, OTHERS, INTEGERS, INTEGERS), min_size=1, max_size=60)


def made(path: Path, rows: Sequence[Sequence[object]], *, page: int = 512, gaps: int = 1) -> tuple[Path, int]:
    """A table of four columns, and one beside it that is written in turns; the number of its root page."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as base:
        base.execute(f"PRAGMA page_size = {page}")
        base.execute("CREATE TABLE told (a INTEGER, b, c INTEGER, d INTEGER)")
        base.execute("CREATE TABLE beside (a)")
        for i, row in enumerate(rows):
            base.execute("INSERT INTO told (rowid, a, b, c, d) VALUES (?, ?, ?, ?, ?)", (i * gaps, *row))
            base.execute("INSERT INTO beside VALUES (?)", ("x" * 99,))
        base.commit()
        return path, base.execute("SELECT rootpage FROM sqlite_master WHERE name = 'told'").fetchone()[0]


def read(path: Path, root: int, wanted: Sequence[int] = (0, 2, 3)) -> list[tuple[int, ...]]:
    parts = integer_columns(path, root, 4, wanted)
    return [row for part in parts for row in zip(*(column.tolist() for column in part), strict=True)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages") / "table.sqlite"


@settings(deadline=None)
@given(rows=ROWS, page=st.sampled_from([512, 4096, 65536]), gaps=st.sampled_from([1, 200, 1 << 40]))
def test_columns_are_those_of_sqlite(place: Path, rows: list[tuple[object, ...]], page: int, gaps: int) -> None:
    assert read(*made(place, rows, page=page, gaps=gaps)) == [(a, c, d) for a, _, c, d in rows]


def test_a_tree_of_three_levels_is_read_in_order(tmp_path: Path) -> None:
    rows = [(i, "text", -i, i * i) for i in range(9000)]
    assert read(*made(tmp_path / "deep.sqlite", rows)) == [(a, c, d) for a, _, c, d in rows]


def test_so_many_pages_as_fit_the_caches_are_decoded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(1000 + i, None, -1000 - i, 1000 + i) for i in range(400)]
    path, root = made(tmp_path / "parts.sqlite", rows)
    (whole,) = integer_columns(path, root, 4, [0])
    monkeypatch.setattr(sqlite_pages, "_BATCH_BYTES", 3 * 512)
    parts = [column.tolist() for (column,) in integer_columns(path, root, 4, [0])]
    assert [a for part in parts for a in part] == whole[0].tolist() == [a for a, *_ in rows]
    most = 3 * 512 / 15  # bytes of a row with its place, its length and its number
    assert len(parts) > 3
    assert all(most / 2 < len(part) <= most for part in parts[:-1])


def table_of(path: Path, *rows: Sequence[object]) -> tuple[Path, int]:
    """A table that has as many columns as its rows, on pages of 512 bytes."""
    marks = ", ".join("?" * len(rows[0]))
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA page_size = 512")
        base.execute(f"CREATE TABLE told ({', '.join(f'c{i}' for i in range(len(rows[0])))})")
        base.executemany(f"INSERT INTO told VALUES ({marks})", rows)
        base.commit()
        return path, base.execute("SELECT rootpage FROM sqlite_master WHERE name = 'told'").fetchone()[0]


def only_row(path: Path, root: int, width: int, column: int) -> int:
    ((values,),) = integer_columns(path, root, width, [column])
    (value,) = values.tolist()
    return int(value)


def test_the_smallest_record_ends_with_its_page(tmp_path: Path) -> None:
    assert only_row(*table_of(tmp_path / "small.sqlite", [1]), 1, 0) == 1


def test_records_are_read_up_to_the_size_that_a_page_holds(tmp_path: Path) -> None:
    """A page of 512 bytes keeps up to 477 of a record (1.6): 11 of its header, 465 of texts, one of the integer."""
    texts = ["x" * 57] * 8
    assert only_row(*table_of(tmp_path / "fits.sqlite", [*texts, "x" * 9, 7]), 10, 9) == 7
    with pytest.raises(UnfitError, match="another page"):
        only_row(*table_of(tmp_path / "more.sqlite", [*texts, "x" * 10, 7]), 10, 9)


def test_a_record_on_several_pages_is_none_where_its_own_has_so_much_behind_it(tmp_path: Path) -> None:
    """Nine records fill a page from its end; of the tenth, of 478 bytes, 39 are before them."""
    before = [["x" * length, *[""] * 8, 7] for length in [35] * 3 + [34] * 6]
    path, root = table_of(tmp_path / "full.sqlite", *before, [*["x" * 57] * 8, "x" * 10, 7])
    with pytest.raises(UnfitError, match="another page"):
        only_row(path, root, 10, 9)


@pytest.mark.parametrize(
    ("cells", "why"),
    [(0, "no leaf page"), (252, "outside of its page"), (253, "no leaf page"), (504, "no leaf page")],
)
def test_a_page_has_so_many_records_as_it_has_room_for_their_places(tmp_path: Path, cells: int, why: str) -> None:
    """Two bytes each, of 512 without the 8 of its own header; those of none, and of too many, are not looked for."""
    path, root = table_of(tmp_path / "counted.sqlite", [1])
    content = bytearray(path.read_bytes())
    at = (root - 1) * 512 + 3
    content[at : at + 2] = cells.to_bytes(2)
    path.write_bytes(content)
    with pytest.raises(UnfitError, match=why):
        list(integer_columns(path, root, 1, [0]))


@pytest.mark.parametrize(("place", "why"), [(507, "a page that the file does not have"), (508, "no interior page")])
def test_a_cell_of_an_interior_page_is_of_five_bytes(tmp_path: Path, place: int, why: str) -> None:
    """Four of the page below it and one or more of a row id: nearer to the end of its page there is none."""
    path, root = made(tmp_path / "tree.sqlite", [(i, "b", -i, 7) for i in range(300)])
    content = bytearray(path.read_bytes())
    at = (root - 1) * 512
    content[at + 12 : at + 14] = place.to_bytes(2)
    content[at + 507 : at + 512] = b"\xff" * 5
    path.write_bytes(content)
    with pytest.raises(UnfitError, match=why):
        read(path, root)


def test_what_of_a_page_is_kept_for_others_holds_no_record(tmp_path: Path) -> None:
    """Byte 20 of the file (1.3): such as the checksums of some builds."""
    path, root = table_of(tmp_path / "kept.sqlite", [1])
    content = bytearray(path.read_bytes())
    content[20] = 32
    path.write_bytes(content)
    with pytest.raises(UnfitError, match="outside of its page"):
        only_row(path, root, 1, 0)


def test_pages_that_are_below_themselves_are_no_tree(tmp_path: Path) -> None:
    path, root = made(tmp_path / "circle.sqlite", [(i, "b", -i, 7) for i in range(300)])
    content = bytearray(path.read_bytes())
    at = (root - 1) * 512
    content[at : at + 14] = bytes([5, 0, 0, 0, 1, 0, 0, 0, *root.to_bytes(4), *(500).to_bytes(2)])
    content[at + 500 : at + 504] = root.to_bytes(4)
    path.write_bytes(content)
    with pytest.raises(UnfitError, match="no tree"):
        read(path, root)


@pytest.mark.parametrize("cells", [0, 251, 1 << 15])
def test_a_page_above_others_has_so_many_as_it_has_room_for_their_places(tmp_path: Path, cells: int) -> None:
    """Two bytes each, of 512 without the 12 of its own header."""
    path, root = made(tmp_path / "above.sqlite", [(i, "b", -i, 7) for i in range(300)])
    content = bytearray(path.read_bytes())
    at = (root - 1) * 512
    assert content[at] == 5
    content[at + 3 : at + 5] = cells.to_bytes(2)
    path.write_bytes(content)
    with pytest.raises(UnfitError, match="no interior page"):
        read(path, root)


@pytest.mark.parametrize("page", [0, 1])
def test_a_table_begins_behind_the_first_page(tmp_path: Path, page: int) -> None:
    """Which is that of the schema; none is before it."""
    path, _ = table_of(tmp_path / "first.sqlite", [1])
    with pytest.raises(UnfitError, match="a page that the file does not have"):
        read(path, page)


@pytest.mark.parametrize("size", [0, 2, 511])
def test_a_page_has_512_bytes_or_more(tmp_path: Path, size: int) -> None:
    path, root = table_of(tmp_path / "sized.sqlite", [1])
    content = bytearray(path.read_bytes())
    content[16:18] = size.to_bytes(2)
    path.write_bytes(content)
    with pytest.raises(UnfitError, match="no size of a page"):
        read(path, root)


@pytest.mark.parametrize(("width", "is_read"), [(126, True), (127, False)])
def test_headers_are_read_whose_length_is_one_byte(tmp_path: Path, width: int, is_read: bool) -> None:
    path, root = table_of(tmp_path / "wide.sqlite", [*[0] * (width - 1), -5])
    if is_read:
        assert only_row(path, root, width, width - 1) == -5
    else:
        with pytest.raises(UnfitError, match="more columns"):
            only_row(path, root, width, width - 1)


@pytest.mark.parametrize(("length", "is_read"), [(57, True), (58, False)])
def test_texts_are_passed_over_whose_type_is_one_byte(tmp_path: Path, length: int, is_read: bool) -> None:
    path, root = table_of(tmp_path / "texts.sqlite", ["x" * length, 9])
    if is_read:
        assert only_row(path, root, 2, 1) == 9
    else:
        with pytest.raises(UnfitError, match="another length than the columns"):
            only_row(path, root, 2, 1)


def test_a_damaged_type_is_left_to_sqlite(tmp_path: Path) -> None:
    path, root = table_of(tmp_path / "damaged.sqlite", [300, 9])
    path.write_bytes(path.read_bytes().replace(b"\3\2\1", b"\3\x80\1"))
    with pytest.raises(UnfitError, match="a long text"):
        only_row(path, root, 2, 1)


def test_a_type_of_two_bytes_is_not_taken_for_a_column_that_the_row_lacks(tmp_path: Path) -> None:
    path, root = table_of(tmp_path / "both.sqlite", ["x" * 58, 9])
    with closing(sqlite3.connect(path)) as base:
        base.execute("ALTER TABLE told ADD COLUMN new INTEGER DEFAULT 5")
        base.commit()
    with pytest.raises(UnfitError, match="a long text"):
        only_row(path, root, 3, 1)


@pytest.mark.parametrize("value", [None, 1.5, "text", "x" * 57, b"blob"])
def test_what_is_no_integer_is_left_to_sqlite(tmp_path: Path, value: object) -> None:
    path, root = made(tmp_path / "mixed.sqlite", [(1, None, 2, 3), (1, None, value, 3)])
    with pytest.raises(UnfitError, match="integer"):
        read(path, root)
    assert read(path, root, (0, 3)) == [(1, 3), (1, 3)]


def test_a_record_on_several_pages_is_left_to_sqlite(tmp_path: Path) -> None:
    path, root = made(tmp_path / "long.sqlite", [(1, "x" * 2000, 2, 3)])
    with pytest.raises(UnfitError, match="another page"):
        read(path, root)


def test_columns_that_came_after_the_rows_are_left_to_sqlite(tmp_path: Path) -> None:
    path, root = made(tmp_path / "altered.sqlite", [(1, None, 2, 3)])
    with pytest.raises(UnfitError, match="header"):
        list(integer_columns(path, root, 5, [4]))


def test_a_file_that_ends_before_its_pages_is_left_to_sqlite(tmp_path: Path) -> None:
    path, root = made(tmp_path / "cut.sqlite", [(i, None, 2, 3) for i in range(2000)])
    path.write_bytes(path.read_bytes()[:-8192])
    with pytest.raises(UnfitError, match="does not have"):
        read(path, root)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("whole") / "whole.sqlite", [(i, "b", -i, 7) for i in range(300)])[0]


@settings(deadline=None)
@given(at=st.integers(0), change=st.binary(min_size=1, max_size=12))
def test_changed_bytes_give_what_sqlite_reads_or_nothing(whole: Path, at: int, change: bytes) -> None:
    content = whole.read_bytes()
    at = 512 + at % (len(content) - 512)  # behind the schema
    changed = whole.with_name("changed.sqlite")
    changed.write_bytes((content[:at] + change + content[at + len(change) :])[: len(content)])
    with closing(sqlite3.connect(f"{changed.as_uri()}?mode=ro&immutable=1", uri=True)) as base:
        root = base.execute("SELECT rootpage FROM sqlite_master WHERE name = 'told'").fetchone()[0]
        try:
            found = read(changed, root)
        except UnfitError:
            return
        assert found == base.execute("SELECT a, c, d FROM told").fetchall()
