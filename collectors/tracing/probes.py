"""The collectors whose helpers load probes: by bcc, and by bpftrace, which sees as much at a higher price."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llmtop import ids, procfs, whats
from llmtop import vocabulary as v
from llmtop.collectors.privileges import own_rights, through_sudo, why_no_probes
from llmtop.collectors.tracing.helped import HelpedCollector, HelperWords, KnownProcesses, ProbePoll
from llmtop.collectors.tracing.helper.protocol import WAIT
from llmtop.collectors.tracing.switches import OFF
from llmtop.collectors.tracing.wire import Sample, Why, reasons
from llmtop.model import Issue, Mark, MarkKind, Severity, Unknown, UnknownKind
from llmtop.text import clean

MARKS_PER_POLL = 5
"""Processes that begin at once are told one by one up to so many."""
_NO_CAUSES = Unknown(
    "this kernel does not tell a probe the system call that a thread sleeps in", "Linux 5.15 or newer with BTF does"
)


class ProbesCollector(HelpedCollector):
    """System calls, sleeps, run-queue waits, stacks and CUDA calls of a server's processes.

    Its helper looks all the time, and reports every `interval_s`.
    """

    name = "ebpf"
    words = HelperWords(
        helper="the probes' process",
        looker="probes",
        buffers="the probes' tables",
        starting=Unknown("the probes attach", WAIT, UnknownKind.PASSING),
    )
    _no_causes: Unknown | None = None

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
        self._is_settling = bool(report.get("settling"))  # bpftrace counts no library calls
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


def why_not_here() -> Unknown | None:
    """Why no probes at all may be loaded, whatever would load them."""
    return None if through_sudo() else why_no_probes(own_rights())


def why_switched_off() -> Unknown | None:
    """That no probes are wanted."""
    return Unknown(f"switched off by {OFF}", f"unset {OFF}") if os.environ.get(OFF) else None
