"""Make a large Nsight Systems export out of the Llama sample: the whole capture again and again, one after the other.

    python benchmarks/make_large_capture.py OUT.sqlite [--kernels 1000000]

Times and correlation ids go on from repetition to repetition, so that each launch still has its own kernels. A million
kernels come with twice as many CUDA calls and 65,000 OS calls: 170 MB.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from llmtop.parsers.compressed import COMPRESSIONS, unpacked

SAMPLE = Path(__file__).parents[1] / "sample_traces/nsys/2025.3.2/llama-prefill-decode.sqlite.xz"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
PAUSE_NS = 1_000_000
"""Between two repetitions."""


def main() -> None:
    """Write the export that the arguments ask for."""
    arguments = argparse.ArgumentParser(description="Make a large nsys SQLite export out of the Llama sample.")
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--kernels", type=int, default=1_000_000)
    options = arguments.parse_args()
    kernels = write_capture(options.out, options.kernels)
    print(f"{options.out}: {kernels} kernels, {options.out.stat().st_size / 1e6:.1f} MB")


def write_capture(out: Path, kernels: int) -> int:
    """Write an export of about that many kernels; how many it has."""
    with unpacked(SAMPLE, COMPRESSIONS[0]) as plain:
        shutil.copyfile(plain, out)
    with closing(sqlite3.connect(out)) as base:
        base.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        repetitions = max(1, kernels // count(base, KERNELS))
        base.execute("CREATE TEMP TABLE repetition (i INTEGER)")
        base.executemany("INSERT INTO repetition VALUES (?)", ((i,) for i in range(1, repetitions)))
        timed = [table for table in tables(base) if {"start", "end"} <= set(columns(base, table))]
        longest = max(base.execute(f'SELECT max("end") FROM {table}').fetchone()[0] or 0 for table in timed)
        calls = base.execute("SELECT max(correlationId) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0] + 1
        steps = {"start": longest + PAUSE_NS, "end": longest + PAUSE_NS, "correlationId": calls}
        for table in timed:
            repeat(base, table, steps)
        base.commit()
        return count(base, KERNELS)


def repeat(base: sqlite3.Connection, table: str, steps: dict[str, int]) -> None:
    """Add the rows of a table once for each repetition, with some columns moved on by a step for each."""
    names = columns(base, table)
    moved = ", ".join(f'"{name}" + i * {steps[name]}' if name in steps else f'"{name}"' for name in names)
    base.execute(f'CREATE TEMP TABLE part AS SELECT * FROM {table} WHERE start > 0 AND "end" > 0 ORDER BY start')
    base.execute(f"INSERT INTO {table} SELECT {moved} FROM repetition CROSS JOIN part")
    base.execute("DROP TABLE part")


def tables(base: sqlite3.Connection) -> list[str]:
    """All tables."""
    return [name for (name,) in base.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")]


def columns(base: sqlite3.Connection, table: str) -> list[str]:
    """The columns of a table, in its order."""
    return [row[1] for row in base.execute(f'PRAGMA table_info("{table}")')]


def count(base: sqlite3.Connection, table: str) -> int:
    """How many rows a table has."""
    return int(base.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


if __name__ == "__main__":
    main()
