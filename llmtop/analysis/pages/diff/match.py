"""Which kernels of two reports are the same one: by name and launch first, then by less and less."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.kernels.family import KernelFamily
from llmtop.analysis.kernels.table import row_of
from llmtop.frozen import frozen

if TYPE_CHECKING:
    from llmtop.analysis.kernels.table import Kernels, Row


class Likeness(StrEnum):
    """By what two kernels are taken for the same one, the surest first."""

    SAME = "same name, grid and block"
    NAME = "same name, other grid or block"
    TITLE = "same work and grid, other name"
    WORK = "same work, other name and grid"
    FAMILY = "the only one left of its kind"
    ALONE = "the only kernel of each"


@frozen
class KernelPair:
    """A kernel of two reports; one side is None where it is new or gone, and there is no likeness then."""

    before: Row | None
    after: Row | None
    likeness: Likeness | None = None


KeyOf: TypeAlias = "Callable[[Kernels, int], Hashable]"


def _name(kernels: Kernels, i: int) -> Hashable:
    return kernels.table.name(i)


def _work(kernels: Kernels, i: int) -> Hashable:
    """What tools that spell names differently, or another template argument, leave as it is."""
    return kernels.kind(i).title or kernels.table.functions[kernels.table.name_id[i]]


def _family(kernels: Kernels, i: int) -> Hashable:
    return kernels.kind(i).family


def _sized(key: KeyOf) -> KeyOf:
    return lambda kernels, i: (key(kernels, i), kernels.grid(i), kernels.block(i))


_LEVELS: Mapping[Likeness, KeyOf] = {
    Likeness.SAME: _sized(_name),
    Likeness.NAME: _name,
    Likeness.TITLE: _sized(_work),
    Likeness.WORK: _work,
    Likeness.FAMILY: _family,
}


def pairs_of(before: Kernels, rows: Sequence[Row], after: Kernels, others: Sequence[Row]) -> tuple[KernelPair, ...]:
    """All rows of both sides, each once: those of one kernel as one.

    Args:
        before: The kernels of the first report.
        rows: Those of it to match, one for each name, grid and block. Several that are alike in all by which a kernel
            is told are taken together.
        after: The kernels of the second report.
        others: Those of it.
    """
    if len(rows) == len(others) == 1:
        return (_only(before, rows[0], after, others[0]),)
    found: list[KernelPair] = []
    left, right = list(rows), list(others)
    for likeness, key in _LEVELS.items():
        mine, theirs = _grouped(before, left, key), _grouped(after, right, key)
        both = [one for one in mine if one in theirs and _is_told(likeness, one, mine[one], theirs[one])]
        found += (KernelPair(_together(before, mine[one]), _together(after, theirs[one]), likeness) for one in both)
        left, right = _without(mine, both), _without(theirs, both)
    return (*found, *(KernelPair(row, None) for row in left), *(KernelPair(None, row) for row in right))


def _only(before: Kernels, row: Row, after: Kernels, other: Row) -> KernelPair:
    """Of one kernel each they are compared whatever they are: somebody wrote it anew."""
    mine, theirs = row.launches[0], other.launches[0]
    likeness = (one for one in _LEVELS if one is not Likeness.FAMILY)
    alike = (one for one in likeness if _LEVELS[one](before, mine) == _LEVELS[one](after, theirs))
    return KernelPair(row, other, next(alike, Likeness.ALONE))


def _grouped(kernels: Kernels, rows: Sequence[Row], key: KeyOf) -> dict[Hashable, list[Row]]:
    groups: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(kernels, row.launches[0])].append(row)
    return groups


def _is_told(likeness: Likeness, key: Hashable, mine: Sequence[Row], theirs: Sequence[Row]) -> bool:
    """Of a family only one kernel on each side is told by it, and none of those that no name tells."""
    return likeness is not Likeness.FAMILY or (len(mine) == len(theirs) == 1 and key is not KernelFamily.OTHER)


def _together(kernels: Kernels, rows: Sequence[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    return row_of(kernels.table, array("q", sorted(chain.from_iterable(row.launches for row in rows))))


def _without(groups: Mapping[Hashable, list[Row]], keys: Sequence[Hashable]) -> list[Row]:
    taken = set(keys)
    return [row for key, rows in groups.items() if key not in taken for row in rows]
