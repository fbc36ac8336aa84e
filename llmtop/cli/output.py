"""Standard output: a fault of it (a full disk, a limit of the file's size, none at all) is told in one line."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, cast

from llmtop.errors import LlmtopError

if TYPE_CHECKING:
    from typing import TextIO


class OutputError(LlmtopError):
    """Standard output does not take what is written."""


class _Output:
    """A stream whose faults are `OutputError`, wherever in the program they come up.

    That a reader has left (EPIPE) is no fault of the output, and stays what it is.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _told():
            return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with _told():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        why = "it is closed" if error.errno == errno.EBADF else error.strerror
        raise OutputError(f"standard output cannot be written: {why}; send it where there is room: > FILE") from error


@contextmanager
def standard_output() -> Iterator[None]:
    """What is still in a buffer fails here, where it can be told, and not as the interpreter exits.

    Raises:
        OutputError: Standard output does not take what was written.
        BrokenPipeError: Its reader has left.
    """
    _open_closed()
    with redirect_stdout(cast("TextIO", _Output(sys.stdout))) as output:
        try:
            yield
        finally:
            output.flush()


def _open_closed() -> None:
    """A stream that was closed (``>&-``) fails once it is written to, and no file that is opened gets its number."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def silence() -> None:
    """Keep the interpreter from complaining at exit of what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
