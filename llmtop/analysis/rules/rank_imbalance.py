"""One rank of several computes longer than the others, whose clocks do not tell who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

from llmtop.analysis.commands import profiling
from llmtop.analysis.kernels.communication import communication
from llmtop.analysis.rules import stakes
from llmtop.analysis.rules.exposed_communication import MORE_WORK
from llmtop.analysis.timeline.clock_words import clocks_text
from llmtop.analysis.timeline.work import gpu_title
from llmtop.model import Finding
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from llmtop.model import Trace

id = "rank-imbalance"
summary = "One rank computes longer than the others, which have to wait for it."
source = "Machine Learning Systems, Performance Engineering (imbalance: the slowest sets the pace)"

_MORE = 1.1
"""Times what any other rank computes. Ours: files that are not on one clock need not be of the very same steps."""
_FOUND_SHARE = 0.02
"""Of the capture; as of idle time."""


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, where ranks communicate and no collective could be compared: else those tell more."""
    gpus = sorted(communication(trace), key=lambda gpu: -gpu.computing_ns)
    if not trace.parts or len(gpus) < 2 or any(gpu.matched for gpu in gpus):
        return
    most, second = gpus[0].computing_ns, gpus[1].computing_ns
    usual = median(gpu.computing_ns for gpu in gpus[1:])
    at_stake = most - usual
    if most > _MORE * second and stakes.share(trace, at_stake) >= _FOUND_SHARE:
        late = gpu_title(gpus[0].gpu)
        yield stakes.finding(
            trace,
            at_stake,
            "what it computes longer than the median of the others",
            rule=id,
            subject=late,
            message=f"{late} computes {percent(100 * (most / usual - 1))} longer than the other ranks",
            evidence=(
                *(f"{gpu_title(gpu.gpu)} computes {duration(gpu.computing_ns)} (nsys)" for gpu in gpus),
                f"clocks: {clocks_text(trace)}: who waits for whom is not told",
            ),
            action=f"if they work in step, all others wait for {late}: {MORE_WORK}",
            next_command=profiling.clocks(trace),
            source=source,
        )
