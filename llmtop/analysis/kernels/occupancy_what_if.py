"""What a kernel's occupancy would be with other blocks: curves, what limits it, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.counters import first, number
from llmtop.analysis.kernels.counting import not_collected, not_counted
from llmtop.analysis.kernels.occupancy import SmResource, occupancy
from llmtop.analysis.kernels.occupancy_calculator import (
    WARP,
    BlockFit,
    BlockNeed,
    BlockNeeds,
    SmLimits,
    block_fit,
    block_needs,
    most_for,
    sm_limits,
)
from llmtop.analysis.kernels.table import kernels_of
from llmtop.frozen import frozen
from llmtop.model import Trace, Unknown
from llmtop.text import listed
from llmtop.units import binary_bytes, percent

SOURCE = "NVIDIA's occupancy calculator (cuda_occupancy.h, CUDA C++ Programming Guide)"
RESOURCE_OF = {
    BlockNeed.REGISTERS: SmResource.REGISTERS,
    BlockNeed.BLOCK_SIZE: SmResource.WARPS,
    BlockNeed.SHARED: SmResource.SHARED,
}
"""What of an SM a block needs more of, the larger the value."""
STEPS = {BlockNeed.REGISTERS: 8, BlockNeed.BLOCK_SIZE: WARP, BlockNeed.SHARED: 1024}
"""By how much a value is changed at a time: what registers and warps are given out in; ours for shared memory."""
_WORTH_A_SIZE = 1.25
"""Times as many warps, from which on another size of the blocks is named. Ours: it changes all of a kernel."""
_KIB = 1024


@frozen
class OccupancyChange:
    """Other values of a block's needs with which more warps fit.

    Attributes:
        values: By what changes; several where none of them helps alone.
        before: How often the block fits as it is.
        after: And with the values.
    """

    block: BlockNeeds
    values: Mapping[BlockNeed, int]
    before: BlockFit
    after: BlockFit

    def __str__(self) -> str:
        changed = [
            f"{amount(need, self.block.value(need))} → {amount(need, value)} {need}"
            for need, value in self.values.items()
        ]
        blocks = f"{self.after.blocks} block{'s' * (self.after.blocks != 1)} an SM in place of {self.before.blocks}"
        shares = f"{percent(100 * self.after.share)} in place of {percent(100 * self.before.share)}"
        return f"{listed(changed)}: {blocks}, occupancy {shares}"


def amount(need: BlockNeed, value: int) -> str:
    """A value as it is read: not rounded, as one byte more may be one too many."""
    if need is not BlockNeed.SHARED:
        return str(value)
    return f"{value} B" if value % _KIB else binary_bytes(value)


@frozen
class OccupancyWhatIf:
    """A launch, and what could be otherwise.

    Attributes:
        carveout: Bytes of an SM that served as shared memory; None where that is not known.
        achieved: % of the warps that an SM can hold.
        grid: Blocks of the launch, and `sms` those that ran them; None where that is not known.
    """

    launch: int
    sm: SmLimits
    launched: BlockNeeds
    carveout: int | None
    achieved: float | Unknown
    grid: int | None
    sms: int | None

    def fit(self, block: BlockNeeds) -> BlockFit:
        """How often a block would fit, with as much shared memory as the SM has."""
        return block_fit(self.sm, block)

    @property
    def has_small_grid(self) -> bool:
        """Whether all of its blocks run at once: with room for more of them nothing would change."""
        room = None if self.sms is None else self.sms * self.fit(self.launched).blocks
        return self.grid is not None and room is not None and self.grid <= room

    @property
    def why_no_change(self) -> str:
        """Why none of the changes would help; empty where one may."""
        if self.fit(self.launched).share >= 1:
            return "all warps of an SM have room"
        if self.has_small_grid:
            return "the whole grid runs at once: more room on an SM changes nothing, a larger grid may"
        return "" if self.changes else "no other value lets more warps fit"

    @property
    def changes(self) -> tuple[OccupancyChange, ...]:
        """The smallest changes with which more warps fit, of each need by itself; of several where none does.

        None of a grid that has no more blocks to give.
        """
        before = self.fit(self.launched)
        if before.share >= 1 or self.has_small_grid:
            return ()
        alone = [self._changed(before, values) for values in self._single(before)]
        found = [one for one in alone if one is not None]
        together = None if found else self._changed(before, self._less(before, before.limiters))
        return tuple(found if together is None else (together,))

    def _single(self, before: BlockFit) -> Iterator[dict[BlockNeed, int]]:
        for resource in before.limiters:
            yield self._less(before, (resource,))
        size = self._nearest_size(before)
        if size is not None:
            yield {BlockNeed.BLOCK_SIZE: size}

    def _less(self, before: BlockFit, limiters: tuple[SmResource, ...]) -> dict[BlockNeed, int]:
        """Of registers and shared memory so little that one block more has room."""
        wanted = [need for need in (BlockNeed.REGISTERS, BlockNeed.SHARED) if RESOURCE_OF[need] in limiters]
        return {need: most_for(self.sm, self.launched, need, before.blocks + 1) for need in wanted}

    def _nearest_size(self, before: BlockFit) -> int | None:
        sizes = range(WARP, self.sm.threads_of_block + 1, WARP)
        enough = _WORTH_A_SIZE * before.warps
        more = [one for one in sizes if self.fit(self.launched.but({BlockNeed.BLOCK_SIZE: one})).warps > enough]
        return min(more, key=lambda one: abs(one - self.launched.threads), default=None)

    def _changed(self, before: BlockFit, values: Mapping[BlockNeed, int]) -> OccupancyChange | None:
        if not values or min(values.values()) < 0 or values.get(BlockNeed.REGISTERS) == 0:
            return None
        after = self.fit(self.launched.but(values))
        return OccupancyChange(self.launched, values, before, after) if after.warps > before.warps else None

    def curve(self, block: BlockNeeds, need: BlockNeed) -> tuple[tuple[int, float], ...]:
        """(value, occupancy from 0 to 1) from one value of a need to the next, all else as the block has it."""
        values = range(0 if need is BlockNeed.SHARED else STEPS[need], self.sm.most(need) + 1, STEPS[need])
        return tuple((value, self.fit(block.but({need: value})).share) for value in (*values, self.sm.most(need)))

    def stepped(self, block: BlockNeeds, need: BlockNeed, step: int) -> BlockNeeds:
        """The block with the next larger or smaller value that is a whole number of steps, where there is one."""
        unit = STEPS[need]
        value = (block.value(need) // unit + 1) * unit if step > 0 else (block.value(need) - 1) // unit * unit
        return block.but({need: max(0 if need is BlockNeed.SHARED else 1, min(value, self.sm.most(need)))})

    def stepped_far(self, block: BlockNeeds, need: BlockNeed, step: int) -> BlockNeeds:
        """The same with the next value that changes how many warps fit; with the last value where none does."""
        here = self.fit(block).warps
        while (after := self.stepped(block, need, step)) != block:
            block = after
            if self.fit(block).warps != here:
                break
        return block


@lru_cache(maxsize=64)
def occupancy_what_if(trace: Trace, launch: int) -> OccupancyWhatIf | Unknown:
    """Of one launch of a report; why it cannot be told.

    The stored limits and occupancies of a report are those of this arithmetic: what differs would be a fault of it.
    """
    if (why := not_counted(trace)) is not None:
        return why
    kernels = kernels_of(trace)
    if kernels.has_failed(launch):
        return Unknown("the launch failed")
    metrics = kernels.metrics(launch)
    sm, block = sm_limits(metrics), block_needs(metrics)
    if sm is None or block is None:
        return not_collected(trace, launch, "what its blocks need", c.LAUNCH, c.OCCUPANCY)
    carveout, grid = number(metrics, "launch__shared_mem_config_size"), number(metrics, c.GRID_SIZE)
    sms = first(metrics, c.SM_COUNT)
    return OccupancyWhatIf(
        launch,
        sm,
        block,
        None if carveout is None else int(carveout),
        occupancy(metrics).achieved,
        None if grid is None else int(grid),
        None if sms is None else int(sms),
    )
