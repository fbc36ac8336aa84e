"""What double precision costs on the GPU of a report, and how much of it divisions take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.gpus.models import GpuModel, find_gpu
from llmtop.analysis.kernels.counters import Counters, number, quotient
from llmtop.capability import fp32_per_fp64
from llmtop.frozen import frozen
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.model import Instances

_PEAK = "sm__sass_thread_inst_executed_op_{}_pred_on.sum.peak_sustained"
_DERIVED_PEAK = "derived__sm__sass_thread_inst_executed_op_{}_pred_on_x2"
_CAPABILITY = ("device__attribute_compute_capability_major", "device__attribute_compute_capability_minor")
_ATTRIBUTE = "device__attribute_single_to_double_precision_perf_ratio"


@frozen
class Fp64Rate:
    """How fast a GPU is in FP64.

    Attributes:
        fp32_per_fp64: FP32 operations in the time of one of FP64.
        source: Who says so.
    """

    fp32_per_fp64: float
    source: str


def fp64_rate(metrics: Counters, gpu: str) -> Fp64Rate | None:
    """Of the GPU that a launch ran on: by the report's own peaks, else its compute capability, else its name."""
    for name in (_PEAK, _DERIVED_PEAK):
        of_peaks = quotient(number(metrics, name.format("ffma")), number(metrics, name.format("dfma")))
        if of_peaks is not None:
            return Fp64Rate(of_peaks, "peaks in the report")
    major, minor = (number(metrics, name) for name in _CAPABILITY)
    if major is not None and minor is not None and (known := fp32_per_fp64((int(major), int(minor)))):
        return Fp64Rate(known, f"compute capability {major:.0f}.{minor:.0f}")
    board = find_gpu(gpu)
    if isinstance(board, GpuModel) and "fp64" in board.peaks:
        return Fp64Rate(board.peaks["fp32"] / board.peaks["fp64"], board.source)
    told = number(metrics, _ATTRIBUTE)
    return Fp64Rate(told, "attribute of the device") if told else None


OPCODES = "sass__inst_executed_per_opcode_with_modifier_all"
"""Instructions of warps by what they do; of InstructionStats."""
_OF_FP64 = frozenset({"DADD", "DMUL", "DFMA", "DSETP", "DMNMX"})
_RECIPROCAL = "MUFU.RCP64H"
_EACH = 8
"""FP64 instructions of a division: the reciprocal's first guess is refined by seven DFMA and a DMUL (SASS of a / b for
doubles, compute capability 7.0 to 9.0); a reciprocal alone takes fewer."""


@frozen
class Divisions:
    """Divisions and reciprocals in FP64, of one launch.

    Attributes:
        count: Instructions of warps that start one.
        share: At most, of all FP64 instructions, 0 to 1.
    """

    count: float
    share: float


def fp64_divisions(opcodes: Instances | Unknown) -> Divisions | None:
    """How much of the FP64 work divides; None where instructions were not counted by what they do, or none is FP64.

    Args:
        opcodes: `OPCODES` of one launch, by opcode.

    >>> from llmtop.model import Instances
    >>> fp64_divisions(Instances(("MUFU.RCP64H", "DFMA", "DMUL", "IMAD"), (10.0, 150.0, 10.0, 900.0)))
    Divisions(count=10.0, share=0.5)
    """
    if isinstance(opcodes, Unknown):
        return None
    by_name = [(str(key), float(value)) for key, value in zip(opcodes.keys, opcodes.values, strict=False)]
    whole = sum(value for name, value in by_name if name.split(".")[0] in _OF_FP64)
    count = sum(value for name, value in by_name if name.startswith(_RECIPROCAL))
    return Divisions(count, min(1.0, _EACH * count / whole)) if whole else None
