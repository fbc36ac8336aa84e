"""Keeps what was before and after an incident: a recording begins when a trigger fires, with all that was kept."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from llmtop.analysis.pages.triggers import TriggerWatch
from llmtop.errors import FileError
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S
from llmtop.session_recording import SUFFIX, begin_recording, new_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from llmtop.analysis.pages.triggers import Trigger
    from llmtop.model import Trace
    from llmtop.session_recording import Recorded, SessionRecording

LONGEST_S: Final = 600.0
"""Of what follows a trigger: a fault that lasts is in its first minutes."""
RETRIED_NS: Final = 60 * NS_PER_S
"""How long nothing is tried after a file could not be made, or a disk was full."""
_PREFIX: Final = "incident-"
_OURS: Final = re.compile(rf"{_PREFIX}\d{{8}}-\d{{6}}-[\w.-]+{re.escape(SUFFIX)}")
_DAY_S: Final = 86400.0


@frozen
class KeptIncidents:
    """How much is kept of incidents, whichever is reached first.

    Attributes:
        size: Bytes, of all together.
        age_s: Since they were written.
    """

    count: int = 20
    size: int = 1 << 30
    age_s: float = 30 * _DAY_S


class IncidentRecorder:
    """Looks whether a trigger fires, and records what was kept, what is, and what follows.

    Args:
        session: Has kept what was before; its target may restart meanwhile.
        triggers: What to look for.
        folder: Where the files go; nothing else in it is touched.
        after_s: How long to go on once no trigger fires any more.
        kept: What may stay of older ones.
        tell: Called with a line for the user.
    """

    def __init__(
        self,
        session: Recorded,
        triggers: Iterable[Trigger],
        folder: Path,
        *,
        after_s: float,
        kept: KeptIncidents,
        tell: Callable[[str], None],
    ) -> None:
        self._session = session
        self._watches = tuple(map(TriggerWatch, triggers))
        self._folder = folder
        self._after_ns = int(after_s * NS_PER_S)
        self._kept = kept
        self._tell = tell
        self._spent: set[str] = set()
        """Triggers that have fired and still do: one incident is recorded once."""
        self._has_fired = False
        self.has_failed = False
        """Whether an incident is not, or not wholly, in a file."""
        self._recording: SessionRecording | None = None
        self._began_ns = self._until_ns = self._retry_ns = 0

    def look(self) -> Iterator[Path]:
        """Look once, about every second; the files that are complete by now."""
        trace = self._session.trace()
        firing = [watch.trigger for watch in self._watches if watch.fires(trace)]
        new = [one for one in firing if one.text not in self._spent]
        self._has_fired = self._has_fired or bool(firing)
        if self._recording is None and new and trace.end_ns >= self._retry_ns:
            self._begin(new[0], trace)
        if self._recording is not None:
            self._spent = {one.text for one in firing}
            if firing:
                self._until_ns = trace.end_ns + self._after_ns
            is_over = trace.end_ns >= min(self._until_ns, self._began_ns + int(LONGEST_S * NS_PER_S))
            if is_over or not self._recording.is_running:
                yield from self.end(trace)
        else:
            self._spent &= {one.text for one in firing}

    def end(self, trace: Trace | None = None) -> Iterator[Path]:
        """Complete the file that is written, if one is; its name."""
        if (recording := self._recording) is None:
            return
        self._recording = None
        recording.stop()
        said, severity = recording.end_said
        self._tell(said)
        self.has_failed = self.has_failed or severity == "error"
        if severity == "error" and trace is not None:
            self._retry_ns = trace.end_ns + RETRIED_NS
        if recording.path.exists():
            yield recording.path

    def said_of_silence(self) -> Iterator[str]:
        """That nothing was written as nothing held, and which conditions nobody could judge."""
        if not self._has_fired:
            yield "no condition held: nothing was written"
        for one in (watch.trigger for watch in self._watches if not watch.was_told):
            yield f"{one.text}: {one.name} was not known in all the time: llmtop snapshot says why"

    def _begin(self, trigger: Trigger, trace: Trace) -> None:
        """Make room, and begin to record; what keeps a file from being made is said, and tried again later."""
        try:
            self._make_room()
            path = new_path(self._folder, _PREFIX, f"-{trigger.name}")
            self._recording = begin_recording(self._session, path, trigger.text)
        except OSError as error:
            self._fail(f"{error.filename or self._folder} cannot be written: {error.strerror}", trace)
        except FileError as error:
            self._fail(str(error), trace)
        else:
            self._began_ns = trace.end_ns
            self._tell(f"{trigger.text}: recording to {path}")

    def _fail(self, why: str, trace: Trace) -> None:
        self.has_failed = True
        self._retry_ns = trace.end_ns + RETRIED_NS
        self._tell(f"{why}; it is tried again in a minute")

    def _make_room(self) -> None:
        """Remove incidents that are older, larger or more than may be kept, the oldest first, for one more."""
        files = [(path.stat(), path) for path in incidents_in(self._folder)]
        now_s = time.time()
        count, size = 1, 0
        for stat, path in sorted(files, key=lambda one: one[0].st_mtime, reverse=True):
            count, size = count + 1, size + stat.st_size
            if count > self._kept.count or size > self._kept.size or now_s - stat.st_mtime > self._kept.age_s:
                path.unlink()
                self._tell(f"{path} is removed: older incidents make room")


def incidents_in(folder: Path) -> list[Path]:
    """The files that were recorded by triggers: by their names, and no links."""
    named = (path for path in folder.iterdir() if _OURS.fullmatch(path.name)) if folder.is_dir() else ()
    return [path for path in named if path.is_file() and not path.is_symlink()]
