"""What cgroups tell of the server: the CPU quotas that hold it, and on which NUMA nodes its memory is.

Quotas are of its root's cgroup, and of parts that run in another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.collectors import cgroups, numa
from llmtop.facts import ProcessFact
from llmtop.model import NS_PER_S, Missing, Reading, Unknown
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmtop.collectors.base import Clock
    from llmtop.collectors.proc_poll import KnownProcess, ProcPoll
    from llmtop.model import Fact, TrackId

NODES_NS = 10 * NS_PER_S
"""How often it is read on which nodes the server's memory is."""


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
        weight = cgroups.weight_of(pid)
        little: dict[str, Fact] = (
            {}
            if weight is None
            else {ProcessFact.CPU_WEIGHT: weight.share, ProcessFact.CPU_WEIGHT_SET: clean(weight.text)}
        )
        return little | {
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


class NodeMemory:
    """The memory of the root's cgroup by NUMA node; nothing where all CPUs are of one node.

    Of a process alone the kernel tells it by walking its page tables under a lock that its own allocations take
    (/proc/PID/numa_maps: 90 ms for 2 GB), which a monitor must not do to a server.
    """

    def __init__(self, root_pid: int, clock: Clock) -> None:
        self._clock = clock
        self._file = cgroups.node_memory_of(root_pid) if len(numa.cpu_nodes()) > 1 else None
        self._root, self._next_ns = ids.process(root_pid), 0

    def read(self, news: ProcPoll) -> None:
        """Add what is on each node, when it is time."""
        now = self._clock()
        if self._file is None or now < self._next_ns:
            return
        self._next_ns = now + NODES_NS
        for node, count in numa.memory_by_node(self._file).items():
            metric = v.labelled(v.CGROUP_NODE_MEMORY, str(node))
            news.readings.append(Reading(self._root, metric, now, float(count), "memory.numa_stat"))
