"""What kinds of work the kernels' time goes into."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.family import KernelFamily
from llmtop.analysis.kernels.nvtx_ranges import range_shares
from llmtop.analysis.kernels.programs import Words
from llmtop.analysis.kernels.table import Grouping, kernels_of
from llmtop.frozen import frozen

if TYPE_CHECKING:
    from llmtop.analysis.kernels.table import Row
    from llmtop.model import Trace


@frozen
class FamilyShare:
    """The kernels of one family.

    Attributes:
        kernels: How many names.
        total_ns: Time of the launches that have one; kernels that ran side by side count twice.
        share: Of all kernels' time, 0 to 1.
        longest: Short names of its kernels with the most time, at most three.
    """

    family: KernelFamily
    kernels: int
    launches: int
    total_ns: float
    share: float
    longest: tuple[str, ...]


_SHOWN = 3
"""Names of kernels that are told of each kind."""
OTHER_NOTABLE = 0.1
"""Of the kernels' time: with so much in no family the table of families says less, and how to tell more of it."""


def other_kinds(trace: Trace) -> str:
    """What "other" stands for, and what tells more, where much of the time is in it; else empty."""
    share = next((one.share for one in family_shares(trace) if one.family is KernelFamily.OTHER), 0.0)
    if share < OTHER_NOTABLE:
        return ""
    ranges = f"the table by {trace.origin.range_term} has their parts" if range_shares(trace) else _marking(trace)
    return (
        "other: kernels with names of no library that llmtop knows, mostly the program's own: the table of kernels has "
        f"each of them; {ranges}"
    )


_MARK = Words(pytorch="torch.cuda.nvtx.range", other="nvtxRangePush, nvtxRangePop")


def _marking(trace: Trace) -> str:
    """How to have them by what they are for; PyTorch's profiler records no NVTX."""
    term = trace.origin.range_term
    how = _MARK.of(trace) if trace.origin.has_nvtx else "torch.profiler.record_function"
    return f"to have them by what they are for, mark phases with {term}s ({how})"


@lru_cache(maxsize=8)
def family_shares(trace: Trace) -> tuple[FamilyShare, ...]:
    """The families of a trace's kernels, the one with the most time first. Needs names and times alone."""
    kernels = kernels_of(trace)
    rows: dict[KernelFamily, list[Row]] = defaultdict(list)
    for row in kernels.groups(Grouping.NAME):
        rows[kernels.kind(row.launches[0]).family].append(row)
    shares = [
        FamilyShare(
            family,
            len(members),
            sum(row.calls for row in members),
            total := sum(row.total_ns for row in members if row.total_ns == row.total_ns),
            kernels.share(total) or 0.0,
            tuple(kernels.short_name(row.launches[0]) for row in members[:_SHOWN]),
        )
        for family, members in rows.items()
    ]
    return tuple(sorted(shares, key=lambda share: -share.total_ns))
