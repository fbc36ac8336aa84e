"""Panes with a time axis: a cursor that reads an instant, and a window that can be made wider."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.binding import Binding, BindingType

from llmtop.analysis.series.readings import as_of
from llmtop.model import LIVE, NS_PER_S
from llmtop.tui.panes.base import Pane
from llmtop.tui.panes.view import MomentWanted, WindowWanted
from llmtop.tui.render.look import Look

if TYPE_CHECKING:
    from textual import events

    from llmtop.model import Trace
    from llmtop.tui.panes.view import Moment
    from llmtop.tui.render.axis import Axis

V = TypeVar("V")

WINDOWS_NS = tuple(seconds * NS_PER_S for seconds in (60, 300, 600, 3_600, 86_400))
"""How much time an axis may show; the widest of use is the first that holds all that is recorded."""
_JUMP = 10
"""Cells that a large step goes."""


class TimeAxisPane(Pane[V]):
    """A pane that draws a stretch of time, and so takes the newest trace also while an earlier moment is shown.

    The cursor stands at a moment, not in a column: it stays there while new data comes. A subclass gives `axis`, and
    draws `until`, the trace as it stood at the right edge.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "cursor", key_display="left", tooltip="Move the cursor in time; all panes follow"),
        Binding("right", "step(1)", "cursor", show=False, tooltip="Move the cursor in time; all panes follow"),
        Binding("shift+left,H", f"step(-{_JUMP})", "far", show=False, tooltip=f"Move the cursor by {_JUMP} cells"),
        Binding("shift+right,L", f"step({_JUMP})", "far", show=False, tooltip=f"Move the cursor by {_JUMP} cells"),
        Binding("home", "oldest", "oldest", show=False, tooltip="The oldest moment that is recorded"),
        Binding("end", "newest", "now", show=False, tooltip="Back to now"),
        Binding("plus,equals_sign", "widen(-1)", "closer", key_display="+", show=False, tooltip="A shorter stretch"),
        Binding("minus", "widen(1)", "wider", key_display="-", show=False, tooltip="A longer stretch of time"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.at_ns: int | None = None
        self.window_ns = WINDOWS_NS[0]
        self._newest: Trace | None = None

    def axis(self, width: int) -> Axis | None:
        """Where time stands in a drawing of this width; None where there is no drawing."""
        raise NotImplementedError

    def show_moment(self, moment: Moment) -> None:
        is_known, has_moved = moment.newest is self._newest, moment.at_ns != self.at_ns
        self._stale |= moment.window_ns != self.window_ns
        self.at_ns, self.window_ns, self._newest = moment.at_ns, moment.window_ns, moment.newest
        self._follow(moment.newest, has_moved=has_moved, is_known=is_known)

    def _follow(self, newest: Trace, *, has_moved: bool, is_known: bool) -> None:
        """Draw the stretch of time that the cursor is in; or the cursor alone, where that stretch may stay."""
        until = self._until(newest)
        is_drawn = self._trace is not None and not self._stale and until.end_ns == self._trace.end_ns
        if not (is_known and is_drawn) and not self._is_new_enough(until):
            self.show(until)
        elif has_moved:
            self.redraw()

    def _until(self, newest: Trace) -> Trace:
        """The trace at the right edge: now, or half windows back until the cursor is inside."""
        if self.at_ns is None:
            return newest
        half = self.window_ns // 2
        back = max(0, -((self.at_ns - newest.end_ns + self.window_ns) // half)) * half
        return as_of(newest, newest.end_ns - back)

    # -- the cursor --------------------------------------------------------------------------------------------

    def action_step(self, cells: int) -> None:
        """Move the cursor by cells; past the newest moment it is gone."""
        axis = self.axis(self.size.width)
        if axis is not None and self._newest is not None:
            now = min(self._newest.end_ns, axis.end_ns - 1)
            at_ns = now if self.at_ns is None else self.at_ns
            cell = (at_ns - axis.start_ns) // axis.step_ns + cells
            self.go_to(axis.time_of(cell))

    def action_oldest(self) -> None:
        """Go to the oldest moment that is recorded."""
        if self._newest is not None:
            self.go_to(self._newest.start_ns)

    def action_newest(self) -> None:
        """Back to now."""
        self.go_to(None)

    def on_click(self, event: events.Click) -> None:
        offset, axis = event.get_content_offset(self), self.axis(self.size.width)
        if offset is not None and axis is not None and 0 <= offset.x - axis.left < axis.columns:
            self.go_to(axis.time_of(offset.x - axis.left))

    def go_to(self, t_ns: int | None) -> None:
        """Stand at a moment and draw that at once; the other panes follow."""
        newest = self._newest
        if newest is None:
            return
        is_past = t_ns is not None and t_ns < newest.end_ns
        self.at_ns = max(newest.start_ns, t_ns) if is_past and t_ns is not None else None
        self._follow(newest, has_moved=True, is_known=True)
        self.post_message(MomentWanted(self.at_ns))

    # -- how much time -----------------------------------------------------------------------------------------

    def action_widen(self, step: int) -> None:
        """Show a longer (1) or a shorter stretch of time, at most all that is recorded."""
        if self._newest is None:
            return
        recorded = self._newest.end_ns - self._newest.start_ns
        widest = next((i for i, window in enumerate(WINDOWS_NS) if window >= recorded), len(WINDOWS_NS) - 1)
        at = WINDOWS_NS.index(self.window_ns) + step
        self.post_message(WindowWanted(WINDOWS_NS[max(0, min(at, widest))]))

    def said_window(self, look: Look) -> str:
        """What stands in the border: how much time is shown, and where the cursor is."""
        seconds = self.window_ns // NS_PER_S
        window = f"last {seconds} s" if seconds < 120 else f"last {seconds // 60} min"
        if self.at_ns is None or self._newest is None:
            return window
        ago = (self._newest.end_ns - self.at_ns) / NS_PER_S
        sign = "<" if look.glyphs.ascii else "◀"
        return f"{sign} {ago:.1f} s ago{_clock(self._newest, self.at_ns)}  {window}"


def _clock(trace: Trace, t_ns: int) -> str:
    """The time of day of a live moment: its clock counts from the start of this machine."""
    if trace.origin.kind != LIVE.kind:
        return ""
    return time.strftime(" %H:%M:%S", time.localtime((t_ns + time.time_ns() - time.monotonic_ns()) / NS_PER_S))
