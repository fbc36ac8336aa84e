"""One launch in lines: how near the limits, occupancy, stalls, its place in the roofline, advice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.bounds import LATENCY_PERCENT, LEANS, MARGIN_PERCENT, Bound
from llmtop.analysis.kernels.stalls import REASONS
from llmtop.analysis.kernels.table import dimensions
from llmtop.model import Unknown
from llmtop.tui.render.bars import reason_fill, reason_role
from llmtop.tui.render.lines import Part, bar, line, pad, prose, width_of
from llmtop.units import binary_bytes, duration, number, percent, quantity, si

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.kernels.elsewhere import Elsewhere
    from llmtop.analysis.kernels.occupancy import Occupancy
    from llmtop.analysis.pages.launch import LaunchView
    from llmtop.analysis.pages.launch_call import LaunchCall
    from llmtop.analysis.views import RooflinePoint
    from llmtop.tui.render.look import Look

_LABEL = 12
_BAR = 24
_REASONS = 6
_LEAST_SHARE = 0.02
_MEANING = {
    Bound.LATENCY: f"neither compute nor memory reaches {LATENCY_PERCENT:.0f} % of its peak",
    Bound.MEMORY: f"it leads compute by more than {MARGIN_PERCENT:.0f} points",
    Bound.COMPUTE: f"it leads memory by more than {MARGIN_PERCENT:.0f} points",
    Bound.BALANCED: f"compute and memory are within {MARGIN_PERCENT:.0f} points of each other",
}


def launch_lines(view: LaunchView, width: int, look: Look) -> list[Strip]:
    """Everything, in the order in which one asks: what is it, what limits it, why, what to do."""
    return list(_lines(view, width, look))


def _lines(view: LaunchView, width: int, look: Look) -> Iterator[Strip]:
    yield from prose(view.short, width, look, "title")
    yield from prose(_what(view), width, look)
    if view.note:
        yield from _titled("note", view.note, width, look)
    if view.beside is not None:
        yield from _titled("baseline", view.beside.said, width, look)
    yield _blank(width, look)
    yield from _measured(view, width, look)
    for i, other in enumerate(view.elsewhere):
        yield from _titled("" if i else "elsewhere", _in_other(other), width, look)
    yield from _advised(view, width, look)
    if view.sent:
        yield from _titled("sends", view.sent, width, look)
    if view.call is not None:
        yield from _launched(view.call, width, look)
    if view.step is not None:
        yield from _titled("step", str(view.step), width, look)
    if view.ranges:
        yield from _titled("ranges", " > ".join(view.ranges), width, look)
    if view.name != view.short:
        yield from _titled("full name", view.name, width, look, "dim")


def _launched(call: LaunchCall | Unknown, width: int, look: Look) -> Iterator[Strip]:
    if isinstance(call, Unknown):
        return _titled("launched", f"unknown: {call}", width, look, "dim")
    queued = "not queued: it had begun when the call returned"
    queue = queued if call.queue_ns is None else f"queued {duration(call.queue_ns)} of that, after the call returned"
    return _titled(
        "launched",
        f"by {call.name} on {call.thread}, {duration(call.latency_ns)} before it began; {queue}",
        width,
        look,
    )


def _what(view: LaunchView) -> str:
    time = "time not collected" if isinstance(view.duration_ns, Unknown) else duration(view.duration_ns)
    share = "" if view.share is None else f" ({percent(100 * view.share)} of all kernels)"
    registers, shared = view.facts.registers, view.facts.shared_memory
    parts = [
        f"{time}{share}",
        "" if view.since_ns is None else f"began {duration(view.since_ns)} into the capture",
        "failed" if 0 in (*view.grid, *view.block) else f"grid {dimensions(view.grid)}, block {dimensions(view.block)}",
        "" if isinstance(registers, Unknown) else f"{registers} registers a thread",
        "" if isinstance(shared, Unknown) or not shared else f"{binary_bytes(shared)} shared memory a block",
        "" if isinstance(view.facts.waves, Unknown) else f"{quantity(view.facts.waves, '1')} waves",
    ]
    return ", ".join(part for part in parts if part)


def _in_other(other: Elsewhere) -> str:
    """What another report says of the kernel."""
    size = "" if other.has_same_size else " of another grid or block"
    parts = [
        f"{other.launches} launch{'es' * (other.launches > 1)}{size}",
        f"{duration(other.mean_ns)}{' each' * (other.launches > 1)}" if other.mean_ns == other.mean_ns else "",
        "" if other.share is None else f"{percent(100 * other.share)} of its kernels",
        "" if isinstance(other.bound, Unknown) else f"bound: {other.bound.bound}",
    ]
    return f"{other.report}: {', '.join(part for part in parts if part)}"


_ESTIMATED = "estimated by PyTorch's profiler from the sizes of the launch, not measured"


def _measured(view: LaunchView, width: int, look: Look) -> Iterator[Strip]:
    """What counters tell; where there are none at all, that once."""
    parts = (view.verdict, view.occupancy.achieved, view.stalls, view.point)
    reasons = {part.reason for part in parts if isinstance(part, Unknown)}
    if len(reasons) == 1 and all(isinstance(part, Unknown) for part in parts):
        yield from _titled("counters", reasons.pop(), width, look, "dim")
        if view.estimated_occupancy is not None:
            yield from _titled("occupancy", f"{percent(view.estimated_occupancy)} {_ESTIMATED}", width, look)
    else:
        yield from _limits(view, width, look)
        yield from _moved(view, width, look)
        yield from _occupied(view.occupancy, width, look)
        yield from _stalled(view, width, look)
        yield from _placed(view, width, look)
    if view.command:
        yield from _titled("collect", f"$ {view.command}", width, look, "accent")
    elif view.no_command:
        yield from _titled("no command", view.no_command, width, look, "dim")


def _limits(view: LaunchView, width: int, look: Look) -> Iterator[Strip]:
    verdict = view.verdict
    if isinstance(verdict, Unknown):
        yield from _titled("bound", f"unknown: {verdict.reason}", width, look, "dim")
    else:
        has_class = verdict.dram is not None and verdict.leaning is not Bound.UNKNOWN
        leaning = f"; of SM and DRAM alone it leans to {LEANS[verdict.leaning]}" if has_class else ""
        # Of a report of a few metrics the verdict rests on DRAM alone.
        meaning = _MEANING[verdict.bound] if verdict.compute is not None else f"{verdict.why}; compute not collected"
        yield from _titled("bound", f"{verdict.bound}: {meaning}{leaning}", width, look)
    room = min(_BAR, max(4, width - _LABEL - 10))
    for what, share in view.levels:
        role = "warn" if share >= LATENCY_PERCENT else "memory" if what in ("memory", "DRAM", "L2", "L1") else "compute"
        parts: list[Part] = [(pad(f"  {what}", _LABEL, look), "dim"), (bar(share / 100, room, look), role)]
        yield line([*parts, (f" {percent(share)} of peak", "text")], width, look)


def _moved(view: LaunchView, width: int, look: Look) -> Iterator[Strip]:
    """Bytes to and from DRAM, and what the caches keep from it."""
    facts = view.facts
    parts = [] if isinstance(facts.traffic, Unknown) else [str(facts.traffic)]
    hits = (("L1", facts.l1_hits), ("L2", facts.l2_hits))
    parts += [f"{what} hits {percent(share)}" for what, share in hits if not isinstance(share, Unknown)]
    if parts:
        yield from _titled("memory", ", ".join(parts), width, look)


def _occupied(occupancy: Occupancy, width: int, look: Look) -> Iterator[Strip]:
    achieved, theoretical = occupancy.achieved, occupancy.theoretical
    if isinstance(achieved, Unknown) and isinstance(theoretical, Unknown):
        yield from _titled("occupancy", f"unknown: {achieved.reason}", width, look, "dim")
        return
    parts = [] if isinstance(achieved, Unknown) else [f"{percent(achieved)} achieved"]
    if not isinstance(theoretical, Unknown):
        parts.append(f"{percent(theoretical)} possible")
    if occupancy.limits:
        blocks = occupancy.limits[0][1]
        parts.append(f"limited by {' and '.join(occupancy.limiters)} to {blocks} block{'s' * (blocks != 1)} an SM")
    yield from _titled("occupancy", ", ".join(parts), width, look)


def _stalled(view: LaunchView, width: int, look: Look) -> Iterator[Strip]:
    stalls = view.stalls
    if isinstance(stalls, Unknown):
        yield from _titled("stalls", f"unknown: {stalls.reason}", width, look, "dim")
        return
    costs = {True: "", False: "; the schedulers are busy, so it costs little", None: ""}[stalls.starved]
    yield from _titled("stalls", f"what its warps wait for, of all waiting{costs}", width, look)
    shown = [pair for pair in stalls.shares[:_REASONS] if pair[1] >= _LEAST_SHARE]
    longest = max((width_of(reason) for reason, _ in shown), default=0)
    for rank, (reason, share) in enumerate(shown):
        fill = reason_fill(reason, rank, look)
        head: list[Part] = [
            (f"  {fill}{fill} ", reason_role(reason)),
            (pad(reason, longest, look), "text"),
            (f" {percent(100 * share):>6}  ", "value"),
        ]
        yield line([*head, (REASONS.get(reason, ""), "dim")], width, look)
    for note in stalls.notes:
        yield from prose(f"  {note}", width, look, "dim")


def _placed(view: LaunchView, width: int, look: Look) -> Iterator[Strip]:
    point = view.point
    if isinstance(point, Unknown):
        yield from _titled("roofline", f"no place: {point.reason}", width, look, "dim")
        return
    of_roof = "" if point.roof_fraction is None else f", {percent(100 * point.roof_fraction)} of its roof"
    text = f"{number(point.intensity)} FLOP/byte, {si(point.flops_per_s, 'FLOP/s')} {point.precision}{of_roof}"
    yield from _titled("roofline", f"{text}{_side(view, point)}", width, look)


def _side(view: LaunchView, point: RooflinePoint) -> str:
    """Left or right of the ridge, which decides which roof is above it."""
    roofs = {roof.level: roof.value for roof in view.roofline.roofs}
    dram, peak = roofs.get("DRAM"), roofs.get(point.precision)
    if not dram or not peak:
        return ""
    ridge = peak / dram
    side = "left of the ridge at" if point.intensity < ridge else "right of the ridge at"
    return f"; {side} {number(ridge)} FLOP/byte: under the {'DRAM' if point.intensity < ridge else 'compute'} roof"


def _advised(view: LaunchView, width: int, look: Look) -> Iterator[Strip]:
    if not view.findings and not view.advice:
        return
    yield _blank(width, look)
    for finding in view.findings:
        yield from prose(f"{look.glyphs.arrow} {finding.message}: {finding.action}", width, look, "value")
        if finding.next_command:
            yield from prose(f"  $ {finding.next_command}", width, look, "accent")
    for advice in view.advice:
        part = "of the part it looks at" if advice.is_local else "of this kernel"
        worth = "" if advice.worth is None else f" (up to {percent(advice.worth)} {part}, ncu's estimate)"
        yield from prose(f"{look.glyphs.arrow} {advice.title}{worth}: {advice.message}", width, look)


def _titled(title: str, text: str, width: int, look: Look, role: str = "value") -> Iterator[Strip]:
    """A label, and the text wrapped beside it."""
    rows = prose(text, max(8, width - _LABEL), look, role)
    for i, row in enumerate(rows):
        yield line([(pad(title if i == 0 else "", _LABEL, look), "header"), (row.text.rstrip(), role)], width, look)


def _blank(width: int, look: Look) -> Strip:
    return line([("", "text")], width, look)
