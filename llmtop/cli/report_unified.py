"""Unified memory beside the copies, for `llmtop report --by copy` as JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmtop.analysis.timeline.unified import UnifiedMemory, UnifiedPage
    from llmtop.cli.documents import Json

COLUMNS = ("to_gpu_bytes", "to_cpu_bytes", "cpu_faults", "gpu_faults")
"""What a row of CSV tells of unified memory alone, and one of copies leaves empty."""


def unified_document(found: UnifiedMemory) -> Json:
    """The sums of all, by base address, and the instructions that met faults."""
    return {
        **_page(found.whole),
        "addresses": [{"address": page.address, **_page(page)} for page in found.pages],
        "instructions": [{"instruction": name, "cpu_faults": faults} for name, faults in found.instructions],
    }


def _page(page: UnifiedPage) -> dict[str, Json]:
    return {"ns": page.ns, **dict(zip(COLUMNS, _sums(page), strict=True))}


def _sums(page: UnifiedPage) -> tuple[int | None, ...]:
    return page.to_gpu, page.to_cpu, page.cpu_faults, page.gpu_faults


def unified_cells(found: UnifiedMemory) -> Iterator[Mapping[str, object]]:
    """Rows of CSV by title: the sums of all, which have no name, those of each address, and the instructions."""
    for page in (found.whole, *found.pages):
        told = dict(zip(COLUMNS, _sums(page), strict=True))
        yield {"kind": "unified", "name": page.address, "total_ns": page.ns, "total_bytes": page.moved, **told}
    for name, faults in found.instructions:
        yield {"kind": "faulting-instruction", "name": name, "cpu_faults": faults}
