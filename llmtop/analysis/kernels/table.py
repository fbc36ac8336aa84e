"""The kernels of a report, analysed: facts of each launch, groups, the table, the roofline, the stall bars.

Facts are read from the report when they are asked for and kept, so that a table of thousands of launches shows its
first rows without decoding the rest. What decodes more says so.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import islice

from llmtop import whats
from llmtop.analysis.commands.profiling import is_of_amd
from llmtop.analysis.gpus.models import GpuModel, find_gpu
from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.absent import no_kernels
from llmtop.analysis.kernels.bounds import LEANS, Bound, Verdict, bound_by_traffic, kernel_bound, lean
from llmtop.analysis.kernels.conditions import looks_like_condition
from llmtop.analysis.kernels.counters import Counters, first, number, quotient
from llmtop.analysis.kernels.family import KernelKind, kernel_kind
from llmtop.analysis.kernels.half import computing_half
from llmtop.analysis.kernels.launch_times import LaunchTimes, launch_times
from llmtop.analysis.kernels.names import short_names
from llmtop.analysis.kernels.nvtx_ranges import Path, launch_ranges, launches_in, merged_ranges
from llmtop.analysis.kernels.roofline import KernelRoofline, has_fused_half, kernel_roofline
from llmtop.analysis.kernels.shown import SECTIONS, not_shown
from llmtop.analysis.kernels.stalls import StallBar, Stalls, kernel_stalls, stall_bar
from llmtop.analysis.kernels.stalls import stall_tree as _stall_tree
from llmtop.analysis.kernels.traffic import Traffic, dram_traffic
from llmtop.analysis.tables import SORTED_AT_ONCE, places_by
from llmtop.analysis.views import Cell, Column, Refusal, Roof, RooflinePoint, RooflineView, StackTree
from llmtop.columns import alike, chosen, places_of, total
from llmtop.frozen import frozen
from llmtop.model import KernelTable, Missing, Origin, Trace, Unknown, What
from llmtop.units import percent

Dim3 = tuple[int, int, int]


class Grouping(StrEnum):
    """What one row of a kernel table stands for."""

    LAUNCH = "launch"
    SHAPE = "shape"
    """All launches of one kernel with one grid and block."""
    NAME = "name"
    RANGE = "range"
    """All launches within NVTX ranges of the same names, but for numbers and addresses in them."""
    EACH_RANGE = "each-range"
    """All launches within NVTX ranges of exactly the same names."""


@frozen
class KernelFacts:
    """What a report says about one launch; each part stands alone.

    Attributes:
        roof_fraction: See `KernelRoofline.fraction`; 0 to 1.
        occupancy: Achieved, % of the warps an SM can hold.
        waves: Grid over what fits on the GPU at once.
        l1_hits, l2_hits: Hit rates of the caches, %.
        shared_memory: Bytes a block, static and dynamic.
    """

    bound: Verdict | Unknown
    roofline: KernelRoofline | Unknown
    roof_fraction: float | Unknown
    occupancy: float | Unknown
    registers: int | Unknown
    waves: float | Unknown
    stalls: Stalls | Unknown
    traffic: Traffic | Unknown
    l1_hits: float | Unknown
    l2_hits: float | Unknown
    shared_memory: float | Unknown

    @property
    def bound_name(self) -> Bound:
        """The bound, "unknown" where there is no verdict."""
        return Bound.UNKNOWN if isinstance(self.bound, Unknown) else self.bound.bound

    @property
    def class_name(self) -> Bound:
        """The DeepSeek-OCR study's class, "unknown" where compute or DRAM throughput is."""
        if isinstance(self.bound, Unknown) or self.bound.compute is None:
            return Bound.UNKNOWN
        if self.bound.dram is not None:
            return self.bound.leaning
        fraction = None if isinstance(self.traffic, Unknown) else self.traffic.fraction
        return Bound.UNKNOWN if fraction is None else lean(self.bound.compute, 100 * fraction)

    @property
    def missing(self) -> tuple[Missing, ...]:
        """What is not known, with the section that would bring it."""
        parts = ((what, getattr(self, name)) for what, name in _FACTS.items())
        return tuple(Missing(what, part) for what, part in parts if isinstance(part, Unknown))


_FACTS: Mapping[What, str] = {
    whats.BOUND: "bound",
    whats.ROOFLINE: "roof_fraction",
    whats.OCCUPANCY: "occupancy",
    whats.REGISTERS: "registers",
    whats.WAVES: "waves",
    whats.STALLS: "stalls",
    whats.DRAM_TRAFFIC: "traffic",
    whats.L1_HIT_RATE: "l1_hits",
    whats.L2_HIT_RATE: "l2_hits",
}
"""What the parts are called where they are missing."""


def kernel_facts(
    metrics: Counters, duration_ns: float | None = None, gpu: str = "", half: float | None = None
) -> KernelFacts:
    """Analyse the counters of one launch.

    Args:
        metrics: Its counters.
        duration_ns: As the capture has it; None where it is not known.
        gpu: Its name, for the published peaks where the report holds none.
        half: See `kernel_roofline`.
    """
    roofline = kernel_roofline(metrics, half=half)
    registers = number(metrics, c.REGISTERS)
    board = find_gpu(gpu)
    traffic = dram_traffic(metrics, duration_ns or first(metrics, c.DURATION), board)
    bound = _bound_of(metrics, traffic, board)
    return KernelFacts(
        bound=bound,
        roofline=roofline,
        roof_fraction=_roof_of_traffic(bound, traffic) or _roof_fraction(roofline),
        occupancy=_or(number(metrics, c.OCCUPANCY_PERCENT), c.not_collected("occupancy", c.OCCUPANCY)),
        registers=c.not_collected("registers", c.LAUNCH) if registers is None else int(registers),
        waves=_or(number(metrics, c.WAVES), c.not_collected("waves", c.LAUNCH)),
        stalls=kernel_stalls(metrics),
        traffic=traffic,
        l1_hits=_hit_rate(number(metrics, c.L1_HIT_PERCENT), "L1 hit rate"),
        l2_hits=_hit_rate(number(metrics, c.L2_HIT_PERCENT), "L2 hit rate"),
        shared_memory=_or(number(metrics, c.SHARED_MEMORY), c.not_collected("shared memory", c.LAUNCH)),
    )


def _as_shown(known: KernelFacts, trace: Trace, launch: int) -> KernelFacts:
    """With another reason for what was collected, where all that one has is a page without it."""
    hidden = {one.what: why for one in known.missing if (why := not_shown(trace, launch, SECTIONS[one.what]))}
    roofline = known.roofline
    if (why := hidden.get(whats.ROOFLINE)) and isinstance(roofline, KernelRoofline):
        roofline = replace(roofline, refusals=tuple(replace(one, why=why) for one in roofline.refusals))
    unknown = {_FACTS[what]: why for what, why in hidden.items()}
    return replace(known, roofline=roofline, **unknown) if hidden else known


def _bound_of(metrics: Counters, traffic: Traffic | Unknown, board: GpuModel | Unknown) -> Verdict | Unknown:
    verdict = kernel_bound(metrics)
    fraction = None if isinstance(traffic, Unknown) else traffic.fraction
    if isinstance(verdict, Verdict) or fraction is None:
        return verdict
    occupied = quotient(number(metrics, c.GRID_SIZE), sm_count(metrics, board))
    return bound_by_traffic(100 * fraction, None if occupied is None else 100 * min(1.0, occupied)) or verdict


def _roof_of_traffic(bound: Verdict | Unknown, traffic: Traffic | Unknown) -> float | None:
    """Of a kernel that DRAM alone shows to be at its limit: the roof is DRAM's, whatever it computes."""
    is_at_dram = isinstance(bound, Verdict) and bound.bound is Bound.MEMORY and bound.compute is None
    return traffic.fraction if is_at_dram and isinstance(traffic, Traffic) else None


def sm_count(metrics: Counters, board: GpuModel | Unknown) -> float | None:
    """Streaming multiprocessors of the GPU; None where neither the report nor the table of GPUs says."""
    counted = first(metrics, c.SM_COUNT)
    return counted or (None if isinstance(board, Unknown) else float(board.sm) or None)


_NOISY_PERCENT = 101.0
"""A rate above all by less is a rounding of passes that differ."""


def _hit_rate(percents: float | None, what: str) -> float | Unknown:
    """Hits and lookups come from different passes: of hardly any traffic the one can be more than the other."""
    if percents is not None and percents > _NOISY_PERCENT:
        return Unknown(f"{what} of {percent(percents)}: hits and lookups are of different passes and do not fit")
    return _or(percents, c.not_collected(what, c.MEMORY))


def _or(value: float | None, why: Unknown) -> float | Unknown:
    return why if value is None else value


def _roof_fraction(roofline: KernelRoofline) -> float | Unknown:
    if (fraction := roofline.fraction) is not None:
        return fraction
    return roofline.refusals[0].why if roofline.refusals else c.not_collected("DRAM bytes", c.ROOFLINE)


NO_COUNTERS = Unknown("a timeline has no counters", "profile it with ncu: the command stands under Not in this capture")
"""The facts of a launch in a capture that has only times."""
_REMEDY_OF_AMD = "rocprof-compute counts them: the command stands under Not in this capture"


FAILED = Unknown(
    "the launch failed, or the profiler's replay of it: it has a grid or block of 0, and nothing was measured of it"
)
_OF_FAILED = KernelFacts(*[FAILED] * len(fields(KernelFacts)))


def _column(values: array[int], i: int) -> int | None:
    """What a column of the kernel table tells of launch i, if it has one."""
    return values[i] if i < len(values) and values[i] >= 0 else None


@frozen
class Row:
    """One or more launches that a table shows as one; times in ns, NaN when none of them has one."""

    launches: Sequence[int]
    total_ns: float
    mean_ns: float
    min_ns: float
    max_ns: float

    @property
    def calls(self) -> int:
        """How many launches."""
        return len(self.launches)


class Kernels:
    """The kernels of one trace, with what was found out about them so far."""

    def __init__(self, table: KernelTable, trace: Trace) -> None:
        self.table = table
        self.trace = trace
        self.gpu = trace.origin.gpu
        self._facts: dict[int, KernelFacts] = {}
        self._groups: dict[Grouping, tuple[Row, ...]] = {}
        self._middles: dict[tuple[int, int, float], int] = {}

    @cached_property
    def short_names(self) -> tuple[str, ...]:
        """By name id; different where the names are, and what the user calls them where they have."""
        return short_names(self.table.names, self.table.functions, self.trace.notes.names)

    @cached_property
    def ranges(self) -> Sequence[Path]:
        """The NVTX ranges of each launch; looks at all of them."""
        return launch_ranges(self.trace)

    @cached_property
    def merged_ranges(self) -> Sequence[Path]:
        """The same without numbers and addresses in their names."""
        return merged_ranges(self.trace)

    @cached_property
    def launch_times(self) -> LaunchTimes:
        """How long each launch took to begin; looks at all of them."""
        return launch_times(self.trace)

    @cached_property
    def total_ns(self) -> float:
        """The time of all launches that have one; kernels that ran side by side count twice."""
        return total(self.table.duration_ns)

    def launched(self, row: Row) -> tuple[float | Unknown, float | Unknown] | None:
        """Median launch latency and queue time of a row's launches, in ns; None of a report without a timeline."""
        if self.table.details is not None:
            return None
        times = self.launch_times
        return times.median_latency(row.launches), times.median_queue(row.launches)

    def short_name(self, i: int) -> str:
        """What to call launch i."""
        return self.short_names[self.table.name_id[i]]

    def kind(self, i: int) -> KernelKind:
        """What the name of launch i says that it computes."""
        return kernel_kind(self.table.name(i))

    def row_name(self, row: Row) -> str:
        """What to call the launches of one name, grid and block: with the grid where others share the name."""
        return self._row_names.get(row.launches[0]) or self.short_name(row.launches[0])

    @cached_property
    def _row_names(self) -> Mapping[int, str]:
        """By first launch, of names that have several shapes."""
        by_name: dict[int, list[int]] = {}
        for row in self.groups(Grouping.SHAPE):
            by_name.setdefault(self.table.name_id[row.launches[0]], []).append(row.launches[0])
        return {i: self._with_shape(i, alike) for alike in by_name.values() if len(alike) > 1 for i in alike}

    def _with_shape(self, i: int, alike: Sequence[int]) -> str:
        grid = self.grid(i)
        block = f" of {dimensions(self.block(i))}" if [self.grid(one) for one in alike].count(grid) > 1 else ""
        shape = "failed" if self.has_failed(i) else f"{dimensions(grid)}{block}"
        return f"{self.short_name(i)} [{shape}]"

    def grid(self, i: int) -> Dim3:
        """Blocks of launch i in x, y, z."""
        x, y, z = self.table.grid
        return x[i], y[i], z[i]

    def block(self, i: int) -> Dim3:
        """Threads of a block of launch i in x, y, z."""
        x, y, z = self.table.block
        return x[i], y[i], z[i]

    def share(self, ns: float) -> float | None:
        """A time as a share of all kernels' time, 0 to 1."""
        return ns / self.total_ns if ns == ns and self.total_ns > 0 else None

    @cached_property
    def no_counters(self) -> Unknown:
        """Why those of a timeline are not known."""
        return replace(NO_COUNTERS, remedy=_REMEDY_OF_AMD) if is_of_amd(self.trace) else NO_COUNTERS

    def has_failed(self, i: int) -> bool:
        """Whether launch i never ran: no GPU takes a grid or a block without an element."""
        return 0 in (*self.grid(i), *self.block(i))

    @property
    def failed(self) -> list[int]:
        """The launches that never ran."""
        sizes = (*self.table.grid, *self.table.block)
        return sorted({i for column in sizes for i in places_of(column, 0)})

    def facts(self, i: int) -> KernelFacts:
        """What the report says about launch i; decoded at the first call."""
        if self.has_failed(i):
            return _OF_FAILED
        if self.table.details is None:
            registers, shared = _column(self.table.registers, i), _column(self.table.shared_bytes, i)
            why = self.no_counters
            unknown = KernelFacts(*[why] * len(fields(KernelFacts)))
            return replace(unknown, registers=registers or why, shared_memory=_or(shared, why))
        if i not in self._facts:
            ns = self.table.duration_ns[i]
            metrics = self.table.details.metrics(i)
            half = computing_half(self.table, i) if has_fused_half(metrics) else None
            known = kernel_facts(metrics, ns if ns == ns else None, self.gpu, half)
            self._facts[i] = _as_shown(known, self.trace, i)
        return self._facts[i]

    def metrics(self, i: int) -> Counters:
        """All counters of launch i; none in a capture that has only times."""
        return {} if self.table.details is None else self.table.details.metrics(i)

    def unit(self, metric: str) -> str:
        """The unit of a counter."""
        return "" if self.table.details is None else self.table.details.unit(metric)

    def launch(self, i: int) -> Row:
        """Launch i as a row of its own."""
        ns = self.table.duration_ns[i]
        return Row((i,), ns, ns, ns, ns)

    def middle(self, row: Row) -> int:
        """The launch that stands for a row: of its launches by duration, the one at which half of its time is reached.

        So neither many short calls nor one outlier speaks for where the time goes.
        """
        key = row.launches[0], row.calls, row.total_ns
        if key not in self._middles:
            self._middles[key] = self._middle(row)
        return self._middles[key]

    def _middle(self, row: Row) -> int:
        durations, reached = chosen(self.table.duration_ns, row.launches), 0.0
        for place, ns in enumerate(durations):
            reached += ns
            if reached >= row.total_ns / 2:
                alike = (i for i in row.launches if self.table.duration_ns[i] == ns)
                return next(islice(alike, place - bisect_left(durations, ns), None))
        return row.launches[0]

    def groups(self, grouping: Grouping = Grouping.SHAPE) -> tuple[Row, ...]:
        """Rows of launches that belong together, the longest in total first. Decodes nothing."""
        if grouping not in self._groups:
            self._groups[grouping] = tuple(_grouped(self, grouping))
        return self._groups[grouping]

    def standing(self, name: str = "") -> tuple[int, ...]:
        """Of each kernel the launch that stands for it, the kernel with the most time first.

        Args:
            name: A part of the kernel's name, in any case; empty for all.
        """
        wanted, launches = name.casefold(), map(self.middle, self.groups())
        return tuple(
            i for i in launches if wanted in self.table.name(i).casefold() or wanted in self.short_name(i).casefold()
        )

    def place(self, launch: int) -> int:
        """Which of all `standing` stands for a launch."""
        return next(i for i, row in enumerate(self.groups()) if launch in row.launches)


def _grouped(kernels: Kernels, grouping: Grouping) -> list[Row]:
    table = kernels.table
    if grouping is Grouping.LAUNCH:
        rows = [Row((i,), ns, ns, ns, ns) for i, ns in enumerate(table.duration_ns)]
    else:
        rows = [row_of(table, launches) for launches in _members(kernels, grouping)]
    return _ranked(rows)


def _ranked(rows: Iterable[Row]) -> list[Row]:
    """The longest in total first, those without a time last."""
    return sorted(rows, key=lambda row: -row.total_ns if row.total_ns == row.total_ns else math.inf)


def _members(kernels: Kernels, grouping: Grouping) -> Iterable[array[int]]:
    """The launches of each group, in capture order."""
    table = kernels.table
    if grouping in (Grouping.RANGE, Grouping.EACH_RANGE):
        by_path: dict[Path, array[int]] = {}
        for i, path in enumerate(kernels.merged_ranges if grouping is Grouping.RANGE else kernels.ranges):
            by_path.setdefault(path, array("q")).append(i)
        return by_path.values()
    return alike([table.name_id] if grouping is Grouping.NAME else [table.name_id, *table.grid, *table.block])


def row_of(table: KernelTable, launches: array[int]) -> Row:
    """Some launches as one row."""
    known = chosen(table.duration_ns, launches)
    if not known:
        return Row(launches, math.nan, math.nan, math.nan, math.nan)
    total = math.fsum(known)
    return Row(launches, total, total / len(known), known[0], known[-1])


_NONE: array[int] = array("q")
_EMPTY = KernelTable((), (), _NONE, (_NONE,) * 3, (_NONE,) * 3, _NONE, array("d"), _NONE, _NONE)
_NO_KERNELS = Kernels(_EMPTY, Trace(Origin("none")))


def kernels_of(trace: Trace) -> Kernels:
    """The kernels of a trace; the same object, with all it has found out, for the same trace."""
    return _NO_KERNELS if trace.kernels is None else _kernels(trace)


@lru_cache(maxsize=8)
def _kernels(trace: Trace) -> Kernels:
    """One for each report that is open; a trace is equal only to itself."""
    return Kernels(trace.kernels or _EMPTY, trace)


def has_counters(trace: Trace) -> bool:
    """Whether the capture tells more of its kernels than when they ran."""
    return trace.kernels is not None and trace.kernels.details is not None


@frozen
class ColumnField:
    """A column with how its cells are made."""

    column: Column
    cell: Callable[[Kernels, Row], Cell]


def _name(kernels: Kernels, row: Row) -> Cell:
    return kernels.short_name(row.launches[0])


def _latency(kernels: Kernels, row: Row) -> Cell:
    return kernels.launch_times.median_latency(row.launches)


def _queue(kernels: Kernels, row: Row) -> Cell:
    return kernels.launch_times.median_queue(row.launches)


def _shaped_name(kernels: Kernels, row: Row) -> Cell:
    return kernels.row_name(row)


def _range(kernels: Kernels, row: Row) -> Cell:
    return _nested(kernels.ranges[row.launches[0]])


def _merged_range(kernels: Kernels, row: Row) -> Cell:
    return _nested(kernels.merged_ranges[row.launches[0]])


def _nested(path: Path) -> str:
    return " > ".join(path) or "(in no range)"


def _number(kernels: Kernels, row: Row) -> Cell:
    return row.launches[0]


def _share(kernels: Kernels, row: Row) -> Cell:
    share = kernels.share(row.total_ns)
    return _NO_TIME if share is None else 100 * share


def _calls(kernels: Kernels, row: Row) -> Cell:
    return row.calls


def _total(kernels: Kernels, row: Row) -> Cell:
    return _time(kernels, row, row.total_ns)


def _mean(kernels: Kernels, row: Row) -> Cell:
    return _time(kernels, row, row.mean_ns)


def _shortest(kernels: Kernels, row: Row) -> Cell:
    return _time(kernels, row, row.min_ns)


def _longest(kernels: Kernels, row: Row) -> Cell:
    return _time(kernels, row, row.max_ns)


def _time(kernels: Kernels, row: Row, ns: float) -> Cell:
    return ns if ns == ns else FAILED if kernels.has_failed(row.launches[0]) else _NO_TIME


_NO_TIME = c.not_collected("duration", c.SPEED_OF_LIGHT)


def _facts(kernels: Kernels, row: Row) -> KernelFacts:
    return kernels.facts(kernels.middle(row))


def _bound(kernels: Kernels, row: Row) -> Cell:
    bound = _facts(kernels, row).bound
    return bound if isinstance(bound, Unknown) else str(bound.bound)


def _roofline(kernels: Kernels, row: Row) -> Cell:
    fraction = _facts(kernels, row).roof_fraction
    return fraction if isinstance(fraction, Unknown) else 100 * fraction


def _occupancy(kernels: Kernels, row: Row) -> Cell:
    return _facts(kernels, row).occupancy


def _traffic_cell(kernels: Kernels, row: Row) -> Cell:
    traffic = _facts(kernels, row).traffic
    return traffic if isinstance(traffic, Unknown) else traffic.bytes_per_s


def _traffic_share(kernels: Kernels, row: Row) -> Cell:
    traffic = _facts(kernels, row).traffic
    if isinstance(traffic, Unknown):
        return traffic
    return _NO_PEAK if traffic.fraction is None else 100 * traffic.fraction


_NO_PEAK = Unknown("no published DRAM peak of this GPU", "")


def _l1_hits(kernels: Kernels, row: Row) -> Cell:
    return _facts(kernels, row).l1_hits


def _l2_hits(kernels: Kernels, row: Row) -> Cell:
    return _facts(kernels, row).l2_hits


def _waves(kernels: Kernels, row: Row) -> Cell:
    return _facts(kernels, row).waves


def _class(kernels: Kernels, row: Row) -> Cell:
    name = _facts(kernels, row).class_name
    return LEANS.get(name, c.not_collected("SM or DRAM throughput", c.SPEED_OF_LIGHT))


def _family(kernels: Kernels, row: Row) -> Cell:
    return str(kernels.kind(row.launches[0]).family)


def _registers(kernels: Kernels, row: Row) -> Cell:
    return _facts(kernels, row).registers


def _shared(kernels: Kernels, row: Row) -> Cell:
    return _facts(kernels, row).shared_memory


def _top_stall(kernels: Kernels, row: Row) -> Cell:
    stalls = _facts(kernels, row).stalls
    if isinstance(stalls, Unknown):
        return stalls
    reason, share = stalls.top
    return f"{reason} {percent(100 * share)}"


def _grid(kernels: Kernels, row: Row) -> Cell:
    return FAILED if kernels.has_failed(row.launches[0]) else _told(kernels.grid(row.launches[0]))


def _block(kernels: Kernels, row: Row) -> Cell:
    return FAILED if kernels.has_failed(row.launches[0]) else _told(kernels.block(row.launches[0]))


SIZE_NOT_TOLD = Unknown("the capture does not tell with which grid and block it was launched")
"""Of tracers of AMD's GPUs, for what was not launched by the runtime: -1 in the table."""


def _told(size: Dim3) -> Cell:
    return SIZE_NOT_TOLD if min(size) < 0 else dimensions(size)


def dimensions(size: Dim3) -> str:
    """A grid or a block.

    >>> dimensions((64, 1, 1)), dimensions((32, 8, 1)), dimensions((-1, -1, -1))
    ('64', '32x8', 'unknown')
    """
    if min(size) < 0:
        return "unknown"
    x, y, z = size
    return f"{x}x{y}x{z}" if z != 1 else f"{x}x{y}" if y != 1 else str(x)


_NAME = ColumnField(
    Column("name", "kernel", width=0, shrink=0, help="short name: what tells it from the others stays"), _name
)
_SHAPED_NAME = ColumnField(
    Column("name", "kernel", width=0, shrink=0, help="short name; [grid] where kernels differ by that alone"),
    _shaped_name,
)
_EACH_RANGE = ColumnField(Column("range", "range", width=0, shrink=0, help="the ranges open at the launch"), _range)
_RANGE = ColumnField(replace(_EACH_RANGE.column, help="the ranges open at the launch; # is any number"), _merged_range)
_IN_RANGE = ColumnField(Column("range", "range", "", 20, 18, "the ranges open at the launch"), _range)
_SHARE = ColumnField(Column("share", "time", "%", 6, 1, "share of the time of all kernels"), _share)
_CALLS = ColumnField(Column("calls", "calls", "1", 6, 3, "launches in this row"), _calls)
_DURATION = ColumnField(Column("duration", "duration", "ns", 8, 2, "time on the GPU, all calls together"), _total)
_STATISTICS = (
    ColumnField(Column("mean", "mean", "ns", 8, 8, "of the calls"), _mean),
    ColumnField(Column("min", "min", "ns", 8, 10, "of the calls"), _shortest),
    ColumnField(Column("max", "max", "ns", 8, 9, "of the calls"), _longest),
)
_JUDGED = (
    ColumnField(
        Column("bound", "bound", "", 8, 2, "latency: compute and memory both below 60 % of peak; else which leads"),
        _bound,
    ),
    ColumnField(
        Column(
            "roofline",
            "roof",
            "%",
            6,
            3,
            "of the roofline; without FLOPs, of the DRAM peak; of one call",
        ),
        _roofline,
    ),
    ColumnField(Column("occupancy", "occ", "%", 6, 4, "achieved: warps held of those an SM can hold"), _occupancy),
    ColumnField(
        Column("stall", "top stall", "", 22, 5, "what warps wait for most, and its share of the waiting"), _top_stall
    ),
)
_MEMORY = (
    ColumnField(
        Column("dram", "DRAM", "bytes/s", 9, 11, "bytes to and from DRAM a second, of one call"),
        _traffic_cell,
    ),
    ColumnField(Column("dram_share", "DRAM %", "%", 6, 12, "of the DRAM peak"), _traffic_share),
    ColumnField(Column("l1", "L1 hit", "%", 6, 14, "share of sectors found in L1"), _l1_hits),
    ColumnField(Column("l2", "L2 hit", "%", 6, 13, "share of sectors found in L2"), _l2_hits),
    ColumnField(Column("waves", "waves", "1", 6, 15, "blocks of the grid over what fits on the GPU at once"), _waves),
    ColumnField(
        Column("class", "leans to", "", 8, 16, "SM % less DRAM %: above 5 SM, below -5 DRAM; no bound"), _class
    ),
)
_FAMILY = ColumnField(Column("family", "kind", "", 18, 17, "what the kernel computes, by its name"), _family)
_REGISTERS = ColumnField(Column("registers", "regs", "1", 5, 10, "registers a thread"), _registers)
_SHARED = ColumnField(
    Column("shared", "shared", "bytes", 9, 10, "shared memory of a block, static and dynamic"), _shared
)
_SHAPE = (
    ColumnField(Column("grid", "grid", "", 12, 7, "blocks"), _grid),
    ColumnField(Column("block", "block", "", 9, 6, "threads of a block"), _block),
)
_LAUNCHED = (
    ColumnField(
        Column("latency", "latency", "ns", 8, 10, "median from the start of its launch call to its own"), _latency
    ),
    ColumnField(
        Column("queue", "queued", "ns", 8, 11, "median from the end of its launch call, if it began later"), _queue
    ),
)
_ORDER = ColumnField(Column("launch", "#", "1", 6, 6, "order of capture"), _number)

_SHAPED = (*_SHAPE, _REGISTERS, _SHARED)
_HELD = frozenset(field.column.key for field in (_NAME, _SHARE, _CALLS, _DURATION, *_STATISTICS, *_SHAPE, _ORDER))
"""What no counter is decoded for, and no range looked up."""
_COUNTED = {
    Grouping.LAUNCH: (_NAME, _SHARE, _DURATION, *_JUDGED, *_SHAPED, _ORDER, *_MEMORY, _FAMILY, _IN_RANGE),
    Grouping.SHAPE: (_SHAPED_NAME, _SHARE, _CALLS, _DURATION, *_JUDGED, *_SHAPED, *_STATISTICS, *_MEMORY, _FAMILY),
    Grouping.NAME: (_NAME, _SHARE, _CALLS, _DURATION, *_JUDGED, *_STATISTICS, *_MEMORY, _FAMILY),
    Grouping.RANGE: (_RANGE, _SHARE, _CALLS, _DURATION, *_STATISTICS),
    Grouping.EACH_RANGE: (_EACH_RANGE, _SHARE, _CALLS, _DURATION, *_STATISTICS),
}
_ANYWHERE = (*_COUNTED[Grouping.SHAPE], *_COUNTED[Grouping.LAUNCH], *_LAUNCHED)
"""What conditions may ask of rows that have no such column."""
_TIMED = {
    Grouping.LAUNCH: (_NAME, _SHARE, _DURATION, *_SHAPED, _ORDER, _FAMILY, *_LAUNCHED, _IN_RANGE),
    Grouping.SHAPE: (_SHAPED_NAME, _SHARE, _CALLS, _DURATION, *_STATISTICS, *_SHAPED, _FAMILY, *_LAUNCHED),
    Grouping.NAME: (_NAME, _SHARE, _CALLS, _DURATION, *_STATISTICS, _FAMILY, *_LAUNCHED),
    Grouping.RANGE: _COUNTED[Grouping.RANGE],
    Grouping.EACH_RANGE: _COUNTED[Grouping.EACH_RANGE],
}
"""Of a timeline, which has no counters: columns of dashes would take the room of what is known."""


@frozen
class Totals:
    """Sums over rows of a kernel table.

    Attributes:
        total_ns: Of the launches that have a time.
        share: Of all kernels' time, 0 to 1; None without times.
    """

    rows: int
    launches: int
    total_ns: float
    share: float | None


@frozen
class KernelRows:
    """The kernel table: an implementation of `views.TableView` whose cells are made when they are seen.

    Attributes:
        is_shape_shown: Whether grid and block stand in columns of their own, so that names can go without.
        more: Columns that stand behind the duration.
        refused: Why the filter that made these rows could not be read.
        undecided: Of how many rows nobody can say whether its condition holds, and why.
    """

    kernels: Kernels
    grouping: Grouping
    rows: Sequence[Row]
    is_shape_shown: bool = False
    more: tuple[ColumnField, ...] = ()
    refused: Unknown | None = None
    undecided: Unknown | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, left to right."""
        return tuple(field.column for field in self._fields)

    @property
    def _fields(self) -> tuple[ColumnField, ...]:
        fields = (_TIMED if self.kernels.table.details is None else _COUNTED)[self.grouping]
        if self.more:
            behind = fields.index(_DURATION) + 1
            fields = (*fields[:behind], *self.more, *fields[behind:])
        return (_NAME, *fields[1:]) if self.is_shape_shown and self.grouping is Grouping.SHAPE else fields

    @property
    def askable(self) -> tuple[ColumnField, ...]:
        """What conditions may ask: the columns of these rows, and those of any other rows of kernels."""
        return (*self._fields, *_ANYWHERE)

    def beside(self, columns: Collection[str]) -> KernelRows:
        """The same rows beside these columns, by their keys: a name says again what no column that is shown does."""
        return replace(self, is_shape_shown={"grid", "block"} <= set(columns))

    def __len__(self) -> int:
        return len(self.rows)

    def cells(self, row: int) -> Sequence[Cell]:
        """One cell per column; decodes the counters of one launch."""
        return [field.cell(self.kernels, self.rows[row]) for field in self._fields]

    def key(self, row: int) -> object:
        """The row's first launch: groups never share one."""
        return self.rows[row].launches[0]

    def launch(self, row: int) -> int:
        """The launch that the row's metrics come from, for views of one kernel."""
        return self.kernels.middle(self.rows[row])

    def sorted_by(self, column: str, *, descending: bool) -> KernelRows:
        """The same rows in another order, unknown values last.

        A column that needs counters (bound, roofline, occupancy, stall, registers) decodes one launch of every row.
        """
        cell = next(field.cell for field in self._fields if field.column.key == column)
        places = places_by([cell(self.kernels, row) for row in self.rows], descending=descending)
        return replace(self, rows=[self.rows[i] for i in places])

    def sorts_at_once(self, column: str) -> bool:
        """Whether it is a column of times and sizes, which the table of launches has."""
        return column in _HELD and len(self) <= SORTED_AT_ONCE

    def filters_at_once(self, text: str) -> bool:
        """Whether names tell, of few rows: a range goes through all launches, a condition decodes one of each row."""
        is_of_names = not text.casefold().startswith(_BY_RANGE) and not looks_like_condition(text)
        return len(self) <= SORTED_AT_ONCE and is_of_names

    def filtered(self, text: str) -> KernelRows:
        """Rows whose short name (with the grid behind it), full name or kind contains `text`, ignoring case.

        Of rows by range, those named so. "nvtx:decode" leaves the launches in a range of that name, in any grouping;
        a condition (docs/filters.md) the rows for which it holds.
        """
        wanted = text.casefold()
        if wanted.startswith(_BY_RANGE):
            return self._within(text[len(_BY_RANGE) :])
        if looks_like_condition(text):
            return self._where(text)
        if self.grouping in (Grouping.RANGE, Grouping.EACH_RANGE):
            name = self._fields[0].cell
            return replace(self, rows=[row for row in self.rows if wanted in str(name(self.kernels, row)).casefold()])
        both = zip(self.kernels.table.names, self.kernels.short_names, strict=True)
        ids = {i for i, (name, short) in enumerate(both) if wanted in f"{name}\n{short}".casefold()}
        name_id = self.kernels.table.name_id
        return replace(
            self, rows=[row for row in self.rows if name_id[row.launches[0]] in ids or wanted in self._text(row)]
        )

    def why_none(self) -> Unknown | None:
        """What is wrong with the condition that was asked for, or of which rows it cannot be told."""
        return self.refused or (None if self.rows else self.undecided)

    def _where(self, condition: str) -> KernelRows:
        # Imported here: few tables are asked for more than names.
        from llmtop.analysis.kernels.where import rows_where

        found = rows_where(self.kernels, self.rows, self.askable, condition, "rows")
        if isinstance(found, Unknown):
            return replace(self, rows=[], refused=found)
        return replace(self, rows=found.rows, undecided=found.undecided)

    def _text(self, row: Row) -> str:
        """What else a row is found by."""
        shape = self.kernels.row_name(row) if self.grouping is Grouping.SHAPE else ""
        return f"{shape}\n{self.kernels.kind(row.launches[0]).family}".casefold()

    def totals(self) -> Totals:
        """All rows together."""
        known = [row.total_ns for row in self.rows if row.total_ns == row.total_ns]
        total = math.fsum(known)
        return Totals(len(self.rows), sum(row.calls for row in self.rows), total, self.kernels.share(total))

    def _within(self, name: str) -> KernelRows:
        chosen = set(launches_in(self.kernels.trace, name)) if name.strip() else set(range(len(self.kernels.table)))
        parts = [array("q", (i for i in row.launches if i in chosen)) for row in self.rows]
        return replace(self, rows=_ranked(row_of(self.kernels.table, launches) for launches in parts if launches))


_BY_RANGE = "nvtx:"


def kernel_table(trace: Trace, grouped: Grouping | str = Grouping.LAUNCH) -> KernelRows:
    """The kernels of a trace, the longest first.

    Args:
        trace: Any trace; without kernels the table is empty, and `no_kernels` says why.
        grouped: A row for each "launch", for each "shape" (name, grid and block), or for each "name".
    """
    kernels = kernels_of(trace)
    grouping = Grouping(grouped)
    return KernelRows(kernels, grouping, kernels.groups(grouping))


def roofline_view(trace: Trace, launch: int | None = None) -> RooflineView:
    """All kernels on the DRAM roofline, a dot for each shape; or one launch at every memory level.

    Decodes one launch of each shape.
    """
    kernels = kernels_of(trace)
    if why := no_kernels(trace):
        return RooflineView(trace.origin.gpu, (), (), why_not=why)
    if launch is not None:
        return _launch_roofline(kernels, launch)
    placed = [_placed(kernels, row) for row in kernels.groups()]
    points = tuple(point for part in placed for point in part.points)
    roofs = _common_roofs(placed, points)
    return RooflineView(
        title=trace.origin.gpu,
        roofs=roofs,
        points=points,
        notes=tuple(_clock_note(placed, roofs)),
        refusals=tuple(refusal for part in placed for refusal in part.refusals),
        why_not=None if points else _why_no_point(placed),
    )


_SAME_CLOCK = 0.98
"""Clocks this near each other move no roof visibly."""


@frozen
class _Placed:
    points: tuple[RooflinePoint, ...]
    roofs: tuple[Roof, ...]
    refusals: tuple[Refusal, ...]


def _placed(kernels: Kernels, row: Row) -> _Placed:
    """The dot of a row against DRAM, or why it has none."""
    label, roofline = kernels.row_name(row), kernels.facts(kernels.middle(row)).roofline
    point = dram_point(roofline, label, kernels.share(row.total_ns) or 0.0)
    roofs = () if isinstance(roofline, Unknown) else roofline.roofs
    if isinstance(point, Unknown):
        return _Placed((), roofs, (Refusal(label, point),))
    return _Placed((point,), roofs, ())


def dram_point(roofline: KernelRoofline | Unknown, label: str, weight: float = 1.0) -> RooflinePoint | Unknown:
    """Where a kernel stands against DRAM by the precision that does most of its work."""
    if isinstance(roofline, Unknown):
        return roofline
    if roofline.refusals:
        return roofline.refusals[0].why
    first_point = next(iter(roofline.points(label, weight)), None)
    return first_point if first_point is not None and first_point.level == "DRAM" else _why_no_dot(roofline)


def _why_no_dot(roofline: KernelRoofline) -> Unknown:
    if roofline.work:
        return Unknown("it has no DRAM traffic, so its intensity has no bound: see its L2 and L1 points")
    dram = roofline.dram
    level = "" if dram is None else f"; it moves data at {percent(100 * dram.fraction)} of the DRAM peak"
    general = "no floating-point operations"
    return Unknown(f"{general}{level}", general=general)


def _common_roofs(placed: Sequence[_Placed], points: Sequence[RooflinePoint]) -> tuple[Roof, ...]:
    """The highest DRAM and compute roofs of all launches, as clocks differ; compute only of what is used."""
    used = {point.precision for point in points}
    highest: dict[tuple[str, str], Roof] = {}
    for roof in (roof for part in placed for roof in part.roofs):
        wanted = roof.level == "DRAM" if roof.kind == "memory" else roof.level in used or not used
        known = highest.get((roof.kind, roof.level))
        if wanted and (known is None or roof.value > known.value):
            highest[roof.kind, roof.level] = roof
    return tuple(highest.values())


def _clock_note(placed: Sequence[_Placed], roofs: Sequence[Roof]) -> Iterator[str]:
    """That launches ran at other clocks than the one that the compute roofs are drawn at."""
    clocks = [roof.mhz for part in placed for roof in part.roofs if roof.mhz is not None]
    drawn = max((roof.mhz for roof in roofs if roof.mhz is not None), default=None)
    if drawn is not None and min(clocks) < drawn * _SAME_CLOCK:
        yield (
            f"compute roofs are at {drawn:.0f} MHz, the fastest launch's clock; a launch is judged by its own roof, and"
            f" the slowest ran at {min(clocks):.0f} MHz"
        )


def _why_no_point(placed: Sequence[_Placed]) -> Unknown:
    """The reason of the heaviest kernel stands for all."""
    return next((refusal.why for part in placed for refusal in part.refusals), Unknown("no kernel has a point"))


def _launch_roofline(kernels: Kernels, launch: int) -> RooflineView:
    label, roofline = kernels.short_name(launch), kernels.facts(launch).roofline
    if isinstance(roofline, Unknown):
        return RooflineView(label, (), (), why_not=roofline)
    points = roofline.points(label, kernels.share(kernels.table.duration_ns[launch]) or 0.0)
    used = {point.precision for point in points}
    refusals = tuple(replace(refusal, label=label) for refusal in roofline.refusals)
    return RooflineView(
        title=label,
        roofs=tuple(roof for roof in roofline.roofs if roof.kind == "memory" or roof.level in used or not used),
        points=points,
        refusals=refusals,
        why_not=None if points else (refusals[0].why if refusals else _why_no_dot(roofline)),
    )


def stall_bars(trace: Trace, grouped: Grouping | str = Grouping.SHAPE) -> tuple[StallBar, ...]:
    """What warps wait for in each kernel, the longest kernel first. Decodes one launch of each row."""
    kernels, grouping = kernels_of(trace), Grouping(grouped)
    bars = []
    for row in kernels.groups(grouping):
        launch = kernels.middle(row)
        share = kernels.share(row.total_ns) or 0.0
        name = kernels.row_name(row) if grouping is Grouping.SHAPE else kernels.short_name(launch)
        bars.append(stall_bar(name, launch, share, kernels.facts(launch).stalls))
    return tuple(bars)


def stall_tree(trace: Trace, *, reason_first: bool = False) -> StackTree:
    """The stalls of all kernels as one tree; widths are % of the kernels' time."""
    return _stall_tree(stall_bars(trace), reason_first=reason_first)
