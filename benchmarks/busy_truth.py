"""Is the share of time in which a GPU works told right? Kernels of known length and size, beside what llmtop reads.

    python benchmarks/busy_truth.py [--json FILE]

One thread launches a burst of kernels that last a known time on a known number of blocks, waits for them, and rests for
a known time, over and over. Of that, the share in which kernels ran is known between two bounds: the kernels' own
length, and the wall time from the first launch until the wait returns. Beside it: the GR engine's activity (GPM), the
SMs' (GPM), and NVML's duty cycle, as llmtop's collector reads them. Exit code 1 where the first leaves the bounds by
more than 3 points. Needs a GPU with GPM and the GPU to itself; no torch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import table
from benchmarks.cuda_driver import SPIN, Kernel
from llmtop import vocabulary as v
from llmtop.collectors.nvml.collector import NvmlCollector
from llmtop.model import NS_PER_S, Metric, Origin, Trace
from llmtop.session import Session

POLL_S = 0.25
RUN_S = 1.5
SETTLE_S = 0.3
TOLERANCE = 3.0
READ = (v.GPU_ACTIVE, v.GPU_SM, v.GPU_UTIL)


@dataclass(frozen=True)
class Pattern:
    """What is done over and over: `kernels` of `kernel_us` on `blocks` blocks, then `rest_us` of nothing."""

    blocks: int
    kernels: int
    kernel_us: float
    rest_us: float


PATTERNS = tuple(
    Pattern(blocks, kernels, kernel_us, rest_us)
    for blocks in (1, 16, 264)
    for kernels, kernel_us, rest_us in (
        *((1, 10, 10), (1, 10, 40), (20, 5, 0), (20, 5, 100), (20, 50, 0), (20, 50, 100)),
        *((20, 50, 1000), (20, 50, 9000), (200, 50, 10000)),
    )
)


@dataclass(frozen=True)
class Row:
    """Percent of the time: the bounds of what was done, and what was read."""

    pattern: Pattern
    least: float
    most: float
    read: dict[str, float | None]

    @property
    def is_wrong(self) -> bool:
        """Whether the GR engine's activity is out of the bounds."""
        said = self.read[v.GPU_ACTIVE.name]
        return said is None or not self.least - TOLERANCE <= said <= self.most + TOLERANCE


def repeat(kernel: Kernel, pattern: Pattern) -> tuple[int, int, float, float]:
    """Run a pattern; from when to when (ns), and the bounds of the busy time in it in seconds."""
    start_ns, bursts, wall_ns = time.monotonic_ns(), 0, 0
    while (begun_ns := time.monotonic_ns()) - start_ns < RUN_S * NS_PER_S:
        for _ in range(pattern.kernels):
            kernel.launch(pattern.blocks, buffer=int(pattern.kernel_us * 1000))
        kernel.wait()
        ended_ns = time.monotonic_ns()
        wall_ns, bursts = wall_ns + ended_ns - begun_ns, bursts + 1
        while time.monotonic_ns() - ended_ns < pattern.rest_us * 1000:
            pass
    return start_ns, begun_ns, bursts * pattern.kernels * pattern.kernel_us / 1e6, wall_ns / 1e9


def rows(session: Session) -> Iterator[Row]:
    """Each pattern, with what was read of the looks that lie within it."""
    kernel = Kernel(SPIN, "spin")
    for pattern in PATTERNS:
        start_ns, end_ns, least_s, most_s = repeat(kernel, pattern)
        time.sleep(SETTLE_S)
        trace, length_s = session.trace(), (end_ns - start_ns) / NS_PER_S
        read = {metric.name: _mean(trace, metric, start_ns, end_ns) for metric in READ}
        yield Row(pattern, 100 * least_s / length_s, 100 * most_s / length_s, read)


def _mean(trace: Trace, metric: Metric, start_ns: int, end_ns: int) -> float | None:
    series = trace.get("gpu:0", metric)
    first_ns = start_ns + int(1.5 * POLL_S * NS_PER_S)
    values = [] if series is None else [value for _, value in series.between(first_ns, end_ns).known]
    return statistics.fmean(values) if values else None


def main() -> int:
    """Print the table; 1 where the GR engine's activity is not the share of time with kernels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    options = parser.parse_args()
    session = Session([NvmlCollector()], Origin("live"), interval_s=POLL_S, window_s=600)
    session.start()
    try:
        found = list(rows(session))
    finally:
        session.stop()
    heads = ("blocks", "kernels x us, rest us", "ran, at least %", "at most %", "GR engine", "SM", "NVML", "verdict")
    print(table(heads, [_cells(row) for row in found]))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in found], indent=1), encoding="utf-8")
    return int(any(row.is_wrong for row in found))


def _cells(row: Row) -> tuple[str | None, ...]:
    pattern = row.pattern
    told = [None if value is None else f"{value:.1f}" for value in row.read.values()]
    what = f"{pattern.kernels} x {pattern.kernel_us:g}, {pattern.rest_us:g}"
    bounds = (f"{row.least:.1f}", f"{row.most:.1f}")
    return (str(pattern.blocks), what, *bounds, *told, "wrong" if row.is_wrong else "ok")


if __name__ == "__main__":
    sys.exit(main())
