"""The moment that the live screen shows: now, some time ago, or a picture that is held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.series.readings import as_of
from llmtop.model import NS_PER_S
from llmtop.tui.panes.time_axis import WINDOWS_NS
from llmtop.tui.panes.view import Moment

if TYPE_CHECKING:
    from llmtop.model import Trace

STEP_NS = 5 * NS_PER_S
"""How far an arrow goes, where a pane has no axis of its own to step along."""


class TimeCursor:
    """Where in time the screen stands. It stays at its moment while new data comes."""

    def __init__(self) -> None:
        self.at_ns: int | None = None
        """The moment that is shown; None for now."""
        self.window_ns = WINDOWS_NS[0]
        """How much time the panes with an axis show."""
        self._held: Trace | None = None

    @property
    def is_held(self) -> bool:
        """Whether the picture stands still while collecting goes on."""
        return self._held is not None

    def newest(self, trace: Trace) -> Trace:
        """The newest trace that may be drawn: the one that is held, or else the one given."""
        return self._held or trace

    def shown(self, newest: Trace) -> Trace:
        """The trace as it stood at the cursor; a cursor that the window has left behind goes with its start."""
        if self.at_ns is None:
            return newest
        self.at_ns = max(self.at_ns, newest.start_ns)
        return as_of(newest, self.at_ns)

    def moment(self, newest: Trace) -> Moment:
        """What the panes are to show."""
        return Moment(newest, self.shown(newest), self.at_ns, self.window_ns)

    def go_to(self, t_ns: int | None, newest: Trace) -> None:
        """Stand at a moment, within what is recorded; None, and all that is not past, is now."""
        self.at_ns = None if t_ns is None or t_ns >= newest.end_ns else max(newest.start_ns, t_ns)

    def step(self, steps: int, newest: Trace) -> None:
        """Go back (negative) or forward by steps of 5 s; forward past the newest moment is now."""
        self.go_to((newest.end_ns if self.at_ns is None else self.at_ns) + steps * STEP_NS, newest)

    def toggle_hold(self, newest: Trace) -> None:
        """Hold the picture as it is, or go on with the newest."""
        self._held = None if self.is_held else newest

    def back_to_now(self) -> bool:
        """Let go of the past and of what is held; False where there was neither."""
        was_away = self.is_held or self.at_ns is not None
        self.at_ns = self._held = None
        return was_away

    def said(self, newest: Trace, past_sign: str) -> str:
        """How the header names a moment that is not now; empty for now."""
        if self.at_ns is not None:
            return f"{past_sign} {(newest.end_ns - self.at_ns) / NS_PER_S:.0f} s ago (Esc: now)"
        return "paused (space: go on)" if self.is_held else ""
