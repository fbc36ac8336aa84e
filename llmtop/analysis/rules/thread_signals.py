"""Signals of the server's threads: which one works, waits for a CPU, for the GPU, or for another thread."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.evidence import WINDOW_NS, known, recent_mean, says
from llmtop.analysis.rules.signals import Signal
from llmtop.analysis.series.histograms import Distribution
from llmtop.analysis.series.labels import labels
from llmtop.analysis.series.rates import increase, step_increase
from llmtop.analysis.series.readings import counter_rate, source
from llmtop.analysis.threads.probes import SPIN_LIMITS
from llmtop.analysis.threads.shares import Shares, api_threads, engine_thread, thread_label, threads_view
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackId, Unknown
from llmtop.units import percent, quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from llmtop.analysis.threads.shares import ThreadRow
    from llmtop.model import Trace

ALL_THE_TIME = 0.9
"""Share of the wall time from which a thread counts as never resting."""
RUN_QUEUE_SHARE = 0.05
"""Run-queue wait of 5 % of the wall time: with steps of 20 ms each is a millisecond late (vLLM documentation, CPU
Resources for GPU Deployments: the engine's busy loop is particularly sensitive to CPU starvation)."""
GIL_WAITS_PER_S = 20.0
"""Waits of 5 ms: at this rate threads of the process wait for the GIL a tenth of the time. Two threads that fight all
the time make 200."""
_MOSTLY_GIL = 0.5
"""Share of the looks at threads in futex from which what most of them found is what the threads wait for."""
_LOOKS = 8
"""At threads in futex: fewer say nothing of what that is."""
GPU_WAITS = (v.ThreadCause.CUDA_SYNC, v.ThreadCause.GPU_DRIVER)
NO_INPUT_WAITS = (
    *GPU_WAITS,
    v.ThreadCause.DISK,
    v.ThreadCause.NETWORK_FS,
    v.ThreadCause.UNINTERRUPTIBLE,
    v.ThreadCause.CHILD,
    v.ThreadCause.STOPPED,
)
"""How an engine does not wait for work from another process. All else may be that: sockets, pipes, a queue that one of
its threads fills (futex), and sleeps of which a tracer that has shed its system-call probes tells no cause."""

_LOOPS = ("enginecore", "scheduler", "worker")
"""Roles of processes whose main thread is the loop."""
_DOES_ANYTHING = 0.01
"""Share of the time awake from which a thread does more than to be there."""

_ONE_CORE = (0.8, 1.1)
"""What threads that take turns make together, in cores."""
_SWITCHES_PER_S = 10.0
_OWN_CORES = 0.05
_OWN_HITS_PER_S = 10_000.0
"""A probe takes a microsecond and more of the thread that it interrupts: this many take 1 % of one."""
_PRESSURE_PERCENT = 10.0
"""PSI "some": tasks waited for a CPU in this share of the last ten seconds."""
_LATENCY_NS = 4e6
"""A p99 of the run-queue latency that is longer for certain is no ordinary wake-up (microseconds on a machine with
room). Probes count by powers of two, of which 4.2 ms is one."""


@frozen
class ServerThread:
    """A thread of the server whose times are known."""

    row: ThreadRow
    shares: Shares

    @property
    def track(self) -> TrackId:
        """The id of its track."""
        return ids.thread(self.row.pid, self.row.tid)

    @property
    def name(self) -> str:
        """What people call it."""
        return thread_label(self.row)

    @property
    def awake(self) -> float:
        """Share of the time on a CPU or ready for one."""
        return self.shares.on_cpu + self.shares.run_queue

    @property
    def spent(self) -> tuple[tuple[str, float], ...]:
        """Where its time goes, the largest part first: ("futex", 0.82), ("CPU", 0.12), ("queue", 0.05)."""
        parts = {**dict(self.shares.blocked), "CPU": self.shares.on_cpu, "queue": self.shares.run_queue}
        return tuple(sorted(parts.items(), key=lambda part: -part[1]))

    @property
    def input_wait(self) -> float:
        """Share of the time asleep or polling for what may be input: with work at hand it would not."""
        return self.shares.blocked_total - self.blocked_on(NO_INPUT_WAITS) + (self.shares.polling or 0.0)

    def blocked_on(self, causes: Iterable[str]) -> float:
        """Share of the time asleep for one of these causes."""
        wanted = frozenset(causes)
        return sum(share for cause, share in self.shares.blocked if cause in wanted)


# -- which threads -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def threads(trace: Trace) -> tuple[ServerThread, ...]:
    """All threads of the server whose times are known; kept for the newest traces, because most rules ask."""
    view = threads_view(trace)
    return () if isinstance(view, Unknown) else _watched(view.rows)


def engine(trace: Trace) -> ServerThread | None:
    """The thread that schedules the model's steps."""
    row = engine_thread(trace)
    return None if isinstance(row, Unknown) else next(iter(_watched((row,))), None)


def loop(trace: Trace) -> ServerThread | None:
    """The thread that takes the model's steps, asleep or not: the main one of the engine, where that does anything.

    A helper beside it may be busier: one that holds a lock, or fills a queue. What is waited for is not what waits.
    """
    first = engine(trace)
    return None if first is None else _loop_of(first, _mains(trace))


def loops(trace: Trace) -> tuple[ServerThread, ...]:
    """The same of each process that runs the model: what the time of a step is made of."""
    mains = _mains(trace)
    return tuple(_loop_of(thread, mains) for thread in drivers(trace))


def _mains(trace: Trace) -> Mapping[int, ServerThread]:
    return {thread.row.pid: thread for thread in threads(trace) if thread.row.pid == thread.row.tid}


def _loop_of(busiest: ServerThread, mains: Mapping[int, ServerThread]) -> ServerThread:
    main = mains.get(busiest.row.pid)
    is_loop = any(part in busiest.row.role.casefold() for part in _LOOPS)
    return main if is_loop and main is not None and main.awake >= _DOES_ANYTHING else busiest


@lru_cache(maxsize=4)
def drivers(trace: Trace) -> tuple[ServerThread, ...]:
    """The busiest thread of each process that runs the model, the engine's and the workers'; the most awake first."""
    front = {row.pid for row in api_threads(trace)}
    everyone = threads(trace)
    model = [thread for thread in everyone if thread.row.pid not in front] or everyone
    busiest: dict[int, ServerThread] = {}
    for thread in sorted(model, key=lambda thread: -thread.awake):
        busiest.setdefault(thread.row.pid, thread)
    return tuple(busiest.values())


@lru_cache(maxsize=4)
def fronts(trace: Trace) -> tuple[ServerThread, ...]:
    """Threads of the processes that take requests, in a server that runs its model in others."""
    front = _watched(api_threads(trace))
    return front if len(front) < len(threads(trace)) else ()


def tireless_front(trace: Trace) -> ServerThread | None:
    """The thread of the processes that take requests that works or queues for a CPU all the time; the busiest."""
    busiest = max(fronts(trace), key=lambda thread: thread.shares.working + thread.shares.run_queue, default=None)
    is_tireless = busiest is not None and busiest.shares.working + busiest.shares.run_queue >= ALL_THE_TIME
    return busiest if is_tireless else None


@frozen
class StarvedFrontend:
    """A process that takes requests, never rests, and queues for CPUs more than it works.

    Attributes:
        thread: The one that waits most.
        queued: Seconds that all its threads together wait for a CPU, in each second.
        cores: CPU seconds per second of the process.
    """

    thread: ServerThread
    queued: float
    cores: float


def starved_frontend(trace: Trace) -> StarvedFrontend | None:
    """The one that waits most. Its answers are late by that much, whatever the engine and the GPU do meanwhile."""
    everyone = sorted(fronts(trace), key=lambda thread: thread.row.pid)
    found = (_short(trace, list(members)) for _, members in groupby(everyone, key=lambda thread: thread.row.pid))
    return max((one for one in found if one is not None), key=lambda one: one.queued, default=None)


def _short(trace: Trace, members: list[ServerThread]) -> StarvedFrontend | None:
    queued, cores = sum(one.shares.run_queue for one in members), sum(one.shares.on_cpu for one in members)
    counted = known(counter_rate(trace, ids.process(members[0].row.pid), v.PROCESS_CPU, WINDOW_NS))
    cores = cores if counted is None else counted / NS_PER_S  # threads that came and went are in the process's clock
    if queued < max(_QUEUES, cores) or queued + cores < ALL_THE_TIME:
        return None
    most = max(members, key=lambda one: one.shares.run_queue)
    # Many that take turns on one core (the GIL) queue whenever they ask for their turn: they have what they can use.
    if most.shares.run_queue < _ALL_OF_IT * queued and cores >= _MOSTLY_WORKS * _ONE_CORE[0]:
        return None
    return StarvedFrontend(most, queued, cores)


_QUEUES = 0.5
"""Seconds in each second: less is late now and then."""
_ALL_OF_IT = 0.9
"""Share of what all threads of a process queue, from which it is one thread's."""


@frozen
class SerialFrontend:
    """Threads of a process that takes requests which take turns on one core: together they never rest.

    Attributes:
        cores: CPU seconds per second of their process.
    """

    threads: tuple[ServerThread, ...]
    cores: float


def serial_frontends(trace: Trace) -> Iterator[SerialFrontend]:
    """Those of all front ends.

    A thread for each request comes and goes, and shares of threads are of their own time and add up to more: their
    process's clock tells what all of them took.
    """
    everyone = sorted(fronts(trace), key=lambda thread: thread.row.pid)
    least, most = _ONE_CORE
    for pid, members in groupby(everyone, key=lambda thread: thread.row.pid):
        rivals = [one for one in members if one.shares.main_cause == v.ThreadCause.FUTEX and one.awake > 0]
        cores = known(counter_rate(trace, ids.process(pid), v.PROCESS_CPU, WINDOW_NS))
        if cores is None or len(rivals) < 2:
            continue
        cores /= NS_PER_S
        queued = max(one.shares.run_queue for one in rivals)
        if cores <= most and cores + queued >= least and cores >= _MOSTLY_WORKS * least:
            yield SerialFrontend(tuple(sorted(rivals, key=lambda one: -one.awake)), cores)


_MOSTLY_WORKS = 0.5
"""Of one core: with less they are short of a CPU, which is another verdict."""


def herd(members: Iterable[ServerThread]) -> tuple[ServerThread, ...]:
    """Threads that make one core together and else wait for a futex, the busiest first: the GIL's mark, or a lock's.

    One that has the GIL and is put off its CPU keeps it, so that all stand still: queued time is taken as well.
    """
    rivals = [one for one in members if one.shares.main_cause == v.ThreadCause.FUTEX and one.awake > 0]
    least, most = _ONE_CORE
    if len(rivals) < 2 or sum(one.shares.on_cpu for one in rivals) > most:
        return ()
    return tuple(sorted(rivals, key=lambda one: -one.awake)) if sum(one.awake for one in rivals) >= least else ()


def _watched(rows: Iterable[ThreadRow]) -> tuple[ServerThread, ...]:
    return tuple(ServerThread(row, row.shares) for row in rows if isinstance(row.shares, Shares))


# -- what they do ------------------------------------------------------------------------------------------------


def held_off(trace: Trace, thread: ServerThread) -> Signal | None:
    """The thread is ready and gets no CPU for 5 % of the time."""
    share = thread.shares.run_queue
    return Signal(share, says_run_queue(trace, thread)) if share >= RUN_QUEUE_SHARE else None


def crowding(trace: Trace, thread: ServerThread) -> tuple[str, ...]:
    """What else says that threads wait for CPUs: involuntary switches, run-queue latency, the host's CPU pressure."""
    lines = (_switches(trace, thread), _latency(trace, ids.process(thread.row.pid)), _pressure(trace))
    return tuple(line for line in lines if line)


def kernel_share(trace: Trace, process: TrackId) -> float | None:
    """Of a process's CPU time, what goes by in the kernel; None where that is not known or it has taken none."""
    used, system = (known(counter_rate(trace, process, one, WINDOW_NS)) for one in (v.PROCESS_CPU, v.PROCESS_SYSTEM))
    return system / used if used and system is not None else None


def spins(trace: Trace, thread: ServerThread) -> bool:
    """Whether it asks so often that much of its CPU time is that, even if it does other things between.

    `Shares.polling` is 0 for a thread that launches kernels too, as vLLM's workers do that spin for the next step.
    """
    start_ns = trace.end_ns - WINDOW_NS
    cpu_s = step_increase(trace.get(thread.track, v.THREAD_ON_CPU), start_ns, trace.end_ns) / NS_PER_S
    asked = {
        kind: step_increase(trace.get(thread.track, v.labelled(v.THREAD_SPINS, kind)), start_ns, trace.end_ns)
        for kind in SPIN_LIMITS
    }
    return any(count >= SPIN_LIMITS[kind] * cpu_s > 0 for kind, count in asked.items())


def says_own_cost(trace: Trace) -> Iterator[str]:
    """What llmtop itself takes, where that is enough to be in the way: its CPU time, and how often its probes run."""
    used = increase(trace.get(ids.SELF, v.SELF_CPU), WINDOW_NS, trace.end_ns)
    hits = increase(trace.get(ids.SELF, v.SELF_PROBE_HITS), WINDOW_NS, trace.end_ns)
    cores = 0.0 if isinstance(used, Unknown) else used.per_second / NS_PER_S
    rate = 0.0 if isinstance(hits, Unknown) else hits.per_second
    if cores >= _OWN_CORES or rate >= _OWN_HITS_PER_S:
        yield f"llmtop itself: {percent(100 * cores)} of a core, probes {quantity(rate, 'hits/s')} (own counters)"


def gil_waits(trace: Trace, pid: int) -> Signal | None:
    """How often in a second threads of a process asked for the GIL and did not get it within 5 ms."""
    process, start_ns = ids.process(pid), trace.end_ns - WINDOW_NS
    timed = step_increase(trace.get(process, v.SYSCALL_TIMED), start_ns, trace.end_ns)
    if timed < NS_PER_S:
        return None
    waits = step_increase(trace.get(process, v.PROCESS_GIL_WAITS), start_ns, trace.end_ns)
    rate = waits * NS_PER_S / timed
    if rate < GIL_WAITS_PER_S:
        return None
    return Signal(rate, f"{says(trace, process, v.PROCESS_GIL_WAITS, rate, '/s')}, each 5 ms in vain")


def found_at_gil(trace: Trace, members: Iterable[ServerThread]) -> Signal | None:
    """Threads that were found in futex were mostly found at their interpreter's lock: the share of those looks."""
    tracks = [one.track for one in members]
    in_futex = v.labelled(v.THREAD_STATE_SAMPLES, v.ThreadCause.FUTEX.value)
    at_gil, looks = (
        sum(step_increase(trace.get(track, metric), trace.end_ns - WINDOW_NS, trace.end_ns) for track in tracks)
        for metric in (v.THREAD_GIL_FUTEX, in_futex)
    )
    if looks < _LOOKS or at_gil < _MOSTLY_GIL * looks:
        return None
    where = next(who for track in tracks if (who := source(trace, track, v.THREAD_GIL_FUTEX)))
    who = ids.thread_label(tracks[0]) if len(tracks) == 1 else f"{len(tracks)} threads"
    text = f"in {at_gil:.0f} of {looks:.0f} looks at {who} in futex it was the GIL ({where})"
    return Signal(min(1.0, at_gil / looks), text)


def says_run_queue(trace: Trace, thread: ServerThread) -> str:
    """The line of evidence of the time that a thread is ready and has no CPU."""
    return f"{thread.name}: run-queue wait {percent(100 * thread.shares.run_queue)} ({_clock(trace, thread)})"


def says_on_cpu(trace: Trace, thread: ServerThread) -> str:
    """The line of evidence of a thread's CPU time, and of what it only polls in it."""
    clock = f"{thread.name}: on-CPU {percent(100 * thread.shares.on_cpu)} ({_clock(trace, thread)})"
    return f"{clock}, {says_polling(trace, thread)}" if thread.shares.polling else clock


def says_polling(trace: Trace, thread: ServerThread) -> str:
    """That a thread polls, with who says so."""
    kinds = (v.labelled(v.THREAD_SPINS, kind) for kind in v.SpinKind)
    where = next((who for kind in kinds if (who := source(trace, thread.track, kind))), "probes")
    return f"polling {percent(100 * (thread.shares.polling or 0.0))} ({where})"


def says_in_sync(trace: Trace, thread: ServerThread) -> str:
    """The line of evidence that a thread waits for the GPU."""
    where = source(trace, thread.track, v.THREAD_CUDA_SYNC) or "uprobes"
    share = percent(100 * (thread.shares.in_cuda_sync or 0.0))
    return f"{thread.name}: in CUDA synchronisation {share} ({where})"


def spent_text(thread: ServerThread, most: int = 3) -> str:
    """Where a thread's time goes, in one line: "82 % futex, 12 % CPU, 5 % queue"."""
    return ", ".join(f"{100 * share:.0f} % {what}" for what, share in thread.spent[:most] if share >= 0.01)


def says_spent(trace: Trace, thread: ServerThread) -> str:
    """The line of evidence of where all of a thread's time goes."""
    how = thread.shares.how_causes_are_known
    return f"{thread.name}: {spent_text(thread, most=6)} ({_clock(trace, thread)}, causes {how})"


def says_blocked(thread: ServerThread) -> str:
    """The line of evidence that a thread sleeps, and on what."""
    causes = ", ".join(f"{cause} {percent(100 * share)}" for cause, share in thread.shares.blocked if share >= 0.01)
    how = thread.shares.how_causes_are_known
    return f"{thread.name}: blocked {percent(100 * thread.shares.blocked_total)}: {causes} ({how})"


def _switches(trace: Trace, thread: ServerThread) -> str:
    grown = increase(trace.get(thread.track, v.THREAD_INVOLUNTARY), WINDOW_NS, trace.end_ns)
    if isinstance(grown, Unknown) or grown.per_second < _SWITCHES_PER_S:
        return ""
    return f"{thread.name}: {says(trace, thread.track, v.THREAD_INVOLUNTARY, grown.per_second, '/s')}"


def _latency(trace: Trace, process: TrackId) -> str:
    """The p99 from ready to running, over all threads of the process."""
    told = labels(trace, v.PROCESS_RUN_QUEUE_LATENCY).get(process, ())
    uppers = tuple(sorted(float(label) for label in told if label != v.SUM))
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
    pressure = recent_mean(trace, ids.HOST, v.HOST_CPU_PRESSURE)
    if pressure is None or pressure < _PRESSURE_PERCENT:
        return ""
    return says(trace, ids.HOST, v.HOST_CPU_PRESSURE, pressure)


def _clock(trace: Trace, thread: ServerThread) -> str:
    return source(trace, thread.track, v.THREAD_ON_CPU)
