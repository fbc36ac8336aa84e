"""What is said below a timeline: the span or the gap under the cursor, and the time between two marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.rows import kind_title
from llmtop.analysis.timeline.span_facts import Between, SpanFacts, track_name
from llmtop.frozen import frozen
from llmtop.tui.render.lines import Part, wrap
from llmtop.units import binary_bytes, count, duration, percent

if TYPE_CHECKING:
    from llmtop.analysis.timeline.gaps import Gap
    from llmtop.analysis.timeline.spans import TraceTimeline
    from llmtop.tui.render.look import Look

_TOLD = 3


@frozen
class SharedCell:
    """The cell under the cursor: how many spans it has, the share of it in which there is any, and whose it shows."""

    spans: int
    covered: float
    is_longest: bool


def span_lines(
    timeline: TraceTimeline, facts: SpanFacts, cell: SharedCell, width: int, look: Look
) -> Iterator[Sequence[Part]]:
    """A span in full, the most telling lines first; the name takes as many as it needs.

    Args:
        timeline: That it is of.
        facts: The span.
        cell: That it is drawn in.
        width: Of a line.
        look: Of the screen.
    """
    head = f"{facts.what} "
    number = cell.spans
    several = f" {'x' if look.glyphs.ascii else '×'}{count(number)} " if number > 1 else ""
    first, *rest = wrap(facts.name or "(no name)", max(20, width - len(head) - len(several)), look)
    yield (head, "dim"), (several, "selected"), (first, "value")
    yield _times(timeline, facts)
    if number > 1:
        rank = "this is" if cell.is_longest else "it shows"
        said = (
            f"{count(number)} spans share this cell, {percent(100 * cell.covered)} of it is covered; {rank} the longest"
        )
        yield ((said, "selected"),)
    if (pair := _pair(timeline, facts)) is not None:
        yield pair
    if facts.ranges:
        yield ("in ", "dim"), (f" {look.glyphs.arrow} ".join(facts.ranges), "text")
    for told in facts.told:
        yield from (((line, "text"),) for line in wrap(told, width, look))
    for more in rest:
        yield (" " * len(head), "dim"), (more, "value")


def _times(timeline: TraceTimeline, facts: SpanFacts) -> Sequence[Part]:
    start = duration(facts.start_ns - timeline.start_ns)
    parts = [("took ", "dim"), (duration(facts.duration_ns), "value"), (" at ", "dim"), (start, "text")]
    parts += [(" on ", "dim"), (facts.track, "text")]
    if facts.grid is not None and facts.block is not None:
        grid, block = (" x ".join(map(str, dims)) for dims in (facts.grid, facts.block))
        parts += [("  grid ", "dim"), (grid, "text"), (" block ", "dim"), (block, "text")]
    if facts.bytes is not None:
        rate = facts.bytes / facts.duration_ns if facts.duration_ns else 0.0
        parts += [("  ", "dim"), (binary_bytes(facts.bytes), "text"), (f" at {rate:.3g} GB/s" if rate else "", "text")]
    if facts.correlation >= 0:
        parts += [("  correlation ", "dim"), (str(facts.correlation & _LOW), "dim")]
    return parts


_LOW = (1 << 32) - 1
"""CUPTI's own number: what stands above tells processes apart."""


def _pair(timeline: TraceTimeline, facts: SpanFacts) -> Sequence[Part] | None:
    """The launch of a work, or the work of a launch."""
    if facts.partner is None:
        return None
    kind, name = timeline.name(facts.partner)
    if facts.launch_ns is not None:
        queue = "not queued" if facts.queue_ns is None else f"queued {duration(facts.queue_ns)}"
        parts = [("g: launched ", "dim"), (f"{duration(facts.launch_ns)} before", "value"), (f", {queue}", "text")]
        spans, row = timeline.span(facts.partner)
        thread = track_name(timeline.trace, spans.tracks[spans.track_id[row]])
        return [*parts, (" by ", "dim"), (name, "text"), (" on ", "dim"), (thread, "text")]
    start = timeline.times(facts.partner)[0]
    number = "" if facts.partners == 1 else f"{count(facts.partners)} works, the first "
    delay = f"{duration(start - facts.start_ns)} later "
    return ("g: launched ", "dim"), (number, "value"), (delay, "value"), (f"{kind_title(kind)} {name}", "text")


def gap_line(gap: Gap, *, in_full: bool) -> Sequence[Part]:
    """Why a GPU had nothing to do: the largest reasons, or all."""
    parts: list[Part] = [("nothing to do for ", "dim"), (duration(gap.end_ns - gap.start_ns), "value"), (": ", "dim")]
    shown = len(gap.said) if in_full else _TOLD
    told = ", ".join(f"{said} {duration(ns)}" for said, ns in gap.said[:shown])
    more = len(gap.said) - shown
    return [*parts, (told + (f" and {more} more" if more > 0 else ""), "text")]


def between_line(measured: Between) -> Sequence[Part]:
    """The time between two marks."""
    busy = "".join(f"  {title} at work {percent(100 * share)}" for title, share in measured.busy)
    kernels = f"  {count(measured.kernels)} kernel{'s' * (measured.kernels != 1)} began"
    length = duration(measured.end_ns - measured.start_ns)
    return ("between the marks ", "dim"), (length, "selected"), (busy + kernels, "text")
