"""Text that tools print, line by line, in whichever encoding a shell wrote it: PowerShell's `>` writes UTF-16."""

from __future__ import annotations

import codecs
import io
from functools import partial
from typing import TYPE_CHECKING

from llmtop.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ENCODINGS = ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"), (codecs.BOM_UTF8, "utf-8-sig"))
PERF_DATA = (b"PERFILE2", b"2ELIFREP")
"""How files of `perf record` begin, which are no text, with either order of bytes (perf.data-file-format.txt)."""
_BEGINNING = 64
"""Bytes that show an encoding."""
_PIECE = 1 << 20
_NEVER_PRINTED = (*(chr(code) for code in range(32) if chr(code) not in "\a\b\t\n\v\f\r\x1b"), "\x7f", "\ufffd")
"""Tabs, ends of lines and pages are, and terminals' colours."""
LONGEST_LINE = 1 << 24
"""Characters: a kernel with its values by instruction has some millions. The rest of a longer line is dropped."""


def decoded_head(head: bytes) -> str:
    """The beginning of a file as text, whatever it is: what is no text shows as replacements."""
    return head.decode(_encoding(head), "replace")


def _encoding(head: bytes) -> str:
    marked = next((name for mark, name in _ENCODINGS if head.startswith(mark)), None)
    beginning = head[:_BEGINNING]
    # Copied through something else, UTF-16 may have lost its mark: in it every second byte of English is 0.
    is_wide = beginning[1::2].count(0) > len(beginning) // 3 and 0 not in beginning[::2]
    return marked or ("utf-16-le" if is_wide else "utf-8")


def beginning(path: Path) -> bytes:
    """The first bytes of a file, for its mark.

    Raises:
        FileError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(_BEGINNING)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error


def foreign_characters(path: Path) -> int:
    """How many characters of a text no tool prints: control characters, and what is no character at all.

    Raises:
        FileError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            decoder = codecs.getincrementaldecoder(_encoding(file.peek(_BEGINNING)))("replace")
            pieces = iter(partial(file.read, _PIECE), b"")
            return sum(sum(map(decoder.decode(piece).count, _NEVER_PRINTED)) for piece in pieces)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error


class TextLines:
    """The lines of a file without their ends, once.

    Attributes:
        is_ended: Whether the last line read had an end: a file that was cut short mostly has none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_ended = True

    def __iter__(self) -> Iterator[str]:
        """Read them.

        Raises:
            FileError: The file cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                encoding = _encoding(file.peek(_BEGINNING))
                with io.TextIOWrapper(file, encoding, "replace") as text:
                    yield from self._lines(text)
        except OSError as error:
            raise FileError(f"{self._path} cannot be read: {error.strerror}") from error

    def _lines(self, text: io.TextIOWrapper) -> Iterator[str]:
        while line := text.readline(LONGEST_LINE):
            rest = line
            while rest and not rest.endswith("\n") and len(rest) == LONGEST_LINE:
                rest = text.readline(LONGEST_LINE)
            self.is_ended = rest.endswith("\n")
            yield line.removesuffix("\n")
