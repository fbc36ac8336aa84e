"""What a page of Nsight Compute does not show of what was collected: to collect it again would bring nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop import whats
from llmtop.analysis.commands.profiling import TENSOR_ROOFLINE
from llmtop.analysis.kernels import counters as c

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmtop.model import Trace, Unknown, What

SECTIONS: Mapping[What, tuple[str, ...]] = {
    whats.BOUND: (c.SPEED_OF_LIGHT,),
    whats.ROOFLINE: (c.ROOFLINE, TENSOR_ROOFLINE),
    whats.OCCUPANCY: (c.OCCUPANCY,),
    whats.REGISTERS: (c.LAUNCH,),
    whats.WAVES: (c.LAUNCH,),
    whats.STALLS: (c.WARP_STATE,),
    whats.DRAM_TRAFFIC: (c.MEMORY,),
    whats.L1_HIT_RATE: (c.MEMORY,),
    whats.L2_HIT_RATE: (c.MEMORY,),
}
"""What brings each part of `KernelFacts`."""


def not_shown(trace: Trace, launch: int, sections: Iterable[str]) -> Unknown | None:
    """Why values of sections are not there though one of them was collected; None where none was.

    The details page prints the tables of sections, and not what is in their charts.
    """
    details = None if trace.kernels is None else trace.kernels.details
    page = trace.why_missing(whats.OTHER_METRICS)
    if details is None or page is None or not set(details.sections(launch)) & set(sections):
        return None
    return replace(page, reason="collected, but not on this page")
