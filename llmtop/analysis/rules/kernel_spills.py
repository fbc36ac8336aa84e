"""Registers that did not suffice: values live in local memory, which is DRAM behind the caches."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.kernels.counters import quotient
from llmtop.analysis.rules.kernel_evidence import BUSY, Claim, JudgedKernel, busy_share, claims_of, findings, heavy
from llmtop.model import Finding, Trace, Unknown
from llmtop.units import percent, si

id = "kernel-spills"
summary = "The kernel spends its memory traffic on values that do not fit into its registers."
source = "CUDA C++ Best Practices Guide, local memory and register pressure; Nsight Compute, local memory tables"

_NOTABLE_SHARE = 0.1
"""Of the sectors of global and local memory together. Ours."""
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_{}_op_{}.sum"
_SPILLED = ("derived__local_spilling_requests", "sass__inst_executed_register_spilling")


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels of which the code can be changed."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "local memory for what does not fit into registers")


def judge(judged: JudgedKernel) -> Claim | None:
    """What the kernel wastes; None where that is little, or not known, or another one's code."""
    share = quotient(_moved(judged, "local"), _moved(judged, "local") + _moved(judged, "global"))
    if share is None or share < _NOTABLE_SHARE or judged.kind.library:
        return None
    registers = judged.facts.registers
    held = "" if isinstance(registers, Unknown) else f"{registers} registers a thread (ncu)"
    claim = Claim(
        judged,
        f"{_cause(judged)}: {percent(100 * share)} of its memory accesses are to local memory",
        "let a thread have more registers (a smaller second number in __launch_bounds__, no -maxrregcount), or "
        "keep fewer "
        "values alive: smaller tiles, less unrolling, no arrays indexed by a variable",
        judged.row.total_ns * share * busy_share(judged),
        f"the share of local memory, by {BUSY}",
        tuple(text for text in (f"{si(_moved(judged, 'local'))} sectors of local memory (ncu)", held) if text),
        ("SourceCounters", "MemoryWorkloadAnalysis_Tables", "LaunchStats"),
    )
    return claim if claim.is_worthwhile else None


def _moved(judged: JudgedKernel, memory: str) -> float:
    return sum(judged.counter(_SECTORS.format(memory, operation)) or 0.0 for operation in ("ld", "st"))


def _cause(judged: JudgedKernel) -> str:
    """Newer reports tell spills from arrays that are indexed by a variable."""
    spilled = [value for name in _SPILLED if (value := judged.counter(name)) is not None]
    return "register spills" if not spilled or any(spilled) else "local arrays"
