"""Rows in an SQLite file: what SQLite says of it, and what is left after a kill, on a full disk, of a cut copy."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.recording import row_writer
from llmtop.recording.layout import APPLICATION_ID, FORMAT, LEAF, LOCK_BYTES, LOCKS_AT, PAGE
from llmtop.recording.row_reader import DamagedRowError, RowReader
from llmtop.recording.row_writer import RowWriter

SIZES = (0, 1, 40, 300, 1000, 1970, 1990, 2010, 2060, 4100, 9000)
"""Bytes of rows: of those that share a page, that fill one, that go on on others."""
IN_A_PAGE = 60
"""More than there are in one."""


def drawn(count: int, seed: int = 1) -> list[bytes]:
    """Rows of mixed sizes."""
    draw = random.Random(seed)
    return [draw.randbytes(draw.choice(SIZES)) for _ in range(count)]


def write(path: Path, rows: list[bytes]) -> None:
    writer = RowWriter(path)
    for t_ns, row in enumerate(rows):
        writer.append("moment", t_ns, row)
    writer.close()


def readable(path: Path) -> list[bytes]:
    """The rows that are left."""
    reader, found = RowReader(path), []
    for row in reader.rows:
        try:
            data = reader.data(row)
        except DamagedRowError:
            continue
        assert isinstance(data, bytes)
        found.append(data)
    return found


def by_sqlite(path: Path) -> list[bytes]:
    """All rows, as SQLite reads them from a file that it may not write."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [data for (data,) in database.execute("SELECT data FROM part ORDER BY id")]


@given(st.lists(st.sampled_from(SIZES), max_size=60))
def test_sqlite_finds_all_rows_and_nothing_wrong(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    path = tmp_path_factory.mktemp("rows") / "file"
    rows = [bytes([i % 251]) * size for i, size in enumerate(sizes)]
    write(path, rows)
    assert by_sqlite(path) == readable(path) == rows


@pytest.mark.parametrize("room", [2, 3, 7])
def test_so_many_rows_that_the_tree_grows_high(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has room for two hundred others; with less the same comes after fewer rows."""

    def fits(page: row_writer._TreePage, size: int) -> bool:
        return real(page, size) and (page.kind == LEAF or len(page.cells) < room)

    real = row_writer._TreePage.fits
    monkeypatch.setattr(row_writer._TreePage, "fits", fits)
    rows = [b"%d" % i * 300 for i in range(600)]
    write(tmp_path / "file", rows)
    assert by_sqlite(tmp_path / "file") == rows == readable(tmp_path / "file")


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    write(tmp_path / "file", [])
    with closing(sqlite3.connect(tmp_path / "file")) as database:
        told = [database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    assert told == [APPLICATION_ID, FORMAT] == [0x4C4D5430, 2]
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError):
        RowWriter(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


class Interrupted(BaseException):
    """A kill."""


def write_until(path: Path, rows: list[bytes], stop: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> int:
    """Write rows, with `stop` called before each write to the disk; how many rows were written."""
    calls = 0

    def pwrite(file: int, data: bytes, at: int) -> int:
        nonlocal calls
        calls += 1
        stop(calls)
        return real(file, data, at)

    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", pwrite)
    writer, done = RowWriter(path), 0
    try:
        for t_ns, row in enumerate(rows):
            writer.append("moment", t_ns, row)
            done += 1
    except (Interrupted, OSError):
        pass
    finally:
        os.close(writer._file)
        monkeypatch.setattr(os, "pwrite", real)
    return done


@pytest.mark.parametrize("seed", range(20))
def test_after_a_kill_all_rows_before_it_are_there(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writes of 120 rows, ended before each fortieth of them, another one with each seed: 220 kills."""
    rows = drawn(120, seed)
    for last in range(4 + 2 * seed, 400, 37):

        def kill(calls: int, last: int = last) -> None:
            if calls == last:
                raise Interrupted

        path = tmp_path / str(last)
        done = write_until(path, rows, kill, monkeypatch)
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            assert [data for (data,) in database.execute("SELECT data FROM part ORDER BY id")] == rows[:done]
        assert readable(path) in (rows[:done], rows[: done + 1])
        assert [one.name for one in tmp_path.iterdir()] == [path.name], "something is left beside it"
        path.unlink()


@pytest.mark.parametrize("allowed", [9, 40, 333, 900])
def test_a_full_disk_ends_it_and_all_before_is_there(
    allowed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(calls: int) -> None:
        if calls > allowed:
            raise OSError(errno.ENOSPC, "No space left on device")

    rows = drawn(300)
    done = write_until(tmp_path / "file", rows, fill, monkeypatch)
    assert 0 < done < len(rows)
    assert readable(tmp_path / "file")[:done] == rows[:done]


def test_a_cut_copy_has_the_rows_of_its_first_pages(tmp_path: Path) -> None:
    path, rows = tmp_path / "file", drawn(250)
    write(path, rows)
    whole, ends = path.read_bytes(), []
    draw = random.Random(5)
    for size in sorted(draw.sample(range(100, len(whole)), 200)):
        path.write_bytes(whole[:size])
        left = readable(path)
        certain = max(0, len(left) - IN_A_PAGE)  # of the last page's rows some go on on pages that are cut off
        assert left[:certain] == rows[:certain]
        assert all(row in rows[certain:] for row in left[certain:])
        ends.append(sum(map(len, left)) / size)
    assert min(ends[30:]) > 0.7, "most of what is left of the file is left of the rows"


def test_a_damaged_page_costs_its_own_rows(tmp_path: Path) -> None:
    path, rows = tmp_path / "file", drawn(400)
    write(path, rows)
    content = bytearray(path.read_bytes())
    content[40 * PAGE : 41 * PAGE] = random.Random(2).randbytes(PAGE)
    path.write_bytes(content)
    left = readable(path)
    assert len(left) >= len(rows) - 20
    assert sum(row in rows for row in left) >= len(rows) - 20


def test_a_reader_of_a_file_that_is_written_sees_whole_rows(tmp_path: Path) -> None:
    path, rows = tmp_path / "file", drawn(200)
    writer = RowWriter(path)
    for t_ns, row in enumerate(rows):
        writer.append("moment", t_ns, row)
        if t_ns % 17 == 0:
            assert by_sqlite(path) == readable(path) == rows[: t_ns + 1]
    writer.close()


def test_rows_wait_while_somebody_reads_through_sqlite(tmp_path: Path) -> None:
    """A process of its own: the locks of one process are never in its own way."""
    path = tmp_path / "file"
    writer = RowWriter(path)
    writer.append("moment", 1, b"first")
    code = (
        "import sqlite3, sys; d = sqlite3.connect(sys.argv[1], isolation_level=None); d.execute('BEGIN');"
        "d.execute('SELECT count(*) FROM part').fetchone(); print('reads', flush=True); sys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reads\n"
        writer.append("moment", 2, b"second")
        assert readable(path) == [b"first"]
        for t_ns in range(30):  # one that never ends keeps nobody from recording
            writer.append("moment", t_ns, b"more")
        assert len(readable(path)) > 20
        reader.communicate("go\n")
    writer.close()
    assert len(by_sqlite(path)) == 32


def test_locks_lie_where_sqlite_has_them() -> None:
    assert (LOCKS_AT, LOCK_BYTES) == (1 << 30, 512)
