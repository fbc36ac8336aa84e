"""The verdict: whether the server lives, and what of it does not."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.commands.live import for_later
from llmtop.analysis.series.readings import why_kind_missing
from llmtop.analysis.series.recorded import is_recorded
from llmtop.analysis.server.absent import absent_faults
from llmtop.analysis.server.endpoint import DEAD, endpoint_faults
from llmtop.analysis.server.open_files import open_files_faults
from llmtop.analysis.server.processes import parts, process_faults, root_end
from llmtop.analysis.server.progress import STALLED, progress_faults
from llmtop.analysis.server.refusals import REFUSED, leaving_faults, refusal_faults
from llmtop.frozen import frozen
from llmtop.model import Finding, Severity, TrackKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.server.fault import Fault
    from llmtop.model import Trace


class Life(StrEnum):
    """In one word."""

    ALIVE = "alive"
    FAULTY = "faulty"
    """A part of it is dead, stopped, hung or failing."""
    DEAD = "dead"
    """It has exited."""
    UNKNOWN = "unknown"
    """No process of it has been looked at."""


@frozen
class Liveness:
    """Whether a server lives.

    Attributes:
        faults: The gravest first; warnings last.
        serving: Whether it serves requests; why that is not known where nothing shows it.
    """

    life: Life
    faults: tuple[Fault, ...] = ()
    serving: bool | Unknown = True

    @property
    def gravest(self) -> Fault | None:
        """What stands in the header; None while nothing is wrong."""
        return next((fault for fault in self.faults if fault.severity is Severity.ERROR), None)

    @property
    def is_over(self) -> bool:
        """No request can be served: numbers of before are not "now"."""
        return any(fault.is_whole for fault in self.faults)


@lru_cache(maxsize=4)
def liveness(trace: Trace) -> Liveness:
    """What is known of a server's life; kept for the newest traces, because header, rules and panes ask for it."""
    found = _liveness(trace)
    return replace(found, faults=tuple(map(_for_later, found.faults))) if is_recorded(trace) else found


def _for_later(fault: Fault) -> Fault:
    """What is to be done and run about a fault of a recording names no process of then."""
    return replace(fault, action=for_later(fault.action), next_command=for_later(fault.next_command))


def _liveness(trace: Trace) -> Liveness:
    processes = (*process_faults(trace), *absent_faults(trace))
    if root_end(trace) is not None:
        return Liveness(Life.DEAD, processes, serving=False)
    whole = any(fault.is_whole for fault in processes)
    of_requests = () if whole else (*progress_faults(trace), *refusal_faults(trace), *leaving_faults(trace))
    others = (*open_files_faults(trace), *endpoint_faults(trace), *of_requests)
    faults = tuple(sorted((*processes, *others), key=lambda fault: fault.severity is not Severity.ERROR))
    serving = _serving(trace, faults)
    if any(fault.severity is Severity.ERROR for fault in faults):
        return Liveness(Life.FAULTY, faults, serving)
    return Liveness(Life.ALIVE if parts(trace) else Life.UNKNOWN, faults, serving)


def _serving(trace: Trace, faults: tuple[Fault, ...]) -> bool | Unknown:
    """An answer with metrics shows that it serves, unless a fault says that it does not."""
    grave = [fault for fault in faults if fault.severity is Severity.ERROR]
    if any(fault.is_whole or fault.rule in (DEAD, REFUSED, STALLED) for fault in grave):
        return False
    answers = (trace.get(track.id, v.ENDPOINT_ANSWER) for track in trace.tracks_of(TrackKind.ENDPOINT))
    if any(one is not None and one.last == v.EndpointAnswer.METRICS for one in answers):
        return True
    return why_kind_missing(trace, TrackKind.SERVER)


def findings_of(trace: Trace, rule: str, source: str) -> Iterator[Finding]:
    """The faults that one rule says, as findings."""
    for fault in liveness(trace).faults:
        if fault.rule == rule:
            yield Finding(
                rule=rule,
                severity=fault.severity,
                subject=fault.subject,
                message=f"{fault.state}: {fault.message}",
                evidence=fault.evidence,
                action=fault.action,
                next_command=fault.next_command,
                source=source,
            )
