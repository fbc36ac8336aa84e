"""What launching kernels takes of a process's time, by its launch calls themselves."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.rules.evidence import WINDOW_NS
from llmtop.analysis.series.labels import labels
from llmtop.analysis.series.rates import increase
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown
from llmtop.units import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmtop.model import Metric, Trace, TrackId

_OF_DRIVER, _OF_RUNTIME = re.compile(r"cu[A-Z]\w*Launch|cuLaunch"), re.compile(r"cuda\w*Launch")
"""The runtime's calls end in the driver's: one of both is added up."""
_OF_GRAPHS = re.compile(r"GraphLaunch")
_KERNELS_OF_A_GRAPH = 1000
"""A graph of a decoding step holds some hundreds of kernels: where so many are launched for each graph, hardly any
of them is in one."""


@frozen
class LaunchWork:
    """What launch calls took over the last 15 s, all threads of a process together.

    Attributes:
        share: Of the time. At tens of thousands a second they are counted in short windows, and what the probes cost
            is within: half as much is possible (docs/ebpf.md).
        kernels: Launched one by one, in a second.
        graphs: CUDA graphs launched in a second.
        source: Who counted.
    """

    share: float
    kernels: float
    graphs: float
    source: str

    @property
    def text(self) -> str:
        """The line of evidence."""
        hardly = "next to no" if self.graphs else "no"
        graphs = f"{hardly} CUDA graphs" if self.lacks_graphs else f"{count(round(self.graphs))} CUDA graphs"
        return f"launches some {count(_rounded(self.kernels))} kernels and {graphs} a second ({self.source})"

    @property
    def lacks_graphs(self) -> bool:
        """Whether kernels go one by one, as far as what is launched tells."""
        return self.graphs * _KERNELS_OF_A_GRAPH < self.kernels


def _rounded(value: float) -> int:
    """To two digits: more are not known.

    >>> _rounded(87123.4), _rounded(7.0)
    (87000, 7)
    """
    return int(float(f"{value:.1e}"))


def launch_work(trace: Trace, process: TrackId) -> LaunchWork | None:
    """What launching takes of a process's time; None where no launch was counted."""
    told = labels(trace, v.LIBRARY_TIME).get(process, ())
    calls = [call for call in told if _OF_DRIVER.match(call)] or [call for call in told if _OF_RUNTIME.match(call)]
    graphs = _per_s(trace, process, v.LIBRARY_COUNT, [call for call in calls if _OF_GRAPHS.search(call)])
    launched = _per_s(trace, process, v.LIBRARY_COUNT, calls)
    first = trace.get(process, v.labelled(v.LIBRARY_TIME, calls[0])) if calls else None
    if not launched or first is None:
        return None
    share = _per_s(trace, process, v.LIBRARY_TIME, calls) / NS_PER_S
    return LaunchWork(share, launched - graphs, graphs, first.source)


def _per_s(trace: Trace, process: TrackId, metric: Metric, calls: Iterable[str]) -> float:
    """What the calls' counters of a metric grow by in a second, together; of one that stands still there is nothing."""
    grown = (increase(trace.get(process, v.labelled(metric, call)), WINDOW_NS, trace.end_ns) for call in calls)
    return math.fsum(one.per_second for one in grown if not isinstance(one, Unknown))
