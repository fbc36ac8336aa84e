"""Threads as stacked bars: on a CPU, waiting for one, blocked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.threads import Shares, ThreadRow, ThreadsView
from llmtop.tui.render.lines import Part, line, pad, stacked_bar

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.tui.render.look import Look

_FILLS = {"good": "█#", "bad": "▓%", "trail": "░."}
"""By role: the fill of its part of a bar, in Unicode and in ASCII."""
_NAMES = ("on-CPU", "run queue", "blocked")
_LEAST_BAR = 8
_NUMBERS = 17
_RUN_QUEUE_BAD = 0.05
"""See the rule run-queue-starvation."""


def draw_threads(view: ThreadsView, width: int, height: int, look: Look) -> list[Strip]:
    """One line a thread, the most interesting first; the totals of each role above them where there is room."""
    strips = [_roles(view, width, look)] if height >= 6 else []
    room = height - len(strips)
    shown = view.rows[: room if len(view.rows) <= room else room - 1]
    strips += [_thread(row, width, look) for row in shown]
    hidden = len(view.rows) - len(shown)
    if hidden:
        strips.append(line([(f"{hidden} more threads: zoom with z", "dim")], width, look))
    return strips[:height]


def legend(look: Look) -> str:
    """What the fills of the bars mean."""
    return "  ".join(f"{_fill(role, look)} {name}" for role, name in zip(_FILLS, _NAMES, strict=True))


def _fill(role: str, look: Look) -> str:
    """One character for each part, whatever stands beside it: without colour nothing else tells them apart."""
    return _FILLS[role][1 if look.glyphs.ascii else 0]


def _roles(view: ThreadsView, width: int, look: Look) -> Strip:
    parts: list[Part] = []
    for total in view.roles:
        parts += [(f"{total.role} ", "dim"), (f"{total.cores:.2f}", "value"), (f" cores/{total.threads}   ", "dim")]
    return line(parts, width, look)


def _thread(row: ThreadRow, width: int, look: Look) -> Strip:
    name_width = min(30, max(16, width // 5))
    name: Part = (pad(_label(row), name_width, look) + " ", "text")
    room = width - name_width - 1 - _NUMBERS - 1
    shares = row.shares
    if not isinstance(shares, Shares):
        return line([name, (str(shares), "dim")], width, look)
    cause_width = max(0, min(20, room - 2 * _LEAST_BAR))
    bar_width = max(0, room - (cause_width + 1 if cause_width else 0))
    sizes = (shares.on_cpu, shares.run_queue, shares.blocked_total)
    bar = stacked_bar(list(zip(sizes, _FILLS, strict=True)), bar_width, look)
    filled = [(_fill(role, look) * len(text) if role in _FILLS else text, role) for text, role in bar]
    parts: list[Part] = [name, *filled, (" ", "text"), *_numbers(shares)]
    if cause_width:
        parts.append((" " + pad(_cause(shares), cause_width, look), "dim"))
    return line(parts, width, look)


def _label(row: ThreadRow) -> str:
    """The role is what people know a process by; the thread's own name tells it from its siblings."""
    return row.name if not row.role or row.name.startswith(row.role[:8]) else f"{row.role}/{row.name}"


def _numbers(shares: Shares) -> list[Part]:
    """Exactly `_NUMBERS` cells."""
    run_queue = "bad" if shares.run_queue >= _RUN_QUEUE_BAD else "text"
    return [
        ("cpu", "dim"),
        (f"{shares.on_cpu * 100:4.0f} %", "value"),
        (" rq", "dim"),
        (f"{shares.run_queue * 100:3.0f} %", run_queue),
    ]


def _cause(shares: Shares) -> str:
    """What it is blocked on most, when it is blocked enough to matter."""
    return f"{shares.main_cause} {shares.blocked[0][1] * 100:.0f} %" if shares.blocked_total >= 0.01 else ""
