"""A kernel keeps the SMs busy: which of their pipes, and whether that is what it is for."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.architecture import narrower_types, tensor_types_used
from llmtop.analysis.kernels.bounds import Bound, Verdict
from llmtop.analysis.kernels.double_precision import OPCODES, Divisions, fp64_divisions, fp64_rate
from llmtop.analysis.kernels.roofline import KernelRoofline, Rate
from llmtop.analysis.rules import kernel_enough_warps
from llmtop.analysis.rules.kernel_causes import is_explained
from llmtop.analysis.rules.kernel_evidence import SLACK, Claim, JudgedKernel, claims_of, findings, heavy
from llmtop.analysis.rules.kernel_waits import is_waiting
from llmtop.frozen import frozen
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
_NOTABLE_DIVISIONS = 0.1
"""Of the FP64 instructions. Ours."""
_FAR_BELOW = 0.85
"""Of a pipe's use: a share of the peak up to here asks for an explanation. Ours."""
ADVICE = ("SOLBottleneck", "SOLFPRoofline", "HighPipeUtilization", "IssueSlotUtilization", "FPInstructions")


@frozen
class _Pipe:
    """A pipe of an SM.

    Attributes:
        names: Its use, in %.
        level: The rate of the roofline that is made in it.
        others: What else it does than multiply-adds.
    """

    names: tuple[str, ...]
    title: str
    action: str
    level: str = ""
    others: str = ""


def _percent_names(*pipes: str) -> tuple[str, ...]:
    kinds = ("avg.pct_of_peak_sustained_elapsed", "avg.pct_of_peak_sustained_active")
    return tuple(f"sm__{pipe}.{kind}" for kind in kinds for pipe in pipes)


_TENSOR = _Pipe(
    c.TENSOR_PERCENT,
    "tensor cores",
    "only fewer or cheaper operations help: {}less work (of a language model: a prefix cache)",
)
_FP64 = _Pipe(
    _percent_names("pipe_fp64_cycles_active", "inst_executed_pipe_fp64"),
    "FP64",
    "compute in single precision where that is exact enough: one double variable, constant or literal makes all "
    "of an expression double",
    "FP64",
    "additions and multiplications make one, comparisons none",
)
_PIPES = (
    _TENSOR,
    _FP64,
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
        "FP32 arithmetic is the limit: {}fewer operations",
        "FP32",
        "additions and multiplications make one, those of integers none",
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
    yield from findings(id, source, claims_of(heavy(trace), judge), "compute-bound")


def judge(judged: JudgedKernel) -> Claim | None:
    """What the SMs are busy with; None where they are not the limit, or for a reason that another rule names."""
    verdict = judged.verdict
    if verdict is None or not _is_limit(verdict) or is_explained(judged) or is_waiting(judged):
        return None
    if kernel_enough_warps.judge(judged) is not None:
        return None
    pipe = busiest_pipe(judged)
    near = _is_near_its_roof(judged)
    busy = f": {pipe[0].title} {percent(pipe[1])} busy" if pipe else ""
    return Claim(
        judged,
        f"compute-bound{busy}; {verdict.why}" + ("; near the floating-point peak" if near else ""),
        _action(judged, None if pipe is None else pipe[0]),
        *_stake(judged, pipe),
        tuple(_evidence(judged, pipe)),
        ("ComputeWorkloadAnalysis", "InstructionStats", "SourceCounters"),
        ADVICE,
    )


def _is_limit(verdict: Verdict) -> bool:
    """Whether compute leads, or both are about as busy and compute is the busier one."""
    is_busier = verdict.compute is not None and verdict.compute > verdict.memory
    return verdict.bound is Bound.COMPUTE or (verdict.bound is Bound.BALANCED and is_busier)


def busiest_pipe(judged: JudgedKernel) -> tuple[_Pipe, float] | None:
    """The pipe with the most use, in %; None where none was collected or none is what the SMs are busy with."""
    used = [(pipe, value) for pipe in _PIPES if (value := c.first(judged.metrics, pipe.names)) is not None]
    busiest = max(used, key=lambda pair: pair[1], default=None)
    return busiest if busiest is not None and busiest[1] >= _BUSY_PERCENT else None


def _is_near_its_roof(judged: JudgedKernel) -> bool:
    roofline = judged.facts.roofline
    return isinstance(roofline, KernelRoofline) and bool(roofline.work) and roofline.work[0].fraction >= _NEAR_ROOF


def _action(judged: JudgedKernel, pipe: _Pipe | None) -> str:
    if pipe is _TENSOR:
        types = narrower_types(judged.trace, judged.kind.dtype)
        return pipe.action.format(f"inputs in {types}, or " if types else "")
    if judged.kind.library:
        return _LIBRARY
    if pipe is _FP64:
        return _fp64_action(judged)
    if pipe is not None:
        has_tensor_cores = tensor_types_used(judged.trace) != frozenset()
        return pipe.action.format("half precision (two at once), tensor cores, or " if has_tensor_cores else "")
    issuing = judged.counter(c.ISSUE_ACTIVE)
    if issuing is not None and issuing >= _ISSUE_BUSY:
        return (
            "issuing is the limit: fewer instructions for the same work (vector types, fused multiply-adds, less "
            "index arithmetic)"
        )
    return _UNKNOWN


def _fp64_action(judged: JudgedKernel) -> str:
    rate = fp64_rate(judged.metrics, judged.kernels.gpu)
    slower = "" if rate is None else f" (FP64 has 1/{rate.fp32_per_fp64:.0f} of the FP32 rate here: {rate.source})"
    first = "divide less (multiply by a reciprocal that is computed once); then " if _divisions(judged) else ""
    return f"{first}{_FP64.action}{slower}"


def _divisions(judged: JudgedKernel) -> Divisions | None:
    """Where they are a notable part of the FP64 work."""
    details = judged.kernels.table.details
    divisions = None if details is None else fp64_divisions(details.instances(judged.launch, OPCODES))
    return divisions if divisions is not None and divisions.share >= _NOTABLE_DIVISIONS else None


def _stake(judged: JudgedKernel, pipe: tuple[_Pipe, float] | None) -> tuple[float, str]:
    """What is left up to high use; of the FP64 pipe's time, what its action would save where that is more."""
    if pipe is None or pipe[0] is not _FP64 or judged.kind.library:
        return judged.slack_ns, SLACK
    rate, divisions = fp64_rate(judged.metrics, judged.kernels.gpu), _divisions(judged)
    left = 1.0 if rate is None else 1 / rate.fp32_per_fp64
    basis = "the time of the FP64 pipe, less what the same operations take in FP32"
    if divisions is not None:
        left *= 1 - divisions.share
        basis = "the time of the FP64 pipe, less what its operations without divisions take in FP32"
    saved_ns = judged.row.total_ns * pipe[1] / 100 * (1 - left)
    return (saved_ns, basis) if saved_ns > judged.slack_ns else (judged.slack_ns, SLACK)


def _evidence(judged: JudgedKernel, pipe: tuple[_Pipe, float] | None) -> Iterator[str]:
    roofline = judged.facts.roofline
    rates = () if isinstance(roofline, Unknown) else roofline.work
    for rate in rates:
        yield f"{rate.level} {si(rate.achieved, 'FLOP/s')}, {percent(100 * rate.fraction)} of the peak (ncu)"
        if pipe is not None and rate.level == pipe[0].level:
            yield from _busier_than_its_rate(judged, pipe[0], rate)
    divisions = _divisions(judged) if pipe is not None and pipe[0] is _FP64 else None
    if divisions is not None:
        yield (
            f"{si(divisions.count)} warp instructions start a division or reciprocal (MUFU.RCP64H): up to "
            f"{percent(100 * divisions.share)} of its FP64 instructions (ncu)"
        )
    issuing = judged.counter(c.ISSUE_ACTIVE)
    if issuing is not None:
        yield f"issue slots {percent(100 * issuing)} used (ncu)"


def _busier_than_its_rate(judged: JudgedKernel, pipe: _Pipe, rate: Rate) -> Iterator[str]:
    """Why a pipe can be much busier than its share of the peak says."""
    # Of all cycles, as the rate is: of the active ones it is busier wherever SMs rest.
    percents = c.first(judged.metrics, (name for name in pipe.names if name.endswith("elapsed")))
    if percents is not None and rate.fraction <= _FAR_BELOW * percents / 100:
        yield (
            f"a pipe {percent(percents)} busy makes less than that of the peak: the peak takes each instruction for a "
            f"multiply-add of two operations, here it makes {200 * rate.fraction / percents:.2g} on average "
            f"({pipe.others})"
        )
