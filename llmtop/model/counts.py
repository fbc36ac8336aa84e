"""What a tool has counted of a program or a machine as a whole, without a course over time."""

from __future__ import annotations

from llmtop.frozen import frozen
from llmtop.model.tracks import TrackId
from llmtop.model.values import Unknown


@frozen
class EventCount:
    """An event that `perf stat` has counted on one track; of several intervals the sum, of several runs the mean.

    Attributes:
        event: As perf calls it, with its modifiers: "cycles:u", "LLC-load-misses", "syscalls:sys_enter_futex".
        count: In its unit: ns of a clock. Unknown where perf says that it did not count.
        unit: "ns" of a clock, "1" of what happens, else what perf writes ("Joules").
        counted_share: Of the time, 0 to 1, how long the event had a counter: perf scales what it counted up by this,
            so that below 1 the count is an estimate. Of several intervals the least; None where perf writes none.
        spread: How far several runs are apart, as a share of the count; None of one run.
    """

    track: TrackId
    event: str
    count: float | Unknown
    unit: str = "1"
    counted_share: float | None = None
    spread: float | None = None


@frozen
class ThreadScheduling:
    """How long a thread ran and waited for a CPU, as perf has recorded of the scheduler.

    Attributes:
        ran_ns: On a CPU.
        switches: How often it came onto one.
        delay_mean_ns: From being ready to run to running, over all of `switches`.
        delay_max_ns: The longest of these.
        delay_max_at_ns: When that began, on the trace's clock; None where nothing tells.
        threads: How many of one name perf has put together.
        migrations: How often it changed its CPU; None where nothing tells.
    """

    track: TrackId
    ran_ns: float
    switches: int
    delay_mean_ns: float | Unknown
    delay_max_ns: float | Unknown
    delay_max_at_ns: int | None = None
    threads: int = 1
    migrations: int | None = None


@frozen
class LineAccess:
    """What some code does at an offset of a cache line, of the accesses that perf c2c has sampled.

    Attributes:
        offset: Bytes from the beginning of the line.
        place: File and line of the source; empty where nothing tells.
        node: The NUMA nodes that it ran on, as perf writes them.
        remote_share, local_share, peer_share: Its parts of the line's loads that met a modified copy in the cache of
            another socket, of another core of this one; that were answered by a peer (Arm).
        stores_share: Its part of the line's stores, of the sort of which it has most.
        cpus: How many CPUs did it.
        pid, tid: Where the report tells accesses of processes, or threads, apart.
    """

    offset: int
    symbol: str
    object: str
    place: str
    node: str
    remote_share: float
    local_share: float
    peer_share: float
    stores_share: float
    cpus: int
    pid: int | None = None
    tid: int | None = None


@frozen
class CacheLine:
    """A cache line that several CPUs use, as perf c2c has sampled it.

    Attributes:
        share: Of all that the report counts (HITM, or snoops of peers), 0 to 1; None where it is not told.
        hitm_local, hitm_remote: Loads that met a modified copy in another core's cache: of this socket, of another.
        peer: Loads that a peer's cache answered (Arm, which has no HITM).
        dram_local, dram_remote: Loads that memory answered: that of this NUMA node, that of another.
        node: The NUMA node of its memory, as perf writes it.
    """

    address: str
    share: float | None
    node: str
    hitm_local: int
    hitm_remote: int
    peer: int
    loads: int
    stores: int
    dram_local: int
    dram_remote: int
    accesses: tuple[LineAccess, ...] = ()

    @property
    def hitm(self) -> int:
        """Loads that had to wait for another core's copy, wherever."""
        return self.hitm_local + self.hitm_remote or self.peer


@frozen
class MemoryAccesses:
    """Sampled accesses to memory that are alike, as perf mem puts them together.

    Attributes:
        event: The event by which they were sampled; empty where the text does not say it.
        share: Of the weight of all of the event, 0 to 1.
        samples: How many; None where the report does not count them.
        weight: Cycles that one of them took; None where the processor does not tell.
        level: What answered it, as perf writes it: "L1 or L1 hit", "Remote RAM (1 hop) or RAM hit".
        symbol, object: Of the code, as the next two of the data; empty where nothing tells.
        snoop: What other caches had of it; `tlb` how its address was found; `locked` whether it was atomic.
    """

    event: str
    share: float
    samples: int | None
    weight: int | None
    level: str
    symbol: str
    object: str
    data_symbol: str
    data_object: str
    snoop: str
    tlb: str
    locked: str
