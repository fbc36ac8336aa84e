"""Stacks to take along into another tool: those that a flame is drawn of here."""

from __future__ import annotations

from llmtop.analysis.kernels.source_tree import code_trees
from llmtop.analysis.kernels.table import has_counters, stall_bars
from llmtop.analysis.threads.folded import stacks_of
from llmtop.analysis.threads.stack_tree import why_no_stacks
from llmtop.model import Stack, Trace, Unknown


def taken_stacks(trace: Trace) -> tuple[Stack, ...] | Unknown:
    """The stacks of a trace; of kernels where their code waits, in % of their time, or why there is neither.

    The latter are kernel, file, line, instruction and reason, as far as they are known: a disassembler may run.
    """
    if not (why := why_no_stacks(trace)):
        return tuple(trace.stacks)
    bars = stall_bars(trace) if has_counters(trace) else ()
    if any(bar.shares for bar in bars):
        return tuple(Stack(frames, width, "%") for frames, width in stacks_of(code_trees(trace, bars)[0].root))
    return next((bar.why_not for bar in bars if bar.why_not is not None), why)
