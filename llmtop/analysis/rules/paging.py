"""The server's memory is not in memory: what it touches has to be read from a disk first."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.base import Unjudged
from llmtop.analysis.rules.evidence import WINDOW_NS, known
from llmtop.analysis.rules.signals import requests
from llmtop.analysis.rules.thread_signals import ServerThread, kernel_share, loops, says_spent
from llmtop.analysis.series.readings import counter_rate, latest
from llmtop.analysis.series.readings import source as source_of
from llmtop.model import Finding, Severity, Trace
from llmtop.units import binary_bytes, percent, quantity

id = "paging"
summary = "The server waits for pages of its own memory: from swap space, or of files that it has mapped."
source = "Linux, proc_pid_stat(5) (majflt), proc_pid_status(5) (VmSwap)"

_FAULTS_PER_S = 20.0
"""Each reads from a disk, in 0.1 to 10 ms: so many a second are felt. A process that has what it needs makes none."""
_A_FAULT_S = 0.05
"""A disk at its limit takes up to so long for one, with what is read around it: fewer a second that explain the wait
are felt too (llama-server in a container smaller than its weights: 18 a second, 13 to 28 ms each)."""
_WAITS = 0.05
"""Share of the time in which a loop waits for a disk."""
_MUCH_IN_KERNEL = 0.1
"""Of a process's CPU time; a loop that computes hardly needs the kernel."""
_CAUSES = (v.ThreadCause.DISK, v.ThreadCause.UNINTERRUPTIBLE)


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Major page faults of a process that runs the model, and its loop waits for a disk."""
    for thread in loops(trace):
        process = ids.process(thread.row.pid)
        faults = known(counter_rate(trace, process, v.PROCESS_MAJOR_FAULTS, WINDOW_NS))
        waits = thread.blocked_on(_CAUSES)
        if faults is not None and waits >= _WAITS and (faults >= _FAULTS_PER_S or faults * _A_FAULT_S >= waits):
            yield _finding(trace, thread, faults, waits)


def _finding(trace: Trace, thread: ServerThread, faults: float, waits: float) -> Finding:
    process = ids.process(thread.row.pid)
    kernel = kernel_share(trace, process) or 0.0
    swapped = known(latest(trace, process, v.PROCESS_SWAP)) or 0.0
    what = f"{binary_bytes(swapped)} of it are swapped out" if swapped else "files that it has mapped are read again"
    where = source_of(trace, process, v.PROCESS_MAJOR_FAULTS)
    lines = [f"{thread.name}: {quantity(faults, 'major page faults/s')} ({where})", says_spent(trace, thread)]
    if kernel >= _MUCH_IN_KERNEL:
        lines.append(
            f"{thread.name}: {percent(100 * kernel)} of its process's CPU time in the kernel, which finds room "
            f"for pages and maps them ({source_of(trace, process, v.PROCESS_SYSTEM)})"
        )
    if swapped:
        lines.append(f"{thread.name}: {binary_bytes(swapped)} in swap space (/proc/PID/status)")
    if (load := requests(trace)) is not None:
        lines.append(load.text)
    return Finding(
        rule=id,
        severity=Severity.WARNING,
        subject=thread.name,
        message=f"{thread.name} waits for its own memory {percent(100 * waits)} of the time: {what}",
        evidence=tuple(lines),
        action="give the machine or the container more memory, or take other programs away; "
        + ("then swapoff -a brings it back" if swapped else "then --mlock (llama.cpp) keeps the weights there"),
        next_command=f"grep -E 'Vm(RSS|Swap)' /proc/{thread.row.pid}/status; grep -E 'Mem|Swap' /proc/meminfo",
        source=source,
        share=waits + kernel * thread.shares.on_cpu,
    )
