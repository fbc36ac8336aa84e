"""NVTX ranges as a way to look at kernels: which ranges a launch lies in, what each takes, and one range alone."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from llmtop import whats
from llmtop.analysis.commands.profiling import INCLUDE_FACT, RANGE_FACT, START_FACT, WHERE_FACT, begins_where_told
from llmtop.analysis.timeline.claims import Claims
from llmtop.analysis.timeline.ranges import demands
from llmtop.columns import first_rows, narrow, put, replaced, totals_by
from llmtop.facts import OriginFact
from llmtop.frozen import frozen
from llmtop.model import Missing, SpanKind, Unknown, UnknownKind
from llmtop.text import range_name

if TYPE_CHECKING:
    import pathlib

    from llmtop.model import (
        Fact,
        Instances,
        KernelCode,
        KernelCodes,
        KernelDetails,
        KernelTable,
        Origin,
        RuleResult,
        SectionTable,
        SourceText,
        SpanTable,
        Trace,
        Value,
    )

Path = tuple[str, ...]
"""Ranges that are open at a launch, the outermost first."""


@frozen
class LaunchPaths:
    """The ranges of each launch, as there are few different ones: those of launch i are `paths[numbers[i]]`."""

    paths: tuple[Path, ...]
    numbers: array[int]

    @classmethod
    def of(cls, each: Iterable[Path]) -> LaunchPaths:
        """Of the ranges of each launch."""
        made: dict[Path, int] = {}
        numbers = array("q", (made.setdefault(path, len(made)) for path in each))
        return cls(tuple(made), numbers)

    def __iter__(self) -> Iterator[Path]:
        return map(self.paths.__getitem__, self.numbers)


@lru_cache(maxsize=4)
def launch_ranges(trace: Trace) -> Sequence[Path]:
    """Of each launch; () where none is open, or the launch is not in the capture."""
    return [*launch_paths(trace)]


@lru_cache(maxsize=4)
def launch_paths(trace: Trace) -> LaunchPaths:
    """The same where many launches are gone through.

    A report of Nsight Compute says so of each launch. On a timeline a kernel belongs to the ranges that were open on
    the thread that launched it as it did so, or that this one works for (`claims`). A kernel of a
    graph belongs to those in which the graph was launched and, where the capture tells, within them to those in which
    the kernel was put into the graph.
    """
    table = trace.kernels
    if table is None:
        return LaunchPaths((), array("q"))
    if table.details is not None:
        return LaunchPaths.of(map(table.details.ranges, range(len(table))))
    kernels, ranges = trace.spans.get(SpanKind.KERNEL), trace.spans.get(SpanKind.NVTX)
    if kernels is None or ranges is None or len(kernels) != len(table):
        return LaunchPaths(((),), array("q", bytes(8 * len(table))))
    return _asked_within(trace, ranges, len(table))


def _asked_within(trace: Trace, ranges: SpanTable, launches: int) -> LaunchPaths:
    """By the calls that asked for them."""
    made: dict[Path, int] = {(): 0}
    numbers = array("q", bytes(8 * launches))
    for rows, around in demands(trace).ranges_around(SpanKind.KERNEL):
        path = tuple(ranges.names[ranges.name_id[i]] for i in around)
        put(numbers, rows, array("q", [made.setdefault(path, len(made))]) * len(rows))
    found, captured = LaunchPaths(tuple(made), narrow(numbers)), trace.spans.get(SpanKind.CAPTURED)
    if captured is None:
        return found
    paths = [*found]
    for row, inner in _open_at(captured, ranges):
        paths[row] += tuple(name for name in inner if name not in paths[row])
    return LaunchPaths.of(paths)


def merged_ranges(trace: Trace) -> Sequence[Path]:
    """The same with names that differ by numbers or addresses only made one (`range_name`)."""
    return [*_merged(launch_paths(trace))]


def _merged(each: LaunchPaths) -> LaunchPaths:
    made: dict[Path, int] = {}
    numbers = [made.setdefault(tuple(map(range_name, path)), len(made)) for path in each.paths]
    return LaunchPaths(tuple(made), replaced(each.numbers, dict(enumerate(numbers))))


def _open_at(captured: SpanTable, ranges: SpanTable) -> Iterator[tuple[int, Path]]:
    """By the row of a kernel that a graph has, the ranges open on the thread that put it there as it did so."""
    marked = Claims(ranges, {}).marked
    for track, start, row in zip(captured.track_id, captured.start_ns, captured.correlation, strict=True):
        own = marked.get(captured.tracks[track])
        if own is not None and row >= 0:
            yield row, tuple(ranges.names[ranges.name_id[i]] for i in own.at(start))


@frozen
class RangeShare:
    """What one range takes on the GPU.

    Attributes:
        name: Ranges of one name are one, unless each is wanted those too whose names differ by numbers or addresses
            only (`range_name`); a range within another counts in both.
        names: How many full names it stands for.
        times: How often it was open with a kernel launched in it; None where a report does not tell.
        total_ns: Time of its kernels that have one.
        share: Of all kernels' time, 0 to 1.
    """

    name: str
    names: int
    times: int | None
    launches: int
    total_ns: float
    share: float


def range_shares(trace: Trace, *, each: bool = False) -> tuple[RangeShare, ...]:
    """The ranges in which kernels were launched, the one with the most time first.

    Args:
        trace: Any trace.
        each: Keep apart what differs by numbers or addresses only: "step 1", "step 2".
    """
    table = trace.kernels
    if table is None:
        return ()
    full = launch_paths(trace)
    each_path = full if each else _merged(full)
    rows, sums = totals_by(each_path.numbers, table.duration_ns, len(each_path.paths))
    launches: Counter[str] = Counter()
    total_ns: dict[str, float] = defaultdict(float)
    for number in first_rows(each_path.numbers):
        for name in dict.fromkeys(each_path.paths[number]):
            launches[name] += rows[number]
            total_ns[name] += sums[number]
    times, whole_ns = _times(trace, each=each), sum(sums)
    names = Counter(name if each else range_name(name) for name in {one for path in full.paths for one in path})
    return tuple(
        RangeShare(name, names[name], times.get(name), launches[name], ns, ns / whole_ns if whole_ns else 0.0)
        for name, ns in sorted(total_ns.items(), key=lambda one: -one[1])
    )


def _times(trace: Trace, *, each: bool) -> Mapping[str, int]:
    ranges = trace.spans.get(SpanKind.NVTX)
    if ranges is None:
        return {}
    times: Counter[str] = Counter()
    for i, count in Counter(ranges.name_id).items():
        times[ranges.names[i] if each else range_name(ranges.names[i])] += count
    return times


def has_ranges(trace: Trace) -> bool:
    """Whether any kernel was launched in one."""
    return any(launch_paths(trace).paths)


def in_no_range(trace: Trace) -> Unknown:
    """Why no kernel of a trace lies in one."""
    remedy = "capture with ncu --nvtx or nsys --trace=cuda,nvtx"
    why = Unknown(f"no kernel was launched in any {trace.origin.range_term}", remedy)
    return trace.why_missing(whats.NVTX) or why


def has_numbered(trace: Trace) -> bool:
    """Whether names of ranges differ by numbers or addresses only."""
    return any(share.names > 1 for share in range_shares(trace))


def launches_in(trace: Trace, wanted: str) -> list[int]:
    """Launches in a range of this name (a slash at its end, as Nsight Compute writes it, is none of it).

    Where no range has exactly this name, those of which it is the name without numbers and addresses ("step #"); where
    there are none either, those with it anywhere in their name, ignoring case.
    """
    each = launch_paths(trace)
    names = names_like({name for path in each.paths for name in path}, wanted)
    within = {number for number, path in enumerate(each.paths) if not names.isdisjoint(path)}
    return [i for i, number in enumerate(each.numbers) if number in within]


def names_like(names: Collection[str], wanted: str) -> frozenset[str]:
    """The names of ranges that a name asks for: as `launches_in` says.

    >>> sorted(names_like(["step 1", "step 2", "warm step"], "step #")), *names_like(["Decode", "load"], "deco")
    (['step 1', 'step 2'], 'Decode')
    """
    name = wanted.strip().rstrip("/")
    if name in names:
        return frozenset([name])
    folded = name.casefold()
    alike = frozenset(one for one in names if range_name(one) == name)
    return alike or frozenset(one for one in names if folded in one.casefold())


def only_range(trace: Trace, wanted: str) -> Trace | Unknown:
    """A trace with the kernels of one range alone; why not, with the ranges that there are, where it has none.

    Idle time belongs to no range: the result has no timeline.
    """
    chosen = launches_in(trace, wanted)
    if trace.kernels is None or not chosen:
        names = [share.name for share in range_shares(trace)[:_NAMED]]
        if not names:
            return in_no_range(trace)
        return Unknown(f'no kernel was launched in a range "{wanted}"', f"there are: {', '.join(names)}")
    why = Unknown(
        f'only kernels of the {trace.origin.range_term} "{wanted}" are looked at', _WITHOUT_RANGE, UnknownKind.NOT_ASKED
    )
    return replace(
        trace,
        kernels=only_launches(trace.kernels, chosen),
        spans={},
        origin=_begun(trace, _origin(trace.origin, wanted, _full_names(trace, chosen, wanted))),
        stacks=(),
        missing=(*trace.missing, Missing(whats.TIMELINE, why), *([Missing(whats.STACKS, why)] if trace.stacks else [])),
    )


_NAMED = 8
"""Ranges that are named where there is none by the name that was asked for."""
_WITHOUT_RANGE = "the report without --range has it"
UNDECIDED_FACT = "where_undecided"
"""Of how many kernels the condition of `WHERE_FACT` cannot be asked, and why."""
WINDOW_FACT = "window"
"""The time that a trace was cut to, since the capture began: "10.0 ms to 20.0 ms"."""


def in_range(trace: Trace) -> str:
    """What alone is looked at, as `only_range`, `only_time` and `only_where` make it; else empty."""
    parts = (
        _in_range(trace),
        f"only kernels for which {where}" if (where := trace.origin.facts.get(WHERE_FACT)) else "",
        str(trace.origin.facts.get(UNDECIDED_FACT, "")),
    )
    return "; ".join(part for part in parts if part)


def _in_range(trace: Trace) -> str:
    if (wanted := trace.origin.facts.get(RANGE_FACT)) is not None:
        return f'only the kernels launched in the {trace.origin.range_term} "{wanted}"'
    window = trace.origin.facts.get(WINDOW_FACT)
    return "" if window is None else f"only the capture's time from {window}"


def of_no_range(trace: Trace) -> str:
    """What a trace of the kernels of one range has not, and what has it; else empty."""
    if RANGE_FACT not in trace.origin.facts or trace.origin.is_ncu:
        return ""
    return (
        "launch latency, idle time, communication and stacks are of a time, and not of kernels: --range START:END has "
        "them, and where a range begins and ends is in the report with --by nvtx"
    )


def _full_names(trace: Trace, chosen: Sequence[int], wanted: str) -> set[str]:
    """The names of the ranges that were chosen for having this one, exactly or about."""
    each = launch_paths(trace)
    within = {each.numbers[i] for i in chosen}
    return {*names_like({name for number in within for name in each.paths[number]}, wanted)}


def _begun(trace: Trace, origin: Origin) -> Origin:
    """With where the capture began, which its calls told."""
    if origin.is_ncu or not begins_where_told(trace):
        return origin
    return replace(origin, facts={**origin.facts, START_FACT: "cudaProfilerStart"})


def _origin(origin: Origin, wanted: str, names: set[str]) -> Origin:
    """The report, of this range alone: what chooses a launch for a command counts those of the range."""
    only: dict[str, Fact] = {RANGE_FACT: wanted}
    if not origin.is_ncu and origin.has_nvtx and len(names) == 1:
        only |= {INCLUDE_FACT: f"{names.pop()}/"}
    origin = replace(origin, facts={**origin.facts, **only})
    command = origin.facts.get(OriginFact.COMMAND, "")
    if not origin.is_ncu or not isinstance(command, str) or not command:
        return origin
    profiler, _, rest = command.partition(" ")
    nvtx = "" if "--nvtx " in rest else "--nvtx "
    include = f'{nvtx}--nvtx-include "{wanted.rstrip("/")}/"' if "--nvtx-include" not in rest else ""
    words = " ".join(part for part in (profiler, include, rest) if part)
    return replace(origin, facts={**origin.facts, OriginFact.COMMAND: words})


def only_launches(table: KernelTable, launches: Sequence[int]) -> KernelTable:
    """A table of these launches, numbered anew: of every column the same ones, whichever columns a table has."""
    columns = {field.name: _of_launches(getattr(table, field.name), launches) for field in fields(table)}
    details = None if table.details is None else _ChosenDetails(table.details, launches)
    codes = None if table.codes is None else _ChosenCodes(table.codes, launches)
    return replace(table, **{**columns, "details": details, "codes": codes})


def _of_launches(part: Any, launches: Sequence[int]) -> Any:
    """The values of these launches, of one column or of several; what is no column, and a column that is not there."""
    if isinstance(part, array):
        return array(part.typecode, map(part.__getitem__, launches)) if part else part
    if isinstance(part, tuple) and part and isinstance(part[0], array):
        return tuple(_of_launches(column, launches) for column in part)
    return part


@dataclass(frozen=True, slots=True, eq=False)
class _ChosenDetails:
    """The details of some launches, by their new numbers."""

    whole: KernelDetails
    launches: Sequence[int]

    def metrics(self, i: int) -> Mapping[str, Value]:
        return self.whole.metrics(self.launches[i])

    def unit(self, metric: str) -> str:
        return self.whole.unit(metric)

    def instances(self, i: int, metric: str) -> Instances | Unknown:
        return self.whole.instances(self.launches[i], metric)

    def rules(self, i: int) -> tuple[RuleResult, ...]:
        return self.whole.rules(self.launches[i])

    def ranges(self, i: int) -> tuple[str, ...]:
        return self.whole.ranges(self.launches[i])

    def sections(self, i: int) -> tuple[str, ...]:
        return self.whole.sections(self.launches[i])

    def tables(self, i: int) -> tuple[SectionTable, ...]:
        return self.whole.tables(self.launches[i])


@dataclass(frozen=True, slots=True, eq=False)
class _ChosenCodes:
    """The code of some launches, by their new numbers."""

    whole: KernelCodes
    launches: Sequence[int]

    def code(self, i: int) -> KernelCode | Unknown:
        return self.whole.code(self.launches[i])

    def metrics(self, i: int) -> frozenset[str]:
        return self.whole.metrics(self.launches[i])

    def values(self, i: int, metric: str) -> Mapping[int, float]:
        return self.whole.values(self.launches[i], metric)

    def source(self, i: int, file: str) -> SourceText | Unknown:
        return self.whole.source(self.launches[i], file)

    def assembly(self, i: int) -> Mapping[int, str] | Unknown:
        return self.whole.assembly(self.launches[i])

    def fused_half(self, i: int) -> Mapping[int, bool] | Unknown:
        return self.whole.fused_half(self.launches[i])

    def within(self, folders: Sequence[pathlib.Path]) -> _ChosenCodes:
        return _ChosenCodes(self.whole.within(folders), self.launches)
