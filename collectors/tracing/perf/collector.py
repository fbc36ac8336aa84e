"""What perf sees of a server where probes cannot be used: looked at for a moment now and then."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import llmtop
from llmtop import programs
from llmtop.collectors import children
from llmtop.collectors.base import DoctorCheck
from llmtop.collectors.privileges import USE_SUDO
from llmtop.collectors.tracing.helped import HelpedCollector, HelperWords, ProbePoll
from llmtop.collectors.tracing.perf import run as perf_run
from llmtop.collectors.tracing.process import program_of
from llmtop.collectors.tracing.wire import Sample
from llmtop.model import NS_PER_S, Unknown, UnknownKind

PROGRAM = program_of("llmtop.collectors.tracing.perf.helper", Path(llmtop.__file__).resolve().parent.parent)


class PerfCollector(HelpedCollector):
    """System calls, sleeps, run-queue waits and stacks of a server's processes, by perf.

    The counters are sums over the times that were looked at, which the OBSERVED counters tell; each look is of all
    threads at once.
    """

    name = source = "perf"
    program = PROGRAM
    words = HelperWords(
        helper="perf's helper",
        looker="perf",
        buffers="perf's buffers",
        starting=Unknown("perf is about to look for the first time", "wait a second", UnknownKind.PASSING),
    )
    interval_s = 8.0
    """From one look to the next: within every window of ten seconds there is one."""
    hung_ns = 60 * NS_PER_S
    """On a busy machine perf takes its time to open its events and to read its record."""
    _spent_ns = 0

    def missing(self) -> Unknown | None:
        """Why perf cannot look here, as far as can be told without trying."""
        return why_not()

    def _by_sudo(self) -> bool:
        return os.geteuid() != 0 and bool(os.environ.get(USE_SUDO)) and programs.find("sudo") is not None

    def _take_ready(self, report: dict[str, Any], news: ProbePoll) -> None:
        super()._take_ready(report, news)
        self._spent_ns = 0

    def _take_sample(self, report: Sample, news: ProbePoll) -> None:
        """Each perf runs too briefly to be seen: the helper says what they took."""
        super()._take_sample(report, news)
        children.spend(max(0, report["children_ns"] - self._spent_ns))
        self._spent_ns = report["children_ns"]


def why_not() -> Unknown | None:
    """Why perf cannot look here, as far as can be told without trying."""
    program = perf_run.find()
    if isinstance(program, Unknown):
        return program
    level = perf_run.paranoia()
    if level is None:
        return Unknown("this kernel has no perf events", "a kernel with CONFIG_PERF_EVENTS=y is needed")
    return None


def checks() -> tuple[DoctorCheck, ...]:
    """What perf can look at here, for `llmtop doctor`."""
    why = why_not()
    if why is not None:
        return (DoctorCheck("perf looks", why),)
    if os.geteuid() == 0:
        return (DoctorCheck("perf looks", "system calls, scheduler and stacks, a tenth of the time"),)
    level = perf_run.paranoia()
    if level is not None and level > 2:
        return (DoctorCheck("perf looks", perf_run.explain("perf_event_paranoid", "perf")),)
    return (DoctorCheck("perf looks", "on-CPU stacks of your own processes, without the kernel's functions"),)
