"""The standard streams: a fault of the output (a full disk, none at all) is one line, and errors are cleaned."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from llmtop.errors import LlmtopError
from llmtop.text import clean

if TYPE_CHECKING:
    from typing import TextIO


_STANDARD = "-"


class OutputError(LlmtopError):
    """Standard output does not take what is written."""


class _Output:
    """A stream whose faults are `OutputError`, wherever in the program they come up.

    That a reader has left (EPIPE) is no fault of the output, and stays what it is.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, content: str | bytes) -> int:
        with _told():
            written: int = self._stream.write(content)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with _told():
            self._stream.flush()

    @property
    def buffer(self) -> _Output:
        """The same for bytes."""
        return _Output(self._stream.buffer)

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


class _Messages:
    """Standard error: whoever writes there, no foreign text in it steers the terminal."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, content: str) -> int:
        written: int = self._stream.write("\n".join(map(clean, content.split("\n"))))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def standard_output() -> Iterator[None]:
    """What is still in a buffer fails here, where it can be told, and not as the interpreter exits.

    Meanwhile all that is written to standard error is cleaned; what draws there uses `sys.__stderr__`.

    Raises:
        OutputError: Standard output does not take what was written.
        BrokenPipeError: Its reader has left.
    """
    _open_closed()
    messages = cast("TextIO", _Messages(sys.stderr))
    with redirect_stdout(cast("TextIO", _Output(sys.stdout))) as output, redirect_stderr(messages):
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


def add_output_argument(parser: argparse.ArgumentParser) -> None:
    """Where text is written: `output` is None for standard output, which `-` names too."""
    parser.add_argument("-o", "--output", metavar="FILE", type=_text_file, help="write there, not to standard output")


def _text_file(text: str) -> Path | None:
    return None if text == _STANDARD else Path(text)


def new_file(text: str) -> Path:
    """A file that a recording is written to.

    Raises:
        argparse.ArgumentTypeError: It is `-`, and would become a file of that name.
    """
    if text == _STANDARD:
        raise argparse.ArgumentTypeError("'-': this goes into a file alone, name one (./- where it is to be called so)")
    return Path(text)
