"""Matrix work that could run on tensor cores and runs on the ordinary pipes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llmtop.analysis.gpus.models import find_gpu
from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.architecture import tensor_types_used
from llmtop.analysis.kernels.counters import first
from llmtop.analysis.kernels.family import KernelFamily
from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.kernels.table import has_counters
from llmtop.analysis.rules.kernel_evidence import Claim, JudgedKernel, claims_of, findings, heavy
from llmtop.model import Finding, Trace, Unknown
from llmtop.units import percent, si

id = "kernel-tensor-missed"
summary = "A matrix multiplication keeps the FP32 pipes busy, and the tensor cores idle."
source = (
    "Machine Learning Systems, Performance Engineering (tensor-core miss); cuBLAS documentation, tensor core usage "
    "(sizes of a multiple of 8 or 16)"
)

_IDLE_PERCENT = 1.0
_BUSY_PERCENT = 40.0
"""Of the FMA pipe: below it arithmetic is not what such a kernel waits for."""
_REACHED = 0.6
"""Of a tensor peak, by good matrix kernels (stas00/ml-engineering, MAMF: 0.73 to 0.87 of bf16)."""
_FMA = (
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
)
_OWN = (
    "compute it on tensor cores: a library (cuBLAS, CUTLASS), or mma instructions in place of the loop of multiply-adds"
)
_OWN_TF32 = f"{_OWN}; inputs in bf16 or fp16, or fp32 rounded to tf32 where that is exact enough"
_OWN_FP16 = f"{_OWN}; inputs in fp16"
_TF32 = Words(
    pytorch="let fp32 multiplications use tf32 (torch.set_float32_matmul_precision('high'), "
    "NVIDIA_TF32_OVERRIDE=1), or run the layer in bf16",
    other="let fp32 multiplications use tf32 (CUBLAS_COMPUTE_32F_FAST_TF32, NVIDIA_TF32_OVERRIDE=1), or give it inputs "
    "in bf16",
)
_FP16 = Words(
    pytorch="run the layer in fp16 (torch.autocast('cuda', torch.float16)); tensor cores of this GPU multiply no fp32",
    other="give it inputs in fp16 (CUBLAS_COMPUTE_32F): tensor cores of this GPU multiply no fp32",
    training=Words(
        pytorch="run the layer in fp16 with scaled losses (torch.autocast('cuda', torch.float16), "
        "torch.amp.GradScaler); tensor cores of this GPU multiply no fp32",
        other="",
    ),
)
_FROM_AMPERE = "; both need compute capability 8.0 or newer, older tensor cores multiply fp16"
"""Where the capture does not tell which GPU it is of."""
_PADDED = "to multiples of 8, of 16 for 8-bit types, so that cuBLAS takes a tensor kernel"
_SIXTEEN = Words(
    pytorch=f"pad the sizes (hidden, vocabulary, head) {_PADDED}",
    other=f"pad the sizes and leading dimensions of the matrices {_PADDED}",
)


def check(trace: Trace) -> Iterator[Finding]:
    """Heavy kernels, of GPUs that have tensor cores."""
    if tensor_types_used(trace) == frozenset():
        return
    tell = judge if has_counters(trace) else judge_by_name
    yield from findings(id, source, claims_of(heavy(trace, counted=False), tell), "matrix work without tensor cores")


def judge(judged: JudgedKernel) -> Claim | None:
    """What tensor cores would save; None where it is no matrix work, uses them, or waits for something else."""
    if (
        judged.kind.family not in (KernelFamily.GEMM, KernelFamily.CONVOLUTION)
        or _uses_tensor_cores(judged) is not False
    ):
        return None
    fma, verdict = first(judged.metrics, _FMA), judged.verdict
    if fma is None or fma < _BUSY_PERCENT or (verdict is not None and (verdict.dram or 0.0) > fma):
        return None
    left = _time_left(judged)
    claim = Claim(
        judged,
        f"{judged.kind.dtype or 'matrix'} multiplication on the FMA pipe ({percent(fma)} busy), tensor cores idle",
        _action(judged),
        judged.row.total_ns * (_SAVED_UNKNOWN if left is None else max(0.0, 1 - left)),
        _GUESSED
        if left is None
        else f"its time less what {percent(100 * _REACHED)} of the {_slowest(judged.trace)} peak would take",
        tuple(_evidence(judged)),
        ("ComputeWorkloadAnalysis", "InstructionStats"),
        ("FPInstructions",),
    )
    return claim if claim.is_worthwhile else None


_FMA_NAME = re.compile(r"(?:^|_)sgemm|simt_|_ffma_|scudnn|gemmSN|f32f32_f32f32")
"""Libraries say so in the names of kernels that multiply in fp32 without tensor cores."""
_SAVED_UNKNOWN = 0.5
"""Where their rate, or the GPU's, is not known: most wait for arithmetic, which tensor cores do 7 times as fast."""
_GUESSED = "half of its time: a guess, as its FLOP/s or the peak of the GPU's tensor cores is not known"


def judge_by_name(judged: JudgedKernel) -> Claim | None:
    """The same of a timeline, which has names alone."""
    kind, name = judged.kind, judged.kernels.table.name(judged.launch)
    is_fp32 = kind.dtype == "fp32" and kind.library and _FMA_NAME.search(name)
    if kind.family not in (KernelFamily.GEMM, KernelFamily.CONVOLUTION) or not is_fp32:
        return None
    claim = Claim(
        judged,
        "by its name it multiplies in fp32 without tensor cores",
        _of_fp32(judged.trace),
        judged.row.total_ns * _SAVED_UNKNOWN,
        _GUESSED,
        sections=("ComputeWorkloadAnalysis", "SpeedOfLight"),
    )
    return claim if claim.is_worthwhile else None


def _uses_tensor_cores(judged: JudgedKernel) -> bool | None:
    """None where the pipe was not collected."""
    busy = first(judged.metrics, c.TENSOR_PERCENT)
    return None if busy is None else busy >= _IDLE_PERCENT


def _action(judged: JudgedKernel) -> str:
    if not judged.kind.library:
        types = tensor_types_used(judged.trace)
        return _OWN_FP16 if types is not None and "tf32" not in types else _OWN_TF32
    is_narrow = judged.kind.dtype in ("bf16", "fp16", "fp8", "int8")
    return _SIXTEEN.of(judged.trace) if is_narrow else _of_fp32(judged.trace)


def _of_fp32(trace: Trace) -> str:
    """What lets fp32 multiplications run on the tensor cores that the GPU has."""
    types = tensor_types_used(trace)
    if types is None:
        return _TF32.of(trace) + _FROM_AMPERE
    return (_TF32 if "tf32" in types else _FP16).of(trace)


def _slowest(trace: Trace) -> str:
    """The type that its tensor cores multiply slowest, of those that fp32 can be rounded to."""
    types = tensor_types_used(trace)
    return "fp16" if types is not None and "tf32" not in types else "tf32"


def _time_left(judged: JudgedKernel) -> float | None:
    """Of its time, if the work ran at what tensor cores reach of the slowest of their types."""
    gpu, rate, slowest = find_gpu(judged.kernels.gpu), _rate(judged), _slowest(judged.trace)
    if isinstance(gpu, Unknown) or rate is None or slowest not in gpu.peaks:
        return None
    return rate / (_REACHED * gpu.peaks[slowest])


def _rate(judged: JudgedKernel) -> float | None:
    roofline = judged.facts.roofline
    return None if isinstance(roofline, Unknown) or not roofline.work else roofline.work[0].achieved


def _evidence(judged: JudgedKernel) -> Iterator[str]:
    rate, gpu, slowest = _rate(judged), find_gpu(judged.kernels.gpu), _slowest(judged.trace)
    if rate is not None:
        peak = (
            ""
            if isinstance(gpu, Unknown) or slowest not in gpu.peaks
            else f"; {slowest} peak {si(gpu.peaks[slowest], 'FLOP/s')}"
        )
        yield f"{si(rate, 'FLOP/s')} (ncu){peak}"
