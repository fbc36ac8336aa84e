"""The pictures of a recording on a page: lanes on one time axis, and where threads were, as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from llmtop.analysis.views import NodeKind
from llmtop.model import NS_PER_S
from llmtop.text import shorten
from llmtop.units import percent, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.views import Lane, Lanes, StackNode, StackTree

_WIDTH = 860
_LEFT, _RIGHT = 150, 96
"""For names before the lanes, and their last values behind them."""
_LANE, _GAP = 34, 8
_AXIS = 22
_TICKS = 4
_FRAME = 18
_DEEPEST = 48
"""Rows of a flame: what is deeper is narrow, and said."""
_NARROWEST = 0.8
_CHARACTER = 6.65
"""Of a name in a flame: 11 px of a monospaced font."""
_MARGIN = 8
_STATES = {NodeKind.RUNNING: "f-run", NodeKind.QUEUED: "f-queue", NodeKind.WAITING: "f-wait"}


def lanes_svg(lanes: Lanes) -> Iterator[str]:
    """One row for each lane that has samples; over all of them the moments at which something happened."""
    drawn = [lane for lane in lanes.lanes if lane.why_not is None]
    height = len(drawn) * (_LANE + _GAP) + _AXIS
    yield f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Lanes">\n'
    for row, lane in enumerate(drawn):
        yield from _lane(lane, lanes, row * (_LANE + _GAP))
    for mark in lanes.marks:
        x = _x(mark.t_ns, lanes)
        line = f'<path class="mark-{escape(mark.severity)}" d="M{x:.1f} 0V{height - _AXIS}"/>'
        yield f"<g>{line}<title>{escape(mark.text)}</title></g>\n"
    for step in range(_TICKS + 1):
        t_ns = lanes.start_ns + step * (lanes.end_ns - lanes.start_ns) // _TICKS
        anchor = {0: "start", _TICKS: "end"}.get(step, "middle")
        yield f'<text x="{_x(t_ns, lanes):g}" y="{height - 6}" text-anchor="{anchor}">{before_end(t_ns, lanes)}</text>'
    yield "</svg>\n"


def before_end(t_ns: int, lanes: Lanes) -> str:
    """A moment, from the end of the lanes."""
    return "the end" if t_ns >= lanes.end_ns else f"{(lanes.end_ns - t_ns) / NS_PER_S:.0f} s before"


def _x(t_ns: int, lanes: Lanes) -> float:
    share = (t_ns - lanes.start_ns) / max(1, lanes.end_ns - lanes.start_ns)
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _lane(lane: Lane, lanes: Lanes, top: float) -> Iterator[str]:
    known = [value for _, value in lane.samples if value is not None]
    high = lane.high if lane.high is not None else max(known, default=0.0)
    scale = (_LANE - 4) / ((high - lane.low) or 1.0)
    steps, is_gap = [], True
    for t_ns, value in lane.samples:
        if value is not None and lanes.start_ns <= t_ns <= lanes.end_ns:
            y = top + _LANE - scale * (min(max(value, lane.low), max(high, lane.low)) - lane.low)
            steps.append(f"{'M' if is_gap else 'L'}{_x(t_ns, lanes):.1f} {y:.1f}")
        is_gap = value is None
    last = quantity(known[-1], lane.unit) if known else "–"
    middle = top + _LANE / 2 + 4
    yield f'<path class="grid" d="M{_LEFT} {top + _LANE}H{_WIDTH - _RIGHT}"/>'
    yield f'<text x="{_LEFT - 8}" y="{middle}" text-anchor="end">{escape(shorten(lane.title, 22))}</text>'
    yield f'<g><path class="lane" d="{"".join(steps)}"/><title>{escape(f"{lane.title} ({lane.source})")}</title></g>'
    yield f'<text class="mark" x="{_WIDTH - _RIGHT + 8}" y="{middle}">{escape(last)}</text>\n'


def flame_svg(tree: StackTree) -> Iterator[str]:
    """The root above, callees below, as wide as their share of the time."""
    places = list(_places(tree))
    rows = 1 + max((depth for _, depth, _, _ in places), default=0)
    yield f'<svg viewBox="0 0 {_WIDTH} {rows * (_FRAME + 1)}" role="img" aria-label="Flame">\n'
    for node, depth, x, width in places:
        share = percent(100 * node.total / tree.root.total)
        place = f'x="{x:.1f}" y="{depth * (_FRAME + 1)}" width="{max(0.5, width - 0.5):.1f}" height="{_FRAME}"'
        name = f"{node.name} {share}, {quantity(node.total, tree.unit)}"
        yield f'<g><rect class="{_STATES.get(node.kind, "f")}" {place}/><title>{escape(name)}</title>'
        room = int((width - _MARGIN) / _CHARACTER)
        if room > 2:
            text = escape(shorten(node.name, room))
            yield f'<text class="frame" x="{x + 4:.1f}" y="{depth * (_FRAME + 1) + 13}">{text}</text>'
        yield "</g>\n"
    yield "</svg>\n"


def _places(tree: StackTree) -> Iterator[tuple[StackNode, int, float, float]]:
    """Each frame that is wide enough: its row, where it begins, how wide it is. Stacks may be a thousand deep."""
    scale = _WIDTH / tree.root.total if tree.root.total else 0.0
    waiting = [(tree.root, 0, 0.0)]
    while waiting:
        node, depth, x = waiting.pop()
        width = node.total * scale
        if width < _NARROWEST or depth >= _DEEPEST:
            continue
        yield node, depth, x, width
        for child in node.children:
            waiting.append((child, depth + 1, x))
            x += child.total * scale
