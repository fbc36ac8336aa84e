"""Is what llmtop says of communication between GPUs true? Known all-reduces beside NVLink's counters and least times.

    python benchmarks/communication_truth.py [--json FILE]

Two ranks, one a GPU, do what tensor parallelism does in a decode step: for each of 32 layers two matrix products and an
all-reduce after each (NCCL), as one CUDA graph; and the same without the all-reduces. The difference is what
communication costs a step. Printed is, by how many tokens a step has: both steps, the difference, what llmtop's
token budget calls the least of it (64 times 5 us and the bytes over the links' published bandwidth, with the bytes that
NVLink's counters tell and with those of the ring), and the counted bytes over the ring's. Exit code 1 where the least
is more than what it took, or where the counters tell fewer bytes than the ring must send.
Needs two GPUs with GPM, and torch with CUDA and NCCL.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import table
from llmtop import vocabulary as v
from llmtop.analysis.gpus.links import peer_bandwidth
from llmtop.analysis.gpus.scaling import ALL_REDUCE_BEGINS_S, ring_bytes
from llmtop.analysis.series.readings import gpu_tracks
from llmtop.collectors.nvml.collector import NvmlCollector
from llmtop.model import NS_PER_S, Origin, Trace, Unknown
from llmtop.session import Session

RANKS = 2
LAYERS, ALL_REDUCES = 32, 64
WIDTH, INNER, VALUE_BYTES = 4096, 14336, 2
TOKENS = (1, 16, 64, 256, 2048)
RUN_S = 4.0
POLL_S = 0.25
PORT = "29511"
TOLERANCE = 1.02
"""Counters and clocks are read at a window's ends."""


@dataclass(frozen=True)
class Run:
    """Steps of one kind on rank 0: seconds of the median one, and when they ran (ns, CLOCK_MONOTONIC)."""

    tokens: int
    is_communicating: bool
    step_s: float
    start_ns: int
    end_ns: int
    steps: int


@dataclass(frozen=True)
class Row:
    """What one number of tokens showed, seconds and bytes of a step."""

    tokens: int
    with_s: float
    without_s: float
    ring: float
    counted: float | None
    bandwidth: float

    @property
    def cost_s(self) -> float:
        """What communication cost."""
        return self.with_s - self.without_s

    def least_s(self, sent: float) -> float:
        """What llmtop's budget calls the least, of so many bytes."""
        return ALL_REDUCES * ALL_REDUCE_BEGINS_S + sent / self.bandwidth


def rank(number: int) -> None:
    """One rank: a line of JSON for each run."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(number)
    dist.init_process_group("nccl", rank=number, world_size=RANKS, device_id=torch.device("cuda", number))
    wide = [torch.randn(WIDTH, INNER // RANKS, device="cuda", dtype=torch.bfloat16) / 64 for _ in range(LAYERS)]
    back = [torch.randn(INNER // RANKS, WIDTH, device="cuda", dtype=torch.bfloat16) / 64 for _ in range(LAYERS)]
    for tokens in TOKENS:
        hidden = torch.randn(tokens, WIDTH, device="cuda", dtype=torch.bfloat16)

        def step(is_communicating: bool, hidden: Any = hidden) -> None:
            for up, down in zip(wide, back, strict=True):
                for _ in range(ALL_REDUCES // LAYERS):
                    out = (hidden @ up) @ down
                    if is_communicating:
                        dist.all_reduce(out)

        for is_communicating in (True, False):
            run = _run(torch, dist, step, tokens, is_communicating)
            if number == 0:
                print(json.dumps(asdict(run)), flush=True)
    dist.destroy_process_group()


def _run(torch: Any, dist: Any, step: Any, tokens: int, is_communicating: bool) -> Run:
    for _ in range(3):
        step(is_communicating)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(is_communicating)
    dist.barrier()
    once_s = statistics.median(_timed(torch, graph) for _ in range(20))
    count = torch.tensor([int(RUN_S / once_s)], device="cuda")
    dist.broadcast(count, 0)
    dist.barrier()
    torch.cuda.synchronize()
    start_ns = time.monotonic_ns()
    times = [_timed(torch, graph) for _ in range(int(count))]
    run = Run(tokens, is_communicating, statistics.median(times), start_ns, time.monotonic_ns(), len(times))
    time.sleep(2 * POLL_S)
    return run


def _timed(torch: Any, graph: Any) -> float:
    start = time.perf_counter()
    graph.replay()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def watched() -> tuple[list[Run], Trace]:
    """Both ranks, and all that was read of the GPUs meanwhile."""
    session = Session([NvmlCollector()], Origin("live"), interval_s=POLL_S, window_s=600)
    session.start()
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "rank", str(number)],
            env=environment,
            stdout=None if number else subprocess.PIPE,
            text=True,
        )
        for number in range(RANKS)
    ]
    try:
        assert ranks[0].stdout is not None
        runs = [Run(**json.loads(line)) for line in ranks[0].stdout if line.startswith("{")]
        return runs, session.trace()
    finally:
        for one in ranks:
            one.kill()
        session.stop()


def rows(runs: list[Run], trace: Trace) -> Iterator[Row]:
    """With and without all-reduces beside each other."""
    gpus = gpu_tracks(trace)[:RANKS]
    if isinstance(bandwidth := peer_bandwidth(trace, gpus), Unknown):
        sys.exit(f"how fast the GPUs reach each other is not known: {bandwidth.reason}")
    speed = float(bandwidth.value)
    print(f"{gpus[0].facts.get('name')} x {len(gpus)}, {bandwidth.source}: {speed / 1e9:.0f} GB/s each way")
    for tokens in TOKENS:
        with_, without = (
            next((run for run in runs if run.tokens == tokens and run.is_communicating == is_), None)
            for is_ in (True, False)
        )
        if with_ is None or without is None:
            continue
        ring = ALL_REDUCES * ring_bytes(tokens * WIDTH * VALUE_BYTES, RANKS)
        yield Row(tokens, with_.step_s, without.step_s, ring, _counted(with_, trace), speed)


def _counted(run: Run, trace: Trace) -> float | None:
    """Bytes of a step, of the busiest GPU and direction, over the time in which only such steps ran."""
    margin_ns = int(2 * POLL_S * NS_PER_S)
    start_ns, end_ns = run.start_ns + margin_ns, run.end_ns
    rates = [
        statistics.fmean(values)
        for gpu in gpu_tracks(trace)[:RANKS]
        for metric in (v.GPU_NVLINK_TX, v.GPU_NVLINK_RX)
        if (series := trace.get(gpu.id, metric)) is not None
        and (values := [value for _, value in series.between(start_ns, end_ns).known])
    ]
    return max(rates) * (run.end_ns - run.start_ns) / NS_PER_S / run.steps if rates else None


def main() -> int:
    """Print the table; 1 where something said is not true."""
    if sys.argv[1:2] == ["rank"]:
        rank(int(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    options = parser.parse_args()
    found = list(rows(*watched()))
    lines = [
        (
            str(row.tokens),
            *(f"{seconds * 1e3:.3f}" for seconds in (row.with_s, row.without_s, row.cost_s, row.least_s(row.ring))),
            "unknown" if row.counted is None else f"{row.least_s(row.counted) * 1e3:.3f}",
            f"{row.ring / 1e6:.2f}",
            "unknown" if row.counted is None else f"{row.counted / row.ring:.3f}",
        )
        for row in found
    ]
    heads = ("tokens", "step ms", "without", "cost", "least, ring", "least, counted", "ring MB", "counted/ring")
    print(table(heads, lines))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in found], indent=1), encoding="utf-8")
    return int(any(_is_false(row) for row in found) or len(found) < len(TOKENS))


def _is_false(row: Row) -> bool:
    most = max(row.least_s(row.ring), row.least_s(row.counted or 0.0))
    return most > TOLERANCE * row.cost_s or (row.counted is not None and row.counted * TOLERANCE < row.ring)


if __name__ == "__main__":
    sys.exit(main())
