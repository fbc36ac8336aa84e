"""What a timeline lists by name, for `llmtop report --by api|copy|os|allocation`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.tables import csv_line
from llmtop.analysis.timeline import listed_table
from llmtop.analysis.timeline.listed import Listed, ListedRow, Statistics, listed
from llmtop.analysis.timeline.unified import unified_lines, unified_memory
from llmtop.cli.documents import fact
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.cli.report_unified import COLUMNS, unified_cells, unified_document
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.analysis.timeline.unified import UnifiedMemory
    from llmtop.cli.documents import Json
    from llmtop.model import Trace


def listed_by(trace: Trace, wanted: WantedTable) -> PartTable[tuple[ListedRow, ...]]:
    """What is wanted, one of `Listed`, by name."""
    what = Listed(wanted.by)
    rows = listed(trace, what)
    has_unified = what is Listed.COPY
    unified = unified_memory(trace) if has_unified else None
    told = {"unified": None if unified is None else unified_document(unified)} if has_unified else {}
    return PartTable(
        listed_table.TITLES[what],
        trace.origin.path,
        rows,
        rows_of=lambda rows: listed_table.listed_table(rows, what),
        document_of=lambda rows: {"by": wanted.by, "rows": [_row(one) for one in rows], **told},
        csv_of=lambda rows: _csv(rows, COLUMNS if has_unified else (), unified),
        said=lambda: [*listed_table.said_of_all(rows), *(() if unified is None else unified_lines(unified))],
    )


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


_PLAIN = ("bytes_per_s", "threads", "wall_share", "launched", "gpu_idle_ns", "small", "held", "in_steps")


def _csv(rows: tuple[ListedRow, ...], more: tuple[str, ...], unified: UnifiedMemory | None) -> Iterator[str]:
    """Rows by name, then those of unified memory, which alone has the columns `more`."""
    parts = tuple(_statistics(rows[0].times))
    titles = ("kind", "name", "count", *(f"{part}_{unit}" for unit in ("ns", "bytes") for part in parts), *_PLAIN)
    yield csv_line((*titles, *more, "missing"))
    for row in rows:
        sizes = dict.fromkeys(parts) if row.sizes is None else _statistics(row.sizes)
        cells = (*_statistics(row.times).values(), *sizes.values())
        told = row.bytes_per_s, row.threads, row.wall, row.launched, row.idle_ns, row.small, row.held, row.in_steps
        missing = [f"{key}: {value}" for key, value in zip(_PLAIN, told, strict=True) if isinstance(value, Unknown)]
        plain = ("" if value is None or isinstance(value, Unknown) else value for value in (*cells, *told))
        yield csv_line((row.kind, row.name, row.times.count, *plain, *("" for _ in more), "; ".join(missing)))
    for by_title in unified_cells(unified) if unified is not None else ():
        yield csv_line((*(by_title.get(title, "") for title in (*titles, *more)), ""))
