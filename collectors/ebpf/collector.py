"""The eBPF collector: a helper process loads the probes, this reads what it reports."""

from __future__ import annotations

import os
import re
import select
import shutil
import time
from typing import TYPE_CHECKING, Any, Self

from llmtop import procfs
from llmtop.collectors.base import Check
from llmtop.collectors.ebpf.process import SYSTEM_PYTHON, HelperProcess
from llmtop.collectors.ebpf.reports import Reports, gone_tracks
from llmtop.model import NS_PER_S, Issue, Missing, Origin, Reading, Severity, Stack, Target, Trace, Unknown
from llmtop.text import clean

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Clock

DEFAULT_BUDGET = 0.01
OFF = "LLMTOP_NO_EBPF"
"""Set to anything, this variable keeps llmtop from loading probes."""
USE_SUDO = "LLMTOP_SUDO"
"""Set to anything, it lets llmtop start the helper through `sudo -n`."""
OLDEST_KERNEL = (5, 8)
RETRY_NS = 30 * NS_PER_S
MOST_EARLY_ENDS = 3
"""A helper that dies so often in a row before its probes are attached will always do so."""
STACKS_EVERY_NS = 2 * NS_PER_S
_INSTALL = "sudo apt install python3-bpfcc"
_CAPABILITIES = {"cap_sys_admin": 21, "cap_perfmon": 38, "cap_bpf": 39}
_COMPILING = Unknown("the probes are being compiled", "wait a second")
_CHECK_S = 20.0
_WHATS = {
    "syscalls": ("syscalls",),
    "scheduler": ("thread.blocked", "run-queue latency"),
    "samples": ("on-CPU stacks",),
}
"""What is missing when a part of the helper is."""


class EbpfCollector:
    """System calls, sleeps, run-queue waits, stacks and CUDA calls of a server's processes.

    Args:
        budget: Share of one core that probes may cost the server, and again all others.
        stacks: Whether stacks are taken from the start; `want_stacks` changes it.
        interval_s: Time between the helper's reports.
    """

    name = "ebpf"
    period_s = 0.25

    def __init__(
        self,
        target: Target,
        *,
        budget: float = DEFAULT_BUDGET,
        stacks: bool = True,
        interval_s: float = 1.0,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self._target = target
        self._budget = budget
        self._wants_stacks = stacks
        self._interval_s = interval_s
        self._clock = clock
        self._helper: HelperProcess | None = None
        self._reports = Reports()
        self._state: Unknown | None = _COMPILING
        self._retry_ns = 0
        self._early_ends = 0
        self._given_up = False
        self._missing: dict[str, Unknown] = {}
        self._issues: list[Issue] = []
        self._gone: list[str] = []
        self._lost = 0
        self._shed = ""
        self._stacks_due_ns = 0

    @property
    def unavailable(self) -> Unknown | None:
        """Why probes cannot be had here for good; None while they run, compile, or are about to be tried again."""
        return self._state if self._given_up else None

    def want_stacks(self, wanted: bool) -> None:
        """Take stacks or leave them: for views that are opened and closed. May be called from any thread."""
        self._wants_stacks = wanted
        if self._helper:
            self._helper.send({"stacks": wanted})

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
        self._helper = HelperProcess(
            [*map(str, pids), *options, *(["--stacks"] if self._wants_stacks else [])], sudo=os.geteuid() != 0
        )
        self._reports = Reports()
        self._state = _COMPILING

    def _take(self, report: dict[str, Any], readings: list[Reading]) -> tuple[Stack, ...]:
        """Take in one report; its stacks."""
        match report.get("kind"):
            case "unavailable":
                self._state = Unknown(clean(report["reason"]), clean(report["remedy"]))
            case "ready":
                self._state = None
                self._note_missing(report["missing"])
                self._note_others(report["others"])
                if not report["knows_calls"]:
                    reason = "this kernel does not tell a probe the system call that a thread sleeps in"
                    self._missing["thread.blocked/cause"] = Unknown(reason, "Linux 5.15 or newer with BTF does")
            case "sample":
                readings.extend(self._reports.readings(report))
                self._gone.extend(gone_tracks(report))
                self._note_missing(report["missing"])
                self._note_shed(report, readings)
                self._note_lost(report["lost"])
                self._reports.keep_stacks(report)
                return self._stacks_if_due(int(report["t"]))
        return ()

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

    def _note_others(self, others: list[list[Any]]) -> None:
        for pid, name, kinds in others:
            message = (
                f"{clean(name)} (pid {pid}) has probes of its own in the kernel ({kinds}): times include their cost"
            )
            self._issues.append(Issue(Severity.WARNING, "ebpf-other-tracer", message))

    def _note_shed(self, report: dict[str, Any], readings: list[Reading]) -> None:
        """Say what is not looked at to save time, and leave gaps where counters stood still for it."""
        for name, why in report["unprobed"].items():
            self._missing[f"library.{name}"] = Unknown(clean(why))
        for what in [what for what in self._missing if what.startswith("library.")]:
            if what.removeprefix("library.") not in report["unprobed"]:
                del self._missing[what]
        shed = clean(report["shed"])
        if shed and shed != self._shed:
            message = f"probes cost more than {self._budget:.0%} of a core, so less is looked at for a while: {shed}"
            self._issues.append(Issue(Severity.INFO, "ebpf-shed", message))
        if "scheduler off" in shed and "scheduler off" not in self._shed:
            readings.extend(self._reports.gaps(int(report["t"]), ("thread.blocked", "process.run_queue_latency")))
        self._shed = shed
        self._missing.pop("ebpf.shed", None)
        if shed:
            reason = f"probes would cost more than {self._budget:.0%} of a core; now: {shed}"
            self._missing["ebpf.shed"] = Unknown(reason, "it is tried again by itself")

    def _note_lost(self, lost: int) -> None:
        if lost > self._lost:
            message = "events found no room in the probes' tables: counts are too low"
            self._issues.append(Issue(Severity.WARNING, "ebpf-lost", message, lost - self._lost))
        self._lost = lost

    def _bury(self, now: int) -> None:
        """The helper has ended by itself: say why, and try again in a while unless that would end the same way."""
        assert self._helper is not None
        words = self._helper.last_words()
        self._helper.close()
        self._helper = None
        self._lost = 0
        if self._state is not None and self._state is not _COMPILING:  # it has said itself that it cannot be done
            self._given_up = True
            return
        self._early_ends = self._early_ends + 1 if self._state is _COMPILING else 0
        self._given_up = self._early_ends >= MOST_EARLY_ENDS
        again = "llmtop doctor tries it anew" if self._given_up else "it is started again in 30 seconds"
        self._state = Unknown(f"the probes' process ended: {words}", again)
        self._retry_ns = now + RETRY_NS

    def _all_missing(self) -> list[Missing]:
        parts = [Missing(what, why) for what, why in self._missing.items()]
        return [Missing("ebpf", self._state), *parts] if self._state else parts


def why_not() -> Unknown | None:
    """Why probes cannot be loaded here, as far as can be told without trying."""
    if os.environ.get(OFF):
        return Unknown(f"switched off by {OFF}", f"unset {OFF}")
    if (release := _kernel()) < OLDEST_KERNEL:
        return Unknown(f"Linux {release[0]}.{release[1]} is too old for the probes", "Linux 5.8 or newer")
    if not SYSTEM_PYTHON.exists():
        return Unknown(f"{SYSTEM_PYTHON} is not there, so bcc is not", _INSTALL)
    if may_load():
        return None
    if os.geteuid() == 0:
        return Unknown("this container's root may not load probes", "docker run --privileged --pid=host ...")
    if os.environ.get(USE_SUDO) and shutil.which("sudo"):
        return None
    return Unknown("only root may load probes", f"sudo llmtop ... (or {USE_SUDO}=1 where sudo asks no password)")


def may_load() -> bool:
    """Whether this process has the capabilities: CAP_SYS_ADMIN, or CAP_BPF with CAP_PERFMON (capabilities(7))."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", procfs.read_text("/proc/self/status") or "", re.MULTILINE)
    held = int(found.group(1), 16) if found else 0
    has = {name: bool(held >> bit & 1) for name, bit in _CAPABILITIES.items()}
    return has["cap_sys_admin"] or (has["cap_bpf"] and has["cap_perfmon"] and os.geteuid() == 0)


def _kernel() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def checks() -> tuple[Check, ...]:
    """What of the probes can be loaded here: found out by loading them for a moment."""
    why = why_not()
    return (Check("eBPF probes", why if why is not None else _tried()),)


def _tried() -> str | Unknown:
    helper = HelperProcess([str(os.getpid())], sudo=not may_load())
    try:
        if not select.select([helper], [], [], _CHECK_S)[0]:
            return Unknown("the probes are not compiled after 20 s")
        report = next(iter(helper.reports()), None)
        if report is None:
            return Unknown(f"the helper failed: {helper.last_words()}")
    finally:
        helper.close()
    if report["kind"] == "unavailable":
        return Unknown(clean(report["reason"]), clean(report["remedy"]))
    if report["missing"]:
        part, (reason, remedy) = next(iter(report["missing"].items()))
        return Unknown(f"no {part}: {clean(reason)}", clean(remedy))
    return f"system calls, scheduler and stacks; loaded in {report['seconds']} s"
