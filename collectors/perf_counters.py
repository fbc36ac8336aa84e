"""Page faults, migrations and cache misses of the server's threads, counted by the kernel (perf_event_open(2)).

Counters and no samples: nothing is interrupted, and a thread that sleeps costs nothing. Those are counted that work,
`MOST` at most: the first thread of each process and the busiest ones, chosen anew every ten seconds. Each has two
groups: events of the kernel's own software, which are everywhere, and of the processor's counters (PMU), which many
virtual machines do not have.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from llmtop import ids, procfs, whats
from llmtop import vocabulary as v
from llmtop.collectors.base import Probes
from llmtop.collectors.tracing.helper.kernel import CounterGroup
from llmtop.model import LIVE, NS_PER_S, Metric, Missing, Reading, Source, Trace, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from llmtop.collectors.base import Aim, Clock, Collector
    from llmtop.model import Target

    OpenGroup = Callable[[Sequence[tuple[int, int]], int], CounterGroup]

MOST = 32
"""Threads: seven counters each, well below the 1024 files that a process may have open."""
CHOSEN_EVERY_NS = 10 * NS_PER_S
"""How often the threads that are counted are chosen anew."""
_FIRST_NS = NS_PER_S
"""From the first choice to the second: which threads work takes two looks."""
_LEAST_SHARE = 0.005
"""Of the time on a CPU: what runs less is not what a step waits for."""
_TOLD_EVERY_NS = 5 * NS_PER_S
"""A counter that stands still is told again so often, so that it is known to be of now."""
_HARDWARE_TYPE, _SOFTWARE_TYPE, _CACHE_TYPE = 0, 1, 3
_DATA_TLB_READ_MISSES = 3 | 1 << 16
"""PERF_COUNT_HW_CACHE_DTLB, read, miss; as all numbers here from include/uapi/linux/perf_event.h."""
SOFTWARE: Mapping[Metric, tuple[int, int]] = {
    v.THREAD_MINOR_FAULTS: (_SOFTWARE_TYPE, 5),
    v.THREAD_MAJOR_FAULTS: (_SOFTWARE_TYPE, 6),
    v.THREAD_MIGRATIONS: (_SOFTWARE_TYPE, 4),
}
HARDWARE: Mapping[Metric, tuple[int, int]] = {
    v.THREAD_CYCLES: (_HARDWARE_TYPE, 0),
    v.THREAD_INSTRUCTIONS: (_HARDWARE_TYPE, 1),
    v.THREAD_CACHE_REFERENCES: (_HARDWARE_TYPE, 2),
    v.THREAD_CACHE_MISSES: (_HARDWARE_TYPE, 3),
    v.THREAD_DTLB_MISSES: (_CACHE_TYPE, _DATA_TLB_READ_MISSES),
}
_SOURCE = "perf_event_open"
_OFF = Unknown("kernel probes are switched off", "run llmtop without --probes off")
_LIGHT = Unknown("the processor's counters are not asked for with --probes light", "run llmtop without --probes light")
_NO_EVENTS = Unknown("this kernel counts no events", "boot one that is built with CONFIG_PERF_EVENTS")
_NO_PMU = Unknown(
    "this machine shows its kernel no counters of the processor (PMU)",
    "run on bare metal, or let the hypervisor give the virtual machine a virtual PMU",
)
_TOO_MANY_FILES = Unknown("llmtop has as many files open as it may", "ulimit -n 4096")
_WITHOUT_PMU = frozenset({errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL})


@dataclass(slots=True)
class _Counted:
    """A thread, its groups of counters, and what was told of them last."""

    pid: int
    groups: dict[str, CounterGroup] = field(default_factory=dict)
    told: dict[str, tuple[int, ...]] = field(default_factory=dict)
    told_ns: dict[str, int] = field(default_factory=dict)

    def close(self) -> None:
        for group in self.groups.values():
            group.close()


class PerfCountersCollector:
    """Counts events of the threads of a server that work most.

    Args:
        open_group: Opens counters of a thread that are read together.
    """

    name = "perf-counters"
    owns = Source(name, metrics=(*SOFTWARE, *HARDWARE))
    period_s = 1.0

    def __init__(
        self,
        target: Target,
        probes: Probes = Probes.FULL,
        proc: Path = procfs.PROC,
        clock: Clock = time.monotonic_ns,
        open_group: OpenGroup = CounterGroup,
    ) -> None:
        self._pids = tuple(dict.fromkeys((target.root_pid, *(one.pid for one in target.processes))))
        self._probes = probes
        self._proc = proc
        self._clock = clock
        self._open_group = open_group
        self._counted: dict[int, _Counted] = {}
        self._ran_ns: dict[int, int] = {}
        """On-CPU time of each thread when threads were chosen last."""
        self._since_ns = self._chosen_ns = 0
        """When threads were chosen last, and when they are next."""
        self._why_not: dict[str, Unknown] = {} if probes is Probes.FULL else {"hardware": _LIGHT}

    def missing(self) -> Unknown | None:
        return _OFF if self._probes is Probes.OFF else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._counted.values():
            one.close()
        self._counted = {}

    def poll(self) -> Trace:
        now = self._clock()
        if now >= self._chosen_ns:
            self._choose(now)
        readings = tuple(reading for tid, one in self._counted.items() for reading in self._read(tid, one, now))
        missing = [
            Missing(whats.metric(metric), self._why_not[kind])
            for kind, events in _EVENTS.items()
            if kind in self._why_not
            for metric in events
        ]
        return Trace(LIVE, now, now, readings=readings, missing=tuple(missing))

    def _choose(self, now: int) -> None:
        """Let go of those that have ended or work no more, and count those that do."""
        ran_ns = {tid: (pid, ran) for pid in self._pids for tid, ran in self._on_cpu(pid)}
        chosen = self._busiest(ran_ns, now)
        for tid in self._counted.keys() - set(chosen):
            self._counted.pop(tid).close()
        for tid in chosen:
            self._open(tid, self._counted.setdefault(tid, _Counted(ran_ns[tid][0])))
        self._ran_ns = {tid: ran for tid, (_, ran) in ran_ns.items()}
        self._since_ns, self._chosen_ns = now, now + (CHOSEN_EVERY_NS if self._chosen_ns else _FIRST_NS)

    def _busiest(self, ran_ns: Mapping[int, tuple[int, int]], now: int) -> list[int]:
        """First threads, then those that have run since the last choice, the most first."""
        grown = {tid: ran - self._ran_ns.get(tid, ran) for tid, (_, ran) in ran_ns.items()}
        least_ns = _LEAST_SHARE * (now - self._since_ns)
        first = [tid for tid, (pid, _) in ran_ns.items() if tid == pid]
        others = [tid for tid, (pid, _) in ran_ns.items() if tid != pid and grown[tid] > least_ns]
        return [*first, *sorted(others, key=lambda tid: -grown[tid])][:MOST]

    def _on_cpu(self, pid: int) -> Iterator[tuple[int, int]]:
        for tid in procfs.threads(pid, self._proc):
            clocks = (procfs.read_bytes(f"{self._proc}/{pid}/task/{tid}/schedstat") or b"").split()
            if clocks:
                yield tid, int(clocks[0])

    def _open(self, tid: int, one: _Counted) -> None:
        """What it lacks of groups; what cannot be had is tried again with the next choice, but for a PMU."""
        for kind, events in _EVENTS.items():
            if kind in one.groups or self._why_not.get(kind) in (_NO_PMU, _LIGHT, _NO_EVENTS):
                continue
            try:
                one.groups[kind] = self._open_group(tuple(events.values()), tid)
                self._why_not.pop(kind, None)
            except OSError as error:
                if error.errno != errno.ESRCH:  # it has ended
                    self._why_not[kind] = self._why(error.errno or 0)

    def _why(self, number: int) -> Unknown:
        if number in _WITHOUT_PMU:
            return _NO_PMU
        if number == errno.ENOSYS:
            return _NO_EVENTS
        if number in (errno.EMFILE, errno.ENFILE):
            return _TOO_MANY_FILES
        level = (procfs.read_text(self._proc / "sys/kernel/perf_event_paranoid") or "not readable").strip()
        reason = f"perf_event_open: {os.strerror(number)} (perf_event_paranoid {level})"
        return Unknown(
            reason, "run llmtop with sudo, or as the server's user: sudo sysctl kernel.perf_event_paranoid=1"
        )

    def _read(self, tid: int, one: _Counted, now: int) -> Iterable[Reading]:
        """Those that have moved; all of them again after a while."""
        for kind, group in one.groups.items():
            values = group.read()
            if values is None or (one.told.get(kind) == values and now - one.told_ns[kind] < _TOLD_EVERY_NS):
                continue
            one.told[kind], one.told_ns[kind] = values, now
            for metric, value in zip(_EVENTS[kind], values, strict=True):
                yield Reading(ids.thread(one.pid, tid), metric, now, float(value), _SOURCE)


_EVENTS: Mapping[str, Mapping[Metric, tuple[int, int]]] = {"software": SOFTWARE, "hardware": HARDWARE}


def collector(target: Target, aim: Aim) -> Collector:
    """For the registry."""
    return PerfCountersCollector(target, aim.probes)
