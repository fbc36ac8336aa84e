"""What one GPU can do at most for a server's dtype: the roofs that a live roofline is drawn under."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.analysis.gpus.models import GpuModel, dram_peak, find_gpu, precision_of
from llmtop.facts import GpuFact
from llmtop.frozen import frozen
from llmtop.model import Quantity, Unknown
from llmtop.units import si

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.model import Fact, Track

_BAND = ("bf16", "fp8")
_HMMA_PRECISIONS = ("bf16", "fp16", "tf32", "fp8", "fp4")


@frozen
class Ceilings:
    """What one GPU can do, and how its clock scales that.

    Attributes:
        precision: What its tensor cores compute in; the lower end of the band where that is not known.
        why_band: Why the precision is not known.
        count: How many GPUs of this kind stand under these ceilings together.
    """

    gpu: GpuModel
    memory: Quantity
    published_mhz: float
    precision: str
    why_band: Unknown | None
    count: int = 1

    @property
    def bytes_per_s(self) -> float:
        """DRAM peak, of all GPUs together."""
        return float(self.memory.value) * self.count

    @property
    def band(self) -> tuple[str, ...]:
        """The precisions that the tensor work may be of."""
        if self.why_band is None:  # asked for each point of a trail
            return (self.precision,)
        known = tuple(name for name in _BAND if name in self.gpu.peaks)
        return known if len(known) > 1 else (self.precision,)

    @property
    def hmma_precision(self) -> str:
        """What HMMA activity counts as: the server's precision where that uses the pipe, else 16 bits."""
        return self.precision if self.precision in _HMMA_PRECISIONS else "bf16"

    def peak(self, kind: str) -> float:
        """FLOP/s of a kind of work ("bf16", "FP32" ...) at the published clock, of all GPUs together."""
        return self.gpu.peaks[kind.lower()] * self.count


def ceilings_of(track: Track, dtype: Fact) -> Ceilings | Unknown:
    """The ceilings of a GPU for a dtype as the server says it, or what about the GPU is not published."""
    gpu = find_gpu(str(track.facts.get(GpuFact.NAME, track.name)))
    if isinstance(gpu, Unknown):
        return gpu
    memory = dram_peak(track.facts, gpu)
    if isinstance(memory, Unknown):
        return memory
    highest = track.facts.get(GpuFact.MAX_SM_MHZ)
    published_mhz = gpu.boost_mhz or (float(highest) if isinstance(highest, int) else 0.0)
    if not published_mhz:
        return Unknown(f"no source gives the clock at which {gpu.name} reaches its peak")
    precision = precision_of(dtype)
    if precision == "fp32":
        precision = "tf32"  # the only thing that tensor cores do with fp32 inputs
    if not isinstance(precision, Unknown) and precision not in gpu.peaks:
        precision = Unknown(f"no published {precision} peak for {gpu.name}", gpu.provenance)
    if isinstance(precision, Unknown):
        return Ceilings(gpu, memory, published_mhz, "bf16" if "bf16" in gpu.peaks else "fp16", precision)
    return Ceilings(gpu, memory, published_mhz, precision, None)


def common_ceilings(gpus: Sequence[Track], dtype: Fact) -> Ceilings | Unknown:
    """The ceilings of several GPUs together, or why theirs do not add up: they are not of one kind."""
    found = [ceilings_of(track, dtype) for track in gpus]
    unknown = next((one for one in found if isinstance(one, Unknown)), None)
    if unknown is not None:
        return unknown
    kinds = {(one.gpu.name, one.bytes_per_s): one for one in found if isinstance(one, Ceilings)}
    if len(kinds) > 1:
        names = " and ".join(f"{name} ({si(memory, 'B/s')})" for name, memory in kinds)
        return Unknown(f"these GPUs differ: {names}; their roofs do not add up", "look at one GPU at a time")
    return replace(next(iter(kinds.values())), count=len(gpus))
