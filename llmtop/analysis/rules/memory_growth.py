"""The memory that a program holds is more after each step than after the one before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.timeline.memory import memory_pools
from llmtop.analysis.timeline.memory_table import growth_text, owner_title
from llmtop.facts import GpuFact
from llmtop.model import Finding, Severity, Unknown
from llmtop.units import binary_bytes, count

if TYPE_CHECKING:
    from llmtop.analysis.timeline.memory import Growth, MemoryPool
    from llmtop.model import Trace

id = "memory-growth"
summary = "Each step leaves more memory held than the one before."
source = "PyTorch documentation, Understanding CUDA Memory Usage (memory that lives on from step to step)"

_GROWS = "a cache that is meant to grow (the keys and values of a request) ends with its request; all else is kept by "
_ACTION = Words(
    pytorch=f"{_GROWS}some reference: look at what got it, for tensors that a list collects or that hold their graph "
    "(a loss without .item())",
    other=f"{_GROWS}what got it: look there for what is given back nowhere, or later than it is got again",
)
_NO_COMMAND = Words(
    pytorch="who holds a reference is in no trace: torch.cuda.memory._record_memory_history() has the stacks",
    other="who holds on to memory is in no trace: look at the program where it is got",
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each pool; only where every step added to it."""
    pools = memory_pools(trace)
    for pool in () if isinstance(pools, Unknown) else pools:
        if pool.growth is not None:
            yield _finding(trace, pool, pool.growth)


def _finding(trace: Trace, pool: MemoryPool, growth: Growth) -> Finding:
    title = owner_title(trace, pool.track)
    left = _steps_left(trace, pool, growth)
    return Finding(
        rule=id,
        severity=Severity.INFO,
        subject=title,
        message=f"{pool.name} is more after each of {growth.steps} steps: {binary_bytes(growth.per_step)} a step",
        evidence=(growth_text(pool), f"at most {binary_bytes(pool.peak)}", *left),
        action=_ACTION.of(trace),
        no_command=_NO_COMMAND.of(trace),
        source=source,
    )


def _steps_left(trace: Trace, pool: MemoryPool, growth: Growth) -> tuple[str, ...]:
    """After how many steps as these the GPU's memory is full, where its size is told."""
    facts = trace.tracks[pool.track].facts if pool.track in trace.tracks else {}
    total = facts.get(GpuFact.MEMORY_TOTAL)
    if not isinstance(total, int) or not pool.told:
        return ()
    steps = int((total - pool.levels[-1]) / growth.per_step)
    return (f"as it goes on the GPU's {binary_bytes(total)} are full after {count(steps)} more steps",)
