"""What compute and memory throughput are made of: the parts of which each is the largest.

Nsight Compute's section SpeedOfLight stores with a throughput the names of its parts, in a metric of the name with
"breakdown:" before it (Kernel Profiling Guide, Metrics Structure: a throughput is the largest of its parts).
"""

from __future__ import annotations

from functools import lru_cache

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.counters import Counters, number
from llmtop.analysis.kernels.counting import not_collected, not_counted
from llmtop.analysis.kernels.table import kernels_of
from llmtop.frozen import frozen
from llmtop.model import Trace, Unknown

_OF_PEAK = ".avg.pct_of_peak_sustained_elapsed"


@frozen
class Throughput:
    """Of compute, or of memory.

    Attributes:
        percent: Of its peak.
        parts: (counter without what all have in common, % of its own peak), the busiest first; empty where the report
            does not tell them.
    """

    title: str
    percent: float | Unknown
    parts: tuple[tuple[str, float], ...]


def throughput_parts(metrics: Counters, throughput: str) -> dict[str, float]:
    """The parts of a throughput that were counted, by their names; empty where the report does not name them."""
    names = str(metrics.get(f"breakdown:{throughput}", "")).split(",")
    return {name: value for name in names if (value := number(metrics, name)) is not None}


@lru_cache(maxsize=64)
def speed_of_light(trace: Trace, launch: int) -> tuple[Throughput, ...] | Unknown:
    """Compute and memory of one launch of a report; why neither is known."""
    if (why := not_counted(trace)) is not None:
        return why
    metrics = kernels_of(trace).metrics(launch)
    why = not_collected(trace, launch, "throughput", c.SPEED_OF_LIGHT)
    both = tuple(
        _throughput(title, metrics, name, why)
        for title, name in (("compute", c.COMPUTE_PERCENT), ("memory", c.MEMORY_PERCENT[0]))
    )
    return why if all(isinstance(one.percent, Unknown) for one in both) else both


def _throughput(title: str, metrics: Counters, name: str, why: Unknown) -> Throughput:
    percent = number(metrics, name)
    parts = sorted(throughput_parts(metrics, name).items(), key=lambda part: -part[1])
    told = tuple((part.removesuffix(_OF_PEAK), value) for part, value in parts)
    return Throughput(title, why if percent is None else percent, told)
