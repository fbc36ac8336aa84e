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
