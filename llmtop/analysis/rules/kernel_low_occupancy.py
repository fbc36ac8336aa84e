"""Too few warps to hide what they wait for, because of what a block takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.bounds import Bound
from llmtop.analysis.kernels.occupancy import occupancy
from llmtop.analysis.kernels.occupancy_calculator import most_registers, sm_limits
from llmtop.analysis.kernels.stalls import StallReason
from llmtop.analysis.rules.kernel_causes import is_explained
from llmtop.analysis.rules.kernel_evidence import SLACK, Claim, JudgedKernel, claims_of, findings, heavy, occupancy_text
from llmtop.model import Finding, Trace, Unknown
from llmtop.units import binary_bytes, percent

id = "kernel-low-occupancy"
summary = "Warps wait and there are few of them: registers, shared memory or the block's size leave room for no more."
source = (
    "Recasens et al., Mind the Memory Gap (arXiv:2503.08311); Nsight Compute, TheoreticalOccupancy rule; CUDA "
    "C++ Programming "
    "Guide, occupancy"
)

LOW_PERCENT = 60.0
"""Of the warps an SM can hold. Ours: no source gives a number."""
_HIDDEN_BY_WARPS = (
    *(StallReason.LONG_SCOREBOARD, StallReason.SHORT_SCOREBOARD, StallReason.WAIT),
    *(StallReason.LG_THROTTLE, StallReason.TEX_THROTTLE),
)
"""Waits that more warps would fill."""
_WAITING = 0.3
"""Of all waiting: Nsight Compute's CPIStall rule takes a reason from here on."""
ADVICE = ("TheoreticalOccupancy", "AchievedOccupancy", "CPIStall", "IssueSlotUtilization", "SOLBottleneck")


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels of which the code can be changed."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "too few warps to hide what they wait for")


@lru_cache(maxsize=64)
def judge(judged: JudgedKernel) -> Claim | None:
    """What more warps could save; None where there are enough, or something else is the reason."""
    known, verdict = occupancy(judged.metrics), judged.verdict
    limit = known.achieved if isinstance(known.theoretical, Unknown) else known.theoretical
    if isinstance(limit, Unknown) or limit >= LOW_PERCENT or verdict is None or verdict.bound is not Bound.LATENCY:
        return None
    if judged.is_small_grid or not _waits(judged) or judged.kind.library or is_explained(judged):
        return None
    if isinstance(known.theoretical, Unknown) or not known.limits:
        return _without_cause(judged, limit)
    limiter, blocks = known.limits[0]
    claim = Claim(
        judged,
        f"occupancy is held to {percent(limit)} by {_TITLES.get(limiter, limiter)}, and {_waiting(judged)}",
        _action(judged, limiter, blocks) if _are_counted(judged) else f"{_FIRST}{_action(judged, limiter, blocks)}",
        judged.slack_ns * (1 - limit / 100),
        f"{SLACK}, by the share of warps that find no room",
        (occupancy_text(judged), _room(judged, limiter, blocks), *_top_stall(judged)),
        ("Occupancy", "LaunchStats", "WarpStateStats", "SourceCounters"),
        ADVICE,
    )
    return claim if claim.is_worthwhile else None


def _without_cause(judged: JudgedKernel, percents: float) -> Claim | None:
    claim = Claim(
        judged,
        f"occupancy {percent(percents)}, and no unit is busy; what limits it was not collected",
        "collect what limits it (the command below): registers, shared memory, the block's size and the grid have "
        "different remedies",
        judged.slack_ns * (1 - percents / 100),
        f"{SLACK}, by the share of warps that are not there",
        tuple(_top_stall(judged)),
        ("Occupancy", "LaunchStats", "WarpStateStats"),
        ADVICE,
    )
    return claim if claim.is_worthwhile else None


_TITLES = {"blocks of an SM": "the number of blocks an SM takes", "warps": "the block's size"}


def _waits(judged: JudgedKernel) -> bool:
    """Whether the waiting is of a kind that more warps hide; True where it is not known."""
    if isinstance(judged.facts.stalls, Unknown):
        return True
    return judged.stalled(*_HIDDEN_BY_WARPS) >= _WAITING


_FIRST = (
    "collect what its warps wait for first (the command below): more warps hide waits for memory and for dependent "
    "instructions, and not barriers or atomics; then "
)


def _are_counted(judged: JudgedKernel) -> bool:
    return not isinstance(judged.facts.stalls, Unknown)


def _waiting(judged: JudgedKernel) -> str:
    return "warps wait" if _are_counted(judged) else "no unit is busy; what warps wait for was not collected"


def _action(judged: JudgedKernel, limiter: str, blocks: int) -> str:
    threads = int(judged.counter("launch__block_size") or 0)
    match limiter:
        case "registers" if threads:
            fits = _most_registers(judged, threads, blocks + 1)
            return (
                f"use at most {fits} registers a thread so that one more block fits: "
                f"__launch_bounds__({threads}, {blocks + 1}), smaller tiles, fewer values alive; see that it does not "
                "spill"
            )
        case "shared memory":
            return "use less shared memory a block (smaller tiles, fewer stages), or let more threads share it"
        case "blocks of an SM":
            return (
                f"use larger blocks: {threads} threads a block times {blocks} blocks do not fill an SM; 128 to 256 do"
            )
        case _:
            return "use smaller blocks, so that what is left of an SM takes another one"


def _most_registers(judged: JudgedKernel, threads: int, blocks: int) -> int:
    sm = sm_limits(judged.metrics)
    return most_registers(threads, blocks, *(() if sm is None else (sm.registers, sm.schedulers)))


def _room(judged: JudgedKernel, limiter: str, blocks: int) -> str:
    shared = binary_bytes(judged.counter("launch__shared_mem_per_block") or 0)
    held = {
        "registers": f"{int(judged.counter(c.REGISTERS) or 0)} registers a thread",
        "shared memory": f"{shared} of shared memory a block",
    }.get(limiter, "")
    fits = (
        f"{blocks} block{'s' * (blocks != 1)} of {int(judged.counter('launch__block_size') or 0)} threads fit on an SM"
    )
    return f"{held}{': ' * bool(held)}{fits} (ncu)"


def _top_stall(judged: JudgedKernel) -> Iterator[str]:
    stalls = judged.facts.stalls
    if not isinstance(stalls, Unknown):
        reason, share = stalls.top
        yield f"{reason} {percent(100 * share)} of all waiting (ncu)"
