"""What each thread was at when py-spy looked once (`py-spy dump --json`): a list of threads with their frames."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from llmtop import whats
from llmtop.errors import FileError
from llmtop.model import Issue, Missing, Origin, Severity, Trace, Unknown
from llmtop.parsers.base import Content
from llmtop.parsers.stack_sums import StackSums, placed

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.parsers.base import Parser

_BEGINNING = re.compile(rb'\s*\[\s*\{\s*"pid"\s*:')
_LARGEST = 1 << 28
_NO_KERNELS = Missing(whats.KERNELS, Unknown("a look at Python's threads tells of functions on CPUs alone"))


class PySpyDumpParser:
    """Looks that `py-spy dump --json` printed."""

    name = "py-spy-dump"
    title = "looks of py-spy"
    written_by = "`py-spy dump --json`"
    extensions: tuple[str, ...] = (".py-spy.json",)
    holds = frozenset({Content.STACKS})

    def sniff(self, head: bytes, path: Path) -> bool:
        return _BEGINNING.match(head) is not None and b'"thread_id"' in head

    def parse(self, path: Path) -> Trace:
        """A stack for each thread, of one sample.

        Raises:
            FileError: It is no whole list of threads, or none of them has frames.
        """
        sums, damaged = StackSums(), 0
        for number, thread in enumerate(_threads(path)):
            frames = thread.get("frames") if isinstance(thread, dict) else None
            if not isinstance(frames, list) or not all(isinstance(frame, dict) for frame in frames):
                damaged += 1
            elif frames:
                track = sums.thread(_title(thread), _number(thread, "pid", 0), _number(thread, "os_thread_id", number))
                sums.add(track, [_function(frame) for frame in reversed(frames)], 1.0, "samples")
        if not sums.tracks:
            raise FileError(f"{path} has no thread with frames: none ran Python; look again")
        message = "threads are not as py-spy writes them: left out"
        issues = (Issue(Severity.WARNING, "rows-skipped", message, damaged),) if damaged else ()
        return Trace(
            Origin(self.name, str(path)),
            tracks=sums.tracks,
            stacks=sums.stacks(),
            issues=issues,
            missing=(_NO_KERNELS,),
        )


PARSER: Final[Parser] = PySpyDumpParser()


def _threads(path: Path) -> list[Any]:
    try:
        with path.open("rb") as file:
            threads = json.loads(file.read(_LARGEST))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is no whole JSON: it was cut short or damaged ({error}); look again") from error
    return threads if isinstance(threads, list) else []


def _title(thread: dict[str, Any]) -> str:
    """Its name, and what py-spy saw it do."""
    state = "GIL" if thread.get("owns_gil") else "active" if thread.get("active") else "idle"
    return f"{thread.get('thread_name') or 'thread'} ({state})"


def _number(thread: dict[str, Any], name: str, otherwise: int) -> int:
    value = thread.get(name)
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else otherwise


def _function(frame: dict[str, Any]) -> str:
    return placed(frame.get("name"), frame.get("short_filename") or frame.get("filename"), frame.get("line"))
