"""Lines and instructions of kernels, for `llmtop report --by line|instruction`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.counters import add_section
from llmtop.analysis.kernels.source_table import TITLES, CodeBy, CodeRow, code_rows, code_table, said_of_code
from llmtop.analysis.tables import csv_of_rows
from llmtop.cli.documents import fact
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.analysis.views import Cell
    from llmtop.cli.documents import Json
    from llmtop.model import Trace

_COUNTED = ("executed", "thread_share", "l2_bytes", "l2_excess", "shared", "shared_excess")
_NOT_SAMPLED = Unknown("not collected", add_section("SourceCounters"))
_SAMPLED = ("share", "samples", "stalls", "not_issued")


def code_by(trace: Trace, wanted: WantedTable) -> PartTable[tuple[CodeRow, ...]]:
    """Where in their code kernels wait, by what is wanted: one of `CodeBy`."""
    by = CodeBy(wanted.by)
    return PartTable(
        TITLES[by],
        trace.origin.path,
        code_rows(trace, by, wanted.kernel),
        rows_of=lambda rows: code_table(rows, by),
        document_of=lambda rows: {"by": wanted.by, "rows": [_row(one) for one in rows]},
        csv_of=lambda rows: csv_of_rows(code_records(rows)),
        said=lambda: said_of_code(trace, by, wanted.kernel),
    )


def _row(row: CodeRow) -> Json:
    return {
        **_where(row),
        "text": fact(row.text),
        **{name: fact(value) for name, value in _sampled(row).items()},
        "waiting": [{"reason": reason, "samples": count} for reason, count in row.spent.waiting],
        **_counted(row),
    }


def _where(row: CodeRow) -> dict[str, str | int | None]:
    """Which row it is; the same in JSON and CSV."""
    return {
        "kernel": row.kernel,
        "launch": row.source.launch,
        "file": row.file or None,
        "line": row.number or None,
        "function": row.function or None,
        "offset": row.offset,
        "address": row.address,
    }


def _sampled(row: CodeRow) -> dict[str, float | Unknown]:
    spent, why = row.spent, row.source.why_no_samples
    values = (
        (row.source.share(spent) or 0, spent.samples, spent.stalls, spent.not_issued) if why is None else (None,) * 4
    )
    return dict(zip(_SAMPLED, (why or _NOT_SAMPLED if value is None else value for value in values), strict=True))


def _counted(row: CodeRow) -> dict[str, float | None]:
    spent = row.spent
    counted = spent.executed, spent.thread_share, spent.l2_bytes, spent.l2_excess, spent.shared, spent.shared_excess
    return dict(zip(_COUNTED, counted, strict=True))


def code_records(rows: tuple[CodeRow, ...]) -> Iterator[dict[str, Cell]]:
    """Row by row what CSV has of it, with a column for each reason to wait, in samples."""
    reasons = sorted({reason for row in rows for reason, _ in row.spent.waiting})
    for row in rows:
        none = None if row.source.why_no_samples else 0
        waiting = dict.fromkeys(reasons, none) | dict(row.spent.waiting)
        yield {**_where(row), "text": row.text, **_sampled(row), **waiting, **_counted(row)}
