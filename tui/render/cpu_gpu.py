"""Why the GPU was idle, and what moves with its idle time: the text below the lanes."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.strip import Strip

from llmtop.analysis.pages.correlate import Correlation
from llmtop.model import Unknown
from llmtop.tui.render.lines import Part, bar, blank, line, pad, prose
from llmtop.units import duration, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.analysis.pages.correlate import Correlations
    from llmtop.analysis.threads.idle_causes import IdleCause, IdleCauses
    from llmtop.tui.render.look import Look

_BESIDE = 110
"""Cells from which the two stand side by side."""
_BAR = 10
_SERIES, _SERIES_WIDE = 20, 34
_LEAST = 4
"""Lines that correlations keep below the causes."""
_DEMAND, _FAULT = "good", "bad"


def draw_cpu_gpu(
    idle: IdleCauses | Unknown, found: Correlations | Unknown, width: int, height: int, look: Look
) -> list[Strip]:
    """Idle causes and correlations, side by side where there is room."""
    if isinstance(idle, Unknown) and idle == found:
        return prose(f"GPU idle time: {idle}", width, look, "dim")[:height]
    if width >= _BESIDE:
        left = (width - 3) // 2
        bar_between = Strip([Segment(f" {look.glyphs.vertical} ", look.style("dim"))], 3)
        columns = _causes(idle, left, height, look), _correlations(found, width - 3 - left, height, look)
        pairs = zip_longest(*(column[:height] for column in columns))
        return [
            Strip.join([one or blank(left, look), bar_between, other or blank(width - 3 - left, look)])
            for one, other in pairs
        ]
    upper = _causes(idle, width, max(height - _LEAST, (height + 1) // 2), look)
    return [*upper, *_correlations(found, width, height - len(upper), look)][:height]


def _causes(idle: IdleCauses | Unknown, width: int, height: int, look: Look) -> list[Strip]:
    """The sentence says it for one line's room; bars only where there are more."""
    if isinstance(idle, Unknown):
        return prose(f"GPU idle time: {idle}", width, look, "dim")
    head: list[Part] = [
        (f"{idle.title} idle {percent(100 * idle.idle_share)}", "title"),
        (f" of the last {idle.window_s:.0f} s; meanwhile", "dim"),
    ]
    if height < 3 or not idle.rows:
        return [line([(idle.sentence, "value")], width, look)]
    notes = [strip for note in idle.notes for strip in prose(note, width, look, "dim")]
    return [line(head, width, look), *(_cause(row, width, look) for row in idle.rows[: height - 1]), *notes][:height]


def _cause(row: IdleCause, width: int, look: Look) -> Strip:
    role = _DEMAND if row.is_demand else _FAULT
    parts: list[Part] = [
        (percent(100 * row.of_idle).rjust(6) + " ", "value"),
        (bar(row.of_idle, _BAR, look) + " ", role),
        (row.title, "text"),
        (f"  {row.idle_s:.1f} s", "dim"),
    ]
    return line(parts, width, look)


def _correlations(found: Correlations | Unknown, width: int, height: int, look: Look) -> list[Strip]:
    if height < 1:
        return []
    if isinstance(found, Unknown):
        return prose(f"what moves with it: {found}", width, look, "dim")
    if height < 3:
        return [line([(found.sentence, "text")], width, look)]
    name = pad(f"with {found.gpu} idle", _series_width(width), look)
    numbers = f" {'r':>5} {'lag':>7} {'p':>6}"
    head = line(
        [(name, "title"), (numbers, "header"), (f"  last {found.window_s:.0f} s, {found.idle_source}", "dim")],
        width,
        look,
    )
    return [head, *(_correlation(title, row, width, look) for title, row in _ranked(found.rows)[: height - 1])]


def _ranked(rows: Sequence[tuple[str, Correlation | Unknown]]) -> list[tuple[str, Correlation | Unknown]]:
    """What is hardly chance first, then what may be, then what cannot be judged; each in the order it had."""
    return sorted(rows, key=lambda row: 2 if isinstance(row[1], Unknown) else int(not row[1].is_significant))


def _series_width(width: int) -> int:
    return min(_SERIES_WIDE, max(_SERIES, width // 3))


def _correlation(title: str, row: Correlation | Unknown, width: int, look: Look) -> Strip:
    name: Part = (pad(title, _series_width(width), look) + " ", "text")
    if isinstance(row, Unknown):
        return line([name, (f"{look.glyphs.unknown} {row.reason}", "dim")], width, look)
    p = "<0.001" if row.p < 0.001 else f"{min(row.p, 1.0):.2g}"
    lag = duration(row.lag_ns) if row.lag_ns else "0"
    words = row.direction if row.is_significant else "may be chance"
    numbers = f"{row.r:+.2f} {lag.rjust(7)} {p.rjust(6)}  "
    role = "value" if row.is_significant else "dim"
    effect = " (an effect, not a cause)" if row.is_control and row.is_significant else ""
    return line([name, (numbers, role), (words + effect, "text" if row.is_significant else "dim")], width, look)
