"""Loads and stores of a few bytes a thread: the memory pipeline is busy with instructions, not with bytes."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.kernels.counters import quotient
from llmtop.analysis.kernels.stalls import StallReason
from llmtop.analysis.rules import kernel_atomics
from llmtop.analysis.rules.kernel_evidence import HIGH_USE_PERCENT, Claim, JudgedKernel, claims_of, findings, heavy
from llmtop.analysis.rules.kernel_uncoalesced import excessive_share
from llmtop.model import Finding, Trace
from llmtop.units import number as text
from llmtop.units import percent

id = "kernel-narrow-accesses"
summary = "Each thread moves so few bytes at a time that memory instructions are the limit."
source = (
    "CUDA C++ Best Practices Guide (vectorised accesses); DeepSeek-OCR kernel-level profiling, V2 (vec4 and vec8 "
    "kernels)"
)

_FEW_BYTES = 64.0
"""A warp's request of 2 bytes a thread; 16 a thread (LDG.128) make 512."""
_WIDEST_BYTES = 512.0
_BUSY_PERCENT = 60.0
_HELD_UP = 0.3
"""Of the waiting: Nsight Compute's CPIStall rule takes a reason from here on."""
_LSU = (
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",
    "l1tex__lsuin_requests.avg.pct_of_peak_sustained_elapsed",
)
_SCATTERED = 0.3
"""Above this share of needless sectors the pattern is the cause, not the width."""


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels of which the code can be changed."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "narrow accesses to global memory")


def judge(judged: JudgedKernel) -> Claim | None:
    """What the kernel wastes; None where that is little, or not known, or another one's code."""
    width, held_up, verdict = _bytes_a_request(judged), _held_up(judged), judged.verdict
    if width is None or width > _FEW_BYTES or held_up < _HELD_UP or judged.kind.library:
        return None
    at_its_limit = verdict is not None and (verdict.dram or 0.0) >= HIGH_USE_PERCENT
    if at_its_limit or judged.is_small_grid or excessive_share(judged) > _SCATTERED:
        return None
    if kernel_atomics.judge(judged) is not None:  # the loads wait behind the updates, however wide they are
        return None
    claim = Claim(
        judged,
        f"narrow accesses: {text(width / 32)} bytes a thread at a time; more bytes under way would bring more",
        "let each thread load and store 16 bytes at once (float4, int4, uint4: LDG.128), several elements a thread",
        max(judged.slack_ns, judged.row.total_ns * _pipe(judged) / 100) * held_up * (1 - width / _WIDEST_BYTES),
        "what 16 bytes a thread would save of the time in which memory instructions are what it waits for",
        (f"{text(width)} bytes a request of a warp, load-store pipe {percent(_pipe(judged))} busy (ncu)",),
        ("SourceCounters", "MemoryWorkloadAnalysis_Tables"),
        ("CPIStall", "IssueSlotUtilization", "SOLBottleneck"),
    )
    return claim if claim.is_worthwhile else None


def _pipe(judged: JudgedKernel) -> float:
    return max(judged.counter(name) or 0.0 for name in _LSU)


def _held_up(judged: JudgedKernel) -> float:
    """How much of the time memory instructions are what it waits for, in their queue or for what they bring."""
    pipe = _pipe(judged) if _pipe(judged) >= _BUSY_PERCENT else 0.0
    return max(pipe / 100, judged.stalled(StallReason.LG_THROTTLE, StallReason.LONG_SCOREBOARD))


def _bytes_a_request(judged: JudgedKernel) -> float | None:
    """Of loads and stores of global memory together: sectors by the bytes used of each, over requests."""
    used = requests = 0.0
    for operation in ("ld", "st"):
        name = f"pipe_lsu_mem_global_op_{operation}.sum"
        ratio = judged.counter(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{operation}.ratio")
        sectors, asked = judged.counter(f"l1tex__t_sectors_{name}"), judged.counter(f"l1tex__t_requests_{name}")
        if sectors and asked and ratio:
            used, requests = used + sectors * ratio, requests + asked
    return quotient(used, requests)
