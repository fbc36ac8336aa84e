"""Slow steps staged in an engine, seen by the probes, recorded, and named by the view that the pane draws."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.server.step_causes import StepCause
from llmtop.analysis.server.steps_view import StepsView, steps_view
from llmtop.collectors.tracing.helper.interpreters import collector_sites
from llmtop.collectors.tracing.probes.collector import EbpfCollector
from llmtop.model import LIVE, Trace
from llmtop.session import Recorder
from tests.workloads.noise import measured_again, put_first
from tests.workloads.planted_steps import NEAR_NS, PLANTED_CAUSES
from tests.workloads.programs import HERE, Workload, build_engine, compiler, target_of

pytestmark = pytest.mark.usefixtures("kernel_probes")
DEADLINE_S = 30.0
STEPS, EVERY = 400, 10
WITHOUT_BUDGET = 100.0
CAUSES = {name: cause for name, cause in PLANTED_CAUSES.items() if cause is not StepCause.QUEUE}
"""What does not depend on how the kernel shares a CPU out; each is planted four times."""
COLLECTING = HERE / "collecting.py"
_LIBRARY = "from sysconfig import get_config_var as of; print(of('LIBDIR') or '', of('INSTSONAME') or '', sep='/')"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine whose slow steps are known."""
    if compiler() is None:
        pytest.skip("needs a C compiler (gcc) for a stand-in libcuda")
    return build_engine(tmp_path_factory.mktemp("engine"))


def poll_until(recorder: Recorder, probes: EbpfCollector, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        recorder.append(probes.name, probes.poll())


def seen(engine: Path, mode: str, budget: float) -> tuple[StepsView, list[tuple[str, int]]]:
    """What is shown of an engine's steps, and which slow ones were staged."""
    with Workload(engine, mode, str(STEPS), str(EVERY)) as program:
        trace, planted = watched(program, budget)
    view = steps_view(trace)
    assert isinstance(view, StepsView)
    return view, planted


def watched(program: Workload, budget: float) -> tuple[Trace, list[tuple[str, int]]]:
    """What the probes see of an engine from before its first step to after its last one, and what it has staged."""
    recorder = Recorder(LIVE)
    put_first([program.pid], 1)
    with EbpfCollector(target_of(program.pid), budget=budget, interval_s=0.1) as probes:
        poll_until(recorder, probes, lambda: not probes.is_starting)
        program.start()
        planted: Any = program.account()
        told_ns = time.monotonic_ns()
        poll_until(recorder, probes, lambda: recorder.freeze().end_ns > told_ns + 200_000_000)
    return recorder.freeze(), planted


@measured_again
def test_most_staged_steps_are_named_by_their_cause(engine: Path) -> None:
    view, planted = seen(engine, "plain", WITHOUT_BUDGET)
    assert view.loop.found == "by launches of CUDA graphs and the wait for them"
    named = [
        next((one.cause for one in view.slow if abs(one.step.end_ns - end) < NEAR_NS), None) is CAUSES[cause]
        for cause, end in planted
        if cause in CAUSES
    ]
    assert len(named) == 4 * len(CAUSES)
    assert sum(named) >= 0.8 * len(named), "the machine may take the CPU away from some of them"


def interpreters() -> dict[str, Path]:
    """One whose collector is found by its own probes, one by symbols: the system's, and what runs the tests."""
    programs = (Path("/usr/bin/python3"), Path(sys.executable))
    return {_way(path): path.resolve() for path in programs if path.exists()}


def _way(program: Path) -> str:
    """How its collector is found: in the program, or in the library that it maps."""
    library = subprocess.run([program, "-c", _LIBRARY], capture_output=True, text=True, check=True).stdout.strip()
    found = collector_sites(library if Path(library).exists() else str(program.resolve()))
    return "" if found is None else "probes" if found.ends else "symbols"


@measured_again
@pytest.mark.parametrize("way", ["probes", "symbols"])
def test_garbage_collections_of_an_engine_in_python_are_timed_and_named(engine: Path, way: str) -> None:
    program = interpreters().get(way)
    if program is None:
        pytest.skip(f"no interpreter here whose collector is found by {way}")
    with Workload(program, COLLECTING, engine.parent / "libcuda.so.1", str(STEPS), str(EVERY)) as workload:
        trace, planted = watched(workload, WITHOUT_BUDGET)
        truth = workload.ask().threads["engine"]
    assert len(planted) == truth["collections"] == STEPS // EVERY
    found = trace.series[ids.thread(workload.pid, truth["tid"]), v.THREAD_COLLECTING.name]
    assert list(found.known)[-1][1] == pytest.approx(truth["collecting"], rel=0.1)
    counted = trace.series[ids.thread(workload.pid, truth["tid"]), v.THREAD_COLLECTIONS.name]
    assert counted.last == truth["collections"]
    view = steps_view(trace)
    assert isinstance(view, StepsView)
    named = [next((one.cause for one in view.slow if abs(one.step.end_ns - end) < NEAR_NS), None) for _, end in planted]
    assert named.count(StepCause.COLLECTION) >= 0.8 * len(named), "the machine may take the CPU away from some of them"
    assert not any("garbage" in note for note in view.notes)
