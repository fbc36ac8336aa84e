"""The rows of a breakdown as a table, and all that one of them says in sentences: for screens and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.breakdown.breakdown import Breakdown, By, Difference, Spread, TimePart, shares_of
from llmtop.analysis.kernels.breakdown.step_groups import how_they_come
from llmtop.analysis.tables import RowTable, numbered
from llmtop.analysis.timeline.causes import TITLES
from llmtop.analysis.views import Cell, Column
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.units import binary_bytes, count, duration, percent

if TYPE_CHECKING:
    from llmtop.analysis.kernels.breakdown.accounts import TimeAccount

NO_CALLS = Unknown("the capture has no CUDA calls to tell what was asked for in it", "add --trace=cuda")
_NAMED_SHARE = 0.01
"""Of its time, from which on a part of an account has a line."""
_COPIED_MORE = 1.5
_EXPOSED_MORE = 1.2
"""Times what the median step has, from which on copied bytes, and exposed communication, are worth a word."""


@frozen
class _PartColumn:
    """A column with how its cells are made of a row, its number from 1 on, and the steps of its group."""

    column: Column
    cell: Callable[[TimePart, int, Spread | None], Cell]


def breakdown_table(view: Breakdown, start_ns: int = 0, *, is_whole: bool = False) -> RowTable:
    """The rows, keyed by their number from 0 on; columns of which no row has anything are left out.

    Args:
        view: The rows.
        start_ns: The capture's, from which on times are counted.
        is_whole: With all columns, for who goes by their names.
    """
    made = _COLUMNS[view.by]
    rows = []
    for i, part in enumerate(view.parts):
        moved = replace(part, start_ns=part.start_ns - start_ns)
        rows.append([one.cell(moved, i + 1, spread_of(view, part)) for one in made])
    always = made if is_whole else (_NUMBER, _NAME)
    kept = [i for i, one in enumerate(made) if one in always or _tells([row[i] for row in rows], one)]
    return numbered([made[i].column for i in kept], [[row[i] for i in kept] for row in rows])


def _tells(cells: Sequence[Cell], one: _PartColumn) -> bool:
    """Whether a column says something of some row; one that says whose rows are, whether they differ in that."""
    known = {cell for cell in cells if cell not in (None, "", 0) and not isinstance(cell, Unknown)}
    return len(known) > 1 if one is _OWNER else bool(known)


def spread_of(view: Breakdown, part: TimePart) -> Spread | None:
    """The steps of its group."""
    return next((one for one in view.spreads if one.group == part.group), None)


def _share(part: TimePart, number: int, spread: Spread | None) -> Cell:
    account = part.account
    return account.busy_ns / account.gpu_ns if account.gpu_ns else _HIDDEN


_HIDDEN = Unknown("it took no time of its own: all it asked for was done while earlier work still ran")


def _over(part: TimePart, number: int, spread: Spread | None) -> Cell:
    return None if spread is None or len(spread.steps) < 2 else part.account.wall_ns - spread.median_ns


def _mostly(part: TimePart, number: int, spread: Spread | None) -> Cell:
    """What most of its idle time is."""
    idle = [(ns, share[1]) for share, ns in shares_of(part.account).items() if share[0] == "idle"]
    return TITLES[max(idle)[1]] if idle else None


def _count(value: int | None) -> Cell:
    return NO_CALLS if value is None else value


_NUMBER = _PartColumn(
    Column("number", "#", "1", 5, 3, "in the order of their beginning"), lambda part, number, _: number
)
_NAME = _PartColumn(Column("name", "name", width=0, help="of the range, in full"), lambda part, *_: part.name)
_SLOW = _PartColumn(
    Column("slow", "slow", width=5, help="an outlier: over 3.5 robust deviations and 10 % longer than the median"),
    lambda part, *_: "slow" if part.is_slow else "",
)
_OWNER = _PartColumn(
    Column("owner", "of", width=14, shrink=1, help="the thread, process or GPU whose it is"),
    lambda part, *_: part.owner,
)
_PHASE = _PartColumn(
    Column("phase", "phase", width=9, shrink=5, help="prefill or decode, where ranges or kernels tell"),
    lambda part, *_: part.phase,
)
_GROUP = _PartColumn(
    Column("group", "group", width=12, shrink=5, help="steps that do the same, or are of one of two lengths"),
    lambda part, *_: part.group.title if part.group.title != part.phase else "",
)
_START = _PartColumn(
    Column("start", "start", "ns", 8, 8, "since the beginning of the capture"), lambda part, *_: part.start_ns
)
_WALL = _PartColumn(
    Column("wall", "wall", "ns", 8, help="until all that it asked for was done, since all before it was"),
    lambda part, *_: part.account.wall_ns,
)
_OVER = _PartColumn(Column("over", "to median", "ns", 9, 4, "longer than the median step of its group"), _over)
_TIMES = _PartColumn(Column("times", "times", "1", 6, 4, "how often"), lambda part, *_: part.times)
_MEAN = _PartColumn(
    Column("mean", "mean", "ns", 8, 6, "wall time of one"), lambda part, *_: part.account.wall_ns / part.times
)
_LONGEST = _PartColumn(Column("longest", "longest", "ns", 8, 7, "the longest one"), lambda part, *_: part.longest_ns)
_CPU = _PartColumn(
    Column("cpu", "on CPU", "ns", 8, 6, "how long the range itself was open"), lambda part, *_: part.cpu_ns
)
_BUSY = _PartColumn(
    Column("busy", "at work", "ns", 8, 1, "of its GPUs: with a kernel, a copy or a graph running"),
    lambda part, *_: part.account.busy_ns,
)
_BUSY_SHARE = _PartColumn(Column("busy_share", "busy", "ratio", 6, 2, "share of its time"), _share)
_IDLE = _PartColumn(Column("idle", "idle", "ns", 8, 6, "the rest of its time"), lambda part, *_: part.account.idle_ns)
_MOSTLY = _PartColumn(Column("mostly", "idle mostly in", width=22, shrink=5, help="the cause of most of it"), _mostly)
_KERNELS = _PartColumn(
    Column("kernels", "kernels", "1", 7, 4, "asked for in it"), lambda part, *_: _count(part.account.kernels)
)
_LAUNCHES = _PartColumn(
    Column("launches", "launches", "1", 8, 9, "calls that launch"), lambda part, *_: _count(part.account.launches)
)
_COPIED = _PartColumn(
    Column("copied", "copied", "bytes", 9, 8, "bytes of the copies asked for in it"),
    lambda part, *_: _count(part.account.copied),
)
_SENT = _PartColumn(
    Column("communication", "NCCL", "ns", 8, 6, "with a kernel running that communicates with other GPUs"),
    lambda part, *_: part.account.communication_ns,
)
_EXPOSED = _PartColumn(
    Column("exposed", "exposed", "ns", 8, 5, "of that, without a kernel that computes beside it"),
    lambda part, *_: part.account.exposed_ns,
)
_ALONE = _PartColumn(
    Column("alone", "alone", "ns", 8, 4, "while no other stream of its GPU is at work"), lambda part, *_: part.alone_ns
)
_WAITS = _PartColumn(
    Column("waits", "waits", "ns", 8, 4, "in collectives, before the last one has come"),
    lambda part, *_: None if part.met is None else part.met.waiting_ns,
)
_WAITED_FOR = _PartColumn(
    Column("waited_for", "waited for", "ns", 10, 3, "what the others waited while it was the last to come"),
    lambda part, *_: None if part.met is None else part.met.waited_for_ns,
)
_LAST = _PartColumn(
    Column("last", "last", "1", 6, 6, "collectives to which it came last"),
    lambda part, *_: None if part.met is None else part.met.last,
)
_COMPUTES = _PartColumn(
    Column("computes", "computes", "ns", 8, 5, "with a kernel running that does not communicate"),
    lambda part, *_: None if part.met is None else part.met.computing_ns,
)
_WORK = (_KERNELS, _LAUNCHES, _COPIED, _SENT, _EXPOSED)
_COLUMNS: dict[By, Sequence[_PartColumn]] = {
    By.STEP: (
        _NUMBER,
        _NAME,
        _SLOW,
        _OWNER,
        _PHASE,
        _GROUP,
        _START,
        _WALL,
        _OVER,
        _BUSY,
        _BUSY_SHARE,
        _IDLE,
        _MOSTLY,
        *_WORK,
    ),
    By.NVTX: (_NAME, _TIMES, _OWNER, _WALL, _MEAN, _LONGEST, _CPU, _BUSY, _BUSY_SHARE, _IDLE, _MOSTLY, *_WORK),
    By.STREAM: (_NAME, _OWNER, _START, _WALL, _BUSY, _BUSY_SHARE, _ALONE, *_WORK),
    By.RANK: (
        _NAME,
        _OWNER,
        _WALL,
        _BUSY,
        _BUSY_SHARE,
        _IDLE,
        _MOSTLY,
        _COMPUTES,
        _WAITS,
        _WAITED_FOR,
        _LAST,
        *_WORK,
    ),
}


# -- in sentences -----------------------------------------------------------------------------------------------------


def spread_text(spread: Spread) -> str:
    """How long steps last: "6 decode steps: median 40.7 ms, longest 118 ms"."""
    what = f"{spread.group.title} step".lstrip()
    times = (
        ("median", spread.median_ns),
        ("p95", spread.p95_ns),
        ("p99", spread.p99_ns),
        ("longest", spread.longest_ns if spread.p99_ns is None else None),
    )
    told = ", ".join(f"{name} {duration(ns)}" for name, ns in times if ns is not None)
    steps = len(spread.steps)
    return f"1 {what}: {duration(spread.median_ns)}" if steps == 1 else f"{count(steps)} {what}s: {told}"


def spread_lines(spreads: Sequence[Spread]) -> Iterator[str]:
    """How long the steps of each group last, which of all steps they are, and what long ones have more of."""
    for one in spreads:
        which = f" ({how_they_come(one.steps)})" if len(spreads) > 1 else ""
        more = f"; the median one has {_more(one.more)} more than that of the short ones" if one.more else ""
        yield f"{spread_text(one)}{which}{more}"


def _more(differences: Sequence[Difference]) -> str:
    return ", ".join(f"+{duration(one.ns)} {one.title}" for one in differences)


def why_slow(part: TimePart, spread: Spread | None) -> str:
    """What a slow step has more of than the median one; empty of any other."""
    if not part.is_slow or spread is None:
        return ""
    more = _more(part.more) or "no part stands out"
    of_all = duration(part.account.wall_ns - spread.median_ns)
    counted = "".join(f"; {one}" for one in _in_numbers(part.account, spread))
    return f"slow: {of_all} longer than the median step, with {more}{counted}"


def _in_numbers(account: TimeAccount, spread: Spread) -> Iterator[str]:
    """How many kernels and copied bytes more it has, and how much more communication that nothing covers."""
    if account.kernels is not None and spread.kernels is not None and account.kernels > spread.kernels:
        yield f"{count(account.kernels)} kernels, of {count(round(spread.kernels))} in the median step"
    if account.copied is not None and spread.copied is not None and account.copied > _COPIED_MORE * spread.copied:
        yield f"{binary_bytes(account.copied)} copied, of {binary_bytes(spread.copied)} in the median step"
    if account.exposed_ns > _EXPOSED_MORE * spread.exposed_ns > 0:
        times = f"{account.exposed_ns / spread.exposed_ns:.1f} times that of the median step"
        yield f"{duration(account.exposed_ns)} of communication exposed, {times}"


def account_lines(part: TimePart) -> Iterator[str]:
    """Its whole time: what adds up, then what it is made of."""
    account = part.account
    gpus = (
        f" of {account.gpu_ns // account.wall_ns} GPUs" if account.wall_ns and account.gpu_ns > account.wall_ns else ""
    )
    yield f"{duration(account.gpu_ns)}{gpus} = at work {duration(account.busy_ns)} + idle {duration(account.idle_ns)}"
    small = 0
    for (cause, name), ns in account.idle:
        if ns < _NAMED_SHARE * account.gpu_ns:
            small += ns
        else:
            yield f"  idle {duration(ns):>8}  {TITLES[cause]}{f': {name}' if name else ''}"
    if small:
        yield f"  idle {duration(small):>8}  further causes, each below {percent(100 * _NAMED_SHARE)}"
    if account.families:
        yield f"  at work: {', '.join(f'{family} {duration(ns)}' for family, ns in account.families)}"
    yield from _work_lines(account)
    if part.met is not None and part.met.operations:
        met = part.met
        yield f"  in {count(met.operations)} collectives it waited {duration(met.waiting_ns)} for others"
        yield f"  it was the last at {count(met.last)}, for which the others waited {duration(met.waited_for_ns)}"


def _work_lines(account: TimeAccount) -> Iterator[str]:
    if account.kernels is None or account.launches is None or account.copied is None:
        yield f"  {NO_CALLS}"
        return
    copied = f", {binary_bytes(account.copied)} copied" if account.copied else ""
    yield f"  asked for in it: {count(account.kernels)} kernels by {count(account.launches)} launch calls{copied}"
    if account.communication_ns:
        exposed = percent(100 * account.exposed_ns / account.communication_ns)
        yield f"  communication {duration(account.communication_ns)}, {exposed} of it exposed"
