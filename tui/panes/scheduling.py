"""Which threads ran, and which waited for a CPU, of what perf has recorded of the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from llmtop.analysis.threads.scheduling import (
    NO_SCHEDULING,
    TITLE,
    SchedulingRow,
    began_at,
    scheduling_rows,
    scheduling_table,
)
from llmtop.model import Stretch, Trace, Unknown
from llmtop.tui.panes.report import IN_TIME, ListPane
from llmtop.units import percent, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.binding import BindingType

    from llmtop.analysis.tables import RowTable
    from llmtop.tui.panes.view import Paragraphs
    from llmtop.tui.render.look import Look

_NO_TIMELINE = Unknown("this text tells no moments", "perf sched timehist --state prints them")


class SchedulingPane(ListPane[tuple[SchedulingRow, ...]]):
    """A row for each thread, the one first that was queued longest; `t` shows its longest delay in the timeline."""

    BINDINGS: ClassVar[list[BindingType]] = [IN_TIME]
    number = 4
    title = TITLE
    is_of_reports = False

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return None if trace.scheduling else NO_SCHEDULING

    def view(self, trace: Trace) -> tuple[SchedulingRow, ...] | Unknown:
        return scheduling_rows(trace)

    def rows(self, view: tuple[SchedulingRow, ...], trace: Trace) -> RowTable:
        return scheduling_table(view)

    def details(self, view: tuple[SchedulingRow, ...], trace: Trace, key: int, width: int, look: Look) -> Paragraphs:
        return tuple(_details(view[key]))

    def when(self, view: tuple[SchedulingRow, ...], trace: Trace, key: int) -> Stretch | Unknown:
        told = view[key].told
        if told.delay_max_at_ns is None or isinstance(told.delay_max_ns, Unknown) or not trace.spans:
            return _NO_TIMELINE
        return Stretch(told.delay_max_at_ns, told.delay_max_at_ns + round(told.delay_max_ns), told.track)


def _details(row: SchedulingRow) -> Iterator[tuple[str, str]]:
    yield row.name if row.tid is None else f"{row.name} ({row.tid})", "title"
    if isinstance(row.queued_ns, Unknown) or isinstance(row.share, Unknown):
        yield f"{row.queued_ns if isinstance(row.queued_ns, Unknown) else row.share}", "text"
        return
    ran, queued = quantity(row.told.ran_ns, "ns"), quantity(row.queued_ns, "ns")
    yield f"ran {ran}, and was queued for a CPU {queued}: {percent(100 * row.share)} of the time it wanted one", "text"
    if not isinstance(row.told.delay_max_ns, Unknown) and (began := began_at(row.told)):
        yield f"the longest delay, {quantity(row.told.delay_max_ns, 'ns')}, began at {began}", "text"


VIEW: Final = SchedulingPane
