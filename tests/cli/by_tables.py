"""Reports with a table of `--by`."""

from __future__ import annotations

from llmtop.cli.part_table import WantedTable
from llmtop.cli.report import report
from llmtop.cli.report_by import part_table
from llmtop.model import Trace


def report_by(trace: Trace, kind: str, by: str | None, kernel: str = "") -> str:
    """The report of a format with that table, as text; with none where nothing is asked for."""
    return "".join(report(trace, kind, by=None if by is None else part_table(trace, WantedTable(by, kernel))))
