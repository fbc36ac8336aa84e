"""Calls into the driver that may never return: made in a thread that is left behind when they do not.

One thread makes them all, one after another, so that threads do not fight over Python's lock; only when a call does not
come back in time is another thread made for the next.
"""

from __future__ import annotations

import sys
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[], None]
    Wait = Callable[["CallThread", float], Exception | None]
    """Waits for so many seconds for what became of a step, and raises `Empty` when nothing has."""


def wait(hands: CallThread, patience_s: float) -> Exception | None:
    """`Wait` by the wall's clock."""
    return hands.done.get(timeout=patience_s)


class Call:
    """A call under way, in a thread of its own from now on.

    Attributes:
        start_ns: When it was made, by the caller's clock.
        is_told: Whether it was said to hang.
    """

    def __init__(self, hands: CallThread, start_ns: int, wait: Wait) -> None:
        self.start_ns = start_ns
        self.is_told = False
        self._hands = hands
        self._wait = wait

    def is_over(self, wait_s: float = 0.0) -> bool:
        """Whether it has returned by now, or does within a while, one way or the other. True only once."""
        try:
            self._wait(self._hands, wait_s) if wait_s else self._hands.done.get_nowait()
        except Empty:
            return False
        return True

    def function(self) -> str:
        """The driver's function that it is in."""
        frame = sys._current_frames().get(self._hands.thread.ident or 0)
        while frame is not None:
            if frame.f_code.co_name.startswith("nvml"):
                return frame.f_code.co_name
            frame = frame.f_back
        return "a call"


class TimedCalls:
    """Makes calls, and waits for each only so long."""

    def __init__(self, wait: Wait = wait) -> None:
        self._wait = wait
        self._hands: CallThread | None = None

    def make(self, step: Step, now_ns: int, patience_s: float) -> Call | None:
        """Make one.

        Returns:
            None when it has returned; else what tells when it does.

        Raises:
            Exception: What the step raised in time; later it is lost.
        """
        hands = self._hands or CallThread()
        self._hands = hands
        hands.todo.put(step)
        try:
            error = self._wait(hands, patience_s)
        except Empty:
            self.close()  # it ends when the call returns
            return Call(hands, now_ns, self._wait)
        if error is not None:
            raise error
        return None

    def close(self) -> None:
        """End the thread as soon as no call holds it."""
        if self._hands is not None:
            self._hands.todo.put(None)
            self._hands = None


class CallThread:
    """The thread: it takes steps until it is given None."""

    def __init__(self) -> None:
        self.todo: SimpleQueue[Step | None] = SimpleQueue()
        self.done: SimpleQueue[Exception | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="nvml", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while (step := self.todo.get()) is not None:
            try:
                step()
            except Exception as error:
                self.done.put(error)
            else:
                self.done.put(None)
