"""The next command of a finding: one that runs here, with tools that are there, and without sudo for root."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.facts import SETTINGS_OF, HostFact
from llmtop.model import TrackKind

if TYPE_CHECKING:
    from llmtop.model import Trace

_NOT_PYTHON = frozenset({"llamacpp", "ollama", "tgi", "triton"})
"""Engines whose loop is not Python: py-spy sees nothing of it."""


_PROCESS = re.compile(
    r"((?:--pid|\bgdb -p|\b(?:perf|top) .*?-p|\btaskset -apc [\d,-]+|\bkill(?: -\w+)?) |/proc/)\d+(?: \d+)*"
)
"""How commands name a process: what stands before its number, or the numbers of several."""
_THREAD = re.compile(r"(\bperf .*?-t |\btaskset -(?:cp|pc) |/task/)\d+")
"""The same of a thread."""


def for_later(text: str) -> str:
    """A command, or a sentence with one, for when what it looks at runs again, under other numbers.

    >>> for_later("py-spy record -d 10 --pid 822"), for_later("sudo perf record -e page-faults -g -t 830 -- sleep 5")
    ('py-spy record -d 10 --pid PID', 'sudo perf record -e page-faults -g -t TID -- sleep 5')
    >>> for_later("taskset -apc 0-7 822, or taskset -pc 830"), for_later("kill -CONT 82 83; cat /proc/8/stack")
    ('taskset -apc 0-7 PID, or taskset -pc TID', 'kill -CONT PID; cat /proc/PID/stack')
    """
    return _PROCESS.sub(r"\1PID", _THREAD.sub(r"\1TID", text))


def is_root(trace: Trace) -> bool:
    """Whether llmtop runs as root, so that commands need no sudo."""
    return _fact(trace, HostFact.IS_ROOT) == 1


def sudo(trace: Trace) -> str:
    """What stands before a command that needs root."""
    return "" if is_root(trace) else "sudo "


def profile(trace: Trace, pid: int, flags: str = "") -> str:
    """Where a process spends its time on the CPU: over ten seconds into a picture of a new name, or on a screen.

    Args:
        trace: Tells which tools there are.
        pid: The process.
        flags: Further options of `py-spy record`.
    """
    if _is_python(trace) and _has(trace, "py-spy"):
        return f"{_py_spy(trace)} record {flags}--nonblocking -d 10 --pid {pid}"
    if _has(trace, "perf"):
        return f"{sudo(trace)}perf top -g -p {pid}"
    return f"top -H -p {pid}"


def stacks(trace: Trace, pid: int | None) -> str:
    """Where each thread of a process stands now; of a process that is not known, with `PID` in its place."""
    shown = "PID" if pid is None else f"{pid}"
    if _is_python(trace) and _has(trace, "py-spy"):
        return f"{_py_spy(trace)} dump --nonblocking --pid {shown}"
    if _has(trace, "gdb"):
        return f"{sudo(trace)}gdb -p {shown} -batch -ex 'thread apply all backtrace'"
    return _as_root(trace, f"grep . /proc/{shown}/task/*/comm /proc/{shown}/task/*/wchan")


def queueing(trace: Trace) -> str:
    """Who runs while others wait for a CPU: of the whole machine, because who is waited for may be anybody.

    perf reads no pipe here, and as root no file of another user's: so the file is root's own, and gone afterwards.
    """
    if _has(trace, "perf"):
        record = 'perf sched record -o "$f" -- sleep 2 && perf sched latency -i "$f"'
        return _as_root(trace, f'f=$(mktemp) && {record}; rm -f "$f"')
    return "top -d 2"


def same_cpu(tid: int) -> str:
    """Which CPUs a thread may run on, and which threads of the machine run or are ready now, by CPU."""
    return f"taskset -pc {tid}; ps -eLo psr,stat,pid,tid,comm --sort psr | awk '$2 ~ /^R/'"


def _as_root(trace: Trace, command: str) -> str:
    """A line of a shell, as root: its patterns, variables and second commands are root's too."""
    return command if is_root(trace) else f"sudo sh -c {shlex.quote(command)}"


def _py_spy(trace: Trace) -> str:
    """How py-spy is called here."""
    called = _fact(trace, HostFact.PY_SPY)
    return called if isinstance(called, str) and called else "py-spy"


def _has(trace: Trace, tool: str) -> bool:
    """Whether it can be run, or nobody has looked."""
    tools = _fact(trace, HostFact.TOOLS)
    return not isinstance(tools, str) or tool in tools.split()


def _is_python(trace: Trace) -> bool:
    kinds = {str(track.facts.get(SETTINGS_OF, "")) for track in trace.tracks_of(TrackKind.PROCESS)}
    return kinds.isdisjoint(_NOT_PYTHON)


def _fact(trace: Trace, name: str) -> object:
    host = trace.tracks.get(ids.HOST)
    return None if host is None else host.facts.get(name)
