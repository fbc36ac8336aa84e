"""Stall bars: for each kernel what its warps wait for, as shares of the waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.stalls import PALETTE, REASONS, UNNAMED
from llmtop.tui.render.lines import Part, cut_middle, fill, line, pad, stacked_bar, width_of
from llmtop.tui.render.look import STALLS, Look
from llmtop.units import percent

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.kernels.stalls import StallBar
    from llmtop.analysis.views import StackTree

REST = "the rest"
_LEAST_BAR = 12
_MEANING_HEIGHT = 14
"""From so many rows on there is one for what the first reason means."""
_SHARE_WIDTH = 6


def reason_role(reason: str) -> str:
    """The role of a stall reason: one colour, wherever it is drawn."""
    return STALLS[PALETTE.get(reason, UNNAMED)[0] - 1]


def reason_fill(reason: str, rank: int, look: Look) -> str:
    """What a stall reason is filled with: the shade of its colour, or without colours what its rank gives."""
    shades, fills = look.glyphs.shades, look.glyphs.fills
    return shades[PALETTE.get(reason, UNNAMED)[1] - 1] if shades else fills[rank % len(fills)]


def ranked_reasons(bars: Sequence[StallBar]) -> tuple[str, ...]:
    """The reasons that weigh most over all kernels, at most one fewer than there are fills, then the rest."""
    weights: dict[str, float] = {}
    for bar in bars:
        for reason, share in bar.shares:
            weights[reason] = weights.get(reason, 0.0) + share * max(bar.total, 1e-9)
    ranked = sorted(weights, key=lambda reason: -weights[reason])
    if len(ranked) <= len(STALLS):
        return tuple(ranked)
    return (*ranked[: len(STALLS) - 1], REST)


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
    return 3 if height >= _MEANING_HEIGHT else 2 if height >= 10 else 0


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
    fills = [reason_fill(reason, rank, look) for rank, reason in enumerate(reasons)]
    return line([*parts, *stacked_bar(_by_reason(bar, reasons), room, look, fills)], width, look)


def _by_reason(bar: StallBar, reasons: Sequence[str]) -> list[tuple[float, str]]:
    """Shares in the order of all bars, so that a reason has the same place in each."""
    known = dict(bar.shares)
    rest = sum(share for reason, share in bar.shares if reason not in reasons)
    shares = [known.get(reason, rest if reason == REST else 0.0) for reason in reasons]
    return list(zip(shares, map(reason_role, reasons), strict=True))


def _legend(reasons: Sequence[str], width: int, look: Look) -> list[Strip]:
    lines: list[list[Part]] = [[]]
    used = 0
    for i, reason in enumerate(reasons):
        size = width_of(reason) + 4
        if used and used + size > width:
            lines.append([])
            used = 0
        lines[-1] += [(reason_fill(reason, i, look), reason_role(reason)), (f" {reason}  ", "text")]
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
    top = bar.shares[0][0] if bar.shares else ""
    meaning = f"{top}: {REASONS[top]} (m: all of them)" if top in REASONS else ""
    said = [(text, "value"), (meaning, "text"), (notes, "dim")]
    rows = said if _detail_rows(height) == len(said) else [said[0], said[-1]]
    return [*legend, *(line([row], width, look) for row in rows)]


def reason_lines(tree: StackTree, width: int, look: Look) -> list[Strip]:
    """What each reason costs of all kernels' time, what it means, and where most of it is; of a tree by reason."""
    nodes = tree.root.children
    longest = max((width_of(node.name) for node in nodes), default=0)
    strips = [line([("of all kernels' time, by reason", "header")], width, look)]
    for rank, node in enumerate(nodes):
        where = f", most of it in {node.children[0].name}" if node.children else ""
        parts: list[Part] = [
            (f"{reason_fill(node.name, rank, look) * 2} ", reason_role(node.name)),
            (pad(node.name, longest, look), "text"),
            (f" {percent(node.total):>6}  ", "value"),
            (REASONS.get(node.name, "") + where, "dim"),
        ]
        strips.append(line(parts, width, look))
    return strips


def meaning_lines(width: int, look: Look) -> list[Strip]:
    """All reasons in their colours, with what they mean."""
    longest = max(map(width_of, REASONS))
    return [
        line(
            [
                (f" {reason_fill(reason, rank, look) * 2} ", reason_role(reason)),
                (pad(reason, longest, look), "value"),
                (f"  {meaning}", "text"),
            ],
            width,
            look,
        )
        for rank, (reason, meaning) in enumerate(REASONS.items())
    ]
