"""What a timeline lists by name, as a table and in sentences: for screens and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from llmtop.analysis.tables import RowTable, numbered
from llmtop.analysis.timeline.listed import SMALL, Listed, ListedRow, Statistics
from llmtop.analysis.views import Cell, Column
from llmtop.frozen import frozen
from llmtop.model import SpanKind, Unknown
from llmtop.units import binary_bytes, count, duration, percent, si

TITLES: Mapping[Listed, str] = {
    Listed.API: "CUDA calls",
    Listed.COPY: "Copies and fills",
    Listed.OS: "OS calls",
    Listed.ALLOCATION: "Allocations",
}
_NOTABLE = 1.25
"""How many times faster another memory's copies are, from which on that is worth a line."""


def listed_table(rows: Sequence[ListedRow], what: Listed, *, is_whole: bool = False) -> RowTable:
    """The rows, keyed by their number from 0 on; columns of which no row has anything are left out.

    Args:
        rows: What is listed.
        what: What they are of.
        is_whole: With all columns, for who goes by their names.
    """
    made = _COLUMNS[what]
    cells = [[one.cell(row) for one in made] for row in rows]
    kept = [
        i for i, one in enumerate(made) if is_whole or one.column.shrink == 0 or any(_is_known(row[i]) for row in cells)
    ]
    return numbered([made[i].column for i in kept], [[row[i] for i in kept] for row in cells])


def _is_known(cell: Cell) -> bool:
    return cell is not None and not isinstance(cell, Unknown)


@frozen
class _ListedColumn:
    """A column with how its cells are made of a row."""

    column: Column
    cell: Callable[[ListedRow], Cell]


def _of_sizes(part: Callable[[Statistics], Cell]) -> Callable[[ListedRow], Cell]:
    return lambda row: None if row.sizes is None else part(row.sizes)


def _named(what: str) -> _ListedColumn:
    return _ListedColumn(Column("name", "name", width=0, help=what), lambda row: row.name)


def _counted(what: str) -> _ListedColumn:
    return _ListedColumn(Column("count", "count", "1", 7, 0, what), lambda row: row.times.count)


_TOTAL = _ListedColumn(Column("total", "total", "ns", 8, 0, "time added up"), lambda row: row.times.total)
_WALL = _ListedColumn(
    Column("wall", "of wall", "ratio", 7, 2, "share of the capture's time of the threads that made these calls"),
    lambda row: row.wall,
)
_IDLE = _ListedColumn(
    Column("idle", "GPU idle", "ns", 8, 1, "of it no GPU had work, in the capture: calls at once count once"),
    lambda row: row.idle_ns,
)
_LAUNCHED = _ListedColumn(
    Column("launched", "launched", "1", 8, 6, "of these calls, those that gave a GPU work"), lambda row: row.launched
)
_RATE = _ListedColumn(Column("rate", "rate", "bytes/s", 9, 1, "bytes over the time"), lambda row: row.bytes_per_s)
_SMALL = _ListedColumn(
    Column("small", "small", "1", 6, 4, f"of fewer than {binary_bytes(SMALL)}: the asking costs more than the moving"),
    lambda row: row.small,
)
_HELD = _ListedColumn(
    Column("held", "held", "1", 6, 3, "asynchronous calls that pageable memory kept until their copy had ended"),
    lambda row: row.held,
)
_IN_STEPS = _ListedColumn(
    Column("in_steps", "in steps", "1", 8, 1, "of these, those that begin in a step that is not the first"),
    lambda row: row.in_steps,
)
_SPREAD = (
    _ListedColumn(Column("mean", "mean", "ns", 8, 3, "of one"), lambda row: row.times.mean),
    _ListedColumn(Column("median", "median", "ns", 8, 5, "half of them last no longer"), lambda row: row.times.median),
    _ListedColumn(Column("min", "min", "ns", 8, 8, "the shortest one"), lambda row: row.times.least),
    _ListedColumn(Column("max", "max", "ns", 8, 4, "the longest one"), lambda row: row.times.most),
    _ListedColumn(
        Column("stddev", "stddev", "ns", 8, 9, "standard deviation, of a sample"), lambda row: row.times.deviation
    ),
)
_BYTES = (
    _ListedColumn(Column("bytes", "bytes", "bytes", 9, 2, "all together"), _of_sizes(lambda of: of.total)),
    _ListedColumn(Column("mean_bytes", "mean B", "bytes", 9, 7, "of one"), _of_sizes(lambda of: of.mean)),
    _ListedColumn(Column("median_bytes", "median B", "bytes", 9, 10, "half are no larger"),
                  _of_sizes(lambda of: of.median)),
    _ListedColumn(Column("min_bytes", "min B", "bytes", 9, 11, "the smallest one"), _of_sizes(lambda of: of.least)),
    _ListedColumn(Column("max_bytes", "max B", "bytes", 9, 6, "the largest one"), _of_sizes(lambda of: of.most)),
    _ListedColumn(Column("stddev_bytes", "stddev B", "bytes", 9, 12, "standard deviation, of a sample"),
                  _of_sizes(lambda of: of.deviation)),
)  # fmt: skip
_COLUMNS: dict[Listed, Sequence[_ListedColumn]] = {
    Listed.API: (_named("of the call"), _counted("calls"), _TOTAL, _WALL, _IDLE, *_SPREAD, _LAUNCHED),
    Listed.COPY: (
        _named("direction, and the memory where it is pageable"), _counted("copies"), _TOTAL, _BYTES[0], _RATE, _HELD,
        _SMALL, *_SPREAD, *_BYTES[1:],
    ),
    Listed.OS: (_named("of the call"), _counted("calls"), _TOTAL, _WALL, _IDLE, *_SPREAD),
    Listed.ALLOCATION: (
        _named("of the call, or of the memory"), _counted("calls or allocations"), _TOTAL, _IN_STEPS, _WALL, _IDLE,
        *_BYTES, *_SPREAD,
    ),
}  # fmt: skip


# -- in sentences -----------------------------------------------------------------------------------------------------


def listed_lines(rows: Sequence[ListedRow], row: ListedRow) -> Iterator[str]:
    """All that is known of a row."""
    times = row.times
    what = "held" if row.kind == SpanKind.ALLOCATION else "in them"
    if times.count == 1:
        yield f"once, {duration(times.total)}"
    else:
        yield f"{count(times.count)} times, {duration(times.total)} {what}: {spread_text(times, duration)}"
    if row.sizes is not None:
        rate = "" if row.bytes_per_s is None else f" at {si(row.bytes_per_s, 'B/s')}"
        several = f": {spread_text(row.sizes, binary_bytes)}" if row.sizes.count > 1 else ""
        yield f"{binary_bytes(row.sizes.total)}{rate}{several}"
    yield from _costs(row)
    yield from _against_others(rows, row)


def said_of_all(rows: Sequence[ListedRow] | Unknown) -> list[str]:
    """What stands below the table of a report: what each row costs beyond its columns, or why there is none."""
    if isinstance(rows, Unknown):
        return [str(rows)]
    lines = ((row.name, [*_held(row), *_against_others(rows, row)]) for row in rows)
    return [f"{name}: {line}" for name, of_row in lines for line in of_row]


def spread_text(of: Statistics, said: Callable[[float], str]) -> str:
    """How they are spread: "mean 3 ms, median 2 ms, 1 ms to 9 ms, standard deviation 2 ms"."""
    deviation = "" if of.deviation is None else f", standard deviation {said(of.deviation)}"
    return f"mean {said(of.mean)}, median {said(of.median)}, {said(of.least)} to {said(of.most)}{deviation}"


def _costs(row: ListedRow) -> Iterator[str]:
    if row.wall is not None:
        threads = "its thread" if row.threads == 1 else f"the {row.threads} threads that make it"
        yield f"{percent(100 * row.wall)} of the capture's time of {threads}"
    if isinstance(row.idle_ns, Unknown):
        yield f"beside idle GPUs: not told: {row.idle_ns}"
    elif row.idle_ns is not None:
        yield f"{duration(row.idle_ns)} of it no GPU had work; the view Idle says what GPUs waited for"
    if isinstance(row.launched, int):
        yield f"{count(row.launched)} of {count(row.times.count)} gave a GPU work"
    if isinstance(row.in_steps, Unknown):
        yield f"how many are in steps: not told: {row.in_steps}"
    elif row.in_steps:
        yield f"{count(row.in_steps)} of {count(row.times.count)} in steps after the first one"
    if row.small:
        yield f"{count(row.small)} of fewer than {binary_bytes(SMALL)}"
    yield from _held(row)


def _held(row: ListedRow) -> Iterator[str]:
    if isinstance(row.held, int) and row.held:
        yield (
            f"{count(row.held)} were asked for by calls that are asynchronous by name and returned only when the copy "
            "had ended: its memory is pageable; pinned memory would not keep them"
        )


def _against_others(rows: Sequence[ListedRow], row: ListedRow) -> Iterator[str]:
    """How fast copies in the same direction of other memory are."""
    direction = row.name.removesuffix(_PAGEABLE)
    other = next((one for one in rows if one is not row and one.name.removesuffix(_PAGEABLE) == direction), None)
    if other is None or not row.bytes_per_s or not other.bytes_per_s:
        return
    if other.bytes_per_s > _NOTABLE * row.bytes_per_s:
        times = other.bytes_per_s / row.bytes_per_s
        yield f"{other.name} reaches {si(other.bytes_per_s, 'B/s')}, {times:.1f} times as much"


_PAGEABLE = " (pageable)"
