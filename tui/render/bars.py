"""Stall bars: for each kernel what its warps wait for, as shares of the waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmtop.tui.render.lines import Part, cut_middle, fill, line, pad, stacked_bar, width_of
from llmtop.tui.render.look import STALLS, Look
from llmtop.units import percent

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.stalls import StallBar

OTHER = "other"
_LEAST_BAR = 12
_SHARE_WIDTH = 6


def ranked_reasons(bars: Sequence[StallBar]) -> tuple[str, ...]:
    """The reasons that weigh most over all kernels, at most one fewer than there are roles, then "other"."""
    weights: dict[str, float] = {}
    for bar in bars:
        for reason, share in bar.shares:
            weights[reason] = weights.get(reason, 0.0) + share * max(bar.total, 1e-9)
    ranked = sorted(weights, key=lambda reason: -weights[reason])
    if len(ranked) <= len(STALLS):
        return tuple(ranked)
    return (*ranked[: len(STALLS) - 1], OTHER)


def draw_stall_bars(
    bars: Sequence[StallBar], width: int, height: int, look: Look, *, cursor: int = 0, top: int = 0
) -> list[Strip]:
    """A line for each kernel from `top` on, the legend, and the shares of the kernel under the cursor."""
    reasons = ranked_reasons(bars)
    foot = _foot(bars, reasons, width, height, look, cursor)
    name_width = max(8, min(48, width - _SHARE_WIDTH - 4 - max(_LEAST_BAR, width // 2)))
    head = [
        (pad("kernel", name_width, look), "header"),
        ("    time  ", "header"),
        ("what its warps wait for", "header"),
    ]
    rows = [line(head, width, look)]
    for i, bar in enumerate(bars[top : top + bar_rows(bars, width, height, look)], top):
        rows.append(_bar(bar, reasons, name_width, width, look, is_cursor=i == cursor))
    return [*fill(rows, width, height - len(foot), look), *foot]


def bar_rows(bars: Sequence[StallBar], width: int, height: int, look: Look) -> int:
    """How many kernels `draw_stall_bars` shows at once."""
    return max(1, height - 1 - len(_legend(ranked_reasons(bars), width, look)) - _detail_rows(height))


def _detail_rows(height: int) -> int:
    return 2 if height >= 10 else 0


def _bar(bar: StallBar, reasons: Sequence[str], name_width: int, width: int, look: Look, *, is_cursor: bool) -> Strip:
    role = "cursor" if is_cursor else "text"
    parts: list[Part] = [
        (pad(cut_middle(bar.kernel, name_width, look), name_width, look), role),
        (percent(bar.total * 100).rjust(_SHARE_WIDTH + 2), role),
        ("  ", "text"),
    ]
    room = max(1, width - name_width - _SHARE_WIDTH - 4)
    if bar.why_not is not None:
        return line([*parts, (str(bar.why_not), "dim")], width, look)
    return line([*parts, *stacked_bar(_by_reason(bar, reasons), room, look)], width, look)


def _by_reason(bar: StallBar, reasons: Sequence[str]) -> list[tuple[float, str]]:
    """Shares in the order of all bars, so that a reason has the same fill and colour in each."""
    known = dict(bar.shares)
    rest = sum(share for reason, share in bar.shares if reason not in reasons)
    shares = [known.get(reason, rest if reason == OTHER else 0.0) for reason in reasons]
    return list(zip(shares, STALLS, strict=False))


def _legend(reasons: Sequence[str], width: int, look: Look) -> list[Strip]:
    fills = look.glyphs.fills
    lines: list[list[Part]] = [[]]
    used = 0
    for i, reason in enumerate(reasons):
        size = width_of(reason) + 4
        if used and used + size > width:
            lines.append([])
            used = 0
        lines[-1] += [(fills[i % len(fills)], STALLS[i]), (f" {reason}  ", "text")]
        used += size
    return [line(parts, width, look) for parts in lines if parts]


def _foot(
    bars: Sequence[StallBar], reasons: Sequence[str], width: int, height: int, look: Look, cursor: int
) -> list[Strip]:
    legend = _legend(reasons, width, look)
    if not _detail_rows(height) or not 0 <= cursor < len(bars):
        return legend
    bar = bars[cursor]
    shares = f" {look.glyphs.separator} ".join(f"{reason} {percent(share * 100)}" for reason, share in bar.shares)
    text = shares or str(bar.why_not or "")
    notes = f" {look.glyphs.separator} ".join([*([bar.unit] if bar.unit else []), *bar.notes])
    return [*legend, line([(text, "value")], width, look), line([(notes, "dim")], width, look)]
