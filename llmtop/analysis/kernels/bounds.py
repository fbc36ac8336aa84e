"""What limits a kernel, from its two throughputs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.counters import Counters, first, number
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.units import percent

LATENCY_PERCENT = 60.0
"""Below this share of both peaks neither is the limit (the latency threshold of Nsight Compute's SOLBottleneck)."""
MARGIN_PERCENT = 5.0
"""How far apart the two must be to name one of them (the DeepSeek-OCR kernel study's classification, V2)."""


class Bound(StrEnum):
    """What a kernel is limited by."""

    MEMORY = "memory"
    COMPUTE = "compute"
    BALANCED = "balanced"
    LATENCY = "latency"
    UNKNOWN = "unknown"


@frozen
class Verdict:
    """A bound with what it rests on, in % of peak.

    Attributes:
        compute: None where the verdict does without: see `bound_by_traffic`.
        memory: The busiest level of the memory system, caches included.
        dram: DRAM alone; None when it was not collected.
        leaning: Which side it is on, whatever the level of use: see `lean`; unknown without `compute`.
    """

    bound: Bound
    compute: float | None
    memory: float
    dram: float | None
    leaning: Bound

    @property
    def why(self) -> str:
        """The numbers behind it."""
        if self.compute is None:
            return f"DRAM {percent(self.memory)} of peak"
        dram = "" if self.dram is None else f" (DRAM {percent(self.dram)})"
        return f"compute {percent(self.compute)}, memory {percent(self.memory)}{dram} of peak"

    @property
    def busiest(self) -> float:
        """The larger of the two."""
        return max(self.compute or 0.0, self.memory)


def kernel_bound(metrics: Counters) -> Verdict | Unknown:
    """Judge one launch: latency when neither throughput reaches 60 % of peak, else the one that leads by 5 points.

    Memory means its busiest level, not only DRAM: a kernel that saturates L1 or shared memory waits for memory too.
    """
    compute, memory = number(metrics, c.COMPUTE_PERCENT), first(metrics, c.MEMORY_PERCENT)
    if compute is None or memory is None:
        return c.not_collected("compute and memory throughput", c.SPEED_OF_LIGHT)
    dram = first(metrics, c.DRAM_PERCENT)
    bound = Bound.LATENCY if max(compute, memory) < LATENCY_PERCENT else lean(compute, memory)
    return Verdict(bound, compute, memory, dram, lean(compute, memory if dram is None else dram))


_SATURATED_PERCENT = 80.0
"""From here on NVIDIA's SpeedOfLight rule calls a unit's use high: it is the limit, whatever the others do."""


def bound_by_traffic(dram_percent: float | None, occupied_percent: float | None) -> Verdict | None:
    """Judge a launch of a report of a few metrics; None where they do not decide.

    DRAM near its peak is the limit by itself. A grid that has no block for most SMs can load neither compute nor
    memory much, so where DRAM is not busy either the launch is too small.

    Args:
        dram_percent: Of the DRAM peak.
        occupied_percent: SMs that have a block at all, of all SMs.

    >>> verdict = bound_by_traffic(85.0, None)
    >>> str(verdict.bound), verdict.why
    ('memory', 'DRAM 85 % of peak')
    >>> bound_by_traffic(64.0, 100.0) is None
    True
    """
    if dram_percent is None:
        return None
    if dram_percent >= _SATURATED_PERCENT:
        return Verdict(Bound.MEMORY, None, dram_percent, dram_percent, Bound.UNKNOWN)
    if occupied_percent is not None and max(occupied_percent, dram_percent) < LATENCY_PERCENT:
        return Verdict(Bound.LATENCY, None, dram_percent, dram_percent, Bound.UNKNOWN)
    return None


LEANS: Mapping[str, str] = {Bound.COMPUTE: "SM", Bound.MEMORY: "DRAM", Bound.BALANCED: "neither"}
"""What a kernel leans to, as tables say it: "compute" and "memory" are words for what limits it."""


def lean(compute: float, memory: float) -> Bound:
    """Which of two throughputs leads, whatever their level.

    With DRAM's throughput for `memory` this is the classification of the DeepSeek-OCR kernel study (V2).

    >>> [str(lean(41.5, 8.1)), str(lean(9.2, 19.7)), str(lean(12.0, 10.0))]
    ['compute', 'memory', 'balanced']
    """
    if abs(compute - memory) <= MARGIN_PERCENT:
        return Bound.BALANCED
    return Bound.COMPUTE if compute > memory else Bound.MEMORY
