"""Launches of kernels in columns, and what a profiler's report holds behind each: metrics, rules, machine code."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from llmtop.frozen import frozen
from llmtop.model.values import Unknown, Value


@frozen
class RuleResult:
    """What the capturing tool's own rule said of a kernel.

    Attributes:
        messages: (severity, text) pairs; severity is one of ok, warning, error, optimization.
        speedups: ("global" or "local", percent) pairs: global is of the kernel's time, local of that part.
        focus: (metric, value) pairs that the rule rests on.
        titles: Of each message what it found, in a few words ("Small Grid"), "" where it has none; () for none at all.
    """

    id: str
    name: str
    section: str
    messages: tuple[tuple[str, str], ...]
    speedups: tuple[tuple[str, float], ...] = ()
    focus: tuple[tuple[str, float], ...] = ()
    titles: tuple[str, ...] = ()

    @property
    def titled(self) -> tuple[tuple[str, str], ...]:
        """(severity, text) of each message, its title before its text."""
        titles = self.titles or ("",) * len(self.messages)
        pairs = zip(self.messages, titles, strict=True)
        return tuple((severity, f"{title}: {text}" if title else text) for (severity, text), title in pairs)

    @property
    def advised(self) -> str:
        """Its name, with the titles of what it advises where they say more: "Warp Stall (Long Scoreboard Stalls)"."""
        pairs = zip(self.messages, self.titles, strict=False)
        titles = [title for (severity, _), title in pairs if severity in ("optimization", "warning") and title]
        more = ", ".join(title for title in dict.fromkeys(titles) if title != self.name)
        return f"{self.name} ({more})" if more else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Instances:
    """A metric split by something (PC, opcode, unit): `keys[i]` has `values[i]`; keys may be absent (empty)."""

    keys: tuple[Value, ...]
    values: tuple[Value, ...]


class ChartKind(StrEnum):
    """What stands below the head of a section."""

    TABLE = "table"
    BARS = "bars"
    HISTOGRAM = "histogram"
    LINE = "line"
    STATISTICS = "statistics"
    """A table of metrics by the mean, the least, the most and the sum over all units."""
    ROOFLINE = "roofline"
    HOTSPOTS = "hotspots"
    MEMORY = "memory"
    EVICTION = "eviction policies of L2"
    NVLINK = "NVLink"
    NUMA = "NUMA"
    TIMELINE = "timeline"
    DAMAGED = "damaged"
    """It cannot be read."""


@frozen
class SectionChart:
    """One chart or table of a section, as its file describes it.

    Attributes:
        cells: (metric, the tool's label for it); of a line's values by x, the keys of the metric's instances.
        marks: Where on x the kernel stands.
        x_label, y_label: Of a line.
        most: Where the axis of values ends; None where it follows them.
        bins: Of a histogram; 0 where it does not say.
        is_split: Bars are of what a metric's values are of (opcodes, units), in place of metrics.
    """

    kind: ChartKind
    title: str
    cells: tuple[tuple[str, str], ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
    x_label: str = ""
    y_label: str = ""
    most: float | None = None
    bins: int = 0
    is_split: bool = False


@frozen
class SectionTable:
    """What a section of a profiler's report shows.

    Attributes:
        rows: At its head: (metric, the tool's label for it) in the tool's order.
        charts: What stands below; empty where the source has heads alone.
    """

    id: str
    title: str
    rows: tuple[tuple[str, str], ...]
    charts: tuple[SectionChart, ...] = ()


class KernelDetails(Protocol):
    """What a report holds beyond the columns, read when it is asked for. `i` is the row in the kernel table."""

    def metrics(self, i: int) -> Mapping[str, Value]:
        """All scalar metrics of a kernel by the tool's own names, in units that `unit` tells."""
        ...

    def unit(self, metric: str) -> str:
        """The unit of a metric; "" where it has none."""
        ...

    def instances(self, i: int, metric: str) -> Instances | Unknown:
        """The per-PC or per-unit values of one metric."""
        ...

    def rules(self, i: int) -> tuple[RuleResult, ...]:
        """What the tool's own rules said of a kernel."""
        ...

    def ranges(self, i: int) -> tuple[str, ...]:
        """NVTX ranges open at the launch, outermost first."""
        ...

    def sections(self, i: int) -> tuple[str, ...]:
        """Identifiers of the sections that were collected."""
        ...

    def tables(self, i: int) -> tuple[SectionTable, ...]:
        """The collected sections with their tables, in the tool's order."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class KernelCode:
    """The instructions of one launch in columns, by address; row i of every column is instruction i.

    Attributes:
        addresses: As the per-instruction values of the report are keyed.
        functions: The functions that they are of; `function_id` indexes them.
        offsets: Of each from the beginning of its function, in bytes.
        files: Of the source; `file_id` indexes them, -1 where no line is known.
        file_bytes: How long they were when they were compiled; 0 where that is not told.
        line: From 1 on; 0 where it is not known.
        ptx_line: The same in `ptx`.
        ptx: The intermediate code that the instructions were made from, or why there is none.
        why_no_lines: Why no instruction has a line; None where any has.
    """

    addresses: array[int]
    functions: tuple[str, ...]
    function_id: array[int]
    offsets: array[int]
    files: tuple[str, ...]
    file_bytes: tuple[int, ...]
    file_id: array[int]
    line: array[int]
    ptx_line: array[int]
    ptx: tuple[str, ...] | Unknown
    why_no_lines: Unknown | None = None

    def __len__(self) -> int:
        return len(self.addresses)


@dataclass(frozen=True, slots=True, eq=False)
class SourceText:
    """The lines of a source file, clean.

    Attributes:
        found: Where they are from: "in the report", or the path of the file.
        doubt: Why they may not be what the kernel was made from; empty where nothing says so.
    """

    lines: tuple[str, ...]
    found: str
    doubt: str = ""


class KernelCodes(Protocol):
    """The machine code behind kernels, read when it is asked for. `i` is the row in the kernel table."""

    def code(self, i: int) -> KernelCode | Unknown:
        """The instructions of a launch."""
        ...

    def metrics(self, i: int) -> frozenset[str]:
        """The metrics that a launch has by instruction."""
        ...

    def values(self, i: int, metric: str) -> Mapping[int, float]:
        """One of these by address; instructions without a value are left out."""
        ...

    def source(self, i: int, file: str) -> SourceText | Unknown:
        """A file of its source, by its name in `KernelCode.files`."""
        ...

    def assembly(self, i: int) -> Mapping[int, str] | Unknown:
        """The text of its instructions by address: may run a disassembler, for seconds."""
        ...

    def fused_half(self, i: int) -> Mapping[int, bool] | Unknown:
        """Of each fused multiply-add in half precision, by address, whether it computes: others make a constant."""
        ...

    def within(self, folders: Sequence[Path]) -> KernelCodes:
        """The same, which looks for source files in these folders too."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class KernelTable:
    """Kernel launches in columns, in capture order; row i of every column is launch i.

    Attributes:
        names: Distinct demangled names, clean; `name_id` indexes this and `functions`.
        functions: The short name of the same index.
        grid: Three columns, x y z; `block` alike.
        start_ns: -1 where the capture has no timeline.
        duration_ns: NaN where it was not collected.
        stream: -1 where unknown; `device` alike.
        registers: Of a thread, -1 where unknown; empty where only `details` tell. `shared_bytes`, of a block, alike.
        estimated_occupancy: % of the warps an SM can hold, as the profiler computes it from the launch; 0 and -1 where
            it does not; empty where no launch has it.
        details: Metrics and rules behind each row; None where the capture has none.
        codes: The machine code behind each row, likewise.
        earlier: Of a part of a capture how many launches of its function came before each in all of it; empty where the
            table has all.
    """

    names: tuple[str, ...]
    functions: tuple[str, ...]
    name_id: array[int]
    grid: tuple[array[int], array[int], array[int]]
    block: tuple[array[int], array[int], array[int]]
    start_ns: array[int]
    duration_ns: array[float]
    device: array[int]
    stream: array[int]
    details: KernelDetails | None = None
    registers: array[int] = field(default_factory=lambda: array("q"))
    shared_bytes: array[int] = field(default_factory=lambda: array("q"))
    estimated_occupancy: array[int] = field(default_factory=lambda: array("q"))
    codes: KernelCodes | None = None
    earlier: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.name_id)

    def name(self, i: int) -> str:
        """The demangled name of launch i."""
        return self.names[self.name_id[i]]
