"""The CPU quotas that hold the server: of its root's cgroup, and of parts that run in another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop import whats
from llmtop.collectors import cgroups
from llmtop.facts import ProcessFact
from llmtop.model import Missing, Reading, Unknown
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmtop.collectors.base import Clock
    from llmtop.collectors.proc_poll import KnownProcess, ProcPoll
    from llmtop.model import Fact, TrackId


class CpuQuotas:
    """Each cgroup of the server once, with the root where that is in it."""

    def __init__(self, root_pid: int, clock: Clock) -> None:
        self._root = root_pid
        self._clock = clock
        self.groups: dict[int, cgroups.Group | Unknown] = {}
        """By PID, of the parts of the server: the root, and those that run in another group than it."""

    def forget(self, pid: int) -> None:
        """A process has ended."""
        self.groups.pop(pid, None)

    def facts(self, pid: int) -> dict[str, Fact]:
        """The quota of a process's cgroup; none where another process stands for the group."""
        group, root = cgroups.group_of(pid), self._root
        first = next((one for one, known in self.groups.items() if known == group and one != pid), None)
        if pid != root and (first is not None or isinstance(group, Unknown)):
            self.groups.pop(pid, None)
            return {}
        if pid == root and first is not None:
            del self.groups[first]
        self.groups[pid] = group
        if isinstance(group, Unknown):
            return {ProcessFact.CGROUP: group}
        cores = group.cores
        folder = clean(str(group.folder))
        return {
            ProcessFact.CGROUP: clean(group.path),
            ProcessFact.CGROUP_FOLDER: folder,
            ProcessFact.CPU_QUOTA: "none" if cores is None else f"{cores:g} cores",
        }

    def read(self, processes: Mapping[int, KnownProcess], news: ProcPoll) -> None:
        """Add for how long each group was held."""
        for pid, group in self.groups.items():
            process = processes.get(pid)
            if process is not None:
                self._read(process.id, group, news)

    def _read(self, process: TrackId, group: cgroups.Group | Unknown, news: ProcPoll) -> None:
        counters = group if isinstance(group, Unknown) else cgroups.throttling(group)
        if isinstance(counters, Unknown):
            news.missing += (
                Missing(whats.reading(process, metric), counters)
                for metric in (v.CGROUP_THROTTLED, v.CGROUP_PERIODS_THROTTLED)
            )
            return
        now = self._clock()
        news.readings.append(Reading(process, v.CGROUP_THROTTLED, now, float(counters.throttled_ns), "cpu.stat"))
        news.readings.append(Reading(process, v.CGROUP_PERIODS_THROTTLED, now, float(counters.periods), "cpu.stat"))
