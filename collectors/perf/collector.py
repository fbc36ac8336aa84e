"""What perf sees of a server where neither bcc nor bpftrace can be used: looked at for a moment now and then."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import llmtop
from llmtop.collectors import children
from llmtop.collectors.base import Check
from llmtop.collectors.ebpf.process import HelperProcess
from llmtop.collectors.ebpf.reports import Reports, gone_tracks
from llmtop.collectors.perf import run as perf_run
from llmtop.model import NS_PER_S, Issue, Missing, Origin, Reading, Severity, Stack, Target, Trace, Unknown
from llmtop.text import clean

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Clock

SOURCE = "perf"
DEFAULT_BUDGET = 0.01
INTERVAL_S = 8.0
"""From one look to the next: within every window of ten seconds there is one."""
USE_SUDO = "LLMTOP_SUDO"
RETRY_NS = 30 * NS_PER_S
MOST_EARLY_ENDS = 3
_STARTING = Unknown("perf is about to look for the first time", "wait a second")
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from llmtop.collectors.perf import helper; helper.main()"
PROGRAM = (sys.executable, "-I", "-c", _BOOT, str(Path(llmtop.__file__).resolve().parent.parent))
_WHATS = {
    "syscalls": ("syscalls",),
    "scheduler": ("thread.blocked", "run-queue latency"),
    "samples": ("on-CPU stacks",),
}
"""What is missing when a part of the helper is."""


class PerfCollector:
    """System calls, sleeps, run-queue waits and stacks of a server's processes, by perf.

    The counters are sums over the times that were looked at, which the OBSERVED counters tell; each look is of all
    threads at once.

    Args:
        budget: Share of one core that looking may cost the server.
        stacks: Whether stacks are taken.
        interval_s: Time between looks.
    """

    name = "perf"
    period_s = 0.25

    def __init__(
        self,
        target: Target,
        *,
        budget: float = DEFAULT_BUDGET,
        stacks: bool = True,
        interval_s: float = INTERVAL_S,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self._target = target
        self._budget = budget
        self._wants_stacks = stacks
        self._interval_s = interval_s
        self._clock = clock
        self._helper: HelperProcess | None = None
        self._reports = Reports(source=SOURCE)
        self._state: Unknown | None = _STARTING
        self._given_up = False
        self._early_ends = 0
        self._retry_ns = 0
        self._missing: dict[str, Unknown] = {}
        self._issues: list[Issue] = []
        self._gone: list[str] = []
        self._lost = 0
        self._shed = ""
        self._spent_ns = 0

    @property
    def unavailable(self) -> Unknown | None:
        """Why perf cannot look here for good; None while it does, starts, or is about to be tried again."""
        return self._state if self._given_up else None

    def missing(self) -> Unknown | None:
        return why_not()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._helper:
            self._helper.close()
            self._helper = None

    def poll(self) -> Trace:
        now = self._clock()
        if self._helper is None and not self._given_up and now >= self._retry_ns:
            self._start()
        readings: list[Reading] = []
        stacks: tuple[Stack, ...] = ()
        for report in self._helper.reports() if self._helper else ():
            stacks = self._take(report, readings) or stacks
        if self._helper and self._helper.is_at_end:
            self._bury(now)
        issues, self._issues = tuple(self._issues), []
        gone, self._gone = tuple(self._gone), []
        return Trace(
            Origin("live"),
            now,
            self._clock(),
            readings=tuple(readings),
            stacks=stacks,
            missing=tuple(self._all_missing()),
            issues=issues,
            gone=gone,
        )

    def _start(self) -> None:
        pids = sorted({self._target.pid, self._target.root_pid, *(one.pid for one in self._target.processes)})
        options = ["--interval", f"{self._interval_s}", "--budget", f"{self._budget}"]
        if self._wants_stacks:
            options.append("--stacks")
        self._helper = HelperProcess([*map(str, pids), *options], sudo=_by_sudo(), program=PROGRAM)
        self._reports = Reports(source=SOURCE)
        self._state = _STARTING
        self._spent_ns = 0

    def _take(self, report: dict[str, Any], readings: list[Reading]) -> tuple[Stack, ...]:
        """Take in one report; the stacks of the last half minute, where it has any."""
        match report.get("kind"):
            case "unavailable":
                self._state = Unknown(clean(report["reason"]), clean(report["remedy"]))
            case "ready":
                self._state = None
            case "sample":
                readings.extend(self._reports.readings(report))
                self._gone.extend(gone_tracks(report))
                self._note_missing(report["missing"])
                self._note_shed(clean(report["shed"]))
                self._note_lost(report["lost"])
                self._note_spent(report["children_ns"])
                if "running" in report:
                    return self._reports.stacks(report)
        return ()

    def _note_missing(self, missing: dict[str, list[str]]) -> None:
        self._missing = {
            what: Unknown(clean(reason), clean(remedy))
            for part, (reason, remedy) in missing.items()
            for what in _WHATS.get(part, (part,))
        }

    def _note_shed(self, shed: str) -> None:
        if shed and shed != self._shed:
            message = f"perf would cost more than {self._budget:.0%} of a core, so it looks at less: {shed}"
            self._issues.append(Issue(Severity.INFO, "perf-shed", message))
        self._shed = shed
        if shed:
            reason = f"perf would cost more than {self._budget:.0%} of a core; now: {shed}"
            self._missing["perf.shed"] = Unknown(reason, "it is tried again by itself")

    def _note_lost(self, lost: int) -> None:
        if lost > self._lost:
            message = "events found no room in perf's buffers: counts are too low"
            self._issues.append(Issue(Severity.WARNING, "perf-lost", message, lost - self._lost))
        self._lost = lost

    def _note_spent(self, children_ns: int) -> None:
        """Each perf runs too briefly to be seen: the helper says what they took."""
        children.spend(max(0, children_ns - self._spent_ns))
        self._spent_ns = children_ns

    def _bury(self, now: int) -> None:
        """The helper has ended by itself: say why, and try again in a while unless that would end the same way."""
        assert self._helper is not None
        words = self._helper.last_words()
        self._helper.close()
        self._helper = None
        self._lost = 0
        if self._state is not None and self._state is not _STARTING:  # it has said itself that it cannot be done
            self._given_up = True
            return
        self._early_ends = self._early_ends + 1 if self._state is _STARTING else 0
        self._given_up = self._early_ends >= MOST_EARLY_ENDS
        again = "llmtop doctor tries it anew" if self._given_up else "it is started again in 30 seconds"
        self._state = Unknown(f"perf's helper ended: {words}", again)
        self._retry_ns = now + RETRY_NS

    def _all_missing(self) -> list[Missing]:
        parts = [Missing(what, why) for what, why in self._missing.items()]
        return [Missing(self.name, self._state), *parts] if self._state else parts


def why_not() -> Unknown | None:
    """Why perf cannot look here, as far as can be told without trying."""
    program = perf_run.find()
    if isinstance(program, Unknown):
        return program
    level = perf_run.paranoia()
    if level is None:
        return Unknown("this kernel has no perf events", "a kernel with CONFIG_PERF_EVENTS=y is needed")
    return None


def _by_sudo() -> bool:
    return os.geteuid() != 0 and bool(os.environ.get(USE_SUDO)) and shutil.which("sudo") is not None


def checks() -> tuple[Check, ...]:
    """What perf can look at here, for `llmtop doctor`."""
    why = why_not()
    if why is not None:
        return (Check("perf looks", why),)
    if os.geteuid() == 0:
        return (Check("perf looks", "system calls, scheduler and stacks, a tenth of the time"),)
    level = perf_run.paranoia()
    if level is not None and level > 2:
        return (Check("perf looks", perf_run.explain("perf_event_paranoid", "perf")),)
    return (Check("perf looks", "on-CPU stacks of your own processes, without the kernel's functions"),)
