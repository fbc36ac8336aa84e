"""A frame is drawn only when the terminal has shown the last one, so that a slow link never lags behind."""

from __future__ import annotations

from collections.abc import Callable

FIRST_TIMEOUT_S = 1.0
LAST_TIMEOUT_S = 8.0
_ASKS_BEFORE_SILENT = 3
"""A terminal that has answered none of so many questions does not know this one."""


class FrameGate:
    """Decides when the next frame may be drawn.

    After a frame the terminal is asked where its cursor is; it answers when it has worked through all that came
    before. Until then the gate is shut, at most for a timeout that doubles while answers stay away. A terminal
    that never answers at all leaves the gate open.
    """

    def __init__(self, ask: Callable[[], None], clock: Callable[[], float]) -> None:
        """`ask` sends the question, `clock` gives seconds."""
        self._ask = ask
        self._clock = clock
        self._asked_at: float | None = None
        self._timeout_s = FIRST_TIMEOUT_S
        self._unanswered = 0
        self._ever_answered = False

    @property
    def is_open(self) -> bool:
        """Whether a frame may be drawn now."""
        asked_at = self._asked_at  # the thread that reads answers may take it away meanwhile
        if asked_at is None:
            return True
        if self._clock() - asked_at < self._timeout_s:
            return False
        self._give_up_waiting()
        return True

    def frame_sent(self) -> None:
        """Shut the gate until the terminal has shown what was sent."""
        if not self._ever_answered and self._unanswered >= _ASKS_BEFORE_SILENT:
            return
        self._asked_at = self._clock()
        self._ask()

    def answered(self) -> None:
        """Open it: the terminal has caught up. May be called in any thread."""
        self._ever_answered = True
        self._unanswered = 0
        self._timeout_s = FIRST_TIMEOUT_S
        self._asked_at = None

    def _give_up_waiting(self) -> None:
        self._asked_at = None
        self._unanswered += 1
        self._timeout_s = min(LAST_TIMEOUT_S, self._timeout_s * 2)
