"""The server that is watched is another one than before: when it came, for how long there was none, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.server.fault import for_s
from llmtop.analysis.server.processes import TAKEN_ALONG_NS
from llmtop.model import NS_PER_S, Finding, ProcessEnd, Restart, Severity, Trace, TrackKind, Unknown

if TYPE_CHECKING:
    from llmtop.model import Mark

id = "restarted"
summary = "The server has ended and another one has taken its place a short while ago."
source = "Linux, proc(5), pidfd_open(2)"

RECENT_NS = 300 * NS_PER_S
"""So long it is worth a line: caches are cold, counters and percentiles are of the new one only."""


def check(trace: Trace) -> Iterator[Finding]:
    """The newest mark that says so; how the old one ended is told by the mark of its end."""
    for mark in reversed(trace.marks):
        if isinstance(mark.about, Restart) and trace.end_ns - mark.t_ns <= RECENT_NS:
            yield _finding(trace, mark, _end_of(trace, mark.about.old_pid, mark.t_ns))
            return


def _finding(trace: Trace, anew: Mark, end: Mark | None) -> Finding:
    ended = end.about if end is not None and isinstance(end.about, ProcessEnd) else None
    how = f"{ended.how}" if ended is not None and not isinstance(ended.how, Unknown) else ""
    killed = None if end is None else _killed_before(trace, end)
    how += f", after {killed.text.replace(' exited: ', ': ', 1)}" if how and killed is not None else ""
    lines = tuple(f"{one.text} (/proc, pidfd)" for one in (end, killed) if one is not None)
    return Finding(
        rule=id,
        severity=Severity.INFO if ended is not None and ended.is_regular and killed is None else Severity.WARNING,
        subject=anew.subject,
        message=f"restarted {for_s(anew.t_ns, trace.end_ns)} ago{_down(trace, anew, end)}"
        + (f", {how}" if how else ", how the one before ended is not known"),
        evidence=(*lines, f"{anew.text} (/proc)"),
        action="its log says why the one before ended; until caches are warm, prefix hits and latencies are worse",
        next_command="sudo dmesg -T | grep -iE 'oom|killed process|segfault|xid' | tail",
        source=source,
    )


def _killed_before(trace: Trace, end: Mark) -> Mark | None:
    """A part of the old server that was killed before all of it ended: an orderly end may be what followed."""
    for mark in trace.marks:
        how = mark.about.how if isinstance(mark.about, ProcessEnd) else ""
        if 0 < end.t_ns - mark.t_ns <= TAKEN_ALONG_NS and mark.subject and str(how).startswith("killed by"):
            return mark
    return None


def _down(trace: Trace, anew: Mark, end: Mark | None) -> str:
    """For how long nothing answered: from the end of the old one to the first metrics of the new one."""
    began = anew if end is None else end
    answers = (trace.get(track.id, v.ENDPOINT_ANSWER) for track in trace.tracks_of(TrackKind.ENDPOINT))
    times = (
        t for series in answers if series is not None for t, value in series.known if value == v.EndpointAnswer.METRICS
    )
    again = min((t for t in times if t > anew.t_ns), default=None)
    least = "" if end is not None else " or more"
    return ", has not answered yet" if again is None else f", was down {for_s(began.t_ns, again)}{least}"


def _end_of(trace: Trace, pid: int, before_ns: int) -> Mark | None:
    ends = (
        mark
        for mark in trace.marks
        if isinstance(mark.about, ProcessEnd) and mark.about.pid == pid and mark.t_ns <= before_ns
    )
    return max(ends, key=lambda mark: mark.t_ns, default=None)
