"""A kernel's occupancy: what limits it, what would help, and curves over what its blocks need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from textual.strip import Strip

from llmtop.analysis.kernels.occupancy import SmResource
from llmtop.analysis.kernels.occupancy_calculator import BlockNeed
from llmtop.analysis.kernels.occupancy_what_if import RESOURCE_OF, amount
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.text import listed
from llmtop.tui.render.canvas import DOTS_X, DOTS_Y, Canvas
from llmtop.tui.render.lines import Part, bar, line, pad, prose
from llmtop.units import binary_bytes, percent

if TYPE_CHECKING:
    from llmtop.analysis.kernels.occupancy_calculator import BlockFit, BlockNeeds
    from llmtop.analysis.kernels.occupancy_what_if import OccupancyWhatIf
    from llmtop.tui.render.look import Look

NEEDS = tuple(BlockNeed)
_LABEL = 11
_NEED, _VALUE, _BLOCKS = 23, 9, 8
_BAR = 10
_LEAST_ROWS = 5
"""Of a plot, with its title and the line below it."""
_LEAST_COLUMNS = 24
_LEAST_BARRED = 70
"""Columns from which on there is room for bars and remarks."""
_MOST_ROWS = 16
_SHORT = {BlockNeed.REGISTERS: "registers", BlockNeed.BLOCK_SIZE: "threads", BlockNeed.SHARED: "shared memory"}
_LEAST_SPELLED = 32
"""Columns from which on a plot has room for the whole name of what it is over."""
_TICKS = 5
"""Cells left of a plot, for "100 %"."""


@frozen
class OccupancyScreen:
    """What is on the screen.

    Attributes:
        block: The needs that are tried; those of the launch where nothing was changed.
        need: The one that keys change.
    """

    page: OccupancyWhatIf
    block: BlockNeeds
    need: BlockNeed


def draw_occupancy(screen: OccupancyScreen, width: int, height: int, look: Look) -> list[Strip]:
    """The account, and below it the curves as far as there is room for them."""
    rows = [*_said(screen, width, look), *_table(screen, width, look)]
    room = height - len(rows) - 1
    if room < _LEAST_ROWS or width < _LEAST_COLUMNS:
        return rows
    shown = NEEDS if width // len(NEEDS) >= _LEAST_COLUMNS else (screen.need,)
    columns = width // len(shown)
    plots = [_plot(screen, need, columns, min(room, _MOST_ROWS), look) for need in shown]
    blank = line([("", "text")], width, look)
    joined = [Strip.join(strips).adjust_cell_length(width, look.style("text")) for strips in zip(*plots, strict=True)]
    return [*rows, blank, *joined]


def _said(screen: OccupancyScreen, width: int, look: Look) -> Iterator[Strip]:
    page = screen.page
    launched = page.fit(page.launched)
    achieved = page.achieved
    got = f"achieved unknown: {achieved}" if isinstance(achieved, Unknown) else f"{percent(achieved)} achieved"
    yield from _titled("occupancy", f"{_fitting(launched, page)}, {got}", width, look)
    if screen.block != page.launched:
        yield from _titled("what if", _fitting(page.fit(screen.block), page), width, look, "accent")
    helps = [str(change) for change in page.changes]
    yield from _titled("helps", "; ".join(helps) or f"nothing: {page.why_no_change}", width, look)


def _fitting(fit: BlockFit, page: OccupancyWhatIf) -> str:
    """How many blocks fit, and what allows no more."""
    if not fit.blocks:
        return f"no block fits: the launch fails for want of {listed([str(one) for one in fit.limiters])}"
    blocks = f"{fit.blocks} block{'s' * (fit.blocks != 1)}, {fit.warps} of {page.sm.warps} warps an SM"
    limited = "" if fit.share >= 1 else f", limited by {listed([str(one) for one in fit.limiters])}"
    return f"{percent(100 * fit.share)} possible ({blocks}{limited})"


def _titled(title: str, text: str, width: int, look: Look, role: str = "value") -> Iterator[Strip]:
    for i, row in enumerate(prose(text, max(8, width - _LABEL), look)):
        yield line([(pad("" if i else title, _LABEL, look), "header"), (row.text.rstrip(), role)], width, look)


def _table(screen: OccupancyScreen, width: int, look: Look) -> Iterator[Strip]:
    """What a block needs, and of what an SM has how many blocks that suffices for."""
    fit = screen.page.fit(screen.block)
    is_changed = screen.block != screen.page.launched
    tried = f"{'what if':>{_VALUE}}" if is_changed else ""
    yield line([(f"{'':{_NEED}}{'launched':>{_VALUE}}{tried}  blocks an SM", "header")], width, look)
    for need in NEEDS:
        value = screen.page.launched.value(need), screen.block.value(need)
        texts = [f"{amount(need, one):>{_VALUE}}" for one in value[: 1 + is_changed]]
        role = "cursor" if need is screen.need else "text"
        head: list[Part] = [(pad(f" {need}", _NEED, look), role), ("".join(texts), "value")]
        yield line([*head, *_blocks(fit, RESOURCE_OF[need], width, look, _carved(screen, need))], width, look)
    for resource in (SmResource.BLOCKS, SmResource.BARRIERS):
        if resource in fit.limits:
            name = pad(f" {resource}", _NEED + _VALUE * (1 + is_changed), look)
            yield line([(name, "text"), *_blocks(fit, resource, width, look)], width, look)


def _carved(screen: OccupancyScreen, need: BlockNeed) -> str:
    """How much of the SM served as shared memory: the driver takes what it holds to be enough."""
    page = screen.page
    if need is not BlockNeed.SHARED or not page.carveout or page.carveout >= page.sm.shared:
        return ""
    return f"{binary_bytes(page.carveout)} of {binary_bytes(page.sm.shared)}"


def _blocks(fit: BlockFit, resource: SmResource, width: int, look: Look, remark: str = "") -> list[Part]:
    blocks = fit.limits[resource]
    is_limit = resource in fit.limiters and fit.share < 1
    is_wide = width >= _LEAST_BARRED
    said = "limits" if is_limit else remark if is_wide else ""
    most = max(1, min(max(fit.limits.values()), 2 * max(1, fit.blocks)))
    drawn = bar(min(1.0, blocks / most), _BAR if is_wide else 0, look)
    return [(f"{blocks:>{_BLOCKS}}  ", "value"), (drawn, "warn" if is_limit else "dim"), (f" {said}", "dim")]


def _plot(screen: OccupancyScreen, need: BlockNeed, width: int, height: int, look: Look) -> Sequence[Strip]:
    """Occupancy over one need, all else as it is tried."""
    canvas = Canvas(width, height, look)
    columns, rows = width - _TICKS - 2, height - 2
    title = need if width >= _LEAST_SPELLED else _SHORT[need]
    canvas.text(_TICKS + 1, 0, f"by {title}", "selected" if need is screen.need else "header")
    for row, tick in ((1, "100 %"), (rows, "0 %")):
        canvas.text(0, row, tick.rjust(_TICKS), "dim")
    for row in range(1, height - 1):
        canvas.text(_TICKS, row, look.glyphs.vertical, "dim")
    canvas.text(_TICKS, height - 1, _scale(need, screen.page.sm.most(need), columns, look), "dim")
    _draw_curve(canvas, screen, need, DOTS_X * columns - 1, DOTS_Y * rows - 1)
    _draw_marks(canvas, screen, need, look)
    return canvas.strips()


def _draw_curve(canvas: Canvas, screen: OccupancyScreen, need: BlockNeed, right: int, bottom: int) -> None:
    """From dot 0 to the right one, and from the bottom up; a dot shows the value that is nearest to it."""
    curve = screen.page.curve(screen.block, need)
    shares = [curve[round(x * (len(curve) - 1) / right)][1] for x in range(right + 1)]
    heights = [_dot(share, bottom) for share in shares]
    left = DOTS_X * (_TICKS + 1)
    for x, y in enumerate(heights):
        canvas.line(left + x, heights[max(0, x - 1)], left + x, y, "series1")


def _dot(share: float, bottom: int) -> int:
    """How far down a share of the warps stands, in dots: below the title."""
    return round((1 - share) * bottom) + DOTS_Y


def _draw_marks(canvas: Canvas, screen: OccupancyScreen, need: BlockNeed, look: Look) -> None:
    """Where the launch stands, and over it what is tried."""
    page, glyphs = screen.page, look.glyphs
    right, bottom = DOTS_X * (canvas.width - _TICKS - 2) - 1, DOTS_Y * (canvas.height - 2) - 1
    tried = screen.block.value(need)
    marks = [(page.launched.value(need), glyphs.dots[-1], "point"), (tried, glyphs.now, "selected")]
    for value, mark, role in marks[: 1 + (tried != page.launched.value(need))]:
        x = min(right, round(right * value / page.sm.most(need)))
        y = _dot(page.fit(screen.block.but({need: value})).share, bottom)
        canvas.text(_TICKS + 1 + x // DOTS_X, y // DOTS_Y, mark, role)


def _scale(need: BlockNeed, most: int, columns: int, look: Look) -> str:
    """The line below a plot: where it begins and ends."""
    start, end = ("0", binary_bytes(most)) if need is BlockNeed.SHARED else ("1", str(most))
    return look.glyphs.corner + start + look.glyphs.horizontal * max(0, columns - len(start) - len(end)) + end
