"""Columns read from the pages of a database: what SQLite reads, or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, page=st.sampled_from([512, 4096, 65536]), gaps=st.sampled_from([1, 200, 1 << 40]))
def test_columns_are_those_of_sqlite(place: Path, rows: list[tuple[object, ...]], page: int, gaps: int) -> None:
    assert read(*made(place, rows, page=page, gaps=gaps)) == [(a, c, d) for a, _, c, d in rows]


def test_a_tree_of_three_levels_is_read_in_order(tmp_path: Path) -> None:
    rows = [(i, "text", -i, i * i) for i in range(9000)]
    assert read(*made(tmp_path / "deep.sqlite", rows)) == [(a, c, d) for a, _, c, d in rows]


@pytest.mark.parametrize("value", [None, 1.5, "text", b"blob"])
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


@settings(max_examples=300, deadline=None)
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
