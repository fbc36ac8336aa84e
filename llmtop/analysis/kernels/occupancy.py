"""How full a launch makes the SMs, and what allows no more."""

from __future__ import annotations

from enum import StrEnum

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.counters import Counters, number
from llmtop.frozen import frozen
from llmtop.model import Unknown


class SmResource(StrEnum):
    """What of an SM may run out: as it is called."""

    BLOCKS = "blocks of an SM"
    REGISTERS = "registers"
    SHARED = "shared memory"
    WARPS = "warps"
    BARRIERS = "barriers"


BLOCK_LIMITS = {
    SmResource.BLOCKS: "launch__occupancy_limit_blocks",
    SmResource.REGISTERS: "launch__occupancy_limit_registers",
    SmResource.SHARED: "launch__occupancy_limit_shared_mem",
    SmResource.WARPS: "launch__occupancy_limit_warps",
    SmResource.BARRIERS: "launch__occupancy_limit_barriers",
}
"""How many blocks fit on an SM by each resource: the least of them is what limits the theoretical occupancy.

Of several that allow equally few the first is named first: the driver's own shared memory, 1 KiB a block from compute
capability 8.0 on, allows about as many blocks as an SM takes at all.
"""


@frozen
class Occupancy:
    """How full the SMs are.

    Attributes:
        achieved: % of the warps an SM can hold.
        theoretical: What the launch's resources allow.
        limits: (resource, blocks of this kernel that fit on an SM by it), the tightest first.
    """

    achieved: float | Unknown
    theoretical: float | Unknown
    limits: tuple[tuple[str, int], ...]

    @property
    def limiters(self) -> tuple[str, ...]:
        """The resources that allow the fewest blocks."""
        return tuple(name for name, blocks in self.limits if blocks == self.limits[0][1])


def occupancy(metrics: Counters) -> Occupancy:
    """Of one launch, from its counters."""
    achieved, theoretical = number(metrics, c.OCCUPANCY_PERCENT), number(metrics, c.THEORETICAL_OCCUPANCY_PERCENT)
    stored = [(str(resource), number(metrics, name)) for resource, name in BLOCK_LIMITS.items()]
    limits = [(title, int(blocks)) for title, blocks in stored if blocks is not None]
    return Occupancy(
        c.not_collected("occupancy", c.OCCUPANCY) if achieved is None else achieved,
        c.not_collected("theoretical occupancy", c.OCCUPANCY) if theoretical is None else theoretical,
        tuple(sorted(limits, key=lambda pair: pair[1])),
    )
