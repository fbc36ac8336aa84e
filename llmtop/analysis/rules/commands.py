"""The next command of a finding: one that runs here, with tools that are there, and without sudo for root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.model import TrackKind

if TYPE_CHECKING:
    from llmtop.model import Trace

_NOT_PYTHON = frozenset({"llamacpp", "ollama", "tgi", "triton"})
"""Engines whose loop is not Python: py-spy sees nothing of it."""


def is_root(trace: Trace) -> bool:
    """Whether llmtop runs as root, so that commands need no sudo."""
    return _fact(trace, "is_root") == 1


def sudo(trace: Trace) -> str:
    """What stands before a command that needs root."""
    return "" if is_root(trace) else "sudo "


def profile(trace: Trace, pid: int, name: str, flags: str = "") -> str:
    """Where a process spends its time on the CPU, over ten seconds."""
    if _is_python(trace) and _has(trace, "py-spy"):
        return f"py-spy record {flags}--nonblocking -d 10 -o {name}.svg --pid {pid}"
    if _has(trace, "perf"):
        return f"{sudo(trace)}perf record -g -p {pid} -- sleep 10 && {sudo(trace)}perf report"
    return f"top -H -p {pid}"


def stacks(trace: Trace, pid: int) -> str:
    """Where each thread of a process stands now."""
    if _is_python(trace) and _has(trace, "py-spy"):
        return f"py-spy dump --nonblocking --pid {pid}"
    if _has(trace, "gdb"):
        return f"{sudo(trace)}gdb -p {pid} -batch -ex 'thread apply all backtrace'"
    return f"{sudo(trace)}grep . /proc/{pid}/task/*/comm /proc/{pid}/task/*/wchan"


def queueing(trace: Trace, pid: int) -> str:
    """Who runs while a process waits for a CPU."""
    if _has(trace, "perf"):
        return f"{sudo(trace)}perf sched record -p {pid} -- sleep 5 && {sudo(trace)}perf sched latency"
    return "ps -eo pid,psr,pcpu,cgroup:40,comm --sort=-pcpu | head -20"


def _has(trace: Trace, tool: str) -> bool:
    """Whether it can be run, or nobody has looked."""
    tools = _fact(trace, "tools")
    return not isinstance(tools, str) or tool in tools.split()


def _is_python(trace: Trace) -> bool:
    kinds = {str(track.facts.get("engine_kind", "")) for track in trace.tracks_of(TrackKind.PROCESS)}
    return kinds.isdisjoint(_NOT_PYTHON)


def _fact(trace: Trace, name: str) -> object:
    host = trace.tracks.get("host")
    return None if host is None else host.facts.get(name)
