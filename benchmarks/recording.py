"""What a recording takes to be written, on the disk and to be opened: 8 GPUs at 2 Hz, a server, 160 threads, probes.

    python benchmarks/recording.py [--minutes 60]

The numbers are made up, and move as such numbers do: gauges with all their digits, counters of the engine's threads and
of system calls by some whole amount, most threads asleep. "write" is the CPU time of `RecordingWriter` alone, once a
second, against that second; "open" is from the file to the first trace, "seek" to the trace of another moment, drawn
anywhere, nothing of it kept from before. Budgets: 10 MB an hour, 0.3 % of a core; 0.6 s; p95 80 ms.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from llmtop import ids  # noqa: E402
from llmtop import vocabulary as v  # noqa: E402
from llmtop.model import (  # noqa: E402
    LIVE,
    NS_PER_S,
    Metric,
    Reading,
    Stack,
    Trace,
    Track,
    TrackId,
    TrackKind,
)
from llmtop.recording.reader import RecordingReader  # noqa: E402
from llmtop.recording.writer import RecordingWriter  # noqa: E402
from llmtop.session import Recorder  # noqa: E402
from tests.live_traces import TARGET, Scene, poll  # noqa: E402

GPUS, THREADS, BUSY, CALLS, FUNCTIONS = 8, 160, 24, 30, 250
"""Of so many threads a few run; so many kinds of system calls in two processes; so many places where threads wait."""
OF_A_THREAD = (
    v.THREAD_ON_CPU,
    v.THREAD_RUN_QUEUE,
    v.THREAD_INVOLUNTARY,
    v.labelled(v.THREAD_STATE_SAMPLES, "futex"),
)
SEEKS = 60


@dataclass
class Machine:
    """What its collectors report, second by second."""

    draw: random.Random
    counters: dict[tuple[TrackId, Metric], float]

    def grown(self, track: TrackId, metric: Metric, most: int) -> float:
        """A counter that has grown by up to so much."""
        value = self.counters[track, metric] = self.counters.get((track, metric), 0.0) + self.draw.randrange(most + 1)
        return value

    def gpus(self, second: int, t_ns: int) -> Trace:
        """GPUs and the server, whose counters grow as the tests have it; gauges get the digits that a driver gives."""
        trace = poll(Scene(gpus=GPUS, has_threads=False), second, t_ns)
        readings = (Reading(r.track, r.metric, t_ns, self.as_read(r), r.source) for r in trace.readings)
        return Trace(LIVE, t_ns, t_ns, tracks=trace.tracks, readings=tuple(readings))

    def as_read(self, reading: Reading) -> float:
        """With the digits that it has: shares and rates of the driver all, its milliwatts three, counters none."""
        value = reading.value or 0.0
        if reading.metric.unit in ("%", "bytes/s") and reading.metric is not v.GPU_UTIL:
            return value * self.draw.uniform(0.98, 1.0)
        if reading.metric is v.GPU_POWER:
            return round(value * self.draw.uniform(0.98, 1.0), 3)
        return float(int(value)) if reading.metric.counter else value

    def threads(self, t_ns: int) -> Trace:
        """Threads by their books, and their facts; the busy ones also by probes."""
        readings, tracks = [], {}
        for i in range(THREADS):
            track, busy = ids.thread(4300, 4300 + i), i < BUSY
            facts = {"role": "EngineCore", "state": "futex", "cpu": self.draw.randrange(64) if busy else i % 64}
            tracks[track] = Track(track, TrackKind.THREAD, f"worker-{i}", ids.process(4300), facts)
            for metric in OF_A_THREAD:
                most = (400_000_000 if metric.unit == "ns" else 40) if busy else 0
                readings.append(Reading(track, metric, t_ns, self.grown(track, metric, most), "schedstat"))
        return Trace(LIVE, t_ns, t_ns, tracks=tracks, readings=tuple(readings))

    def calls(self, t_ns: int) -> Trace:
        """System calls with their latencies, of which a third are made each second; and where threads wait."""
        readings = []
        for track in (ids.process(4242), ids.process(4300)):
            for metric, most in (one for i in range(CALLS) for one in self.counters_of(f"call{i}", i)):
                readings.append(Reading(track, metric, t_ns, self.grown(track, metric, most), "eBPF"))
        stacks = tuple(
            Stack(("main", "loop", f"step {i % 7}", f"wait {i}"), float(self.draw.randrange(NS_PER_S)), "ns", "futex")
            for i in range(FUNCTIONS)
        )
        return Trace(LIVE, t_ns, t_ns, readings=tuple(readings), stacks=stacks)

    def counters_of(self, name: str, i: int) -> Iterator[tuple[Metric, int]]:
        """A call's counters, and by how much they grow at most."""
        is_made = i % 3 == 0
        yield v.labelled(v.SYSCALL_COUNT, name), 2000 if is_made else 0
        yield v.labelled(v.SYSCALL_TIME, name), 50_000_000 if is_made else 0
        for upper in (1024.0, 4096.0, 65536.0, math.inf):
            yield v.bucket(v.labelled(v.SYSCALL_LATENCY, name), upper), 500 if is_made else 0


def write(path: Path, seconds: int) -> tuple[float, int]:
    """Record so long: the CPU time that it took, and how many series there were."""
    machine, recorder, writer = Machine(random.Random(1), {}), Recorder(LIVE), RecordingWriter(path, {})
    cpu_s, series = 0.0, 0
    for second in range(seconds):
        t_ns = (1000 + second) * NS_PER_S
        for half_ns in (0, NS_PER_S // 2):
            recorder.append("nvml", machine.gpus(second, t_ns + half_ns))
        recorder.append("proc", machine.threads(t_ns))
        recorder.append("ebpf", machine.calls(t_ns))
        trace = recorder.freeze()
        began = time.process_time()
        writer.write(trace, TARGET)
        cpu_s += time.process_time() - began
        series = len(trace.series)
    writer.close()
    return cpu_s, series


def seek_ms(path: Path, at: float) -> tuple[float, float]:
    """Wall and CPU time to the trace of a moment, a share of the recording, of a file just opened."""
    recording = RecordingReader(path)
    t_ns = recording.times[int(at * len(recording.times))]
    began, cpu_s = time.perf_counter(), time.process_time()
    recording.trace(t_ns)
    return 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - cpu_s)


def main() -> None:
    """Write one, open it, go about in it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=int, default=60)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="llmtop-") as folder:
        path = Path(folder) / "recording.llmtop"
        cpu_s, series = write(path, 60 * minutes)
        size = path.stat().st_size
        print(f"{series} series, {minutes} min: {size / 1e6 * 60 / minutes:.1f} MB an hour")
        print(f"write: {100 * cpu_s / (60 * minutes):.2f} % of a core")
        began, cpu_s = time.perf_counter(), time.process_time()
        recording = RecordingReader(path)
        recording.trace(recording.times[-1])
        print(f"open: {time.perf_counter() - began:.2f} s, {time.process_time() - cpu_s:.2f} s of a core")
        draw = random.Random(2)
        took = [seek_ms(path, draw.random()) for _ in range(SEEKS)]
        for name, times in zip(("wall", "CPU"), map(sorted, zip(*took, strict=True)), strict=True):
            print(f"seek, {name}: median {times[SEEKS // 2]:.0f} ms, p95 {times[int(0.95 * SEEKS)]:.0f} ms")


if __name__ == "__main__":
    main()
