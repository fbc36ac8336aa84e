"""Memory over time as a table of who held how much at the peak, and in sentences: for screens and reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.tables import RowTable, numbered
from llmtop.analysis.timeline.memory import BEFORE, NOT_TOLD, MemoryOwner, MemoryPool, together
from llmtop.analysis.timeline.work import gpu_title
from llmtop.analysis.views import Cell, Column
from llmtop.frozen import frozen
from llmtop.model import TrackKind, Unknown
from llmtop.text import listed
from llmtop.units import binary_bytes, count, duration, percent

if TYPE_CHECKING:
    from llmtop.model import Trace, TrackId

TITLE = "Memory over time"
_NAMED = 3
"""Owners of what grows that are named."""
_COLUMNS = (
    Column("device", "of", width=22, shrink=4, help="the device, and the process where it is told"),
    Column("memory", "memory", width=18, shrink=5, help="the kind of memory"),
    Column(
        "name",
        "got in",
        width=0,
        help="the innermost range and the outermost operator that asked for it",
    ),
    Column("at_peak", "at peak", "bytes", 9, 0, "held at the moment at which most was held"),
    Column("share", "share", "ratio", 6, 1, "of all that was held then"),
    Column("living", "living", "1", 6, 3, "allocations held then"),
    Column("largest", "largest", "bytes", 9, 2, "the largest one of these"),
    Column("count", "count", "1", 7, 6, "allocations of the whole capture"),
    Column("total", "got", "bytes", 9, 5, "bytes of these together"),
    Column("kept", "kept", "bytes", 9, 7, "of these, not given back until the last event"),
)


@frozen
class MemoryRow:
    """What one owner of a pool held; `owner` None of all together."""

    pool: MemoryPool
    title: str
    owner: MemoryOwner | None


def memory_rows(pools: Sequence[MemoryPool], trace: Trace) -> tuple[MemoryRow, ...]:
    """Each pool as a whole, then who held it at its peak; what no event tells of is one owner."""
    return tuple(
        MemoryRow(pool, owner_title(trace, pool.track), owner) for pool in pools for owner in (None, *_owners(pool))
    )


def _owners(pool: MemoryPool) -> Iterator[MemoryOwner]:
    if isinstance(pool.owners, Unknown):
        return
    if pool.untold:
        name = BEFORE if pool.told and pool.untold <= pool.before else NOT_TOLD
        yield MemoryOwner(name, round(pool.untold), 0, 0, 0, 0, 0, 0)
    yield from pool.owners


def memory_table(rows: Sequence[MemoryRow]) -> RowTable:
    """The rows, keyed by their number from 0 on."""
    return numbered(_COLUMNS, [*map(_cells, rows)])


def _cells(row: MemoryRow) -> tuple[Cell, ...]:
    pool, owner = row.pool, row.owner
    if owner is None:
        named = f"{row.title}: {pool.name}"
        if isinstance(pool.owners, Unknown):
            return row.title, pool.name, named, round(pool.peak), 1.0, *[pool.owners] * 5
        owner = together(pool.owners, named)
        return row.title, pool.name, owner.name, round(pool.peak), 1.0, *_numbers(owner)
    share = owner.at_peak / pool.peak if pool.peak else 0.0
    numbers = _numbers(owner) if owner.count else (None,) * 5
    return row.title, pool.name, owner.name, owner.at_peak, share, *numbers


def _numbers(owner: MemoryOwner) -> tuple[Cell, ...]:
    return owner.held, owner.largest or None, owner.count, owner.total, owner.kept


def owner_title(trace: Trace, track: TrackId) -> str:
    """The device, and of which process: "GPU 0", "GPU 0, process 42", "process 42"."""
    kind = ids.kind(track)
    if kind is TrackKind.GPU:
        return gpu_title(track)
    if kind is TrackKind.GPU_PROCESS:
        return f"{gpu_title(ids.gpu_of(track))}, process {ids.pid(track)}"
    return trace.tracks[track].name if track in trace.tracks else track


# -- in sentences -----------------------------------------------------------------------------------------------------


def pool_lines(pool: MemoryPool, start_ns: int) -> Iterator[str]:
    """How much it was at most, what it is made of, and what is not told of it."""
    yield f"at most {binary_bytes(pool.peak)}, first {duration(pool.peak_ns - start_ns)} after the capture began"
    if pool.reserved is not None:
        yield f"reserved of the device: at most {binary_bytes(pool.reserved)}"
    yield _before(pool)
    if isinstance(pool.owners, Unknown):
        yield str(pool.owners)
    else:
        kept, kept_count = (
            sum(column) for column in zip(*((one.kept, one.kept_count) for one in pool.owners), strict=True)
        )
        if kept_count:
            yield f"{binary_bytes(kept)} in {count(kept_count)} allocations not given back until the last event"
    if pool.lost:
        yield f"{count(pool.lost)} were got once more at the same address: their giving back is not in the capture"
    if pool.growth is not None:
        yield growth_text(pool)


def _before(pool: MemoryPool) -> str:
    if not pool.told:
        known = f"of what was held before the capture only {binary_bytes(pool.before)} is known" if pool.before else ""
        return known or "what was held before the capture is not known, and not counted"
    if not pool.before:
        return "nothing was held before the first event"
    return f"{binary_bytes(pool.before)} were held before the first event: no event tells by whom"


def growth_text(pool: MemoryPool) -> str:
    """By how much it is more after each step; empty where it does not grow."""
    if pool.growth is None:
        return ""
    by = (
        f"{binary_bytes(pool.growth.per_step)} a step, {binary_bytes(pool.growth.total)} over {pool.growth.steps} steps"
    )
    owners = [f"{name} {binary_bytes(size)}" for name, size in pool.growth.owners[:_NAMED]]
    return f"grows with every step: {by}" + (f"; still held: {listed(owners)}" if owners else "")


def owner_lines(row: MemoryRow) -> Iterator[str]:
    """All that is known of an owner."""
    owner = row.owner
    if owner is None:
        return
    share = percent(100 * owner.at_peak / row.pool.peak) if row.pool.peak else "nothing"
    yield f"{binary_bytes(owner.at_peak)} at the peak of {row.title}, {share} of it"
    if not owner.count:
        yield "no event tells who got it, or when"
        return
    if owner.held:
        yield f"{count(owner.held)} allocations then, the largest {binary_bytes(owner.largest)}"
    yield f"{count(owner.count)} in the capture, {binary_bytes(owner.total)} together"
    if owner.kept_count:
        yield f"{count(owner.kept_count)} of them, {binary_bytes(owner.kept)}, not given back by the last event"


def said_of_memory(pools: Sequence[MemoryPool], trace: Trace) -> list[str]:
    """What stands below the table of a report."""
    return [
        f"{owner_title(trace, pool.track)}, {pool.name}: {'; '.join(pool_lines(pool, trace.start_ns))}"
        for pool in pools
    ]
