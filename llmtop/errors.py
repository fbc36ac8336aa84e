"""Errors that reach the user as one line on stderr.

Only two borders catch: the command line's ``main`` and a collector's thread. Each message says what is wrong,
with what, and how to go on.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.model import Target


def print_message(message: str) -> None:
    """Write a message to stderr: one line that cannot steer a terminal, whatever foreign text is in it."""
    sys.stderr.write(f"llmtop: {clean(' '.join(message.split()))}\n")
    sys.stderr.flush()


class LlmtopError(Exception):
    """A fault with a sentence for the user.

    Attributes:
        exit_code: What the process exits with when this ends the program (DESIGN section 5).
    """

    exit_code = 1


class UsageError(LlmtopError):
    """The command line asks for something that does not exist or cannot be combined."""

    exit_code = 2


class TargetError(LlmtopError):
    """The process or server to attach to is at fault: gone, not ours to read, or not a server."""


def no_process(called: object, elsewhere: str) -> TargetError:
    """There is no such process: said alike by all that look for one.

    Args:
        called: The PID, or what else was asked for.
        elsewhere: What else it may be.
    """
    return TargetError(f"no process {called} here ({elsewhere})")


class SeveralServersError(TargetError):
    """More than one server runs below a process.

    Attributes:
        servers: Those to choose from.
    """

    def __init__(self, message: str, servers: Sequence[Target]) -> None:
        super().__init__(message)
        self.servers = tuple(servers)


class FileError(LlmtopError):
    """An input file is at fault: missing, of no known format, truncated or corrupted."""


class ForeignFileError(FileError):
    """A file that begins like no report, and is none that was damaged: of a folder it is skipped."""


class FilesError(FileError):
    """Several input files are at fault.

    Attributes:
        messages: One sentence for each, to be said on a line of its own.
    """

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("; ".join(messages))
        self.messages = tuple(messages)


class ApartError(FileError):
    """Files are no ranks of one run: each is a report of its own.

    Attributes:
        is_final: Whether they cannot be one, whoever says that they are.
    """

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final
