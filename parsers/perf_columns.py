"""Tables that perf prints for a terminal: their columns stand under dots, and begin and end where these do.

    #        ----------- Cacheline ----------      Tot  ------- Load Hitm -------
    # Index             Address  Node  PA cnt     Hitm    Total  LclHitm  RmtHitm
    # .....  ..................  ....  ......  .......  .......  .......  .......

What stands between dashes goes with all columns below it (tools/perf/ui/stdio/hist.c, hists__fprintf_headers).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from llmtop.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

DOTS = re.compile(r"#(?:\s+\.{2,})+\s*")
_GROUP = re.compile(r"-{2,} ?([^-].*?) ?-{2,}")


@frozen
class PerfColumns:
    """The columns of a table.

    Attributes:
        names: Of each, what stands above it: "Load Hitm LclHitm", "Total records".
        ends: From where to where its cells go.
    """

    names: tuple[str, ...]
    ends: tuple[tuple[int, int], ...]

    def cells(self, line: str) -> dict[str, str]:
        """What a line has in each; the last goes on to its end."""
        last = len(self.ends) - 1
        return {
            name: line[start : None if i == last else stop].strip()
            for i, (name, (start, stop)) in enumerate(zip(self.names, self.ends, strict=True))
        }

    def rest_from(self, name: str, line: str) -> list[str]:
        """The cells from one column on, which may be longer than their dots: two spaces stand between them."""
        at = next((start for one, (start, _) in zip(self.names, self.ends, strict=True) if one == name), len(line))
        return re.split(r"\s{2,}", line[at:].strip())


def perf_columns(heads: Sequence[str], dots: str) -> PerfColumns:
    """The columns above a line of dots, of the lines that begin with "#" before it.

    >>> heads = ["#        -- Load Hitm --    Total", "# Index    Lcl      Rmt   records"]
    >>> perf_columns(heads, "# .....  ......  .......  .......").names
    ('Index', 'Load Hitm Lcl', 'Load Hitm Rmt', 'Total records')
    """
    ends = tuple(found.span() for found in re.finditer(r"\.+", dots))
    return PerfColumns(tuple(_name(heads, start, stop) for start, stop in ends), ends)


def _name(heads: Sequence[str], start: int, stop: int) -> str:
    parts = (_above(f" {head[1:]}", start, stop) for head in heads)
    return " ".join(part for part in parts if part)


def _above(head: str, start: int, stop: int) -> str:
    """What a line of heads says of the column there."""
    for group in _GROUP.finditer(head):
        if group.start() < stop and start < group.end():
            return group[1].strip()
    return head[start:stop].strip()
