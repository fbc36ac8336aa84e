"""Kernels for which a condition holds: on any column of the kernel table, any metric of the report, and NVTX ranges.

docs/filters.md has the language. What stands for a row is the launch that its counters come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.kernels.conditions import (
    Comparison,
    Condition,
    ConditionError,
    NoSuchNameError,
    comparisons,
    condition_of,
    holds,
)
from llmtop.frozen import frozen
from llmtop.model import Unknown, UnknownKind

if TYPE_CHECKING:
    from llmtop.analysis.kernels.conditions import Holds
    from llmtop.analysis.kernels.table import ColumnField, Kernels, Row
    from llmtop.analysis.views import Cell

Values: TypeAlias = "Callable[[Kernels, Row], Sequence[Cell]]"
"""Of a row the values of which any may hold: it has launches in several ranges."""
_MANUAL = "docs/filters.md"
_ASKED = 16
"""Rows that are asked for a name that is no column's: reports have the same metrics of most kernels."""
_SAME = {"kernel": "name", "nvtx": "range"}
"""What names of columns and of values beside them are called too."""


@frozen
class _Named:
    """What a name stands for: its values, in a unit."""

    values: Values
    unit: str = ""


def rows_where(kernels: Kernels, rows: Sequence[Row], fields: Sequence[ColumnField], text: str) -> list[Row] | Unknown:
    """The rows for which a condition holds; in one line why it cannot be read or asked.

    Args:
        kernels: What the rows are of.
        rows: Any of them.
        fields: The columns that names may stand for.
        text: The condition.
    """
    try:
        condition = condition_of(text)
        named = {one.name: _named(kernels, rows, fields, one.name) for one in comparisons(condition)}
        return [row for row in rows if _holds(kernels, row, condition, named)]
    except NoSuchNameError as error:
        return Unknown(str(error), _MANUAL)
    except ConditionError as error:
        return Unknown(str(error), _MANUAL, UnknownKind.MISWRITTEN)


def _holds(kernels: Kernels, row: Row, condition: Condition, named: Mapping[str, _Named]) -> Holds:
    def one(comparison: Comparison) -> Holds:
        of = named[comparison.name]
        found = [comparison.holds(value, of.unit) for value in of.values(kernels, row)]
        known = [answer for answer in found if answer is not None]
        joined = all(known) if comparison.sign.startswith("!") else any(known)
        return joined if known else None

    return holds(condition, one)


def plain(name: str) -> str:
    """A name as it is compared: "L1 hit" and "l1hit" are one.

    >>> plain("DRAM %"), plain("L1 hit"), plain("sm__x.avg")
    ('dram%', 'l1hit', 'sm__x.avg')
    """
    return "".join(name.casefold().split())


def _named(kernels: Kernels, rows: Sequence[Row], fields: Sequence[ColumnField], name: str) -> _Named:
    columns = {key: _Named(_cell_of(one), one.column.unit) for one in fields for key in _keys(one)}
    known = {**columns, **_OTHERS}
    wanted = plain(name)
    found = known.get(wanted) or known.get(_SAME.get(wanted, ""))
    if found is not None:
        return found
    metrics = _metrics(kernels, rows)
    if wanted in metrics:
        return _Named(_metric_of(metrics[wanted]), kernels.unit(metrics[wanted]))
    near = get_close_matches(wanted, [*known, *_SAME, *metrics], n=1, cutoff=0)
    raise NoSuchNameError(f"no column and no metric is called {name}; the nearest is {metrics.get(near[0], near[0])}")


def _keys(field: ColumnField) -> Iterator[str]:
    yield plain(field.column.key)
    yield plain(field.column.title)


def _metrics(kernels: Kernels, rows: Sequence[Row]) -> dict[str, str]:
    """The names of metrics by how they are compared."""
    asked = (kernels.metrics(kernels.middle(row)) for row in rows[:_ASKED])
    return {plain(name): name for metrics in asked for name in metrics}


def _cell_of(field: ColumnField) -> Values:
    return lambda kernels, row: (field.cell(kernels, row),)


def _metric_of(name: str) -> Values:
    return lambda kernels, row: (kernels.metrics(kernels.middle(row)).get(name),)


def _ranges(kernels: Kernels, row: Row) -> Sequence[Cell]:
    return [name for path in dict.fromkeys(kernels.ranges[i] for i in row.launches) for name in path]


def _blocks(kernels: Kernels, row: Row) -> Sequence[Cell]:
    return (math.prod(kernels.grid(row.launches[0])),)


def _threads(kernels: Kernels, row: Row) -> Sequence[Cell]:
    return (math.prod(kernels.block(row.launches[0])),)


def _full_name(kernels: Kernels, row: Row) -> Sequence[Cell]:
    """Either of its names: the short one, or the demangled one."""
    launch = row.launches[0]
    return kernels.short_name(launch), kernels.table.name(launch)


_OTHERS: Mapping[str, _Named] = {
    "range": _Named(_ranges),
    "blocks": _Named(_blocks, "1"),
    "threads": _Named(_threads, "1"),
    "name": _Named(_full_name),
}
