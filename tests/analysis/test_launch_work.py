"""What launching kernels takes of an engine's time, and that a CPU-bound verdict says so."""

from __future__ import annotations

import pytest

from llmtop import vocabulary as v
from llmtop.analysis.rules import cpu_bound
from llmtop.analysis.rules.launch_work import launch_work
from llmtop.model import TrackId
from tests.analysis.verdict_scenes import API, Scene, Thread, findings_of

ENGINE = TrackId("process:7")


def launching(**calls: tuple[float, float]) -> Scene:
    """An engine on the CPU all the time, by calls a second and the time in them (s a second) of each function."""
    counters = {}
    for name, (count, seconds) in calls.items():
        counters[ENGINE, v.labelled(v.LIBRARY_COUNT, name)] = count
        counters[ENGINE, v.labelled(v.LIBRARY_TIME, name)] = seconds
    return Scene(threads=(API, Thread(on_cpu=0.98, sync=0.04)), gpus=(45.0,), counters=counters)


def test_calls_of_the_driver_are_added_up_and_not_those_of_the_runtime_that_end_in_them() -> None:
    scene = launching(
        cuLaunchKernel=(30_000, 0.2),
        cuLaunchKernelEx=(10_000, 0.1),
        cuGraphLaunch=(20, 0.001),
        cudaLaunchKernel=(40_000, 0.4),
    )
    work = launch_work(scene.trace(), ENGINE)
    assert work is not None
    assert (work.kernels, work.graphs) == pytest.approx((40_000, 20))
    assert work.share == pytest.approx(0.301)
    assert work.lacks_graphs
    assert work.text == "launches some 40,000 kernels and next to no CUDA graphs a second (metrics)"


def test_the_runtime_counts_where_the_driver_has_no_probes() -> None:
    work = launch_work(launching(cudaLaunchKernel=(900, 0.004), cudaGraphLaunch=(300, 0.003)).trace(), ENGINE)
    assert work is not None
    assert (work.kernels, work.graphs) == pytest.approx((900, 300))
    assert not work.lacks_graphs
    assert work.text == "launches some 900 kernels and 300 CUDA graphs a second (metrics)"


@pytest.mark.parametrize("calls", [{}, {"cuStreamSynchronize": (100.0, 0.1)}, {"cuLaunchKernel": (0.0, 0.0)}])
def test_without_launches_nothing_is_known(calls: dict[str, tuple[float, float]]) -> None:
    assert launch_work(launching(**calls).trace(), ENGINE) is None


def test_a_verdict_names_launches_where_they_are_much_of_the_work() -> None:
    (finding,) = findings_of(cpu_bound, launching(cuLaunchKernel=(80_000, 0.4)).trace())
    assert "of the time, much of it launching kernels, GPU 45 % busy" in finding.message
    assert "EngineCore: launches some 80,000 kernels and no CUDA graphs a second (metrics)" in finding.evidence
    assert finding.action == (
        "launch less: CUDA graphs, torch.compile, kernels that do more each (fused ones, larger batches); a faster core"
    )


@pytest.mark.parametrize(("share", "named"), [(0.24, False), (0.26, True)])
def test_launches_of_a_quarter_of_the_time_are_much(share: float, named: bool) -> None:
    (finding,) = findings_of(cpu_bound, launching(cuLaunchKernel=(50_000, share)).trace())
    assert ("launching kernels" in finding.message) is named
    assert ("launch less" in finding.action) is named
