"""The live session: collectors on their own threads -> recorder -> `Trace`.

The recorder is the only mutable store of the program. Nothing here knows a screen.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import deque
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Protocol, cast

from llmtop import ids, whats
from llmtop.collectors.base import Eager, EndReporter, OnDemand, Owner, Prestarted, Resting, Starting
from llmtop.facts import OriginFact
from llmtop.model import (
    LIVE,
    NS_PER_S,
    Issue,
    Mark,
    MarkKind,
    Metric,
    Missing,
    Origin,
    Reading,
    Series,
    Severity,
    Source,
    Sources,
    Stack,
    StackWindow,
    Trace,
    Track,
    TrackId,
    TrackKind,
    Unknown,
)
from llmtop.remedies import for_here
from llmtop.vocabulary import STACKS_WINDOW_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from llmtop.collectors.base import Clock, Collector
    from llmtop.model import Target, What
    from llmtop.servers.follow import TargetChange

DEFAULT_WINDOW_S = 600.0
FOLLOW_S = 0.5
"""How often it is looked whether the server is still the same."""
SECOND_LOOK_S = 0.25
"""The first two polls of a collector are this close together: a rate takes two, and two and a half of the shortest GPM
windows fit between them. So are those it asks for itself."""
LONGEST_REST_S = 60.0
"""A collector that has nothing to do is polled as often as this."""
STUCK_S = 3.0
"""A call of a collector that runs for longer than this, and than `STUCK_PERIODS` of its periods, is said to hang."""
STUCK_PERIODS = 3
_STUCK_REMEDY = "it goes on by itself when its call returns; of a driver that hangs, dmesg says more"
KEEP_STACKS_NS = 10 * NS_PER_S
"""How often the stacks of the moment are kept for later."""
OLD_STACKS_NS = 120 * NS_PER_S
"""From this age on, one in `STACKS_WINDOW_NS` is kept: still all of the time, in half the memory (4 MB in 10 min)."""
SWEEP_NS = 10 * NS_PER_S
"""How often all columns are looked through for samples that have left the window."""
_SLACKS = range(48, 112, 8)
"""Samples that may be out of the window before a column is cut: cutting then costs next to nothing per sample. They
differ, so that not all columns are copied at the same moment, while traces still hold the old ones."""

_NAN = float("nan")


@dataclass(slots=True)
class _Column:
    """The growing columns of one series. Cutting replaces the arrays: frozen traces keep the old ones."""

    metric: Metric
    source: str
    owner: str
    slack: int = _SLACKS[0]
    times: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    start: int = 0
    last_ns: int = -1
    """When its newest sample was taken; -1 before the first."""

    def forget_before(self, t_ns: int) -> bool:
        """Leave samples older than `t_ns` out of the window; keep one before it, so that rates can start.

        Returns:
            Whether there were any.
        """
        times, start = self.times, self.start
        while start + 1 < len(times) and times[start + 1] < t_ns:
            start += 1
        if start == self.start:
            return False
        self.start = start
        if start > self.slack:
            self.times, self.values, self.start = times[start:], self.values[start:], 0
        return True

    def series(self, track: TrackId) -> Series:
        """The column as it stands."""
        times = self.times
        return Series(track, self.metric, self.source, times, self.values, self.start, len(times))


_LIVING = (TrackKind.PROCESS, TrackKind.THREAD, TrackKind.ENDED)
_ADDRESSES = (TrackKind.SERVER, TrackKind.ENDPOINT)
"""Tracks by port, which the next server may have again."""


class Recorder:
    """Keeps the last `window_s` seconds of what collectors report. Thread-safe."""

    def __init__(self, origin: Origin, window_s: float = DEFAULT_WINDOW_S) -> None:
        self._lock = threading.Lock()
        self._origin = origin
        self._window_ns = int(window_s * NS_PER_S)
        self._columns: dict[tuple[TrackId, str], _Column] = {}
        self._series: dict[tuple[TrackId, str], Series] = {}
        """The columns as they stand, each made anew with its newest sample: a trace only copies the table."""
        self._swept_ns = 0
        self._tracks: dict[TrackId, Track] = {}
        self._stacks = _Stacks()
        """Whether remedies are for root: collectors write them for everybody, and this is where they all come by."""
        self._missing: dict[str, tuple[Missing, ...]] = {}
        self._issues: dict[tuple[str, str], Issue] = {}
        self._marks: deque[Mark] = deque(maxlen=1000)
        self._sources = Sources()
        self._start_ns = 0
        self._end_ns = 0

    def append(self, collector: str, trace: Trace) -> None:
        """Fold in one poll of one collector.

        Its `missing` and `stacks` replace those of its last poll; its tracks are added or renewed; its issues are
        counted up by (code, message).
        """
        with self._lock:
            self._end_ns = max(self._end_ns, trace.end_ns)
            self._start_ns = self._start_ns or trace.start_ns or trace.end_ns
            self._tracks.update(trace.tracks)
            self._extend(collector, trace.readings)
            self._missing[collector] = _for_here(trace.missing)
            if trace.stacks:
                self._stacks.replace(collector, trace.end_ns, trace.stacks)
            self._marks.extend(trace.marks)
            self._count_issues(trace.issues)
            self._forget(trace.gone)

    def tell_interval(self, seconds: float) -> None:
        """Note how often sources are looked at: from twice that age on a number is old."""
        with self._lock:
            self._origin = replace(self._origin, facts={**self._origin.facts, OriginFact.INTERVAL_S: seconds})

    def tell_sources(self, sources: Iterable[Source]) -> None:
        """Note who reads what, best first."""
        with self._lock:
            self._sources = Sources(sources)

    def mark(self, mark: Mark) -> None:
        """Add a mark that no poll brought."""
        with self._lock:
            self._marks.append(mark)

    def gap(self, collector: str, t_ns: int) -> None:
        """End the lines of a collector that has stopped answering: what it said last is not "now" any more."""
        with self._lock:
            self._end_ns = max(self._end_ns, t_ns)
            own = [(track, one) for (track, _), one in self._columns.items() if one.owner == collector]
            self._extend(collector, [Reading(track, one.metric, t_ns, None, one.source) for track, one in own])

    def retire(self, collectors: Collection[str], t_ns: int) -> None:
        """End what collectors have said of a server that another one takes the place of.

        Its processes and threads are forgotten. What is told of an endpoint is kept, with a gap: it goes on where the
        next server opens the same port.
        """
        for collector in collectors:
            self.gap(collector, t_ns)
        with self._lock:
            for collector in collectors:
                self._missing.pop(collector, None)
                self._stacks.drop(collector)
            self._forget(tuple(id for id, track in self._tracks.items() if track.kind in _LIVING))
            for id in [id for id, track in self._tracks.items() if track.kind in _ADDRESSES]:
                del self._tracks[id]

    def freeze(self) -> Trace:
        """The window as it stands, without copying a sample."""
        with self._lock:
            oldest = self._end_ns - self._window_ns
            self._sweep(oldest)
            stacks_end_ns, stacks = self._stacks.at(self._end_ns)
            return Trace(
                origin=self._origin,
                start_ns=max(self._start_ns, oldest),
                end_ns=self._end_ns,
                tracks=dict(self._tracks),
                series=dict(self._series),
                stacks=stacks,
                marks=tuple(mark for mark in self._marks if mark.t_ns >= oldest),
                issues=tuple(self._issues.values()),
                missing=tuple(one for several in self._missing.values() for one in several),
                stacks_end_ns=stacks_end_ns,
                past_stacks=self._stacks.past(oldest),
                sources=self._sources,
            )

    def _extend(self, collector: str, readings: Iterable[Reading]) -> None:
        """Add samples; one that is not newer than its column's last is dropped (a source polled twice in one tick).

        In one piece, without a call of our own for each: there are a thousand a second.
        """
        columns, series, oldest_ns = self._columns, self._series, self._end_ns - self._window_ns
        for reading in readings:
            track, metric, t_ns, value = reading.track, reading.metric, reading.t_ns, reading.value
            key = (track, metric.name)
            column = columns.get(key)
            if column is None:
                column = columns[key] = _Column(metric, reading.source, collector, _SLACKS[len(columns) % len(_SLACKS)])
            column.owner = collector
            if t_ns <= column.last_ns:
                continue
            column.last_ns, column.source = t_ns, reading.source
            times, second = column.times, column.start + 1
            times.append(t_ns)
            column.values.append(_NAN if value is None else value)
            if second < len(times) and times[second] < oldest_ns:
                column.forget_before(oldest_ns)
                times = column.times
            series[key] = Series(track, metric, reading.source, times, column.values, column.start, len(times))

    def _sweep(self, oldest_ns: int) -> None:
        """Now and then have columns that stand still lose their oldest samples too."""
        if self._end_ns - self._swept_ns < SWEEP_NS:
            return
        self._swept_ns = self._end_ns
        for key, column in self._columns.items():
            if column.forget_before(oldest_ns):
                self._series[key] = column.series(key[0])

    def _count_issues(self, issues: Iterable[Issue]) -> None:
        for issue in issues:
            key = (issue.code, issue.message)
            seen = self._issues.get(key)
            self._issues[key] = replace(seen, count=seen.count + issue.count) if seen else issue

    def _forget(self, gone: tuple[TrackId, ...]) -> None:
        """Drop ended tracks with all they had: a server that forks for each request must not fill memory."""
        if not gone:
            return
        ended = set(gone)
        for track in gone:
            self._tracks.pop(track, None)
        for key in [key for key in self._columns if key[0] in ended]:
            del self._columns[key]
            self._series.pop(key, None)


def _for_here(missing: Iterable[Missing]) -> tuple[Missing, ...]:
    return tuple(
        one if "sudo" not in one.why.remedy else replace(one, why=replace(one.why, remedy=for_here(one.why.remedy)))
        for one in missing
    )


class _Stacks:
    """The newest stacks of every collector, and those of some earlier moments."""

    def __init__(self) -> None:
        self._newest: dict[str, StackWindow] = {}
        self._joined: tuple[tuple[StackWindow, ...], Sequence[Stack]] = ((), ())
        self._past: deque[StackWindow] = deque()

    def replace(self, collector: str, t_ns: int, stacks: Sequence[Stack]) -> None:
        """What a collector says now stands for what it said before."""
        self._newest[collector] = StackWindow(t_ns, stacks)
        if not self._past or t_ns - self._past[-1].end_ns >= KEEP_STACKS_NS:
            self._past.append(StackWindow(t_ns, self._shared(self.at(t_ns)[1])))
            self._thin(t_ns - OLD_STACKS_NS)

    def drop(self, collector: str) -> None:
        """Forget what a collector said last."""
        self._newest.pop(collector, None)

    def at(self, now_ns: int) -> tuple[int, Sequence[Stack]]:
        """When the newest were summed up, and the stacks of all collectors that have not fallen silent since.

        The same object as long as nothing changes, so that what is made of it can be kept.
        """
        fresh = tuple(window for window in self._newest.values() if now_ns - window.end_ns <= STACKS_WINDOW_NS)
        if fresh != self._joined[0]:
            joined = fresh[0].stacks if len(fresh) == 1 else tuple(chain.from_iterable(one.stacks for one in fresh))
            self._joined = (fresh, joined)
        return max((window.end_ns for window in fresh), default=0), self._joined[1]

    def past(self, oldest_ns: int) -> tuple[StackWindow, ...]:
        """Those that were kept, from `oldest_ns` on."""
        while self._past and self._past[0].end_ns < oldest_ns:
            self._past.popleft()
        return tuple(self._past)

    def _thin(self, old_ns: int) -> None:
        """Of those before `old_ns`, keep only as many as it takes to leave no time out."""
        kept: deque[StackWindow] = deque()
        windows = list(self._past)
        for window, later in pairwise(windows):
            is_needed = not kept or later.end_ns - kept[-1].end_ns > STACKS_WINDOW_NS
            if window.end_ns >= old_ns or is_needed:
                kept.append(window)
        self._past = deque((*kept, windows[-1]))

    def _shared(self, stacks: Sequence[Stack]) -> tuple[Stack, ...]:
        """The same stacks, with frames that the last kept ones have too held only once."""
        known = {stack.frames: stack.frames for stack in self._past[-1].stacks} if self._past else {}
        return tuple(replace(stack, frames=known.get(stack.frames, stack.frames)) for stack in stacks)


class Following(Protocol):
    """Knows where a server goes, and what looks at it there."""

    def look(self) -> TargetChange | None:
        """What is new; None while nothing is. Called every `FOLLOW_S`, so it must be cheap."""
        ...

    def collectors(self, target: Target) -> Iterable[Collector]:
        """What looks at the server."""
        ...


@dataclass(slots=True)
class _Call:
    """A call into a collector that has not returned yet. `is_told`: whether it was said to hang."""

    name: str
    start_ns: int
    patience_ns: int
    is_told: bool = False


@dataclass(slots=True, eq=False)
class _Group:
    """Collectors that start and end together."""

    collectors: tuple[Collector, ...]
    stop: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)
    alarms: dict[int, threading.Event] = field(default_factory=dict)
    """What ends the rest of a collector that can be asked for more, by its id()."""

    def end(self) -> None:
        """Have all of them end, without waiting for that."""
        self.stop.set()
        for alarm in self.alarms.values():
            alarm.set()


class Session:
    """Runs collectors, each on a thread of its own, into one recorder.

    Args:
        collectors: What to run; those that cannot run here are listed as missing and not started.
        interval_s: Time between polls, or a collector's own `period_s` where that is longer.
        on_news: Called from a collector's thread after each poll; must only post a message.
        target: The server under observation, where there is one.
        following: Follows the target through restarts and makes the collectors that look at it.
    """

    def __init__(
        self,
        collectors: Iterable[Collector],
        origin: Origin,
        *,
        interval_s: float = 1.0,
        window_s: float = DEFAULT_WINDOW_S,
        on_news: Callable[[], None] | None = None,
        clock: Clock = time.monotonic_ns,
        target: Target | None = None,
        following: Following | None = None,
    ) -> None:
        self.interval_s = interval_s
        self.look_stretch = 1.0
        """How many intervals apart polls are: more than one while llmtop would take more than its budget otherwise."""
        self.on_news = on_news
        self.recorder = Recorder(origin, window_s)
        self.target = target
        """The server under observation, as it is known now: another one after a restart."""
        self._following = following
        self._clock = clock
        self._stop = threading.Event()
        self._host = _Group(tuple(collectors))
        self._aimed = _Group(tuple(following.collectors(target)) if following and target else ())
        self._tell_sources()
        self._follower: threading.Thread | None = None
        self._asked: dict[What, bool] = {}
        self._turning = threading.Lock()
        """Held while collectors are exchanged, and while one reports: no report of an old server comes late."""
        self._heard: set[str] = set()
        """Names of collectors that have reported."""
        self._calls: dict[int, _Call] = {}
        self._calls_lock = threading.Lock()

    @property
    def collectors(self) -> tuple[Collector, ...]:
        """All that run now."""
        return (*self._host.collectors, *self._aimed.collectors)

    def prepare(self) -> None:
        """Start the processes in which collectors look; a session that is never started leaves them to end with it."""
        for collector in self.collectors:
            if isinstance(collector, Prestarted):
                collector.prepare()

    def start(self) -> None:
        """Start every collector that can run."""
        self.recorder.tell_interval(self.interval_s)
        for group in (self._host, self._aimed):
            self._start(group)
        if self._following is not None:
            self._follower = threading.Thread(target=self._follow, name="llmtop follow", daemon=True)
            self._follower.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Ask every collector to end and wait; one that hangs in a driver call is left behind as a daemon."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        follower = [self._follower] if self._follower is not None else []
        for group in (self._host, self._aimed):
            group.end()
        for thread in (*follower, *self._host.threads, *self._aimed.threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    def ask(self, what: What, wanted: bool) -> None:
        """Have collectors take something that is not taken unasked, or leave it again. May be called at any time."""
        self._asked[what] = wanted
        for group in (self._host, self._aimed):
            for collector in group.collectors:
                if isinstance(collector, OnDemand):
                    collector.ask(what, wanted)
                    if (alarm := group.alarms.get(id(collector))) is not None:
                        alarm.set()

    @property
    def unready(self) -> tuple[str, ...]:
        """Names of collectors that have not said anything yet, or are still about to look for the first time."""
        return tuple(
            one.name
            for one in self.collectors
            if one.name not in self._heard or (isinstance(one, Starting) and one.is_starting)
        )

    def retarget(self, move: TargetChange) -> None:
        """Look at another server from now on, or at the same one of which more is known.

        Collectors of the old server end and others take their place; those of the host go on, and so does history.
        """
        if not move.said:
            self.target = move.target
            self._tell()
            return
        assert self._following is not None
        with self._turning:
            old = self._aimed
            old.end()
            now = self._clock()
            self.recorder.retire([collector.name for collector in old.collectors], now)
            track, title = ids.process(move.target.root_pid), move.target.title
            self.recorder.mark(Mark(now, MarkKind.SERVER, track, move.said, move.severity, title, move.restart))
            self.target = move.target
            self._aimed = _Group(tuple(self._following.collectors(move.target)))
            self._tell_sources()
        for what, wanted in self._asked.items():
            self.ask(what, wanted)
        if not self._stop.is_set():
            self._start(self._aimed)
        self._tell()

    def _tell_sources(self) -> None:
        self.recorder.tell_sources(one.owns for one in self.collectors if isinstance(one, Owner))

    def _start(self, group: _Group) -> None:
        for collector in group.collectors:
            alarm = group.stop
            if isinstance(collector, Resting) and isinstance(collector, OnDemand):
                alarm = group.alarms[id(collector)] = threading.Event()
            arguments = (collector, group.stop, alarm)
            thread = threading.Thread(target=self._run, args=arguments, name=f"llmtop {collector.name}", daemon=True)
            group.threads.append(thread)
            thread.start()

    def _follow(self) -> None:
        assert self._following is not None
        while not self._stop.wait(FOLLOW_S):
            try:
                move = self._following.look()
            except Exception as error:  # the border: a fault here costs the next server, not this one
                self._report("follow", issues=(_fault("follow", error),))
                continue
            if move is not None:
                self.retarget(move)

    def trace(self) -> Trace:
        """What is known now; collectors that hang are missing, and what they said last is over."""
        stuck = self._find_stuck()
        trace = self.recorder.freeze()
        return replace(trace, missing=(*stuck, *trace.missing)) if stuck else trace

    def _find_stuck(self) -> tuple[Missing, ...]:
        """A thread that hangs cannot say so: it is found by whoever asks for the trace."""
        now, found = self._clock(), []
        with self._calls_lock:
            for call in self._calls.values():
                name = call.name
                if now - call.start_ns <= call.patience_ns:
                    continue
                said = f"the {name} collector has not answered for {(now - call.start_ns) / NS_PER_S:.0f} s"
                found.append(Missing(whats.source(name), Unknown(said, _STUCK_REMEDY)))
                if not call.is_told:
                    call.is_told = True
                    self.recorder.gap(name, now)
                    self.recorder.mark(Mark(now, MarkKind.STUCK, name, said, Severity.WARNING))
        return tuple(found)

    @contextmanager
    def _watched(self, collector: Collector) -> Iterator[None]:
        """Note that a call into a collector is under way."""
        patience_s = max(STUCK_S, STUCK_PERIODS * max(self.interval_s, collector.period_s))
        call = _Call(collector.name, self._clock(), int(patience_s * NS_PER_S))
        with self._calls_lock:
            self._calls[id(call)] = call
        try:
            yield
        finally:
            with self._calls_lock:
                del self._calls[id(call)]
            if call.is_told:
                now = self._clock()
                text = f"the {collector.name} collector answers again after {(now - call.start_ns) / NS_PER_S:.0f} s"
                self.recorder.mark(Mark(now, MarkKind.STUCK, collector.name, text))

    def _run(self, collector: Collector, stop: threading.Event, alarm: threading.Event) -> None:
        try:
            with self._watched(collector):
                why = collector.missing()
            if why is not None:
                self._report(collector.name, stop, missing=(Missing(whats.source(collector.name), why),))
                return
            with ExitStack() as stack:
                with self._watched(collector):
                    stack.enter_context(collector)
                self._poll_until_stopped(collector, stop, alarm)
        except Exception as error:  # the border: a collector's fault costs only its own data
            self._report(collector.name, stop, issues=(_fault(collector.name, error),))

    def _poll_until_stopped(self, collector: Collector, stop: threading.Event, alarm: threading.Event) -> None:
        """Poll each period, and when the alarm goes off, which is `stop` where nothing else has any news."""
        soon_ns = int(max(min(self.interval_s, SECOND_LOOK_S), collector.period_s) * NS_PER_S)
        is_first = True
        # To ask a protocol takes longer than many a poll's own work.
        may_hurry, may_rest = isinstance(collector, Eager), isinstance(collector, Resting)
        due = self._clock()
        while not stop.is_set():
            try:
                with self._watched(collector):
                    trace = collector.poll()
            except Exception as error:  # one bad poll never ends a collector
                self._report(collector.name, stop, issues=(_fault(collector.name, error),))
            else:
                self._append(collector.name, trace, stop)
            now = self._clock()
            is_soon = is_first or (may_hurry and cast("Eager", collector).is_eager)
            period_ns = int(max(self.interval_s * self.look_stretch, collector.period_s) * NS_PER_S)
            due = max(due + (soon_ns if is_soon else period_ns), now)  # late polls are skipped, not made up for
            is_first = False
            if may_rest:
                due = max(due, min(cast("Resting", collector).rests_until_ns, now + int(LONGEST_REST_S * NS_PER_S)))
            if alarm.wait((due - now) / NS_PER_S) and not stop.is_set():
                alarm.clear()
                due = self._clock()
        if isinstance(collector, EndReporter) and not self._stop.is_set():
            for mark in collector.last_words():
                self.recorder.mark(mark)

    def _report(
        self,
        name: str,
        stop: threading.Event | None = None,
        *,
        missing: tuple[Missing, ...] = (),
        issues: tuple[Issue, ...] = (),
    ) -> None:
        now = self._clock()
        self._append(name, Trace(LIVE, now, now, missing=missing, issues=issues), stop)

    def _append(self, name: str, trace: Trace, stop: threading.Event | None) -> None:
        """Record a report, unless its server has been left meanwhile; at the end the last ones count."""
        with self._turning:
            if stop is None or not stop.is_set() or self._stop.is_set():
                self.recorder.append(name, trace)
                self._heard.add(name)
        self._tell()

    def _tell(self) -> None:
        if self.on_news is not None:
            self.on_news()


def _fault(name: str, error: Exception) -> Issue:
    return Issue(
        Severity.ERROR,
        whats.fault(name),
        f"the {name} collector failed: {type(error).__name__}: {error}; please report this",
    )
