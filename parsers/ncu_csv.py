"""What `ncu --csv` prints of kernels: `--page details` (a value a line) and `--page raw` (a kernel a line).

Both begin with the identity of the launch, in columns that go by their names: versions since 2019 have some more or
fewer of them. The raw page has a line of units below the header, and all metrics; the details page has sections and
rules. What the program and the tool say meanwhile stands between
(https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html#page-csv-output).
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from llmtop import whats
from llmtop.errors import FileError
from llmtop.facts import OriginFact
from llmtop.model import (
    Instances,
    Issue,
    KernelTable,
    Missing,
    Origin,
    RuleResult,
    SectionTable,
    Severity,
    Trace,
    Unknown,
    UnknownKind,
)
from llmtop.parsers.base import Content, complaint_severity
from llmtop.parsers.metric_units import unit_of
from llmtop.parsers.ncu_names import METRICS, SECTION_IDS, nvtx_range
from llmtop.parsers.printed_values import base_unit, has_decimal_commas, value_printed
from llmtop.parsers.text_lines import LONGEST_LINE, TextLines, decoded_head
from llmtop.remedies import TIMELINE
from llmtop.text import base_name, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from llmtop.model import Fact, Value
    from llmtop.parsers.base import Parser

_HEADER = re.compile(r'"?ID"?,"?Process ID"?,"?Process Name"?,')
_SUMMARY = re.compile(r'"?Process ID"?,"?Process Name"?,"?Host Name"?,.*"?Invocations"?,')
_SOURCE = re.compile(r'"Kernel Name",')
_SAYS = re.compile(r".{0,2}==(PROF|WARNING|ERROR)== (.*)")
"""Behind the mark of an encoding, where that was encoded once more."""
_CONNECTED = re.compile(r"Connected to process (\d+) \((.*)\)")
_IDENTITY = frozenset(
    {
        *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream"),
        *("Block Size", "Grid Size", "Device", "CC", "NVTX"),
    }
)
_PUSHED, _STARTED = ":Push/Pop_Range:", ":Start/Stop_Range:"
_SIZE = re.compile(r"\((?P<x>\d{1,10}), *(?P<y>\d{1,10}), *(?P<z>\d{1,10})\)")
_INDEX = re.compile(r"\d{1,10}")
"""What a whole number of 64 bits surely holds."""
_AXES = "xyz"
_RANGE = re.compile(r'"([^"]*)"')
_RANGE_FIELDS = 6
"""What stands behind a range's name: payload, colour and message, each with its type."""
_NAMED = re.compile(r"(?:.+ \()?([^\s()]+__[^\s()]+)\)?")
"""A metric's name, alone or behind its label (`--print-metric-name`)."""
_SEVERITIES = {"OPT": "optimization", "WRN": "warning", "ERR": "error"}
"""Types of messages; all others are "ok"."""
_ASKED_FOR = "Command line profiler metrics"
"""The section of metrics that were named on the command line."""
_DURATION = "gpu__time_duration.sum"
_GPU_NAME = "device__attribute_display_name"
_DEVICE, _STREAM = "launch__device_id", "launch__stream_id"
_TABLED = frozenset(
    {_DURATION, _DEVICE, _STREAM, *(f"launch__{of}_dim_{axis}" for of in ("grid", "block") for axis in _AXES)}
)
_READ_KERNELS = 64
_WHOLE = "open the .ncu-rep that it was printed from"
_ALL = f"{_WHOLE}, or print that with --page raw"
_NO_INSTANCES = Unknown("a printed page has no values by instruction or unit", _WHOLE)

csv.field_size_limit(LONGEST_LINE)  # Python's limit is shorter than a metric with its values by instruction


class NcuCsvParser:
    """Pages that `ncu --csv` prints of kernels."""

    name = "ncu-csv"
    title = "printed pages of Nsight Compute"
    written_by = "`ncu --csv --page details` or `raw`, also of a report (`--import`), in any unit and language"
    extensions: tuple[str, ...] = (".csv",)
    holds = frozenset({Content.KERNELS})
    reads_text = True

    def sniff(self, head: bytes, path: Path) -> bool:
        """A header, or what the tool says before it."""
        lines = decoded_head(head).splitlines()
        if _SOURCE.match(lines[0] if lines else ""):
            return any(re.match(r'"(#|Address)",', line) for line in lines[1:2])
        return any(_HEADER.match(line) or _SUMMARY.match(line) or _SAYS.match(line) for line in lines)

    def parse(self, path: Path) -> Trace:
        """Read a page; values are in base units, as exact as they were printed.

        Raises:
            FileError: It holds no kernels: another page, a summary, or only what the tool had to say.
        """
        reader = _Reader(TextLines(path))
        reader.read()
        if not reader.launches:
            raise FileError(f"{path} {_why_empty(reader)}")
        details = PrintedDetails(reader.launches)
        kernels = _table(reader.launches, details)
        return Trace(
            _origin(path, reader, details),
            kernels=kernels,
            issues=(*reader.issues(), *_doubts(details)),
            missing=tuple(_missing(kernels, reader.launches)),
        )


PARSER: Final[Parser] = NcuCsvParser()


class Cell(NamedTuple):
    """A value as it is printed. `section` is a title, "" on the raw page."""

    section: str
    label: str
    unit: str
    text: str

    @property
    def metric(self) -> str:
        """Its metric; its label where nothing tells whose that is."""
        return _metric(self.section, self.label)


@lru_cache(maxsize=8192)
def _metric(section: str, label: str) -> str:
    if named := _NAMED.fullmatch(label):
        return clean(named[1])
    return METRICS.get(section, {}).get(label) or clean(label)


class _Page(Protocol):
    """What the columns of a page are."""

    identity: tuple[str, ...]

    def fits(self, row: Sequence[str]) -> bool:
        """Whether a line tells of a launch, and is whole; one of units is kept."""
        ...

    def cells(self, row: Sequence[str]) -> Iterator[Cell]:
        """The values on a line."""
        ...

    def rule(self, row: Sequence[str]) -> tuple[str, ...] | None:
        """What a rule says on a line: section, rule, type, text, type of the speedup, speedup."""
        ...


class _RawPage:
    """All metrics of a launch on a line. The first line has their units, and no ID."""

    def __init__(self, header: Sequence[str]) -> None:
        self.identity = tuple(header)
        self._units: Sequence[str] = [""] * len(header)
        self._metrics = [i for i, name in enumerate(header) if not _is_identity(name)]

    def fits(self, row: Sequence[str]) -> bool:
        if len(row) != len(self.identity):
            return False
        if not row[0]:
            self._units = row
        return bool(row[0])

    def cells(self, row: Sequence[str]) -> Iterator[Cell]:
        return (Cell("", self.identity[i], self._units[i], row[i]) for i in self._metrics)

    def rule(self, row: Sequence[str]) -> tuple[str, ...] | None:
        return None


class _DetailsPage:
    """A value, or what a rule says, on a line. Columns at its end are left out where they are empty."""

    def __init__(self, header: Sequence[str]) -> None:
        self.identity = tuple(header[: header.index("Section Name")])
        self._at = {name: i for i, name in enumerate(header)}
        self._least = self._at["Metric Value"] + 1
        self._most = len(header)

    def fits(self, row: Sequence[str]) -> bool:
        return self._least <= len(row) <= self._most and bool(row[0])

    def cells(self, row: Sequence[str]) -> Iterator[Cell]:
        section, item, label, unit, text = (
            self._of(row, name)
            for name in ("Section Name", "Body Item Label", "Metric Name", "Metric Unit", "Metric Value")
        )
        if label:
            yield Cell(section, f"{item}: {label}" if item else label, unit, text)

    def rule(self, row: Sequence[str]) -> tuple[str, ...] | None:
        names = (
            *("Section Name", "Rule Name", "Rule Type", "Rule Description"),
            *("Estimated Speedup Type", "Estimated Speedup"),
        )
        said = tuple(self._of(row, name) for name in names)
        return said if said[1] else None

    def _of(self, row: Sequence[str], name: str) -> str:
        place = self._at.get(name, len(row))
        return row[place] if place < len(row) else ""


def _is_identity(name: str) -> bool:
    return name in _IDENTITY or _PUSHED in name or _STARTED in name


def _page(header: Sequence[str]) -> _Page:
    return _DetailsPage(header) if {"Section Name", "Metric Value"} <= set(header) else _RawPage(header)


@dataclass(slots=True)
class PrintedLaunch:
    """A launch and the lines that tell of it."""

    page: _Page
    identity: Mapping[str, str]
    lines: list[str] = field(default_factory=list)

    def rows(self) -> Iterator[list[str]]:
        return (_split(line) for line in self.lines)

    def cells(self) -> Iterator[Cell]:
        return (cell for row in self.rows() for cell in self.page.cells(row))

    def rules(self) -> Iterator[tuple[str, ...]]:
        return (said for row in self.rows() if (said := self.page.rule(row)) is not None)


def _split(line: str) -> list[str]:
    """The fields of a line; none of what is no CSV, or was cut. Each line by itself: a lost quote costs one."""
    try:
        return [] if line.count('"') % 2 else next(csv.reader((line,)), [])
    except csv.Error:
        return []


class _Reader:
    """The launches of a page, and what else was said."""

    def __init__(self, lines: TextLines) -> None:
        self._lines = lines
        self._page: _Page | None = None
        self._pages = 0
        self._by_id: dict[tuple[int, str, str], PrintedLaunch] = {}
        self._skipped = 0
        self.other_page = ""
        self.said: list[tuple[str, str]] = []

    @property
    def launches(self) -> Sequence[PrintedLaunch]:
        return tuple(self._by_id.values())

    def read(self) -> None:
        for line in self._lines:
            if said := _SAYS.match(line):
                self.said.append((said[1], clean(said[2].strip())))
            elif _HEADER.match(line):
                columns = _split(line)
                self._page = _page(columns) if "Kernel Name" in columns else None
                self._pages += 1
            elif self._page is not None and line.strip():
                self._add(line, self._page)
            elif other := _other_page(line):
                self.other_page = other

    def _add(self, line: str, page: _Page) -> None:
        row = _split(line)
        if page.fits(row):
            # Launches are numbered anew by each run, and a file may have the pages of several.
            key = (self._pages, row[1], row[0])
            if key not in self._by_id:
                self._by_id[key] = PrintedLaunch(page, dict(zip(page.identity, row, strict=False)))
            self._by_id[key].lines.append(line)
        else:
            self._skipped += not row or row[0] != ""

    def issues(self) -> Iterator[Issue]:
        """What was left out, and what the tool complained of."""
        for (kind, text), count in Counter(self.said).items():
            if kind != "PROF":
                yield Issue(complaint_severity(text), "ncu-csv.said", f"Nsight Compute says: {text}", count)
        if self._skipped:
            message = "lines are none of the page's, or damaged: left out"
            yield Issue(Severity.WARNING, "rows-skipped", message, self._skipped)
        if not self._lines.is_ended:
            message = "the last line has no end: if the file was cut short, the last kernel lacks values"
            yield Issue(Severity.INFO, "no-line-end", message)


def _doubts(details: PrintedDetails) -> Iterator[Issue]:
    if details.doubt:
        message = f"{details.doubt}; print the page again under LC_ALL=C, or open the .ncu-rep, to be sure"
        yield Issue(Severity.WARNING, "ncu-csv.language", message)


def _other_page(line: str) -> str:
    if _SUMMARY.match(line):
        return "a summary over launches (--print-summary)"
    return "the source page" if _SOURCE.match(line) else ""


def _why_empty(reader: _Reader) -> str:
    if reader.other_page:
        return f"is {reader.other_page}; llmtop reads launches: print it again with --csv --page raw, or {_WHOLE}"
    complaints = [text for kind, text in reader.said if kind != "PROF" and text]
    if complaints:
        return f"holds no kernels, only what Nsight Compute says: {complaints[0]}"
    return "holds no kernels: none ran, the filters of ncu matched none, or it was cut short; print it again"


class PrintedDetails:
    """Implements `llmtop.model.KernelDetails` over the lines of a page."""

    def __init__(self, launches: Sequence[PrintedLaunch]) -> None:
        self._launches = launches
        self._units: dict[str, str] = {}
        cells = ((cell.text, cell.unit) for launch in launches for cell in launch.cells())
        self._decimal_comma, self.doubt = has_decimal_commas(cells)
        # A cache of a method would tie this object into a reference cycle.
        self._metrics: dict[int, Mapping[str, Value]] = {}

    def metrics(self, i: int) -> Mapping[str, Value]:
        if i not in self._metrics:
            if len(self._metrics) >= _READ_KERNELS:
                self._metrics.pop(next(iter(self._metrics)))
            self._metrics[i] = self._values(i, None)
        return self._metrics[i]

    def of_launch(self, i: int) -> Mapping[str, Value]:
        """The few of them that the table of kernels shows: of all kernels all would take seconds."""
        return self._values(i, _TABLED)

    def _values(self, i: int, wanted: frozenset[str] | None) -> Mapping[str, Value]:
        values: dict[str, Value] = {}
        for cell in self._launches[i].cells():
            metric = cell.metric
            if metric in values or (wanted is not None and metric not in wanted):
                continue
            value = value_printed(cell.text, cell.unit, decimal_comma=self._decimal_comma)
            if value is not None:
                values[metric] = value
                self._units.setdefault(metric, base_unit(cell.unit)[0])
        return values

    def unit(self, metric: str) -> str:
        return unit_of(metric) or self._units.get(metric, "")

    def instances(self, i: int, metric: str) -> Instances | Unknown:
        return _NO_INSTANCES

    def rules(self, i: int) -> tuple[RuleResult, ...]:
        said: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        for section, rule, *rest in self._launches[i].rules():
            said.setdefault((section, rule), []).append(tuple(rest))
        return tuple(_rule(section, rule, rows) for (section, rule), rows in said.items())

    def ranges(self, i: int) -> tuple[str, ...]:
        identity = self._launches[i].identity
        started = (text for name, text in identity.items() if _STARTED in name)
        pushed = (text for name, text in identity.items() if _PUSHED in name)
        # Started ranges belong to the process, so they are around what a thread has pushed.
        return (*_ranges(started, 1), *_ranges(pushed, 0))

    def sections(self, i: int) -> tuple[str, ...]:
        told = [table.id for table in self.tables(i)]
        return tuple(dict.fromkeys([*told, *(rule.section for rule in self.rules(i))]))

    def tables(self, i: int) -> tuple[SectionTable, ...]:
        rows: dict[str, list[tuple[str, str]]] = {}
        for cell in self._launches[i].cells():
            if cell.section and cell.section != _ASKED_FOR:
                rows.setdefault(cell.section, []).append((cell.metric, clean(cell.label)))
        return tuple(
            SectionTable(SECTION_IDS.get(title, clean(title)), clean(title), tuple(labels))
            for title, labels in rows.items()
        )


def _rule(section: str, rule: str, said: Iterable[Sequence[str]]) -> RuleResult:
    """What a rule says of a launch, in one message or more: (type, text, type of the speedup, speedup) of each."""
    rows = [row for row in said if row[1]]
    speedups = ((kind, value_printed(percent, "%")) for _, _, kind, percent in rows if kind in ("global", "local"))
    return RuleResult(
        id=clean(rule),
        name=clean(rule),
        section=clean(section),
        messages=tuple((_SEVERITIES.get(kind, "ok"), clean(" ".join(text.split()))) for kind, text, _, _ in rows),
        speedups=tuple((kind, float(value)) for kind, value in speedups if isinstance(value, int | float)),
    )


def _ranges(texts: Iterable[str], before: int) -> Iterator[str]:
    """The ranges of a column, each as `domain:name:payload ...`, with so many fields before the domain."""
    for text in texts:
        for told in _RANGE.findall(text):
            fields = told.rsplit(":", _RANGE_FIELDS)[0].split(":", before + 1)
            if len(fields) == before + 2:
                yield clean(nvtx_range(*fields[before:]))


def _table(launches: Sequence[PrintedLaunch], details: PrintedDetails) -> KernelTable:
    titles = [clean(launch.identity.get("Kernel Name", "")) or "(unnamed kernel)" for launch in launches]
    id_by_name = {name: i for i, name in enumerate(dict.fromkeys(titles))}
    metrics = [details.of_launch(i) for i in range(len(launches))]
    durations = (values.get(_DURATION) for values in metrics)
    return KernelTable(
        names=tuple(id_by_name),
        functions=tuple(map(base_name, id_by_name)),
        name_id=array("q", (id_by_name[name] for name in titles)),
        grid=_sizes(launches, metrics, "grid"),
        block=_sizes(launches, metrics, "block"),
        start_ns=array("q", [-1]) * len(launches),
        duration_ns=array("d", (math.nan if ns is None or isinstance(ns, str) else ns for ns in durations)),
        device=_indices(launches, metrics, "Device", _DEVICE),
        stream=_indices(launches, metrics, "Stream", _STREAM),
        details=details,
    )


def _sizes(
    launches: Sequence[PrintedLaunch], metrics: Sequence[Mapping[str, Value]], of: str
) -> tuple[array[int], array[int], array[int]]:
    """Lengths x, y and z of grids or blocks, -1 where they are not told: "(32, 4, 1)", before 2023 metrics alone."""
    sizes = [_SIZE.fullmatch(launch.identity.get(f"{of.title()} Size", "")) for launch in launches]
    x, y, z = (
        array("q", (_length(size[axis] if size else values.get(f"launch__{of}_dim_{axis}")) for size, values in rows))
        for axis, rows in ((axis, zip(sizes, metrics, strict=True)) for axis in _AXES)
    )
    return x, y, z


def _indices(
    launches: Sequence[PrintedLaunch], metrics: Sequence[Mapping[str, Value]], column: str, metric: str
) -> array[int]:
    """A column, -1 where it does not tell; before 2023 a metric alone."""
    pairs = zip(launches, metrics, strict=True)
    return array("q", (_length(launch.identity.get(column) or values.get(metric)) for launch, values in pairs))


def _length(told: Value | None) -> int:
    text = str(told).removesuffix(".0")
    return int(text) if _INDEX.fullmatch(text) else -1


def _origin(path: Path, reader: _Reader, details: PrintedDetails) -> Origin:
    """What the page tells of the session: processes and hosts, and on the raw page the GPU."""
    identities = [launch.identity for launch in reader.launches]
    gpus = (details.metrics(i).get(_GPU_NAME) for i in _first_of_each_device(identities))
    facts: dict[str, Fact] = {
        "processes": ", ".join(_processes(identities, reader.said)),
        "host": _distinct(identities, "Host Name"),
        OriginFact.COMPUTE_CAPABILITY: _distinct(identities, "CC"),
    }
    return Origin(
        kind=PARSER.name,
        path=str(path),
        gpu=", ".join(f"{n}x {name}" if n > 1 else str(name) for name, n in Counter(filter(None, gpus)).items()),
        facts={name: fact for name, fact in facts.items() if fact},
    )


def _first_of_each_device(identities: Sequence[Mapping[str, str]]) -> Iterable[int]:
    return {identity.get("Device", ""): i for i, identity in reversed(list(enumerate(identities)))}.values()


def _processes(identities: Iterable[Mapping[str, str]], said: Iterable[tuple[str, str]]) -> Iterable[str]:
    """By their paths where the tool says what it connected to; else by their names."""
    paths = {found[1]: found[2] for _, text in said if (found := _CONNECTED.match(text))}
    names = {identity.get("Process ID", ""): identity.get("Process Name", "") for identity in identities}
    return (clean(f"{paths.get(pid, name)} ({pid})") for pid, name in names.items())


def _distinct(identities: Iterable[Mapping[str, str]], column: str) -> str:
    return clean(", ".join(dict.fromkeys(filter(None, (identity.get(column, "") for identity in identities)))))


def _missing(table: KernelTable, launches: Sequence[PrintedLaunch]) -> Iterator[Missing]:
    """What no printed page, or not this one, has."""
    if any(isinstance(launch.page, _DetailsPage) for launch in launches):
        reason = "the details page has what sections show first, and not all that was collected"
        yield Missing(whats.OTHER_METRICS, Unknown(reason, _ALL, UnknownKind.NOT_SHOWN))
    yield Missing(
        whats.TIMELINE, Unknown("Nsight Compute runs kernels one by one, so a page has no timeline", TIMELINE)
    )
    if lacking := sum(map(math.isnan, table.duration_ns)):
        reason = f"{lacking} of {len(table)} kernels have no value of {_DURATION}"
        yield Missing(whats.told(_DURATION), Unknown(reason, "add --section SpeedOfLight", UnknownKind.NOT_COUNTED))
