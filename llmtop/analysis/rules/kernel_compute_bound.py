"""A kernel keeps the SMs busy: which of their pipes, and whether that is what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmtop.analysis import counters as c
from llmtop.analysis.bounds import Bound, Verdict
from llmtop.analysis.gpus import find_gpu
from llmtop.analysis.roofline_kernels import KernelRoofline
from llmtop.analysis.rules.kernel_causes import is_explained
from llmtop.analysis.rules.kernel_evidence import HIGH_USE_PERCENT, Claim, Judged, findings, heavy
from llmtop.analysis.rules.kernel_waits import is_waiting
from llmtop.model import Finding, Trace, Unknown
from llmtop.units import percent, si

id = "kernel-compute-bound"
summary = "The kernel keeps the SMs busy; what they are busy with decides whether that is good."
source = (
    "Williams et al., Roofline (2009); Nsight Compute, SpeedOfLight (60 %), SOLFPRoofline (60 %) and "
    "HighPipeUtilization rules"
)

_NEAR_ROOF = 0.6
"""From this share of the FLOP peak on SOLFPRoofline speaks of high use."""
_BUSY_PERCENT = 50.0
"""Of a pipe: from here on it is what the SMs are busy with."""
_ISSUE_BUSY = 0.8
ADVICE = ("SOLBottleneck", "SOLFPRoofline", "HighPipeUtilization", "IssueSlotUtilization", "FPInstructions")


@dataclass(frozen=True, slots=True)
class _Pipe:
    names: tuple[str, ...]
    title: str
    action: str


def _percent_names(*pipes: str) -> tuple[str, ...]:
    kinds = ("avg.pct_of_peak_sustained_elapsed", "avg.pct_of_peak_sustained_active")
    return tuple(f"sm__{pipe}.{kind}" for kind in kinds for pipe in pipes)


_TENSOR = _Pipe(
    c.TENSOR_PERCENT,
    "tensor cores",
    "only fewer or cheaper operations help: FP8 or INT8 weights and activations, or less work (prefix cache)",
)
_PIPES = (
    _TENSOR,
    _Pipe(
        _percent_names("pipe_fp64_cycles_active", "inst_executed_pipe_fp64"),
        "FP64",
        "compute in single precision where that is exact enough (look for literals without f, and double constants): "
        "FP64 has half the rate of FP32 on data-centre GPUs and 1/64 on others",
    ),
    _Pipe(
        _percent_names("inst_executed_pipe_xu"),
        "special functions",
        "compute fewer exponentials, sines, roots and conversions: cheaper forms (exp2 with a scaled argument), "
        "polynomials "
        "on the FMA pipe, tables",
    ),
    _Pipe(
        _percent_names("pipe_fma_cycles_active", "inst_executed_pipe_fma"),
        "FMA",
        "FP32 arithmetic is the limit: half precision (two at once), tensor cores, or fewer operations",
    ),
    _Pipe(
        _percent_names("pipe_alu_cycles_active", "inst_executed_pipe_alu"),
        "ALU",
        "cut integer and logic instructions: address computation (32-bit indices, pointers that advance), comparisons, "
        "divisions and type conversions",
    ),
    _Pipe(
        _percent_names("inst_executed_pipe_lsu"),
        "load-store",
        "issue fewer memory instructions: 16 bytes a thread at once, values kept in registers",
    ),
)
_LIBRARY = (
    "only fewer or cheaper operations help: a lower precision, another algorithm of the library or a newer "
    "version of it"
)
_UNKNOWN = "see which pipe is busy"


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels whose compute throughput leads."""
    claims = [claim for judged in heavy(trace) if (claim := judge(judged)) is not None]
    yield from findings(id, source, claims, "compute-bound")


def judge(judged: Judged) -> Claim | None:
    """What the SMs are busy with; None where they are not the limit, or for a reason that another rule names."""
    verdict = judged.verdict
    if verdict is None or not _is_limit(verdict) or is_explained(judged) or is_waiting(judged):
        return None
    pipe = busiest_pipe(judged)
    near = _is_near_its_roof(judged)
    busy = f": {pipe[0].title} {percent(pipe[1])} busy" if pipe else ""
    return Claim(
        judged,
        f"compute-bound{busy}; {verdict.why}" + ("; near the floating-point peak" if near else ""),
        _action(judged, None if pipe is None else pipe[0]),
        judged.row.total_ns * _saved(judged, None if pipe is None else pipe[0]),
        tuple(_evidence(judged)),
        ("ComputeWorkloadAnalysis", "InstructionStats", "SourceCounters"),
        ADVICE,
    )


def _is_limit(verdict: Verdict) -> bool:
    """Whether compute leads, or both are about as busy and compute is the busier one."""
    is_busier = verdict.compute is not None and verdict.compute > verdict.memory
    return verdict.bound is Bound.COMPUTE or (verdict.bound is Bound.BALANCED and is_busier)


def busiest_pipe(judged: Judged) -> tuple[_Pipe, float] | None:
    """The pipe with the most use, in %; None where none was collected or none is what the SMs are busy with."""
    used = [(pipe, value) for pipe in _PIPES if (value := c.first(judged.metrics, pipe.names)) is not None]
    busiest = max(used, key=lambda pair: pair[1], default=None)
    return busiest if busiest is not None and busiest[1] >= _BUSY_PERCENT else None


def _is_near_its_roof(judged: Judged) -> bool:
    roofline = judged.facts.roofline
    return isinstance(roofline, KernelRoofline) and bool(roofline.work) and roofline.work[0].fraction >= _NEAR_ROOF


def _action(judged: Judged, pipe: _Pipe | None) -> str:
    if pipe is _TENSOR:
        return pipe.action
    if judged.kind.library:
        return _LIBRARY
    if pipe is not None:
        return pipe.action
    issuing = judged.counter(c.ISSUE_ACTIVE)
    if issuing is not None and issuing >= _ISSUE_BUSY:
        return (
            "issuing is the limit: fewer instructions for the same work (vector types, fused multiply-adds, less "
            "index arithmetic)"
        )
    return _UNKNOWN


def _saved(judged: Judged, pipe: _Pipe | None) -> float:
    """What is left up to high use; on the FP64 pipe, what single precision would save."""
    verdict = judged.verdict
    left = 0.0 if verdict is None else max(0.0, 1 - verdict.busiest / HIGH_USE_PERCENT)
    gpu = find_gpu(judged.kernels.gpu)
    if pipe is None or pipe.title != "FP64" or isinstance(gpu, Unknown):
        return left
    # Without a published FP64 peak the chip is one that has next to none.
    return max(left, 1 - gpu.peaks.get("fp64", gpu.peaks["fp32"] / 64) / gpu.peaks["fp32"])


def _evidence(judged: Judged) -> Iterator[str]:
    roofline = judged.facts.roofline
    for rate in () if isinstance(roofline, Unknown) else roofline.work:
        yield f"{rate.level} {si(rate.achieved, 'FLOP/s')}, {percent(100 * rate.fraction)} of the peak (ncu)"
    issuing = judged.counter(c.ISSUE_ACTIVE)
    if issuing is not None:
        yield f"issue slots {percent(100 * issuing)} used (ncu)"
