"""Are slow steps of an engine found, with the cause that was planted, and what does that cost?

Usage: sudo .venv/bin/python benchmarks/step_truth.py [STEPS [EVERY [PERCENT]]]

An engine (tests/workloads/engine_steps.c) makes about 190 steps a second on a stand-in for libcuda, before all others
on the machine. Every so many steps one has a cause to be slow, and the engine tells which and when. Printed is, for
each cause, how many were planted, how many stood out, how many of these were put down to it, and in how many the
probes looked at what tells it (the rest is the price of the budget, not a wrong cause: PERCENT of a core, 1 if not
given); what stood out beside them, which on a busy machine may truly have been slow; the CPU time of the probes'
helper, of llmtop taking in what it says, and of a look at the steps; and the engine's wall time a step with the probes
and without, by turns. Needs root and gcc.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from llmtop import procfs
from llmtop.analysis.server.engine_steps import EngineStep
from llmtop.analysis.server.steps_view import StepsView, steps_view
from llmtop.collectors.tracing.helper.system import cpu_ns
from llmtop.collectors.tracing.probes.collector import EbpfCollector
from llmtop.model import LIVE, Trace
from llmtop.session import Recorder
from llmtop.vocabulary import RoundPart
from tests.workloads.noise import put_first
from tests.workloads.planted_steps import NEAR_NS, PLANTED_CAUSES
from tests.workloads.programs import Workload, build_engine, target_of

TOLD_BY = {
    "allocation": (RoundPart.ALLOCATION,),
    "copy": (RoundPart.COPY,),
    "own code": (RoundPart.QUEUE, RoundPart.ALLOCATION, RoundPart.COPY),
}
"""Parts of a step that must have been looked at, beside what threads are followed for."""
SETTLE_S = 25.0
POLL_S = 0.25
ROUNDS = 3


@dataclass
class Run:
    """What was seen of one engine: CPU time in seconds, wall time of all its steps."""

    planted: list[tuple[str, int]]
    wall_s: float
    trace: Trace | None = None
    helper_s: float = 0.0
    taking_s: float = 0.0


def helpers(engine: int) -> list[int]:
    """Processes that llmtop has started, and no engine."""
    return [pid for pid in procfs.family().descendants(os.getpid()) if pid != engine]


def work(program: Workload) -> tuple[threading.Thread, list[Any]]:
    """Let the engine make its steps."""
    told: list[Any] = []
    thread = threading.Thread(target=lambda: told.extend((program.account(), time.monotonic())))
    program.start()
    thread.start()
    return thread, told


def without_probes(engine: Path, mode: str, steps: str, every: str) -> Run:
    """The same engine, alone."""
    with Workload(engine, mode, steps, every) as program:
        put_first([program.pid], 1)
        since = time.monotonic()
        thread, told = work(program)
        thread.join()
    return Run(told[0], told[1] - since)


def watched(engine: Path, mode: str, steps: str, every: str, budget: float) -> Run:
    """With the probes, and llmtop taking in what they say."""
    recorder = Recorder(LIVE)
    with (
        Workload(engine, mode, steps, every) as program,
        EbpfCollector(target_of(program.pid), budget=budget) as probes,
    ):
        put_first([program.pid], 1)
        settled = time.monotonic() + SETTLE_S
        while probes.is_starting and time.monotonic() < settled:
            recorder.append("ebpf", probes.poll())
            time.sleep(POLL_S)
        before_s = sum(map(cpu_ns, helpers(program.pid))) / 1e9
        since, taking_s = time.monotonic(), 0.0
        thread, told = work(program)
        last = 2 / POLL_S
        while thread.is_alive() or last > 0:
            start = time.thread_time()
            recorder.append("ebpf", probes.poll())
            taking_s += time.thread_time() - start
            last -= not thread.is_alive()
            time.sleep(POLL_S)
        helper_s = sum(map(cpu_ns, helpers(program.pid))) / 1e9 - before_s
    return Run(told[0], told[1] - since, recorder.freeze(), helper_s, taking_s)


def is_looked_at(cause: str, step: EngineStep) -> bool:
    """Whether the probes saw in this step what the cause is told by; what they do not, the budget has cost."""
    if cause in ("more work", "slower GPU"):
        return step.launches is not None
    if cause == "page faults":
        return step.faults is not None
    return all(part in step.parts for part in TOLD_BY.get(cause, (RoundPart.QUEUE,)))


def judge(run: Run) -> None:
    """Print what was found of what was planted."""
    assert run.trace is not None
    start = time.thread_time()
    view = steps_view(run.trace)
    look_s = time.thread_time() - start
    if not isinstance(view, StepsView):
        print(f"  no steps: {view}")
        return
    ends = [one.end_ns for one in view.newest]
    planted = [(cause, end) for cause, end in run.planted if any(abs(one - end) < NEAR_NS for one in ends)]
    print(f"  {len(view.newest)} steps seen, and in them {len(planted)} of {len(run.planted)} that were planted")
    found: Counter[str] = Counter()
    right: Counter[str] = Counter()
    looked: Counter[str] = Counter()
    own: set[int] = set()
    for cause, end in planted:
        hit = next((one for one in view.slow if abs(one.step.end_ns - end) < NEAR_NS), None)
        if hit is not None:
            own.add(hit.step.end_ns)
            found[cause] += 1
            right[cause] += hit.cause is PLANTED_CAUSES.get(cause)
            looked[cause] += is_looked_at(cause, hit.step)
    total = Counter(cause for cause, _ in planted)
    for cause in PLANTED_CAUSES:
        print(
            f"  {cause:<12} planted {total[cause]:4d}  stood out {found[cause]:4d}  put down to it {right[cause]:4d}"
            f"  of those where it was looked at {looked[cause]:4d}"
        )
    print(f"  waiting for input, which is none: planted {total['input']}, stood out {found['input']}")
    beside = Counter(str(one.cause) for one in view.slow if one.step.end_ns not in own)
    told = ", ".join(f"{number} {cause}" for cause, number in beside.most_common(4))
    print(f"  beside them {beside.total()} of {len(view.newest)} steps: {told or 'none'}")
    all_planted = sum(total[cause] for cause in PLANTED_CAUSES)
    all_looked = sum(looked[cause] for cause in PLANTED_CAUSES)
    of_looked = sum(min(right[cause], looked[cause]) for cause in PLANTED_CAUSES) / max(1, all_looked)
    of_all = right.total() / max(1, all_planted)
    print(f"  found with the right cause: {of_all:.1%}, where it was looked at {of_looked:.1%}")
    print(f"  {view.tail.sentence if view.tail else 'no tail'}; notes: {'; '.join(view.notes) or 'none'}")
    print(
        f"  helper {run.helper_s / run.wall_s:.2%} of a core, taking in {run.taking_s / run.wall_s:.2%}, a look at "
        f"{len(view.newest)} steps {look_s * 1e3:.0f} ms"
    )


def compare(engine: Path, mode: str, budget: float) -> None:
    """Print how long a step takes with the probes and without."""
    alone, looked = [], []
    for _ in range(ROUNDS):  # by turns: what else runs on the machine changes
        alone.append(without_probes(engine, mode, "1000", "2000").wall_s)
        looked.append(watched(engine, mode, "1000", "2000", budget).wall_s)
    loss = median(looked) / median(alone) - 1
    print(f"\n{mode}: a step alone {median(alone):.4f} ms, watched {median(looked):.4f} ms: {loss:+.2%}")


def main() -> None:
    """Plant, look and compare, in all manners of waiting."""
    steps, every, percent = [*sys.argv[1:4], *("4000", "20", "1")[len(sys.argv) - 1 :]]
    budget = float(percent) / 100
    with tempfile.TemporaryDirectory() as folder:
        engine = build_engine(Path(folder))
        for mode in ("plain", "apart", "polls"):
            print(f"\n== {mode}: {steps} steps, one in {every} planted")
            judge(watched(engine, mode, steps, every, budget))
        for mode in ("plain", "polls"):
            compare(engine, mode, budget)


if __name__ == "__main__":
    main()
