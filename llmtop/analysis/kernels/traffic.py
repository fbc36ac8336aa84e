"""How many bytes a kernel moves to and from DRAM, and how near that is to what the memory can do.

From whatever the report has: rates, or bytes over the kernel's duration; against the peak of the same launch, or the
published one where a report of a few metrics does not hold that.
"""

from __future__ import annotations

from llmtop.analysis.gpus.models import GpuModel
from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.counters import Counters, first, number, product, total
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown
from llmtop.units import percent, si


@frozen
class Traffic:
    """Bytes to and from DRAM.

    Attributes:
        peak: Bytes per second; None where neither the report nor the table of GPUs has it.
        source: Where rate and peak come from.
    """

    bytes_per_s: float
    peak: float | None
    source: str

    @property
    def fraction(self) -> float | None:
        """Of the peak, 0 to 1."""
        return None if self.peak is None else self.bytes_per_s / self.peak

    def __str__(self) -> str:
        of_peak = "" if self.fraction is None or self.peak is None else f", {percent(100 * self.fraction)} of the peak"
        return f"DRAM {si(self.bytes_per_s, 'B/s')}{of_peak} ({self.source})"


_BYTES = (
    ("dram__bytes.sum",),
    ("dram__bytes_read.sum", "dram__bytes_write.sum"),
    ("dram__bytes_op_read.sum", "dram__bytes_op_write.sum"),
)
"""Read and write halves have other names from compute capability 12.0."""


def dram_bytes_per_s(metrics: Counters) -> float | None:
    """As the report has it."""
    return next((rate for names in _BYTES if (rate := _sum(metrics, names, ".per_second")) is not None), None)


def dram_bytes(metrics: Counters) -> float | None:
    """Of the whole launch."""
    return next((amount for names in _BYTES if (amount := _sum(metrics, names, "")) is not None), None)


def _sum(metrics: Counters, names: tuple[str, ...], suffix: str) -> float | None:
    return total(number(metrics, name + suffix) for name in names)


def dram_traffic(metrics: Counters, duration_ns: float | None, gpu: GpuModel | Unknown) -> Traffic | Unknown:
    """The traffic of one launch.

    Args:
        metrics: Its counters.
        duration_ns: None where it is not known.
        gpu: Published figures, for the peak.
    """
    amount, rate = dram_bytes(metrics), dram_bytes_per_s(metrics)
    source = "ncu"
    if rate is None:
        if amount is None:
            return c.not_collected("DRAM bytes", c.MEMORY)
        if not duration_ns:
            return c.not_collected("duration", c.SPEED_OF_LIGHT)
        rate, source = amount / duration_ns * NS_PER_S, "bytes over duration, ncu"
    return Traffic(rate, *_peak(metrics, rate, gpu, source))


def _peak(metrics: Counters, rate: float, gpu: GpuModel | Unknown, source: str) -> tuple[float | None, str]:
    clock = number(metrics, "dram__cycles_elapsed.avg.per_second")
    if counted := product(number(metrics, "dram__bytes.sum.peak_sustained"), clock):
        return counted, source
    used = first(metrics, c.DRAM_PERCENT)
    if used and rate:
        return 100 * rate / used, source
    return (None, source) if isinstance(gpu, Unknown) else (gpu.dram, f"{source}; peak published for {gpu.name}")
