"""The GPU's idle time against what its thread is known to have done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.threads.idle_causes import ESTIMATE, IdleCauses, idle_causes
from llmtop.model import Metric, Trace, Track, TrackId, TrackKind, Unknown
from tests.analysis.probe_traces import GPU, PROCESS, SERVER, THREAD, Probed, Rate
from tests.live_traces import AMPERE, NO_GPU, Scene, live_trace

CLOCKS: Mapping[Metric, Rate] = {v.THREAD_ON_CPU: 0.6, v.THREAD_RUN_QUEUE: 0.3}
ALL_SEEN = {
    (THREAD, v.labelled(v.THREAD_BLOCKED, "futex")): 0.1,
    (PROCESS, v.labelled(v.LIBRARY_COUNT, "cuLaunchKernel")): 100.0,
}
HALF_IDLE = {(GPU, v.GPU_ACTIVE): 50.0}
WORKER = ids.thread(9, 9)


def causes_of(trace: Trace) -> IdleCauses:
    causes = idle_causes(trace)
    assert isinstance(causes, IdleCauses)
    return causes


def shares(causes: IdleCauses) -> dict[str, float]:
    return {row.cause: row.of_idle for row in causes.rows}


def test_idle_time_is_split_as_the_thread_spent_it() -> None:
    causes = causes_of(Probed(CLOCKS, probes=ALL_SEEN, gauges=HALF_IDLE).trace(20))
    assert shares(causes) == pytest.approx({"working": 0.6, "run_queue": 0.3, "blocked:futex": 0.1}, abs=0.01)
    assert causes.idle_share == pytest.approx(0.5)
    assert causes.idle_s == pytest.approx(10)
    assert causes.coverage == 1.0
    assert ESTIMATE in causes.notes
    assert causes.sources == ("GPU busy (GPM)", "EngineCore/engine: schedstat")
    assert causes.sentence == (
        "GPU 0 idle 50 % of the last 20 s: 60 % of it EngineCore/engine worked on the CPU, 30 % waited for a CPU, "
        "10 % was blocked (futex)"
    )


def test_idle_time_meets_what_was_done_at_the_same_instant() -> None:
    # The GPU idles in the first half, when the thread works; in the second half both swap.
    clocks: Mapping[Metric, Rate] = {v.THREAD_ON_CPU: lambda s: 1.0 if s <= 10 else 0.0, v.THREAD_RUN_QUEUE: 0.0}
    gauges = {(GPU, v.GPU_ACTIVE): lambda s: 0.0 if s <= 10 else 100.0}
    causes = causes_of(Probed(clocks, probes=ALL_SEEN, gauges=gauges).trace(20))
    assert causes.idle_share == pytest.approx(0.5, abs=0.03)
    assert shares(causes)["working"] == pytest.approx(1.0, abs=0.03)


def test_without_probes_on_cpu_time_is_not_called_work() -> None:
    causes = causes_of(Probed(CLOCKS, gauges=HALF_IDLE, observed=None).trace(20))
    assert shares(causes) == pytest.approx({"on_cpu": 0.6, "run_queue": 0.3, "blocked:not sampled": 0.1})
    assert "polling cannot be told from work" in causes.notes


def test_no_request_is_no_fault_of_the_cpu() -> None:
    gauges: dict[tuple[TrackId, Metric], Rate] = {
        **HALF_IDLE,
        (SERVER, v.SERVER_RUNNING): lambda s: 0.0 if s <= 10 else 4.0,
        (SERVER, v.SERVER_WAITING): 0.0,
    }
    causes = causes_of(Probed(CLOCKS, probes=ALL_SEEN, gauges=gauges).trace(20))
    assert shares(causes)["no_request"] == pytest.approx(0.5, abs=0.01)
    assert [row.is_demand for row in causes.rows if row.cause == "no_request"] == [True]
    assert not any("requests are not known" in note for note in causes.notes)


def test_quota_comes_before_the_run_queue() -> None:
    counters = {(PROCESS, v.CGROUP_THROTTLED): 0.2}
    causes = causes_of(Probed(CLOCKS, counters, ALL_SEEN, HALF_IDLE).trace(20))
    assert shares(causes)["throttled"] == pytest.approx(0.2)
    assert shares(causes)["run_queue"] == pytest.approx(0.1)
    # cpu.stat adds up over CPUs: no more than the thread's own queueing can be its own
    much = causes_of(Probed(CLOCKS, {(PROCESS, v.CGROUP_THROTTLED): 1.7}, ALL_SEEN, HALF_IDLE).trace(20))
    assert shares(much)["throttled"] == pytest.approx(0.3)
    assert "run_queue" not in shares(much)


def test_waiting_for_the_gpu_is_named_so() -> None:
    probes = {
        (THREAD, v.THREAD_CUDA_SYNC): 0.5,
        (THREAD, v.labelled(v.THREAD_BLOCKED, "cuda_sync")): 0.1,
    }
    causes = causes_of(Probed(CLOCKS, probes=probes, gauges=HALF_IDLE).trace(20))
    in_sync = 0.1 + 0.4 * 0.6 / 0.9  # asleep, and on the CPU; the rest of those calls it queued for one
    expected = {"cuda_sync": in_sync, "run_queue": 0.3, "working": 0.6 - 0.4 * 0.6 / 0.9}
    assert shares(causes) == pytest.approx(expected, abs=0.01)


def test_collecting_garbage_is_named_so_and_is_no_work() -> None:
    probes = ALL_SEEN | {(THREAD, v.THREAD_COLLECTING): 0.5}
    causes = causes_of(
        Probed({v.THREAD_ON_CPU: 0.9, v.THREAD_RUN_QUEUE: 0.0}, probes=probes, gauges=HALF_IDLE).trace(20)
    )
    assert shares(causes)["collecting"] == pytest.approx(0.5, abs=0.03)
    assert shares(causes)["working"] == pytest.approx(0.4, abs=0.03)
    assert "EngineCore/engine collected Python's garbage" in {row.title for row in causes.rows}


def test_polling_is_not_work() -> None:
    spins = {(THREAD, v.labelled(v.THREAD_SPINS, "sched_yield")): 1e5, (PROCESS, v.SYSCALL_COUNT): 1.0}
    causes = causes_of(
        Probed({v.THREAD_ON_CPU: 0.95, v.THREAD_RUN_QUEUE: 0.0}, probes=ALL_SEEN | spins, gauges=HALF_IDLE).trace(20)
    )
    assert shares(causes)["polling"] == pytest.approx(0.95, abs=0.02)


def test_seconds_without_the_thread_are_unknown() -> None:
    base = Probed(CLOCKS, probes=ALL_SEEN, gauges=HALF_IDLE)
    trace = base.trace(40)
    key = (THREAD, v.THREAD_ON_CPU.name)
    cut = replace(trace, series={**trace.series, key: trace.series[key].between(trace.end_ns - 10**10, trace.end_ns)})
    causes = causes_of(cut)
    assert shares(causes)["unknown"] == pytest.approx(0.75, abs=0.03)
    assert causes.coverage == pytest.approx(0.25, abs=0.03)
    assert sum(row.idle_s for row in causes.rows) == pytest.approx(causes.idle_s)


def test_a_worker_that_waits_is_charged_to_the_engine() -> None:
    tracks = (
        Track(ids.process(9), TrackKind.PROCESS, "Worker_TP0"),
        Track(WORKER, TrackKind.THREAD, "Worker_TP0", ids.process(9), {"role": "Worker_TP0"}),
        Track(ids.gpu_process(ids.gpu(0), 9), TrackKind.GPU_PROCESS, "Worker_TP0"),
    )
    counters = {
        (WORKER, v.THREAD_ON_CPU): 0.2,
        (WORKER, v.THREAD_RUN_QUEUE): 0.0,
        (WORKER, v.labelled(v.THREAD_STATE_SAMPLES, "futex")): 3.0,
        (WORKER, v.labelled(v.THREAD_STATE_SAMPLES, "gpu_driver")): 1.0,
    }
    causes = causes_of(Probed(CLOCKS, counters, ALL_SEEN, HALF_IDLE, tracks=tracks).trace(20))
    by_thread = {(row.thread, row.cause): row.of_idle for row in causes.rows}
    expected = {
        ("Worker_TP0", "on_cpu"): 0.2,
        ("Worker_TP0", "blocked:gpu_driver"): 0.2,
        ("EngineCore/engine", "working"): 0.6 * 0.6,
        ("EngineCore/engine", "run_queue"): 0.6 * 0.3,
        ("EngineCore/engine", "blocked:futex"): 0.6 * 0.1,
    }
    assert by_thread == pytest.approx(expected, abs=0.01)


def test_each_missing_side_has_its_reason() -> None:
    assert idle_causes(live_trace(NO_GPU)) == Unknown("no NVIDIA driver library was found", "install the NVIDIA driver")
    assert isinstance(idle_causes(live_trace(Scene(has_threads=False))), Unknown)
    assert isinstance(idle_causes(live_trace(ticks=1)), Unknown)
    assert isinstance(idle_causes(live_trace(), ids.gpu(5)), Unknown)


def test_gpu_without_gpm_falls_back_to_its_duty_cycle() -> None:
    causes = causes_of(live_trace(AMPERE))
    assert causes.sources[0] == "GPU busy (NVML)"
    assert causes.idle_s == 0
    assert causes.rows == ()
    assert causes.sentence == "GPU 0 idle 0 % of the last 60 s"


_ROUNDING = 1e-12
"""Of a sum of shares that are one together."""


@settings(deadline=None, max_examples=40)
@given(
    activity=st.lists(st.one_of(st.none(), st.floats(0, 100)), min_size=8, max_size=20),
    on_cpu=st.lists(st.floats(0, 1), min_size=20, max_size=20),
    run_queue=st.floats(0, 1),
    throttled=st.floats(0, 3),
    sync=st.floats(0, 1),
    running=st.lists(st.sampled_from([0.0, 2.0]), min_size=20, max_size=20),
)
def test_causes_add_up_to_the_idle_time(
    activity: list[float | None],
    on_cpu: list[float],
    run_queue: float,
    throttled: float,
    sync: float,
    running: list[float],
) -> None:
    probed = Probed(
        {v.THREAD_ON_CPU: lambda s: on_cpu[s % 20], v.THREAD_RUN_QUEUE: run_queue},
        {(PROCESS, v.CGROUP_THROTTLED): throttled},
        {**ALL_SEEN, (THREAD, v.THREAD_CUDA_SYNC): sync},
        {
            (GPU, v.GPU_ACTIVE): lambda s: activity[s % len(activity)],
            (SERVER, v.SERVER_RUNNING): lambda s: running[s % 20],
            (SERVER, v.SERVER_WAITING): 0.0,
        },
    )
    causes = idle_causes(probed.trace(20))
    if isinstance(causes, Unknown):
        assert sum(value is not None for value in activity) < 5
        return
    assert sum(row.idle_s for row in causes.rows) == pytest.approx(causes.idle_s)
    assert causes.idle_s <= causes.observed_s * (1 + _ROUNDING)
    assert causes.observed_s <= causes.window_s
    assert causes.covered_s <= causes.observed_s
    assert all(row.idle_s > 0 for row in causes.rows)
    if causes.rows:
        assert sum(row.of_idle for row in causes.rows) == pytest.approx(1.0)
        assert sum(row.of_window for row in causes.rows) == pytest.approx(causes.idle_share)
