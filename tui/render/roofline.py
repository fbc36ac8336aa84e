"""The roofline: FLOP per byte against FLOP per second, both logarithmic, under the machine's ceilings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from textual.strip import Strip

from llmtop.analysis.views import Quality, RooflinePoint, RooflineView, has_place
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.tui.render.canvas import DOTS_X, DOTS_Y, Canvas
from llmtop.tui.render.lines import Part, cut, cut_middle, explain, fill, line, prose, width_of, without_asides
from llmtop.tui.render.look import Look
from llmtop.units import number, percent, si

_MARGIN = 5
"""Cells left of the plot: four of a tick's label, then the axis."""

_LABEL_ROOM = 12
"""Cells that a point's label keeps before facts about it are left out."""

_LEAST_HEIGHT = 5
_TWO_LINES = 14
"""From so many rows on, what is known of a point may take two."""
_ALL_NOTES = 24
"""From so many rows on, notes may take a third of them."""
_SMALL, _LARGE = 0.02, 0.15
"""Shares of the time from which a dot is drawn larger."""

_GHOST_HEIGHT = 12
"""A plot of fewer rows keeps its decades for the work: ghosts outside of them are left out."""

_MOST_LABELLED = 4
"""Beyond so many points their names would hide the picture: a report's kernels are named in the table."""

_UNIT = "FLOP/s"
_SECOND_HALF = re.compile(r"[:;] ")
_OFF_SCALE = Unknown("no FLOPs or no bytes were counted, so there is no place on a log scale")
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


@frozen
class _Axes:
    """Decades [x0, x1] by [y0, y1] over a plot of `width` x `height` cells that starts at column `left`."""

    x0: float
    x1: float
    y0: float
    y1: float
    left: int
    width: int
    height: int

    def x(self, intensity: float) -> int:
        """The dot column of an intensity."""
        share = (math.log10(intensity) - self.x0) / (self.x1 - self.x0)
        return self.left * DOTS_X + round(share * (self.width * DOTS_X - 1))

    def y(self, flops_per_s: float) -> int:
        """The dot row of a rate."""
        share = (math.log10(flops_per_s) - self.y0) / (self.y1 - self.y0)
        return round((1 - share) * (self.height * DOTS_Y - 1))

    def holds(self, point: RooflinePoint) -> bool:
        """Whether a point has a place inside."""
        if not has_place(point):
            return False
        x, y = math.log10(point.intensity), math.log10(point.flops_per_s)
        return self.x0 <= x <= self.x1 and self.y0 <= y <= self.y1

    def col(self, intensity: float) -> int:
        """The cell column of an intensity."""
        return self.x(intensity) // DOTS_X

    def row(self, flops_per_s: float) -> int:
        """The cell row of a rate."""
        return self.y(flops_per_s) // DOTS_Y


def draw_roofline(
    view: RooflineView, width: int, height: int, look: Look, *, selected: int | None = None
) -> list[Strip]:
    """The roofline in `width` x `height` cells.

    From top to bottom: what is known of the first (or the `selected`) point, the plot, the axis, then refusals and
    notes as far as there is room. `selected` indexes `view.points`.
    """
    if view.why_not is not None and not view.points:
        return explain(view.why_not, width, height, look)
    if height < _LEAST_HEIGHT or width < 2 * _MARGIN:
        return fill(_summary(view, width, 1, look, selected), width, height, look)
    top = _summary(view, width, 2 if height >= _TWO_LINES else 1, look, selected)
    bottom = _notes(view, width, height // 3 if height >= _ALL_NOTES else max(0, height // 4 - 1), look)
    plot_height = height - len(top) - len(bottom)
    return fill([*top, *_plot(view, width, plot_height, look, selected), *bottom], width, height, look)


def _summary(view: RooflineView, width: int, most: int, look: Look, selected: int | None) -> list[Strip]:
    """What is known of a point: numbers are left out, the last first, then who tells, but never how sure it is."""
    if not view.points:
        return []
    point = view.points[selected or 0]
    mark, role = (look.glyphs.now, "selected") if selected is not None else _mark(point, look, is_first=True)
    facts = [f"{number(point.intensity)} FLOP/B", si(point.flops_per_s, _UNIT), si(point.bytes_per_s, "B/s")]
    if point.roof_fraction is not None:
        facts.insert(0, f"{percent(point.roof_fraction * 100)} of roof")
    quality = "" if point.quality is Quality.MEASURED else f" {point.quality}"
    level = "" if point.level == "DRAM" else f" {point.level}"
    basis = f"{point.precision}{level} {point.source}{quality}"
    least = min(_LABEL_ROOM, width_of(point.label))
    is_split = most > 1 and _room([*facts, basis], width) < least
    if not is_split and _room([facts[0], basis], width) < least:
        basis = f"{point.precision}{level}{quality}"
    told = [] if is_split else [cut(basis, max(20, width // 2), look)]
    while len(facts) > 1 and _room([*facts, *told], width) < least:
        facts.pop()
    room = max(3, _room([*facts, *told], width))
    label = (cut if room < least else cut_middle)(point.label, room, look)
    parts: list[Part] = [(f"{mark} ", role), (label, "title"), ("  ", "text")]
    parts += [(f"{fact}  ", "value") for fact in facts]
    parts.append((basis if not is_split else "", "dim"))
    return [line(parts, width, look), *([line([(f"  {basis}", "dim")], width, look)] if is_split else [])]


def _room(facts: Sequence[str], width: int) -> int:
    """Cells left for the label beside the facts."""
    return width - sum(width_of(text) + 2 for text in facts) - 2


def _notes(view: RooflineView, width: int, most: int, look: Look) -> list[Strip]:
    """The notes, in short where there is no room for all; then the last ones are left out, whole."""
    texts = list(view.notes)
    texts += [f"{what} {look.glyphs.separator} {why}" for what, why in _refused(view)]
    wrapped = [prose(text, width, look, "dim") for text in texts]
    if sum(len(rows) for rows in wrapped) > most:
        wrapped = [prose(_in_short(text), width, look, "dim") for text in texts]
    strips: list[Strip] = []
    for rows in wrapped:
        strips += rows if len(strips) + len(rows) <= most else []
    return strips


def _in_short(note: str) -> str:
    """A note without asides and without its second half.

    >>> _in_short("at 1929 MHz (power cap) the bf16 roof is 1.04 PFLOP/s; the one drawn is at 1830 MHz")
    'at 1929 MHz the bf16 roof is 1.04 PFLOP/s'
    """
    return without_asides(note).partition("; ")[0]


def _refused(view: RooflineView) -> Iterable[tuple[str, str]]:
    """Refusals by reason, the most frequent first; points that logarithms cannot place are one group.

    Reasons that differ only in a second half (a measured value, say) are one; alone, a reason keeps it.
    """
    groups: dict[tuple[str, str], list[tuple[str, Unknown]]] = {}
    refused = [(refusal.label, refusal.why) for refusal in view.refusals]
    refused += [(point.label, _OFF_SCALE) for point in view.points if not has_place(point)]
    for label, why in refused:
        groups.setdefault((_SECOND_HALF.split(why.reason, maxsplit=1)[0], why.remedy), []).append((label, why))
    for (reason, remedy), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        if len(members) == 1:
            yield members[0][0], str(members[0][1])
        else:
            yield f"{len(members)} not drawn", str(Unknown(reason, remedy))


# -- the plot --------------------------------------------------------------------------------------------------


def _plot(view: RooflineView, width: int, height: int, look: Look, selected: int | None) -> list[Strip]:
    axis_rows = 2 if height >= 8 else 1
    axes = _axes(view, width, height - axis_rows)
    canvas = Canvas(width, height, look)
    _draw_axes(canvas, axes, look, with_line=axis_rows == 2)
    _draw_roofs(canvas, axes, view)
    _draw_band(canvas, axes, view)
    _draw_ghosts(canvas, axes, view, look)
    _draw_points(canvas, axes, view.points, look, selected)
    _label_roofs(canvas, axes, view, look)
    _label_points(canvas, axes, view)
    _place(canvas, [(axes.left + 1, row, False) for row in range(2)], _UNIT, "dim")
    return canvas.strips()


def _axes(view: RooflineView, width: int, height: int) -> _Axes:
    """Whole decades around the points and the ridge points, so that a moving point does not move the axes."""
    memory = [roof.value for roof in view.roofs_of("memory")]
    compute = [roof.value for roof in view.roofs_of("compute")]
    ridges = [peak / bandwidth for peak in compute for bandwidth in memory]
    placed = [point for point in view.points if has_place(point)]
    ghosts = [point for point in view.ghosts if has_place(point)] if height >= _GHOST_HEIGHT else []
    xs = [point.intensity for point in placed] + ridges
    ys = [point.flops_per_s for point in placed] + compute
    ys += _band(view) or ()
    x0, x1 = _decades(xs, below=1.0, above=1.0)
    ys += [point.flops_per_s for point in ghosts]
    if ghosts:
        ghost_x0, ghost_x1 = _decades([point.intensity for point in ghosts], below=0.1, above=0.1)
        x0, x1 = min(x0, ghost_x0), max(x1, ghost_x1)
    y0, y1 = _decades(ys, below=0.3, above=0.15)
    return _Axes(x0, x1, min(y0, y1 - 2), y1, _MARGIN, max(1, width - _MARGIN), max(1, height))


def _decades(values: Sequence[float], *, below: float, above: float) -> tuple[float, float]:
    """The range of log10 in whole decades below and thirds above, with room on both sides."""
    if not values:
        return 0.0, 3.0
    low = math.floor(math.log10(min(values)) - below)
    high = math.ceil((math.log10(max(values)) + above) * 3) / 3
    return float(low), max(high, low + 1.0)


def _tick(exponent: int) -> str:
    """A power of ten in at most four characters.

    >>> [_tick(e) for e in (-2, 0, 2, 4, 14, 15)]
    ['0.01', '1', '100', '10k', '100T', '1P']
    """
    if exponent < 0:
        return f"{10.0**exponent:g}"
    thousands, rest = divmod(exponent, 3)
    return f"{10**rest}{_PREFIXES[thousands] if thousands < len(_PREFIXES) else f'e{3 * thousands}'}"


def _draw_axes(canvas: Canvas, axes: _Axes, look: Look, *, with_line: bool) -> None:
    glyphs = look.glyphs
    for row in range(axes.height):
        canvas.text(axes.left - 1, row, glyphs.vertical, "dim")
    taken = -1
    for exponent in range(math.floor(axes.y1), math.ceil(axes.y0) - 1, -1):
        row = axes.row(10.0**exponent)
        if row > taken and row < axes.height:
            canvas.text(0, row, _tick(exponent).rjust(axes.left - 1), "dim")
            canvas.text(axes.left - 1, row, glyphs.tick_y, "dim")
            taken = row
    if with_line:
        canvas.text(axes.left - 1, axes.height, glyphs.corner + glyphs.horizontal * axes.width, "dim")
    unit = "FLOP/B"
    labels = axes.height + (1 if with_line else 0)
    canvas.text(axes.left + axes.width - len(unit), labels, unit, "dim")
    for exponent in range(math.ceil(axes.x0), math.floor(axes.x1) + 1):
        col, text = axes.col(10.0**exponent), _tick(exponent)
        start = max(0, col - len(text) // 2)
        if canvas.is_free(start - 1, labels, len(text) + 2):
            canvas.text(start, labels, text, "dim")
            if with_line:
                canvas.text(col, axes.height, glyphs.tick_x, "dim")


def _draw_roofs(canvas: Canvas, axes: _Axes, view: RooflineView) -> None:
    for roof in view.roofs:
        for value, every in ((roof.value, 1), (roof.now, 2), (roof.practical, 4)):
            if value is None or value <= 0:
                continue
            if roof.kind == "memory":
                x0, x1 = _slope(axes, view, value)
                canvas.line(axes.x(x0), axes.y(x0 * value), axes.x(x1), axes.y(x1 * value), "memory", every=every)
            else:
                left, right = _flat(axes, view, value)
                canvas.line(axes.x(left), axes.y(value), axes.x(right), axes.y(value), "compute", every=every)


def _slope(axes: _Axes, view: RooflineView, bandwidth: float) -> tuple[float, float]:
    """The intensities between which a memory roof is drawn: from the plot's edge to the highest compute roof."""
    peaks = [roof.value for roof in view.roofs_of("compute")]
    top = max(peaks, default=10.0**axes.y1)
    start = max(10.0**axes.x0, 10.0**axes.y0 / bandwidth)
    return start, max(start, min(10.0**axes.x1, top / bandwidth))


def _flat(axes: _Axes, view: RooflineView, peak: float) -> tuple[float, float]:
    """The intensities between which a compute roof is drawn: from the fastest memory's ridge to the edge."""
    bandwidths = [roof.value for roof in view.roofs_of("memory")]
    ridge = peak / max(bandwidths) if bandwidths else 10.0**axes.x0
    return max(10.0**axes.x0, min(ridge, 10.0**axes.x1)), 10.0**axes.x1


def _label_roofs(canvas: Canvas, axes: _Axes, view: RooflineView, look: Look) -> None:
    """Each label at the first place where it covers no text and, if it can be, no line."""
    for roof in view.roofs:
        if roof.value <= 0:
            continue
        if roof.kind == "compute":
            name, places = f"{roof.level} {si(roof.value, _UNIT)}", _beside_flat(axes, view, roof.value)
            at = [] if roof.mhz is None else [f"{name} at {roof.mhz:.0f} MHz"]
            if not any(_place(canvas, places, text, "compute", covers_lines=False) for text in (*at, name)):
                _place(canvas, places, name, "compute")
        else:
            _place(canvas, _beside_slope(axes, view, roof.value), f"{roof.level} {si(roof.value, 'B/s')}", "memory")
    for roof in view.roofs:
        if roof.now is not None and roof.now > 0 and axes.row(roof.now) != axes.row(roof.value):
            clock = "this clock" if roof.now_mhz is None else f"{roof.now_mhz:.0f} MHz, now"
            _place(canvas, _beside_flat(axes, view, roof.now), f"{si(roof.now, _UNIT)} at {clock}", "dim")


def _beside_flat(axes: _Axes, view: RooflineView, peak: float) -> list[tuple[int, int, bool]]:
    row = axes.row(peak)
    right = axes.left + axes.width
    return [(right - back, at, True) for at in (row - 1, row + 1, row) for back in range(0, axes.width // 2, 6)]


def _beside_slope(axes: _Axes, view: RooflineView, bandwidth: float) -> list[tuple[int, int, bool]]:
    """Right of and below the line, from its middle outwards; then left of it."""
    x0, x1 = (math.log10(x) for x in _slope(axes, view, bandwidth))
    shares = (0.5, 0.35, 0.65, 0.2, 0.8, 0.08)
    spots = [(axes.col(x), axes.row(x * bandwidth)) for x in (10.0 ** (x0 + (x1 - x0) * share) for share in shares)]
    below = [(col + 2, row + 1, False) for col, row in spots]
    return below + [(col - 1, row - 1, True) for col, row in spots]


def _place(
    canvas: Canvas, places: list[tuple[int, int, bool]], text: str, role: str, *, covers_lines: bool = True
) -> bool:
    """Write at the good place where it covers least of the lines, if there is any; without `covers_lines`, none.

    Places are (column, row, whether the column is where the text ends).
    """
    size = width_of(text)
    starts = [(col - size if is_end else col, row) for col, row, is_end in places]
    free = [(col, row) for col, row in starts if col >= _MARGIN and canvas.is_free(col - 1, row, size + 1)]
    covered = {(col, row): canvas.dotted(col, row, size) for col, row in free}
    best = min(free, key=covered.__getitem__, default=None)
    if best is None or (covered[best] and not covers_lines):
        return False
    canvas.text(*best, text, role)
    return True


def _label_points(canvas: Canvas, axes: _Axes, view: RooflineView) -> None:
    """Names beside what is not the first point: an estimate, the decode model's batches; as far as there is room."""
    others = [point for point in view.points[1:] if point.age_s == 0 and has_place(point)]
    if len(others) <= _MOST_LABELLED:
        for point in others:
            _place(canvas, _around(axes, point), point.label, "series4")
    # The longest name is that of the batch of now: it comes first, because on a small plot not all find a place.
    for point in sorted(view.ghosts, key=lambda ghost: -len(ghost.label)):
        if axes.holds(point):
            _place(canvas, _above(axes, point), point.label, "dim")


def _around(axes: _Axes, point: RooflinePoint) -> list[tuple[int, int, bool]]:
    """Right of a mark, left of it, then the lines below and above."""
    col, row = axes.col(point.intensity), axes.row(point.flops_per_s)
    return [(col + 2, row, False), (col - 1, row, True)] + [(col, at, False) for at in (row + 1, row - 1)]


def _above(axes: _Axes, point: RooflinePoint) -> list[tuple[int, int, bool]]:
    """Left of and above a point of the memory roof, where no work can stand."""
    col, row = axes.col(point.intensity), axes.row(point.flops_per_s)
    return [(col, row - 1, True), (col - 1, row, True), (col + 2, row + 1, False)]


def _draw_ghosts(canvas: Canvas, axes: _Axes, view: RooflineView, look: Look) -> None:
    for point in view.ghosts:
        if axes.holds(point):
            mark = look.glyphs.tick_y
            canvas.text(axes.col(point.intensity), axes.row(point.flops_per_s), mark, "dim")


def _draw_band(canvas: Canvas, axes: _Axes, view: RooflineView) -> None:
    """The newest point's range where its precision is ambiguous, as a vertical line."""
    band = _band(view)
    if band is not None:
        x = axes.x(view.points[0].intensity)
        for at in (x, x + 1):
            canvas.line(at, axes.y(band[0]), at, axes.y(band[1]), "band")


def _band(view: RooflineView) -> tuple[float, float] | None:
    """The band, where it is one and has a point to stand at."""
    if view.band is None or not view.points or not has_place(view.points[0]):
        return None
    low, high = view.band
    return view.band if 0 < low <= high < math.inf else None


def _draw_points(
    canvas: Canvas, axes: _Axes, points: Sequence[RooflinePoint], look: Look, selected: int | None
) -> None:
    """The trail as dots that fade with age, then the marks, lightest first so that the heavy ones stay visible."""
    placed = [(i, point) for i, point in enumerate(points) if has_place(point)]
    oldest = max((point.age_s for _, point in placed), default=0.0)
    for _, point in sorted(placed, key=lambda pair: -pair[1].age_s):
        if point.age_s > 0:
            role = "point" if point.age_s < oldest / 3 else "trail"
            canvas.dot(axes.x(point.intensity), axes.y(point.flops_per_s), role)
    marks = [(i, point) for i, point in placed if point.age_s == 0]
    marks.sort(key=lambda pair: (pair[0] == (selected or 0), pair[1].weight))
    for i, point in marks:
        mark, role = _mark(point, look, is_first=i == 0 and selected is None)
        role = "selected" if i == selected else role
        mark = look.glyphs.now if i == selected else mark
        canvas.text(axes.col(point.intensity), axes.row(point.flops_per_s), mark, role)


def _mark(point: RooflinePoint, look: Look, *, is_first: bool) -> tuple[str, str]:
    """The character and role of a point: its shape tells its quality, its size its weight."""
    glyphs = look.glyphs
    if point.quality is Quality.ESTIMATE:
        return glyphs.estimate, "series4"
    if point.quality is Quality.UPPER_BOUND:
        return glyphs.upper_bound, "series3"
    if is_first:
        return glyphs.now, "selected"
    size = 2 if point.weight >= _LARGE else 1 if point.weight >= _SMALL else 0
    return glyphs.dots[size], "point"
