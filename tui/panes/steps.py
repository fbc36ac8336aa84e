"""Steps, NVTX ranges, streams and GPUs of a timeline: what each takes, what its GPU did in it, and which are slow."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType

from llmtop.analysis.kernels.absent import not_of_kernels
from llmtop.analysis.pages.breakdown import Breakdown, By, TimePart, breakdown
from llmtop.analysis.pages.breakdown_table import account_lines, breakdown_table, spread_of, spread_text, why_slow
from llmtop.analysis.timeline.capture import why_no_work
from llmtop.model import Trace, Unknown
from llmtop.tui.panes.report import ListPane
from llmtop.tui.panes.table import TablePane
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from llmtop.analysis.tables import RowTable
    from llmtop.analysis.views import TableView

_NEXT = {By.STEP: By.NVTX, By.NVTX: By.STREAM, By.STREAM: By.RANK, By.RANK: By.STEP}
_TITLES = {By.STEP: "Steps", By.NVTX: "Steps: NVTX ranges", By.STREAM: "Steps: streams", By.RANK: "Steps: GPUs"}


class StepsPane(ListPane):
    """The time of steps; the account of the one under the cursor is below, and Enter gives it the room."""

    title = "Steps"
    is_of_reports = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "by", "by", tooltip="By step, by NVTX range, by stream, by GPU"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.listing = TablePane(self.title, sum_up=self._sum_up)
        self.by = By.STEP
        self._view: Breakdown | None = None

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return not_of_kernels(trace) or why_no_work(trace)

    def action_by(self) -> None:
        """Make rows of the next kind."""
        self.by = _NEXT[self.by]
        self.listing.table.border_title = _TITLES[self.by]
        if self._trace is not None:
            self.show(self._trace)

    def analyse(self, trace: Trace) -> RowTable | Unknown:
        found = breakdown(trace, self.by)
        if isinstance(found, Unknown):
            self._view = None
            return Unknown(found.reason, f"b: by something else; {found.remedy}".removesuffix("; "))
        self._view = found
        return breakdown_table(found, trace.start_ns)

    def _sum_up(self, rows: TableView) -> str:
        if self._view is None or self.by is not By.STEP:
            return ""
        slow = sum(one.is_slow for one in self._view.parts)
        spreads = sorted(self._view.spreads, key=lambda one: -one.steps)
        return "; ".join([*([f"{slow} slow"] if slow else []), *map(spread_text, spreads)])

    def details(self, key: Hashable) -> tuple[tuple[str, str], ...]:
        view = self._view
        return () if view is None or not isinstance(key, int) else tuple(_details(view, view.parts[key], key))


def _details(view: Breakdown, part: TimePart, row: int) -> Iterator[tuple[str, str]]:
    of = f"step {row + 1} of {len(view.parts)}, " if view.by is By.STEP else ""
    yield f"{part.name}  ({of}{part.owner})", "title"
    if slow := why_slow(part, spread_of(view, part)):
        yield slow, "warn"
    yield from ((text, "text") for text in account_lines(part))
    if part.cpu_ns is not None and part.cpu_ns != part.account.wall_ns:
        yield f"on the CPU the range was open for {duration(part.cpu_ns)}", "dim"
    if isinstance(part.phase, Unknown):
        yield f"prefill or decode: not told: {part.phase}", "dim"
    sure = "" if view.sureness is None else f" (sure to {percent(100 * view.sureness)})"
    yield f"found {view.found}{sure}", "dim"


VIEW: Final = StepsPane
