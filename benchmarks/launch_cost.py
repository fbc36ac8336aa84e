"""What probes on kernel launches cost an engine that is short of CPU: CPU time per step, second by second.

    sudo python benchmarks/launch_cost.py [--seconds 30] [--launches 100] [--work-us 1000]

stand_in_server.c takes steps of so many launches, on a stand-in libcuda whose launch function begins with a push, which
the kernel does itself ("gentle"), or does not, so that each probe is stepped through ("stepped", ten times dearer).
llmtop's eBPF collector looks at it for half of the time. Its first seconds are shown apart: it does
not know yet what its probes cost. CPU time is compared, which other programs disturb less than they do the
time of day, yet they do: see by how much its seconds differ without llmtop. Needs root and gcc.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import machine, median, table
from llmtop.collectors.tracing.probes.collector import EbpfCollector
from llmtop.model import Target, TargetProcess

HERE = Path(__file__).resolve().parent
LIBRARY = """
#include <time.h>
int cuLaunchKernel(void) { for (volatile int i = 0; i < ROUNDS; i++); return 0; }
int cuStreamSynchronize(void)
{
	struct timespec at;
	if (!STEP_NS)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &at);
	long next = (at.tv_sec * 1000000000L + at.tv_nsec) / STEP_NS * STEP_NS + STEP_NS;
	at.tv_sec = next / 1000000000L;
	at.tv_nsec = next % 1000000000L;
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0);
	return 0;
}
"""
"""With STEP_NS, a step ends when the GPU has done so: at the next multiple of that time, in which the thread sleeps."""
KINDS = {"gentle": "-fno-omit-frame-pointer", "stepped": "-fomit-frame-pointer"}
FIRST_S = 10


class Engine:
    """The stand-in, with what it has said of itself: (monotonic ns, steps, CPU ns of the engine's thread)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._output = process.stdout
        self._said: list[tuple[int, int, int]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._output or ():
            at, steps, cpu_ns = map(int, line.split())
            self._said.append((at, steps, cpu_ns))

    def steps_between(self, start_ns: int, end_ns: int) -> float:
        """How many it has taken in this time, between its own moments."""
        looks = [(at, steps) for at, steps, _ in list(self._said)]
        return _at(looks, end_ns) - _at(looks, start_ns)

    def seconds(self, start_ns: int) -> list[tuple[float, float]]:
        """Steps per second and CPU time per step, in us, of each second since."""
        found, first = [], None
        for at, steps, cpu_ns in list(self._said):
            if at < start_ns:
                continue
            if first is None:
                first = (at, steps, cpu_ns)
            elif at - first[0] >= 1e9 and steps > first[1]:
                done = steps - first[1]
                found.append((done * 1e9 / (at - first[0]), (cpu_ns - first[2]) / done / 1e3))
                first = (at, steps, cpu_ns)
        return found


def _at(looks: list[tuple[int, int]], at_ns: int) -> float:
    """Steps at a moment, by the looks before and after it."""
    i = bisect_right(looks, (at_ns, 0))
    if not 0 < i < len(looks):
        raise ValueError("nothing was said before or after that")
    (before_ns, before), (after_ns, after) = looks[i - 1 : i + 1]
    return before + (after - before) * (at_ns - before_ns) / (after_ns - before_ns)


@contextmanager
def running_engine(
    folder: Path, kind: str, launches: int, work_us: int, *, step_ns: int = 0, rounds: int = 300
) -> Iterator[Engine]:
    """Build and start the stand-in; `rounds` is how long a launch takes."""
    folder.mkdir()
    library, program = folder / "libcuda.so.1", folder / "stand_in_server"
    (folder / "library.c").write_text(LIBRARY)
    flags = [
        "-O1",
        KINDS[kind],
        "-fcf-protection=none",
        "-shared",
        "-fPIC",
        f"-DSTEP_NS={step_ns}L",
        f"-DROUNDS={rounds}",
    ]
    subprocess.run(["gcc", *flags, "-o", library, folder / "library.c"], check=True)
    source = HERE / "stand_in_server.c"
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, source, library, f"-Wl,-rpath,{folder}"], check=True)
    argv = [str(program), str(launches), str(work_us), "8", "150"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Engine(process)
        finally:
            process.kill()


def look(engine: Engine, seconds: float) -> tuple[list[tuple[float, float]], int]:
    """Its seconds while the collector looks, and how many probes' hits that took."""
    target = Target(engine.pid, engine.pid, "process", "stand-in", (TargetProcess(engine.pid, "", ""),))
    start_ns, hits = time.monotonic_ns(), 0
    with EbpfCollector(target) as collector:
        while time.monotonic_ns() - start_ns < seconds * 1e9:
            told = [one.value for one in collector.poll().readings if one.metric.name == "self.probe_hits"]
            hits = int(told[-1] or 0) if told else hits
            time.sleep(collector.period_s)
    return engine.seconds(start_ns), hits


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each half")
    parser.add_argument("--launches", type=int, default=100, help="of a step")
    parser.add_argument("--work-us", type=int, default=1000, help="of a step")
    options = parser.parse_args()
    print(machine())
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            with running_engine(Path(folder) / kind, kind, options.launches, options.work_us) as engine:
                time.sleep(2.0)  # it finds out how fast it is
                start_ns = time.monotonic_ns()
                time.sleep(options.seconds)
                before = engine.seconds(start_ns)
                seen, hits = look(engine, options.seconds)
            usual = median([us for _, us in before]) or 0.0
            first, later = ([us / usual - 1 for _, us in part] for part in (seen[:FIRST_S], seen[FIRST_S:]))
            rate = (median([steps for steps, _ in before]) or 0.0) * options.launches
            spread = sorted(us / usual - 1 for _, us in before)
            rows.append(
                (
                    kind,
                    f"{rate:.0f}",
                    f"{usual:.0f}",
                    f"{spread[0]:+.0%} to {spread[-1]:+.0%}",
                    f"{median(first) or 0:+.1%}, worst {max(first):+.0%}",
                    f"{median(later) or 0:+.1%}, worst {max(later):+.0%}" if later else None,
                    f"{hits / options.seconds:.0f}",
                )
            )
    at_first = f"first {FIRST_S} s with probes"
    print(table(("launch", "launches/s", "us a step", "seconds differ by", at_first, "later", "hits/s"), rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
