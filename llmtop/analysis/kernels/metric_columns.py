"""Columns of the kernel table that are any metrics of a report, by their names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.table import ColumnField, kernels_of
from llmtop.analysis.views import Column
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.analysis.kernels.table import Kernels, Row
    from llmtop.analysis.views import Cell
    from llmtop.model import Trace

_WIDTH = 16
_ASKED = 16
"""Kernels that are asked for a metric: of most reports all have the same."""


def metric_columns(trace: Trace, names: Collection[str]) -> tuple[ColumnField, ...]:
    """A column for each of these metrics that a report has, of the launch that stands for a row."""
    if not names:
        return ()
    kernels = kernels_of(trace)
    known = {name for launch in kernels.standing()[:_ASKED] for name in kernels.metrics(launch)}
    return tuple(_column(kernels, name) for name in names if name in known)


def metric_names(trace: Trace, chosen: Sequence[str]) -> tuple[str, ...]:
    """What may be chosen: what is already, then all metrics of the kernel with the most time, by name."""
    heaviest = kernels_of(trace).standing()[:1]
    names = sorted(kernels_of(trace).metrics(heaviest[0]), key=str.casefold) if heaviest else ()
    return (*chosen, *(name for name in names if name not in chosen and not name.startswith("breakdown:")))


def metric_labels(trace: Trace) -> dict[str, str]:
    """By name what the sections of the kernel with the most time call a metric."""
    kernels = kernels_of(trace)
    details, heaviest = kernels.table.details, kernels.standing()[:1]
    tables = details.tables(heaviest[0]) if details is not None and heaviest else ()
    return {name: label for table in tables for name, label in table.rows}


def _column(kernels: Kernels, name: str) -> ColumnField:
    def cell(kernels: Kernels, row: Row) -> Cell:
        launch = kernels.middle(row)
        return kernels.metrics(launch).get(name, Unknown(f"{name} was not collected of this kernel"))

    title = name.replace("__", " ").replace(".", " ")
    return ColumnField(Column(name, title, kernels.unit(name) or "1", _WIDTH, 1, f"{name}, of one call"), cell)
