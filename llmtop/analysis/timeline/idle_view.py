"""The idle account as reports print it and panes draw it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from llmtop.analysis.timeline.account import GpuAccount, IdlePart, idle_account
from llmtop.analysis.timeline.capture import why_no_work
from llmtop.analysis.timeline.causes import TITLES, Cause
from llmtop.analysis.timeline.work import gpu_title
from llmtop.frozen import frozen
from llmtop.model import Missing, Unknown

if TYPE_CHECKING:
    from llmtop.model import Trace

_TOLD = 3
"""Functions, and ranges, that are named of each cause."""
BLOCKS, ASCII_LEVELS = " ▁▂▃▄▅▆▇█", " _.:-=+*#"


@frozen
class IdleRow:
    """Idle time under one cause and name.

    Attributes:
        title: What to call the cause; `name` is that of the call, the OS call or the NVTX range, or empty.
        ns: All of it; `share` is that of all idle time of these GPUs, 0 to 1.
        gaps: In how many gaps; `longest_ns` is the most of it in one. Of a cause with several names, a gap counts once
            for each.
        drained_ns: The part in gaps that began as the GPU ran dry under a call that waited for it.
        functions: Where CPU samples in this time stood, the most frequent first, with their number.
        ranges: Of calls, the time by the innermost NVTX range in which they were made, the longest first.
    """

    cause: Cause
    title: str
    name: str
    ns: int
    share: float
    gaps: int
    longest_ns: int
    drained_ns: int = 0
    functions: tuple[tuple[str, int], ...] = ()
    ranges: tuple[tuple[str, int], ...] = ()


@frozen
class IdleOfGpu:
    """One GPU, or all together: `busy_ns` and the rows' `ns` add up to `capture_ns`.

    Attributes:
        rows: By cause and name, the largest first.
        causes: By cause alone, the largest first: what a bar or a pie is drawn of.
        busy_over_time: The share of equal parts of the capture in which it had work, 0 to 1; of several GPUs the mean.
    """

    title: str
    capture_ns: int
    busy_ns: int
    idle_ns: int
    rows: tuple[IdleRow, ...]
    causes: tuple[IdleRow, ...]
    busy_over_time: tuple[float, ...]


@frozen
class IdleView:
    """The account of a timeline.

    Attributes:
        total: All GPUs together: their times are added up.
        gpus: Each alone.
        unknown: Why parts of the idle time are not told, and what would tell them; `what` is the row's name.
        why_not: Why there is no account.
    """

    gpus: tuple[IdleOfGpu, ...] = ()
    total: IdleOfGpu | None = None
    unknown: tuple[Missing, ...] = ()
    why_not: Unknown | None = None


def idle_view(trace: Trace) -> IdleView:
    """Where the time of each GPU went in which it had nothing to do; live traces and reports of kernels have none."""
    if (why := why_no_work(trace)) is not None:
        return IdleView(why_not=why)
    account = idle_account(trace)
    gpus = tuple(_view(gpu_title(gpu.gpu), (gpu,)) for gpu in account.gpus)
    total = gpus[0] if len(gpus) == 1 else _view(f"{len(gpus)} GPUs", account.gpus)
    return IdleView(gpus, total, account.unknown)


def picture(gpu: IdleOfGpu, levels: str = BLOCKS) -> str:
    """Time from left to right: the higher the level, the more of it the GPU was at work; the lowest where it never was.

    Args:
        gpu: Whose time.
        levels: A character each, the lowest first.
    """
    return "".join(levels[math.ceil(share * (len(levels) - 1))] for share in gpu.busy_over_time)


def merged(parts: Iterable[IdlePart], *, by_name: bool) -> tuple[IdlePart, ...]:
    """Parts added up by cause, and by name where that is wanted; the largest first."""
    added: dict[tuple[Cause, str], IdlePart] = {}
    for part in parts:
        name = part.name if by_name else ""
        before = added.get((part.cause, name))
        added[part.cause, name] = IdlePart(
            part.cause,
            name,
            part.ns + (before.ns if before else 0),
            part.gaps + (before.gaps if before else 0),
            max(part.longest_ns, before.longest_ns if before else 0),
        )
    return tuple(sorted(added.values(), key=lambda part: -part.ns))


def _view(title: str, gpus: tuple[GpuAccount, ...]) -> IdleOfGpu:
    parts = [part for gpu in gpus for part in gpu.parts]
    idle = sum(gpu.idle_ns for gpu in gpus)
    return IdleOfGpu(
        title,
        sum(gpu.end_ns - gpu.start_ns for gpu in gpus),
        sum(gpu.busy_ns for gpu in gpus),
        idle,
        tuple(_row(part, idle, parts) for part in merged(parts, by_name=True)),
        tuple(_row(part, idle, ()) for part in merged(parts, by_name=False)),
        tuple(sum(shares) / len(gpus) for shares in zip(*(gpu.busy_over_time for gpu in gpus), strict=True)),
    )


def _row(part: IdlePart, idle_ns: int, details: Iterable[IdlePart]) -> IdleRow:
    same = [other for other in details if (other.cause, other.name) == (part.cause, part.name)]
    functions: Counter[str] = Counter()
    ranges: Counter[str] = Counter()
    for other in same:
        functions.update(dict(other.functions))
        ranges.update(dict(other.ranges))
    return IdleRow(
        part.cause,
        TITLES[part.cause],
        part.name,
        part.ns,
        part.ns / idle_ns,
        part.gaps,
        part.longest_ns,
        sum(other.ns for other in same if other.drained_by is not None),
        tuple(functions.most_common(_TOLD)),
        tuple(ranges.most_common(_TOLD)),
    )
