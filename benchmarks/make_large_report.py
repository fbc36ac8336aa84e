"""Make a large .ncu-rep out of the SGEMM sample: its five kernels again and again, each cut to an ordinary size.

    python benchmarks/make_large_report.py OUT.ncu-rep [--kernels 2000]

A kernel keeps some 350 metrics and 1,300 per-instruction values, as one captured with `--set detailed` has: 42 kB,
85 MB for 2,000. The sample itself was captured with everything on, at 2 MB a kernel.
"""

from __future__ import annotations

import argparse
import struct
from pathlib import Path

from llmtop.parsers.compressed import COMPRESSIONS, unpacked
from llmtop.parsers.ncu_rep import MAGIC
from llmtop.parsers.ncu_rep.container import ReportFile, read_blocks
from llmtop.parsers.ncu_rep.ncu_rep_pb2 import BlockHeader, Launch

SAMPLE = Path(__file__).parents[1] / "sample_traces/ncu/2025.3.1/sgemm-ladder.ncu-rep.xz"
METRICS = 350
INSTANCES = 1300
INSTANCES_PER_METRIC = 26
LONG_TEXT = 1000
"""Some metrics are tables as text; few kernels have them."""
FILE_HEADER = b"\x08\x07"
"""Format version 7."""


def main() -> None:
    """Write the report that the arguments ask for."""
    arguments = argparse.ArgumentParser(description="Make a large .ncu-rep out of the SGEMM sample.")
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--kernels", type=int, default=2000)
    options = arguments.parse_args()
    write_report(options.out, options.kernels)
    print(f"{options.out}: {options.kernels} kernels, {options.out.stat().st_size / 1e6:.1f} MB")


def write_report(out: Path, kernels: int) -> None:
    """Write a report of that many kernels."""
    with unpacked(SAMPLE, COMPRESSIONS[0]) as plain:
        file = ReportFile(plain)
        blocks = list(read_blocks(file))
        launches = [Launch.FromString(file.read(kernel)) for block in blocks for kernel in block.kernels]
    session = BlockHeader()
    for block in blocks:
        session.MergeFrom(block.header)
    session.num_sources = session.num_results = session.payload_size = 0
    duration = list(session.strings.items).index(b"gpu__time_duration.sum")
    results = [shortened(launch, duration).SerializeToString() for launch in launches]
    with out.open("wb") as target:
        target.write(MAGIC + prefixed(FILE_HEADER) + prefixed(session.SerializeToString()))
        for i in range(kernels):
            payload = prefixed(results[i % len(results)])
            header = BlockHeader(num_results=1, payload_size=len(payload), process=session.process)
            target.write(prefixed(header.SerializeToString()) + payload)


def shortened(launch: Launch, duration: int) -> Launch:
    """A kernel with fewer metrics and instances, its duration among them, and without the layout of its sections."""
    metrics = sorted(launch.metrics, key=lambda metric: (metric.name != duration, -len(metric.instances)))
    most = INSTANCES // INSTANCES_PER_METRIC
    kept = metrics[:most] + [m for m in metrics[most:] if len(m.value.text) < LONG_TEXT and not m.instances]
    del launch.metrics[:]
    launch.metrics.extend(kept[:METRICS])
    for metric in launch.metrics:
        del metric.instances[INSTANCES_PER_METRIC:]
    for part in (*launch.sections, *launch.rules):
        part.DiscardUnknownFields()
    return launch


def prefixed(message: bytes) -> bytes:
    """A message with its length before it."""
    return struct.pack("<I", len(message)) + message


if __name__ == "__main__":
    main()
