"""What the warps of a kernel wait for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.counters import Counters, first, number
from llmtop.analysis.views import NodeKind, StackNode, StackTree
from llmtop.frozen import frozen
from llmtop.model import Unknown

STARVED_ISSUE_RATE = 0.8
"""Below this many issued instructions per cycle a scheduler is starved, and stalls are worth looking at (the
threshold of Nsight Compute's CPIStall rule); above it, waiting warps cost nothing."""
FEW_SAMPLES = 1000
"""Sampled shares below a percent or so mean nothing with fewer samples than this."""


@dataclass(frozen=True)
class _Family:
    """One way in which reports tell stall reasons: metric names are `prefix` + reason + `suffix`."""

    prefix: str
    suffix: str
    unit: str

    @cached_property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The metrics of the known reasons, each with its reason."""
        return tuple((f"{self.prefix}{name}{self.suffix}", reason) for name, reason in _REASON_BY_NAME.items())


_FAMILIES = (
    _Family("smsp__average_warps_issue_stalled_", "_per_issue_active.ratio", "cycles per issued instruction"),
    _Family("smsp__average_warp_latency_issue_stalled_", ".ratio", "cycles per issued instruction"),
    _Family("smsp__pcsamp_warps_issue_stalled_", "_not_issued", "samples without an issue"),
    _Family("smsp__pcsamp_warps_issue_stalled_", "", "samples"),
    _Family("smsp__pcsamp_warp_stall_", "", "samples"),
    _Family("warpsampling:smsp__pcsamp_warps_issue_stalled_", "", "samples"),
)
"""Best first: counted for every warp, then sampled."""

LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
"""Cycles between two issues of a warp: the sum of all reasons of the first family, issuing included."""
_REPLAY_NOISE = 0.05
"""Reasons are counted in several passes: their sum is up to so much above or below the total, which means nothing."""
_MOST_REASONS = 18
"""What a section collects on the chips seen (17 before Hopper)."""
_FEWEST_REASONS = 12
"""Two thirds of them: with fewer a share would be of what somebody chose to collect, not of the waiting."""


class StallReason(StrEnum):
    """Why a warp does not issue, by the names of Nsight Compute's counters: see `REASONS`."""

    BARRIER = "barrier"
    BRANCH_RESOLVING = "branch_resolving"
    DISPATCH_STALL = "dispatch_stall"
    DRAIN = "drain"
    GMMA = "gmma"
    IMC_MISS = "imc_miss"
    LG_THROTTLE = "lg_throttle"
    LONG_SCOREBOARD = "long_scoreboard"
    MATH_PIPE_THROTTLE = "math_pipe_throttle"
    MEMBAR = "membar"
    MIO_THROTTLE = "mio_throttle"
    MISC = "misc"
    NO_INSTRUCTION = "no_instruction"
    NOT_SELECTED = "not_selected"
    SHORT_SCOREBOARD = "short_scoreboard"
    SLEEPING = "sleeping"
    TEX_THROTTLE = "tex_throttle"
    WAIT = "wait"


_SAME_REASON = {
    "no_instructions": StallReason.NO_INSTRUCTION.value,
    "warpgroup_arrive": StallReason.GMMA.value,
}
"""Names of the sampled family where they differ from the counted one."""
_HARMLESS = frozenset({StallReason.NOT_SELECTED})
"""Another warp issued in this cycle: the scheduler was busy."""

REASONS: Mapping[str, str] = {
    StallReason.BARRIER: "waits for the other warps of its block at a barrier",
    StallReason.BRANCH_RESOLVING: "waits for a branch target",
    StallReason.DISPATCH_STALL: "the dispatcher holds the instruction back",
    StallReason.DRAIN: "waits for its stores at the end of the kernel",
    StallReason.GMMA: "waits for an asynchronous tensor (wgmma) group",
    StallReason.IMC_MISS: "waits for a constant to be fetched",
    StallReason.LG_THROTTLE: "the queue of local and global memory instructions is full",
    StallReason.LONG_SCOREBOARD: "waits for global, local or texture memory",
    StallReason.MATH_PIPE_THROTTLE: "the arithmetic pipe it needs is busy",
    StallReason.MEMBAR: "waits at a memory fence",
    StallReason.MIO_THROTTLE: "the queue of shared-memory and special instructions is full",
    StallReason.MISC: "another reason",
    StallReason.NO_INSTRUCTION: "waits for instructions to be fetched",
    StallReason.NOT_SELECTED: "ready, but another warp issued",
    StallReason.SHORT_SCOREBOARD: "waits for shared memory or a special-function result",
    StallReason.SLEEPING: "sleeps by its own wish",
    StallReason.TEX_THROTTLE: "the queue of texture instructions is full",
    StallReason.WAIT: "a fixed latency between two instructions",
}
"""What each reason means. "selected" is not among them: that warp issued."""

PALETTE: Mapping[str, tuple[int, int]] = {
    StallReason.LONG_SCOREBOARD: (1, 1),
    StallReason.LG_THROTTLE: (1, 2),
    StallReason.TEX_THROTTLE: (1, 3),
    StallReason.SHORT_SCOREBOARD: (2, 1),
    StallReason.MIO_THROTTLE: (2, 2),
    StallReason.BARRIER: (3, 1),
    StallReason.MEMBAR: (3, 2),
    StallReason.SLEEPING: (3, 3),
    StallReason.MATH_PIPE_THROTTLE: (4, 1),
    StallReason.WAIT: (4, 2),
    StallReason.NO_INSTRUCTION: (5, 1),
    StallReason.IMC_MISS: (5, 2),
    StallReason.BRANCH_RESOLVING: (5, 3),
    StallReason.GMMA: (6, 1),
    StallReason.DISPATCH_STALL: (6, 2),
    StallReason.DRAIN: (7, 1),
    StallReason.MISC: (7, 2),
    StallReason.NOT_SELECTED: (8, 1),
}
"""Which of eight colours a reason has wherever it is drawn, and which of that colour's three shades: reasons of a kind
share a colour (global memory, the SM's own memories, waiting for each other, arithmetic, instruction fetch)."""
UNNAMED = (8, 2)
"""What a reason that is not in `PALETTE` has."""

_REASON_BY_NAME = {reason.value: reason.value for reason in StallReason} | _SAME_REASON


_SAMPLED = re.compile(r"smsp__pcsamp_warps?_(?:issue_stalled|stall)_(\w+?)(_not_issued)?")
ISSUING = "selected"
"""Sampled beside the reasons: the warp issued."""


def sampled_reason(metric: str) -> tuple[str, bool] | None:
    """The reason that a metric counts samples of, and whether it counts only those of cycles without an issue.

    >>> sampled_reason("smsp__pcsamp_warps_issue_stalled_no_instructions_not_issued"), sampled_reason("inst_executed")
    (('no_instruction', True), None)
    """
    found = _SAMPLED.fullmatch(metric)
    return None if found is None else (_REASON_BY_NAME.get(found[1], found[1]), found[2] is not None)


@frozen
class Stalls:
    """How a kernel's warps wait.

    Attributes:
        values: By reason, the largest first, in `unit`; issuing ("selected") is not among them.
        starved: Whether schedulers lack ready warps, so that the stalls cost time; None when not collected.
        notes: What limits the trust in the shares.
    """

    values: tuple[tuple[str, float], ...]
    unit: str
    starved: bool | None
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        """All waiting, in `unit`."""
        return math.fsum(value for _, value in self.values)

    @property
    def shares(self) -> tuple[tuple[str, float], ...]:
        """By reason, the largest first; they add up to 1."""
        total = self.total
        return tuple((reason, value / total) for reason, value in self.values)

    @property
    def top(self) -> tuple[str, float]:
        """The costliest reason and its share."""
        return costliest(self.shares)


def costliest(shares: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """Of (reason, share) pairs the largest that costs time: being ready while another warp issues does not."""
    return next((pair for pair in shares if pair[0] not in _HARMLESS), shares[0])


def kernel_stalls(metrics: Counters) -> Stalls | Unknown:
    """The stall reasons of one launch, from the best family of metrics of which the report has (nearly) all."""
    most = 0
    for family in _FAMILIES:
        values = _of_family(metrics, family)
        most = max(most, len(values))
        if len(values) >= _FEWEST_REASONS and sum(values.values()) > 0:
            values |= _unlisted(metrics, family, values)
            ranked = tuple(sorted(((reason, value) for reason, value in values.items() if value > 0), key=_by_value))
            return Stalls(ranked, family.unit, _starved(metrics), tuple(_notes(metrics, family, values)))
    if 0 < most < _FEWEST_REASONS:
        reason = f"{most} of about {_MOST_REASONS} stall reasons collected: no shares"
        return Unknown(reason, c.add_section(c.WARP_STATE))
    return c.not_collected("warp stalls", c.WARP_STATE)


def _by_value(pair: tuple[str, float]) -> float:
    return -pair[1]


def _of_family(metrics: Counters, family: _Family) -> dict[str, float]:
    """Look the known reasons up: going through all names of a report costs a hundred times more."""
    values: dict[str, float] = {}
    for name, reason in family.names:
        value = number(metrics, name)
        if value is not None:
            values[reason] = max(value, values.get(reason, 0.0))
    return values


def _unlisted(metrics: Counters, family: _Family, values: Mapping[str, float]) -> dict[str, float]:
    """Reasons of a newer chip, by their own names; looked for where the known ones fall short of the total."""
    total, issuing = number(metrics, LATENCY), number(metrics, f"{family.prefix}selected{family.suffix}")
    if family is not _FAMILIES[0] or total is None or issuing is None:
        return {}
    if sum(values.values()) + issuing > (1 - _REPLAY_NOISE) * total:
        return {}
    inner = {name: name[len(family.prefix) : -len(family.suffix)] for name in metrics if _is_of(name, family)}
    new = {reason: number(metrics, name) for name, reason in inner.items() if reason not in _REASON_BY_NAME}
    return {reason: value for reason, value in new.items() if value and reason != ISSUING}


def _is_of(name: str, family: _Family) -> bool:
    return name.startswith(family.prefix) and name.endswith(family.suffix)


def _starved(metrics: Counters) -> bool | None:
    rate = number(metrics, c.ISSUE_ACTIVE)
    return None if rate is None else rate < STARVED_ISSUE_RATE


def _notes(metrics: Counters, family: _Family, values: Mapping[str, float]) -> list[str]:
    if "samples" not in family.unit:
        return []
    notes = []
    dropped = first(metrics, ("smsp__pcsamp_dropped_bytes", "smsp__pcsamp_buffer_overflow"))
    if dropped:
        notes.append("the sampling buffer overflowed: shares miss part of the kernel")
    if (samples := sum(values.values())) < FEW_SAMPLES:
        notes.append(f"only {samples:.0f} samples")
    return notes


@frozen
class StallBar:
    """One kernel's stacked bar.

    Attributes:
        kernel: Its short name.
        launch: The row of the kernel table that it was read from.
        total: Share of the time of all kernels, 0 to 1.
        shares: (reason, share of the waiting) pairs, the largest first; empty when unknown.
        starved: As in `Stalls`.
        why_not: Why there are no shares.
    """

    kernel: str
    launch: int
    total: float
    shares: tuple[tuple[str, float], ...]
    unit: str = ""
    starved: bool | None = None
    notes: tuple[str, ...] = ()
    why_not: Unknown | None = None


def stall_bar(kernel: str, launch: int, total: float, stalls: Stalls | Unknown) -> StallBar:
    """Make the bar of one kernel."""
    if isinstance(stalls, Unknown):
        return StallBar(kernel, launch, total, (), why_not=stalls)
    return StallBar(kernel, launch, total, stalls.shares, stalls.unit, stalls.starved, stalls.notes)


def stall_tree(bars: tuple[StallBar, ...], *, reason_first: bool = False) -> StackTree:
    """Kernel over reason (or reason over kernel); a frame's width is its share of the kernels' time, in %.

    Kernels without stall data stay out: their width would claim something that was not measured.
    """
    measured = [bar for bar in bars if bar.shares]
    if not measured:
        return StackTree(
            StackNode("all", NodeKind.ROOT, 0.0, 0.0), "%", bars[0].why_not if bars else Unknown("no kernels")
        )
    cells = [(bar.kernel, reason, 100 * bar.total * share) for bar in measured for reason, share in bar.shares]
    outer, inner = (_second, _first) if reason_first else (_first, _second)
    kinds = (NodeKind.REASON, NodeKind.KERNEL) if reason_first else (NodeKind.KERNEL, NodeKind.REASON)
    return StackTree(_root(cells, outer, inner, kinds), "%")


_Cell = tuple[str, str, float]
_Key = Callable[[_Cell], str]


def _first(cell: _Cell) -> str:
    return cell[0]


def _second(cell: _Cell) -> str:
    return cell[1]


def _root(cells: list[_Cell], outer: _Key, inner: _Key, kinds: tuple[NodeKind, NodeKind]) -> StackNode:
    widths: dict[str, dict[str, float]] = {}
    for cell in cells:
        row = widths.setdefault(outer(cell), {})
        row[inner(cell)] = row.get(inner(cell), 0.0) + cell[2]
    children = [_branch(name, row, kinds) for name, row in widths.items()]
    return StackNode("all", NodeKind.ROOT, math.fsum(cell[2] for cell in cells), 0.0, _by_width(children))


def _branch(name: str, row: Mapping[str, float], kinds: tuple[NodeKind, NodeKind]) -> StackNode:
    leaves = [StackNode(leaf, kinds[1], width, width) for leaf, width in row.items()]
    return StackNode(name, kinds[0], math.fsum(row.values()), 0.0, _by_width(leaves))


def _by_width(nodes: list[StackNode]) -> tuple[StackNode, ...]:
    return tuple(sorted(nodes, key=lambda node: -node.total))
