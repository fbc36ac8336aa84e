"""What the paths of a command line stand for: files, folders, patterns, archives, and `-` for standard input."""

from __future__ import annotations

import glob
import os
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llmtop.errors import FileError, FilesError, UsageError
from llmtop.parsers.compressed import MAX_UNPACKED, private_folder
from llmtop.parsers.registry import refuse_foreign, reports_within
from llmtop.text import clean
from llmtop.units import binary_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STANDARD_INPUT: Final = Path("-")
_PIECE = 1 << 20


@contextmanager
def opened_inputs(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The files and folders to read, for as long as the block lasts.

    Patterns that the shell left alone are what they match, an archive is the reports in it, and what comes from
    standard input lies in a private folder meanwhile.

    Raises:
        FileError: Standard input is empty, or holds more than any report.
        UsageError: Standard input is the keyboard.
    """
    with ExitStack() as stack:
        yield [file for path in paths for match in _matching(path) for file in _files(match, stack)]


def refuse_hopeless(paths: Sequence[Path]) -> None:
    """Say what is wrong with files of which none begins like a report; the rest of them is not read.

    Raises:
        FilesError: That is so of all of them.
    """
    faults = [fault for path in paths if (fault := _fault(path))]
    if faults and len(faults) == len(paths):
        raise FilesError(faults)


def _fault(path: Path) -> str:
    """Why a path cannot be opened, as far as it is known before it is read; empty where nothing is."""
    from llmtop.runs import files_of

    try:
        files_of([path])
        refuse_foreign(path)
    except FileError as error:
        return clean(str(error))
    return ""


def take_keyboard() -> None:
    """Read keys from the terminal again, once standard input was read to its end.

    Raises:
        UsageError: There is no terminal.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError as error:
        raise UsageError(f"- leaves no keyboard ({error.strerror}): llmtop report - needs none") from error
    os.dup2(terminal, sys.__stdin__.fileno() if sys.__stdin__ else 0)
    os.close(terminal)


def _matching(path: Path) -> list[Path]:
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    return sorted(Path(path.anchor).glob(path.relative_to(path.anchor).as_posix())) or [path]


def _files(path: Path, stack: ExitStack) -> list[Path]:
    if path == STANDARD_INPUT:
        return [_kept(stack)]
    reports = reports_within(path) if path.is_file() and path.stat().st_size else []
    return reports if len(reports) > 1 else [path]


def _kept(stack: ExitStack) -> Path:
    """Standard input as a file: formats are told by how they begin, and read at any place."""
    if sys.stdin.isatty():
        raise UsageError("- is standard input, and that is the keyboard: pipe a report into it")
    path = stack.enter_context(private_folder(STANDARD_INPUT)) / "standard input"
    size = 0
    with path.open("wb") as file:
        for piece in iter(partial(sys.stdin.buffer.read, _PIECE), b""):
            size += len(piece)
            if size > MAX_UNPACKED:
                raise FileError(f"standard input holds more than {binary_bytes(MAX_UNPACKED)}: open a file instead")
            file.write(piece)
    if not size:
        raise FileError("standard input is empty: the command before the pipe wrote nothing")
    return path
