"""What is read of fixed files, all of it, and what is said of them when they are damaged, beside the one of before.

A change that is meant is written down with `pytest tests/parsers/test_whole.py --snapshot-update`, and its
diff is read like the code's.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from llmtop.errors import FileError
from llmtop.model import KernelTable, Trace
from llmtop.parsers.registry import load
from tests.nsys_scenes import SCENES
from tests.nsys_schemas import OLDEST, SCHEMAS, USUAL, Schema
from tests.parsers.sample_reports import SAMPLE_TRACES, content
from tests.whole import whole

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

HELD_ELSEWHERE = {".md", ".csv", ".llmtop"}
"""Printed pages are held against their reports, and recordings against what was recorded."""
FILES = sorted(
    path for path in SAMPLE_TRACES.rglob("*.*") if path.is_file() and HELD_ELSEWHERE.isdisjoint(path.suffixes)
)
SMALL = [path for path in FILES if path.name.startswith(("few-metrics", "demo-server", "llama-prefill"))]
READ = [path for path in FILES if path in SMALL or path.name.startswith(("llama-decode", "unfused", "barriers"))]


def _told(trace: Trace) -> str:
    return whole(trace=_named(trace), launches=[] if trace.kernels is None else [*_launches(trace.kernels)])


def _named(trace: Trace) -> Trace:
    """Without the folder, which is another one each time."""
    return replace(trace, origin=replace(trace.origin, path=Path(trace.origin.path).name))


def _launches(kernels: KernelTable) -> list[object]:
    """All that is held of the first launch and of the last one."""
    details = kernels.details
    if details is None:
        return []
    return [
        {
            "metrics": (metrics := details.metrics(i)),
            "units": {metric: details.unit(metric) for metric in metrics},
            "instances": {metric: details.instances(i, metric) for metric in (*metrics, "no such metric")},
            "rules": details.rules(i),
            "ranges": details.ranges(i),
            "sections": details.sections(i),
            "tables": details.tables(i),
        }
        for i in {0, len(kernels) - 1}
    ]


def _read(path: Path) -> str:
    try:
        return _told(load(path))
    except FileError as error:
        return str(error).replace(str(path.parent), "FOLDER")


@pytest.mark.parametrize("path", READ, ids=lambda path: path.name.partition(".")[0])
def test_what_is_read_of_a_file(path: Path, snapshot: SnapshotAssertion) -> None:
    assert _read(path) == snapshot


@pytest.mark.parametrize("scene", ["graphs and kernels", "one GPU launched late", "warm-up", "driver queries"])
def test_what_is_read_of_a_timeline(scene: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert _told(SCENES[scene].make().trace(tmp_path)) == snapshot


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.version)
def test_what_each_version_tells(schema: Schema, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    told = []
    for name in ("Python in a range", "pageable copies", "no CPU"):
        (folder := tmp_path / name).mkdir()
        told.append(_named(SCENES[name].make().trace(folder, schema)))
    assert whole(traces=told) == snapshot


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name.partition(".")[0])
def test_what_is_said_of_changed_bytes(path: Path, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Ten times some bytes in a row are others: of the file as it was packed, and unpacked."""
    chance, said = Random(path.name), []
    for packed in (path.read_bytes(), content(path)):
        for n in range(10):
            at, many = chance.randrange(len(packed)), chance.choice((1, 4, 64))
            changed = packed[:at] + chance.randbytes(many) + packed[at + many :]
            damaged = tmp_path / f"{n}-{path.name}"
            damaged.write_bytes(changed)
            said.append(_read(damaged))
    assert whole(said=said) == snapshot


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name.partition(".")[0])
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
    """What is read otherwise when, column by column, the first row has a text, nothing, or an odd number."""
    (tmp_path / "odd").mkdir()
    whole_export = SCENES["pageable copies"].make().write(tmp_path / "whole.sqlite", schema)
    chance, said, whole_text = Random(1), [], _read(whole_export).splitlines()
    with closing(sqlite3.connect(whole_export)) as base:
        tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        columns = {table: [row[1] for row in base.execute(f"PRAGMA table_info({table})")] for table in tables}
    for table in tables:
        for column in columns[table]:
            odd = tmp_path / "odd" / "whole.sqlite"
            shutil.copy(whole_export, odd)
            with closing(sqlite3.connect(odd)) as base:
                value = chance.choice(("odd", None, -5, 2.5))
                base.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = 1', (value,))
                base.commit()
            changed = list(unified_diff(whole_text, _read(odd).splitlines(), lineterm="", n=0))[2:]
            said += [f"{table}.{column} {value}", *(line for line in changed if line[0] != "@")]
    assert "\n".join(said) == snapshot
