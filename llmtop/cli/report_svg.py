"""The charts of the HTML report, as SVG that takes its colours from the page's style: light, dark, or on paper."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from llmtop.analysis.kernels.duration_histograms import Histogram
from llmtop.analysis.views import Roof, RooflinePoint, RooflineView, has_place
from llmtop.frozen import frozen
from llmtop.units import number, percent, si

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 470, 88, 16, 12, 44
NUMBERED = 12
"""So many of the heaviest kernels have their number on their dot: more would hide the picture."""
_APART = 15
"""Numbers nearer to each other than this would not be legible: the lighter kernel's is left out."""
_BAR_WIDTH, _BAR_HEIGHT = 340, 150
_CHARACTER = 6.6
"""What a character of a label takes, about."""


@frozen
class BarPart:
    """A part of a bar: its share (0 to 1), the class that colours it, and what it is."""

    share: float
    colour: str
    title: str


def stacked_bar(parts: Iterable[BarPart]) -> str:
    """Shares side by side, as wide as there is room; what is left over stays empty."""
    cells = "".join(
        f'<i class="{part.colour}" style="width:{100 * part.share:.3f}%" title="{escape(part.title)}"></i>'
        for part in parts
        if part.share > 0
    )
    return f'<div class="bar">{cells}</div>'


def roofline_svg(view: RooflineView, *, normalised: bool = False, is_trail: bool = False) -> Iterator[str]:
    """Both axes logarithmic, areas of dots in proportion to time.

    Args:
        view: With points.
        normalised: Intensities as multiples of their own ridge, and FLOP/s as shares of their own roof, so that
            precisions with different roofs stand in one picture.
        is_trail: The points are one thing over time, the newest first.
    """
    plot = _Plot.normalised(view) if normalised else _Plot.physical(view)
    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(plot.title)}">\n'
    yield from plot.grid()
    yield from plot.roofs(view)
    yield from plot.trail() if is_trail else (*plot.dots(), *plot.labels())
    yield "</svg>\n"


@frozen
class _Dot:
    point: RooflinePoint
    x: float
    y: float


@frozen
class _Plot:
    """A plot of whole decades.

    Attributes:
        dots_at: The points with where they stand, in the units of the axes.
        x_axis, y_axis: The first and the last decade.
    """

    title: str
    dots_at: tuple[_Dot, ...]
    x_axis: tuple[int, int]
    y_axis: tuple[int, int]
    is_normalised: bool = False

    @classmethod
    def physical(cls, view: RooflineView) -> _Plot:
        """FLOP/s over FLOP per byte."""
        dots = tuple(_Dot(point, point.intensity, point.flops_per_s) for point in view.points if has_place(point))
        tops = [roof.value for roof in view.roofs_of("compute")]
        ridges = [top / roof.value for top in tops for roof in view.roofs_of("memory")]
        x_axis, y_axis = _decades([dot.x for dot in dots] + ridges), _decades([dot.y for dot in dots] + tops)
        return cls("Roofline", dots, x_axis, y_axis)

    @classmethod
    def normalised(cls, view: RooflineView) -> _Plot:
        """Share of the compute roof over multiples of the ridge, both of the point's own precision and memory level."""
        dots = tuple(
            _Dot(point, point.intensity / ridge, point.flops_per_s / peak)
            for point in view.points
            if has_place(point)
            and (ridge := view.ridge(point.precision, point.level)) is not None
            and (peak := view.roof("compute", point.precision)) is not None
        )
        x_axis = _decades([*(dot.x for dot in dots), 1.0])
        return cls("Normalised roofline", dots, x_axis, (_decades([*(dot.y for dot in dots), 1.0])[0], 0), True)

    def x(self, value: float) -> float:
        """The place of a value of the lower axis."""
        low, high = self.x_axis
        return _LEFT + (math.log10(value) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """The place of a value of the left axis; a fifth of a decade is kept above it."""
        low, high = self.y_axis[0], self.y_axis[1] + 0.2
        return _TOP + (high - math.log10(value)) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    def grid(self) -> Iterator[str]:
        """Lines and labels of the decades."""
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        for decade in _every(self.x_axis, 9):
            x = self.x(10.0**decade)
            yield f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>'
            yield _text(x, bottom + 16, number(10.0**decade), "middle")
        for decade in _every(self.y_axis, 8):
            y = self.y(10.0**decade)
            yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>'
            label = percent(100 * 10.0**decade) if self.is_normalised else _tick(decade)
            yield _text(_LEFT - 6, y + 4, label, "end")
        below = "FLOP per byte of DRAM traffic"
        below = "intensity over that of the ridge (1: both roofs meet)" if self.is_normalised else below
        yield _text((_LEFT + right) / 2, _HEIGHT - 6, below, "middle") + "\n"

    def roofs(self, view: RooflineView) -> Iterator[str]:
        """The ceilings, each with its name."""
        if self.is_normalised:
            yield self._roof("memory", 1.0, 1.0, "")
            yield self._roof("compute", 1.0, 1.0, "")
            return
        slopes = [roof.value for roof in view.roofs_of("memory")]
        flats = [roof.value for roof in view.roofs_of("compute")]
        for roof in view.roofs:
            others = flats if roof.kind == "memory" else slopes
            value = max(others, default=0.0)
            yield self._roof(roof.kind, roof.value, value, _roof_name(roof))

    def _roof(self, kind: str, value: float, other: float, name: str) -> str:
        """A slope up to the highest flat roof, or a flat roof from the steepest slope on."""
        left, right, bottom = 10.0 ** self.x_axis[0], 10.0 ** self.x_axis[1], 10.0 ** self.y_axis[0]
        if kind == "memory":
            start, end = max(left, bottom / value), (min(right, other / value) if other else right)
            x, y = start * 1.15, start * 1.15 * value
            label = _text(self.x(x), self.y(y) - 8, name, "start", kind, turn=self._slope(x, y))
            return f'<path class="{kind}" d="{self._line(start, start * value, end, end * value)}"/>{label}\n'
        start = max(left, value / other) if other else left
        label = _text(self.x(right) - 4, self.y(value) - 5, name, "end", kind)
        return f'<path class="{kind}" d="{self._line(start, value, right, value)}"/>{label}\n'

    def _line(self, x0: float, y0: float, x1: float, y1: float) -> str:
        return f"M{self.x(x0):.1f} {self.y(y0):.1f}L{self.x(x1):.1f} {self.y(y1):.1f}"

    def _slope(self, x: float, y: float) -> float:
        """The angle of a memory roof on the plot, in degrees."""
        return math.degrees(math.atan2(self.y(10 * y) - self.y(y), self.x(10 * x) - self.x(x)))

    def dots(self) -> Iterator[str]:
        """The heaviest first, so that lighter ones lie over them."""
        for dot in sorted(self.dots_at, key=lambda dot: -dot.point.weight):
            point = dot.point
            radius = 3 + 16 * math.sqrt(min(1.0, max(0.0, point.weight)))
            of_roof = "" if point.roof_fraction is None else f", {percent(100 * point.roof_fraction)} of the roof"
            title = f"{point.label}: {percent(100 * point.weight)} of the time{of_roof}"
            place = f'cx="{self.x(dot.x):.1f}" cy="{self.y(dot.y):.1f}" r="{radius:.1f}"'
            yield f'<circle class="dot" {place}><title>{escape(title)}</title></circle>\n'

    def trail(self) -> Iterator[str]:
        """Where it stood, the newest last and largest."""
        for dot in reversed(self.dots_at):
            is_now = dot is self.dots_at[0]
            title = f"{'at the end' if is_now else f'{dot.point.age_s:.0f} s before'}: {dot.point.label}"
            place = f'cx="{self.x(dot.x):.1f}" cy="{self.y(dot.y):.1f}" r="{9 if is_now else 3}"'
            yield f'<circle class="dot" {place}><title>{escape(title)}</title></circle>\n'

    def labels(self) -> Iterator[str]:
        """The numbers of the heaviest points, which the list below the plot explains."""
        taken: list[tuple[float, float]] = []
        for i, dot in enumerate(self.dots_at[:NUMBERED], 1):
            x, y = self.x(dot.x), self.y(dot.y)
            if all(math.dist((x, y), other) >= _APART for other in taken):
                taken.append((x, y))
                yield _text(x, y + 4, str(i), "middle", "mark")


def histogram_svg(histogram: Histogram) -> str:
    """Bars of one histogram, with the edges of its bins below."""
    count = len(histogram.counts)
    top, bottom, left = 14, _BAR_HEIGHT - 22, 4
    step, most = (_BAR_WIDTH - 2 * left) / count, max(histogram.counts)
    parts = []
    for i, launches in enumerate(histogram.counts):
        height = (bottom - top) * launches / most
        place = f'x="{left + i * step + 1:.1f}" y="{bottom - height:.1f}" width="{step - 2:.1f}" height="{height:.1f}"'
        title = f"{histogram.labels[i]} to {histogram.labels[i + 1]}: {launches}"
        parts.append(f'<rect class="bin" {place}><title>{escape(title)}</title></rect>')
        if launches and len(str(launches)) * _CHARACTER < step:
            parts.append(_text(left + (i + 0.5) * step, bottom - height - 3, str(launches), "middle"))
    free = 0.0
    for i, label in enumerate(histogram.labels):
        size = len(label) * _CHARACTER
        x = min(max(left, left + i * step - size / 2), _BAR_WIDTH - left - size)
        if x >= free:
            parts.append(_text(x, _BAR_HEIGHT - 6, label, "start"))
            free = x + size + 6
    axis = f'<path class="grid" d="M{left} {bottom}H{_BAR_WIDTH - left}"/>'
    head = f'<svg viewBox="0 0 {_BAR_WIDTH} {_BAR_HEIGHT}" role="img" aria-label="{escape(histogram.title)}">'
    return f"{head}{axis}{''.join(parts)}</svg>\n"


def _roof_name(roof: Roof) -> str:
    return f"{roof.level} {si(roof.value, 'B/s' if roof.kind == 'memory' else 'FLOP/s')}"


def _decades(values: Sequence[float]) -> tuple[int, int]:
    logs = [math.log10(value) for value in values if value > 0] or [0.0]
    low, high = math.floor(min(logs) - 0.2), math.ceil(max(logs) + 0.1)
    return low, max(high, low + 1)


def _tick(decade: int) -> str:
    """A power of ten of FLOP/s, without digits behind the point.

    >>> _tick(13), _tick(9)
    ('10 TFLOP/s', '1 GFLOP/s')
    """
    amount, unit = si(10.0**decade, "FLOP/s").split(" ")
    return f"{float(amount):g} {unit}"


def _every(axis: tuple[int, int], most: int) -> range:
    """Decades to label, at most so many."""
    low, high = axis
    return range(low, high + 1, max(1, math.ceil((high - low + 1) / most)))


def _text(x: float, y: float, text: str, anchor: str, colour: str = "", *, turn: float = 0.0) -> str:
    turned = f' transform="rotate({turn:.1f} {x:.1f} {y:.1f})"' if turn else ""
    role = f' class="{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{role}{turned}>{escape(text)}</text>'
