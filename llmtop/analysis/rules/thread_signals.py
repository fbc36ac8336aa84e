"""Signals of the server's threads: which one works, waits for a CPU, for the GPU, or for another thread."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.histograms import Distribution
from llmtop.analysis.rates import increase, step_increase
from llmtop.analysis.readings import source
from llmtop.analysis.rules.evidence import WINDOW_NS, recent_mean, says
from llmtop.analysis.rules.signals import Signal, now_and_before
from llmtop.analysis.thread_probes import EMPTY_POLLS_PER_S, YIELDS_PER_S
from llmtop.analysis.threads import Shares, api_threads, engine_thread, threads_view
from llmtop.model import NS_PER_S, Unknown
from llmtop.units import percent, quantity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmtop.analysis.threads import ThreadRow
    from llmtop.model import Trace

ALL_THE_TIME = 0.9
"""Share of the wall time from which a thread counts as never resting."""
RUN_QUEUE_SHARE = 0.05
"""Run-queue wait of 5 % of the wall time: with steps of 20 ms each is a millisecond late (vLLM documentation, CPU
Resources for GPU Deployments: the engine's busy loop is particularly sensitive to CPU starvation)."""
GIL_WAITS_PER_S = 20.0
"""Waits of 5 ms: at this rate threads of the process wait for the GIL a tenth of the time. Two threads that fight all
the time make 200."""
GPU_WAITS = (v.ThreadCause.CUDA_SYNC, v.ThreadCause.GPU_DRIVER)
INPUT_WAITS = (
    v.ThreadCause.EPOLL,
    v.ThreadCause.POLL,
    v.ThreadCause.SOCKET,
    v.ThreadCause.PIPE,
    v.ThreadCause.FUTEX,
)
"""How an engine waits for work from another process: itself, or at a queue that a thread of its own fills (futex)."""

_SPIN_LIMITS = {"sched_yield": YIELDS_PER_S, "poll": EMPTY_POLLS_PER_S}
"""Calls per second on a CPU."""
_QUEUED_TOO = 0.02
_PREEMPTIONS_PER_S = 50.0
_PREEMPTED_MORE = 2.0
_SWITCHES_PER_S = 10.0
_PRESSURE_PERCENT = 10.0
"""PSI "some": tasks waited for a CPU in this share of the last ten seconds."""
_LATENCY_NS = 4e6
"""A p99 of the run-queue latency that is longer for certain is no ordinary wake-up (microseconds on a machine with
room). Probes count by powers of two, of which 4.2 ms is one."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A thread of the server whose times are known."""

    row: ThreadRow
    shares: Shares

    @property
    def track(self) -> str:
        """The id of its track."""
        return f"thread:{self.row.pid}/{self.row.tid}"

    @property
    def name(self) -> str:
        """Its process' role, which is what people know it by; its own name too where it is not the main thread."""
        role, name = self.row.role, self.row.name
        if not role or name.startswith(role[:8]):
            return name
        return role if self.row.pid == self.row.tid else f"{role}/{name}"

    @property
    def awake(self) -> float:
        """Share of the time on a CPU or ready for one."""
        return self.shares.on_cpu + self.shares.run_queue

    def blocked_on(self, causes: Iterable[str]) -> float:
        """Share of the time asleep for one of these causes."""
        wanted = frozenset(causes)
        return sum(share for cause, share in self.shares.blocked if cause in wanted)


# -- which threads -----------------------------------------------------------------------------------------------


def threads(trace: Trace) -> tuple[Watched, ...]:
    """All threads of the server whose times are known."""
    view = threads_view(trace)
    return () if isinstance(view, Unknown) else _watched(view.rows)


def engine(trace: Trace) -> Watched | None:
    """The thread that schedules the model's steps."""
    row = engine_thread(trace)
    return None if isinstance(row, Unknown) else next(iter(_watched((row,))), None)


def drivers(trace: Trace) -> tuple[Watched, ...]:
    """The busiest thread of each process that runs the model, the engine's and the workers'; the most awake first."""
    front = {row.pid for row in api_threads(trace)}
    everyone = threads(trace)
    model = [thread for thread in everyone if thread.row.pid not in front] or everyone
    busiest: dict[int, Watched] = {}
    for thread in sorted(model, key=lambda thread: -thread.awake):
        busiest.setdefault(thread.row.pid, thread)
    return tuple(busiest.values())


def fronts(trace: Trace) -> tuple[Watched, ...]:
    """Threads of the processes that take requests, in a server that runs its model in others."""
    front = _watched(api_threads(trace))
    return front if len(front) < len(threads(trace)) else ()


def _watched(rows: Iterable[ThreadRow]) -> tuple[Watched, ...]:
    return tuple(Watched(row, row.shares) for row in rows if isinstance(row.shares, Shares))


# -- what they do ------------------------------------------------------------------------------------------------


def held_off(trace: Trace, thread: Watched) -> Signal | None:
    """The thread is ready and gets no CPU for 5 % of the time; or for 2 %, and it is preempted twice as often."""
    share, waits = thread.shares.run_queue, says_run_queue(trace, thread)
    if share >= RUN_QUEUE_SHARE:
        return Signal(share, waits)
    preempted = _preempted_more(trace, thread) if share >= _QUEUED_TOO else ""
    return Signal(share, f"{waits}, {preempted}") if preempted else None


def crowding(trace: Trace, thread: Watched) -> tuple[str, ...]:
    """What else says that threads wait for CPUs: involuntary switches, run-queue latency, the host's CPU pressure."""
    lines = (_switches(trace, thread), _latency(trace, f"process:{thread.row.pid}"), _pressure(trace))
    return tuple(line for line in lines if line)


def spins(trace: Trace, thread: Watched) -> bool:
    """Whether it asks so often that much of its CPU time is that, even if it does other things between.

    `Shares.polling` is 0 for a thread that launches kernels too, as vLLM's workers do that spin for the next step.
    """
    start_ns = trace.end_ns - WINDOW_NS
    cpu_s = step_increase(trace.get(thread.track, v.THREAD_ON_CPU), start_ns, trace.end_ns) / NS_PER_S
    asked = {
        kind: step_increase(trace.get(thread.track, v.labelled(v.THREAD_SPINS, kind)), start_ns, trace.end_ns)
        for kind in _SPIN_LIMITS
    }
    return any(count >= _SPIN_LIMITS[kind] * cpu_s > 0 for kind, count in asked.items())


def gil_waits(trace: Trace, pid: int) -> Signal | None:
    """How often in a second threads of a process asked for the GIL and did not get it within 5 ms."""
    process, start_ns = f"process:{pid}", trace.end_ns - WINDOW_NS
    timed = step_increase(trace.get(process, v.SYSCALL_TIMED), start_ns, trace.end_ns)
    if timed < NS_PER_S:
        return None
    waits = step_increase(trace.get(process, v.PROCESS_GIL_WAITS), start_ns, trace.end_ns)
    rate = waits * NS_PER_S / timed
    if rate < GIL_WAITS_PER_S:
        return None
    return Signal(rate, f"{says(trace, process, v.PROCESS_GIL_WAITS, rate, '/s')}, each 5 ms in vain")


def says_run_queue(trace: Trace, thread: Watched) -> str:
    """The line of evidence of the time that a thread is ready and has no CPU."""
    return f"{thread.name}: run-queue wait {percent(100 * thread.shares.run_queue)} ({_clock(trace, thread)})"


def says_on_cpu(trace: Trace, thread: Watched) -> str:
    """The line of evidence of a thread's CPU time, and of what it only polls in it."""
    clock = f"{thread.name}: on-CPU {percent(100 * thread.shares.on_cpu)} ({_clock(trace, thread)})"
    return f"{clock}, {says_polling(trace, thread)}" if thread.shares.polling else clock


def says_polling(trace: Trace, thread: Watched) -> str:
    """That a thread polls, with who says so."""
    kinds = (v.labelled(v.THREAD_SPINS, kind) for kind in ("sched_yield", "poll"))
    where = next((who for kind in kinds if (who := source(trace, thread.track, kind))), "probes")
    return f"polling {percent(100 * (thread.shares.polling or 0.0))} ({where})"


def says_in_sync(trace: Trace, thread: Watched) -> str:
    """The line of evidence that a thread waits for the GPU."""
    where = source(trace, thread.track, v.THREAD_CUDA_SYNC) or "uprobes"
    share = percent(100 * (thread.shares.in_cuda_sync or 0.0))
    return f"{thread.name}: in CUDA synchronisation {share} ({where})"


def says_blocked(thread: Watched) -> str:
    """The line of evidence that a thread sleeps, and on what."""
    causes = ", ".join(f"{cause} {percent(100 * share)}" for cause, share in thread.shares.blocked if share >= 0.01)
    how = "measured at each sleep" if thread.shares.are_causes_exact else "sampled at each poll"
    return f"{thread.name}: blocked {percent(100 * thread.shares.blocked_total)}: {causes} ({how})"


def _preempted_more(trace: Trace, thread: Watched) -> str:
    series = trace.get(thread.track, v.THREAD_INVOLUNTARY)
    now, before = (increase(series, *span) for span in now_and_before(trace))
    if isinstance(now, Unknown) or isinstance(before, Unknown):
        return ""
    if now.per_second < _PREEMPTIONS_PER_S or now.per_second < before.per_second * _PREEMPTED_MORE:
        return ""
    shown = says(trace, thread.track, v.THREAD_INVOLUNTARY, now.per_second, "/s")
    return f"{shown}, were {quantity(before.per_second, '/s')}"


def _switches(trace: Trace, thread: Watched) -> str:
    grown = increase(trace.get(thread.track, v.THREAD_INVOLUNTARY), WINDOW_NS, trace.end_ns)
    if isinstance(grown, Unknown) or grown.per_second < _SWITCHES_PER_S:
        return ""
    return f"{thread.name}: {says(trace, thread.track, v.THREAD_INVOLUNTARY, grown.per_second, '/s')}"


def _latency(trace: Trace, process: str) -> str:
    """The p99 from ready to running, over all threads of the process."""
    prefix = f"{v.PROCESS_RUN_QUEUE_LATENCY.name}|"
    labels = (name[len(prefix) :] for owner, name in trace.series if owner == process and name.startswith(prefix))
    uppers = tuple(sorted(float(label) for label in labels if label != "sum"))
    buckets = [trace.get(process, v.bucket(v.PROCESS_RUN_QUEUE_LATENCY, upper)) for upper in uppers]
    grown = [step_increase(one, trace.end_ns - WINDOW_NS, trace.end_ns) for one in buckets]
    if not grown or not grown[-1] or not math.isinf(uppers[-1]):
        return ""
    # A bound that comes up late begins with all that was counted below it: never more than were seen in all.
    p99 = Distribution(uppers, tuple(min(count, grown[-1]) for count in grown)).quantile(0.99)
    if p99.low < _LATENCY_NS:
        return ""
    where = source(trace, process, v.bucket(v.PROCESS_RUN_QUEUE_LATENCY, math.inf))
    return f"run-queue latency p99 {p99.text('ns')} ({where})"


def _pressure(trace: Trace) -> str:
    pressure = recent_mean(trace, "host", v.HOST_CPU_PRESSURE)
    if pressure is None or pressure < _PRESSURE_PERCENT:
        return ""
    return says(trace, "host", v.HOST_CPU_PRESSURE, pressure)


def _clock(trace: Trace, thread: Watched) -> str:
    return source(trace, thread.track, v.THREAD_ON_CPU)
