"""The eBPF collector: a helper process loads the probes, this reads what it reports."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from llmtop import ids, procfs, whats
from llmtop import vocabulary as v
from llmtop.collectors.base import DoctorCheck
from llmtop.collectors.privileges import own_rights, through_sudo, why_no_probes
from llmtop.collectors.tracing.helped import SUDO_REMEDY, HelpedCollector, HelperWords, KnownProcesses, ProbePoll
from llmtop.collectors.tracing.helper.protocol import WAIT
from llmtop.collectors.tracing.helper.system import kernel_release
from llmtop.collectors.tracing.process import HelperProcess
from llmtop.collectors.tracing.reports import SOURCE
from llmtop.collectors.tracing.switches import OFF
from llmtop.collectors.tracing.wire import Sample, Why, reasons
from llmtop.model import Issue, Mark, MarkKind, Severity, Unknown, UnknownKind
from llmtop.text import clean

_BOOT = (
    "import runpy, sys, types; tracing = sys.modules['tracing'] = types.ModuleType('tracing'); "
    "tracing.__path__ = [sys.argv.pop(1)]; runpy.run_module('tracing.probes.helper', run_name='__main__')"
)
PROGRAM = (sys.executable, "-I", "-S", "-c", _BOOT, str(Path(__file__).resolve().parent.parent))
"""What loads the probes, by any Python: the standard library and the package `tracing` are all that is seen there."""
OLDEST_KERNEL = (5, 8)
"""The release of Linux from which on the probes load."""
_CHECK_S = 20.0
"""For `llmtop doctor`: how long probes may take until they are loaded."""
MARKS_PER_POLL = 5
"""Processes that begin at once have an event each, up to so many."""
_NO_CAUSES = Unknown(
    "this kernel does not tell a probe the system call that a thread sleeps in", "Linux 5.15 or newer with BTF does"
)


class EbpfCollector(HelpedCollector):
    """System calls, sleeps, run-queue waits, stacks and CUDA calls of a server's processes.

    Its helper looks all the time, and reports every `interval_s`.
    """

    name = "ebpf"
    source = SOURCE
    program = PROGRAM
    words = HelperWords(
        helper="the probes' process",
        looker="probes",
        buffers="the probes' tables",
        starting=Unknown("the probes attach", WAIT, UnknownKind.PASSING),
    )
    _no_causes: Unknown | None = None

    def missing(self) -> Unknown | None:
        """Why probes cannot be loaded here, as far as can be told without trying."""
        return why_not()

    def _take_ready(self, report: dict[str, Any], news: ProbePoll) -> None:
        super()._take_ready(report, news)
        self._processes = KnownProcesses(report["processes"])
        self._is_settling = not self._is_light
        news.issues += _other_tracers(report["others"])
        self._no_causes = None if report["knows_calls"] else _NO_CAUSES
        self._note_missing(reasons(report))

    def _take_sample(self, report: Sample, news: ProbePoll) -> None:
        shed = self._shed
        super()._take_sample(report, news)
        self._is_settling = bool(report.get("settling"))
        # A child that was born since the last report has been started, which is no change.
        changed = [pid for pid in report["renewed"] if procfs.stat(pid) is not None and self._processes.is_same(pid)]
        self._processes.add(report["born"])
        news.marks += _programs_changed(changed, self._heard_ns)
        for name, why in report["unprobed"].items():
            self._missing[whats.function(name)] = Unknown(clean(why))
        if "scheduler off" in self._shed and "scheduler off" not in shed:
            news.readings += self._reports.gaps(report["t"], (v.THREAD_BLOCKED.name, v.PROCESS_RUN_QUEUE_LATENCY.name))

    def _note_missing(self, missing: Mapping[str, Why]) -> None:
        super()._note_missing(missing)
        if self._no_causes is not None:
            self._missing[whats.SLEEP_CAUSES] = self._no_causes


def _other_tracers(others: Iterable[list[Any]]) -> Iterator[Issue]:
    for pid, name, kinds in others:
        message = f"{clean(name)} (pid {pid}) has probes of its own in the kernel ({kinds}): times include their cost"
        yield Issue(Severity.WARNING, "ebpf-other-tracer", message)


def _programs_changed(pids: list[int], now: int) -> Iterator[Mark]:
    for pid in pids[:MARKS_PER_POLL]:
        name = clean(procfs.name(pid)) or "it"
        yield Mark(now, MarkKind.EXEC, ids.process(pid), "runs as another program now", subject=f"{name} (pid {pid})")


def why_not() -> Unknown | None:
    """Why probes cannot be loaded here, as far as can be told without trying."""
    if os.environ.get(OFF):
        return Unknown(f"switched off by {OFF}", f"unset {OFF}")
    if (release := kernel_release()) < OLDEST_KERNEL:
        return Unknown(f"Linux {release[0]}.{release[1]} is too old for the probes", "Linux 5.8 or newer")
    return None if through_sudo() else why_no_probes(own_rights())


def checks() -> tuple[DoctorCheck, ...]:
    """What of the probes can be loaded here: found out by loading them for a moment."""
    why = why_not()
    return (DoctorCheck("eBPF probes", why if why is not None else _tried()),)


def _tried() -> str | Unknown:
    start_s = time.monotonic()
    helper = HelperProcess([str(os.getpid())], program=EbpfCollector.program, sudo=through_sudo())
    try:
        report = _first_word(helper)
        took_s = time.monotonic() - start_s
        if report is None and not helper.is_at_end:
            return Unknown(f"the probes are not loaded after {_CHECK_S:.0f} s")
        if report is None:
            return Unknown(f"the helper failed: {helper.last_words()}", SUDO_REMEDY if through_sudo() else "")
    finally:
        helper.close()
    if report["kind"] == "unavailable":
        return Unknown(clean(report["reason"]), clean(report["remedy"]))
    if report["missing"]:
        part, (reason, remedy) = next(iter(report["missing"].items()))
        return Unknown(f"no {part}: {clean(reason)}", clean(remedy))
    return f"system calls, scheduler and stacks; loaded in {took_s:.1f} s"


def _first_word(helper: HelperProcess) -> dict[str, Any] | None:
    """What it says of itself first; None where it ends, or the time does, without that."""
    end_s = time.monotonic() + _CHECK_S
    while (left_s := end_s - time.monotonic()) > 0 and not helper.is_at_end:
        select.select([helper], [], [], left_s)
        if reports := helper.reports():
            return reports[0]
    return None
