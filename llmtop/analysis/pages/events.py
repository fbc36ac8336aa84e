"""What happened, as a list: marks on the time axis, clock limits that came and went, what counters tell."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.advice import fewer_preempted
from llmtop.analysis.rules.clocks_capped import advice
from llmtop.analysis.series.readings import gpu_tracks
from llmtop.analysis.server.liveness import liveness
from llmtop.analysis.tables import RowTable
from llmtop.analysis.views import Column
from llmtop.frozen import frozen
from llmtop.model import (
    NS_PER_S,
    CoreDump,
    Mark,
    MarkKind,
    Series,
    Severity,
    Trace,
    TrackId,
    TrackKind,
    Unknown,
    XidReport,
)
from llmtop.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from llmtop.model import Track

NOTHING_HAPPENED = Unknown("nothing has happened since llmtop began to look")
HOLD_NS = 10 * NS_PER_S
"""A clock limit that is back within this time never went: a power cap comes and goes with every batch."""
_NO_LIMITS = 0x1 | 0x2 | 0x100
"""Clock reasons that hold nothing down: idle, and clocks that somebody asked for (NVML's bits)."""


@frozen
class Event:
    """Something that happened.

    Attributes:
        where: "GPU 0", "EngineCore (pid 4300)", "vLLM" ...
        what: In two or three words: "XID 79", "GPU lost", "power cap".
        action: What to do about it; empty when nothing needs to be done.
    """

    t_ns: int
    where: str
    what: str
    meaning: str
    action: str
    severity: Severity

    @property
    def key(self) -> tuple[int, str, str]:
        """What tells it from others: when, where and what."""
        return self.t_ns, self.where, self.what


@frozen
class Episode:
    """A time in which one clock limit stood.

    Attributes:
        bit: NVML's clock event reason.
        is_ongoing: It stands at the end of the series.
        began_before: It stood at the first sample already.
    """

    bit: int
    start_ns: int
    last_ns: int
    is_ongoing: bool
    began_before: bool


def events(trace: Trace) -> tuple[Event, ...]:
    """Everything that happened in the window, newest first."""
    marks = (mark for mark in trace.marks if mark.kind not in _OF_METRICS)
    found, limits = [_of_mark(trace, mark) for mark in marks], list[Event]()
    found += _of_metrics(trace)
    for track in gpu_tracks(trace):
        series = trace.get(track.id, v.GPU_CLOCK_REASONS)
        if series is not None:
            limits += [_of_episode(trace, track.id, one) for one in clock_episodes(series, trace.end_ns)]
    found += _together(limits)
    found += _of_life(trace)
    for track in trace.tracks_of(TrackKind.SERVER):
        found += _of_server(trace, track)
    return tuple(sorted(found, key=lambda event: -event.t_ns))


def events_table(found: Iterable[Event], now_ns: int) -> RowTable:
    """One row an event, by `Event.key`: a choice tells the moment."""
    columns = (
        Column("ago", "s ago", "1", width=6, help="seconds before now"),
        Column("severity", "level", width=7, shrink=4),
        Column("where", "where", width=15, shrink=2),
        Column("what", "what", width=14),
        Column("meaning", "meaning"),
        Column("action", "what to do", width=34, shrink=3),
    )
    listed = tuple(found)
    rows = tuple(
        (
            *(max(0, round((now_ns - event.t_ns) / NS_PER_S)), event.severity.value, event.where),
            *(event.what, event.meaning, event.action),
        )
        for event in listed
    )
    return RowTable(columns, rows, tuple(event.key for event in listed))


# Clock limits

_ONE_GPU = re.compile(r" -i \d+ ")
"""How a command names the GPU that it is for."""


def clock_episodes(series: Series, end_ns: int, hold_ns: int = HOLD_NS) -> Iterator[Episode]:
    """The times in which something held the clock down, by reason, as they end.

    Args:
        series: GPU_CLOCK_REASONS of one GPU.
        end_ns: Now.
        hold_ns: A shorter break does not end an episode.
    """
    standing: dict[int, tuple[int, int]] = {}
    first_ns = None
    for t, value in series:
        first_ns = t if first_ns is None else first_ns
        for bit in _bits(0 if value is None else int(value)):
            start, last = standing.get(bit, (t, t))
            if t - last > hold_ns:
                yield Episode(bit, start, last, is_ongoing=False, began_before=start == first_ns)
                start = t
            standing[bit] = (start, t)
    for bit, (start, last) in standing.items():
        yield Episode(bit, start, last, is_ongoing=end_ns - last <= hold_ns, began_before=start == first_ns)


def _bits(mask: int) -> tuple[int, ...]:
    limits = mask & ~_NO_LIMITS
    return tuple(1 << i for i in range(limits.bit_length()) if limits >> i & 1)


def _together(limits: Iterable[Event]) -> Iterator[Event]:
    """What happened to several GPUs at one moment as one event: eight that reach their power cap are one thing."""
    groups: dict[tuple[int, str, str, str], list[Event]] = {}
    for event in limits:
        key = event.t_ns, event.what, event.meaning, _ONE_GPU.sub("", event.action)
        groups.setdefault(key, []).append(event)
    for first, *others in groups.values():
        numbers = [event.where.removeprefix("GPU ") for event in (first, *others)]
        action = _ONE_GPU.sub(f" -i {','.join(numbers)} ", first.action)
        yield replace(first, where=f"GPUs {' '.join(numbers)}", action=action) if others else first


def _of_episode(trace: Trace, gpu: TrackId, episode: Episode) -> Event:
    seconds = (episode.last_ns - episode.start_ns) / NS_PER_S
    length = f"{seconds:.0f} s" if seconds >= 1 else "under a second"
    more = " or more" if episode.began_before else ""
    meaning = f"the clock is held down, for {length}{more} so far" if episode.is_ongoing else f"for {length}{more}"
    severity, action = advice(trace, gpu, episode.bit)
    what = " ".join(v.clock_reasons(episode.bit))
    return Event(episode.start_ns, _where(trace, gpu), what, meaning, action, severity)


# Metrics that are lost and back

_OF_METRICS = (MarkKind.METRICS_LOST, MarkKind.METRICS_BACK)


def _of_metrics(trace: Trace) -> Iterator[Event]:
    """Each time without metrics; those that follow one another within `HOLD_NS` are one, of which the last counts."""
    by_track: dict[str, list[list[Mark]]] = {}
    for mark in trace.marks:
        if mark.kind in _OF_METRICS:
            times = by_track.setdefault(mark.track, [])
            if not times or (mark.kind is MarkKind.METRICS_LOST and mark.t_ns - times[-1][-1].t_ns > HOLD_NS):
                times.append([])
            times[-1].append(mark)
    for times in by_track.values():
        for marks in times:
            yield from _of_time_without_metrics(trace, marks)


def _of_time_without_metrics(trace: Trace, marks: Sequence[Mark]) -> Iterator[Event]:
    """That metrics were lost, how often in how long, and that they are back."""
    lost = [mark for mark in marks if mark.kind is MarkKind.METRICS_LOST]
    if lost:
        event = _of_mark(trace, lost[-1])
        span_s = (lost[-1].t_ns - lost[0].t_ns) / NS_PER_S
        often = f"{len(lost)} times in {span_s:.0f} s: " if len(lost) > 1 else ""
        yield replace(event, t_ns=lost[0].t_ns, meaning=often + event.meaning)
    if marks[-1].kind is MarkKind.METRICS_BACK:
        yield _of_mark(trace, marks[-1])


# What does not live


def _of_life(trace: Trace) -> Iterator[Event]:
    """Faults that nothing else has marked: what was so when llmtop came, what is stopped or hangs."""
    for fault in liveness(trace).faults:
        is_marked = any(abs(mark.t_ns - fault.since_ns) <= _AT_ONCE_NS for mark in trace.marks)
        if fault.severity is Severity.ERROR and not is_marked:
            yield Event(fault.since_ns, fault.subject, fault.state.lower(), fault.message, fault.action, fault.severity)


_AT_ONCE_NS = 2 * NS_PER_S
"""A mark so near to the beginning of a fault tells of the same."""


# What a server's counters tell


def falls(series: Series) -> Iterator[int]:
    """When a counter began again: its owner was restarted."""
    last: float | None = None
    for t, value in series:
        if value is not None:
            if last is not None and value < last:
                yield t
            last = value


def growths(series: Series, hold_ns: int = HOLD_NS) -> Iterator[tuple[int, int, float]]:
    """(start, end, amount) of the times in which a counter grew; a pause shorter than `hold_ns` does not end one."""
    current: tuple[int, int, float] | None = None
    last: float | None = None
    for t, value in series:
        grown = 0.0 if value is None or last is None else value - last
        last = last if value is None else value
        if grown <= 0:
            continue
        if current is not None and t - current[1] <= hold_ns:
            current = (current[0], t, current[2] + grown)
            continue
        if current is not None:
            yield current
        current = (t, t, grown)
    if current is not None:
        yield current


def _of_server(trace: Trace, track: Track) -> Iterator[Event]:
    tokens = trace.get(track.id, v.SERVER_OUTPUT_TOKENS) or trace.get(track.id, v.SERVER_OUTPUT_TOKENS_ENDED)
    preemptions = trace.get(track.id, v.SERVER_PREEMPTIONS)
    for t in falls(tokens) if tokens is not None else ():
        yield Event(t, track.name, "restarted", "its counters began again", "", Severity.WARNING)
    for start, end, amount in growths(preemptions) if preemptions is not None else ():
        meaning = f"{amount:.0f} {'request' if amount == 1 else 'requests'} preempted for want of KV cache"
        span = f", in {(end - start) / NS_PER_S:.0f} s" if end - start >= NS_PER_S else ""
        yield Event(start, track.name, "preemption", meaning + span, fewer_preempted(trace), Severity.WARNING)


# Marks

_ACTIONS = {
    MarkKind.GPU_LOST: "sudo dmesg | grep -iE 'nvrm|xid' says why; nvidia-smi -q shows what the driver still knows",
    MarkKind.GPU_HUNG: "sudo dmesg | grep -iE 'nvrm|xid' says why; it goes on by itself when the driver's call returns",
    MarkKind.STUCK: "it goes on by itself; of a driver that hangs, sudo dmesg says more",
}


def _of_mark(trace: Trace, mark: Mark) -> Event:
    where = mark.subject.removesuffix(":") or _where(trace, mark.track)
    if isinstance(xid := mark.about, XidReport):
        return Event(mark.t_ns, where, f"XID {xid.code}", xid.meaning, xid.action, mark.severity)
    if isinstance(dump := mark.about, CoreDump):
        action = f"llmtop open {quoted(dump.file)}" if dump.why_not is None else dump.why_not.remedy
        return Event(mark.t_ns, where, mark.kind, mark.said, action, mark.severity)
    if isinstance(why := mark.about, Unknown):
        return Event(mark.t_ns, where, mark.kind, why.reason, why.remedy, mark.severity)
    action = "" if mark.severity is Severity.INFO else _ACTIONS.get(mark.kind, "")
    return Event(mark.t_ns, where, mark.kind, mark.said, action, mark.severity)


def _where(trace: Trace, track_id: str) -> str:
    """What people call a track: "GPU 0", "EngineCore (pid 4300)", "vLLM"."""
    kind = ids.kind(track_id)
    if kind is TrackKind.GPU or kind is TrackKind.GPU_INSTANCE:
        index, _, instance = ids.gpu_label(track_id).partition("/")
        return " ".join(("GPU", index, instance and f"MIG {instance}")).strip()
    track = trace.tracks.get(TrackId(track_id))
    if kind is TrackKind.PROCESS:
        pid = ids.pid(track_id)
        return f"{track.name} (pid {pid})" if track else f"pid {pid}"
    return track.name if track else track_id
