"""Which multiply-adds in half precision compute: compilers make constants with others, in any kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.model import KernelTable

_EXECUTED = ("thread_inst_executed_true", "thread_inst_executed", "inst_executed")
"""How often each instruction was executed: by threads that were not masked out, by threads, by warps."""


def computing_half(table: KernelTable, launch: int) -> float | None:
    """The share of a launch's fused multiply-adds in half precision that computes, 0 to 1.

    By the instructions themselves, weighted with how often each was executed. None where the report has no machine code
    or no counts by instruction.
    """
    codes = table.codes
    metric = None if codes is None else next((one for one in _EXECUTED if one in codes.metrics(launch)), None)
    if codes is None or metric is None:
        return None
    computes, executed = codes.fused_half(launch), codes.values(launch, metric)
    if isinstance(computes, Unknown):
        return None
    every = sum(executed.get(address, 0.0) for address in computes)
    return sum(executed.get(address, 0.0) for address, does in computes.items() if does) / every if every else None
