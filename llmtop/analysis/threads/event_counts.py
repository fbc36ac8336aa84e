"""What perf stat has counted, and what that is: of the elapsed time, of a cycle, of the accesses, a second.

What a count means follows from those beside it on the same track, as perf's own last column does (perf-stat(1);
tools/perf/util/stat-shadow.c): it is there whichever events were asked for together, in CSV too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from llmtop.analysis.tables import RowTable, numbered_where_told
from llmtop.analysis.views import Column
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, EventCount, Trace, TrackId, Unknown
from llmtop.units import number, percent, quantity, si

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from llmtop.analysis.views import Cell

TITLE: Final = "Counts"
NO_COUNTS: Final = Unknown("this file has no counts of events", "perf stat -p PID -- sleep 10 prints some")
_COLUMNS = (
    Column("name", "event", width=0),
    Column("of", "of", width=28, shrink=2, help="the thread, the CPU"),
    Column("count", "count", "count", width=16),
    Column("time", "time", "ns", width=8, shrink=3, help="of an event that is a clock"),
    Column("meaning", "which is", width=30, shrink=1, help="by what was counted beside it"),
    Column("spread", "±", "ratio", width=6, shrink=4, help="how far the runs are apart (-r)"),
    Column("share", "counted", "ratio", width=8, shrink=5, help="of the time it had a counter: the rest is scaled"),
)
_NAMED = re.compile(r"(?:[\w-]+/)?(?P<stem>[A-Za-z][\w.-]*)(?:/[A-Za-z]*|:[ukhGHIpPSDWbeR]+)?")
"""An event with its PMU ("cpu_core/cycles/") and its modifiers (":u")."""
CLOCKS: Final = ("task-clock", "cpu-clock")
CYCLES: Final = ("cycles", "cpu-cycles")
_MISSES: Final = "-misses"
_ACCESSES: Final = ("-references", "es", "s", "-instructions")
"""How the events are called that misses are a share of: cache-references, branches, LLC-loads."""


@frozen
class CountRow:
    """A count with what it is of.

    Attributes:
        meaning: "0.91 a cycle", "12 % of LLC-loads", "2.4 CPUs in use"; empty where nothing beside it tells.
    """

    counted: EventCount
    of: str
    meaning: str


@frozen
class EventCounts:
    """All counts of a file, in its order, and for how long was counted; 0 where nothing tells."""

    rows: tuple[CountRow, ...]
    elapsed_s: float


Known = dict[str, float]
"""The known counts of a track by their events."""


def event_counts(trace: Trace) -> EventCounts | Unknown:
    """What was counted, with what it means; why there is nothing."""
    if not trace.counts:
        return NO_COUNTS
    known, elapsed_s = known_counts(trace.counts), trace.end_ns / NS_PER_S
    rows = (
        CountRow(one, _name(trace, one.track), _meaning(one, known.get(one.track, {}), elapsed_s))
        for one in trace.counts
    )
    return EventCounts(tuple(rows), elapsed_s)


def known_counts(counts: Iterable[EventCount]) -> Mapping[TrackId, Known]:
    """What was counted, by track and event."""
    found: defaultdict[TrackId, Known] = defaultdict(dict)
    for one in counts:
        if not isinstance(one.count, Unknown):
            found[one.track][one.event] = one.count
    return found


def counts_table(counts: EventCounts) -> RowTable:
    """As a table without the columns that say nothing of this file; rows are keyed by their number."""
    is_one = len({row.counted.track for row in counts.rows}) == 1
    return numbered_where_told(_COLUMNS, [_cells(row, is_one=is_one) for row in counts.rows])


def beside(known: Known, event: str, names: Iterable[str]) -> tuple[str, float] | None:
    """The first of some events that was counted on the same PMU with the same modifiers as another one."""
    stem = stem_of(event)
    others = (event.replace(stem, name, 1) for name in names)
    return next(((other, known[other]) for other in others if known.get(other)), None)


def stem_of(event: str) -> str:
    """An event without its PMU and its modifiers.

    >>> stem_of("cpu_core/cycles/u"), stem_of("cache-misses:u"), stem_of("sched:sched_switch")
    ('cycles', 'cache-misses', 'sched:sched_switch')
    """
    found = _NAMED.fullmatch(event)
    return found["stem"] if found else event


def accesses(misses: str) -> tuple[str, ...]:
    """How the event may be called that misses are a part of.

    >>> accesses("LLC-load-misses")[2], accesses("branch-misses")[1], accesses("cycles")
    ('LLC-loads', 'branches', ())
    """
    stem = stem_of(misses)
    return tuple(f"{stem.removesuffix(_MISSES)}{end}" for end in _ACCESSES) if stem.endswith(_MISSES) else ()


def cpu_seconds(known: Known) -> float | None:
    """How long something ran on CPUs, of a track on which a clock was counted."""
    return next((ns / NS_PER_S for event, ns in known.items() if stem_of(event) in CLOCKS and ns), None)


@frozen
class CacheUse:
    """How a track gets on with its caches.

    Attributes:
        per_cycle: Instructions a cycle (IPC).
        miss_share: Of its accesses to the last-level cache, 0 to 1; `misses` is the event that says so.
        dtlb_misses_per_1000: Of a thousand instructions; None where they were not counted.
    """

    per_cycle: float
    miss_share: float
    misses: str
    dtlb_misses_per_1000: float | None


def cache_use(known: Known) -> CacheUse | None:
    """What the counts of a track tell of that; None where some that it takes are not there."""
    instructions = next((one for one in known if stem_of(one) == "instructions"), None)
    misses = next((one for one in known if stem_of(one) in _LAST_LEVEL), None)
    if instructions is None or misses is None or not known[instructions]:
        return None
    cycles, whole = beside(known, instructions, CYCLES), beside(known, misses, accesses(misses))
    if cycles is None or whole is None:
        return None
    dtlb = beside(known, instructions, ("dTLB-load-misses",))
    per_1000 = None if dtlb is None else 1000 * dtlb[1] / known[instructions]
    return CacheUse(known[instructions] / cycles[1], min(1.0, known[misses] / whole[1]), misses, per_1000)


_LAST_LEVEL: Final = ("LLC-load-misses", "cache-misses")


def _name(trace: Trace, id: TrackId) -> str:
    track = trace.tracks.get(id)
    return id if track is None else track.name


def _meaning(one: EventCount, known: Known, elapsed_s: float) -> str:
    if isinstance(one.count, Unknown):
        return ""
    if one.unit == "ns":
        is_use = stem_of(one.event) in CLOCKS and elapsed_s
        return f"{number(one.count / NS_PER_S / elapsed_s)} CPUs in use" if is_use else ""
    return _share(one, one.count, known) or _rate(one, one.count, known, elapsed_s)


def _share(one: EventCount, count: float, known: Known) -> str:
    """What part it is of another one that was counted."""
    if stem_of(one.event) == "instructions" and (cycles := beside(known, one.event, CYCLES)):
        return f"{number(count / cycles[1])} a cycle"
    if whole := beside(known, one.event, accesses(one.event)):
        return f"{percent(100 * count / whole[1])} of {whole[0]}"
    return ""


def _rate(one: EventCount, count: float, known: Known, elapsed_s: float) -> str:
    """How often in a second on a CPU, or of the time that passed."""
    ran_s = cpu_seconds(known)
    if stem_of(one.event) in CYCLES:
        return "" if ran_s is None else quantity(count / ran_s, "Hz")
    if ran_s is not None:
        return f"{si(count / ran_s, '/s')} on a CPU"
    return si(count / elapsed_s, f"{'' if one.unit == '1' else one.unit}/s") if elapsed_s else ""


def _cells(row: CountRow, *, is_one: bool) -> tuple[Cell, ...]:
    one = row.counted
    is_clock = one.unit == "ns"
    event = one.event if one.unit in ("ns", "1") else f"{one.event} ({one.unit})"
    share = one.counted_share if (one.counted_share or 1.0) < 1 and not isinstance(one.count, Unknown) else None
    of = None if is_one else row.of
    return event, of, None if is_clock else one.count, one.count if is_clock else None, row.meaning, one.spread, share


def said_of_counts(counts: EventCounts) -> list[str]:
    """What was counted for how long, and why some events have no count: a sentence for each reason."""
    names = list(dict.fromkeys(row.of for row in counts.rows))
    of = [f"of {names[0]}"] if len(names) == 1 else []
    length = [f"in {quantity(counts.elapsed_s, 's')}"] if counts.elapsed_s else []
    reasons: dict[Unknown, dict[str, None]] = {}
    for row in counts.rows:
        if isinstance(row.counted.count, Unknown):
            reasons.setdefault(row.counted.count, {})[row.counted.event] = None
    whys = [f"{', '.join(events)}: {why}" for why, events in reasons.items()]
    return [*([" ".join((*of, *length))] if of or length else []), *whys]
