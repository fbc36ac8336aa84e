"""Records a session: its traces, one a second, into a file, until it is stopped or the file cannot be written."""

from __future__ import annotations

import platform
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from llmtop import __version__
from llmtop.errors import FileError
from llmtop.facts import OriginFact
from llmtop.files import own_folder
from llmtop.model import NS_PER_S
from llmtop.recording.row_writer import ForeignChangeError
from llmtop.recording.writer import RecordingWriter
from llmtop.state import state_folder
from llmtop.text import clean, quoted
from llmtop.units import binary_bytes, clock_time

if TYPE_CHECKING:
    from llmtop.model import Fact, Target, Trace

PERIOD_S = 1.0
JUDGED_S = 10.0
"""How often it is written down what the rules find: to ask them all takes as long as to write ten moments."""
SYNCED_S = 10.0
"""How often the disk is made to take what was written: what a power cut may cost at most."""
SUFFIX = ".llmtop"


class Recorded(Protocol):
    """What can be recorded: a session."""

    @property
    def target(self) -> Target | None:
        """The server under observation."""
        ...

    def trace(self) -> Trace:
        """What is known now."""
        ...


def recordings_folder() -> Path:
    """Where recordings go that are given no place."""
    return state_folder() / "recordings"


def new_path(folder: Path | None = None, prefix: str = "", suffix: str = "") -> Path:
    """A new name for a recording that was given none.

    Args:
        folder: Where it goes instead.
        prefix: What stands before the time in its name.
        suffix: What stands behind it.

    Raises:
        OSError: There is no such folder, and none can be made.
    """
    if folder is None:
        folder = own_folder(recordings_folder())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stem = f"{prefix}{datetime.now().astimezone():%Y%m%d-%H%M%S}{suffix}"
    names = (f"{stem}{more}{SUFFIX}" for more in ("", *(f"-{i}" for i in range(2, 100))))
    return next(path for name in names if not (path := folder / name).exists())


def begin_recording(session: Recorded, path: Path | None = None, trigger: str = "") -> SessionRecording:
    """Begin to record into a new file; without a name into one where programs keep their state.

    Args:
        session: What is recorded.
        path: A file that is not there yet.
        trigger: Why it is recorded, where not a user began it.

    Raises:
        FileError: It is there already, or cannot be made.
    """
    try:
        recording = SessionRecording(session, path or new_path(), trigger)
    except FileExistsError as error:
        raise FileError(f"{path} is there already, and a recording never writes over a file; name another") from error
    except OSError as error:
        raise FileError(
            f"{error.filename or path} cannot be written: {error.strerror}; name another with -o"
        ) from error
    recording.start()
    return recording


class SessionRecording:
    """Writes what a session knows on a thread of its own: first all that it has kept, then what is new each second.

    Args:
        session: May be started or not.
        path: A file that is not there yet.
        trigger: Why it is recorded, where not a user began it.

    Raises:
        OSError: There is such a file, or it cannot be made.
    """

    def __init__(self, session: Recorded, path: Path, trigger: str = "") -> None:
        about: dict[str, Fact] = {
            "llmtop": __version__,
            "host": clean(platform.node()),
            "utc_ns": time.time_ns() - time.monotonic_ns(),
        }
        if trigger:
            about[OriginFact.TRIGGER] = trigger
        self.path = path
        self.failure = ""
        """Why it has ended by itself; empty while it has not."""
        self._session = session
        self._writer = RecordingWriter(path, about)
        self._since_ns = time.monotonic_ns()
        self._until_ns = 0
        self._judged_ns = -int(JUDGED_S * NS_PER_S)
        self._synced_ns = self._since_ns
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llmtop records", daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether it still writes."""
        return self._thread.is_alive()

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._writer.size

    @property
    def seconds(self) -> float:
        """For how long it has been written."""
        return ((self._until_ns or time.monotonic_ns()) - self._since_ns) / NS_PER_S

    def start(self) -> None:
        """Begin to write, once."""
        self._thread.start()

    @property
    def end_said(self) -> tuple[str, Literal["information", "error"]]:
        """What became of it, once it has ended."""
        if self.failure:
            return self.failure, "error"
        told = f"recorded {clock_time(self.seconds)}, {binary_bytes(self.size)}"
        return f"{told}: llmtop open {quoted(str(self.path))}", "information"

    def end(self) -> None:
        """Write the last moment and close the file, soon: nobody waits for it."""
        self._stop.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Write the last moment and close the file; of a disk that hangs, wait no longer."""
        self.end()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            try:
                while not self._stop.wait(PERIOD_S):
                    self._write()
                self._write(is_last=True)
                self._writer.check()
            except OSError as error:
                self._writer.note_stop(error.strerror or str(error))
                raise
            finally:
                self._writer.close()
        except ForeignChangeError as error:
            self.failure = f"the recording has stopped: {error}; {self.path} does not have it: record anew"
        except OSError as error:
            self.failure = f"the recording has stopped: {error.strerror}; {self.path} has all up to then"
        except Exception as error:  # the border: it costs the recording alone
            self.failure = f"the recording has failed: {type(error).__name__}: {error}; please report this"
        self._until_ns = time.monotonic_ns()

    def _write(self, *, is_last: bool = False) -> None:
        self._writer.check()
        if (now_ns := time.monotonic_ns()) - self._synced_ns >= SYNCED_S * NS_PER_S:
            self._synced_ns = now_ns
            self._writer.sync()
        trace = self._session.trace()
        self._writer.write(trace, self._session.target, is_last=is_last)
        if is_last or trace.end_ns - self._judged_ns >= JUDGED_S * NS_PER_S:
            from llmtop.analysis.rules.registry import diagnose  # no first frame waits for the rules

            self._judged_ns = trace.end_ns
            diagnosis = diagnose(trace)
            self._writer.judge(trace.end_ns, diagnosis.verdict, diagnosis.findings)
