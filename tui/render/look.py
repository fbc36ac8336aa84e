"""How things look: roles that drawing code names, and the styles and characters they stand for.

Drawing code never names a colour. It names a role ("bad", "memory", "series2"); the running program takes the
role's style from the component class ``look--<role>`` in llmtop.tcss, tests take it from a fixed table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rich.style import Style

from llmtop.frozen import frozen


@frozen
class Glyphs:
    """The characters of a drawing: one set for UTF-8 terminals, one of plain ASCII.

    Attributes:
        spark: Eight heights, lowest first; the lowest is visible, so that zero differs from a gap.
        eighths: Left parts of a cell, thinnest first; one character where a cell cannot be divided.
        fills: The parts of a stacked bar: neighbours differ; without colours all do.
        shades: Three fills that tell things of one colour apart; empty where fills have to tell all of them.
        dots: Marks of a plot by size, smallest first; `now`, `estimate` and `upper_bound` are the special ones.
        edge: Where a frame of a flame graph begins.
        partial: A cell of which one span takes a part, by eighths, the least first.
        merged: A cell that several spans share, by the eighths of it in which there is any; the last one is full.
        idle: A cell in which a GPU had nothing to do.
        opened, closed: Before a row that has others below it.
        limit: A line across a graph, of no character that its heights have.
        unknown: Stands in a table where a value is not known.
        good, warn, bad: Marks of severity: shapes, because colour is never the only signal.
    """

    ascii: bool
    spark: str
    eighths: str
    fills: str
    shades: str
    dots: str
    now: str
    estimate: str
    upper_bound: str
    ellipsis: str
    unknown: str
    horizontal: str
    limit: str
    vertical: str
    corner: str
    tick_x: str
    tick_y: str
    up: str
    down: str
    good: str
    warn: str
    bad: str
    separator: str
    edge: str
    arrow: str
    partial: str
    merged: str
    idle: str
    opened: str
    closed: str


UNICODE = Glyphs(
    ascii=False,
    spark="▁▂▃▄▅▆▇█",
    eighths="▏▎▍▌▋▊▉█",
    fills="█▓█▓█▓█▓",
    shades="█▓▒",
    dots="·•●",
    now="◉",
    estimate="○",
    upper_bound="▽",
    ellipsis="…",
    unknown="–",
    horizontal="─",
    limit="─",
    vertical="│",
    corner="└",
    tick_x="┴",
    tick_y="┤",
    up="▲",
    down="▼",
    good="●",
    warn="▲",
    bad="■",
    separator="·",
    edge="▏",
    arrow="→",
    partial="▏▎▍▌▋▊▉",
    merged="▁▂▃▄▅▆▇▓",
    idle="░",
    opened="▾",
    closed="▸",
)
MONO = replace(UNICODE, fills="█▓▒░▚▞▙▟", shades="")
"""For terminals without colours."""

ASCII = Glyphs(
    ascii=True,
    spark="_.:-=+*#",
    eighths="#",
    fills="#%=+-:ox",
    shades="",
    dots=".o@",
    now="X",
    estimate="e",
    upper_bound="v",
    ellipsis="~",
    unknown="-",
    horizontal="-",
    limit="~",
    vertical="|",
    corner="+",
    tick_x="+",
    tick_y="+",
    up="^",
    down="v",
    good="*",
    warn="!",
    bad="#",
    separator="-",
    edge="|",
    arrow="->",
    partial="----===",
    merged="...:::*%",
    idle=",",
    opened="v",
    closed=">",
)

STALLS = tuple(f"stall{i}" for i in range(1, 9))

# Colours of the 256-colour cube: they look the same with and without true colour.
_DEFAULT_STYLES: Mapping[str, str] = {
    "text": "#d0d0d0",
    "dim": "#8a8a8a",
    "title": "bold #87d7ff",
    "value": "bold #eeeeee",
    "good": "#87d787",
    "warn": "bold #ffd75f",
    "bad": "bold #ff5f5f",
    "accent": "#5fafff",
    "cursor": "bold #000000 on #87d7ff",
    "header": "bold #afafaf",
    "selected": "bold #ffd75f",
    "series1": "#5fafff",
    "series2": "#87d787",
    "series3": "#ffd75f",
    "series4": "#d787d7",
    "series5": "#5fd7d7",
    "series6": "#ff8700",
    "memory": "#5fafff",
    "compute": "#ffaf5f",
    "point": "#87d787",
    "trail": "#878787",
    "band": "#af87d7",
    "stall1": "#ff5f5f",
    "stall2": "#ffaf5f",
    "stall3": "#ffd75f",
    "stall4": "#87d787",
    "stall5": "#5fd7d7",
    "stall6": "#5fafff",
    "stall7": "#af87ff",
    "stall8": "#8a8a8a",
}
ROLES = tuple(_DEFAULT_STYLES)
"""Every role there is, most general first."""


def _default_styles() -> Mapping[str, Style]:
    return {role: Style.parse(text) for role, text in _DEFAULT_STYLES.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """The styles and characters of one screen."""

    glyphs: Glyphs = UNICODE
    styles: Mapping[str, Style] = field(default_factory=_default_styles)

    def style(self, role: str) -> Style:
        """The style of a role.

        Raises:
            KeyError: There is no such role: a fault of the drawing code, not of its data.
        """
        return self.styles[role]
