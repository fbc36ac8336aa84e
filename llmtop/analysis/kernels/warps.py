"""How many warps a scheduler has to choose from, why it often has none, and what each waits for.

By the counters of Nsight Compute's sections SchedulerStats and WarpStateStats (Kernel Profiling Guide, Warp Scheduler
States). How often a scheduler issues follows from two of them: its warps, over the cycles that each takes between two
instructions (Little's law; Volkov, Understanding Latency Hiding on GPUs, 2016).
"""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.counters import Counters, number, quotient
from llmtop.analysis.kernels.counting import not_collected, not_counted
from llmtop.analysis.kernels.section_page import PagePart, PageRow, SectionPage, value_text
from llmtop.analysis.kernels.stalls import LATENCY, REASONS, STARVED_ISSUE_RATE, Stalls
from llmtop.analysis.kernels.table import kernels_of
from llmtop.analysis.kernels.waits import action_of
from llmtop.model import Trace, Unknown
from llmtop.units import percent

SOURCE = "counters of Nsight Compute's scheduler statistics and warp states (SchedulerStats, WarpStateStats)"
_SCHEDULER = "SchedulerStats"
_HOLDS = "smsp__warps_active.avg.peak_sustained"
_POSSIBLE = "smsp__maximum_warps_avg_per_active_cycle"
_ACTIVE = "smsp__warps_active.avg.per_cycle_active"
_ELIGIBLE = "smsp__warps_eligible.avg.per_cycle_active"
_NONE = "smsp__issue_inst0.avg.pct_of_peak_sustained_active"
_OF_WARPS = (
    ("holds at most", _HOLDS, "warps of a scheduler, by the hardware"),
    ("the launch allows", _POSSIBLE, "by its registers, shared memory and block size (Occupancy)"),
    ("active", _ACTIVE, "in the mean of the cycles in which it had any"),
    ("eligible", _ELIGIBLE, "of these, ready to issue"),
)
_FEW = 0.8
"""Of the warps that the launch allows: with fewer the SMs are empty for a part of the time. Ours, as for occupancy."""


def warps_page(trace: Trace, launch: int) -> SectionPage | Unknown:
    """Schedulers and warps of one launch; why nothing is known of them."""
    if (why := not_counted(trace)) is not None:
        return why
    metrics, stalls = kernels_of(trace).metrics(launch), kernels_of(trace).facts(launch).stalls
    parts = (*_scheduler(metrics), *_states(metrics, stalls))
    lacking = [_SCHEDULER] if number(metrics, _ELIGIBLE) is None else []
    lacking += [c.WARP_STATE] if isinstance(stalls, Unknown) else []
    why = not_collected(trace, launch, "warps of the schedulers, or what they wait for,", *lacking) if lacking else None
    return SectionPage(launch, parts, SOURCE, why) if parts or why is None else why


def _scheduler(metrics: Counters) -> Iterator[PagePart]:
    most = number(metrics, _HOLDS)
    rows = [
        PageRow(name, value, "warp", quotient(value, most), metric, says)
        for name, metric, says in _OF_WARPS
        if (value := number(metrics, metric)) is not None
    ]
    if (issued := number(metrics, c.ISSUE_ACTIVE)) is not None:
        rows.append(PageRow("issued", issued, "inst", issued, c.ISSUE_ACTIVE, "of one in each cycle, at most"))
    if (none := number(metrics, _NONE)) is not None:
        rows.append(PageRow("no warp eligible", none, "%", none / 100, _NONE, "of the cycles: nothing is issued then"))
    if rows:
        yield PagePart("Scheduler, in the mean of a cycle", tuple(rows), tuple(_said(metrics)))


def _said(metrics: Counters) -> Iterator[str]:
    """What keeps a scheduler from issuing more often."""
    issued, active = number(metrics, c.ISSUE_ACTIVE), number(metrics, _ACTIVE)
    possible, holds = number(metrics, _POSSIBLE), number(metrics, _HOLDS)
    if issued is None:
        return
    if issued >= STARVED_ISSUE_RATE:
        yield f"a scheduler issues in {percent(100 * issued)} of its cycles: fewer instructions help, not more warps"
        return
    if active is not None and possible is not None and active < _FEW * possible:
        there, allowed = value_text(active, ""), value_text(possible, "")
        yield (
            f"it has {there} of the {allowed} warps that the launch allows: blocks are too few, differ in length, or "
            "end before the next ones begin"
        )
    latency = quotient(active, issued)
    if latency is not None and holds is not None:
        yield _with_all_warps(latency, holds)


def _with_all_warps(latency: float, holds: float) -> str:
    """What more warps could bring, if each went on as it does."""
    rate = min(1.0, holds / latency)
    cycles, warps = value_text(latency, ""), value_text(holds, "")
    between = f"each warp issues once in {cycles} cycles: with all {warps} warps that would be"
    if rate >= STARVED_ISSUE_RATE:
        return f"{between} an instruction in {percent(100 * rate)} of the cycles: more warps help (Occupancy)"
    return f"{between} an instruction in {percent(100 * rate)} of the cycles at most: they must wait less, see below"


def _states(metrics: Counters, stalls: Stalls | Unknown) -> Iterator[PagePart]:
    if isinstance(stalls, Unknown):
        return
    shares = dict(stalls.shares)
    rows = tuple(
        PageRow(reason, value, "", shares[reason], "", REASONS.get(reason, ""), action_of(reason))
        for reason, value in stalls.values
    )
    title = f"What warps wait for, in {stalls.unit}"
    yield PagePart(title, rows, (*_total(metrics, stalls), *stalls.notes, *_harmless(stalls)))


def _total(metrics: Counters, stalls: Stalls) -> Iterator[str]:
    latency = number(metrics, LATENCY)
    if latency is not None and "cycles" in stalls.unit:
        yield f"with issuing itself these are the {value_text(latency, '')} cycles between two instructions of a warp"


def _harmless(stalls: Stalls) -> Iterator[str]:
    if stalls.starved is False:
        yield "the schedulers have enough ready warps all the same: this waiting costs little"
