"""What `perf mem report --stdio` prints: sampled accesses to memory, by what answered them, by code and by data.

The columns stand under dots, and which there are differs by version and by `--sort`. Each event has a table of its own
(tools/perf/builtin-mem.c, util/mem-events.c):

    # Samples: 4K of event 'cpu/mem-loads,ldlat=30/P'
    # Overhead       Samples  Local Weight  Memory access             Symbol            Shared Object  Data Symbol
    # ........  ............  ............  ........................  ................  .............  ..............
         9.03%           575  32            L1 or L1 hit              [.] main          stream         [.] values+0x40
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from llmtop import whats
from llmtop.errors import FileError
from llmtop.model import Issue, MemoryAccesses, Missing, Origin, Severity, Trace, Unknown
from llmtop.parsers.base import Content
from llmtop.parsers.perf_columns import DOTS, perf_columns
from llmtop.parsers.perf_stat_lines import plain_number
from llmtop.parsers.text_lines import TextLines, decoded_head
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from llmtop.parsers.base import Parser
    from llmtop.parsers.perf_columns import PerfColumns

_HEAD = re.compile(r"#\s*Overhead\b.*\bMemory access\b.*")
_EVENT = re.compile(r"# Samples: .* of event '(.+)'.*")
_PERCENT = re.compile(r"(\d{1,3}[.,]\d{1,3})%")
_NUMBER = re.compile(r"\d{1,15}")
_KIND = re.compile(r"\A\[.\] ")
_NOTHING = frozenset({"", "N/A"})
_NO_KERNELS = Missing(whats.KERNELS, Unknown("perf mem tells of CPUs' accesses alone"))


class PerfMemParser:
    """Texts that `perf mem report --stdio` printed."""

    name = "perf-mem"
    title = "accesses to memory of perf mem"
    written_by = "`perf mem report --stdio`, with columns for what answered an access (`mem`, as it has by itself)"
    extensions: tuple[str, ...] = (".perf-mem.txt",)
    holds = frozenset({Content.ACCESSES})
    reads_text = True

    def sniff(self, head: bytes, path: Path) -> bool:
        """The head of its table."""
        return any(_HEAD.fullmatch(line) for line in decoded_head(head).splitlines())

    def parse(self, path: Path) -> Trace:
        """Read the tables of all events.

        Raises:
            FileError: It has no access.
        """
        lines = TextLines(path)
        report = _MemReport(lines)
        if not report.accesses:
            raise FileError(f"{path} has no access to memory: none was sampled, or the text was cut short")
        return Trace(
            Origin(self.name, str(path)),
            accesses=tuple(report.accesses),
            issues=tuple(report.issues(is_ended=lines.is_ended)),
            missing=(_NO_KERNELS,),
        )


PARSER: Final[Parser] = PerfMemParser()


class _MemReport:
    """The tables of a report."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.accesses: list[MemoryAccesses] = []
        self._event = ""
        self._heads: list[str] = []
        self._columns: PerfColumns | None = None
        self._skipped = 0
        for line in lines:
            self._read(line.rstrip())

    def issues(self, *, is_ended: bool) -> Iterator[Issue]:
        """What was left out."""
        if self._skipped:
            yield Issue(Severity.WARNING, "rows-skipped", "lines are no accesses: left out", self._skipped)
        if not is_ended:
            message = "the last line has no end: if the file was cut short, its last accesses are missing"
            yield Issue(Severity.INFO, "no-line-end", message)

    def _read(self, line: str) -> None:
        if event := _EVENT.fullmatch(line):
            self._event, self._heads, self._columns = clean(event[1]), [], None
        elif DOTS.fullmatch(line):
            self._columns = perf_columns(self._heads, line)
        elif line.startswith("#"):
            self._heads = [line] if _HEAD.fullmatch(line) else []
        elif self._columns is not None and line.strip():
            self._add(self._columns.cells(line))

    def _add(self, cells: Mapping[str, str]) -> None:
        share = _PERCENT.fullmatch(cells.get("Overhead", ""))
        if share is None or not cells.get("Memory access"):
            self._skipped += 1
            return
        told = {name: "" if cell in _NOTHING else clean(_KIND.sub("", cell)) for name, cell in cells.items()}
        self.accesses.append(
            MemoryAccesses(
                event=self._event,
                share=plain_number(share[1]) / 100,
                samples=_number(cells.get("Samples", "")),
                weight=_number(cells.get("Local Weight", cells.get("Weight", ""))),
                level=told["Memory access"] or "unknown",
                symbol=told.get("Symbol", ""),
                object=told.get("Shared Object", ""),
                data_symbol=told.get("Data Symbol", ""),
                data_object=told.get("Data Object", ""),
                snoop=told.get("Snoop", ""),
                tlb=told.get("TLB access", ""),
                locked=told.get("Locked", ""),
            )
        )


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None
