"""Make a large PyTorch trace out of the Llama sample: the whole trace again and again, one after the other.

    python benchmarks/make_large_trace.py OUT.json [--mb 54]

It is written as Kineto writes it. Times, correlation ids and external ids go on from repetition to repetition, so that
each launch still has its own kernel.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

SAMPLE = Path(__file__).parents[1] / "sample_traces/kineto/1/llama-generate.pt.trace.json.gz"
_BEGIN, _END = b'"traceEvents": [\n', b"\n  ],"
_TIME = re.compile(rb'("ts": )(\d+)')
_ID = re.compile(rb'("(?:correlation|External id|id)": )([1-9]\d*)')
_LENGTH_US = 220_000
"""Of the sample, with a pause behind it."""
_IDS = 100_000
"""More than the sample has."""


def main() -> None:
    """Write the trace that the arguments ask for."""
    arguments = argparse.ArgumentParser(description="Make a large PyTorch trace out of the Llama sample.")
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--mb", type=float, default=54.0)
    options = arguments.parse_args()
    with options.out.open("wb") as file:
        repetitions = write_trace(file, options.mb)
    print(f"{options.out}: {repetitions} times the sample, {options.out.stat().st_size / 1e6:.1f} MB")


def write_trace(file: BinaryIO, mb: float) -> int:
    """Write a trace of about that many MB; how often it has the sample."""
    sample = gzip.decompress(SAMPLE.read_bytes())
    head, _, rest = sample.partition(_BEGIN)
    events, _, tail = rest.rpartition(_END)
    repetitions = max(1, round(mb * 1e6 / len(sample)))
    file.write(head + _BEGIN)
    for i in range(repetitions):
        later = _TIME.sub(moved(i * _LENGTH_US), events)
        file.write((b",\n" if i else b"") + _ID.sub(moved(i * _IDS), later))
    file.write(_END + tail)
    return repetitions


def moved(by: int) -> Callable[[re.Match[bytes]], bytes]:
    """A substitution that adds a number to another one."""
    return lambda found: found[1] + b"%d" % (int(found[2]) + by)


if __name__ == "__main__":
    main()
