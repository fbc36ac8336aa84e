"""What llmtop itself costs: its processor time and memory, helpers included."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from llmtop import ids, procfs, whats
from llmtop.model import LIVE, Missing, Reading, Source, Trace, Track, TrackKind, Unknown
from llmtop.vocabulary import SELF_CPU, SELF_HELPERS, SELF_RSS

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Clock, Collector

_TRACK = Track(ids.SELF, TrackKind.SELF, "llmtop")
_NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class SelfCostCollector:
    """Counts llmtop's own time and memory.

    Args:
        helpers: The PIDs of helper processes that run now; their cost is llmtop's.
        brief_ns: Processor time of children that come and go between two looks.
    """

    name = "self"
    owns = Source(name, (TrackKind.SELF,), metrics=(SELF_CPU, SELF_HELPERS, SELF_RSS))
    period_s = 0.3
    """As often as a snapshot of one second looks: a share that began before its window would be of the start too."""

    def __init__(
        self,
        clock: Clock = time.monotonic_ns,
        helpers: Callable[[], Sequence[int]] = tuple,
        brief_ns: Callable[[], int] = int,
    ) -> None:
        self._clock = clock
        self._helpers = helpers
        self._brief_ns = brief_ns
        self._ended_ns = 0
        """Time of helpers that have ended, so that the counter does not fall."""
        self._helper_ns: dict[int, int] = {}

    def missing(self) -> Unknown | None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def poll(self) -> Trace:
        now = self._clock()
        cpu_ns, helpers_rss = self._helpers_cost()
        own = procfs.stat(os.getpid())
        readings = [
            Reading(ids.SELF, SELF_CPU, now, float(time.process_time_ns() + cpu_ns), "process clock"),
            Reading(ids.SELF, SELF_HELPERS, now, float(cpu_ns), "/proc/PID/stat"),
        ]
        missing: tuple[Missing, ...] = ()
        if own is None:
            missing = (
                Missing(whats.metric(SELF_RSS), Unknown("/proc is not there", "mount it: mount -t proc proc /proc")),
            )
        else:
            rss = own.rss_pages * procfs.PAGE_BYTES + helpers_rss
            readings.append(Reading(ids.SELF, SELF_RSS, now, float(rss), "/proc/PID/stat"))
        return Trace(LIVE, now, now, tracks={ids.SELF: _TRACK}, readings=tuple(readings), missing=missing)

    def _helpers_cost(self) -> tuple[int, int]:
        """Processor time in ns, ended helpers included, and resident bytes of those that run."""
        now_ns: dict[int, int] = {}
        rss = 0
        for pid in self._helpers():
            if (stat := procfs.stat(pid)) is not None:
                now_ns[pid] = stat.cpu_ticks * _NS_PER_TICK
                rss += stat.rss_pages * procfs.PAGE_BYTES
        self._ended_ns += sum(spent for pid, spent in self._helper_ns.items() if pid not in now_ns)
        self._helper_ns = now_ns
        return self._brief_ns() + self._ended_ns + sum(now_ns.values()), rss


def collector() -> Collector:
    """For the registry; the helpers are those of the tracers, and the reader of foreign files."""
    from llmtop import foreign
    from llmtop.collectors import children

    def helpers() -> tuple[int, ...]:
        return (*children.running(), *foreign.reader_pids())

    return SelfCostCollector(helpers=helpers, brief_ns=children.spent_ns)
