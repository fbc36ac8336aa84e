"""The eBPF collector: a helper process loads the probes, this reads what it reports."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from llmtop import procfs
from llmtop.collectors.base import Check
from llmtop.collectors.ebpf.process import SYSTEM_PYTHON, HelperProcess
from llmtop.collectors.ebpf.reports import SOURCE, Reports, gone_tracks
from llmtop.collectors.privileges import own_rights, through_sudo, why_no_probes
from llmtop.model import NS_PER_S, Issue, Mark, Missing, Origin, Reading, Severity, Stack, Target, Trace, Unknown
from llmtop.text import clean

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Clock

DEFAULT_BUDGET = 0.01
OFF = "LLMTOP_NO_EBPF"
"""Set to anything, this variable keeps llmtop from loading probes."""
OLDEST_KERNEL = (5, 8)
RETRY_NS = 30 * NS_PER_S
MOST_EARLY_ENDS = 3
"""A helper that dies so often in a row before its probes are attached will always do so."""
STACKS_EVERY_NS = 2 * NS_PER_S
_INSTALL = "sudo apt install python3-bpfcc"
_COMPILING = Unknown("the probes are being compiled", "wait a second")
_EXITED = Unknown("the server's processes have ended", "attach to its new PID")
COMPILE_NS = 60 * NS_PER_S
HUNG_NS = 30 * NS_PER_S
"""A helper that says nothing for so long hangs: when it compiles, and afterwards at the least. Where it only waits
for a CPU, as on a machine that is looked at for that, it comes sooner."""
MARKS_PER_POLL = 5
TRACK = "self"
_SUDO_SAYS = "sudo: "
_SUDO_REMEDY = "sudo llmtop ..., or a sudo rule that asks no password (NOPASSWD)"
_CHECK_S = 20.0
_WHATS = {
    "syscalls": ("syscalls",),
    "scheduler": ("scheduler", "thread.blocked", "run-queue latency"),
    "samples": ("on-CPU stacks",),
}
"""What is missing when a part of the helper is."""


@dataclass(slots=True)
class _News:
    """What one poll has found."""

    readings: list[Reading] = field(default_factory=list)
    stacks: tuple[Stack, ...] = ()
    issues: list[Issue] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


class EbpfCollector:
    """System calls, sleeps, run-queue waits, stacks and CUDA calls of a server's processes.

    The helper is started again when it dies or hangs, and counters go on from where they stood. A process is known
    by its PID and the time it started: one that got the PID of another inherits nothing.

    Args:
        budget: Share of one core that probes may cost the server, and again all others.
        stacks: Whether stacks are taken.
        interval_s: Time between the helper's reports.
    """

    name = "ebpf"
    period_s = 0.25
    source = SOURCE
    """What readings are said to come from."""
    program: tuple[str, ...] = ()
    """The helper; by default the one that loads bcc's probes. Others speak as it does."""

    def __init__(
        self,
        target: Target,
        *,
        budget: float = DEFAULT_BUDGET,
        stacks: bool = True,
        interval_s: float = 1.0,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        pids = {target.pid, target.root_pid, *(one.pid for one in target.processes)}
        self._started = _start_times(pids)
        """When each process of the server was started, in clock ticks, by PID."""
        self._budget = budget
        self._wants_stacks = stacks
        self._interval_s = interval_s
        self._clock = clock
        self._helper: HelperProcess | None = None
        self._reports = Reports(source=self.source)
        self._state: Unknown | None = _COMPILING
        self._retry_ns = 0
        self._heard_ns = 0
        self._early_ends = 0
        self._has_ended = False
        """The helper has ended before; the next one that is ready is back."""
        self._given_up = False
        self._missing: dict[str, Unknown] = {}
        self._lost = 0
        self._shed = ""
        self._stacks_due_ns = 0

    @property
    def unavailable(self) -> Unknown | None:
        """Why probes cannot be had here for good; None while they run, compile, or are about to be tried again."""
        return self._state if self._given_up else None

    def missing(self) -> Unknown | None:
        return why_not()

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
        now, news = self._clock(), _News()
        if self._helper is None and self._state is not _EXITED and not self._given_up and now >= self._retry_ns:
            self._start(now)
        if self._helper:
            self._listen(self._helper, now, news)
        return Trace(
            Origin("live"),
            now,
            self._clock(),
            readings=tuple(news.readings),
            stacks=news.stacks,
            marks=tuple(news.marks),
            missing=tuple(self._all_missing()),
            issues=tuple(news.issues),
            gone=tuple(news.gone),
        )

    def _start(self, now: int) -> None:
        """Start the helper on the processes that are still the server's, and on the children they have by now."""
        same = [pid for pid in self._started if self._is_same(pid)]
        if not same:
            self._state = _EXITED
            return
        pids = sorted({*same, *procfs.family().descendants(*same)})
        options = ["--interval", f"{self._interval_s}", "--budget", f"{self._budget}"]
        self._helper = HelperProcess(
            [*map(str, pids), *options, *(["--stacks"] if self._wants_stacks else [])],
            sudo=through_sudo(),
            program=self.program,
        )
        self._state, self._heard_ns = _COMPILING, now

    def _is_same(self, pid: int) -> bool:
        return self._started.get(pid) == _start_ticks(pid)

    def _listen(self, helper: HelperProcess, now: int, news: _News) -> None:
        """Take in what the helper has said, and notice when it has ended, hangs, or has nothing left to watch."""
        for report in helper.reports():
            self._heard_ns = now
            self._take(report, news)
        patience_ns = COMPILE_NS if self._state is _COMPILING else max(HUNG_NS, int(3 * self._interval_s * NS_PER_S))
        if helper.is_at_end:
            self._bury(helper, now, news, helper.last_words())
        elif now - self._heard_ns > patience_ns:
            helper.kill()
            self._bury(helper, now, news, f"it did not answer for {patience_ns // NS_PER_S} s and was ended")
        elif self._state is None and not self._started:
            self._close(helper)
            self._state = _EXITED

    def _take(self, report: dict[str, Any], news: _News) -> None:
        match report.get("kind"):
            case "unavailable":
                self._state = Unknown(clean(report["reason"]), clean(report["remedy"]))
            case "ready":
                self._take_ready(report, news)
            case "sample":
                self._take_sample(report, news)

    def _take_ready(self, report: dict[str, Any], news: _News) -> None:
        assert self._helper is not None
        self._helper.is_known_as(report["pid"])
        if self._has_ended:
            news.marks.append(Mark(self._heard_ns, "probes back", TRACK, "the probes' process looks again"))
        self._state, self._has_ended, self._early_ends = None, False, 0
        self._started = _start_times(report["processes"])
        self._missing.clear()
        self._note_missing(report["missing"])
        news.issues += _other_tracers(report["others"])
        if not report["knows_calls"]:
            reason = "this kernel does not tell a probe the system call that a thread sleeps in"
            self._missing["thread.blocked/cause"] = Unknown(reason, "Linux 5.15 or newer with BTF does")

    def _take_sample(self, report: dict[str, Any], news: _News) -> None:
        news.readings += self._reports.readings(report)
        news.gone += gone_tracks(report)
        self._started |= _start_times(report["born"])
        for pid in report["gone"]:
            self._started.pop(pid, None)
        news.marks += _programs_changed(report["renewed"], self._heard_ns)
        self._note_missing(report["missing"])
        self._note_shed(report, news)
        self._note_lost(report["lost"], news)
        self._reports.keep_stacks(report)
        news.stacks = self._stacks_if_due(int(report["t"])) or news.stacks

    def _stacks_if_due(self, t_ns: int) -> tuple[Stack, ...]:
        """The sums are of half a minute: made each second, they cost more than all other readings together."""
        if t_ns < self._stacks_due_ns:
            return ()
        stacks = self._reports.summed_stacks(t_ns)
        if stacks:
            self._stacks_due_ns = t_ns + STACKS_EVERY_NS
        return stacks

    def _note_missing(self, missing: dict[str, list[str]]) -> None:
        for part, (reason, remedy) in missing.items():
            for what in _WHATS.get(part, (part,)):
                self._missing[what] = Unknown(clean(reason), clean(remedy))

    def _note_shed(self, report: dict[str, Any], news: _News) -> None:
        """Say what is not looked at to save time, and leave gaps where counters stood still for it."""
        for name, why in report["unprobed"].items():
            self._missing[f"library.{name}"] = Unknown(clean(why))
        for what in [what for what in self._missing if what.startswith("library.")]:
            if what.removeprefix("library.") not in report["unprobed"]:
                del self._missing[what]
        shed = clean(report["shed"])
        if shed and shed != self._shed:
            message = f"probes cost more than {self._budget:.0%} of a core, so less is looked at for a while: {shed}"
            news.issues.append(Issue(Severity.INFO, "ebpf-shed", message))
        if "scheduler off" in shed and "scheduler off" not in self._shed:
            news.readings += self._reports.gaps(int(report["t"]), ("thread.blocked", "process.run_queue_latency"))
        self._shed = shed
        self._missing.pop("ebpf.shed", None)
        if shed:
            reason = f"probes would cost more than {self._budget:.0%} of a core; now: {shed}"
            self._missing["ebpf.shed"] = Unknown(reason, "it is tried again by itself")

    def _note_lost(self, lost: int, news: _News) -> None:
        if lost > self._lost:
            message = "events found no room in the probes' tables: counts are too low"
            news.issues.append(Issue(Severity.WARNING, "ebpf-lost", message, lost - self._lost))
        self._lost = lost

    def _bury(self, helper: HelperProcess, now: int, news: _News, how: str) -> None:
        """The helper is no more: say why, and try again in a while unless that would end the same way."""
        self._close(helper)
        if self._state is not None and self._state is not _COMPILING:  # it has said itself that it cannot be done
            self._given_up = True
            return
        if how.startswith(_SUDO_SAYS):
            self._state, self._given_up = Unknown(f"sudo refuses: {how.removeprefix(_SUDO_SAYS)}", _SUDO_REMEDY), True
            return
        was_early = self._state is _COMPILING
        self._early_ends = self._early_ends + 1 if was_early else 0
        self._given_up = self._early_ends >= MOST_EARLY_ENDS or (was_early and helper.has_crashed)
        again = "llmtop doctor tries it anew" if self._given_up else "it is started again in 30 seconds"
        self._state = Unknown(f"the probes' process ended: {how}", again)
        self._retry_ns = now + RETRY_NS
        self._has_ended = True
        news.readings += self._reports.resume(now, self._is_kept)
        news.marks.append(Mark(now, "probes ended", TRACK, f"{how}; {again}", Severity.WARNING))

    def _close(self, helper: HelperProcess) -> None:
        """End the helper; what it had to say of its parts is over."""
        helper.close()
        self._helper = None
        self._lost, self._shed = 0, ""
        self._missing.clear()

    def _is_kept(self, track: str) -> bool:
        """Whether a track belongs to a process that is still the same, and not to another with its PID."""
        kind, _, rest = track.partition(":")
        return kind not in ("process", "thread") or self._is_same(int(rest.partition("/")[0]))

    def _all_missing(self) -> list[Missing]:
        parts = [Missing(what, why) for what, why in self._missing.items()]
        return [Missing("ebpf", self._state), *parts] if self._state else parts


def _start_ticks(pid: int) -> int | None:
    state = procfs.stat(pid)
    return None if state is None else state.start_ticks


def _start_times(pids: Iterable[int]) -> dict[int, int]:
    return {pid: ticks for pid in pids if (ticks := _start_ticks(pid)) is not None}


def _other_tracers(others: Iterable[list[Any]]) -> Iterator[Issue]:
    for pid, name, kinds in others:
        message = f"{clean(name)} (pid {pid}) has probes of its own in the kernel ({kinds}): times include their cost"
        yield Issue(Severity.WARNING, "ebpf-other-tracer", message)


def _programs_changed(pids: list[int], now: int) -> Iterator[Mark]:
    for pid in pids[:MARKS_PER_POLL]:
        name = clean(procfs.name(pid)) or "it"
        yield Mark(now, "exec", f"process:{pid}", f"{name} (pid {pid}) runs as another program now")


def why_not() -> Unknown | None:
    """Why probes cannot be loaded here, as far as can be told without trying."""
    if os.environ.get(OFF):
        return Unknown(f"switched off by {OFF}", f"unset {OFF}")
    if (release := _kernel()) < OLDEST_KERNEL:
        return Unknown(f"Linux {release[0]}.{release[1]} is too old for the probes", "Linux 5.8 or newer")
    if not SYSTEM_PYTHON.exists():
        return Unknown(f"{SYSTEM_PYTHON} is not there, so bcc is not", _INSTALL)
    return None if through_sudo() else why_no_probes(own_rights())


def _kernel() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def checks() -> tuple[Check, ...]:
    """What of the probes can be loaded here: found out by loading them for a moment."""
    why = why_not()
    return (Check("eBPF probes", why if why is not None else _tried()),)


def _tried() -> str | Unknown:
    helper = HelperProcess([str(os.getpid())], sudo=through_sudo())
    try:
        if not select.select([helper], [], [], _CHECK_S)[0]:
            return Unknown("the probes are not compiled after 20 s")
        report = next(iter(helper.reports()), None)
        if report is None:
            return Unknown(f"the helper failed: {helper.last_words()}", _SUDO_REMEDY if through_sudo() else "")
    finally:
        helper.close()
    if report["kind"] == "unavailable":
        return Unknown(clean(report["reason"]), clean(report["remedy"]))
    if report["missing"]:
        part, (reason, remedy) = next(iter(report["missing"].items()))
        return Unknown(f"no {part}: {clean(reason)}", clean(remedy))
    return f"system calls, scheduler and stacks; loaded in {report['seconds']} s"
