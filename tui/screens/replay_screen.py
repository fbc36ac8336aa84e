"""The live screen over a recording: all that it shows of a server, and keys that go through its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from llmtop.analysis.server.liveness import liveness
from llmtop.replay import PAUSED
from llmtop.tui.panes.base import look_of
from llmtop.tui.screens.holding import SHORT_S
from llmtop.tui.screens.live_screen import LiveScreen
from llmtop.tui.screens.live_time import STEP_NS
from llmtop.tui.screens.seek import SeekDialog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.model import Trace
    from llmtop.replay import Replay
    from llmtop.tui.render.lines import Part

_STEP = "One moment back or on, and stand still"
_SPEED = "Play slower or faster"
_EVENT = "To the event before or after"
_FINDING = "To where the rules found something else, before or after"


class ReplayScreen(LiveScreen):
    """Panes over the moment at which a recording stands."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "play", key_display="space", tooltip="Play, or stand still"),
        Binding("comma", "step(-1)", "step", key_display=",", tooltip=_STEP),
        Binding("full_stop", "step(1)", "step", key_display=".", show=False, tooltip=_STEP),
        Binding("left_square_bracket", "speed(-1)", "slower", key_display="[", show=False, tooltip=_SPEED),
        Binding("right_square_bracket", "speed(1)", "faster", key_display="]", tooltip=_SPEED),
        Binding("left_curly_bracket", "event(-1)", "event", key_display="{", show=False, tooltip=_EVENT),
        Binding("right_curly_bracket", "event(1)", "event", key_display="}", tooltip=_EVENT),
        Binding("left_parenthesis", "finding(-1)", "finding", key_display="(", show=False, tooltip=_FINDING),
        Binding("right_parenthesis", "finding(1)", "finding", key_display=")", tooltip=_FINDING),
        Binding("T", "seek", "go to", tooltip="To a time of the recording: 12:31, +30, -1:00"),
    ]

    def __init__(self, replay: Replay) -> None:
        super().__init__(replay, replay.target)
        self.replay = replay

    @property
    def _stands_still(self) -> bool:
        return super()._stands_still or self.replay.state == PAUSED

    def _state(self, newest: Trace) -> Part:
        """Where the recording stands, in the colour of how the server lives; what is wrong says the line below."""
        is_well = liveness(newest).gravest is None
        earlier = self.time.said(newest, "<" if look_of(self).glyphs.ascii else "◀")
        said = f"{self.replay.said}, {earlier}" if earlier else self.replay.said
        return said, "bad" if not is_well else "good" if self.replay.is_playing else "selected"

    def action_pause(self) -> None:
        """Play, or stand still."""
        self.replay.toggle()
        self._gone()

    def action_step(self, steps: int) -> None:
        """One moment back or on."""
        self.replay.step(steps)
        self._gone()

    def action_speed(self, step: int) -> None:
        """Play slower or faster."""
        self.replay.change_speed(step)
        self._gone()

    def action_scrub(self, step: int) -> None:
        """Five seconds back or on."""
        self.replay.seek(self.replay.at_ns + step * STEP_NS)
        self._gone()

    def action_event(self, direction: int) -> None:
        """To an event."""
        self._go_among(self.replay.events, direction, "event")

    def action_finding(self, direction: int) -> None:
        """To where what the rules find changes."""
        self._go_among(self.replay.verdicts, direction, "change of findings")

    def action_seek(self) -> None:
        """Ask for a time, and go there."""
        self.app.push_screen(SeekDialog(self.replay.at_ns, self.replay.begin_ns, self._seek))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What is a recording already is not recorded."""
        return False if action == "record" else super().check_action(action, parameters)

    def _seek(self, t_ns: int) -> None:
        self.replay.seek(t_ns)
        self._gone()

    def _go_among(self, moments: Sequence[int], direction: int, what: str) -> None:
        if self.replay.seek_among(moments, direction):
            self._gone()
        else:
            where = "after" if direction > 0 else "before"
            self.notify(f"no {what} {where} this moment", severity="warning", markup=False, timeout=SHORT_S)

    def _gone(self) -> None:
        """Show where it stands by now."""
        self.time.back_to_now()
        self.refresh_trace()
