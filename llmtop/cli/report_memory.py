"""Memory over time, for `llmtop report --by memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.tables import csv_of
from llmtop.analysis.timeline.memory import Growth, MemoryOwner, MemoryPool, memory_pools
from llmtop.analysis.timeline.memory_table import TITLE, memory_rows, memory_table, said_of_memory
from llmtop.cli.documents import document_or_why, fact
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.model import Trace

_PARTS = 60
_NOT_RESERVED = Unknown("the allocator does not say what it has reserved of the device")
_BEFORE_UNKNOWN = Unknown("what was held before the capture is told by nothing in it")


def memory_over_time(trace: Trace, wanted: WantedTable) -> PartTable[tuple[MemoryPool, ...]]:
    """Who held how much memory, and when most was held."""
    pools = memory_pools(trace)
    return PartTable(
        TITLE,
        trace.origin.path,
        pools,
        rows_of=lambda pools: memory_table(memory_rows(pools, trace)),
        document_of=lambda pools: {"by": wanted.by, "rows": [_pool(one, trace) for one in pools]},
        csv_of=lambda pools: csv_of(memory_table(memory_rows(pools, trace))),
        said=lambda: [str(pools)] if isinstance(pools, Unknown) else said_of_memory(pools, trace),
    )


def _pool(pool: MemoryPool, trace: Trace) -> Json:
    start, end = min(trace.start_ns, pool.times[0]), max(trace.end_ns, pool.times[-1])
    before = pool.before if pool.told or pool.before else _BEFORE_UNKNOWN
    return {
        "track": pool.track,
        "memory": pool.name,
        "peak_bytes": pool.peak,
        "peak_ns": pool.peak_ns,
        "last_bytes": pool.levels[-1],
        "before_bytes": fact(before),
        "is_all": pool.told,
        "untold_bytes": pool.untold,
        "reserved_bytes": fact(_NOT_RESERVED) if pool.reserved is None else pool.reserved,
        "over_time_bytes": pool.over_time(start, end, _PARTS),
        "owners": document_or_why(pool.owners, lambda owners: [*map(_owner, owners)]),
        "giving_back_lost": pool.lost,
        "growth": None if pool.growth is None else _growth(pool.growth),
    }


def _owner(owner: MemoryOwner) -> Json:
    return {
        "name": owner.name,
        "peak_bytes": owner.at_peak,
        "living": owner.held,
        "largest_bytes": owner.largest,
        "count": owner.count,
        "bytes": owner.total,
        "kept": owner.kept_count,
        "kept_bytes": owner.kept,
    }


def _growth(growth: Growth) -> Json:
    owners: list[Json] = [{"name": name, "bytes": size} for name, size in growth.owners]
    return {"steps": growth.steps, "step_bytes": growth.per_step, "bytes": growth.total, "owners": owners}
