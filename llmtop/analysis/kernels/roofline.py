"""Roofline points of profiled kernels, from the counters a report holds.

Achieved and peak rates are both taken from the same launch, so that a point stands where it does at the clocks it
ran at. The formulas are those of NVIDIA's own section files (SpeedOfLight_RooflineChart and
SpeedOfLight_Hierarchical*RooflineChart, Nsight Compute 2024.1 to 2026.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product as pairs

from llmtop.analysis.commands.profiling import TENSOR_ROOFLINE
from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.counters import Counters, first, number, product, total
from llmtop.analysis.kernels.traffic import dram_bytes_per_s
from llmtop.analysis.views import Quality, Refusal, Roof, RooflinePoint
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.units import percent

SOURCE = "ncu"
TENSOR_BUSY_PERCENT = 5.0
"""A tensor pipe busier than this does work that FP32, FP64 and FP16 counters do not see."""

_SASS = "sass_thread_inst_executed_op"
_TENSOR = re.compile(
    r"sm__ops_path_tensor_src_(?P<type>\w+?)(?P<sparsity>_sparsity_(?:off|on))?\.sum\.per_cycle_elapsed"
)
_OLD_TENSOR_OPS = 512
"""Operations per tensor instruction in the section files up to 2024.1: one weight for every type, so only a guess."""
_L1_NAMES = ("lsu_writeback_active_mem_lgds", "lsu_writeback_active_mem_lg", "lsu_writeback_active")
"""Compute capability 9.0 and newer, 7.5 to 8.9, 7.0 to 7.2."""


@frozen
class Rate:
    """What was achieved of one resource, and its peak, both per second.

    Attributes:
        level: "FP32", "bf16 tensor" ... for work (FLOP/s), "DRAM", "L2", "L1" for traffic (bytes/s).
    """

    level: str
    achieved: float
    peak: float
    quality: Quality = Quality.MEASURED

    @property
    def fraction(self) -> float:
        """Achieved over peak."""
        return self.achieved / self.peak


@frozen
class KernelRoofline:
    """One launch on the roofline.

    Attributes:
        work: FLOP rates above zero, the largest first; what the kernel is judged by is `work[0]`.
        traffic: Byte rates, DRAM first, of the levels that were collected.
        roofs: Peaks of everything that was collected, also of what the kernel does not use.
        refusals: What cannot be placed, and why.
    """

    work: tuple[Rate, ...]
    traffic: tuple[Rate, ...]
    roofs: tuple[Roof, ...]
    refusals: tuple[Refusal, ...]

    @property
    def fraction(self) -> float | None:
        """How near the roof: FLOP/s over min(peak, intensity x DRAM peak), which is the larger of the two fractions.

        A kernel without floating-point work has the limit of that for zero intensity: its share of the DRAM roof.
        """
        dram = self.dram
        if dram is None or (self.refusals and not self.work):
            return None
        return max(self.work[0].fraction, dram.fraction) if self.work else dram.fraction

    @property
    def dram(self) -> Rate | None:
        """The DRAM traffic, when it was collected."""
        return next((rate for rate in self.traffic if rate.level == "DRAM"), None)

    def points(self, label: str, weight: float = 1.0) -> tuple[RooflinePoint, ...]:
        """A point for each precision and memory level with traffic; the first is the kernel's own."""
        return tuple(
            _point(label, weight, work, traffic) for work, traffic in pairs(self.work, self.traffic) if traffic.achieved
        )


def kernel_roofline(metrics: Counters, label: str = "kernel", half: float | None = None) -> KernelRoofline:
    """Place one launch.

    A tensor kernel whose tensor operations were not counted gets no point at all: its FP32 counters describe the
    epilogue, not the work.

    Args:
        metrics: Its counters.
        label: What to call it.
        half: Of its fused multiply-adds in half precision the share that computes; None where nobody knows. Compilers
            make constants with others, and the counters take those for four operations each.
    """
    traffic = tuple(_traffic(metrics))
    scalar = tuple(_scalar_work(metrics, half))
    tensor = tuple(_tensor_work(metrics))
    refusals = tuple(_refusals(metrics, label, scalar, tensor, traffic))
    placed = () if refusals else tuple(rate for rate in scalar + tensor if rate.achieved > 0)
    return KernelRoofline(
        work=tuple(sorted(placed, key=lambda rate: -rate.achieved)),
        traffic=traffic,
        roofs=tuple(_roofs(scalar + tensor, traffic, number(metrics, "sm__cycles_elapsed.avg.per_second"))),
        refusals=refusals,
    )


def _point(label: str, weight: float, work: Rate, traffic: Rate) -> RooflinePoint:
    return RooflinePoint(
        label=label,
        intensity=work.achieved / traffic.achieved,
        flops_per_s=work.achieved,
        bytes_per_s=traffic.achieved,
        precision=work.level,
        source=SOURCE,
        quality=work.quality,
        level=traffic.level,
        weight=weight,
        roof_fraction=max(work.fraction, traffic.fraction),
    )


def _roofs(work: Iterable[Rate], traffic: Iterable[Rate], clock: float | None) -> Iterator[Roof]:
    source = "ncu: peak per cycle at the clock of the capture"
    yield from (Roof("memory", rate.level, rate.peak, source) for rate in traffic)
    mhz = None if clock is None else clock / 1e6
    yield from (Roof("compute", rate.level, rate.peak, source, mhz=mhz) for rate in work)


def _rate(
    level: str, achieved: float | None, peak: float | None, quality: Quality = Quality.MEASURED
) -> Iterator[Rate]:
    """The rate, if both sides of it are known."""
    if achieved is not None and peak:
        yield Rate(level, achieved, peak, quality)


def _scalar_work(metrics: Counters, half: float | None) -> Iterator[Rate]:
    achieved_clock = number(metrics, "smsp__cycles_elapsed.avg.per_second")
    peak_clock = number(metrics, "sm__cycles_elapsed.avg.per_second")
    for level, letter in (("FP32", "f"), ("FP64", "d")):
        per_cycle = total(
            (_executed(metrics, f"{letter}add"), _executed(metrics, f"{letter}mul"), _fma(metrics, letter))
        )
        yield from _rate(level, product(per_cycle, achieved_clock), product(_fma_peak(metrics, letter), peak_clock))
    others, fused, peak = _half(metrics)
    per_cycle = total((others, product(fused, 1.0 if half is None else half)))
    quality = Quality.UPPER_BOUND if fused and half is None else Quality.MEASURED
    yield from _rate("FP16", product(per_cycle, achieved_clock), product(peak, peak_clock), quality)


def _executed(metrics: Counters, operation: str) -> float | None:
    return number(metrics, f"smsp__{_SASS}_{operation}_pred_on.sum.per_cycle_elapsed")


def _fma(metrics: Counters, letter: str) -> float | None:
    """A fused multiply-add is two operations; the section files store the product."""
    stored = number(metrics, f"derived__smsp__{_SASS}_{letter}fma_pred_on_x2")
    return stored if stored is not None else product(2.0, _executed(metrics, f"{letter}fma"))


def _fma_peak(metrics: Counters, letter: str) -> float | None:
    stored = number(metrics, f"derived__sm__{_SASS}_{letter}fma_pred_on_x2")
    return (
        stored
        if stored is not None
        else product(2.0, number(metrics, f"sm__{_SASS}_{letter}fma_pred_on.sum.peak_sustained"))
    )


def has_fused_half(metrics: Counters) -> bool:
    """Whether a launch executed fused multiply-adds in half precision, of which it may matter whether they compute."""
    return bool(_half(metrics)[1])


def _half(metrics: Counters) -> tuple[float | None, float | None, float | None]:
    """FP16 operations per cycle but the fused, the fused, and their peak, by the weights of the report's version.

    Since 2025.1 packed half2 instructions count their two lanes (add and multiply x2, fused x4); up to 2024.1 they
    counted one. Either is a fraction of its own peak; mixing them is off by two.
    """
    packed = number(metrics, f"derived__sm__{_SASS}_hfma_pred_on_x4")
    if packed is not None:
        add, multiply, fused = (number(metrics, f"derived__smsp__{_SASS}_{name}") for name in _PACKED_HALF)
        return total((add, multiply)), fused, packed
    others = total((_executed(metrics, "hadd"), _executed(metrics, "hmul")))
    fused = number(metrics, f"derived__smsp__{_SASS}_hfma_pred_on_x2")
    return others, fused, number(metrics, f"derived__sm__{_SASS}_hfma_pred_on_x2")


_PACKED_HALF = ("hadd_pred_on_x2", "hmul_pred_on_x2", "hfma_pred_on_x4")


def _tensor_work(metrics: Counters) -> Iterator[Rate]:
    """Tensor operations by input type; already operations, so without a factor of two."""
    clock = number(metrics, "sm__cycles_elapsed.avg.per_second")
    if first(metrics, c.TENSOR_PERCENT) == 0:
        return  # Looking at all of these for zeros would cost most in a large report.
    counted = {name: metrics[name] for name in _tensor_names(tuple(metrics))}
    by_type: dict[str, dict[str, str]] = {}
    for name in counted:
        if match := _TENSOR.fullmatch(name):
            by_type.setdefault(match["type"], {})[match["sparsity"] or ""] = name
    for kind, names in by_type.items():
        per_cycle, peak = _tensor_achieved(counted, names), _tensor_peak(counted, kind)
        yield from _rate(f"{_type_name(kind)} tensor", product(per_cycle, clock), product(peak, clock))
    if not by_type:
        yield from _old_tensor_work(metrics, clock)


@lru_cache(maxsize=64)
def _tensor_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Of the names that a launch has, as thousands of others have them too."""
    return tuple(name for name in names if name.startswith("sm__ops_path_tensor_"))


def _tensor_achieved(metrics: Counters, names: dict[str, str]) -> float | None:
    """The sum over dense and sparse where the type has no counter for both together."""
    if "" in names:
        return number(metrics, names[""])
    return total(number(metrics, name) for name in names.values())


def _tensor_peak(metrics: Counters, kind: str) -> float | None:
    """Operations per cycle of dense work.

    The peak of a type's plain counter includes 2:4 sparsity, twice what dense work can reach. On some chips only the
    counters of the instruction (hgmma, imma ...) split dense from sparse; the fastest instruction is the chip's roof.
    """
    plain = number(metrics, f"sm__ops_path_tensor_src_{kind}.sum.peak_sustained")
    sparse = number(metrics, f"sm__ops_path_tensor_src_{kind}_sparsity_on.sum.peak_sustained")
    if _sparse_work(metrics, kind):
        return sparse if sparse is not None else plain
    dense = number(metrics, f"sm__ops_path_tensor_src_{kind}_sparsity_off.sum.peak_sustained")
    if dense is not None:
        return dense
    by_instruction = [
        peak
        for name in metrics
        if _of_instruction(name, kind, "sparsity_off.sum.peak_sustained")
        and (peak := number(metrics, name)) is not None
    ]
    return max(by_instruction) if by_instruction else plain


def _sparse_work(metrics: Counters, kind: str) -> bool:
    """Whether 2:4 sparse operations of this type were executed."""
    end = "sparsity_on.sum.per_cycle_elapsed"
    names = [
        name for name in metrics if _of_instruction(name, kind, end) or name == f"sm__ops_path_tensor_src_{kind}_{end}"
    ]
    return any(number(metrics, name) for name in names)


def _of_instruction(name: str, kind: str, end: str) -> bool:
    """Whether a counter is one instruction's share of a type: sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_<end>.

    The type of the plain counter may leave out the output type that the instruction's has (fp16, fp16_dst_fp32).
    """
    return name.startswith("sm__ops_path_tensor_op_") and f"_src_{kind}_" in name and name.endswith(end)


def _type_name(kind: str) -> str:
    """The input types of a tensor counter's name.

    >>> _type_name("bf16_dst_fp32"), _type_name("fp16_bf16_tf32_dst_fp32"), _type_name("fp8")
    ('bf16', 'fp16/bf16/tf32', 'fp8')
    """
    return kind.split("_dst_")[0].replace("_", "/")


def _old_tensor_work(metrics: Counters, clock: float | None) -> Iterator[Rate]:
    """What sections up to 2024.1 stored: instructions of all types, at one weight."""
    executed = number(metrics, "smsp__inst_executed_pipe_tensor.sum.per_cycle_elapsed")
    peak = number(metrics, "sm__inst_executed_pipe_tensor.sum.peak_sustained")
    weight = product(float(_OLD_TENSOR_OPS), clock)
    yield from _rate("tensor", product(executed, weight), product(peak, weight), Quality.ESTIMATE)


def _traffic(metrics: Counters) -> Iterator[Rate]:
    dram_clock = number(metrics, "dram__cycles_elapsed.avg.per_second")
    yield from _rate(
        "DRAM", dram_bytes_per_s(metrics), product(number(metrics, "dram__bytes.sum.peak_sustained"), dram_clock)
    )
    l2_clock = number(metrics, "lts__cycles_elapsed.avg.per_second")
    l2 = "lts__lts2xbar_cycles_active.sum"
    # 32 bytes: what an L2 slice hands to the crossbar in an active cycle.
    yield from _rate(
        "L2",
        product(number(metrics, f"{l2}.per_second"), 32.0),
        product(number(metrics, f"{l2}.peak_sustained"), 32.0, l2_clock),
    )
    l1_clock = number(metrics, "l1tex__cycles_elapsed.avg.per_second")
    # 128 bytes: what L1 writes back to registers in an active cycle.
    yield from _rate(
        "L1",
        product(first(metrics, (f"l1tex__{name}.sum.per_second" for name in _L1_NAMES)), 128.0),
        product(first(metrics, (f"l1tex__{name}.sum.peak_sustained" for name in _L1_NAMES)), 128.0, l1_clock),
    )


def _refusals(
    metrics: Counters, label: str, scalar: tuple[Rate, ...], tensor: tuple[Rate, ...], traffic: tuple[Rate, ...]
) -> Iterator[Refusal]:
    """Why the kernel has no point; at most one reason, the first that holds."""
    if not scalar and not tensor:
        yield Refusal(label, _no_counters(metrics))
    elif not tensor and (busy := _hidden_tensor_percent(metrics, scalar)) is not None:
        general = "tensor operations were not counted"
        reason = f"{general}; the tensor pipe is {percent(busy)} busy"
        yield Refusal(label, Unknown(reason, c.add_section(TENSOR_ROOFLINE), general=general))
    elif not any(rate.level == "DRAM" for rate in traffic):
        yield Refusal(label, c.not_collected("DRAM bytes", c.ROOFLINE))


def _no_counters(metrics: Counters) -> Unknown:
    """What is known without FLOP counters: the percentages of SpeedOfLight, if any."""
    compute, memory = number(metrics, c.COMPUTE_PERCENT), first(metrics, c.MEMORY_PERCENT)
    reason = general = "no FLOP counters were collected"
    if compute is not None and memory is not None:
        reason += f"; of peak: compute {percent(compute)}, memory {percent(memory)}"
    return Unknown(reason, c.add_section(c.ROOFLINE, TENSOR_ROOFLINE), general=general)


def _hidden_tensor_percent(metrics: Counters, scalar: tuple[Rate, ...]) -> float | None:
    """How busy the tensor pipe is, if that makes the scalar counters say little about the kernel.

    Below the threshold it still does, when the pipe is the busiest of all: a decode GEMM waits for memory with its
    tensor pipe at 2 % and hardly an FP32 instruction.
    """
    busy = first(metrics, c.TENSOR_PERCENT)
    if busy is None or _has_no_tensor_instruction(metrics):
        return None
    busiest = max((100 * rate.fraction for rate in scalar), default=0.0)
    # Anything below 0.1 % is the pipe's own noise: kernels without one tensor instruction show it.
    return busy if busy > TENSOR_BUSY_PERCENT or busy > max(busiest, 0.1) else None


_TENSOR_INSTRUCTIONS = tuple(
    f"{unit}.avg.pct_of_peak_sustained_active"
    for kind in ("hmma", "imma", "dmma", "gmma")
    for unit in (f"sm__pipe_tensor_op_{kind}_cycles_active", f"sm__inst_executed_pipe_tensor_op_{kind}")
)


def _has_no_tensor_instruction(metrics: Counters) -> bool:
    """Whether the counters of the pipe's instructions are there and all exactly zero, whatever the pipe itself says."""
    counted = [value for name in _TENSOR_INSTRUCTIONS if (value := number(metrics, name)) is not None]
    return bool(counted) and not any(counted)
