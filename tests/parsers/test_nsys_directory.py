"""Folders of Arrow and Parquet files that nsys exports: read as the database of the same capture."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from llmtop.errors import FileError
from llmtop.model import SpanTable, Trace
from llmtop.parsers.nsys_directory import DirectoryExport
from llmtop.parsers.registry import load
from tests.nsys_capture import BLOCKED, PID, TID, Capture, add_table, global_id
from tests.nvidia_tools import tools
from tests.parsers.all_told import all_told
from tests.parsers.full_export import full_export

REAL = Path(__file__).parents[3] / "shared/samples/public/NCAR__GPU_workshop__MW_baseline.nsys-rep"
Writer = Callable[[Any, Path], None]


@pytest.fixture
def arrow() -> Any:
    return pytest.importorskip("pyarrow", reason="needs pyarrow: `make test-oracles` installs it")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    capture = Capture()
    capture.kernel(30, 40, capture.call("cudaLaunchKernel", 10, 20))
    capture.call("cudaStreamIsCapturing", 50, 400)
    capture.copy(50, 60, capture.call("cudaMemcpyAsync", 45, 48))
    capture.os("read", 41, 49)
    capture.off_cpu(100, 150, BLOCKED)
    capture.sample(25, "work", "main")
    capture.nvtx("decode", 5, 90)
    path = capture.write(tmp_path / "capture.sqlite")
    add_table(path, "CUBLAS_EVENTS", "start end eventClass globalTid nameId", (1, 2, 29, global_id(PID, TID), 1))
    add_table(path, "MPI_OTHER_EVENTS", "start end globalTid textId")
    return path


def write_arrow(table: Any, path: Path) -> None:
    import pyarrow.ipc

    with pyarrow.ipc.new_stream(path.with_suffix(".arrow"), table.schema) as stream:
        stream.write_table(table)


def write_parquet(table: Any, path: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path.with_suffix(".parquet"))


each_way = pytest.mark.parametrize("write", [write_arrow, write_parquet], ids=["arrow", "parquet"])


def folder(arrow: Any, database: Path, write: Writer) -> Path:
    """The tables of a database as files: integers have no sign where none is below 0."""
    made = database.with_suffix(".dir")
    made.mkdir()
    with closing(sqlite3.connect(database)) as base:
        for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            cursor = base.execute(f"SELECT * FROM {name}")
            rows = cursor.fetchall()
            columns = {what[0]: [row[at] for row in rows] for at, what in enumerate(cursor.description)}
            write(arrow.table({what: _typed(arrow, column) for what, column in columns.items()}), made / name)
    return made


def _typed(arrow: Any, column: list[object]) -> Any:
    kinds = {type(value) for value in column}
    is_signed = any(isinstance(value, int) and value < 0 for value in column)
    of_numbers = arrow.int64() if is_signed else arrow.uint64()
    return arrow.array(column, arrow.string() if str in kinds else arrow.binary() if bytes in kinds else of_numbers)


def spans(trace: Trace) -> dict[str, list[tuple[object, ...]]]:
    return {kind: told(table) for of in (trace.spans, trace.more_spans) for kind, table in of.items()}


def told(table: SpanTable) -> list[tuple[object, ...]]:
    names, tracks = ([of[i] for i in ids] for of, ids in ((table.names, table.name_id), (table.tracks, table.track_id)))
    columns = (table.start_ns, table.end_ns, names, tracks, table.correlation)
    return sorted(zip(*columns, strict=True))


def test_without_the_library_it_is_said_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "META_DATA_EXPORT.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FileError, match="pip install pyarrow, or export to one file: nsys export --type sqlite"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["META_DATA_EXPORT.parquet", "notes.txt", "StringIds.arrow"])
def test_other_folders_are_folders(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(FileError, match="is a directory, not a report"):
        load(tmp_path)


@each_way
def test_a_folder_is_read_as_its_database(arrow: Any, database: Path, write: Writer) -> None:
    whole, parts = load(database), load(folder(arrow, database, write))
    assert spans(parts) == spans(whole)
    assert list(parts.stacks) == list(whole.stacks)
    assert parts.tracks.keys() == whole.tracks.keys()
    assert (parts.origin.facts, parts.origin.gpu) == (whole.origin.facts, whole.origin.gpu)
    assert (parts.issues, parts.missing) == (whole.issues, whole.missing)


@each_way
def test_all_that_is_told_of_a_database_is_told_of_its_folder(arrow: Any, tmp_path: Path, write: Writer) -> None:
    database = full_export(tmp_path / "full.sqlite")
    whole, parts = (all_told(load(path)) for path in (database, folder(arrow, database, write)))
    assert parts.replace("full.dir", "full.sqlite") == whole


def test_numbers_without_a_sign_are_as_sqlite_has_them(arrow: Any, tmp_path: Path) -> None:
    numbers = [0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    write_arrow(arrow.table({"number": arrow.array(numbers, arrow.uint64())}), tmp_path / "SOME")
    rows = DirectoryExport(tmp_path).execute("SELECT number FROM SOME").fetchall()
    assert [number for (number,) in rows] == [0, (1 << 63) - 1, -(1 << 63), -1]


def test_a_table_that_is_cut_short_costs_itself(arrow: Any, database: Path) -> None:
    made = folder(arrow, database, write_arrow)
    cut = made / "OSRT_API.arrow"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size * 2 // 3])
    trace = load(made)
    assert len(trace.spans["os"]) == 0
    assert [issue.code for issue in trace.issues] == ["nsys-os-lost"]
    assert len(trace.spans["kernel"]) == 1


@each_way
def test_without_the_columns_of_a_table_the_folder_is_damaged(arrow: Any, database: Path, write: Writer) -> None:
    made = folder(arrow, database, write)
    next(made.glob("OSRT_API.*")).write_bytes(b"\xff" * 100)
    with pytest.raises(FileError, match=r"is a damaged folder of tables \(OSRT_API: .*export it again"):
        load(made)


@pytest.mark.parametrize("kind", ["arrowdir", "parquetdir"])
def test_a_real_folder_is_read_as_the_real_database(arrow: Any, tmp_path: Path, kind: str) -> None:
    found = tools("nsys")
    if not found or not REAL.exists():
        pytest.skip("needs Nsight Systems' command line, by LLMTOP_NSIGHT, and a report of others that is not shipped")
    for type_ in (kind, "sqlite"):
        command = [str(found[0]), "export", "--type", type_, "--quiet", "true", "--output", str(tmp_path / type_)]
        if subprocess.run([*command, str(REAL)], capture_output=True, check=False).returncode:
            pytest.skip(f"this nsys exports no {kind}")
    assert spans(load(tmp_path / kind)) == spans(load(tmp_path / "sqlite"))


def test_bytes_that_are_said_to_be_text_are_read_as_bytes(arrow: Any, tmp_path: Path) -> None:
    """As nsys writes NVTX payloads; where they happen to be text they are that."""
    written = arrow.array([b"\xff\xfe", b"text", None], arrow.large_binary())
    column = arrow.LargeStringArray.from_buffers(3, *written.buffers()[1:], written.buffers()[0])
    write_arrow(arrow.table({"binaryData": column}), tmp_path / "SOME")
    rows = DirectoryExport(tmp_path).execute("SELECT binaryData FROM SOME").fetchall()
    assert rows == [(b"\xff\xfe",), ("text",), (None,)]
