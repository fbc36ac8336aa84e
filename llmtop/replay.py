"""Plays a recording as if it were watched: the same traces at the same distance, faster, slower, or one by one."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from datetime import datetime
from typing import TYPE_CHECKING, Final

from llmtop.model import NS_PER_S
from llmtop.units import clock_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from llmtop.model import Target, Trace, What
    from llmtop.recording.reader import RecordingReader

SPEEDS: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_NORMAL: Final = SPEEDS.index(1.0)
PAUSED: Final = "paused"
"""What `Replay.state` says of one that does not move."""


class Replay:
    """What the live screen asks of a session, answered from a recording.

    It stands still at first: at the end, or at the first moment, where the condition held by which it was recorded.

    Args:
        recording: As far as it was written when it was opened.
        clock: Seconds, for how far it has been played.
    """

    interval_s = 0.5
    """Between two frames while it plays."""
    look_stretch = 1.0

    def __init__(self, recording: RecordingReader, clock: Callable[[], float] = time.monotonic) -> None:
        self._recording = recording
        self._times = recording.times
        self._clock = clock
        self._at_ns = self._times[0 if recording.trigger else -1]
        """Where it stood when it was last told to go somewhere, to play or to stop, which was `_since_s`."""
        self._since_s = clock()
        self._speed = _NORMAL
        self.is_playing = False
        self.on_news: Callable[[], None] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llmtop plays", daemon=True)

    # -- what a session does -----------------------------------------------------------------------------------

    @property
    def target(self) -> Target | None:
        """The server under observation at the moment."""
        return self._recording.target(self.at_ns)

    def trace(self) -> Trace:
        """What was known at the moment."""
        return self._recording.trace(self.at_ns)

    def start(self) -> None:
        """Begin to tell of news."""
        self._thread.start()
        self._tell()

    def stop(self) -> None:
        """Tell of nothing any more."""
        self._stop.set()
        self._thread.join()

    def ask(self, what: What, wanted: bool) -> None:
        """Nobody can look any more at what was not taken."""

    # -- where it is -------------------------------------------------------------------------------------------

    @property
    def at_ns(self) -> int:
        """The moment, on the clock of the recording; at its end it does not move any more."""
        if not self.is_playing:
            return self._at_ns
        passed_ns = (self._clock() - self._since_s) * SPEEDS[self._speed] * NS_PER_S
        return min(self._at_ns + int(passed_ns), self._times[-1])

    @property
    def begin_ns(self) -> int:
        """From when on places in it are counted."""
        return self._recording.begin_ns

    @property
    def moments(self) -> Sequence[int]:
        """All that there are."""
        return self._times

    @property
    def said(self) -> str:
        """Whether it moves, where in it that is, whether its end is lost, whose recording it is and of when."""
        host, utc_ns = self._recording.about.get("host"), self._recording.about.get("utc_ns")
        at_ns, first_ns = self.at_ns, self.begin_ns
        of = f", of {host}" if isinstance(host, str) and host else ""
        when = f" at {_local_time(utc_ns + at_ns)}" if isinstance(utc_ns, int) else ""
        length = f"{clock_time((at_ns - first_ns) / NS_PER_S)} of {clock_time((self._times[-1] - first_ns) / NS_PER_S)}"
        trigger = f", at {self._recording.trigger}" if self._recording.trigger and at_ns == self._times[0] else ""
        cut = ", cut short" if self._recording.is_cut else ""
        return f"recording {self.state}, {length}{cut}{trigger}{of}{when}"  # a narrow screen cuts its end off

    @property
    def state(self) -> str:
        """Whether it moves, and how fast."""
        if not self.is_playing or self.at_ns >= self._times[-1]:
            return PAUSED
        return "playing" if self._speed == _NORMAL else f"playing {SPEEDS[self._speed]:g}x"

    # -- where it goes -----------------------------------------------------------------------------------------

    def toggle(self) -> None:
        """Play, or stand still; at the end play from the beginning."""
        is_over = self.at_ns >= self._times[-1]
        self._stand(self._times[0] if is_over else self.at_ns, is_playing=is_over or not self.is_playing)

    def change_speed(self, step: int) -> None:
        """Faster (1) or slower (-1)."""
        self._stand(self.at_ns, is_playing=self.is_playing)
        self._speed = min(max(self._speed + step, 0), len(SPEEDS) - 1)

    def seek(self, t_ns: int) -> None:
        """Go to a moment, or to the first or the last one."""
        self._stand(min(max(t_ns, self._times[0]), self._times[-1]), is_playing=self.is_playing)

    def step(self, steps: int) -> None:
        """Go some moments on or back, and stand still there."""
        at = bisect_right(self._times, self.at_ns) - 1
        self._stand(self._times[min(max(at + steps, 0), len(self._times) - 1)], is_playing=False)

    def seek_among(self, moments: Sequence[int], direction: int) -> bool:
        """Go to the next (1) or the last (-1) of some moments, and stand still there; False where there is none."""
        at_ns = self.at_ns
        at = bisect_right(moments, at_ns) if direction > 0 else bisect_left(moments, at_ns) - 1
        if not 0 <= at < len(moments):
            return False
        self._stand(moments[at], is_playing=False)
        return True

    @property
    def events(self) -> Sequence[int]:
        """The moments at which something happened that the event log would name, or by which it was recorded."""
        trigger = self._times[:1] if self._recording.trigger else []
        return self._after((*trigger, *(mark.t_ns for mark in self._recording.marks)))

    @property
    def verdicts(self) -> Sequence[int]:
        """The moments from which on the rules found something else."""
        return self._after(self._recording.verdict_times)

    def _after(self, moments: Iterable[int]) -> Sequence[int]:
        """The first moments that know of these."""
        last = len(self._times) - 1
        return sorted({self._times[min(bisect_left(self._times, t_ns), last)] for t_ns in moments})

    def _stand(self, at_ns: int, *, is_playing: bool) -> None:
        self._at_ns, self._since_s, self.is_playing = at_ns, self._clock(), is_playing

    def _run(self) -> None:
        while not self._stop.wait(self.interval_s):
            if self.is_playing:
                self._tell()

    def _tell(self) -> None:
        if self.on_news is not None:
            self.on_news()


def _local_time(utc_ns: int) -> str:
    """The time of day here; another day than today by its date."""
    then = datetime.fromtimestamp(utc_ns / NS_PER_S).astimezone()
    return f"{then:%H:%M:%S}" if then.date() == datetime.now().astimezone().date() else f"{then:%Y-%m-%d %H:%M:%S}"


def moment_of(text: str, at_ns: int, first_ns: int) -> int | None:
    """What a user calls a place in a recording, which may lie outside of it; None where it is none.

    >>> minute = 60 * NS_PER_S
    >>> [moment_of(text, 5 * minute, minute) // minute for text in ("2:00", "+60", "-1:00", "0:01:00")]
    [3, 6, 4, 2]
    >>> moment_of("soon", 0, 0)

    Args:
        text: Seconds, minutes:seconds or hours:minutes:seconds from the beginning; with a sign from where it stands.
        at_ns: Where it stands.
        first_ns: Its beginning.
    """
    words = text.strip()
    sign = {"+": 1, "-": -1}.get(words[:1], 0)
    parts = (words[1:] if sign else words).split(":")
    if len(parts) > 3 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return at_ns + sign * seconds * NS_PER_S if sign else first_ns + seconds * NS_PER_S
