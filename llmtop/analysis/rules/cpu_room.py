"""How many CPUs the server's threads want, may use and have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.rules.thread_signals import ServerThread, threads
from llmtop.analysis.threads.neighbours import count_cpus
from llmtop.facts import HostFact, ThreadFact

if TYPE_CHECKING:
    from llmtop.model import Trace

_READY = 0.5
"""Share of the time on a CPU or ready for one from which a thread wants one of its own."""


def ready_threads(trace: Trace, pid: int) -> int:
    """How many threads of a process want a CPU most of the time.

    Threads of Python that take turns on one core are many too, but each of them sleeps most of the time.
    """
    return sum(one.row.pid == pid and one.awake >= _READY for one in threads(trace))


def cores(trace: Trace) -> tuple[float, float]:
    """How many cores the server uses, and how many there are; 0 where that is not known."""
    machine = trace.tracks.get(ids.HOST)
    count = machine.facts.get(HostFact.CORES, 0) if machine is not None else 0
    return sum(thread.shares.on_cpu for thread in threads(trace)), float(count) if isinstance(count, int) else 0.0


def cpus_of(trace: Trace, thread: ServerThread) -> str:
    """Those that a thread may run on, as the kernel lists them; empty where that is not known."""
    return str(trace.tracks[thread.track].facts.get(ThreadFact.CPUS, ""))


def room(trace: Trace, thread: ServerThread) -> int:
    """How many CPUs a thread may run on; 0 where that is not known."""
    return count_cpus(cpus_of(trace, thread)) or int(cores(trace)[1])
