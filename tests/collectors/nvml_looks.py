"""What tests of the NVML collector share: a clock, a collector that knows no real machine, and looks at a trace."""

from __future__ import annotations

import time
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

from llmtop import ids
from llmtop.collectors.gpus import checks
from llmtop.collectors.kernel_log import KernelLog
from llmtop.collectors.nvml.collector import NvmlCollector
from llmtop.model import NS_PER_S, TrackId

if TYPE_CHECKING:
    from collections.abc import Callable

    from llmtop.collectors.base import Clock as AnyClock
    from llmtop.collectors.nvml.calls import CallThread
    from llmtop.model import Trace

NO_PROC = Path("/dev/null/proc")
"""A /proc without processes: what this machine runs, and in which PID namespace, must not matter."""


NO_TRUE_CLOCK = {"gpu:0/gpu.sm_clock_true": "the clock is being looked for in GPM's samples"}
"""What is missing of a GPU whose samples hold no words that could be counted."""


class Clock:
    """Time that moves only when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * NS_PER_S

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * NS_PER_S)


class TickingClock(Clock):
    """Time that moves on whenever it is read."""

    def __call__(self) -> int:
        self.advance(0.1)
        return self.now_ns


class SilentLog(KernelLog):
    """A kernel log without messages."""

    def open(self) -> None:
        return

    def messages(self) -> list[str]:
        return []


def wait(hands: CallThread, patience_s: float) -> Exception | None:
    """Waits for a call for as long as the stand-in library does not hang in it, whatever else the machine does."""
    import pynvml

    while True:
        try:
            return hands.done.get(timeout=0.005)
        except Empty:
            if pynvml.nvmlLib.fake_nvml_hangs(hands.thread.native_id):
                raise


def nvml_collector(clock: AnyClock = time.monotonic_ns, **options: Any) -> NvmlCollector:
    """A collector that sees nothing of this machine but the stand-in library."""
    return NvmlCollector(clock, **{"proc": NO_PROC, "kernel_log": SilentLog(), "wait": wait, **options})


def doctor() -> dict[str, str]:
    """What `llmtop doctor` says of the stand-in machine."""
    clock = TickingClock()
    return {check.what: str(check.state) for check in checks(nvml_collector(clock), clock)}


def calls(function: str) -> int:
    """How often the stand-in library was asked."""
    import pynvml

    count = pynvml.nvmlLib.fake_nvml_calls
    return int(count(function.encode()))


def values(trace: Trace, track: TrackId = ids.gpu(0)) -> dict[str, float | None]:
    """The readings of one track in a poll."""
    return {reading.metric.name: reading.value for reading in trace.readings if reading.track == track}


def reasons(trace: Trace) -> dict[str, str]:
    """What is missing, and why."""
    return {missing.what: missing.why.reason for missing in trace.missing}


def poll_twice(collector: NvmlCollector, clock: Clock) -> Trace:
    """The second of two polls: the first has no GPM window yet."""
    collector.poll()
    clock.advance(0.25)
    return collector.poll()


def wait_until(is_so: Callable[[], bool], pause_s: float = 0.005) -> None:
    """Wait for another thread or process."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause_s)
