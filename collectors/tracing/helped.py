"""A collector that has a helper process do the looking: started, listened to, and started again when it ends."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from llmtop import ids, procfs, whats
from llmtop import vocabulary as v
from llmtop.collectors.base import DEFAULT_BUDGET
from llmtop.collectors.privileges import through_sudo
from llmtop.collectors.tracing import wire
from llmtop.collectors.tracing.helper.protocol import PASSING
from llmtop.collectors.tracing.process import HelperProcess, refusal_of_sudo
from llmtop.collectors.tracing.reports import Reports, gone_tracks
from llmtop.collectors.tracing.stacks import StackBuffer
from llmtop.frozen import frozen
from llmtop.model import (
    LIVE,
    NS_PER_S,
    Issue,
    Mark,
    MarkKind,
    Missing,
    Reading,
    Severity,
    Stack,
    Target,
    Trace,
    TrackId,
    TrackKind,
    Unknown,
    UnknownKind,
    What,
)
from llmtop.text import clean

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Clock

_OF_PROCESSES = (TrackKind.PROCESS, TrackKind.THREAD)
RETRY_NS = 30 * NS_PER_S
"""From the end of a helper to its next start."""
MOST_EARLY_ENDS = 3
"""A helper that ends so often in a row before it looks will always do so."""
START_NS = 60 * NS_PER_S
HUNG_NS = 30 * NS_PER_S
"""A helper that says nothing for so long hangs: when it starts, and afterwards at the least. Where it only waits for
a CPU, as on a machine that is looked at for that, it comes sooner."""
STACKS_EVERY_NS = 2 * NS_PER_S
"""How often stacks are made of what was counted."""
_EXITED = Unknown("the server's processes have ended", "start it again: llmtop follows", UnknownKind.PASSING)
SUDO_REMEDY = "sudo llmtop ..., or a sudo rule that asks no password (NOPASSWD)"
_WHATS = {
    "scheduler": (whats.SCHEDULER, whats.metric(v.THREAD_BLOCKED), whats.RUN_QUEUE_LATENCY),
    "samples": (whats.ON_CPU_STACKS,),
}
"""What is missing when a part of the helper is, where that is not called the same."""


@frozen
class HelperWords:
    """How a helper and what it looks with are called.

    Attributes:
        helper: "X ended: ...".
        looker: "X would cost more than ...".
        buffers: "events found no room in X".
        starting: The state until it looks.
    """

    helper: str
    looker: str
    buffers: str
    starting: Unknown


@dataclass(slots=True)
class ProbePoll:
    """What one poll has found."""

    readings: list[Reading] = field(default_factory=list)
    stacks: tuple[Stack, ...] = ()
    issues: list[Issue] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    gone: list[TrackId] = field(default_factory=list)


class KnownProcesses:
    """Processes known by PID and start time: one that got the PID of another is not taken for it."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._started: dict[int, int] = {}
        """Start times in clock ticks, by PID."""
        self.add(pids)

    def __len__(self) -> int:
        return len(self._started)

    def add(self, pids: Iterable[int]) -> None:
        """Know these too; those that have ended are left out."""
        self._started |= {pid: ticks for pid in pids if (ticks := _start_ticks(pid)) is not None}

    def remove(self, pids: Iterable[int]) -> None:
        """Know these no longer."""
        for pid in pids:
            self._started.pop(pid, None)

    def alive(self) -> list[int]:
        """Those that have not ended, and the children they have by now."""
        same = [pid for pid in self._started if self.is_same(pid)]
        return sorted({*same, *procfs.family().descendants(*same)}) if same else []

    def is_same(self, pid: int) -> bool:
        """Whether a process is the one that was known by this PID."""
        return self._started.get(pid) == _start_ticks(pid)

    def is_kept(self, track: TrackId) -> bool:
        """Whether a track belongs to a process that is still the same, and not to another with its PID."""
        return ids.kind(track) not in _OF_PROCESSES or self.is_same(ids.pid(track))


def _start_ticks(pid: int) -> int | None:
    state = procfs.stat(pid)
    return None if state is None else state.start_ticks


class HelpedCollector:
    """What a helper sees of a server's processes.

    The helper is started again when it dies or hangs, and counters go on from where they stood.

    Args:
        budget: Share of one core that looking may cost the server, and again all others.
        stacks: Whether stacks are taken.
        is_light: Look at what costs least alone: no stacks, no library calls.
        interval_s: Time between the helper's looks; by default `interval_s` of the class.
    """

    name = ""
    period_s = 0.25
    source: str
    """What readings are said to come from."""
    program: tuple[str, ...]
    """The helper."""
    words: HelperWords
    interval_s = 1.0
    hung_ns = HUNG_NS

    def __init__(
        self,
        target: Target,
        *,
        budget: float = DEFAULT_BUDGET,
        stacks: bool = True,
        is_light: bool = False,
        interval_s: float | None = None,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self._processes = KnownProcesses({target.pid, target.root_pid, *(one.pid for one in target.processes)})
        self._budget = budget
        self._wants_stacks = stacks and not is_light
        self._is_light = is_light
        self._interval_s = self.interval_s if interval_s is None else interval_s
        self._clock = clock
        self._helper: HelperProcess | None = None
        self._reports = Reports(source=self.source)
        self._stacks = StackBuffer()
        self._state: Unknown | None = self.words.starting
        self._retry_ns: int
        """When one that has ended is started again."""
        self._heard_ns: int
        self._started_ns: int
        """What the helper says it does until it looks."""
        self._early_ends = 0
        self._has_ended = False
        """The helper has ended before; the next one that is ready is back."""
        self._given_up = False
        self._missing: dict[What, Unknown] = {}
        self._lost = 0
        self._shed = ""
        self._stacks_due_ns = 0
        self._is_settling = False
        """What it looks at is not all that it will look at soon."""

    @property
    def unavailable(self) -> Unknown | None:
        """Why it cannot look here for good; None while it does, starts, or is about to be tried again."""
        return self._state if self._given_up else None

    def __enter__(self) -> Self:
        self._start(self._clock())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._helper:
            self._helper.close()
            self._helper = None

    def poll(self) -> Trace:
        """What the helper has said since the last call; never waits."""
        now, news = self._clock(), ProbePoll()
        if self._helper is None and self._state is not _EXITED and not self._given_up and now >= self._retry_ns:
            self._start(now)
        if self._helper:
            self._listen(self._helper, now, news)
        return Trace(
            LIVE,
            now,
            self._clock(),
            readings=tuple(news.readings),
            stacks=news.stacks,
            marks=tuple(news.marks),
            missing=tuple(self._all_missing(now)),
            issues=tuple(news.issues),
            gone=tuple(news.gone),
        )

    def _start(self, now: int) -> None:
        """Start the helper on the processes that are still the server's, and on the children they have by now."""
        pids = self._processes.alive()
        if not pids:
            self._state = _EXITED
            return
        options = ["--interval", f"{self._interval_s}", "--budget", f"{self._budget}"]
        flags = ["--stacks"] * self._wants_stacks + ["--light"] * self._is_light
        self._helper = HelperProcess(
            [*map(str, pids), *options, *flags],
            sudo=self._by_sudo(),
            program=self.program,
        )
        self._state, self._heard_ns, self._started_ns = self.words.starting, now, now

    def _by_sudo(self) -> bool:
        return through_sudo()

    @property
    def is_starting(self) -> bool:
        """Whether its helper has not begun to look yet, or is about to look at more."""
        return self._state is self.words.starting or (self._is_settling and self._helper is not None)

    def _listen(self, helper: HelperProcess, now: int, news: ProbePoll) -> None:
        """Take in what the helper has said, and notice when it has ended, hangs, or has nothing left to watch."""
        for report in helper.reports():
            self._heard_ns = now
            self._take(report, news)
        patience_ns = (
            START_NS if self._state is self.words.starting else max(self.hung_ns, int(3 * self._interval_s * NS_PER_S))
        )
        if helper.is_at_end:
            self._bury(helper, now, news, helper.last_words())
        elif now - self._heard_ns > patience_ns:
            helper.kill()
            self._bury(helper, now, news, f"it did not answer for {patience_ns // NS_PER_S} s and was ended")
        elif self._state is None and not self._processes:
            self._close(helper)
            self._state = _EXITED

    def _take(self, report: dict[str, Any], news: ProbePoll) -> None:
        match report.get("kind"):
            case "unavailable":
                self._state = Unknown(clean(report["reason"]), clean(report["remedy"]))
            case "ready":
                self._take_ready(report, news)
            case "sample":
                self._take_sample(wire.sample(report), news)

    def _take_ready(self, report: dict[str, Any], news: ProbePoll) -> None:
        assert self._helper is not None
        self._helper.is_known_as(report["pid"])
        if self._has_ended:
            news.marks.append(Mark(self._heard_ns, MarkKind.PROBES_BACK, ids.SELF, f"{self.words.helper} looks again"))
        self._state, self._has_ended = None, False

    def _take_sample(self, report: wire.Sample, news: ProbePoll) -> None:
        news.readings += self._reports.readings(report)
        news.gone += gone_tracks(report)
        self._processes.remove(report.get("gone", ()))
        self._note_missing(report["missing"])
        self._note_shed(clean(report["shed"]), news)
        self._note_lost(report["lost"], news)
        self._stacks.keep(report)
        news.stacks = self._stacks_if_due(report["t"]) or news.stacks

    def _stacks_if_due(self, t_ns: int) -> tuple[Stack, ...]:
        """The sums are of half a minute: made each second, they cost more than all other readings together."""
        if t_ns < self._stacks_due_ns:
            return ()
        stacks = self._stacks.summed(t_ns)
        if stacks:
            self._stacks_due_ns = t_ns + STACKS_EVERY_NS
        return stacks

    def _note_missing(self, missing: Mapping[str, wire.Why]) -> None:
        self._missing = {
            what: Unknown(clean(reason), clean(remedy), _kind(remedy))
            for part, (reason, remedy) in missing.items()
            for what in _WHATS.get(part, (whats.told(part),))
        }

    def _note_shed(self, shed: str, news: ProbePoll) -> None:
        """Say what is not looked at to save time."""
        cost = f"{self.words.looker} would cost more than {100 * self._budget:g} % of a core"
        if shed and shed != self._shed:
            message = f"{cost}, so less is looked at: {shed}"
            news.issues.append(Issue(Severity.INFO, f"{self.name}-shed", message))
        self._shed = shed
        if shed:
            more = f"it is tried again by itself; --overhead-budget {300 * self._budget:g} lets them cost more"
            why = Unknown(f"{cost}; now: {shed}", more, UnknownKind.PASSING)
            self._missing[whats.state(self.name, whats.State.SHED)] = why

    def _note_lost(self, lost: int, news: ProbePoll) -> None:
        if lost > self._lost:
            message = f"events found no room in {self.words.buffers}: counts are too low"
            news.issues.append(Issue(Severity.WARNING, f"{self.name}-lost", message, lost - self._lost))
        self._lost = lost

    def _bury(self, helper: HelperProcess, now: int, news: ProbePoll, how: str) -> None:
        """The helper is no more: say why, and try again in a while unless that would end the same way."""
        self._close(helper)
        was_early = self._state is self.words.starting
        if self._state is not None and not was_early:  # it has said itself that it cannot be done
            self._given_up = True
            return
        if refusal := refusal_of_sudo(how):
            self._state, self._given_up = Unknown(f"sudo refuses: {refusal}", SUDO_REMEDY), True
            return
        self._early_ends = self._early_ends + 1 if was_early else 0
        self._given_up = self._early_ends >= MOST_EARLY_ENDS or (was_early and helper.has_crashed)
        again = "llmtop doctor tries it anew" if self._given_up else "it is started again in 30 seconds"
        self._state = Unknown(f"{self.words.helper} ended: {how}", again, UnknownKind.PASSING)
        self._retry_ns = now + RETRY_NS
        self._has_ended = True
        news.readings += self._reports.resume(now, self._processes.is_kept)
        news.marks.append(Mark(now, MarkKind.PROBES_ENDED, ids.SELF, f"{how}; {again}", Severity.WARNING))

    def _close(self, helper: HelperProcess) -> None:
        """End the helper; what it had to say of its parts is over."""
        helper.close()
        self._helper = None
        self._lost, self._shed = 0, ""
        self._missing.clear()

    def _all_missing(self, now: int) -> list[Missing]:
        parts = [Missing(what, why) for what, why in self._missing.items()]
        if self._state is self.words.starting:
            return [Missing(whats.source(self.name), self._starting(now)), *parts]
        return [Missing(whats.source(self.name), self._state), *parts] if self._state else parts

    def _starting(self, now: int) -> Unknown:
        """What is awaited, and for how long already."""
        starting, seconds = self.words.starting, (now - self._started_ns) // NS_PER_S
        return replace(starting, reason=f"{starting.reason}{f', for {seconds} s' if seconds else ''}")


def _kind(remedy: str) -> UnknownKind:
    return UnknownKind.PASSING if remedy in PASSING else UnknownKind.OTHER
