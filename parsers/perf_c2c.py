"""What `perf c2c report --stdio` prints: which cache lines several CPUs fight for, and what code does.

Sums of all samples, then a line for each cache line, then for each what is at its offsets. The columns and their names
are other ones in each version: 4.20 has "LLC Load Hitm", 5.12 "Load Hitm", 6.0 stores at no known level and snoops of
peers, which is what Arm has in place of HITM (tools/perf/builtin-c2c.c; perf-c2c(1)).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from llmtop import whats
from llmtop.errors import FileError
from llmtop.model import CacheLine, Issue, LineAccess, Missing, Origin, Severity, Trace, Unknown
from llmtop.parsers.base import Content
from llmtop.parsers.perf_columns import DOTS, PerfColumns, perf_columns
from llmtop.parsers.perf_stat_lines import plain_number
from llmtop.parsers.text_lines import TextLines, decoded_head
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from llmtop.model import Fact
    from llmtop.parsers.base import Parser

_SECTION = re.compile(
    r"\s*(Trace Event Information|Global Shared Cache Line Event Information|c2c details|Shared Data Cache Line Table|"
    r"Shared Cache Line Distribution Pareto)\s*"
)
_SUM = re.compile(r"  (?P<what>\S.*?) *: *(?P<count>\d{1,18})(?P<percent>[.,]\d{1,3}%)?\s*")
_LINES, _PARETO = "Shared Data Cache Line Table", "Shared Cache Line Distribution Pareto"
_DASHES = re.compile(r"\s*-{20,}\s*")
_ADDRESS = re.compile(r"0x[0-9a-f]{1,16}")
_NUMBER = re.compile(r"\d{1,15}")
_PERCENT = re.compile(r"\d{1,3}[.,]\d{1,3}%")
_OF_LINE: Final = {
    "hitm_local": re.compile(r"(?:LLC )?Load Hitm Lcl(?:Hitm)?"),
    "hitm_remote": re.compile(r"(?:LLC )?Load Hitm Rmt(?:Hitm)?"),
    "peer": re.compile(r"Load Peer Total|Snoop Peer"),
    "loads": re.compile(r"Total Loads"),
    "stores": re.compile(r"Total Stores|Stores? Reference Total"),
    "dram_local": re.compile(r"Load Dram Lcl"),
    "dram_remote": re.compile(r"Load Dram Rmt"),
}
"""The columns of a cache line's numbers, by what `CacheLine` calls them, in all versions."""
_CACHE_LINE = re.compile(r"Cacheline(?: Address)?")
_REMOTE, _LOCAL, _PEER = (
    re.compile(rf"(?:HITM|Snoop|Load Peer) {name}") for name in ("Rmt(?:Hitm)?", "Lcl(?:Hitm)?", "Peer")
)
_STORES = re.compile(r"Store Refs? .*")
_NO_KERNELS = Missing(whats.KERNELS, Unknown("perf c2c tells of CPUs' caches alone"))


class PerfC2cParser:
    """Texts that `perf c2c report --stdio` printed."""

    name = "perf-c2c"
    title = "cache lines of perf c2c"
    written_by = "`perf c2c report --stdio`"
    extensions: tuple[str, ...] = (".perf-c2c.txt",)
    holds = frozenset({Content.CACHE_LINES})
    reads_text = True

    def sniff(self, head: bytes, path: Path) -> bool:
        """The title of one of its parts."""
        return any(_SECTION.fullmatch(line) for line in decoded_head(head).splitlines())

    def parse(self, path: Path) -> Trace:
        """Read the table of cache lines, and what is known of each.

        Raises:
            FileError: It has no cache line.
        """
        report = _C2cReport(TextLines(path))
        lines = tuple(report.lines())
        if not lines:
            raise FileError(
                f"{path} names no cache line that is shared: none was fought for, or the text was cut short"
            )
        return Trace(
            Origin(self.name, str(path), facts=report.facts),
            cache_lines=lines,
            issues=tuple(report.issues()),
            missing=(_NO_KERNELS,),
        )


PARSER: Final[Parser] = PerfC2cParser()


class _C2cReport:
    """The parts of a report."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.facts: dict[str, Fact] = {}
        self._rows: list[Mapping[str, str]] = []
        self._accesses: dict[int, list[LineAccess]] = {}
        self._section = ""
        self._heads: list[str] = []
        self._columns: PerfColumns | None = None
        self._index = -1
        self._is_open = False
        self._skipped = 0
        for line in lines:
            self._read(line.rstrip())

    def lines(self) -> Iterator[CacheLine]:
        """All cache lines, in the order of the report."""
        for row in self._rows:
            index = row.get("Index", "")
            accesses = self._accesses.get(int(index), []) if _NUMBER.fullmatch(index) else []
            yield _cache_line(row, tuple(accesses))

    def issues(self) -> Iterator[Issue]:
        """What was left out, and what is not there."""
        if self._skipped:
            yield Issue(Severity.WARNING, "rows-skipped", "lines are no cache lines: left out", self._skipped)
        if self._rows and not self._accesses:
            message = (
                "what is at the offsets of the lines is not there: the text was cut short, or printed with --stats"
            )
            yield Issue(Severity.INFO, "perf.no-offsets", message)

    def _read(self, line: str) -> None:
        if section := _SECTION.fullmatch(line):
            self._section, self._heads, self._columns = section[1], [], None
        elif self._section in (_LINES, _PARETO):
            self._read_table(line)
        elif summed := _SUM.fullmatch(line):
            value = plain_number(summed["count"] + (summed["percent"] or "").rstrip("%"))
            self.facts[clean(summed["what"])] = f"{value:g} %" if summed["percent"] else int(summed["count"])

    def _read_table(self, line: str) -> None:
        if DOTS.fullmatch(line):
            self._columns = perf_columns([head for head in self._heads if head.strip("# ")], line)
        elif line.startswith("#"):
            self._heads.append(line)
        elif self._columns is not None and line.strip() and not line.startswith("="):
            if self._section == _LINES:
                self._add_line(self._columns.cells(line))
            else:
                self._add_access(line, self._columns)

    def _add_line(self, cells: Mapping[str, str]) -> None:
        if _ADDRESS.fullmatch(_of(cells, _CACHE_LINE)) and _NUMBER.fullmatch(cells.get("Index", "")):
            self._rows.append(cells)
        else:
            self._skipped += 1

    def _add_access(self, line: str, columns: PerfColumns) -> None:
        """A line between two of dashes names the cache line that what follows is at."""
        if _DASHES.fullmatch(line):
            self._is_open = not self._is_open
        elif self._is_open:
            first = line.split()[0]
            self._index = int(first) if _NUMBER.fullmatch(first) else -1
        elif (access := _access(columns.cells(line), columns.rest_from("Symbol", line))) is not None:
            self._accesses.setdefault(self._index, []).append(access)
        else:
            self._skipped += 1


def _cache_line(row: Mapping[str, str], accesses: tuple[LineAccess, ...]) -> CacheLine:
    numbers = {name: _number(_of(row, column)) for name, column in _OF_LINE.items()}
    share = next((cell for cell in row.values() if _PERCENT.fullmatch(cell)), "")
    return CacheLine(
        address=_of(row, _CACHE_LINE),
        share=plain_number(share.rstrip("%")) / 100 if share else None,
        node=clean(row.get("Cacheline Node", "")),
        accesses=accesses,
        **numbers,
    )


def _access(cells: Mapping[str, str], rest: list[str]) -> LineAccess | None:
    offset = next((cell for name, cell in cells.items() if name.startswith("Data address") and "Node" not in name), "")
    if not _ADDRESS.fullmatch(offset):
        return None
    symbol, place, node = rest[0], "".join(rest[2:3]), " ".join(rest[3:])
    stores = [_share(cell) for name, cell in cells.items() if _STORES.fullmatch(name)]
    return LineAccess(
        offset=int(offset, 16),
        symbol=clean(re.sub(r"\A\[.\] ", "", symbol)),
        object=clean(rest[1]) if len(rest) > 1 else "",
        place=clean(place),
        node=clean(node),
        remote_share=_share(_of(cells, _REMOTE)),
        local_share=_share(_of(cells, _LOCAL)),
        peer_share=_share(_of(cells, _PEER)),
        stores_share=max(stores, default=0.0),
        cpus=_number(cells.get("cpu cnt", "")),
        pid=_number(cells["Pid"]) if _NUMBER.fullmatch(cells.get("Pid", "")) else None,
        tid=_number(cells["Tid"]) if _NUMBER.fullmatch(cells.get("Tid", "")) else None,
    )


def _of(cells: Mapping[str, str], column: re.Pattern[str]) -> str:
    return next((cell for name, cell in cells.items() if column.fullmatch(name)), "")


def _number(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0


def _share(text: str) -> float:
    return plain_number(text.rstrip("%")) / 100 if _PERCENT.fullmatch(text) else 0.0
