"""File descriptors that run out: a server without one accepts no connection, opens no file and starts no process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.readings import FRESH_NS
from llmtop.analysis.server.fault import Fault
from llmtop.analysis.server.processes import parts
from llmtop.model import NS_PER_S, Severity
from llmtop.units import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.analysis.server.processes import ServerPart
    from llmtop.model import Trace

OUT_OF_FILES = "files-exhausted"
_LASTS_NS = 2 * NS_PER_S
"""A file that is opened and closed at the limit is no fault."""
_NEARLY = 0.9


def open_files_faults(trace: Trace) -> Iterator[Fault]:
    """Parts of the server that have used up their file descriptors, or nearly."""
    for part in parts(trace):
        files, limits = (trace.get(part.track.id, one) for one in (v.PROCESS_FILES, v.PROCESS_FILES_LIMIT))
        if files is None or limits is None or not (limit := limits.last) or not (newest := files.last_t_ns):
            continue
        recent = [value for _, value in files.between(newest - _LASTS_NS, newest).known]
        if len(recent) > 1 and trace.end_ns - newest <= FRESH_NS and min(recent) >= _NEARLY * limit:
            yield _fault(part, files.last or 0.0, limit, trace.end_ns, is_all=min(recent) >= limit)


def _fault(part: ServerPart, files: float, limit: float, now_ns: int, *, is_all: bool) -> Fault:
    return Fault(
        OUT_OF_FILES,
        "OUT OF FILES" if is_all else "FEW FILES LEFT",
        part.role,
        f"{part.name} has used up its {count(limit)} file descriptors: it accepts no new connection"
        if is_all
        else f"{part.name} has {count(limit - files)} of {count(limit)} file descriptors left: then it accepts nobody",
        (f"open files {count(files)} (/proc/PID/fd)", f"limit of open files {count(limit)} (/proc/PID/limits)"),
        "raise its limit (while it runs by the command below, for good by LimitNOFILE= or docker's --ulimit nofile=), "
        "and see who keeps its connections open: ls -l /proc/PID/fd",
        f"sudo prlimit --pid {part.pid} --nofile=65536",
        now_ns - _LASTS_NS,
        is_whole=False,
        severity=Severity.ERROR if is_all else Severity.WARNING,
    )
