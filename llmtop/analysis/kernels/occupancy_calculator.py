"""How many blocks of a kernel an SM holds at once, from what a block needs and what an SM of the device has.

The arithmetic is that of NVIDIA's occupancy calculator (CUDA C++ Programming Guide, Compute Capabilities and Hardware
Multithreading; `cuda_occupancy.h` of the CUDA toolkit): warps get their registers from the part of the SM that
schedules them, in units of 256; a block gets its shared memory in units of 128 bytes from compute capability 8.0 on
and of 256 before, with what the driver keeps of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.counters import Counters, number
from llmtop.analysis.kernels.occupancy import BLOCK_LIMITS, SmResource
from llmtop.frozen import frozen

WARP = 32
"""Threads of a warp, of every NVIDIA GPU."""
_REGISTER_UNIT = 256
"""Registers that a warp gets at a time, from compute capability 3.0 on."""
_SHARED_UNIT, _OLD_SHARED_UNIT = 128, 256
"""Bytes that a block gets at a time, from compute capability 8.0 on and before."""
_AMPERE = 8
"""The first major compute capability whose shared memory is given in smaller units."""
_ATTRIBUTE = "device__attribute_"


class BlockNeed(StrEnum):
    """What a block asks of an SM, and can be made to ask less of: as it is called."""

    REGISTERS = "registers a thread"
    BLOCK_SIZE = "threads a block"
    SHARED = "shared memory a block"


@frozen
class SmLimits:
    """What an SM has, and what one block may have of it.

    Attributes:
        schedulers: Parts that the SM's registers are divided among.
        shared: Bytes that may serve as shared memory at most; the rest of them is L1.
        shared_of_block: Bytes that one block may have, without what the driver keeps.
        reserved: Bytes that the driver keeps of each block's.
        shared_unit: Bytes that a block gets at a time.
    """

    warps: int
    blocks: int
    registers: int
    schedulers: int
    shared: int
    shared_of_block: int
    reserved: int
    shared_unit: int
    threads_of_block: int
    registers_of_thread: int

    def most(self, need: BlockNeed) -> int:
        """The largest value that a block may have."""
        return {
            BlockNeed.REGISTERS: self.registers_of_thread,
            BlockNeed.BLOCK_SIZE: self.threads_of_block,
            BlockNeed.SHARED: self.shared_of_block,
        }[need]


@frozen
class BlockNeeds:
    """What a block needs.

    Attributes:
        shared: Bytes, static and dynamic, without what the driver keeps.
        barriers: How many blocks the barriers of an SM suffice for, which nothing of the rest changes; None where that
            is not known.
    """

    threads: int
    registers: int
    shared: int
    barriers: int | None = None

    @property
    def warps(self) -> int:
        """Of a block, the last one filled or not."""
        return -(-self.threads // WARP)

    def value(self, need: BlockNeed) -> int:
        """One of them."""
        return {
            BlockNeed.REGISTERS: self.registers,
            BlockNeed.BLOCK_SIZE: self.threads,
            BlockNeed.SHARED: self.shared,
        }[need]

    def but(self, changes: Mapping[BlockNeed, int]) -> BlockNeeds:
        """The same with other values."""
        return replace(
            self,
            registers=changes.get(BlockNeed.REGISTERS, self.registers),
            threads=changes.get(BlockNeed.BLOCK_SIZE, self.threads),
            shared=changes.get(BlockNeed.SHARED, self.shared),
        )


@frozen
class BlockFit:
    """How often a block fits.

    Attributes:
        limits: How many blocks each resource suffices for.
        warps: Of all blocks that fit.
        share: Of the warps that an SM holds, 0 to 1: the theoretical occupancy.
    """

    limits: Mapping[SmResource, int]
    warps: int
    share: float

    @property
    def blocks(self) -> int:
        """That an SM holds at once; 0 where not even one fits, and the launch fails."""
        return min(self.limits.values())

    @property
    def limiters(self) -> tuple[SmResource, ...]:
        """What suffices for no more."""
        return tuple(one for one, blocks in self.limits.items() if blocks == self.blocks)


def block_fit(sm: SmLimits, block: BlockNeeds, carveout: int | None = None) -> BlockFit:
    """How many blocks an SM holds.

    Args:
        sm: Of the device.
        block: Of the kernel.
        carveout: Bytes of the SM that serve as shared memory; the most where it is not given, as the driver takes more
            where blocks need it.
    """
    limits = {
        SmResource.BLOCKS: sm.blocks,
        SmResource.REGISTERS: _by_registers(sm, block),
        SmResource.SHARED: _by_shared(sm, block, sm.shared if carveout is None else carveout),
        SmResource.WARPS: sm.warps // block.warps,
    }
    if block.barriers is not None:
        limits[SmResource.BARRIERS] = block.barriers
    warps = min(limits.values()) * block.warps
    return BlockFit(limits, warps, warps / sm.warps)


def most_for(sm: SmLimits, block: BlockNeeds, need: BlockNeed, blocks: int) -> int:
    """The largest value with which so many blocks have room by it; 0 or less where they have none."""
    if need is BlockNeed.BLOCK_SIZE:
        return sm.warps // blocks * WARP
    if need is BlockNeed.SHARED:
        return sm.shared // blocks // sm.shared_unit * sm.shared_unit - sm.reserved
    return min(most_registers(block.threads, blocks, sm.registers, sm.schedulers), sm.registers_of_thread)


def most_registers(threads: int, blocks: int, registers: int = 65_536, schedulers: int = 4) -> int:
    """How many registers a thread may have so that an SM holds so many blocks of so many threads.

    By default of an SM as chips have them since compute capability 5.0, but for 6.0, which has 2 schedulers (CUDA C++
    Programming Guide, Compute Capabilities): for reports that do not tell.
    """
    warps_of_part = -(-blocks * -(-threads // WARP) // schedulers)
    return registers // schedulers // warps_of_part // _REGISTER_UNIT * _REGISTER_UNIT // WARP


def _by_registers(sm: SmLimits, block: BlockNeeds) -> int:
    of_warp = _rounded_up(max(1, block.registers) * WARP, _REGISTER_UNIT)
    return sm.registers // sm.schedulers // of_warp * sm.schedulers // block.warps


def _by_shared(sm: SmLimits, block: BlockNeeds, carveout: int) -> int:
    needed = _rounded_up(block.shared + sm.reserved, sm.shared_unit)
    return carveout // needed if needed else sm.blocks


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def sm_limits(metrics: Counters) -> SmLimits | None:
    """What an SM of the device has that a launch ran on; None where a report does not tell."""
    has = {name: _whole(metrics, _ATTRIBUTE + attribute) for name, attribute in _ATTRIBUTES.items()}
    major = _whole(metrics, f"{_ATTRIBUTE}compute_capability_major")
    known = {name: value for name, value in has.items() if value is not None}
    if len(known) < len(has) or not major or not known["schedulers"] or not known["warps"]:
        return None
    return SmLimits(**known, shared_unit=_SHARED_UNIT if major >= _AMPERE else _OLD_SHARED_UNIT)


_ATTRIBUTES = {
    "warps": "max_warps_per_multiprocessor",
    "blocks": "max_blocks_per_multiprocessor",
    "registers": "max_registers_per_multiprocessor",
    "schedulers": "num_schedulers_per_multiprocessor",
    "shared": "max_shared_memory_per_multiprocessor",
    "shared_of_block": "max_shared_memory_per_block_optin",
    "reserved": "reserved_shared_memory_per_block",
    "threads_of_block": "max_threads_per_block",
    "registers_of_thread": "max_registers_per_thread",
}


def block_needs(metrics: Counters) -> BlockNeeds | None:
    """What a block of a launch needs; None where a report does not tell."""
    threads, registers = _whole(metrics, "launch__block_size"), _whole(metrics, c.REGISTERS)
    shared = [_whole(metrics, f"launch__shared_mem_per_block_{kind}") for kind in ("static", "dynamic")]
    if not threads or registers is None or None in shared:
        return None
    barriers = _whole(metrics, BLOCK_LIMITS[SmResource.BARRIERS])
    return BlockNeeds(threads, registers, sum(one or 0 for one in shared), barriers)


def _whole(metrics: Counters, name: str) -> int | None:
    value = number(metrics, name)
    return None if value is None else int(value)
