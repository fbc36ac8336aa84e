"""Which files llmtop reads, and the one way in: `load`."""

from __future__ import annotations

import stat
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from llmtop.errors import FileError
from llmtop.parsers.base import HEAD_BYTES
from llmtop.parsers.compressed import COMPRESSIONS, compression_of, unpacked
from llmtop.recording.reader import RecordingReader
from llmtop.recording.row_reader import is_recording
from llmtop.text import clean, listed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from llmtop.model import Trace
    from llmtop.parsers.base import Parser

MODULES = (
    "recording",
    "ncu_rep",
    "ncu_csv",
    "ncu_session_csv",
    "cuda_core_dump",
    "compute_sanitizer",
    "nsys",
    "perf_script",
    "speedscope",
    "folded_stacks",
    "kineto",
)
"""The modules beside this one whose `PARSER` reads a format. A new one is one file and one line here."""


def _in_order(modules: Iterable[str]) -> tuple[Parser, ...]:
    parsers: list[Parser] = [import_module(f"llmtop.parsers.{name}").PARSER for name in modules]
    return tuple(sorted(parsers, key=lambda parser: parser.priority))


PARSERS = _in_order(MODULES)
"""All parsers, the first to sniff first."""


def supported() -> str:
    """What `load` reads, for messages."""
    formats = listed(f"{parser.title} ({parser.extensions[0]})" for parser in PARSERS)
    return f"{formats}, each also as {listed((kind.suffix for kind in COMPRESSIONS), last='or')}"


_STREAM = b"NVIDIA Nsight Systems Stream"
_STREAM_WITHIN = 64
_UNFINISHED = "an unfinished Nsight Systems capture: let nsys finish it, or convert it with its QdstrmImporter"
_HINTS = (
    (b"QDSTRM", _UNFINISHED),
    (b"\x7fELF", "a program or a process's core dump, not a report"),
)
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def load(path: Path) -> Trace:
    """Read a report, whatever its format, told by content.

    Raises:
        FileError: It cannot be read, is of no known format, or is damaged beyond use: one line that says which.
    """
    try:
        trace = _load(path)
    except FileError as error:
        # Names of files are foreign text too, and messages of libraries may have several lines.
        raise FileError(clean(str(error))) from error
    return replace(trace, origin=replace(trace.origin, path=clean(str(path))))


def recording_at(path: Path) -> RecordingReader | None:
    """All moments of a recording, packed or not; None of any other file, and of what `load` says the faults of."""
    try:
        head = read_head(path)
        with ExitStack() as stack:
            if kind := compression_of(head):
                path = stack.enter_context(unpacked(path, kind, _refuse_other))
                head = read_head(path)
            return RecordingReader(path) if is_recording(head) else None
    except (FileError, OSError, ValueError):
        return None


def _refuse_other(head: bytes, plain: Path) -> None:
    """Before the rest is unpacked: whether it is a recording."""
    if not is_recording(head):
        raise FileError(f"{plain} is no recording")


def _load(path: Path) -> Trace:
    """Read a report, unpacked where it is compressed; messages name the file as it was given."""
    if _is_folder(path):
        for parser in PARSERS:
            if parser.sniff(b"", path):
                return parser.parse(path)
    head = read_head(path)
    with ExitStack() as stack:
        plain = path
        if kind := compression_of(head):
            plain = stack.enter_context(unpacked(path, kind, partial(_refuse_unknown, path)))
            head = read_head(plain)
        try:
            return parser_for(head, plain).parse(plain)
        except FileError as error:
            raise _named(error, plain, path) from error


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False  # why it cannot be looked at is said by who opens it


def _refuse_unknown(path: Path, head: bytes, plain: Path) -> None:
    """Before the rest is unpacked, which may be gigabytes: whether it is a report at all."""
    try:
        parser_for(head, plain)
    except FileError as error:
        raise _named(error, plain, path) from error


def _named(error: FileError, plain: Path, path: Path) -> FileError:
    """The same with the file's name as it was given."""
    return FileError(str(error).replace(str(plain), str(path)))


def read_head(path: Path) -> bytes:
    """The first `HEAD_BYTES` of a regular file that has any.

    Raises:
        FileError: There is no such file, it is not a regular one, it is empty, or it may not be read.
    """
    try:
        mode = path.stat().st_mode
        for is_kind, name in _KINDS:
            if is_kind(mode):
                raise FileError(f"{path} is {name}, not a report; give the path of a file")
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FileError(f"{str(path)!r} is not a path: {error}") from error
    if not head:
        raise FileError(f"{path} is empty: the capture wrote nothing, or the copy failed; capture or copy it again")
    return head


def parser_for(head: bytes, path: Path) -> Parser:
    """The parser that knows this file.

    Raises:
        FileError: None does.
    """
    for parser in PARSERS:
        if parser.sniff(head, path):
            return parser
    raise FileError(f"{path} is {_what_else(head, path)}; llmtop opens {supported()}")


def _what_else(head: bytes, path: Path) -> str:
    """What an unknown file seems to be."""
    if not head.strip(b"\0"):
        return "all zeros: the disk or the copy lost its content"
    if _STREAM in head[:_STREAM_WITHIN]:
        return _UNFINISHED
    for magic, hint in _HINTS:
        if head.startswith(magic):
            return hint
    named = {ending: parser for parser in PARSERS for ending in parser.extensions if path.name.endswith(ending)}
    if named:
        parser = named[max(named, key=len)]
        return f"named like {parser.title} but does not start like them: it is damaged or something else"
    return "of no format that llmtop knows"
