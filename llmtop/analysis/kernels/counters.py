"""Reading Nsight Compute counters, and which section brings the ones that are missing.

A report holds what its sections asked for and nothing else, so every question here can come back empty. Names are
NVIDIA's and differ by version and chip; `first` takes them in order of preference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from llmtop.model import Unknown, Value

Counters = Mapping[str, Value]
"""The scalar metrics of one launch, by the tool's own names."""

COMPUTE_PERCENT = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY_PERCENT = (
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
)
DRAM_PERCENT = (
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
TENSOR_PERCENT = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active_v2.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
)
OCCUPANCY_PERCENT = "sm__warps_active.avg.pct_of_peak_sustained_active"
THEORETICAL_OCCUPANCY_PERCENT = "sm__maximum_warps_per_active_cycle_pct"
L2_PERCENT = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
L2_BYTES = "device__attribute_l2_cache_size"
DRAM_READ_BYTES = "dram__bytes_read.sum"
DRAM_WRITE_BYTES = "dram__bytes_write.sum"
L1_HIT_PERCENT = "l1tex__t_sector_hit_rate.pct"
L2_HIT_PERCENT = "lts__t_sector_hit_rate.pct"
SM_COUNT = ("launch__sm_count", "device__attribute_multiprocessor_count")
GRID_SIZE = "launch__grid_size"
DURATION = ("gpu__time_duration.sum", "gpu__time_duration.avg")
REGISTERS = "launch__registers_per_thread"
SHARED_MEMORY = "launch__shared_mem_per_block"
WAVES = "launch__waves_per_multiprocessor"
ISSUE_ACTIVE = "smsp__issue_active.avg.per_cycle_active"

SPEED_OF_LIGHT = "SpeedOfLight"
OCCUPANCY = "Occupancy"
LAUNCH = "LaunchStats"
MEMORY = "MemoryWorkloadAnalysis"
WARP_STATE = "WarpStateStats"
ROOFLINE = "SpeedOfLight_RooflineChart"


def number(counters: Counters, name: str) -> float | None:
    """The value of a counter; None when it is not there, not a number, or NaN."""
    value = counters.get(name)
    if value is None or isinstance(value, str):
        return None
    return float(value) if math.isfinite(value) else None


def first(counters: Counters, names: Iterable[str]) -> float | None:
    """The first of several names that has a value."""
    return next((value for name in names if (value := number(counters, name)) is not None), None)


def total(values: Iterable[float | None]) -> float | None:
    """The sum; None when any part is unknown, because a sum without it would be too small."""
    parts = list(values)
    known = [value for value in parts if value is not None]
    return sum(known) if len(known) == len(parts) else None


def product(*values: float | None) -> float | None:
    """The product; None when any factor is unknown."""
    known = [value for value in values if value is not None]
    return math.prod(known) if len(known) == len(values) else None


def quotient(part: float | None, whole: float | None) -> float | None:
    """A ratio; None where a side of it is unknown or there is nothing to divide by."""
    return None if part is None or not whole else part / whole


def add_section(*sections: str) -> str:
    """The options that make Nsight Compute collect them; `profiling.rest` makes a command of all that are asked for.

    >>> add_section("Occupancy", "WarpStateStats")
    'add --section Occupancy --section WarpStateStats'
    """
    return "add " + " ".join(f"--section {section}" for section in sections)


def not_collected(what: str, *sections: str) -> Unknown:
    """Why a counter is not there, with the section to add."""
    return Unknown(f"{what} not collected", add_section(*sections))
