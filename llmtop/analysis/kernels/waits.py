"""What to do about what warps wait for: the words of rules and of views.

After Nsight Compute's Kernel Profiling Guide (warp scheduler states), and of loads after Recasens et al., Mind the
Memory Gap (arXiv:2503.08311).
"""

from __future__ import annotations

from collections.abc import Mapping

from llmtop.analysis.kernels.stalls import StallReason
from llmtop.frozen import frozen

OWN_INSTRUCTIONS = (StallReason.WAIT, StallReason.MATH_PIPE_THROTTLE, StallReason.DISPATCH_STALL)
"""What a warp waits for that depends on nobody else: its own instructions, and their pipe."""
MORE_LOADS = (
    "have more loads under way: load what the next step needs before it is needed (unroll, cp.async, TMA), give "
    "each thread several independent loads, and shorten chains in which a load's address comes from a load"
)


@frozen
class Wait:
    """Reasons of one kind.

    Attributes:
        title: What follows "warps wait".
        action: What to do about it.
    """

    reasons: tuple[str, ...]
    title: str
    action: str


WAITS = (
    Wait(
        (StallReason.BARRIER,),
        "at barriers for the other warps of their block",
        "give all warps of a block the same work between two __syncthreads, use smaller blocks, or synchronise less: "
        "__syncwarp, or pipelines whose stages overlap",
    ),
    Wait(
        (StallReason.MIO_THROTTLE, StallReason.SHORT_SCOREBOARD),
        "for shared memory and special functions",
        "use fewer, wider accesses to shared memory and keep values in registers (register tiling, shuffles); replace "
        "divisions, exponentials and roots by cheaper forms",
    ),
    Wait(
        OWN_INSTRUCTIONS,
        "for their own previous instruction",
        "let each thread work on several independent values (several accumulators, unrolled loops), or have more "
        "warps: a chain of dependent instructions leaves its pipe idle",
    ),
    Wait(
        (StallReason.LG_THROTTLE, StallReason.TEX_THROTTLE),
        "for the queue of memory instructions",
        "issue fewer memory instructions: 16 bytes a thread at once, values kept in registers or shared memory",
    ),
    Wait(
        (StallReason.NO_INSTRUCTION, StallReason.BRANCH_RESOLVING, StallReason.IMC_MISS),
        "for instructions and constants to be fetched",
        "shorten the code: less unrolling, fewer branches and inlined functions, so that loops fit the "
        "instruction cache",
    ),
    Wait(
        (StallReason.MEMBAR, StallReason.SLEEPING),
        "at memory fences or asleep",
        "fence less often and with the narrowest scope (__threadfence_block), or leave what waits out of the kernel",
    ),
    Wait(
        (StallReason.GMMA,),
        "for tensor instructions under way",
        "keep more tensor work in flight: deeper pipelines, larger tiles",
    ),
)
"""What no other thing in the code explains, in groups of which one action is for all."""

_OTHERS: Mapping[str, str] = {
    StallReason.LONG_SCOREBOARD: MORE_LOADS,
    StallReason.DRAIN: "write less at the very end: coalesced, wide stores, and blocks that do not all end at once",
}


def action_of(reason: str) -> str:
    """What to do about one reason; empty where nothing is to be done, or nobody knows what."""
    return _OTHERS.get(reason) or next((wait.action for wait in WAITS if reason in wait.reasons), "")
