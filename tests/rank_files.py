"""Files of several ranks of one run, with planted slow ranks and clocks, as nsys and as PyTorch's profiler write them.

All times of a `RankRun` are those of the true clock. Each rank's file has them on a clock of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.nsys_capture import MS, US, Capture, add_table
from tests.parsers.kineto_files import span, written

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
BEGAN_NS = 1_750_000_000_000_000_000
"""UTC of the moment 0 of the true clock."""


@dataclass
class PlantedClock:
    """What a rank's clock shows: `moment` of the true time, and what it says of the time of day when it reads 0."""

    ahead_ns: int = 0
    drift: float = 0.0
    utc_error_ns: int = 0

    def shown(self, t_ns: int) -> int:
        return t_ns - self.ahead_ns + round(self.drift * t_ns)

    @property
    def utc_ns(self) -> int:
        return BEGAN_NS + self.ahead_ns + self.utc_error_ns


@dataclass
class RankRun:
    """Each rank computes, and all end each all-reduce together; `computing[rank]` is of each step, in ns."""

    computing: Sequence[Sequence[int]]
    sends_ns: int = 200 * US
    leaves_ns: int = 1500
    """Up to how much later than the first a rank leaves a collective."""
    kernels: list[list[tuple[str, int, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kernels = [[] for _ in self.computing]
        chance = random.Random(11)
        now = MS
        for step in zip(*self.computing, strict=True):
            end = now + max(step) + self.sends_ns
            for own, ns in zip(self.kernels, step, strict=True):
                own += [(GEMM, now, now + ns), (NCCL, now + ns + US, end + chance.randrange(self.leaves_ns))]
            now = end + 50 * US

    @classmethod
    def of(cls, ranks: int, steps: int, *, slow: int, by: float = 1.5, seed: int = 7) -> RankRun:
        """Steps of about a millisecond, of which one rank's take `by` times as long."""
        chance = random.Random(seed)
        bases = [chance.randrange(800 * US, 1200 * US) for _ in range(steps)]
        return cls(
            [
                [round(base * (by if rank == slow else 1)) + chance.randrange(10 * US) for base in bases]
                for rank in range(ranks)
            ]
        )

    # -- truths: interval arithmetic on the true clock ----------------------------------------------------------------

    def waits(self, rank: int) -> int:
        """How long a rank is in its collectives before the last one comes."""
        return sum(self._last_comes(i) - start for i, start in enumerate(self._begins(rank)))

    def waited_for(self, rank: int) -> int:
        """How long all others together wait while a rank is the last to come."""
        total = 0
        for i, start in enumerate(self._begins(rank)):
            if start == self._last_comes(i):
                total += sum(start - self._begins(other)[i] for other in range(len(self.kernels)))
        return total

    def last(self, rank: int) -> int:
        """To how many collectives it came last."""
        return sum(start == self._last_comes(i) for i, start in enumerate(self._begins(rank)))

    def computes(self, rank: int) -> int:
        return sum(self.computing[rank])

    def _begins(self, rank: int) -> list[int]:
        return [start for name, start, _ in self.kernels[rank] if name == NCCL]

    def _last_comes(self, i: int) -> int:
        return max(self._begins(rank)[i] for rank in range(len(self.kernels)))


def nsys_file(
    folder: Path, run: RankRun, rank: int, clock: PlantedClock, *, name: str = "", env: bool = True, size: int = 0
) -> Path:
    """An nsys export of one rank; every rank has the same PID and GPU 0, as in containers."""
    made = Capture()
    for kernel, start, end in run.kernels[rank]:
        call = made.call("cudaLaunchKernel", clock.shown(start - 20 * US), clock.shown(start - 10 * US))
        made.kernel(clock.shown(start), clock.shown(end), call, kernel)
    made.nvtx(f"rank {rank}", clock.shown(0), clock.shown(run.kernels[rank][-1][2]))
    path = made.write(folder / (name or f"report-{rank}.sqlite"))
    began = "utcEpochNs utcTime:TEXT localTime:TEXT"
    add_table(path, "TARGET_INFO_SESSION_START_TIME", began, (clock.utc_ns, "2025", "2025"))
    names = [("RANK", rank), ("WORLD_SIZE", size or len(run.kernels))] if env else []
    rows = [("PROCESS_0:ENVIRONMENT_VARIABLE", f'{key}="{value}"') for key, value in names]
    add_table(path, "META_DATA_CAPTURE", "name:TEXT value:TEXT", ("DEVICE_DISPLAY_NAME", f"node{rank}"), *rows)
    return path


def kineto_file(
    folder: Path, run: RankRun, rank: int, clock: PlantedClock, *, name: str = "", told: bool = True, size: int = 0
) -> Path:
    """A PyTorch trace of one rank, with times in microseconds to three places."""
    events = [span("user_annotation", f"rank {rank}", _us(clock.shown(0)), 100)]
    for join, (kernel, start, end) in enumerate(run.kernels[rank], 1):
        shown = clock.shown(start)
        args = {"device": 0, "stream": 7, "correlation": join}
        length = _us(clock.shown(end) - shown)
        events.append(span("cuda_runtime", "cudaLaunchKernel", _us(shown - 20 * US), 10, correlation=join))
        events.append(span("kernel", kernel, _us(shown), length, 0, tid=7, **args))
    facts = {"distributedInfo": {"rank": rank, "world_size": size or len(run.kernels)}} if told else {}
    path = folder / (name or f"trace-{rank}.pt.trace.json")
    path.write_bytes(written(events, None, baseTimeNanoseconds=clock.utc_ns, **facts))
    return path


def _us(ns: int) -> float:
    return ns / 1000
