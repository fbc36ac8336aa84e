"""Warps in which few threads work: they take branches one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.rules.kernel_evidence import Claim, JudgedKernel, claims_of, findings, heavy
from llmtop.model import Finding, Trace
from llmtop.units import number as text
from llmtop.units import percent

id = "kernel-divergence"
summary = "Most threads of a warp are switched off while the others take another path."
source = "Nsight Compute, ThreadDivergence rule (24 of 32 threads); CUDA C++ Best Practices Guide, branching"

_WARP = 32.0
_FEW_THREADS = 16.0
"""Half of a warp. Ours; NVIDIA's rule speaks below 24."""
ADVICE = ("ThreadDivergence",)


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels of which the code can be changed."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "diverging warps")


def judge(judged: JudgedKernel) -> Claim | None:
    """What the kernel wastes: issue slots for threads that are off, as far as issuing is what takes the time."""
    # Predicated-off threads cost the same, but are one short branch turned into no branch: fewer of both tells.
    active = judged.counter("smsp__thread_inst_executed_per_inst_executed.ratio")
    working = judged.counter("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio")
    threads = min((value for value in (active, working) if value), default=_WARP)
    if threads > _FEW_THREADS or judged.kind.library:
        return None
    issuing = judged.counter(c.ISSUE_ACTIVE)
    verdict = judged.verdict
    busy = max(issuing or 0.0, 0.0 if verdict is None or verdict.compute is None else verdict.compute / 100)
    claim = Claim(
        judged,
        f"diverging warps: {text(threads)} of 32 threads work at each instruction",
        "let the threads of a warp take the same path: sort or group the work by path, or compute both and select",
        judged.row.total_ns * (1 - threads / _WARP) * min(1.0, busy),
        "the share of threads that are off, by the use of the SMs",
        (f"issue slots used {percent(100 * busy)} (ncu)",),
        ("SourceCounters", "InstructionStats"),
        ADVICE,
    )
    return claim if claim.is_worthwhile else None
