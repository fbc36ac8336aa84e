"""What compute-sanitizer prints (and cuda-memcheck printed, until CUDA 11): memcheck, racecheck, initcheck, synccheck.

A report is a line behind the tool's mark and those indented below it; the program's own output stands between
(https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer/index.html):

    ========= Invalid __global__ write of size 4 bytes
    =========     at scale(float *, int)+0xd0 in scale.cu:9
    =========     by thread (32,0,0) in block (3,0,0)
    =========     Access at 0x7f241b0001e0 is out of bounds
    =========     Saved host backtrace up to driver entry point at kernel launch time
    =========         Host Frame: main in scale.cu:25 [0x8a81] in scale
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from llmtop import whats
from llmtop.errors import FileError
from llmtop.model import Issue, Missing, Origin, SanitizerError, Severity, Trace, Unknown, UnknownKind
from llmtop.parsers.base import Content
from llmtop.parsers.text_lines import TextLines, decoded_head
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from llmtop.model import Fact
    from llmtop.parsers.base import Parser

_MARK = "========="
_BANNER = re.compile(r"========= (COMPUTE-SANITIZER|CUDA-MEMCHECK)\s*")
_SUMMARY = re.compile(r"(\w+ SUMMARY): (.*)")
_DETAIL = " " * 5
"""What lines below a report are indented by, behind the mark; reports by one space."""
_ERROR = re.compile(
    r"Invalid |Misaligned |Uninitialized |Unused |Leaked |Barrier |Fatal |Program hit |Host API |Race reported |"
    r"Potential \w+ hazard|.*(?:out of bounds|not supported|detected)"
)
"""How reports begin; a line that is neither that nor has others below it is the tool's own talk."""
_LEVEL = re.compile(r"(Error|Warning|WARN|ERROR|INFO|Info) *: *(?:\([^)]*\) *)?")
_WARNINGS = frozenset({"Warning", "WARN", "INFO", "Info"})
_WHO = r"(?:(?:Read|Write) Thread \([^)]*\) )?"
_AT = re.compile(_WHO + r"at (?P<function>.+)\+0x(?P<offset>[0-9a-fA-F]{1,16})(?: in (?P<place>.+:\d+))?")
_AT_BEFORE = re.compile(
    _WHO + r"at 0x(?P<offset>[0-9a-fA-F]{1,16}) in (?:(?P<place>(?:[A-Za-z]:)?[^:]+:\d+):)?(?P<function>.+)"
)
"""Before CUDA 11.8."""
_RACE = re.compile(r"(Race reported between \w+ access) (at .+)")
_OTHER_SIDE = re.compile(r"and (\w+ access) at ")
_HAZARD = re.compile(r"(Potential \w+ hazard detected) (at .+?) *:?")
_THREAD = re.compile(r"(?:by thread|(?:Read|Write) Thread) \((\d{1,10}), *(\d{1,10}), *(\d{1,10})\)")
_BLOCK = re.compile(r"in block \((\d{1,10}), *(\d{1,10}), *(\d{1,10})\)")
_HAZARDS = re.compile(r"\[(\d{1,12}) hazards?\]")
_FRAME = re.compile(r"(Host|Device) Frame: *(.*?)(?: \[0x[0-9a-f]+\](?: in .+)?)?")
_BACKTRACE = re.compile(r"Saved host backtrace")
_NO_LINES = Unknown("the program was compiled without lines", "compile it with -lineinfo")
_OF_HOST = Unknown("it is not in a kernel")
_NOT_TIMED = "compute-sanitizer tells what kernels do wrong, not how long they take"
MOST_ERRORS = 20_000
"""One error is mostly reported for each thread: more of the same tell nothing more."""


class ComputeSanitizerParser:
    """Texts that compute-sanitizer printed."""

    name = "compute-sanitizer"
    title = "reports of compute-sanitizer"
    written_by = "`compute-sanitizer` with any of its tools, or `cuda-memcheck`: standard output, or `--log-file`"
    extensions: tuple[str, ...] = (".sanitizer.txt",)
    holds = frozenset({Content.FAULTS})
    reads_text = True

    def sniff(self, head: bytes, path: Path) -> bool:
        """Its banner, after whatever the program printed before."""
        return any(_BANNER.fullmatch(line) for line in decoded_head(head).splitlines())

    def parse(self, path: Path) -> Trace:
        """Read all reports.

        Raises:
            FileError: The tool neither reported nor summed up anything.
        """
        reader = _ReportReader(TextLines(path))
        errors = tuple(islice(reader.errors(), MOST_ERRORS + 1))
        if not errors and not reader.summaries:
            said = f": {reader.said[0]}" if reader.said else ""
            raise FileError(f"{path} holds no report and no summary{said}; let the program end, and run it again")
        why = Unknown(_NOT_TIMED, kind=UnknownKind.FAILED if errors else UnknownKind.OTHER)
        return Trace(
            Origin(self.name, str(path), facts=reader.summaries),
            sanitizer=errors[:MOST_ERRORS],
            issues=tuple(_issues(reader, errors)),
            missing=(Missing(whats.KERNELS, why),),
        )


PARSER: Final[Parser] = ComputeSanitizerParser()


class _ReportReader:
    """The reports of a text, what they add up to, and what else the tool says."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.summaries: dict[str, Fact] = {}
        self.said: list[str] = []

    def errors(self) -> Iterator[SanitizerError]:
        """One after the other."""
        header, details = "", list[str]()
        for line in self._lines:
            if not line.startswith(_MARK):
                continue
            text = line[len(_MARK) :]
            if text.startswith(_DETAIL):
                details.append(clean(text.strip()))
                continue
            yield from self._made(header, details)
            header, details = "" if _BANNER.fullmatch(line) else clean(text.strip()), []
        yield from self._made(header, details)

    def _made(self, header: str, details: Sequence[str]) -> Iterator[SanitizerError]:
        level = _LEVEL.match(header)
        text = header[level.end() :] if level else header
        if summary := _SUMMARY.fullmatch(header):
            self.summaries[summary[1].lower()] = summary[2]
        elif text and (details or _ERROR.match(text)):
            is_warning = level is not None and level[1] in _WARNINGS
            yield _error(text, Severity.WARNING if is_warning else Severity.ERROR, details)
        elif header:
            self.said.append(header)


def _error(header: str, severity: Severity, details: Sequence[str]) -> SanitizerError:
    what, lines = _opened(header, details)
    at = next((found for line in lines if (found := _AT_BEFORE.fullmatch(line) or _AT.fullmatch(line))), None)
    frames = [(found[1], found[2]) for line in lines if (found := _FRAME.fullmatch(line))]
    return SanitizerError(
        what=what,
        severity=severity,
        function=at["function"].strip() if at else "",
        offset=int(at["offset"], 16) if at else None,
        place=(at["place"] or _NO_LINES) if at else _OF_HOST,
        thread=_index(_THREAD, lines),
        block=_index(_BLOCK, lines),
        notes=tuple(line for line in lines if _is_note(line)),
        device_frames=tuple(name for side, name in frames if side == "Device"),
        host_frames=tuple(name for side, name in frames if side == "Host"),
        hazards=sum(int(count) for line in lines for count in _HAZARDS.findall(line)),
    )


def _opened(header: str, details: Sequence[str]) -> tuple[str, list[str]]:
    """What is wrong, and the lines that tell of it: of a race places stand in the first line too."""
    if race := _RACE.fullmatch(header):
        others = dict.fromkeys(found[1] for line in details if (found := _OTHER_SIDE.match(line)))
        return " and ".join((race[1], *others)), [race[2], *details]
    if hazard := _HAZARD.fullmatch(header):
        return hazard[1], [*details, hazard[2]]
    return header, list(details)


def _is_note(line: str) -> bool:
    """Whether a line tells more than a place, a thread or a function that led there."""
    known = (_AT_BEFORE, _AT, _FRAME)
    is_known = any(one.fullmatch(line) for one in known) or _THREAD.match(line) or _BACKTRACE.match(line)
    return bool(line) and not is_known


def _index(of: re.Pattern[str], lines: Sequence[str]) -> tuple[int, int, int] | None:
    found = next((found for line in lines if (found := of.search(line))), None)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def _issues(reader: _ReportReader, errors: Sequence[SanitizerError]) -> Iterator[Issue]:
    """What is left out; where that is the end of the text, nobody knows whether a summary stands there."""
    is_all_read = len(errors) <= MOST_ERRORS
    if not is_all_read:
        yield Issue(Severity.INFO, "faults", f"more than {MOST_ERRORS} reports: the first ones are told")
    for text in dict.fromkeys(reader.said):
        yield Issue(Severity.INFO, "sanitizer.said", f"compute-sanitizer says: {text}", reader.said.count(text))
    counted = re.fullmatch(r"(\d{1,9}) errors?", str(reader.summaries.get("error summary", "")))
    if is_all_read and counted is not None and int(counted[1]) > len(errors):
        message = (
            f"its summary counts {counted[1]} errors, and {len(errors)} can be read: parts of the text are damaged"
        )
        yield Issue(Severity.WARNING, "sanitizer.count", message)
    if is_all_read and not reader.summaries:
        message = "there is no summary: the program did not end under the tool, or the text was cut short"
        yield Issue(Severity.WARNING, "sanitizer.no-summary", message)
