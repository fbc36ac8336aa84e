"""A trace with the kernels alone for which a condition holds."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop import whats
from llmtop.analysis.commands.profiling import WHERE_FACT
from llmtop.analysis.kernels.nvtx_ranges import only_launches
from llmtop.analysis.kernels.table import Grouping, kernel_table
from llmtop.analysis.kernels.where import rows_where
from llmtop.model import Missing, Unknown, UnknownKind

if TYPE_CHECKING:
    from llmtop.model import KernelTable, Trace

_WHOLE = "the report without --where has it"


def only_where(trace: Trace, condition: str) -> Trace | Unknown:
    """The trace with these kernels; why the condition cannot be asked, or that no kernel is so.

    Kernels are those of one name and shape, as the kernel table has them. Idle time, calls and stacks are of no kernel
    alone: the result has none.
    """
    table = kernel_table(trace, Grouping.SHAPE)
    rows = rows_where(table.kernels, table.rows, table.askable, condition)
    if isinstance(rows, Unknown):
        return rows
    if trace.kernels is None or not rows:
        return Unknown(f"there is no kernel for which {condition}")
    chosen = sorted(i for row in rows for i in row.launches)
    kernels = only_launches(replace(trace.kernels, earlier=_earlier(trace.kernels)), chosen)
    why = Unknown(f"only kernels for which {condition} are looked at", _WHOLE, UnknownKind.NOT_ASKED)
    absent = [what for what, has in ((whats.TIMELINE, trace.spans), (whats.STACKS, trace.stacks)) if has]
    return replace(
        trace,
        kernels=kernels,
        spans={},
        stacks=(),
        origin=replace(trace.origin, facts={**trace.origin.facts, WHERE_FACT: condition}),
        missing=(*trace.missing, *(Missing(what, why) for what in absent)),
    )


def _earlier(table: KernelTable) -> array[int]:
    """How many launches of the same function come before each."""
    if table.earlier:
        return table.earlier
    seen: Counter[str] = Counter()
    earlier = array("q")
    for name in table.name_id:
        function = table.functions[name]
        earlier.append(seen[function])
        seen[function] += 1
    return earlier
