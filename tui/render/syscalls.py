"""System calls, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.threads.syscalls import longest
from llmtop.model import NS_PER_S, Unknown
from llmtop.tui.render.lines import Part, line, pad
from llmtop.units import duration, si

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.threads.syscalls import Syscall, SyscallsView
    from llmtop.tui.render.look import Look

_NAME = 22
_RATE = 9
_TIME = 9
_KIND = 9
_ROLES = {"spin": "warn", "wait": "dim", "sleep": "dim"}


def draw_syscalls(view: SyscallsView, width: int, height: int, look: Look) -> list[Strip]:
    """The longest in total first; below them what the first kind that is no waiting means."""
    if height < 1:
        return []
    strips = [_header(width, look)]
    room = height - 1 if height < 5 else height - 2
    strips += [_row(call, view, width, look) for call in view.calls[:room]]
    hint = next(
        (call for call in view.calls if call.category.meaning and call.category.name not in ("wait", "sleep")), None
    )
    if height >= 5 and hint is not None:
        strips.append(line([(f"{hint.name}: ", "title"), (hint.category.meaning, "dim")], width, look))
    return strips[:height]


def _header(width: int, look: Look) -> Strip:
    titles = ("calls/s", "busy", "p50 <", "p99 <")
    columns = [pad(title, size, look, right=True) for title, size in zip(titles, _sizes(width), strict=False)]
    return line([(pad("system call", _NAME, look), "header"), ("".join(columns) + "  kind", "header")], width, look)


def _sizes(width: int) -> tuple[int, ...]:
    """Widths of the number columns that there is room for beside name and kind."""
    room = width - _NAME - _KIND
    return (_RATE, _TIME, _TIME, _TIME)[: max(1, room // _TIME)]


def _row(call: Syscall, view: SyscallsView, width: int, look: Look) -> Strip:
    busy = call.total_ns / (view.observed_s * NS_PER_S) if isinstance(call.total_ns, float) else None
    cells = (
        si(call.per_second),
        look.glyphs.unknown if busy is None else f"{busy:.2f}",
        _length(longest(call.p50), look),
        _length(longest(call.p99), look),
    )
    numbers = "".join(pad(cell, size, look, right=True) for cell, size in zip(cells, _sizes(width), strict=False))
    kind: Part = (f"  {call.category.name}", _ROLES.get(call.category.name, "text"))
    return line([(pad(call.name, _NAME, look), "text"), (numbers, "value"), kind], width, look)


def _length(ns: float | Unknown, look: Look) -> str:
    return look.glyphs.unknown if isinstance(ns, Unknown) else duration(ns)
