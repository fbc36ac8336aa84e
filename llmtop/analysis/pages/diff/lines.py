"""Where in their code kernels wait, line by line, beside the same lines of a baseline.

Lines are the same where file, number and text are; then where the text is, whatever its number now; then where file and
number are. What a line costs is its share of the kernel's waiting, by the time of a call.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.source import KernelSource, kernel_source
from llmtop.analysis.pages.diff.kernels import kernel_changes
from llmtop.analysis.tables import numbered
from llmtop.analysis.views import Column
from llmtop.frozen import frozen
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.analysis.pages.diff.kernels import CallTimes
    from llmtop.analysis.pages.diff.side import Side
    from llmtop.analysis.tables import RowTable
    from llmtop.analysis.views import Cell

_KERNELS = 4
"""Of each pair of reports those whose time changed most: to read the code of one takes a while."""
_LEAST_SHARE = 0.005
"""Of a kernel's time on both sides: lines that changed by less than that of the larger one are left out. Ours."""
_NEW, _GONE = Unknown("there is no such line in the baseline"), Unknown("there is no such line any more")
_COLUMNS = (
    Column("kernel", "kernel", width=24, shrink=2),
    Column("before", "line A", width=20, shrink=3, help="file and number in the baseline"),
    Column("after", "line B", width=20),
    Column("name", "source", width=0),
    Column("was", "A", "ns", 9, 1, "the line's share of the waiting, by the time of a call", pair="cost"),
    Column("is", "B", "ns", 9, 1, "the same now", pair="cost"),
    Column("change", "change", "ns", 10, 0, "of a call", is_signed=True),
)


@frozen
class WaitingLine:
    """A line of one side.

    Attributes:
        text: Without the blanks around it; None where the source is not there.
        cost_ns: Of a call.
    """

    file: str
    number: int
    text: str | None
    cost_ns: float

    @property
    def place(self) -> str:
        """File and number, in short."""
        return f"{self.file}:{self.number}"


@frozen
class LineChange:
    """A line of a kernel that is in both reports; one side is None where the line is new or gone."""

    kernel: str
    before: WaitingLine | None
    after: WaitingLine | None

    @property
    def change_ns(self) -> float:
        """What it takes of a call more than before."""
        was, now = (0.0 if one is None else one.cost_ns for one in (self.before, self.after))
        return now - was

    @property
    def text(self) -> str:
        """As it is now, or was where it is gone; empty where the source is not there."""
        shown = self.after or self.before
        return "" if shown is None else shown.text or ""


def line_changes(before: Side, after: Side) -> tuple[LineChange, ...]:
    """Lines of the kernels whose time changed most, those that changed most first; none without samples of both."""
    both = [change for change in kernel_changes(before, after) if change.is_in_both][:_KERNELS]
    changes: list[LineChange] = []
    for one in both:
        mine, theirs = _lines(before, one.before), _lines(after, one.after)
        if mine and theirs:
            least = _LEAST_SHARE * max(sum(line.cost_ns for line in side) for side in (mine, theirs))
            found = (LineChange(one.name, was, now) for was, now in same_lines(mine, theirs))
            changes += [change for change in found if abs(change.change_ns) >= least]
    return tuple(sorted(changes, key=lambda change: -abs(change.change_ns)))


def _lines(side: Side, calls: CallTimes | None) -> list[WaitingLine]:
    source = None if calls is None or math.isnan(calls.mean_ns) else kernel_source(side.trace, calls.launch)
    if not isinstance(source, KernelSource) or calls is None:
        return []
    return [
        WaitingLine(posixpath.basename(one.file), one.line, _text(source, one.file, one.line), share * calls.mean_ns)
        for one in source.lines
        if (share := source.share(one.spent))
    ]


def _text(source: KernelSource, file: str, line: int) -> str | None:
    text = source.line_text(file, line)
    return None if isinstance(text, Unknown) else text.strip()


def same_lines(
    before: Sequence[WaitingLine], after: Sequence[WaitingLine]
) -> Iterator[tuple[WaitingLine | None, WaitingLine | None]]:
    """Pairs of lines, each in one pair; then those that only one side has."""
    left, right = list(before), list(after)
    keys: tuple[Callable[[WaitingLine], Hashable], ...] = (
        lambda line: (line.file, line.number, line.text),
        lambda line: (line.file, line.text) if line.text and any(map(str.isalnum, line.text)) else None,
        lambda line: (line.file, line.number),
    )
    for key in keys:
        waiting = {key(line): line for line in reversed(right)}
        for was in list(left):
            now = waiting.pop(key(was), None) if key(was) is not None else None
            if now is not None:
                left.remove(was)
                right.remove(now)
                yield was, now
    yield from ((was, None) for was in left)
    yield from ((None, now) for now in right)


def line_table(changes: Sequence[LineChange]) -> RowTable:
    """A row for each of them."""
    return numbered(_COLUMNS, [tuple(_cells(change)) for change in changes])


def _cells(change: LineChange) -> Iterator[Cell]:
    was, now = change.before, change.after
    yield change.kernel
    yield _NEW if was is None else was.place
    yield _GONE if now is None else now.place
    yield change.text
    yield _NEW if was is None else was.cost_ns
    yield _GONE if now is None else now.cost_ns
    yield change.change_ns
