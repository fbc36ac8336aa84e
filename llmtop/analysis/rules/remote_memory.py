"""Memory of another NUMA node answers what the node's own should."""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum

from llmtop.analysis.threads.memory_accesses import is_memory, is_remote, level_shares
from llmtop.model import Finding, Severity, Trace
from llmtop.units import percent

id = "remote-memory"
summary = "Threads wait for memory of another NUMA node than the one that they run on."
source = "Profiling guide, table 8 (examine NUMA placement); perf-mem(1)"

_FAR = 0.25
"""Share of what memory answered: half of what memory has that is spread evenly over two nodes."""
_FELT = 0.1
"""Share of the weight of all accesses that memory answered at all: with less the caches are what counts."""


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each event that was sampled: of its weight, which is the time that loads took."""
    for event, levels in level_shares(trace.accesses).items():
        memory = {level: share for level, share in levels.items() if is_memory(level)}
        whole, far = fsum(memory.values()), fsum(share for level, share in memory.items() if is_remote(level))
        if whole < _FELT or far < _FAR * whole:
            continue
        told = ", ".join(f"{level} {percent(100 * share)}" for level, share in memory.items())
        yield Finding(
            rule=id,
            severity=Severity.INFO,
            subject=event or "accesses",
            message=f"{percent(100 * far / whole)} of what memory answered came from another NUMA node",
            evidence=(f"{event or 'accesses'}, of the weight of all: {told} (perf mem)",),
            action="keep the process and its memory on one node, the GPU's (numactl --cpunodebind --membind), or first "
            "touch memory on the thread that uses it",
            next_command="numastat -p PID; nvidia-smi topo -m",
            source=source,
        )
