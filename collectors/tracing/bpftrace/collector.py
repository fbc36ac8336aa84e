"""The kernel's view through bpftrace, where bcc is not to be had: the same readings and stacks, at a higher price."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import llmtop
from llmtop import whats
from llmtop.collectors import children
from llmtop.collectors.base import DoctorCheck
from llmtop.collectors.tracing.bpftrace import runner
from llmtop.collectors.tracing.helped import ProbePoll
from llmtop.collectors.tracing.probes import ProbesCollector, why_not_here, why_switched_off
from llmtop.collectors.tracing.process import program_of
from llmtop.model import Unknown, UnknownKind

if TYPE_CHECKING:
    from types import TracebackType

SOURCE = "bpftrace"
PROGRAM = program_of("llmtop.collectors.tracing.bpftrace.helper", Path(llmtop.__file__).resolve().parent.parent)


_STARTS_ANEW = Unknown(
    "bpftrace starts anew, to look at something else", "wait some seconds; bcc has no such pauses", UnknownKind.PASSING
)


class BpftraceCollector(ProbesCollector):
    """System calls, sleeps, run-queue waits, stacks and CUDA calls, by bpftrace."""

    source = SOURCE
    program = PROGRAM
    _child = 0

    def missing(self) -> Unknown | None:
        return why_not()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        children.forget(self._child)

    def _take(self, report: dict[str, Any], news: ProbePoll) -> None:
        super()._take(report, news)
        if report.get("kind") == "attaching" and self._state is None:
            self._missing[whats.state(self.name, whats.State.PAUSED)] = _STARTS_ANEW  # until its next report
        child = report.get("child", self._child)
        if child != self._child:  # it was started anew: what bpftrace costs is llmtop's own cost
            children.forget(self._child)
            children.note(child)
            self._child = child


def why_not() -> Unknown | None:
    """Why bpftrace cannot look here, as far as can be told without trying."""
    if (off := why_switched_off()) is not None:
        return off
    path = runner.find()
    if path is None:
        return Unknown("bpftrace is not installed", runner.INSTALL)
    version = runner.version(path)
    if version is None:
        return Unknown(f"{path} does not say its version", runner.INSTALL)
    if version < runner.OLDEST:
        oldest, found = (".".join(map(str, numbers)) for numbers in (runner.OLDEST, version))
        return Unknown(f"bpftrace {found} is too old", f"bpftrace {oldest} or newer")
    return why_not_here()


def checks() -> tuple[DoctorCheck, ...]:
    """Whether bpftrace can stand in for bcc here, for `llmtop doctor`."""
    why = why_not()
    return (DoctorCheck("bpftrace probes", why if why is not None else "can stand in where bcc is not to be had"),)
