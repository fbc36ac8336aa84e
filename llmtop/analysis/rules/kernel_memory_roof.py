"""A kernel runs at what the memory system can give: only fewer bytes make it faster."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.architecture import quantised_types
from llmtop.analysis.kernels.bounds import MARGIN_PERCENT, Bound, Verdict
from llmtop.analysis.kernels.family import KernelFamily
from llmtop.analysis.kernels.programs import COMPILED, Words
from llmtop.analysis.kernels.speed_of_light import throughput_parts
from llmtop.analysis.kernels.stalls import StallReason
from llmtop.analysis.rules import kernel_spills
from llmtop.analysis.rules.kernel_causes import is_explained
from llmtop.analysis.rules.kernel_evidence import HIGH_USE_PERCENT, Claim, JudgedKernel, claims_of, findings, heavy
from llmtop.analysis.rules.kernel_waits import is_waiting
from llmtop.model import Finding, Trace, Unknown
from llmtop.units import percent, si

id = "kernel-memory-roof"
summary = "The kernel is limited by memory and close to what the memory can do."
source = "Recasens et al., Mind the Memory Gap (arXiv:2503.08311); Nsight Compute, SpeedOfLight rule (60 %, 80 %)"

_REACHED_PERCENT = 86.0
"""Of the DRAM peak: what a plain copy reaches on an H100 (sample_traces/ncu/2025.3.1/copy-at-roof)."""
_TO_DRAM = f"what is left up to {_REACHED_PERCENT:.0f} % of the DRAM peak, which a plain copy reaches on an H100"
_ELSEWHERE = "; how much one reaches on {} was not measured"
_MEASURED = "H100"
_TO_NEXT = "what is left up to the next limit (arithmetic, issue slots, DRAM), were there no traffic to the caches"
_OF_TRAFFIC = re.compile(r"pipe_(?:lsu|tex)|_mio|^idc__|^l1tex__")
"""Those of the parts of compute throughput that loads and stores themselves are."""
_USED_OF_SECTORS = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"
ADVICE = ("SOLBottleneck", "SOLFPRoofline", "MemoryL2Compression")


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels whose memory throughput leads, at DRAM or in the caches."""
    yield from findings(id, source, claims_of(heavy(trace), judge), "at the roof of the memory, or on the way to it")


def judge(judged: JudgedKernel) -> Claim | None:
    """What is left up to the roof; None where memory is not the limit, or for a reason that another rule names."""
    verdict = judged.verdict
    if verdict is None or not _is_limit(verdict):
        return None
    in_dram = _in_dram(judged)
    if is_waiting(judged) or (not in_dram and is_explained(judged)) or kernel_spills.judge(judged) is not None:
        return None
    level = "DRAM" if in_dram else "cache and shared-memory"
    return Claim(
        judged,
        f"{_nearness(verdict)} {level} roof: {verdict.why}",
        _dram_action(judged) if in_dram else _cache_action(judged),
        judged.row.total_ns * (_left_to_dram(verdict) if in_dram else _left_to_next(judged, verdict)),
        _to_dram(judged.trace.origin.gpu) if in_dram else _TO_NEXT,
        (*_traffic(judged), *(() if in_dram else _of_compute(judged, verdict))),
        ("MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables", "SourceCounters"),
        ADVICE,
    )


def _to_dram(gpu: str) -> str:
    """What the time at stake is up to: of another board than that on which it was measured that is said."""
    return _TO_DRAM if _MEASURED in gpu else _TO_DRAM + _ELSEWHERE.format(gpu or "this GPU, which has no name here,")


def _in_dram(judged: JudgedKernel) -> bool:
    """Whether it is DRAM that leads, and not the caches."""
    verdict = judged.verdict
    return verdict is not None and verdict.dram is not None and verdict.dram >= verdict.memory - MARGIN_PERCENT


def _is_limit(verdict: Verdict) -> bool:
    """Whether memory leads, or both are about as busy and memory is not the less busy one."""
    return verdict.bound is Bound.MEMORY or (
        verdict.bound is Bound.BALANCED and verdict.memory >= (verdict.compute or 0.0)
    )


def _left_to_dram(verdict: Verdict) -> float:
    return max(0.0, 1 - verdict.memory / _REACHED_PERCENT)


def _left_to_next(judged: JudgedKernel, verdict: Verdict) -> float:
    """Without the traffic to the caches the next unit would be the limit."""
    apart = _compute_apart(judged)
    compute = verdict.compute or 0.0 if apart is None else apart[0]
    return max(0.0, 1 - max(compute, verdict.dram or 0.0) / verdict.memory)


def _compute_apart(judged: JudgedKernel) -> tuple[float, float] | None:
    """Compute throughput by what is no traffic, and by what is: loads and stores have a pipe in the SM too, in %.

    None where the report does not say what it is made of.
    """
    known = throughput_parts(judged.metrics, c.COMPUTE_PERCENT)
    traffic = [value for name, value in known.items() if _OF_TRAFFIC.search(name)]
    others = [value for name, value in known.items() if not _OF_TRAFFIC.search(name)]
    return (max(others), max(traffic, default=0.0)) if others else None


def _of_compute(judged: JudgedKernel, verdict: Verdict) -> Iterator[str]:
    """Why compute is as busy as memory, where it is."""
    apart = _compute_apart(judged)
    if verdict.bound is Bound.BALANCED and apart is None:
        yield "what makes up compute was not collected: where it is loads and stores, more can be won than is said here"
    elif apart is not None and apart[1] > apart[0]:
        own, rest = percent(apart[1]), percent(apart[0])
        yield f"compute {own} is the load-store units of the SM; the rest of it is {rest} (ncu)"


_WEIGHTS = "read fewer bytes for each token: a larger batch (more work for each weight read){}"
_QUANTISED = ", or quantised weights ({})"
_MATRIX = Words(
    pytorch=_WEIGHTS,
    other="do more for each element that is read: several vectors at once (a matrix product in the place of "
    "matrix-vector products), or a narrower type",
    training=Words(
        pytorch="do more for each weight that is read: a larger batch, or a narrower type (autocast to 16 bits)",
        other="",
    ),
)
_OF_ANY_PROGRAM = ("", "fp32", "fp64")
"""Types of matrices; with narrower ones it is a model's."""
_KV = "read less of the KV cache: quantise it (8 bits), share prefixes, or a model with fewer KV heads (GQA, MLA)"
_SENT = "send less: fewer or quantised all-reduces, or overlap them with compute"
_STAYS = "fuse it with the kernels before and after it, so that what is between them stays on the chip"
_STREAMING = Words(
    pytorch=f"{_STAYS} (torch.compile, fused norms and activations), or use a narrower type",
    compiled=f"{_STAYS} ({COMPILED}; fused norms and activations), or use a narrower type",
    directives="fuse its loop with those before and after it, so that what is between them stays on the chip, or use a "
    "narrower type",
    other=f"{_STAYS}, or use a narrower type",
)
_DRAM_ACTIONS = {
    KernelFamily.GEMM: _MATRIX,
    KernelFamily.GEMV: _MATRIX,
    KernelFamily.ATTENTION: Words(pytorch=_KV, other=_KV),
    KernelFamily.COMMUNICATION: Words(pytorch=_SENT, other=_SENT),
    **dict.fromkeys(
        (
            KernelFamily.ELEMENTWISE,
            KernelFamily.NORM,
            KernelFamily.COPY,
            KernelFamily.CONVERSION,
            KernelFamily.REDUCTION,
        ),
        _STREAMING,
    ),
}
_OTHER = "move fewer bytes: a narrower type, reuse of what was read (tiling), or fuse it with its neighbours"


_LIBRARY = (
    "move fewer bytes: a narrower type, another layout that needs no copy, what comes after it as the library's own "
    "epilogue, or another algorithm"
)


def _dram_action(judged: JudgedKernel) -> str:
    words = _DRAM_ACTIONS.get(judged.kind.family)
    is_matrix = judged.kind.family in (KernelFamily.GEMM, KernelFamily.GEMV)
    if is_matrix and (judged.kind.dtype not in _OF_ANY_PROGRAM or _MATRIX.of(judged.trace) == _WEIGHTS):
        types = quantised_types(judged.trace, judged.kind.dtype)
        return _WEIGHTS.format(_QUANTISED.format(types) if types else "")
    return words.of(judged.trace) if words else _LIBRARY if judged.kind.library else _OTHER


_WAITS_FOR_SHARED = (StallReason.MIO_THROTTLE, StallReason.SHORT_SCOREBOARD)
_WAITS_FOR_CACHES = (StallReason.LG_THROTTLE, StallReason.TEX_THROTTLE, StallReason.LONG_SCOREBOARD)
_MOST_OF_THE_WAITING = 0.5
_CACHES = (
    "DRAM is not the limit, the traffic between SM and caches is: coalesce accesses, use wider loads, keep values in "
    "registers (register tiling), avoid bank conflicts"
)
_SHARED = (
    "DRAM is not the limit, shared memory is: fewer and wider accesses to it (16 bytes a thread), several results a "
    "thread from values in registers (register tiling), shuffles within a warp"
)
_CACHED = (
    "DRAM is not the limit, loads from the caches are: keep what is used again in shared memory or registers (tiling), "
    "and load 16 bytes a thread at once"
)


def _cache_action(judged: JudgedKernel) -> str:
    if judged.kind.library:
        return (
            "DRAM is not the limit, the traffic between SM and caches is: try other sizes or layouts, a newer "
            "version of the library or another algorithm"
        )
    if judged.counter(_USED_OF_SECTORS) is None:
        return (
            "DRAM is not the limit, the traffic between SM and caches is; how the accesses lie (bytes used of each "
            "sector, bank conflicts) was not collected: the command collects it, and tells coalescing from wider "
            "loads, register tiling and padding"
        )
    shared, cached = judged.stalled(*_WAITS_FOR_SHARED), judged.stalled(*_WAITS_FOR_CACHES)
    if max(shared, cached) < _MOST_OF_THE_WAITING:
        return _CACHES
    return _SHARED if shared > cached else _CACHED


def _nearness(verdict: Verdict) -> str:
    return "at the" if round(verdict.memory) >= HIGH_USE_PERCENT else "on the way to the"  # as it is shown


def _traffic(judged: JudgedKernel) -> Iterator[str]:
    facts = judged.facts
    rates = () if isinstance(facts.roofline, Unknown) else facts.roofline.traffic
    for rate in rates:
        yield f"{rate.level} {si(rate.achieved, 'B/s')}, {percent(100 * rate.fraction)} of {si(rate.peak, 'B/s')} (ncu)"
    if not rates and not isinstance(facts.traffic, Unknown):
        yield str(facts.traffic)
    hits = {"L1": facts.l1_hits, "L2": facts.l2_hits}
    known = [f"{level} {percent(value)}" for level, value in hits.items() if not isinstance(value, Unknown)]
    if known:
        yield f"hit rates: {', '.join(known)} (ncu)"
