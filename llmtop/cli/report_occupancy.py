"""The occupancy of kernels, for `llmtop report --by occupancy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from llmtop.analysis.kernels.occupancy_calculator import BlockNeed
from llmtop.analysis.kernels.occupancy_table import occupancy_pages, occupancy_table, said_of_occupancy
from llmtop.analysis.kernels.occupancy_what_if import OccupancyChange, OccupancyWhatIf
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.tables import csv_of
from llmtop.cli.documents import fact
from llmtop.cli.part_table import PartTable, WantedTable
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.cli.documents import Json
    from llmtop.model import Trace

Pages: TypeAlias = "dict[int, OccupancyWhatIf | Unknown]"


def occupancy_by(trace: Trace, wanted: WantedTable) -> PartTable[Pages]:
    """What the SMs hold of each kernel, what limits it, and what would help."""
    names = kernels_of(trace).short_name
    return PartTable(
        "Occupancy",
        trace.origin.path,
        occupancy_pages(trace, wanted.kernel),
        rows_of=lambda pages: occupancy_table(trace, pages),
        document_of=lambda pages: {
            "by": wanted.by,
            "rows": [{"kernel": names(i), "launch": i, "occupancy": _document(page)} for i, page in pages.items()],
        },
        csv_of=lambda pages: csv_of(occupancy_table(trace, pages)),
        said=lambda: said_of_occupancy(trace, wanted.kernel),
    )


def _document(page: OccupancyWhatIf | Unknown) -> Json:
    return fact(page) if isinstance(page, Unknown) else _occupancy(page)


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
