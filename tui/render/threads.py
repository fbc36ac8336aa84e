"""Threads as stacked bars: on a CPU, waiting for one, blocked."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from llmtop.analysis.threads.shares import (
    RoleTotal,
    Shares,
    ThreadRow,
    ThreadsView,
    is_asleep,
    leading_rows,
    thread_label,
)
from llmtop.model import Unknown
from llmtop.tui.render.lines import Part, cut, line, pad, stacked_bar, width_of
from llmtop.units import binary_bytes, seen
from llmtop.vocabulary import ThreadCause

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from textual.strip import Strip

    from llmtop.tui.render.look import Look

_FILLS = {"good": "█#", "warn": "▞~", "accent": "▄=", "bad": "▓%", "trail": "░."}
"""By role: the fill of its part of a bar, in Unicode and in ASCII: work, polling, GPU wait, run queue, blocked."""
_WORK, _POLLING, _SYNC, _QUEUED, _BLOCKED = _FILLS
_NAMES = (
    {_WORK: "on-CPU", _POLLING: "polling", _SYNC: "GPU wait", _QUEUED: "run queue", _BLOCKED: "blocked"},
    {_WORK: "cpu", _POLLING: "poll", _SYNC: "GPU", _QUEUED: "queue", _BLOCKED: "blocked"},
)
"""In full, and where there is little room."""
_NOTABLE = 0.05
_SHOWN = 0.005
_LEAST_BAR = 8
_CAUSE = 13
"""Cells for "GPU wait 44 %"."""
_MOST_CAUSES = 3
_APART = "   "
_NUMBERS = 17
_RUN_QUEUE_BAD = 0.05
"""See the rule run-queue-starvation."""


def draw_threads(view: ThreadsView, width: int, height: int, look: Look) -> list[Strip]:
    """One line a thread, those of the engine and of the API server first, then the most interesting.

    The totals of each role stand above them where there is room; below, how many are asleep or find no room.
    """
    leading = leading_rows(view)
    first = {id(row) for row in leading}
    others = [(row, is_asleep(row)) for row in view.rows if id(row) not in first]
    asleep = [row for row, sleeps in others if sleeps]
    awake = [*leading, *(row for row, sleeps in others if not sleeps)]
    if leading:  # what is not known yet are threads of one request: they come and go
        awake = [row for row in awake if isinstance(row.shares, Shares)]
    unread = len(view.rows) - len(awake) - len(asleep)
    strips = [_roles(view, width, look)] if height >= 6 else []
    room = height - len(strips)
    shown = awake[: room if len(awake) <= room and len(awake) == len(view.rows) else room - 1]
    strips += [_thread(row, width, look) for row in shown]
    if len(shown) < len(view.rows):
        strips.append(line([(_left_out(len(awake) - len(shown), asleep, unread), "dim")], width, look))
    return strips[:height]


def _left_out(awake: int, asleep: Sequence[ThreadRow], unread: int) -> str:
    """How many threads have no line, and in what those that hardly ran wait."""
    causes = Counter(row.shares.main_cause for row in asleep if isinstance(row.shares, Shares))
    in_what = ", ".join(f"{count} {cause}" for cause, count in causes.most_common(_MOST_CAUSES))
    parts = [
        *([f"{awake} more"] if awake else []),
        *([f"{len(asleep)} asleep ({in_what})"] if asleep else []),
        *([f"{unread} new"] if unread else []),
    ]
    return f"{', '.join(parts)}: 4 z shows them"


def heading(view: ThreadsView, width: int, look: Look) -> list[Part]:
    """How many threads, over how long, what the fills mean, how causes are known: what of it fits in the border.

    Over how long stays longest of what may go: other panes beside it tell of other times.
    """
    count, length, known = str(len(view.rows)), seen(view.window_s), how_known(view)
    brief = known.replace(" in ", " ").replace(" of the time", "")
    used = _fills_in_use(view)
    full, short = (_legend(used, names, look) for names in _NAMES)
    choices: tuple[list[Part], ...] = (
        [(f"{count}, last {length}  ", ""), *full, (f"  causes {known}", "")],
        [(f"{count}, last {length}  ", ""), *full, (f"  {known}", "")],
        [(f"{count}, last {length}  ", ""), *short, (f"  {known}", "")],
        [(f"last {length}  ", ""), *short, (f"  {known}", "")],
        [(f"{length}  ", ""), *short, (f"  {brief}", "")],
        [*short, (f"  {brief}", "")],
        [(f"{length}  ", ""), *short],
    )
    fitting = (parts for parts in choices if sum(width_of(text) for text, _ in parts) <= width)
    return next(fitting, short)


def how_known(view: ThreadsView) -> str:
    """Whether causes of blocking are measured at each sleep, and by whom, or sampled."""
    exact = [row.shares.are_causes_exact for row in view.rows if isinstance(row.shares, Shares)]
    source = re.search(r"\((.+?)\)", view.causes)
    by = f" ({source[1]})" if source else ""
    if any(exact):
        return f"exact{by}" if all(exact) else f"part exact{by}"
    looked = [row.shares.looked for row in view.rows if isinstance(row.shares, Shares) and row.shares.looked]
    return f"sampled in {looked[0]:.0%} of the time{by}" if looked else "sampled"


def _fills_in_use(view: ThreadsView) -> set[str]:
    """Roles of the parts of the bars; a thread that sleeps all the time adds none to those that are always told."""
    awake = (row.shares for row in view.rows if isinstance(row.shares, Shares) and _may_show(row.shares))
    return {_WORK, _QUEUED, _BLOCKED} | {role for one in awake for share, role in _parts_of(one) if share >= _SHOWN}


def _may_show(shares: Shares) -> bool:
    return shares.on_cpu >= _SHOWN or any(cause == ThreadCause.CUDA_SYNC for cause, _ in shares.blocked)


def _legend(used: Collection[str], names: Mapping[str, str], look: Look) -> list[Part]:
    """The fills that are in use, each in the role of its part of the bars."""
    shown = [(f"{_fill(role, look)} {name}", role) for role, name in names.items() if role in used]
    return [(("  " if i else "") + text, role) for i, (text, role) in enumerate(shown)]


def _parts_of(shares: Shares | Unknown) -> list[tuple[float, str]]:
    """The parts of a bar, which make up the window: what a CPU did not do for the server is not drawn as work."""
    if isinstance(shares, Unknown):
        return []
    spinning = shares.spinning_in_sync
    asleep = dict(shares.blocked).get(ThreadCause.CUDA_SYNC, 0.0)
    return [
        (shares.working, _WORK),
        (max(0.0, shares.on_cpu - shares.working - spinning), _POLLING),
        (spinning + asleep, _SYNC),
        (shares.run_queue, _QUEUED),
        (shares.blocked_total - asleep, _BLOCKED),
    ]


def _fill(role: str, look: Look) -> str:
    """One character for each part, whatever stands beside it: without colour nothing else tells them apart."""
    return _FILLS[role][1 if look.glyphs.ascii else 0]


def _roles(view: ThreadsView, width: int, look: Look) -> Strip:
    """As many as fit, with their memory where all do: "EngineCore ×105 0.99 cores 4.20 GiB"; in short where not."""
    full, short = ([_role(total, has_size=has_size) for total in view.roles] for has_size in (True, False))
    bare = [[(f"{total.role} ", "dim"), (f"{total.cores:.2f}", "value"), (_APART, "dim")] for total in view.roles]
    bare = [[("cores: ", "dim"), *bare[0]], *bare[1:]] if bare else bare
    room = width + len(_APART)
    fitting = (roles for roles in (full, short, bare) if sum(map(_cells, roles)) <= room)
    shown = next(fitting, bare if len(bare) > 1 else short)
    while len(shown) > 1 and sum(map(_cells, shown)) > room:
        shown = shown[:-1]
    return line([part for parts in shown for part in parts], width, look)


def _role(total: RoleTotal, *, has_size: bool) -> list[Part]:
    size = f" {binary_bytes(total.rss)}" if has_size and total.rss is not None else ""
    name, cores = f"{total.role} ×{total.threads} ", f"{total.cores:.2f}"
    return [(name, "dim"), (cores, "value"), (f" cores{size}{_APART}", "dim")]


def _cells(parts: Sequence[Part]) -> int:
    return sum(width_of(text) for text, _ in parts)


def _thread(row: ThreadRow, width: int, look: Look) -> Strip:
    name_width = min(30, max(16, width // 5))
    name: Part = (pad(thread_label(row), name_width, look) + " ", "text")
    room = width - name_width - 1 - _NUMBERS - 1
    shares = row.shares
    if not isinstance(shares, Shares):
        return line([name, (str(shares), "dim")], width, look)
    cause_width = max(_CAUSE, min(20, room - 2 * _LEAST_BAR)) if room > _CAUSE + _LEAST_BAR else 0
    bar_width = max(0, room - (cause_width + 1 if cause_width else 0))
    bar = stacked_bar(_parts_of(shares), bar_width, look)
    filled = [(_fill(role, look) * len(text) if role in _FILLS else text, role) for text, role in bar]
    parts: list[Part] = [name, *filled, (" ", "text"), *_numbers(shares)]
    if cause_width:
        parts.append((" " + pad(_cause(shares, cause_width, look), cause_width, look), "dim"))
    return line(parts, width, look)


def _numbers(shares: Shares) -> list[Part]:
    """Exactly `_NUMBERS` cells."""
    run_queue = "bad" if shares.run_queue >= _RUN_QUEUE_BAD else "text"
    return [
        ("cpu", "dim"),
        (f"{shares.on_cpu * 100:4.0f} %", "value"),
        (" rq", "dim"),
        (f"{shares.run_queue * 100:3.0f} %", run_queue),
    ]


def _cause(shares: Shares, width: int, look: Look) -> str:
    """What it passed its time with other than work: polling, the GPU, or what it was blocked on most.

    Without room the name is cut and not the number.
    """
    parts = {role: share for share, role in _parts_of(shares)}
    others = [(cause, share) for cause, share in shares.blocked if cause != ThreadCause.CUDA_SYNC]
    if parts[_POLLING] >= max(_NOTABLE, parts[_WORK]):
        name, share = "polling", parts[_POLLING]
    elif parts[_SYNC] >= max(_NOTABLE, parts[_BLOCKED]):
        name, share = "GPU wait", parts[_SYNC]
    elif others and parts[_BLOCKED] >= 0.01:
        name, share = others[0]
    else:
        return ""
    number = f" {share * 100:.0f} %"
    return cut(name, width - len(number), look) + number
