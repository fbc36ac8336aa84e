"""Units of Nsight Compute metrics, by name: reports do not store them.

A name is `[group:]unit__counter.rollup[.submetric...]` (Nsight Compute, Kernel Profiling Guide, "Metrics Decoder").
What is counted follows from words of the counter, what is done with it from the rest. Names are as the tool writes
them; units as `llmtop.model.Metric` has them: "bytes", "%", "ns", "Hz", and singular nouns for things counted.
"""

from __future__ import annotations

import re
from functools import lru_cache

_COUNTED = (
    (r"^sass__size", "bytes"),
    (r"hit_rate|_pct$|throughput|utilization", "%"),
    (r"__time_duration|interval_time$", "ns"),
    (r"khz$|^device__attribute_(memory_)?clock_rate$", "kHz"),
    (r"bytes_per_sector", "bytes/sector"),
    (r"pcsamp_(sample_count|dropped_samples)$|(dropped|merged)_samples$", "sample"),
    (r"pcsamp_warps_issue_stalled|warp_stall", "warp"),
    (r"per_warp$", "inst/warp"),
    (r"average_warp_latency|average_warps_active_per_inst", "cycle"),
    (r"average_warps?_.*_per_|threads?_.*_per_inst", ""),
    (r"bus_width$", "bit"),
    (
        r"(^|_)bytes(_|$)|total_memory$|cache_size$|shared_memory_per_|constant_memory$|shared_mem_config_size$",
        "bytes",
    ),
    (r"^launch__shared_mem_per_block", "bytes/block"),
    (r"^launch__registers_per_thread", "register/thread"),
    (r"^launch__occupancy_limit_", "block"),
    (r"^launch__thread_count$", "thread"),
    (r"^launch__sm_count$", "SM"),
    (r"^launch__cluster_max_active$", "cluster"),
    (r"avg_thread_(un)?executed", "thread"),
    (r"_passes(_|$)", "pass"),
    (r"^device__|^launch__|^numa__|^nvlink__|^c2clink__|^derived__pct", ""),
    (r"wavefronts|bank_conflicts", "wavefront"),
    (r"^gcc__xbar2gcc_sectors$", ""),
    (r"(^|_)sectors(_|$)", "sector"),
    (r"_requests(_|$)", "request"),
    (r"_cycles(_|$)|writeback_active", "cycle"),
    (r"ops_path_tensor", "op"),
    (r"inst_(executed|issued)|per_opcode|memory_\d+b$", "inst"),
    (r"issue_active$|_inst_issued", "inst"),
    (r"ctas_launched", "block"),
    (r"_warps(_|$)", "warp"),
    (r"branch_targets", "branch"),
)
_COUNTED_BY_WORD = tuple((re.compile(words), unit) for words, unit in _COUNTED)
_PREFIX = re.compile(r"^(?:breakdown:|pmsampling:|warpsampling:|(?:\w+\.)?Triage\w*\.)")


@lru_cache(maxsize=8192)
def unit_of(name: str) -> str:
    """The unit of a metric's value; "" where it has none or the name does not tell.

    >>> unit_of("gpu__time_duration.sum"), unit_of("dram__bytes.sum.per_second")
    ('ns', 'bytes/s')
    >>> unit_of("sm__throughput.avg.pct_of_peak_sustained_elapsed"), unit_of("sm__cycles_elapsed.avg.per_second")
    ('%', 'Hz')
    >>> unit_of("lts__t_sectors.avg.peak_sustained"), unit_of("launch__registers_per_thread")
    ('sector/cycle', 'register/thread')
    """
    if name.startswith("group:"):
        return ""
    counter, *submetrics = _PREFIX.sub("", name).split(".")
    return _derived(_counted(counter), submetrics)


def _counted(counter: str) -> str:
    """What a counter counts."""
    return next((unit for words, unit in _COUNTED_BY_WORD if words.search(counter)), "")


def _derived(unit: str, submetrics: list[str]) -> str:
    """The unit after roll-ups and submetrics have been applied; the last one decides."""
    last = submetrics[-1] if submetrics else ""
    if last.startswith("pct"):
        return "%"
    if last == "per_second":
        return _rate(unit)
    if last.startswith(("per_cycle", "peak_sustained")):
        return _per_cycle(unit)
    return unit


def _rate(unit: str) -> str:
    """Something per second."""
    if unit in ("cycle", ""):
        return "Hz" if unit else ""
    return f"{unit}/s"


def _per_cycle(unit: str) -> str:
    """Something per cycle; warps are counted in every cycle, so per cycle they are just warps."""
    if unit in ("", "cycle", "%"):
        return ""
    return unit if unit == "warp" else f"{unit}/cycle"
