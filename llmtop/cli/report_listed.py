"""What a timeline lists by name, for `llmtop report --by api|copy|os|allocation`: as a JSON object, and as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.tables import csv_line
from llmtop.analysis.timeline.listed import Listed, ListedRow, Statistics, listed
from llmtop.cli.documents import fact
from llmtop.errors import FileError
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.model import Trace


def listed_document(trace: Trace, what: Listed) -> Json:
    """The object under "by"."""
    rows = listed(trace, what)
    return fact(rows) if isinstance(rows, Unknown) else {"by": str(what), "rows": [_row(one) for one in rows]}


def _row(row: ListedRow) -> Json:
    told = row.launched, row.idle_ns, row.held, row.in_steps
    launched, idle_ns, held, in_steps = (fact(value) if isinstance(value, Unknown) else value for value in told)
    return {
        "kind": row.kind,
        "name": row.name,
        "count": row.times.count,
        "ns": _statistics(row.times),
        "bytes": None if row.sizes is None else _statistics(row.sizes),
        "bytes_per_s": row.bytes_per_s,
        "threads": row.threads,
        "wall_share": row.wall,
        "launched": launched,
        "gpu_idle_ns": idle_ns,
        "small": row.small,
        "held": held,
        "in_steps": in_steps,
    }


def _statistics(of: Statistics) -> dict[str, Json]:
    return {
        "total": of.total,
        "mean": of.mean,
        "median": of.median,
        "min": of.least,
        "max": of.most,
        "stddev": of.deviation,
    }


def listed_csv(trace: Trace, what: Listed) -> Iterator[str]:
    """The table line by line.

    Raises:
        FileError: There is no such table.
    """
    rows = listed(trace, what)
    if isinstance(rows, Unknown):
        raise FileError(f"{trace.origin.path}: {rows}")
    return _csv(rows)


_PLAIN = ("bytes_per_s", "threads", "wall_share", "launched", "gpu_idle_ns", "small", "held", "in_steps")


def _csv(rows: tuple[ListedRow, ...]) -> Iterator[str]:
    parts = tuple(_statistics(rows[0].times))
    titles = [f"{part}_{unit}" for unit in ("ns", "bytes") for part in parts]
    yield csv_line(("kind", "name", "count", *titles, *_PLAIN, "missing"))
    for row in rows:
        sizes = dict.fromkeys(parts) if row.sizes is None else _statistics(row.sizes)
        cells = (*_statistics(row.times).values(), *sizes.values())
        told = row.bytes_per_s, row.threads, row.wall, row.launched, row.idle_ns, row.small, row.held, row.in_steps
        missing = [f"{key}: {value}" for key, value in zip(_PLAIN, told, strict=True) if isinstance(value, Unknown)]
        plain = ("" if value is None or isinstance(value, Unknown) else value for value in (*cells, *told))
        yield csv_line((row.kind, row.name, row.times.count, *plain, "; ".join(missing)))
