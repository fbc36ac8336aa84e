"""Programs that do one thing each, looked at with real probes: the verdict is right, and nothing else is said.

What the programs do is told in tests/workloads/programs.py. Their clocks, sleeps, calls and cgroup are read by the
collectors of the product; only the GPU and the server's endpoint are made up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from llmtop.demo.limits import cpu_quota, why_no_quota
from tests.collectors.tracing.probes import why_no_probes
from tests.verdicts.looking import Case, Looked, Watch
from tests.workloads.programs import HERE, Workload

pytestmark = [pytest.mark.kernel, pytest.mark.limit(240)]  # the first test waits for all looks

FOR_EVER = "0"
API, ENGINE = ("APIServer",), ("EngineCore",)
QUOTA = 0.05
"""CPUs: so few that it is used up however busy this machine is."""
TOO_BUSY = 0.04
"""Time in the run queue that a program which comes first must not see."""

HEAVY_LOAD = 3.0
"""Threads that want each CPU; the programs themselves are not more than one a CPU."""


def case(*expected: str, sm: float, **programs: tuple[str, ...]) -> Case:
    has_to_queue = bool({"starve", "throttled"} & set(programs))
    return Case(programs, sm, 8, 0, frozenset(expected), has_to_queue=has_to_queue)


PHASES = (
    {
        "short of CPUs": case("run-queue-starvation", sm=40, starve=ENGINE),
        "the API server is short of a CPU": case("run-queue-starvation", sm=9, starve=API, sleeper=ENGINE),
        "short of CPUs, but the GPU is fed": case(sm=96, starve=ENGINE),
        "throttled": case("cgroup-throttled", sm=12, throttled=ENGINE),
        "works well": case(sm=70, nanosleep=ENGINE),
        "asleep for the GPU": case("gpu-bound", sm=94, asleep=ENGINE),
    },
    {
        "GIL": case("gil-bound", sm=40, gil=ENGINE),
        "GIL, without py-spy": replace(case("gil-bound", sm=40, gil=ENGINE), without=("thread.gil_samples",)),
        "GIL, but the GPU is fed": case(sm=85, gil=ENGINE),
    },
)
"""What is looked at together: about one CPU's worth of work, for the probes' helper needs some too.

No more than what needs real clocks, py-spy or a cgroup beside the probes: what they say of other programs is in
test_truth.py, and what is made of that in verdict_scenes.py.
"""
CASES = {name: one for phase in PHASES for name, one in phase.items()}


def program_makers(workload: Path, cuda: Path) -> Mapping[str, Callable[[], Workload]]:
    """How each program is made; all run until they are ended."""
    modes = {
        "starve": ("starve", FOR_EVER, "2"),
        "sleeper": ("nanosleep", FOR_EVER),
        "throttled": ("spin", FOR_EVER),
        "nanosleep": ("nanosleep", FOR_EVER),
    }
    made = {name: partial(Workload, workload, *mode) for name, mode in modes.items()}
    gil = partial(Workload, sys.executable, HERE / "gil_fight.py")
    return made | {"asleep": partial(Workload, cuda, "asleep", FOR_EVER), "gil": gil}


@pytest.fixture(scope="module")
def no_quota() -> str:
    """Why nothing can be throttled here; found out before something is."""
    return why_no_quota()


@pytest.fixture(scope="module")
def looks(workload: Path, cuda_program: Path, no_quota: str) -> Iterator[dict[str, Looked]]:
    """What is said of every case; made at once, because probes take their time to be attached."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.delenv("LLMTOP_NO_EBPF", raising=False)
        if why := why_no_probes():
            pytest.skip(f"needs probes in the kernel: {why}")
        watch = Watch(program_makers(workload, cuda_program), CASES, group_of="throttled")
        stack.enter_context(watch)
        if not no_quota:
            stack.enter_context(cpu_quota(QUOTA, watch.programs["throttled"].pid))
        yield {name: looked for phase in PHASES for name, looked in watch.look(tuple(phase)).items()}


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_is_right(name: str, looks: dict[str, Looked], no_quota: str) -> None:
    case, looked = CASES[name], looks[name]
    if name == "throttled" and no_quota:
        pytest.skip(no_quota)
    if looked.rules != case.expected and (why := too_busy(case, looked)):
        pytest.skip(why)
    assert looked.rules == case.expected, looked.findings


def too_busy(case: Case, looked: Looked) -> str:
    """Why a wrong verdict is no wonder: the programs, or the probes, did not get the CPUs that they need."""
    if not case.has_to_queue and looked.queued >= TOO_BUSY:
        return f"this machine is too busy: the program waited for a CPU {looked.queued:.0%} of the time"
    if looked.load >= HEAVY_LOAD * (os.cpu_count() or 1):
        return f"this machine is too busy for the probes' helper: load average {looked.load:.0f}"
    return ""
