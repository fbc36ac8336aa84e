"""Work on columns of numbers: by NumPy where they are long, in plain Python where importing it would take longer.

Columns are of eight bytes a value, or of fewer (`narrow`); what is worked out of them is of eight, unless it says so.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, islice
from operator import le, sub
from statistics import median, stdev
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Name = TypeVar("_Name", bound=str)
LONG = 20_000
"""Rows from which on NumPy saves more than its import takes, 0.1 s."""
_SOME = 50
"""Of a long column, places from which on NumPy is faster at them."""
_WIDTHS = "bhiq"
"""Types of integers of one, two, four and eight bytes, by the names that arrays and NumPy share."""
_NARROW = 1 << 20
"""Values nearer to each other than this are numbered by a table, not by sorting them."""


def is_long(rows: int) -> bool:
    """Whether that many rows are worth NumPy's import."""
    return rows >= LONG


def integers(text: bytes, rows: int) -> array[int]:
    """Integers written with commas between.

    Raises:
        ValueError: They are not that many, or something else than integers.
    """
    if text.translate(None, b"0123456789,-"):
        raise ValueError("something else than integers")
    try:
        column = _numbers(text) if rows >= LONG else array("q", map(int, text.split(b",")) if text else ())
    except (ValueError, OverflowError, DeprecationWarning) as error:  # the latter of what NumPy cannot read to its end
        raise ValueError("something else than integers") from error
    if len(column) != rows:
        raise ValueError("not as many integers as rows")
    return column


def _numbers(text: bytes) -> array[int]:
    import numpy as np

    return array("q", np.fromstring(text, np.int64, sep=",").tobytes())


def narrow(column: array[int]) -> array[int]:
    """The same values in as few bytes each as they need: what a million launches have in common takes little room.

    >>> narrow(array("q", range(LONG))).typecode, narrow(array("q", [1])).typecode
    ('h', 'q')
    """
    if len(column) < LONG:
        return column
    import numpy as np

    values = np.asarray(column)
    lowest, highest = int(values.min()), int(values.max())
    kind = next(kind for kind in _WIDTHS if np.iinfo(kind).min <= lowest and highest <= np.iinfo(kind).max)
    return column if kind == column.typecode else array(kind, values.astype(kind).tobytes())


def chained(columns: Iterable[array[int]]) -> array[int]:
    """All values, one column after the other, as wide as the widest; a single column itself."""
    parts = list(columns)
    if len(parts) == 1:
        return parts[0]
    kind = max((column.typecode for column in parts), key=_WIDTHS.index, default="q")
    whole = array(kind)
    for column in parts:
        whole.extend(column if column.typecode == kind else array(kind, column))
    return whole


def is_rising(column: array[int]) -> bool:
    """Whether no value is less than the one before."""
    if len(column) < LONG:
        return all(map(le, column, islice(column, 1, None)))
    import numpy as np

    values = np.asarray(column, np.int64)
    return bool((values[:-1] <= values[1:]).all())


def are_at_most(column: array[int], other: array[int]) -> bool:
    """Whether no value is above that of the other column."""
    if len(column) < LONG:
        return all(map(le, column, other))
    import numpy as np

    return bool((np.asarray(column, np.int64) <= np.asarray(other, np.int64)).all())


def in_order(columns: Sequence[array[int]]) -> list[array[int]]:
    """All columns, as wide as they are, in the order of the first; rows with the same value there stay as they are."""
    first = columns[0]
    if is_rising(first):
        return list(columns)
    if len(first) < LONG:
        order = sorted(range(len(first)), key=first.__getitem__)
        return [array(column.typecode, map(column.__getitem__, order)) for column in columns]
    import numpy as np

    places = np.argsort(np.asarray(first, np.int64), kind="stable")
    return [array(column.typecode, np.asarray(column)[places].tobytes()) for column in columns]


def reaches(column: array[int]) -> array[int]:
    """The highest value up to and including each: the column itself where it rises, as that of a single stream does."""
    if is_rising(column):
        return column
    if len(column) < LONG:
        return array("q", accumulate(column, max))
    import numpy as np

    return array("q", np.maximum.accumulate(np.asarray(column, np.int64)).tobytes())


def lengths(starts: array[int], ends: array[int]) -> array[float]:
    """From each start to its end."""
    if len(starts) < LONG:
        return array("d", map(sub, ends, starts))
    import numpy as np

    between = np.asarray(ends, np.int64) - np.asarray(starts, np.int64)
    return array("d", between.astype(np.float64).tobytes())


def first_rows(column: array[int]) -> dict[int, int]:
    """The first row of each distinct value, in the order of these rows."""
    if len(column) < LONG:
        found: dict[int, int] = {}
        for row, value in enumerate(column):
            found.setdefault(value, row)
        return found
    import numpy as np

    values = np.asarray(column, np.int64)
    lowest = values.min()
    if int(values.max()) - int(lowest) < _NARROW:
        by_value = np.full(int(values.max() - lowest) + 1, -1)
        by_value[values[::-1] - lowest] = np.arange(len(values) - 1, -1, -1)  # of several the last one stays
        distinct = np.flatnonzero(by_value >= 0)
        firsts = by_value[distinct]
        distinct += lowest
    else:
        begins = np.append(0, np.flatnonzero(values[1:] != values[:-1]) + 1)  # of each run of one value
        distinct, places = np.unique(values[begins], return_index=True)
        firsts = begins[places]
    order = np.argsort(firsts)
    return dict(zip(distinct[order].tolist(), firsts[order].tolist(), strict=True))


def replaced(column: array[int], by_key: Mapping[int, int]) -> array[int]:
    """What each value stands for, narrow; often all stand for the same."""
    meanings = set(by_key.values())
    if len(meanings) == 1:
        return narrow(array("q", meanings) * len(column))
    if len(column) < LONG:
        return array("q", map(by_key.__getitem__, column))
    import numpy as np

    keys = np.array(sorted(by_key))
    sorted_meanings = np.array([by_key[key] for key in keys.tolist()])
    return narrow(array("q", sorted_meanings[np.searchsorted(keys, np.asarray(column, np.int64))].tobytes()))


def rows_by_key(keys: array[int], wanted: array[int]) -> array[int]:
    """Of each wanted key the row that has it, the last one of several; -1 where none has, or the key is below 0.

    >>> rows_by_key(array("q", [7, -1, 5]), array("q", [5, 6, -1])).tolist()
    [2, -1, -1]
    """
    if max(len(keys), len(wanted)) < LONG or not keys:
        row_by_key = {key: row for row, key in enumerate(keys) if key >= 0}
        return array("q", (row_by_key.get(key, -1) for key in wanted))
    import numpy as np

    values, sought = np.asarray(keys, np.int64), np.asarray(wanted, np.int64)
    order = np.argsort(values, kind="stable")
    at = np.searchsorted(values, sought, "right", sorter=order) - 1
    found = (at >= 0) & (sought >= 0) & (values[order[at]] == sought)
    return array("q", np.where(found, order[at], -1).tobytes())


def picked(column: array[int], rows: array[int]) -> array[int]:
    """The values at these rows, in their order, as wide as they are."""
    if len(rows) < LONG:
        return array(column.typecode, map(column.__getitem__, rows))
    import numpy as np

    return array(column.typecode, np.asarray(column)[np.asarray(rows)].tobytes())


def put(column: array[int], rows: array[int], values: array[int]) -> None:
    """Set the values at these rows; at one that is there several times the last of them."""
    if len(rows) < LONG:
        for row, value in zip(rows, values, strict=True):
            column[row] = value
        return
    import numpy as np

    np.asarray(column)[np.asarray(rows)] = np.asarray(values)


def put_times(times: array[float], moments: array[int], since: array[int], rows: array[int]) -> None:
    """Set how long after that of its row in `since` each moment is; none has -1 for a row, or is before it.

    >>> times = array("d", [9.0, 9.0, 9.0])
    >>> put_times(times, array("q", [5, 6, 1]), array("q", [2, 4]), array("q", [0, -1, 1]))
    >>> times.tolist()
    [3.0, 9.0, 9.0]
    """
    if len(moments) < LONG:
        for i, row in enumerate(rows):
            if row >= 0 and moments[i] >= since[row]:
                times[i] = moments[i] - since[row]
        return
    import numpy as np

    known = np.flatnonzero(np.asarray(rows) >= 0)
    after = np.asarray(moments, np.int64)[known] - np.asarray(since, np.int64)[np.asarray(rows)[known]]
    np.frombuffer(times, np.float64)[known[after >= 0]] = after[after >= 0]


def are_first(column: array[int]) -> array[int]:
    """1 at the first row of each distinct value, which is 0 or more, and 0 at all others.

    >>> are_first(array("q", [3, 5, 3])).tolist()
    [1, 1, 0]
    """
    firsts = array("b", bytes(len(column)))
    if len(column) < LONG:
        for row in first_rows(column).values():
            firsts[row] = 1
        return firsts
    import numpy as np

    values, rows = np.asarray(column), np.arange(len(column))
    by_value = np.empty(int(values.max()) + 1, np.int64)
    by_value[values[::-1]] = rows[::-1]  # of several the last one stays
    return array("b", (by_value[values] == rows).tobytes())


def places_among(bounds: array[int], column: array[int]) -> array[int]:
    """How many of the bounds, which rise, each value is not below.

    >>> places_among(array("q", [10, 20]), array("q", [9, 10, 30])).tolist()
    [0, 1, 2]
    """
    if len(column) < LONG:
        return array("q", (bisect_right(bounds, value) for value in column))
    import numpy as np

    return array("q", np.searchsorted(np.asarray(bounds), np.asarray(column, np.int64), "right").tobytes())


def totals_by(numbers: array[int], column: array[float], count: int) -> tuple[list[int], list[float]]:
    """For each number from 0 on how many rows have it, and the sum of those of their values that are numbers.

    >>> totals_by(array("q", [0, 2, 2]), array("d", [1.0, 2.0, math.nan]), 3)
    ([1, 0, 2], [1.0, 0.0, 2.0])
    """
    if len(column) < LONG:
        rows, sums = [0] * count, [0.0] * count
        for number, value in zip(numbers, column, strict=True):
            rows[number] += 1
            sums[number] += 0.0 if math.isnan(value) else value
        return rows, sums
    import numpy as np

    values, known = np.frombuffer(column, np.float64), np.asarray(numbers)
    added = np.bincount(known, np.nan_to_num(values), count)
    return np.bincount(known, minlength=count).tolist(), added.tolist()


def covered_by(numbers: array[int], starts: array[int], ends: array[int], since: int, until: int) -> dict[int, int]:
    """How much of the time between two moments stretches of each number cover; they rise, and do not overlap.

    >>> covered_by(array("q", [4, 7, 4]), array("q", [0, 10, 20]), array("q", [5, 20, 30]), 3, 22)
    {4: 4, 7: 10}
    """
    first, last = max(0, bisect_right(starts, since) - 1), bisect_right(starts, until)
    if len(starts) < LONG or last - first < _SOME:
        found: dict[int, int] = {}
        for i in range(first, last):
            ns = min(ends[i], until) - max(starts[i], since)
            if ns > 0:
                found[numbers[i]] = found.get(numbers[i], 0) + ns
        return found
    import numpy as np

    begun, ended = np.asarray(starts)[first:last], np.asarray(ends)[first:last]
    covered = np.maximum(np.minimum(ended, until) - np.maximum(begun, since), 0)
    sums = np.bincount(np.asarray(numbers)[first:last], covered)  # in floats, which are exact up to 104 days
    return {number: int(ns) for number, ns in enumerate(sums.tolist()) if ns}


def places_of(column: array[int], value: int) -> Sequence[int]:
    """The rows that have this value, rising."""
    if len(column) < LONG:
        return [row for row, one in enumerate(column) if one == value]
    import numpy as np

    rows: list[int] = np.flatnonzero(np.asarray(column) == value).tolist()
    return rows


def differences(column: array[int], other: array[int]) -> array[int]:
    """By how much each value is above that of the other column."""
    if len(column) < LONG:
        return array("q", map(sub, column, other))
    import numpy as np

    return array("q", (np.asarray(column, np.int64) - np.asarray(other, np.int64)).tobytes())


def limited(column: array[int], least: int, most: int) -> array[int]:
    """Each value, or the limit that it is beyond."""
    if len(column) < LONG:
        return array("q", (least if value < least else min(value, most) for value in column))
    import numpy as np

    return array("q", np.clip(np.asarray(column, np.int64), least, most).tobytes())


def spread(column: array[int]) -> tuple[float, float | None]:
    """The median of values, and the standard deviation of those that they are a sample of; None of a single one.

    >>> spread(array("q", [1, 2, 6, 7])), spread(array("q", [5]))
    ((4.0, 2.943920288775949), (5.0, None))
    """
    several = len(column) > 1
    if len(column) < LONG:
        return float(median(column)), stdev(column) if several else None
    import numpy as np

    values = np.asarray(column, np.int64)
    return float(np.median(values)), float(np.std(values, ddof=1)) if several else None


def sums_before(column: array[int]) -> array[int]:
    """The values added up, before each row and after the last one."""
    if len(column) < LONG:
        return array("q", accumulate(column, initial=0))
    import numpy as np

    return array("q", np.append(0, np.cumsum(np.asarray(column, np.int64))).tobytes())


def steps_above(column: array[int], other: array[int]) -> array[int]:
    """The rows from the second one on whose value is above that of the other column in the row before."""
    if len(column) < LONG:
        return array(
            "q", (row for row, (one, before) in enumerate(zip(column[1:], other, strict=False), 1) if one > before)
        )
    import numpy as np

    is_above = np.asarray(column, np.int64)[1:] > np.asarray(other, np.int64)[:-1]
    return array("q", (np.flatnonzero(is_above) + 1).tobytes())


def largest_by_block(column: array[int] | array[float], size: int) -> array[int] | array[float]:
    """The largest value of each so many rows."""
    kind = column.typecode
    if len(column) < LONG:
        return array(kind, (max(column[row : row + size]) for row in range(0, len(column), size)))
    import numpy as np

    values = np.asarray(column)
    return array(kind, np.maximum.reduceat(values, np.arange(0, len(values), size)).tobytes())


def alike(columns: Sequence[array[int]]) -> list[array[int]]:
    """The rows that have the same values in all columns, narrow, in the order of their first row."""
    if len(columns[0]) < LONG:
        rows: dict[tuple[int, ...], array[int]] = {}
        for row, key in enumerate(zip(*columns, strict=True)):
            rows.setdefault(key, array("q")).append(row)
        return list(rows.values())
    import numpy as np

    codes, count = _codes(np.asarray(columns[0], np.int64))
    for column in columns[1:]:
        own, distinct = _codes(np.asarray(column, np.int64))
        if distinct > 1:
            codes, count = _codes(codes * distinct + own)
    order = np.argsort(codes.astype(np.uint16) if count <= 1 << 16 else codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=count))
    groups = sorted(np.split(order, ends[:-1]), key=lambda group: int(group[0]))
    kind = "i" if len(codes) <= np.iinfo(np.int32).max else "q"
    return [array(kind, group.astype(kind).tobytes()) for group in groups]


def _codes(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """A number from 0 on in place of each distinct value, and how many there are."""
    import numpy as np

    lowest, highest = int(values.min()), int(values.max())
    if highest - lowest >= _NARROW:
        distinct, codes = np.unique(values, return_inverse=True)
        return codes, len(distinct)
    is_there = np.zeros(highest - lowest + 1, bool)
    is_there[values - lowest] = True
    return (np.cumsum(is_there) - 1)[values - lowest], int(is_there.sum())


def chosen(column: array[float], places: Sequence[int]) -> list[float]:
    """The values at these places that are numbers, in ascending order."""
    if len(column) < LONG or len(places) < _SOME or not isinstance(places, array):
        return sorted(value for i in places if not math.isnan(value := column[i]))
    import numpy as np

    values = np.sort(np.frombuffer(column, np.float64)[np.asarray(places, np.int64)])
    known: list[float] = values[: len(values) - int(np.isnan(values).sum())].tolist()
    return known


def total(column: array[float]) -> float:
    """The sum of the values that are numbers, as near as can be."""
    if len(column) < LONG:
        return math.fsum(value for value in column if not math.isnan(value))
    import numpy as np

    values = np.frombuffer(column, np.float64)
    return math.fsum(values[~np.isnan(values)].tolist())


def indexed(keys: array[int], name_of: Callable[[int], _Name]) -> tuple[tuple[_Name, ...], array[int]]:
    """Replace keys by indices into the distinct names they stand for."""
    names: dict[_Name, int] = {}
    index_by_key = {key: names.setdefault(name_of(key), len(names)) for key in first_rows(keys)}
    return tuple(names), replaced(keys, index_by_key)


def on_clock(column: array[int], by: int, drift: float, since: int) -> array[int]:
    """Each moment plus a number, and plus a share of the time since a moment.

    >>> on_clock(array("q", [1000, 2000]), 5, 0.01, 1000).tolist()
    [1005, 2015]
    """
    if not drift:
        return shifted(column, by)
    if len(column) < LONG:
        return array("q", (value + by + round(drift * (value - since)) for value in column))
    import numpy as np

    values = np.asarray(column, np.int64)
    return array("q", (values + by + np.rint(drift * (values - since)).astype(np.int64)).tobytes())


def shifted(column: array[int], by: int) -> array[int]:
    """Each value plus a number."""
    if len(column) < LONG:
        return array("q", (value + by for value in column))
    import numpy as np

    return array("q", (np.asarray(column, np.int64) + by).tobytes())
