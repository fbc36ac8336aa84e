"""Recordings that llmtop itself has written: what was watched, as it stood at the end (docs/recording.md).

Whoever wants another moment opens it with `llmtop.recording.reader`, as the screen does that plays it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.errors import FileError
from llmtop.model import RECORDING
from llmtop.parsers.base import Content
from llmtop.recording.layout import is_recording

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Trace
    from llmtop.parsers.base import Parser


class RecordingParser:
    """Recordings, whole or cut, and while they are written."""

    name = RECORDING
    title = "recordings of llmtop"
    written_by = "`llmtop record`; `r` on the live screen"
    extensions: tuple[str, ...] = (".llmtop",)
    holds = frozenset({Content.SERIES})

    def sniff(self, head: bytes, path: Path) -> bool:
        """A database with the mark of recordings."""
        return is_recording(head)

    def parse(self, path: Path) -> Trace:
        """The newest moment, with the window of time before it that the live screen kept.

        Raises:
            FileError: Nothing of it can be read.
        """
        # The reader brings what playing takes, which sniffing other files must not pay for.
        from llmtop.recording.reader import RecordingReader

        try:
            recording = RecordingReader(path)
            return recording.report(recording.times[-1])
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            cut = "it was cut before its first one, or ended before that"
            raise FileError(f"{path} is a recording without a moment: {cut}; copy it again") from error


PARSER: Final[Parser] = RecordingParser()
