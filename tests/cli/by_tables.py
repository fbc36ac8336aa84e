"""Reports with a table of `--by`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from llmtop.analysis.kernels.nvtx_ranges import only_launches
from llmtop.cli.part_table import WantedTable
from llmtop.cli.report import report
from llmtop.cli.report_by import part_table
from llmtop.model import Trace
from llmtop.parsers.registry import load


def kernel_of(path: Path, name: str) -> Trace:
    """A report with the kernels alone that have a name: all that is around the table takes little time."""
    trace = load(path)
    assert trace.kernels is not None
    chosen = [i for i in range(len(trace.kernels)) if name in trace.kernels.name(i).lower()]
    return replace(trace, kernels=only_launches(trace.kernels, chosen))


def report_by(trace: Trace, kind: str, by: str | None, kernel: str = "") -> str:
    """The report of a format with that table, as text; with none where nothing is asked for."""
    return "".join(report(trace, kind, by=None if by is None else part_table(trace, WantedTable(by, kernel))))
