"""When a screen has nothing left to do: asked of its event loop, not guessed from how idle the process is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from textual.pilot import Pilot

DEADLINE_S: Final = 90.0
"""For what never comes: nothing is measured by it, and a busy machine has time."""

FRAME_S: Final = 0.001
"""How soon Textual draws what has changed: a sixtieth of a second is for eyes."""
SOON_S: Final = 1 / 30
"""A timer that is due by then belongs to what a key set off."""
PATIENCE_S = 3.0
"""CPU time of this thread after which what never rests is looked at as it goes on, however busy the machine is."""
PATIENCE_TIMERS: Final = 100
"""As many timers in a row are an animation without an end, looked at as it moves."""


def seconds_to_timer(loop: Any) -> float:
    """Seconds until the next timer of a loop; infinite without one."""
    due = [handle.when() for handle in loop._scheduled if not handle.cancelled()]
    return min(due, default=float("inf")) - float(loop.time())


async def until_quiet(*_: float) -> None:
    """Wait until no callback is ready and no timer is due soon.

    It stands in for Textual's `wait_for_idle`, which sleeps for 20 ms at a time until the process has used no CPU
    meanwhile: that is 40 ms for each key, and on a busy machine it is over while the key is still under way.
    """
    loop: Any = asyncio.get_running_loop()
    give_up, timers = time.thread_time() + PATIENCE_S, 0
    while time.thread_time() < give_up and timers < PATIENCE_TIMERS:
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # twice: between the two the loop has looked at its files and other threads
        if loop._ready:
            continue
        after_s = seconds_to_timer(loop)
        if after_s > SOON_S:
            return
        timers += 1
        await asyncio.sleep(max(0.0, after_s))


async def wait_until(pilot: Pilot[Any], is_so: Callable[[], object]) -> None:
    """Wait for what another thread brings, or a timer, while the screen goes on."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        await pilot.pause(0.01)
