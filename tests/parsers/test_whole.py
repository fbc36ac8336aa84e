"""What is read of fixed files, all of it, and what is said of them when they are damaged, beside the one of before.

A change that is meant is written down with `pytest tests/parsers/test_whole.py --snapshot-update`, and its
diff is read like the code's.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import struct
from contextlib import closing
from difflib import unified_diff
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from llmtop import columns
from llmtop.errors import FileError
from llmtop.parsers.elf import ElfSections
from llmtop.parsers.registry import load
from tests.nsys_capture import Capture
from tests.nsys_scenes import SCENES
from tests.nsys_schemas import OLDEST, SCHEMAS, USUAL, Schema
from tests.parsers.all_told import all_told, named
from tests.parsers.full_export import full_export
from tests.parsers.full_files import DOCUMENTS, TEXTS, in_json
from tests.parsers.sample_reports import SAMPLE_TRACES, content
from tests.whole import ROWS, shortened, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from syrupy.assertion import SnapshotAssertion

FILES = sorted(path for path in SAMPLE_TRACES.rglob("*.*") if path.is_file() and path.suffix != ".md")
SMALL = [path for path in FILES if path.name.startswith(("few-metrics", "demo-server.folded", "llama-prefill"))]
READ = [path for path in FILES if path.parts[-3] != "ncu" or path.name.startswith(("few", "sgemm", "llama"))]
"""Of reports of kernels that are alike a few."""


@pytest.fixture(autouse=True)
def no_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """As some machines have one and others none."""
    monkeypatch.setattr("llmtop.parsers.disassembly.disassemblers", lambda: iter(()))


def _read(path: Path) -> str:
    try:
        return all_told(load(path))
    except FileError as error:
        return str(error).replace(str(path.parent), "FOLDER")


@pytest.mark.parametrize("path", READ, ids=lambda path: path.name)
def test_what_is_read_of_a_file(path: Path, snapshot: SnapshotAssertion) -> None:
    assert _read(path) == snapshot


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_read_of_a_text_with_one_of_everything(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert _read(_written(tmp_path / name, TEXTS[name])) == snapshot


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_read_of_json_with_one_of_everything(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert _read(_written(tmp_path / name, in_json(name, DOCUMENTS[name]))) == snapshot


def test_what_is_read_of_an_export_with_one_of_everything(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert _read(full_export(tmp_path / "full.sqlite")) == snapshot


def test_what_is_read_of_an_export_of_calls_alone(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    made = Capture()
    made.call("cudaGraphLaunch", 10, 20)
    assert _read(made.write(tmp_path / "calls.sqlite")) == snapshot


@pytest.mark.parametrize("name", ["full.sqlite", "some.pt.trace.json"])
def test_what_is_read_is_the_same_however_long_tables_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long ones are read from the pages of the database, and worked on by NumPy."""
    path = tmp_path / name
    if name in DOCUMENTS:
        _written(path, in_json(name, DOCUMENTS[name]))
    else:
        full_export(path)
    short = _read(path)
    monkeypatch.setattr(columns, "LONG", 1)
    assert _read(path) == short


def _changes(whole_text: str, other: str, rows: int = ROWS) -> list[str]:
    """The lines that are other ones, without their places."""
    changed = list(unified_diff(whole_text.splitlines(), other.splitlines(), lineterm="", n=0))[2:]
    return [*shortened([line for line in changed if line[0] != "@"], rows)]


@pytest.mark.parametrize("name", TEXTS)
def test_what_each_line_tells(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """What is read otherwise without it, and where it is cut in the middle."""
    lines, path, said = TEXTS[name].splitlines(keepends=True), tmp_path / name, []
    whole_text = _read(_written(path, TEXTS[name]))
    for i, line in enumerate(lines):
        for what, instead in (("without", ""), ("half of", f"{line[: len(line) // 2]}\n")):
            said += [f"{what} line {i + 1}: {line.strip()}"]
            said += _changes(whole_text, _read(_written(path, "".join([*lines[:i], instead, *lines[i + 1 :]]))))
    assert "\n".join(said) == snapshot


def _table_rows(dump: bytes) -> Iterator[tuple[str, int, int]]:
    """Where the rows of tables lie that the first warp that failed is of: what they are, their place and their size."""
    elf = ElfSections(lambda at, size: dump[at : at + size], len(dump))
    failed = [one for one in elf.sections if one.kind == 0x8000_000F and any(dump[one.offset + 32 : one.offset + 36])]
    lanes = failed[0]
    yield from ((f"lane {row}", lanes.offset + row * lanes.entry, lanes.entry) for row in (0, 21))
    grids = next(one for one in elf.sections if one.kind == 0x8000_000C)
    yield "grid", grids.offset, grids.entry
    of = lanes
    for name in ("warp", "block", "multiprocessor", "device"):
        table = elf.sections[of.link]
        yield name, table.offset + of.info * table.entry, table.entry
        of = table


def test_what_each_number_of_a_core_dump_tells(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """What is read otherwise where it, of every other one, is nothing, and where it is one more."""
    (packed,) = (path for path in FILES if path.name.startswith("misaligned-store"))
    path, dump, said = tmp_path / "core.nvcudmp", gzip.decompress(packed.read_bytes()), list[str]()
    path.write_bytes(dump)
    whole_text = _read(path)
    for name, start, size in _table_rows(dump):
        for at in range(start, start + size - 3, 8):
            (number,) = struct.unpack_from("<I", dump, at)
            for other in sorted({0, (number + 1) & 0xFFFFFFFF} - {number}):
                path.write_bytes(dump[:at] + struct.pack("<I", other) + dump[at + 4 :])
                if changed := _changes(whole_text, _read(path)):
                    said += [f"{name}, byte {at - start}: {other}", *changed]
    assert "\n".join(said) == snapshot


def _values(inside: object, place: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """The places of all values in a document that hold no others."""
    parts = inside.items() if isinstance(inside, dict) else enumerate(inside) if isinstance(inside, list) else None
    if parts is None:
        yield place
        return
    for key, part in parts:
        yield from _values(part, (*place, key))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_each_value_tells(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """What is read otherwise where it, of each third one, is a text, nothing, or an odd number."""
    path, said, chance = tmp_path / name, [], Random(1)
    whole_text = _read(_written(path, in_json(name, DOCUMENTS[name])))
    for place in [*_values(DOCUMENTS[name])][::3]:
        odd = inside = json.loads(json.dumps(DOCUMENTS[name]))
        for key in place[:-1]:
            inside = inside[key]
        inside[place[-1]] = value = chance.choice(("odd", None, -5, 2.5))
        said += [
            f"{'.'.join(map(str, place))} {value}",
            *_changes(whole_text, _read(_written(path, in_json(name, odd)))),
        ]
    assert "\n".join(said) == snapshot


@pytest.mark.parametrize("scene", ["graphs and kernels", "one GPU launched late", "warm-up", "driver queries"])
def test_what_is_read_of_a_timeline(scene: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert all_told(SCENES[scene].make().trace(tmp_path)) == snapshot


def test_what_each_version_tells(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """All of one version, and of the others the lines that differ."""
    read = {}
    for schema in SCHEMAS:
        told = []
        for name in ("Python in a range", "pageable copies", "no CPU"):
            (folder := tmp_path / schema.version / name).mkdir(parents=True)
            told.append(named(SCENES[name].make().trace(folder, schema)))
        read[schema.version] = whole(traces=told)
    usual = read[USUAL.version]
    assert usual == snapshot
    differ = {version: "\n".join(_changes(usual, text, rows=20)) for version, text in read.items() if text != usual}
    assert differ == snapshot


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_what_is_said_of_changed_bytes(path: Path, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Four times some bytes in a row are others: of the file as it was packed, and unpacked."""
    chance, said = Random(path.name), []
    for packed in (path.read_bytes(), content(path)):
        for n in range(4):
            at, many = chance.randrange(len(packed)), chance.choice((1, 4, 64))
            changed = packed[:at] + chance.randbytes(many) + packed[at + many :]
            damaged = tmp_path / f"{n}-{path.name}"
            damaged.write_bytes(changed)
            said.append(_read(damaged))
    assert whole(said=said) == snapshot


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_what_is_said_of_a_part_of_a_file(path: Path, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    said = []
    for packed in (path.read_bytes(), content(path)):
        for length in (0, 1, 7, 60, 100, 511, 4096, len(packed) // 2, len(packed) - 1):
            part = tmp_path / f"{length}-{path.name}"
            part.write_bytes(packed[:length])
            said.append(_read(part))
    assert whole(said=said) == snapshot


@pytest.mark.parametrize("schema", [OLDEST, USUAL], ids=lambda schema: schema.version)
def test_what_is_read_of_odd_values(schema: Schema, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """What is read otherwise when, in every fifth column, the first row has a text, nothing, or an odd number."""
    (tmp_path / "odd").mkdir()
    whole_export = tmp_path / "whole.sqlite"
    if schema is USUAL:
        full_export(whole_export)
    else:
        SCENES["pageable copies"].make().write(whole_export, schema)
    chance, said, whole_text = Random(1), [], _read(whole_export)
    with closing(sqlite3.connect(whole_export)) as base:
        tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        columns_of = {table: [row[1] for row in base.execute(f"PRAGMA table_info({table})")] for table in tables}
    for table in tables:
        for column in columns_of[table][::5]:
            odd = tmp_path / "odd" / "whole.sqlite"
            shutil.copy(whole_export, odd)
            with closing(sqlite3.connect(odd)) as base:
                value = chance.choice(("odd", None, -5, 2.5))
                base.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = 1', (value,))
                base.commit()
            said += [f"{table}.{column} {value}", *_changes(whole_text, _read(odd))]
    assert "\n".join(said) == snapshot
