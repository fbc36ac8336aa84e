"""Ranks that keep step: what shows which of them is late, and how busy their GPUs are together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules import cpu_bound, gpu_bound, run_queue_starvation, straggler
from llmtop.analysis.rules.signals import gpu_activity
from llmtop.analysis.server.ranks import gpus_of, in_step
from llmtop.facts import SETTINGS_OF
from llmtop.model import Fact, Feature, Trace, Track, TrackKind
from llmtop.settings import keys_of
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


def set_to_ranks(size: int) -> dict[str, Fact]:
    """That the server is set to tensor parallelism over so many GPUs."""
    keys = keys_of(Feature.TENSOR_PARALLEL)
    return {SETTINGS_OF: "vllm", keys.value: size, keys.source: "told"}


def untold(scene: Scene) -> Trace:
    """Without the driver's list of who holds memory on which GPU, as in a container with PIDs of its own."""
    trace = scene.trace()
    kept = {key: one for key, one in trace.tracks.items() if one.kind is not TrackKind.GPU_PROCESS}
    return replace(trace, tracks=kept)


def test_a_rank_that_keeps_its_gpu_less_busy_than_its_peers_is_late() -> None:
    (late,) = findings_of(straggler, LATE.trace())
    assert late.subject == "Worker_TP1"
    says = "keeps its GPU busy 30 % of the time, its peers theirs 100 %, up to 70 % in wait for it"
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


def test_a_worker_is_told_how_much_its_own_gpu_rests() -> None:
    scene = LATE.but(
        threads=(
            Thread("Worker_TP0", 100, 100, on_cpu=0.95, sync=0.03),
            Thread("Worker_TP1", 101, 101, on_cpu=0.2, sync=0.03),
        ),
        gpus=(88.0, 40.0),
        probed=True,
    )
    (found,) = findings_of(cpu_bound, scene.trace())
    assert found.message == "the GPU rests 12 % of the time, and Worker_TP0 is at work 92 %"
    assert found.action.startswith("12 % is what the CPU's side can give at most: ")
    assert "GPU 0: GPU busy 88 % (NVML)" in found.evidence


def test_a_loop_that_is_a_worker_itself_polls_no_other() -> None:
    """TensorRT-LLM's loop runs in what is called its worker."""
    alone = LATE.but(threads=(Thread("Worker", 7, 7, on_cpu=0.98),), gpus=(30.0,))
    (found,) = findings_of(cpu_bound, alone.trace())
    assert found.message.startswith("CPU-bound: Worker computes 98 % of the time, GPU 30 % busy")


@pytest.mark.parametrize(
    ("role", "set_to", "is_late"), [("shard", 2, True), ("shard", 1, False), ("runner", None, False)]
)
def test_processes_without_numbers_are_ranks_where_the_server_is_set_to_as_many(
    role: str, set_to: int | None, is_late: bool
) -> None:
    """Two runners of Ollama hold a model each, and none waits for the other."""
    threads = (Thread(role, 100, 100, on_cpu=0.9), Thread(role, 101, 101, on_cpu=0.02))
    scene = LATE.but(threads=threads, gpus=(90.0, 1.0), facts={} if set_to is None else set_to_ranks(set_to))
    assert [one.subject for one in findings_of(straggler, scene.trace())] == [role] * is_late
    activity = gpu_activity(scene.trace())
    assert activity is not None
    assert activity.value == (1.0 if is_late else 90.0)


@pytest.mark.parametrize("outer", ["DP", "PP"])
def test_of_groups_of_ranks_the_least_busy_gpu_of_the_busiest_group_counts(outer: str) -> None:
    names = [f"Worker_{outer}{i}_TP{j}" for i in range(2) for j in range(2)]
    threads = tuple(Thread(name, 100 + i, 100 + i, on_cpu=0.5) for i, name in enumerate(names))
    trace = LATE.but(threads=threads, gpus=(95.0, 40.0, 95.0, 50.0)).trace()
    assert [[ids.gpu_index(gpu.id) for gpu in some] for some in in_step(trace, trace.tracks_of(TrackKind.GPU))] == [
        [0, 1],
        [2, 3],
    ]
    activity = gpu_activity(trace)
    assert activity is not None
    assert (activity.value, activity.gpu) == (50.0, ids.gpu(3))


def test_where_not_all_gpus_tell_the_best_each_is_judged_by_what_it_tells() -> None:
    scene = LATE.but(
        threads=(Thread("EngineCore", 7, 7),), gpus=(30.0,), more_gpus=(1,), gauges={(ids.gpu(1), v.GPU_UTIL): 97.0}
    )
    activity = gpu_activity(untold(scene))
    assert activity is not None
    assert (activity.value, activity.gpu, activity.by) == (97.0, ids.gpu(1), v.GPU_UTIL)


def test_which_gpus_a_process_works_on() -> None:
    """A context that was made on another GPU by accident is no work there."""
    trace = LATE.trace()
    assert gpus_of(trace, 101) == [ids.gpu(1)]
    stray = {ids.gpu_process(ids.gpu(0), 101): 5e8, ids.gpu_process(ids.gpu(1), 101): 6e10}
    scene = LATE.but(gauges={(track, v.GPU_PROCESS_MEMORY): size for track, size in stray.items()})
    both = scene.trace()
    more = {track: Track(track, TrackKind.GPU_PROCESS, "python3", ids.gpu_of(track)) for track in stray}
    assert gpus_of(replace(both, tracks={**both.tracks, **more}), 101) == [ids.gpu(1)]


def test_where_nobody_tells_who_holds_a_gpu_as_many_as_ranks_are_taken_for_theirs() -> None:
    trace = untold(LATE)
    gpus = trace.tracks_of(TrackKind.GPU)
    assert in_step(trace, gpus) == [list(gpus)]
    assert in_step(trace, gpus[:1]) == [[gpus[0]]]


def test_stages_of_a_pipeline_are_no_peers_and_ranks_of_one_stage_are() -> None:
    """Two H200s, a vLLM with PP=2 and equal stages: one GPU was busy 73 % of the time in its waits, the other 17 %."""
    worker = Thread("Worker_PP0", 100, 100)
    stages = LATE.but(threads=(API, worker, replace(worker, role="Worker_PP1", pid=101, tid=101)), gpus=(73.0, 17.0))
    assert not findings_of(straggler, stages.trace())
    ranks = stages.but(threads=(API, worker, replace(worker, role="Worker_PP0_EP1", pid=101, tid=101)))
    assert [one.subject for one in findings_of(straggler, ranks.trace())] == ["GPU 1"]
