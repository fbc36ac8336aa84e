"""Memory over time, for `llmtop report --by memory`: as a JSON object, and as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.tables import RowTable, csv_of
from llmtop.analysis.timeline.memory import Growth, MemoryOwner, MemoryPool, memory_pools
from llmtop.analysis.timeline.memory_table import memory_rows, memory_table, said_of_memory
from llmtop.cli.documents import fact
from llmtop.errors import FileError
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.model import Trace

_PARTS = 60
_NOT_RESERVED = Unknown("the allocator does not say what it has reserved of the device")
_BEFORE_UNKNOWN = Unknown("what was held before the capture is told by nothing in it")


def memory_report_table(trace: Trace) -> RowTable | Unknown:
    """Its rows, as a table that shows them."""
    pools = memory_pools(trace)
    return pools if isinstance(pools, Unknown) else memory_table(memory_rows(pools, trace))


def said_below(trace: Trace) -> list[str]:
    """What stands with the table."""
    pools = memory_pools(trace)
    return [str(pools)] if isinstance(pools, Unknown) else said_of_memory(pools, trace)


def memory_document(trace: Trace) -> Json:
    """The object under "by"."""
    pools = memory_pools(trace)
    return fact(pools) if isinstance(pools, Unknown) else {"by": "memory", "rows": [_pool(one, trace) for one in pools]}


def _pool(pool: MemoryPool, trace: Trace) -> Json:
    start, end = min(trace.start_ns, pool.times[0]), max(trace.end_ns, pool.times[-1])
    before = pool.before if pool.told or pool.before else _BEFORE_UNKNOWN
    return {
        "track": pool.track,
        "memory": pool.name,
        "peak_bytes": pool.peak,
        "peak_ns": pool.peak_ns,
        "last_bytes": pool.levels[-1],
        "before_bytes": fact(before) if isinstance(before, Unknown) else before,
        "is_all": pool.told,
        "untold_bytes": pool.untold,
        "reserved_bytes": fact(_NOT_RESERVED) if pool.reserved is None else pool.reserved,
        "over_time_bytes": pool.over_time(start, end, _PARTS),
        "owners": fact(pool.owners) if isinstance(pool.owners, Unknown) else [*map(_owner, pool.owners)],
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


def memory_csv(trace: Trace) -> Iterator[str]:
    """The table line by line.

    Raises:
        FileError: There is no such table.
    """
    table = memory_report_table(trace)
    if isinstance(table, Unknown):
        raise FileError(f"{trace.origin.path}: {table}")
    return csv_of(table)
