"""Steps, NVTX ranges, streams and GPUs of a timeline: what each takes, what its GPU did in it, and which are slow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType

from llmtop.analysis.kernels.absent import not_of_kernels
from llmtop.analysis.kernels.breakdown.breakdown import Breakdown, By, TimePart, breakdown
from llmtop.analysis.kernels.breakdown.breakdown_table import (
    account_lines,
    breakdown_table,
    spread_of,
    spread_text,
    why_slow,
)
from llmtop.analysis.kernels.breakdown.ranks import rank_summary
from llmtop.analysis.timeline.capture import why_no_work
from llmtop.analysis.timeline.clock_words import clock_text
from llmtop.model import Stretch, Trace, Unknown
from llmtop.tui.panes.report import IN_TIME, ListPane
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from llmtop.analysis.tables import RowTable
    from llmtop.analysis.views import TableView
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look

_NEXT = {By.STEP: By.NVTX, By.NVTX: By.STREAM, By.STREAM: By.RANK, By.RANK: By.STEP}
_TITLES = {By.STEP: "Steps", By.NVTX: "Steps: ranges", By.STREAM: "Steps: streams", By.RANK: "Steps: GPUs"}


class StepsPane(ListPane[Breakdown]):
    """The time of steps; the account of the one under the cursor is below, and Enter gives it the room."""

    number = 3
    title = "Steps"
    is_of_reports = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "by", "by", tooltip="By step, by range, by stream, by GPU or rank"),
        IN_TIME,
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.by = By.STEP

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return not_of_kernels(trace) or why_no_work(trace)

    def action_by(self) -> None:
        """Make rows of the next kind."""
        self.by = _NEXT[self.by]
        is_run = self.by is By.RANK and self._trace is not None and bool(self._trace.parts)
        self.table.border_title = "Steps: ranks" if is_run else _TITLES[self.by]
        if self._trace is not None:
            self.show(self._trace)

    def view(self, trace: Trace) -> Breakdown | Unknown:
        found = breakdown(trace, self.by)
        if isinstance(found, Unknown):
            return Unknown(found.reason, f"b: by something else; {found.remedy}".removesuffix("; "))
        return found

    def rows(self, view: Breakdown, trace: Trace) -> RowTable:
        return breakdown_table(view, trace.start_ns)

    def summed(self, view: Breakdown, rows: TableView) -> str:
        if view.by is By.RANK:
            return rank_summary(view.parts)
        if view.by is not By.STEP:
            return ""
        slow = sum(one.is_slow for one in view.parts)
        spreads = sorted(view.spreads, key=lambda one: -len(one.steps))
        return "; ".join([*([f"{slow} slow"] if slow else []), *map(spread_text, spreads)])

    def when(self, view: Breakdown, trace: Trace, key: int) -> Stretch | Unknown:
        part = view.parts[key]
        if part.times > 1:  # the first of several: where the others are, the row does not know
            return Stretch(part.start_ns, part.start_ns)
        return Stretch(part.start_ns, part.start_ns + part.account.wall_ns)

    def details(self, view: Breakdown, trace: Trace, key: int, width: int, look: Look) -> Paragraphs:
        return tuple(_details(view, view.parts[key], key))


def _details(view: Breakdown, part: TimePart, row: int) -> Iterator[tuple[str, str]]:
    of = f"step {row + 1} of {len(view.parts)}, " if view.by is By.STEP else ""
    yield f"{part.name}  ({of}{part.owner})", "title"
    if slow := why_slow(part, spread_of(view, part)):
        yield slow, "warn"
    yield from ((text, "text") for text in account_lines(part))
    if part.cpu_ns is not None and part.cpu_ns != part.account.wall_ns:
        yield f"on the CPU the range was open for {duration(part.cpu_ns)}", "dim"
    if part.clock is not None:
        yield f"clock: {clock_text(part.clock)}", "dim"
    if isinstance(part.phase, Unknown):
        yield f"prefill or decode: not told: {part.phase}", "dim"
    sure = "" if view.sureness is None else f" (sure to {percent(100 * view.sureness)})"
    yield f"found {view.found}{sure}", "dim"


VIEW: Final = StepsPane
