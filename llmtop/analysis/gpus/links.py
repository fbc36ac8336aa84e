"""How fast the GPUs of a server reach each other: NVLink by the links that are up, else PCIe. Published, each way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.gpus.models import find_gpu
from llmtop.analysis.series.readings import latest, mean
from llmtop.facts import GpuFact
from llmtop.model import Quantity, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.model import Trace, Track

_SLOW_LINKS = frozenset({"A40", "RTX A6000", "RTX 3090"})
_SLOW_LINK = 14.0625e9
"""Bytes a second each way of a link of these: 4 links, 112.5 GB/s both ways (NVIDIA data sheets)."""
_LINK = {"Volta": 25e9, "Ampere": 25e9, "Hopper": 25e9, "Blackwell": 50e9}
"""Bytes a second each way of one NVLink, of 300, 600, 900 and 1800 GB/s both ways over 6, 12, 18 and 18 links (NVIDIA,
NVLink generations)."""
_WITHOUT = frozenset({"T4", "A10", "L4", "L40S", "RTX 6000 Ada", "RTX 4090", "RTX 5090", "RTX PRO 6000"})
"""GPUs that have no NVLink: what the driver says nothing of is not there."""
_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes a second each way of one lane of PCIe, by generation, after its encoding (PCI-SIG)."""
_NOT_TOLD = Unknown("how its GPUs are connected is not told")


def peer_bandwidth(trace: Trace, gpus: Sequence[Track]) -> Quantity | Unknown:
    """Bytes a second that the slowest of some GPUs can send to the others, and as much receive at the same time."""
    each = [_of_gpu(trace, gpu) for gpu in gpus]
    known = [one for one in each if isinstance(one, Quantity)]
    if len(known) < len(each) or not known:
        return next((one for one in each if isinstance(one, Unknown)), _NOT_TOLD)
    return min(known, key=lambda one: float(one.value))


def nvlink_bytes_per_s(trace: Trace, gpus: Sequence[Track], window_ns: int) -> float | Unknown:
    """Bytes a second over the NVLinks of the busiest of some GPUs, in the direction in which there are more."""
    rates = []
    for gpu in gpus:
        for metric in (v.GPU_NVLINK_TX, v.GPU_NVLINK_RX):
            if isinstance(rate := mean(trace, gpu.id, metric, window_ns), Unknown):
                return rate
            rates.append(rate)
    return max(rates, default=0.0)


def _of_gpu(trace: Trace, gpu: Track) -> Quantity | Unknown:
    model = find_gpu(str(gpu.facts.get(GpuFact.NAME, gpu.name)))
    links, up = gpu.facts.get(GpuFact.NVLINKS), latest(trace, gpu.id, v.GPU_NVLINK_ACTIVE)
    if isinstance(links, int) and not isinstance(up, Unknown) and up >= 1:
        if isinstance(model, Unknown):
            return model
        each = _SLOW_LINK if model.name in _SLOW_LINKS else _LINK.get(model.architecture)
        if each is not None:
            return Quantity(up * each, "bytes/s", f"{up:.0f} NVLinks")
    is_without = not isinstance(model, Unknown) and model.name in _WITHOUT
    return _by_pcie(gpu) if up == 0 or is_without else _NOT_TOLD


def _by_pcie(gpu: Track) -> Quantity | Unknown:
    generation, width = gpu.facts.get(GpuFact.PCIE_MAX_GENERATION), gpu.facts.get(GpuFact.PCIE_MAX_WIDTH)
    if not isinstance(generation, int) or not isinstance(width, int) or generation not in _LANE:
        return _NOT_TOLD
    return Quantity(_LANE[generation] * width, "bytes/s", f"PCIe gen {generation} x{width}")
