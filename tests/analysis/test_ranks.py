"""Ranks that keep step: what shows which of them is late, and how busy their GPUs are together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules import cpu_bound, gpu_bound, run_queue_starvation, straggler
from llmtop.analysis.rules.signals import gpu_activity
from llmtop.analysis.server.ranks import gpus_of, keep_step
from llmtop.model import Trace, TrackKind
from tests.analysis.verdict_scenes import API, Scene, Thread, findings_of

LATE = Scene(
    threads=(
        API,
        Thread("EngineCore", 7, 7, on_cpu=0.99),
        Thread("Worker_TP0", 100, 100, on_cpu=0.97),
        Thread("Worker_TP1", 101, 101, on_cpu=0.33, run_queue=0.67),
    ),
    gpus=(100.0, 30.0),
    dram=12.0,
    tensor=2.0,
    probed=False,
)
"""A vLLM over two H200s whose second rank shares a CPU with two busy loops, without probes."""


def untold(scene: Scene) -> Trace:
    """Without the driver's list of who holds memory on which GPU, as in a container with PIDs of its own."""
    trace = scene.trace()
    kept = {key: one for key, one in trace.tracks.items() if one.kind is not TrackKind.GPU_PROCESS}
    return replace(trace, tracks=kept)


def test_a_rank_that_keeps_its_gpu_less_busy_than_its_peers_is_late() -> None:
    (late,) = findings_of(straggler, LATE.trace())
    assert late.subject == "Worker_TP1"
    says = "keeps its GPU busy 30 % of the time, its peers theirs 100 %, most of that in wait for it"
    assert late.message == f"Worker_TP1 is late: it {says}"
    assert "Worker_TP1: in the run queue 67 % of the time, its peers 0 % (schedstat)" in late.evidence


@pytest.mark.parametrize(("busy", "is_late"), [(79.0, True), (81.0, False)])
def test_a_fifth_of_the_time_is_late(busy: float, is_late: bool) -> None:
    found = findings_of(straggler, LATE.but(gpus=(100.0, busy)).trace())
    assert any(one.subject == "Worker_TP1" for one in found) == is_late


def test_whose_gpus_are_not_told_is_not_called_late() -> None:
    assert not [one for one in findings_of(straggler, untold(LATE)) if one.subject.startswith("Worker")]


def test_of_gpus_that_keep_step_the_least_busy_one_tells_whether_they_wait() -> None:
    activity = gpu_activity(LATE.trace())
    assert activity is not None
    assert (activity.value, activity.text) == (30.0, "GPU 1: GPU busy 30 % (NVML)")
    (starved,) = findings_of(run_queue_starvation, LATE.trace())
    assert starved.subject == "Worker_TP1"
    assert starved.message.endswith("GPU 30 % busy")
    assert not findings_of(gpu_bound, LATE.trace())


def test_replicas_do_not_keep_step() -> None:
    threads = tuple(replace(one, role=one.role.replace("TP", "DP")) for one in LATE.threads)
    activity = gpu_activity(LATE.but(threads=threads).trace())
    assert activity is not None
    assert activity.value == 100.0


def test_an_engine_that_polls_its_workers_and_a_rank_that_waits_for_another_are_not_cpu_bound() -> None:
    """Nobody sees that the engine polls; the first rank spins until its GPU has done, which stands in a collective."""
    assert not findings_of(cpu_bound, LATE.trace())


def test_a_worker_whose_own_gpu_rests_is_cpu_bound() -> None:
    busy = LATE.but(threads=(*LATE.threads[:3], Thread("Worker_TP1", 101, 101, on_cpu=0.99)))
    found = findings_of(cpu_bound, busy.but(gpus=(30.0, 30.0)).trace())
    assert [one.subject.startswith("Worker_TP") for one in found] == [True]


def test_which_gpus_a_process_holds() -> None:
    trace = LATE.trace()
    assert list(gpus_of(trace, 101)) == [ids.gpu(1)]
    gpus = trace.tracks_of(TrackKind.GPU)
    assert keep_step(trace, gpus)
    assert not keep_step(trace, gpus[:1])
    assert trace.get(ids.gpu(0), v.GPU_ACTIVE) is not None
