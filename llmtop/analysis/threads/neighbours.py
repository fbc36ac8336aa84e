"""Who beside the server takes the machine's CPUs, as the collector of consumers has seen it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.readings import latest
from llmtop.facts import NeighbourFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackKind, Unknown
from llmtop.units import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.model import Metric, Trace

FRESH_NS = 60 * NS_PER_S
"""Of many thousand processes a look takes so long that it comes once a minute."""
WINDOW_NS = 15 * NS_PER_S
"""In which neighbours are the mean."""
_ALIKE = 1.2
"""Neighbours that differ by less than this factor stand in the order of their names: they do not change places at each
look."""
STEAL_PERCENT = 5.0
"""Stolen time from which it is worth a line: every twentieth step is late by a time slice."""
INTERRUPTS_PERCENT = 10.0
_UNSEEN = 0.2
"""Share of the CPUs in use, from which what no process accounts for is worth a line."""


@frozen
class Neighbour:
    """Processes of one name and one cgroup outside the server.

    Attributes:
        pids: The busiest first.
        group: The container or unit; empty for the root cgroup.
        cores: CPU seconds per second, all of them together, on average over the looks of the last `WINDOW_NS`.
    """

    name: str
    pids: tuple[int, ...]
    group: str
    cores: float

    @property
    def who(self) -> str:
        """In short: "stress-ng (pid 4242)", "cc1 (8 processes)"."""
        return f"{self.name} ({f'pid {self.pids[0]}' if len(self.pids) == 1 else f'{len(self.pids)} processes'})"

    @property
    def text(self) -> str:
        """In words: "stress-ng (pid 4242, docker 3f2a91b0c7d1) 1.8 cores"."""
        which = f"pid {self.pids[0]}" if len(self.pids) == 1 else f"{len(self.pids)} processes, pid {self.pids[0]} ..."
        where = f", {self.group}" if self.group else ""
        return f"{self.name} ({which}{where}) {self.cores:.2g} cores"


def neighbours(trace: Trace, below: str = "") -> tuple[Neighbour, ...]:
    """The busiest first; processes of one name in one cgroup are one. Of those in a cgroup, or below it, alone.

    Of those that take about as much (within a fifth) the order is that of their names: who takes most would be another
    one at each look else.
    """
    looks = _looks(trace)
    groups: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for track in trace.tracks_of(TrackKind.NEIGHBOUR):
        series, pid = trace.get(track.id, v.NEIGHBOUR_CPU), ids.pid(track.id)
        cores = sum(value for t_ns, value in series.known if t_ns in looks) / len(looks) if series and looks else 0.0
        is_there = f"{track.facts.get(NeighbourFact.CGROUP_PATH, '')}/".startswith(f"{below}/") if below else True
        if cores > 0 and is_there and ids.process(pid) not in trace.tracks:
            groups.setdefault((track.name, str(track.facts.get(NeighbourFact.CGROUP, ""))), []).append((cores, pid))
    found = (
        Neighbour(name, tuple(pid for _, pid in sorted(members, reverse=True)), group, sum(c for c, _ in members))
        for (name, group), members in groups.items()
    )
    return tuple(sorted(found, key=lambda one: (-round(math.log(one.cores, _ALIKE)), one.name, one.group)))


def _looks(trace: Trace) -> frozenset[int]:
    """When the machine's processes were looked at within the window; of rarer looks the last one."""
    series = trace.get(ids.HOST, v.HOST_CPU)
    times = () if series is None else series.between(trace.end_ns - FRESH_NS, trace.end_ns).times
    return frozenset(t_ns for t_ns in times if trace.end_ns - t_ns <= WINDOW_NS) or frozenset(times[-1:])


def neighbours_cores(trace: Trace) -> float | None:
    """CPU seconds per second of all of them; None where nobody has looked."""
    if isinstance(host(trace, v.HOST_CPU), Unknown):
        return None
    return sum(one.cores for one in neighbours(trace))


def host(trace: Trace, metric: Metric) -> float | Unknown:
    """One of the machine's own sums."""
    return latest(trace, ids.HOST, metric, FRESH_NS)


def says_who(trace: Trace, most: int = 3) -> Iterator[str]:
    """Lines of evidence: the busiest neighbours, and what the CPUs are lost to beside processes."""
    found = neighbours(trace)
    if found:
        yield f"outside the server: {', '.join(one.text for one in found[:most])} (/proc/PID/stat)"
    for metric, least in ((v.HOST_STEAL, STEAL_PERCENT), (v.HOST_INTERRUPTS, INTERRUPTS_PERCENT)):
        share = host(trace, metric)
        if not isinstance(share, Unknown) and share >= least:
            yield f"{metric.title} {percent(share)} of all CPUs (/proc/stat)"
    unseen, used = host(trace, v.HOST_CPU_UNSEEN), host(trace, v.HOST_CPU)
    if not isinstance(unseen, Unknown) and not isinstance(used, Unknown) and unseen >= _UNSEEN * used > 0:
        yield f"{v.HOST_CPU_UNSEEN.title} (other containers, or short-lived): {unseen:.2g} cores (/proc/stat)"


def count_cpus(listed: str) -> int:
    """How many CPUs a kernel's list names.

    >>> count_cpus("0-3,8"), count_cpus("5"), count_cpus("")
    (5, 1, 0)
    """
    parts: Sequence[str] = [part for part in listed.split(",") if part.strip()]
    ends = (part.split("-") for part in parts)
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)
