"""The occupancy of kernels, for `llmtop report --by occupancy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.kernels.occupancy_calculator import BlockNeed
from llmtop.analysis.kernels.occupancy_table import occupancy_pages, occupancy_table, said_of_occupancy
from llmtop.analysis.kernels.occupancy_what_if import OccupancyChange, OccupancyWhatIf
from llmtop.cli.documents import fact
from llmtop.cli.launches_table import launches_table
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.cli.part_table import PartTable, WantedTable
    from llmtop.model import Trace

Pages: TypeAlias = "dict[int, OccupancyWhatIf | Unknown]"


def occupancy_by(trace: Trace, wanted: WantedTable) -> PartTable[Pages]:
    """What the SMs hold of each kernel, what limits it, and what would help."""
    return launches_table(
        "Occupancy",
        trace,
        wanted,
        occupancy_pages(trace, wanted.kernel),
        table=occupancy_table,
        parts=("occupancy", _occupancy),
        said=lambda: said_of_occupancy(trace, wanted.kernel),
    )


def _occupancy(page: OccupancyWhatIf) -> Json:
    fit, block = page.fit(page.launched), page.launched
    return {
        "possible": fit.share,
        "achieved": fact(page.achieved) if isinstance(page.achieved, Unknown) else page.achieved / 100,
        "blocks_of_sm": fit.blocks,
        "warps_of_sm": fit.warps,
        "most_warps_of_sm": page.sm.warps,
        "limits": {str(one): blocks for one, blocks in fit.limits.items()},
        "limited_by": [str(one) for one in fit.limiters],
        "threads": block.threads,
        "registers": block.registers,
        "shared_bytes": block.shared,
        "changes": [_change(one) for one in page.changes],
        "why_no_change": page.why_no_change or None,
        "curves": {_KEYS[need]: _bends(page.curve(page.launched, need)) for need in BlockNeed},
    }


_KEYS = {BlockNeed.REGISTERS: "registers", BlockNeed.BLOCK_SIZE: "threads", BlockNeed.SHARED: "shared_bytes"}


def _change(change: OccupancyChange) -> Json:
    return {
        "values": {_KEYS[need]: value for need, value in change.values.items()},
        "blocks_of_sm": change.after.blocks,
        "possible": change.after.share,
        "said": str(change),
    }


def _bends(curve: tuple[tuple[int, float], ...]) -> Json:
    """Of a curve the points at which it takes another value."""
    shares = [None, *(share for _, share in curve)]
    return [[value, share] for (value, share), before in zip(curve, shares, strict=False) if share != before]
