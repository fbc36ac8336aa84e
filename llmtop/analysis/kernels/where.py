"""Kernels for which a condition holds: on any column of the kernel table, any metric of the report, and NVTX ranges.

docs/filters.md has the language. What stands for a row is the launch that its counters come from.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
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
    is_known,
)
from llmtop.analysis.kernels.nvtx_ranges import has_ranges, in_no_range
from llmtop.frozen import frozen
from llmtop.model import Unknown, UnknownKind

if TYPE_CHECKING:
    from llmtop.analysis.kernels.conditions import Holds
    from llmtop.analysis.kernels.table import ColumnField, Kernels, Row
    from llmtop.analysis.views import Cell

Values: TypeAlias = "Callable[[Kernels, Row], Sequence[Cell]]"
"""Of a row the values of which any may hold: it has launches in several ranges, or in none."""
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


@frozen
class RowsWhere:
    """What a condition chooses.

    Attributes:
        rows: Those for which it holds.
        decided: Of how many rows it is known whether it does.
        undecided: What is not known of how many others, and why: nobody can say whether it holds for them. None where
            all is known that decides.
    """

    rows: list[Row]
    decided: int
    undecided: Unknown | None


def rows_where(
    kernels: Kernels, rows: Sequence[Row], fields: Sequence[ColumnField], text: str, noun: str = "kernels"
) -> RowsWhere | Unknown:
    """The rows for which a condition holds; in one line why it cannot be read or asked.

    Args:
        kernels: What the rows are of.
        rows: Any of them.
        fields: The columns that names may stand for.
        text: The condition.
        noun: What the rows are called, all of them.
    """
    try:
        condition = condition_of(text)
        named = {one.name: _named(kernels, rows, fields, one.name) for one in comparisons(condition)}
        answers = [_holds(kernels, row, condition, named) for row in rows]
        unsure = [row for row, answer in zip(rows, answers, strict=True) if answer is None]
        holding = [row for row, answer in zip(rows, answers, strict=True) if answer]
        why = _undecided(kernels, unsure, len(rows), named, noun) if unsure else None
        return RowsWhere(holding, len(rows) - len(unsure), why)
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
        return joined if known or not found else None

    return holds(condition, one)


def _undecided(kernels: Kernels, unsure: Sequence[Row], of: int, named: Mapping[str, _Named], noun: str) -> Unknown:
    """What is not known of rows for which nobody can say whether a condition holds, with the reason of most."""
    whys = {
        name: [why for row in unsure if (why := _why_not_known(kernels, row, one, name))] for name, one in named.items()
    }
    unknown = {name: Counter(found).most_common(1)[0][0] for name, found in whys.items() if found}
    why = next(iter(unknown.values()))
    names = [name for name, of_name in unknown.items() if of_name == why]
    whose = f"any of the {noun}" if len(unsure) == of else f"{len(unsure)} of {of} {noun}"
    verb = "is" if len(names) == 1 else "are"
    return replace(why, reason=f"{' and '.join(names)} {verb} not known of {whose}: {why.reason}")


def _why_not_known(kernels: Kernels, row: Row, one: _Named, name: str) -> Unknown | None:
    """Why a row has no value of a name; None where it has one."""
    values = one.values(kernels, row)
    if not values or any(is_known(value) for value in values):
        return None
    return next((value for value in values if isinstance(value, Unknown)), Unknown(f"it has no {name}"))


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
    none = "no column and no metric is" if metrics else f"{kernels.no_counters.reason}, and no column is"
    raise NoSuchNameError(f"{none} called {name}; the nearest is {metrics.get(near[0], near[0])}")


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
    not_counted = Unknown("it was not counted", f"add --metrics {name}")
    return lambda kernels, row: (kernels.metrics(kernels.middle(row)).get(name, not_counted),)


def _ranges(kernels: Kernels, row: Row) -> Sequence[Cell]:
    """None at all of a kernel that lies in no range, where others do."""
    if not has_ranges(kernels.trace):
        return (in_no_range(kernels.trace),)
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
