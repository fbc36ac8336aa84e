"""What a report says as a whole: the entries and sums that every output format prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from llmtop import whats
from llmtop.analysis.kernels.counters import Counters
from llmtop.analysis.kernels.family import KernelFamily
from llmtop.analysis.kernels.table import (
    Dim3,
    KernelFacts,
    Kernels,
    Row,
    dram_point,
    kernels_of,
)
from llmtop.analysis.timeline.account import IdleAccount, idle_account
from llmtop.analysis.views import RooflinePoint
from llmtop.frozen import frozen
from llmtop.model import Missing, Trace, Unknown, What
from llmtop.units import duration


@frozen
class Entry:
    """A kernel as a report lists it.

    Attributes:
        name: The function; `short` tells it from others of the same function.
        share: Of all kernels' time, 0 to 1; None without times.
        metrics: All counters of the launch, whose units `Kernels.unit` tells; none where the capture has only times.
        roofline: Its point against DRAM, or why it has none.
    """

    name: str
    short: str
    family: KernelFamily
    demangled: str
    grid: Dim3
    block: Dim3
    row: Row
    share: float | None
    facts: KernelFacts
    metrics: Counters
    roofline: RooflinePoint | Unknown

    @property
    def missing(self) -> tuple[Missing, ...]:
        """What is not known of it, and what would bring it."""
        others = tuple(missing for missing in self.facts.missing if missing.what != whats.ROOFLINE)
        if isinstance(self.roofline, Unknown):
            return (*others, Missing(whats.ROOFLINE, self.roofline))
        return others


def entries(trace: Trace) -> Iterator[Entry]:
    """All kernels: launch by launch, in the order of capture, where each has counters of its own.

    A timeline's launches of one name, grid and block are one entry, the longest in total first.
    """
    kernels = kernels_of(trace)
    launches = range(len(kernels.table))
    rows = kernels.groups() if kernels.table.details is None else map(kernels.launch, launches)
    for row in rows:
        yield _entry(kernels, row)


def _entry(kernels: Kernels, row: Row) -> Entry:
    launch = kernels.middle(row)
    name_id, facts = kernels.table.name_id[launch], kernels.facts(launch)
    short = kernels.short_names[name_id]
    share = kernels.share(row.total_ns)
    return Entry(
        name=kernels.table.functions[name_id],
        short=short,
        family=kernels.kind(launch).family,
        demangled=kernels.table.names[name_id],
        grid=kernels.grid(launch),
        block=kernels.block(launch),
        row=row,
        share=share,
        facts=facts,
        metrics=kernels.metrics(launch),
        roofline=dram_point(facts.roofline, short, share or 0.0),
    )


@frozen
class Summary:
    """The report in numbers.

    Attributes:
        kernels: Distinct kernels by name, grid and block.
        time_by_bound: Shares of the kernels' time, 0 to 1, the largest first.
        idle: Of each GPU; of none without a timeline.
        spans: How many there are of each kind of a timeline, and their time in ns.
        unknowns: What is missing of kernels and why, with the number of kernels, the most frequent first.
    """

    kernels: int
    launches: int
    total_ns: float
    time_by_bound: Mapping[str, float]
    idle: IdleAccount
    spans: Mapping[str, tuple[int, int]]
    unknowns: tuple[tuple[Missing, int], ...]


def summary(trace: Trace) -> Summary:
    """Sum a trace up. Decodes one launch of each kernel."""
    kernels = kernels_of(trace)
    rows = kernels.groups()
    judged = [_entry(kernels, row) for row in rows]
    return Summary(
        kernels=len(rows),
        launches=len(kernels.table),
        total_ns=kernels.total_ns,
        time_by_bound=_time_by_bound(judged),
        idle=idle_account(trace),
        spans={
            kind: (len(spans), sum(spans.end_ns) - sum(spans.start_ns))
            for kind, spans in trace.spans.items()
            if len(spans)
        },
        unknowns=_unknowns(judged),
    )


def kernel_time(trace: Trace) -> str:
    """The time of all launches, and over what it is added up: with several GPUs or streams it can exceed the capture.

    Empty where no launch has a time.
    """
    kernels = kernels_of(trace)
    if not kernels.total_ns:
        return ""
    gpus, streams = set(kernels.table.device), set(zip(kernels.table.device, kernels.table.stream, strict=True))
    over = [f"{len(gpus)} GPUs"] if len(gpus) > 1 else []
    over += [f"{len(streams)} streams"] if len(streams) > len(gpus) else []
    added = f", added up over {' and '.join(over)}" if over and trace.spans else ""
    return f"{duration(kernels.total_ns)} of kernel time{added}"


def _time_by_bound(judged: list[Entry]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for entry in judged:
        bound = str(entry.facts.bound_name)
        if entry.share is not None:
            shares[bound] = shares.get(bound, 0.0) + entry.share
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _unknowns(judged: list[Entry]) -> tuple[tuple[Missing, int], ...]:
    """What is missing of many kernels for one reason, in one line: "bound, stalls of 69 kernels"."""
    counts = Counter(_general(missing) for entry in judged for missing in entry.missing)
    alike: dict[tuple[Unknown, int], list[What]] = {}
    for missing, count in counts.most_common():
        alike.setdefault((missing.why, count), []).append(missing.what)
    return tuple((Missing(whats.together(several), why), count) for (why, count), several in alike.items())


def _general(missing: Missing) -> Missing:
    """Without what a reason says of one kernel alone."""
    why = missing.why
    return Missing(missing.what, Unknown(why.general, why.remedy)) if why.general else missing
