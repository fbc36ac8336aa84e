"""View models: what panes draw and reports print. Frozen, made by pure functions from a `Trace`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from llmtop.frozen import frozen
from llmtop.model import Unknown

if TYPE_CHECKING:
    from llmtop.analysis.series.histograms import Quantile

Cell: TypeAlias = "str | float | int | Unknown | None"
"""A table cell. Numbers are formatted by their column's unit; Unknown shows as "–" with its reason in the status line;
None is truly empty (a group row, say)."""


@frozen
class Column:
    """A table column. `unit` is as in `Metric.unit` ("" for text); `width` 0 takes what is left over.

    Attributes:
        shrink: Columns with the highest number are the first to be left out on a narrow screen; 0 always stays.
        is_signed: Whether its numbers are differences, of which those above 0 have a plus.
        pair: Columns of one pair, as before and after, are read beside each other and are left out together.
    """

    key: str
    title: str
    unit: str = ""
    width: int = 0
    shrink: int = 0
    help: str = ""
    is_signed: bool = False
    pair: str = ""

    @property
    def is_number(self) -> bool:
        """Whether cells align right and sort as numbers, largest first."""
        return self.unit != ""


class TableView(Protocol):
    """Rows of any number, made when they are seen. Implementations are frozen; sorting and filtering give a new one."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, left to right."""
        ...

    def __len__(self) -> int: ...

    def cells(self, row: int) -> Sequence[Cell]:
        """One cell per column."""
        ...

    def key(self, row: int) -> object:
        """What identifies the row over updates, so that a cursor stays on it."""
        ...

    def sorted_by(self, column: str, *, descending: bool) -> TableView:
        """The same rows in another order; unknown values last either way."""
        ...

    def sorts_at_once(self, column: str) -> bool:
        """Whether sorting by a column takes no longer than a frame may: nothing is decoded or added up for it."""
        ...

    def filters_at_once(self, text: str) -> bool:
        """The same of looking for a text."""
        ...

    def filtered(self, text: str) -> TableView:
        """Rows whose text contains `text`, ignoring case."""
        ...

    def why_none(self) -> Unknown | None:
        """Why a filter could not be read or asked, and so leaves no row; None where it could."""
        ...


class Quality(StrEnum):
    """How far a roofline point, or a part of a step, can be trusted."""

    MEASURED = "measured"
    LOWER_BOUND = "lower bound"
    UPPER_BOUND = "upper bound"
    ESTIMATE = "estimate"


@frozen
class Roof:
    """One ceiling of a roofline.

    Attributes:
        kind: "memory" ceilings are bytes/s (a slope), "compute" ceilings FLOP/s (flat).
        level: "DRAM", "L2", "L1" for memory; the precision ("bf16", "FP32" ...) for compute.
        value: Bytes per second or FLOP per second.
        practical: What known workloads reach of it, or None.
        now: What it is at the clock of the moment; None where that is not off the published one.
        mhz: The SM clock that a compute roof's value holds at: the published one, or that of a kernel's capture.
        now_mhz: The clock of the moment.
    """

    kind: Literal["memory", "compute"]
    level: str
    value: float
    source: str
    practical: float | None = None
    now: float | None = None
    mhz: float | None = None
    now_mhz: float | None = None


@frozen
class RooflinePoint:
    """Where work stands: FLOP per byte against FLOP per second.

    Attributes:
        label: A kernel's name, "now", "server estimate" ...
        weight: Share of the time, 0 to 1 (the dot's size); 1 for a live point.
        age_s: How old, for a trail; 0 is now.
        roof_fraction: FLOP/s over min(compute roof, intensity x memory roof); None without both roofs.
    """

    label: str
    intensity: float
    flops_per_s: float
    bytes_per_s: float
    precision: str
    source: str
    quality: Quality
    level: str = "DRAM"
    weight: float = 1.0
    age_s: float = 0.0
    roof_fraction: float | None = None


def has_place(point: RooflinePoint) -> bool:
    """Whether a point has a place on logarithmic axes."""
    return all(math.isfinite(value) and value > 0 for value in (point.intensity, point.flops_per_s))


@frozen
class Refusal:
    """Something that cannot be put on the plot, and why."""

    label: str
    why: Unknown


@frozen
class RooflineView:
    """A roofline to draw.

    Attributes:
        points: The newest (live) or the heaviest (report) first.
        band: (low, high) FLOP/s of the newest point where its precision is ambiguous.
        why_not: Why there is no point at all.
        ghosts: Where a model says that work would stand: for comparison, not work that is done.
    """

    title: str
    roofs: tuple[Roof, ...]
    points: tuple[RooflinePoint, ...]
    band: tuple[float, float] | None = None
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    why_not: Unknown | None = None
    ghosts: tuple[RooflinePoint, ...] = ()

    def roofs_of(self, kind: Literal["memory", "compute"]) -> list[Roof]:
        """The slopes, or the flat ones, in their order."""
        return [roof for roof in self.roofs if roof.kind == kind]

    def roof(self, kind: Literal["memory", "compute"], level: str) -> float | None:
        """The ceiling of a level of memory or of a precision; None where there is none, or none above zero."""
        return next((roof.value for roof in self.roofs_of(kind) if roof.level == level and roof.value > 0), None)

    def ridge(self, precision: str, level: str = "DRAM") -> float | None:
        """From which FLOP per byte of a level on work reaches the compute roof of a precision; None without both."""
        memory, compute = self.roof("memory", level), self.roof("compute", precision)
        return None if memory is None or compute is None else compute / memory


class NodeKind(StrEnum):
    """What a frame of a merged stack tree stands for."""

    ROOT = "root"
    PROCESS = "process"
    THREAD = "thread"
    RUNNING = "running"
    """A state, as the next two are."""
    QUEUED = "queued"
    WAITING = "waiting"
    FRAME = "frame"
    """A function, of which no more is known."""
    PYTHON = "python"
    KERNEL = "kernel"
    """A function of the operating system's kernel; in trees of warp stalls a kernel of the GPU."""
    REASON = "reason"
    """What warps wait for."""
    NARROWER = "narrower"
    """Those together that are too narrow to be drawn."""

    __hash__ = str.__hash__  # frames are told apart by it, thousands a second


@frozen
class StackNode:
    """A frame of a merged stack tree: `total` of it and all below, `own` of it alone."""

    name: str
    kind: NodeKind
    total: float
    own: float
    children: tuple[StackNode, ...] = ()


@frozen
class StackTree:
    """Merged stacks; `unit` says what the width of a frame means."""

    root: StackNode
    unit: str
    why_not: Unknown | None = None


class LaneKind(StrEnum):
    """What a lane is of, where a verdict may rest on it."""

    BUSY = "GPU busy"
    DRAM = "DRAM"
    TENSOR = "tensor"
    TOKENS = "tokens"
    WAITING = "waiting"
    KV_CACHE = "KV cache"
    ENGINE_CPU = "engine CPU"
    ENGINE_RUN_QUEUE = "engine run-q"
    ENGINE_SLEEP = "longest sleep of the engine"
    CUDA_SYNC = "CUDA sync"
    LAUNCHES = "launches"
    GIL_WAITS = "GIL waits"


@frozen
class LaneLimit:
    """A level that the values of a lane are not to pass: "p99 500 ms"."""

    value: float
    title: str


@frozen
class Lane:
    """One line of the CPU-GPU picture: (t_ns, value or None) samples on the common axis, or why there are none.

    Attributes:
        low, high: The scale; `high` None takes the largest value in the window.
        rank: What stays where there is no room for all: lanes of the lowest.
        limits: Levels that are not to be passed, the lowest first.
    """

    title: str
    unit: str
    source: str
    samples: tuple[tuple[int, float | None], ...]
    low: float = 0.0
    high: float | None = None
    why_not: Unknown | None = None
    rank: int = 99
    kind: LaneKind | None = None
    limits: tuple[LaneLimit, ...] = ()


@frozen
class LaneMark:
    """A moment marked over all lanes."""

    t_ns: int
    text: str
    severity: str


@frozen
class Lanes:
    """Series on one time axis."""

    start_ns: int
    end_ns: int
    lanes: tuple[Lane, ...]
    marks: tuple[LaneMark, ...] = ()


@frozen
class HeatColumn:
    """What was seen of a latency in one stretch of time.

    Attributes:
        rates: Events a second of observation, by row of the heatmap.
        p50, p99: Between what they lie of the column's events, in the heatmap's unit; None without events.
    """

    rates: tuple[float, ...]
    p50: Quantile | None = None
    p99: Quantile | None = None


@frozen
class Heatmap:
    """A latency over time: columns of equal length, rows by duration.

    Attributes:
        unit: Of `uppers` and of the quantiles: "ns".
        start_ns, step_ns: Column i is [start_ns + i * step_ns, start_ns + (i + 1) * step_ns).
        uppers: The longest duration of each row, ascending; inf where a row has no upper bound.
        columns: None where nobody looked, which is not the same as a column without events.
        seen_ns: Columns that end by then are final.
    """

    title: str
    unit: str
    source: str
    start_ns: int
    step_ns: int
    uppers: tuple[float, ...]
    columns: tuple[HeatColumn | None, ...]
    seen_ns: int
