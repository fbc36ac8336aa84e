"""Threads that drive a GPU from the other socket, and what brings them and their memory near it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.pages.budget_gains import budget_gains
from llmtop.analysis.pages.budget_terms import BudgetGain, BudgetPart
from llmtop.analysis.series.readings import gpu_tracks
from llmtop.analysis.threads.near_gpu import FarFromGpu, far_from_gpus
from llmtop.model import Fact, Trace
from tests.analysis.test_budget_gains import step_of
from tests.analysis.test_efficiency import trace_of
from tests.analysis.verdict_scenes import API, Scene, Thread, ranks

NODE: dict[str, Fact] = {"numa_node": 0, "near_cpus": "0-31,64-95", "numa_distance": 21}
OTHER: dict[str, Fact] = {"numa_node": 1, "near_cpus": "32-63,96-127", "numa_distance": 21}


def server(
    cpus: Mapping[int, int],
    gpus: Mapping[int, Mapping[str, Fact]],
    memory: Mapping[int, float] | None = None,
    threads: tuple[Thread, ...] = (API, Thread(on_cpu=0.5)),
) -> Trace:
    """Threads that ran last on these CPUs, by PID; GPUs with what the machine says of them; GiB on each node."""
    gauges = {
        (ids.process(7), v.labelled(v.CGROUP_NODE_MEMORY, str(node))): size * 2**30
        for node, size in (memory or {}).items()
    }
    trace = Scene(threads=threads, gpus=(95.0,) * len(gpus), gauges=gauges).trace()
    tracks = dict(trace.tracks)
    for pid, cpu in cpus.items():
        track = tracks[ids.thread(pid, pid)]
        tracks[track.id] = replace(track, facts={**track.facts, "cpu": cpu})
    for index, facts in gpus.items():
        tracks[ids.gpu(index)] = replace(tracks[ids.gpu(index)], facts=dict(facts))
    return replace(trace, tracks=tracks)


def far(trace: Trace) -> tuple[FarFromGpu, ...]:
    return far_from_gpus(trace, gpu_tracks(trace))


@pytest.mark.parametrize(("cpu", "is_far"), [(0, False), (31, False), (32, True), (64, False), (96, True)])
def test_a_thread_is_far_on_cpus_that_are_not_the_gpus(cpu: int, is_far: bool) -> None:
    assert bool(far(server({7: cpu}, {0: NODE}))) is is_far


def test_what_brings_it_there() -> None:
    (one,) = far(server({7: 70 - 36}, {0: NODE}))
    assert one.text == (
        "EngineCore runs on CPU 34, GPU 0 is near CPUs 0-31,64-95 (NUMA node 0); where its memory is: numastat -p 7"
    )
    assert one.command == "taskset -apc 0-31,64-95 7"
    assert one.at_start == "numactl --cpunodebind=0 --membind=0"


@pytest.mark.parametrize(
    ("gib", "cpu", "command"),
    [
        ({0: 9.0, 1: 1.0}, 0, None),
        ({0: 7.0, 1: 3.0}, 0, "migratepages 7 1 0"),
        ({0: 9.0, 1: 1.0}, 40, "taskset -apc 0-31,64-95 7"),
        ({0: 7.0, 1: 3.0}, 40, "taskset -apc 0-31,64-95 7; migratepages 7 1 0"),
    ],
)
def test_memory_on_other_nodes_is_told_from_a_quarter_on(gib: dict[int, float], cpu: int, command: str | None) -> None:
    found = far(server({7: cpu}, {0: NODE}, gib))
    assert [one.command for one in found] == ([] if command is None else [command])
    assert all(f"{gib[1] * 10:.0f} % of the server's memory is on other nodes" in one.text for one in found)


def test_of_gpus_on_two_nodes_each_rank_is_judged_by_its_own_and_memory_is_not() -> None:
    threads = ranks(0.5, 0.5)
    crossed = far(server({100: 40, 101: 0}, {0: NODE, 1: OTHER}, {0: 5.0, 1: 5.0}, threads))
    assert [(one.thread, one.gpu, one.far_memory) for one in crossed] == [
        ("Worker_TP0", "GPU 0", None),
        ("Worker_TP1", "GPU 1", None),
    ]
    assert far(server({100: 0, 101: 40}, {0: NODE, 1: OTHER}, {0: 5.0, 1: 5.0}, threads)) == ()


@pytest.mark.parametrize(
    "facts", [{}, {"numa_node": 0}, {"numa_node": 0, "near_cpus": "0-31; reboot"}, {"near_cpus": "0-31"}]
)
def test_what_is_not_told_is_not_guessed(facts: dict[str, Fact]) -> None:
    assert far(server({7: 40}, {0: facts})) == ()
    assert far(server({}, {0: NODE})) == ()


def gain(facts: Mapping[str, Fact], cpu: int, working_s: float = 0.004) -> BudgetGain | None:
    """Of late CPU of 5 ms, in which the engine worked for so long."""
    trace, plain = server({7: cpu}, {0: facts}), trace_of()
    step = step_of({BudgetPart.LATE_CPU: 0.005}, plain, working_s=working_s)
    found = budget_gains(replace(step, trace=trace, gpus=gpu_tracks(trace)))
    return next((one for one in found if "near the GPU" in one.change), None)


def test_late_cpu_would_shrink_by_what_distance_costs_at_most() -> None:
    """Memory at distance 21 in place of 10: 11 / 21 of the time, were it all waits for memory."""
    found = gain(NODE, 40)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.0, 0.004 * 11 / 21))
    assert found.change == "EngineCore near the GPU: taskset -apc 0-31,64-95 7"
    assert "from the next start on: numactl --cpunodebind=0 --membind=0" in found.how
    unsaid = gain({key: fact for key, fact in NODE.items() if key != "numa_distance"}, 40)
    assert unsaid is not None
    assert unsaid.high == pytest.approx(0.004)
    assert gain(NODE, 0) is None
    assert gain(NODE, 40, working_s=0.0) is None
