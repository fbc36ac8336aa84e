"""Which files llmtop reads, and the one way in: `load`."""

from __future__ import annotations

import re
import stat
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop.errors import FileError, ForeignFileError
from llmtop.model import Issue, Severity
from llmtop.parsers.archives import is_archive, names, place_in, take_out
from llmtop.parsers.base import HEAD_BYTES, ReadsCut, ReadsText
from llmtop.parsers.compressed import COMPRESSIONS, compression_of, private_folder, unpacked
from llmtop.parsers.text_lines import PERF_DATA, foreign_characters
from llmtop.recording.layout import is_recording
from llmtop.text import clean, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.model import Trace
    from llmtop.parsers.base import Parser
    from llmtop.recording.reader import RecordingReader

MODULES = (
    "recording",  # before the captures that are SQLite databases too
    "ncu_rep",
    "nsys",
    "cuda_core_dump",
    "speedscope",
    "bpftrace_maps",
    "py_spy_dump",
    "compute_sanitizer",
    "perf_stat",
    "perf_sched",
    "perf_c2c",
    "perf_mem",
    "ncu_csv",
    "ncu_session_csv",
    "perf_script",
    "kineto",  # anything that begins like JSON: whether it is a trace is known when its keys are read
    "folded_stacks",  # text with a number at the end of its lines
)
"""The modules beside this one whose `PARSER` reads a format, the first to sniff first: what has a mark of its own comes
before what could be much else. A new one is one file and one line here."""


def parsers() -> Iterator[Parser]:
    """All parsers, the first to sniff first. Each is loaded when it is its turn: most files are of the first."""
    return (import_module(f"llmtop.parsers.{name}").PARSER for name in MODULES)


def supported() -> str:
    """What `load` reads, for messages: by how names end; docs/formats.md says what that is."""
    packed = listed([*(kind.suffix for kind in COMPRESSIONS), ".zip", ".tar"])
    return f"{listed(parser.extensions[0] for parser in parsers())}, plain or packed ({packed})"


_STREAM = b"NVIDIA Nsight Systems Stream"
_STREAM_WITHIN = 64
_ANY_JSON = ".json"
"""The ending that says nothing of what a file is."""
_UNFINISHED = "an unfinished Nsight Systems capture: let nsys finish it, or convert it with its QdstrmImporter"
_TABLE = "{}: of Nsight Systems it is a part; open the folder with all tables (nsys export --type {})"
_HINTS = (
    (b"QDSTRM", _UNFINISHED),
    (b"\x7fELF", "a program or a process's core dump, not a report"),
    (b"PAR1", _TABLE.format("a Parquet file", "parquetdir")),
    (b"\xff\xff\xff\xff", _TABLE.format("an Arrow stream", "arrowdir")),
)
_PRINTED = (
    (
        re.compile(rb"^# (?:To display the perf\.data header info|Samples: |Overhead |Children )", re.MULTILINE),
        "what `perf report` prints, sums without stacks of their own: print the samples (perf script --header -i "
        "perf.data > samples.perf.txt) and open that, or perf.data itself",
    ),
    (
        re.compile(rb"^==\d+== (?:NVPROF is profiling|Profiling (?:application|result))", re.MULTILINE),
        "what nvprof prints: have it write a profile (nvprof -o profile.nvvp PROGRAM) and open that",
    ),
    (
        re.compile(rb"^ ?\*\* .+ \((?:cuda|nvtx|osrt)_\w+_sum\)", re.MULTILINE),
        "what `nsys stats` prints: open the .nsys-rep or the .sqlite that it is of",
    ),
)
"""Summaries of tools, and what to open instead."""
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
        raise _restated(error, clean(str(error))) from error
    return replace(trace, origin=replace(trace.origin, path=clean(str(path))))


def recording_at(path: Path) -> RecordingReader | None:
    """All moments of a recording, packed or not; None of any other file, and of what `load` says the faults of."""
    try:
        with ExitStack() as stack:
            return None if (plain := plain_recording(path, stack)) is None else _reader_of(plain)
    except (FileError, OSError, ValueError):
        return None


def plain_recording(path: Path, stack: ExitStack) -> Path | None:
    """A recording without what it is compressed by, for as long as the stack lasts; None of any other file.

    Raises:
        FileError: It cannot be read, or is compressed and something else.
    """
    head = read_head(path)
    if kind := compression_of(head):
        path = stack.enter_context(unpacked(path, kind, _refuse_other))
        head = read_head(path)
    return path if is_recording(head) else None


def _reader_of(recording: Path) -> RecordingReader:
    # What reads recordings is loaded for them alone.
    from llmtop.recording.reader import RecordingReader

    return RecordingReader(recording)


def _refuse_other(head: bytes, plain: Path) -> None:
    """Before the rest is unpacked: whether it is a recording."""
    if not is_recording(head):
        raise FileError(f"{plain} is no recording")


def _load(path: Path) -> Trace:
    """Read a report, unpacked where it is compressed or in an archive; messages name the file as it was given."""
    if _is_folder(path):
        for parser in parsers():
            if parser.sniff(b"", path):
                return parser.parse(path)
    with ExitStack() as stack:
        plain = _taken_out(path, stack)
        try:
            head = read_head(plain)
            if kind := compression_of(head):
                plain = stack.enter_context(unpacked(plain, kind, partial(_refuse_unknown, path), _is_readable_cut))
                head = read_head(plain)
            if is_archive(head):
                plain = _only_report(path, plain, stack)
                head = read_head(plain)
            parser = parser_for(head, plain)
            trace = parser.parse(plain)
            is_text = isinstance(parser, ReadsText) and parser.reads_text and not head.startswith(PERF_DATA)
            return _searched(trace, plain) if is_text else trace
        except FileError as error:
            raise _named(error, plain, path) from error


def _searched(trace: Trace, text: Path) -> Trace:
    """The same, and said of a text that it has characters which no tool prints: a disk or a copy put them there."""
    if not (count := foreign_characters(text)):
        return trace
    said = "characters that no tool prints are in it: it is damaged, or in another encoding; numbers near them are lost"
    return replace(trace, issues=(*trace.issues, Issue(Severity.WARNING, "text-damaged", said, count)))


def _taken_out(path: Path, stack: ExitStack) -> Path:
    """Where a file lies; one that is in an archive is taken out for as long as the stack lasts."""
    if (place := place_in(path)) is None:
        return path
    archive, name = place
    with ExitStack() as meanwhile:
        packed = _unpacked_archive(archive, meanwhile)
        if packed is None:
            raise FileError(f"{archive} is a file and no archive: nothing is in it")
        return take_out(archive, packed, name, stack.enter_context(private_folder(path)))


def _unpacked_archive(path: Path, stack: ExitStack) -> Path | None:
    """The archive without what it is compressed by; None where it is none."""
    head = read_head(path)
    if (kind := compression_of(head)) is None:
        return path if is_archive(head) else None
    try:
        plain = stack.enter_context(unpacked(path, kind, _refuse_no_archive))
    except FileError:
        return None  # what is wrong with it is said by who opens it
    return plain if is_archive(read_head(plain)) else None


def _refuse_no_archive(head: bytes, plain: Path) -> None:
    if not is_archive(head):
        raise FileError(f"{plain} is no archive")


def reports_within(path: Path) -> list[Path]:
    """The reports in an archive, as paths that `load` takes; none where it is none, or has none.

    Raises:
        FileError: The file cannot be read.
    """
    with ExitStack() as stack:
        plain = _unpacked_archive(path, stack)
        return [] if plain is None else [path / name for name in names(path, plain, _is_report)]


def is_report(path: Path) -> bool:
    """Whether a file begins like a report, or is compressed as one may be."""
    try:
        return _is_report(read_head(path), path.name)
    except FileError:
        return False


def refuse_foreign(path: Path) -> None:
    """Say of a file what `load` would, as far as its first bytes tell; what is packed may be a report.

    Raises:
        FileError: It cannot be read, or begins like no report.
    """
    if _is_folder(path) or place_in(path) is not None:
        return
    head = read_head(path)
    if not is_archive(head) and compression_of(head) is None:
        parser_for(head, path)


def _is_report(head: bytes, name: str) -> bool:
    return compression_of(head) is not None or any(parser.sniff(head, Path(name)) for parser in parsers())


def _only_report(path: Path, plain: Path, stack: ExitStack) -> Path:
    """The one report in an archive, taken out for as long as the stack lasts."""
    reports = names(path, plain, _is_report)
    if len(reports) == 1:
        return take_out(path, plain, reports[0], stack.enter_context(private_folder(path)))
    if not reports:
        raise FileError(f"{path} is an archive without a report; llmtop opens {supported()}")
    raise FileError(f"{path} has {len(reports)} reports: name one, as in {path / reports[0]}")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False  # why it cannot be looked at is said by who opens it


def _refuse_unknown(path: Path, head: bytes, plain: Path) -> None:
    """Before the rest is unpacked, which may be gigabytes: whether it is a report at all, or an archive."""
    try:
        if not is_archive(head):
            parser_for(head, plain)
    except FileError as error:
        raise _named(error, plain, path) from error


def _is_readable_cut(plain: Path) -> bool:
    """Whether what was unpacked of a cut stream is of a format that is read up to its last whole part."""
    head = read_head(plain)
    parser = next((parser for parser in parsers() if parser.sniff(head, plain)), None)
    return isinstance(parser, ReadsCut) and parser.reads_cut


def _named(error: FileError, plain: Path, path: Path) -> FileError:
    """The same with the file's name as it was given."""
    return _restated(error, str(error).replace(str(plain), str(path)))


def _restated(error: Exception, message: str) -> FileError:
    """The same fault in other words."""
    return ForeignFileError(message) if isinstance(error, ForeignFileError) else FileError(message)


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
    for parser in parsers():
        if parser.sniff(head, path):
            return parser
    fault = ForeignFileError if _is_foreign(head, path) else FileError
    raise fault(f"{path} is {_what_else(head, path)}; llmtop opens {supported()}")


def _is_foreign(head: bytes, path: Path) -> bool:
    """Whether nothing says that it was a report once: all sorts of files are text, and named .json."""
    is_text = bool(head) and b"\0" not in head and _STREAM not in head[:_STREAM_WITHIN]
    endings = [ending for parser in parsers() for ending in parser.extensions if path.name.endswith(ending)]
    return is_text and max(endings, key=len, default=_ANY_JSON) == _ANY_JSON


def _what_else(head: bytes, path: Path) -> str:
    """What an unknown file seems to be."""
    if not head.strip(b"\0"):
        return "all zeros: the disk or the copy lost its content"
    if _STREAM in head[:_STREAM_WITHIN]:
        return _UNFINISHED
    for magic, hint in _HINTS:
        if head.startswith(magic):
            return hint
    for pattern, hint in _PRINTED:
        if pattern.search(head):
            return hint
    named = {ending: parser for parser in parsers() for ending in parser.extensions if path.name.endswith(ending)}
    if named:
        parser = named[max(named, key=len)]
        return f"named like {parser.title} but does not start like them: it is damaged or something else"
    return "of no format that llmtop knows"
