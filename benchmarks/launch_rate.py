"""Are rates of launches right that are counted in windows? Told and true, by rate, probe and what the engine waits for.

    sudo python benchmarks/launch_rate.py [--seconds 30] [--rates 1000,20000,100000,300000]

stand_in_server.c launches kernels on a stand-in libcuda and counts its steps: that is the truth. "CPU" takes its next
step at once, so that probes slow it down while they count; "GPU" waits for the next 10 ms, and launches as many with
probes as without. "gentle" and "stepped" are as in launch_cost.py. Rates are asked for and differ from what comes of
that: the stand-in finds out how fast it is. Needs gcc; other programs on the machine change what the truth is, not
whether it is told.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import machine, table
from benchmarks.launch_cost import KINDS, Engine, running_engine
from llmtop.collectors.tracing.probes.collector import EbpfCollector
from llmtop.model import Target, TargetProcess

STEP_NS = 10_000_000
LAUNCH = "library.count|cuLaunchKernel"
SETTLE_S = 5.0
"""Until the first windows have told what there is."""
SAID_S = 0.5


def look(engine: Engine, seconds: float) -> tuple[float, float, list[float], str]:
    """Launches and steps while the collector looked, the rates that it told each second, and their source."""
    target = Target(engine.pid, engine.pid, "process", "stand-in", (TargetProcess(engine.pid, "", ""),))
    counts: list[tuple[int, float, str]] = []
    end_s = time.monotonic() + SETTLE_S + seconds
    with EbpfCollector(target) as collector:
        start_ns = time.monotonic_ns() + int(SETTLE_S * 1e9)
        while time.monotonic() < end_s:
            told = (one for one in collector.poll().readings if one.metric.name == LAUNCH and one.t_ns >= start_ns)
            counts += [(one.t_ns, one.value, one.source) for one in told if one.value is not None]
            time.sleep(collector.period_s)
    if len(counts) < 2:
        raise SystemExit("no launches were told: is this root, and are there probes?")
    time.sleep(SAID_S)
    (first_ns, first, _), (last_ns, last, source) = counts[0], counts[-1]
    rates = [(b - a) / (t - s) * 1e9 for (s, a, _), (t, b, _) in pairwise(counts)]
    return last - first, engine.steps_between(first_ns, last_ns), rates, source


def measure(folder: Path, kind: str, waits_for: str, rate: int, seconds: float) -> tuple[str, ...]:
    """One row."""
    launches = max(1, rate * STEP_NS // 1_000_000_000)
    us = 10_000 // 2 if waits_for == "GPU" else 10_000  # of a step; the GPU's leave the thread half of it
    rounds = max(1, min(300, 300 * us // launches))
    step_ns = STEP_NS if waits_for == "GPU" else 0
    work_us = max(0, us - launches * rounds // 600)
    with running_engine(folder, kind, launches, work_us, step_ns=step_ns, rounds=rounds) as engine:
        time.sleep(2.0)  # it finds out how fast it is
        start_ns = time.monotonic_ns()
        time.sleep(seconds / 3)
        end_ns = time.monotonic_ns()
        counted, steps, rates, source = look(engine, seconds)
        before = engine.steps_between(start_ns, end_ns) / (end_ns - start_ns) * 1e9
    true = steps * launches
    spread = statistics.stdev(rates) / statistics.fmean(rates)
    return (
        f"{waits_for}, {kind}",
        f"{before * launches:.0f}",
        f"{true / seconds:.0f}",
        f"{counted / true - 1:+.1%}",
        f"{spread:.0%}",
        source,
    )


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each row")
    parser.add_argument(
        "--rates", type=lambda text: [int(one) for one in text.split(",")], default=[1000, 20000, 100000, 300000]
    )
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--waits-for", type=lambda text: text.split(","), default=["CPU", "GPU"])
    options = parser.parse_args()
    print(machine())
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds:
            for waits_for in options.waits_for:
                for rate in options.rates:
                    rows.append(
                        measure(Path(folder) / f"{kind}{waits_for}{rate}", kind, waits_for, rate, options.seconds)
                    )
                    print(*rows[-1], flush=True)
    head = ("waits for, probe", "launches/s before", "meanwhile", "told", "from second to second", "source")
    print(table(head, rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
