"""A trace with the kernels alone for which a condition holds."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop import whats
from llmtop.analysis.commands.profiling import WHERE_FACT
from llmtop.analysis.kernels.counting import not_counted
from llmtop.analysis.kernels.nvtx_ranges import UNDECIDED_FACT, only_launches
from llmtop.analysis.kernels.table import Grouping, kernel_table, kernels_of
from llmtop.analysis.kernels.where import rows_where
from llmtop.model import Missing, Unknown, UnknownKind

if TYPE_CHECKING:
    from llmtop.analysis.kernels.where import RowsWhere
    from llmtop.model import Fact, KernelTable, Trace

_WHOLE = "the report without --where has it"


def only_where(trace: Trace, condition: str) -> Trace | Unknown:
    """The trace with these kernels; why the condition cannot be asked, that no kernel is so, or that nobody knows.

    Kernels are those of one name and shape, as the kernel table has them. Idle time, calls and stacks are of no kernel
    alone: the result has none.
    """
    table = kernel_table(trace, Grouping.SHAPE)
    found = rows_where(table.kernels, table.rows, table.askable, condition)
    if isinstance(found, Unknown):
        return found
    if trace.kernels is None or not found.rows:
        return _why_none(trace, condition, found)
    chosen = sorted(i for row in found.rows for i in row.launches)
    kernels = only_launches(replace(trace.kernels, earlier=_earlier(trace.kernels)), chosen)
    why = Unknown(f"only kernels for which {condition} are looked at", _WHOLE, UnknownKind.NOT_ASKED)
    absent = [what for what, has in ((whats.TIMELINE, trace.spans), (whats.STACKS, trace.stacks)) if has]
    return replace(
        trace,
        kernels=kernels,
        spans={},
        stacks=(),
        origin=replace(trace.origin, facts={**trace.origin.facts, **_facts(condition, found.undecided)}),
        missing=(*trace.missing, *(Missing(what, why) for what in absent)),
    )


def _why_none(trace: Trace, condition: str, found: RowsWhere) -> Unknown:
    """That no kernel is so, as far as that is known; of what is not known why, and what would make it so."""
    why = found.undecided
    none = f"there is no kernel for which {condition}"
    if why is None:
        return Unknown(none)
    counted = not_counted(trace)
    if counted is not None and why.remedy == kernels_of(trace).no_counters.remedy:
        why = replace(why, remedy=counted.remedy)
    return replace(why, reason=f"{none}; {why.reason}") if found.decided else why


def _facts(condition: str, undecided: Unknown | None) -> dict[str, Fact]:
    return {WHERE_FACT: condition, **({} if undecided is None else {UNDECIDED_FACT: str(undecided)})}


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
