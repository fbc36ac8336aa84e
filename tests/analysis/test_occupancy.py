"""Occupancy by arithmetic, against what Nsight Compute stored, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest

from llmtop.analysis.kernels.occupancy import BLOCK_LIMITS, SmResource
from llmtop.analysis.kernels.occupancy_calculator import (
    BlockNeed,
    BlockNeeds,
    SmLimits,
    block_fit,
    block_needs,
    most_for,
    most_registers,
    sm_limits,
)
from llmtop.analysis.kernels.occupancy_what_if import OccupancyWhatIf, occupancy_what_if
from llmtop.model import KernelDetails, Trace, Unknown, Value
from llmtop.parsers.registry import load
from tests.kernel_traces import LADDER, TIMELINE, Launch
from tests.kernel_traces import report as made

CURVES = {
    BlockNeed.REGISTERS: "launch__occupancy_per_register_count",
    BlockNeed.BLOCK_SIZE: "launch__occupancy_per_block_size",
    BlockNeed.SHARED: "launch__occupancy_per_shared_mem_size",
}
WITHOUT_ASKING = 48 * 1024
"""Bytes of shared memory a block may have that did not ask for more: the stored curves end there."""
LEAST_CARVEOUT = 8 * 1024
"""What the stored curves take where the launch had no shared memory."""
H100 = SmLimits(64, 32, 65536, 4, 233472, 232448, 1024, 128, 1024, 255)
ALONE = BlockNeeds(128, 32, 0)


@dataclass(frozen=True)
class Told:
    """What a report tells of one launch."""

    details: KernelDetails
    launch: int
    metrics: Mapping[str, Value]
    sm: SmLimits
    block: BlockNeeds
    carveout: int


def launches(details: KernelDetails, count: int) -> Iterator[Told]:
    """One launch of each kind of block that a report tells of."""
    known = set()
    for i in range(count):
        metrics = details.metrics(i)
        sm, block, carveout = sm_limits(metrics), block_needs(metrics), metrics.get("launch__shared_mem_config_size")
        if sm is not None and block is not None and (block, carveout) not in known:
            known.add((block, carveout))
            yield Told(details, i, metrics, sm, block, int(carveout or 0))


def occupancy_is_what_the_tool_stored(trace: Trace) -> None:
    """Its limits, its share, and its curves."""
    kernels = trace.kernels
    assert kernels is not None
    assert kernels.details is not None
    told = list(launches(kernels.details, len(kernels)))
    assert told
    for one in told:
        fit = block_fit(one.sm, one.block, one.carveout)
        stored = {resource: one.metrics.get(BLOCK_LIMITS[resource]) for resource in fit.limits}
        assert fit.limits == stored
        share = one.metrics.get("sm__maximum_warps_per_active_cycle_pct", 100 * fit.share)
        assert [100 * fit.share, 100 * block_fit(one.sm, one.block).share] == pytest.approx([share] * 2)
        for need in BlockNeed:
            curve_is_what_the_tool_stored(one, need)


def curve_is_what_the_tool_stored(one: Told, need: BlockNeed) -> None:
    stored = one.details.instances(one.launch, CURVES[need])
    if isinstance(stored, Unknown):
        return
    pairs = [(int(key), warps) for key, warps in zip(stored.keys, stored.values, strict=True)]
    tried = [(x, one.carveout, warps) for x, warps in pairs]
    if need is BlockNeed.SHARED:
        tried = list(shared_values(one, pairs))
    assert tried
    found = [block_fit(one.sm, one.block.but({need: x}), size).warps for x, size, _ in tried]
    assert found == [warps for *_, warps in tried]


def shared_values(one: Told, pairs: list[tuple[int, Value]]) -> Iterator[tuple[int, int, Value]]:
    """(own shared memory, carve-out, warps): the tool's values have what the driver keeps.

    It leaves the carve-out as it is for as long as a block fits.
    """
    unit, kept = one.sm.shared_unit, one.sm.reserved
    for x, warps in pairs:
        if x >= kept and (warps or x <= WITHOUT_ASKING):
            yield x - kept, max(one.carveout, LEAST_CARVEOUT, -(-x // unit) * unit), warps


def test_each_resource_can_be_what_limits() -> None:
    assert block_fit(H100, ALONE).limits == {
        SmResource.BLOCKS: 32,
        SmResource.REGISTERS: 16,
        SmResource.SHARED: 228,
        SmResource.WARPS: 16,
    }
    assert block_fit(H100, replace(ALONE, threads=32)).limiters == (SmResource.BLOCKS,)
    assert block_fit(H100, replace(ALONE, shared=100_000)).limiters == (SmResource.SHARED,)
    barriers = block_fit(H100, replace(ALONE, registers=24, barriers=4))
    assert (barriers.limiters, barriers.warps, barriers.share) == ((SmResource.BARRIERS,), 16, 0.25)
    assert block_fit(H100, BlockNeeds(1024, 96, 0)).blocks == 0, "three times 1,024 threads have no registers"


def test_warps_get_registers_from_one_part_of_the_sm() -> None:
    """65,536 registers are enough for 3 blocks of 5 warps with 128 registers by their sum alone, and of 4 by parts."""
    block = BlockNeeds(160, 128, 0)
    assert 65536 // (5 * 128 * 32) == 3
    assert block_fit(H100, block).limits[SmResource.REGISTERS] == 3
    assert block_fit(H100, replace(block, registers=168)).limits[SmResource.REGISTERS] == 2
    assert block_fit(H100, replace(block, registers=176)).limits[SmResource.REGISTERS] == 1, "2 by their sum"


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 12])
def test_the_most_for_some_blocks_is_the_most(blocks: int) -> None:
    block = BlockNeeds(160, 64, 4096)
    for need, resource in ((BlockNeed.REGISTERS, SmResource.REGISTERS), (BlockNeed.SHARED, SmResource.SHARED)):
        most = most_for(H100, block, need, blocks)
        assert block_fit(H100, block.but({need: most})).limits[resource] >= blocks
        assert most == H100.most(need) or block_fit(H100, block.but({need: most + 1})).limits[resource] < blocks
    size = most_for(H100, block, BlockNeed.BLOCK_SIZE, blocks)
    assert block_fit(H100, block.but({BlockNeed.BLOCK_SIZE: size})).limits[SmResource.WARPS] == 64 // (size // 32)


def test_the_most_registers_are_those_that_each_part_of_an_sm_has_for_its_warps() -> None:
    assert most_registers(96, 7) == 80, "21 warps: one part holds six of them; by their sum it were 96"
    assert block_fit(H100, BlockNeeds(96, 80, 0)).limits[SmResource.REGISTERS] >= 7
    assert block_fit(H100, BlockNeeds(96, 96, 0)).limits[SmResource.REGISTERS] < 7


def page(name: str, launch: int = 0) -> OccupancyWhatIf:
    found = occupancy_what_if(load(LADDER.with_name(f"{name}.ncu-rep.xz")), launch)
    assert isinstance(found, OccupancyWhatIf)
    return found


@pytest.mark.parametrize(
    ("name", "launch", "helps"),
    [
        (
            "too-many-registers",
            0,
            ["170 → 168 registers a thread: 3 blocks an SM in place of 2, occupancy 19 % in place of 12 %"],
        ),
        (
            "sgemm-ladder",
            3,
            [
                "40 → 32 registers a thread: 2 blocks an SM in place of 1, occupancy 100 % in place of 50 %",
                "1024 → 768 threads a block: 2 blocks an SM in place of 1, occupancy 75 % in place of 50 %",
            ],
        ),
        (
            "too-much-shared-memory",
            0,
            [
                "90.0 KiB → 75.0 KiB shared memory a block: 3 blocks an SM in place of 2, occupancy 9.4 % in place of "
                "6.2 %",
                "64 → 96 threads a block: 2 blocks an SM in place of 2, occupancy 9.4 % in place of 6.2 %",
            ],
        ),
        (
            "tiny-blocks",
            0,
            ["32 → 64 threads a block: 32 blocks an SM in place of 32, occupancy 100 % in place of 50 %"],
        ),
    ],
)
def test_the_smallest_changes_that_help(name: str, launch: int, helps: list[str]) -> None:
    found = page(name, launch)
    assert [str(change) for change in found.changes] == helps
    assert found.why_no_change == ""
    before = found.fit(found.launched).warps
    for change in found.changes:
        for need, value in change.values.items():
            if need is not BlockNeed.BLOCK_SIZE:
                assert found.fit(found.launched.but({need: value + 1})).warps == before


def test_where_two_needs_hold_each_other_both_change() -> None:
    """The values are what fits: one byte more of shared memory would be too much."""
    found = replace(page("llama-decode", 39), grid=10_000)
    (change,) = found.changes
    assert str(change) == (
        "183 → 168 registers a thread and 86336 B → 75.0 KiB shared memory a block: 3 blocks an SM in place of 2, "
        "occupancy 19 % in place of 12 %"
    )


def test_nothing_helps_a_full_sm_or_a_grid_that_has_no_more_blocks() -> None:
    small = page("llama-decode", 39)
    assert (small.changes, small.has_small_grid) == ((), True)
    assert small.why_no_change == "the whole grid runs at once: more room on an SM changes nothing, a larger grid may"
    full = replace(page("copy-at-roof"), grid=None)
    assert (full.changes, full.why_no_change) == ((), "all warps of an SM have room")
    stuck = replace(full, sm=replace(H100, blocks=1), launched=replace(ALONE, threads=1024), sms=1)
    assert stuck.why_no_change == "no other value lets more warps fit"


def test_values_step_and_stop_at_what_a_block_may_have() -> None:
    found = page("too-many-registers")
    block = found.launched
    registers = BlockNeed.REGISTERS
    less = found.stepped(block, registers, -1)
    assert less.registers == 168
    assert found.stepped(less, registers, -1).registers == 160
    assert found.stepped(block, registers, 1).registers == 176
    assert found.stepped_far(less, registers, -1).registers == 128, "4 blocks, and not another value with 3"
    assert found.stepped_far(block, registers, 1).registers == 255, "no value more changes anything: the last one"
    assert found.stepped(replace(block, registers=1), registers, -1).registers == 1
    assert found.stepped(block, BlockNeed.SHARED, -1).shared == 0
    assert found.stepped(block, BlockNeed.BLOCK_SIZE, 1).threads == 160


def test_a_curve_goes_from_the_least_to_the_most() -> None:
    found = page("too-many-registers")
    curve = found.curve(found.launched, BlockNeed.REGISTERS)
    assert (curve[0], curve[-1]) == ((8, 1.0), (255, 0.125))
    assert found.curve(found.launched, BlockNeed.SHARED)[0] == (0, 0.125)
    assert found.curve(found.launched, BlockNeed.BLOCK_SIZE)[-1] == (1024, 0.0), "as many do not launch"


def why(trace: Trace) -> Unknown:
    found = occupancy_what_if(trace, 0)
    assert isinstance(found, Unknown)
    return found


def test_what_is_not_known_has_a_reason_and_the_command() -> None:
    assert why(made()).reason == "the capture has no kernels"
    nothing = why(made(Launch("scale")))
    assert nothing.reason == "what its blocks need not collected"
    assert nothing.remedy.startswith("ncu --kernel-name scale --launch-count 1 --set full ")
    timeline = why(load(TIMELINE))
    assert timeline.reason == "this capture has no counters of its kernels"
    assert timeline.remedy.startswith("ncu ")


def test_a_report_of_few_metrics_tells_what_is_possible() -> None:
    found = page("few-metrics")
    assert found.fit(found.launched).share == 1
    assert isinstance(found.achieved, Unknown)


def test_a_launch_that_failed_has_no_occupancy() -> None:
    assert why(made(Launch("scale", grid=(0, 1, 1)))).reason == "the launch failed"
