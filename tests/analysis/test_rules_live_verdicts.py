"""Each verdict at the edge of each of its thresholds, and without each of its signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules import (
    api_bound,
    cgroup_throttled,
    cpu_bound,
    engine_starved,
    gil_bound,
    gpu_bound,
    gpu_shared,
    idle_polling,
    kv_bound,
    model_on_cpu,
    paging,
    queue_standing,
    run_queue_starvation,
    straggler,
)
from llmtop.analysis.rules.base import Rule
from llmtop.analysis.rules.limits import limit as limit_of
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.rules.thread_signals import found_at_gil, threads
from llmtop.model import (
    NS_PER_S,
    Fact,
    Finding,
    Missing,
    Origin,
    Reading,
    Series,
    Severity,
    Trace,
    Track,
    TrackKind,
    Unknown,
    What,
)
from llmtop.servers.registry import BY_KIND
from llmtop.session import Recorder
from llmtop.settings import facts, told
from tests.analysis.verdict_scenes import (
    API,
    API_BOUND,
    CPU_BOUND,
    CPU_BOUND_UNSEEN,
    CPU_ONLY,
    CPU_ONLY_PROMPTS,
    CPU_ONLY_SATURATED,
    EVICTED,
    GIL,
    GPU_BOUND_ASLEEP,
    GPU_BOUND_SPINNING,
    GPU_BOUND_UNSEEN,
    KV_FULL,
    ON_DISK,
    POLLING,
    SATURATED,
    STARVED,
    STRAGGLER,
    THROTTLED,
    Scene,
    Thread,
    findings_of,
    ranks,
)

NO_ENDPOINT: dict[str, object] = {"running": None, "waiting": None}


def found(rule: Rule, scene: Scene) -> list[Finding]:
    return findings_of(rule, scene.trace())


def only(rule: Rule, scene: Scene) -> Finding:
    (finding,) = found(rule, scene)
    return finding


def last(scene: Scene, **changes: object) -> Scene:
    """The scene with its last thread changed."""
    *others, thread = scene.threads
    return scene.but(threads=(*others, replace(thread, **changes)))  # type: ignore[arg-type]


def first(scene: Scene, **changes: object) -> Scene:
    """The scene with its first thread changed."""
    thread, *others = scene.threads
    return scene.but(threads=(replace(thread, **changes), *others))  # type: ignore[arg-type]


# -- 1: the engine waits for a CPU ---------------------------------------------------------------------------------


def test_starved_names_the_thread_and_what_it_costs() -> None:
    finding = only(run_queue_starvation, STARVED)
    assert finding.message == "EngineCore waits for a CPU 12 % of the time, GPU 55 % busy"
    assert finding.evidence[0] == "EngineCore: run-queue wait 12 % (schedstat)"
    assert "running 8 requests (metrics)" in finding.evidence
    assert "GPU 0: GPU busy 55 % (NVML)" in finding.evidence


@pytest.mark.parametrize(("share", "speaks"), [(0.049, False), (0.051, True)])
def test_starved_from_five_per_cent_on(share: float, speaks: bool) -> None:
    assert bool(found(run_queue_starvation, last(STARVED, run_queue=share))) == speaks


@pytest.mark.parametrize(("sm", "speaks"), [(79.0, True), (81.0, False)])
def test_starved_only_where_the_gpu_waits(sm: float, speaks: bool) -> None:
    assert bool(found(run_queue_starvation, STARVED.but(gpus=(sm,)))) == speaks


@pytest.mark.parametrize(
    ("change", "speaks"), [({"dram": 59.0}, True), ({"dram": 61.0}, False), ({"tensor": 61.0}, False)]
)
def test_a_gpu_at_a_roof_waits_for_nobody(change: dict[str, float], speaks: bool) -> None:
    assert bool(found(run_queue_starvation, STARVED.but(**change))) == speaks


@pytest.mark.parametrize(("running", "speaks"), [(0.9, False), (1.0, True)])
def test_starved_only_with_work_at_hand(running: float, speaks: bool) -> None:
    assert bool(found(run_queue_starvation, STARVED.but(running=running))) == speaks


@pytest.mark.parametrize(("on_cpu", "speaks"), [(0.05, True), (0.35, False)])
def test_starved_for_longer_than_there_was_no_request(on_cpu: float, speaks: bool) -> None:
    """None for a quarter of the time: of the rest it must sleep half of the window."""
    trace = ON_DISK.but(threads=(API, Thread(on_cpu=on_cpu, asleep_in="disk")), waiting=0.0).trace()
    running = trace.get(ids.server(1), v.SERVER_RUNNING)
    assert running is not None
    gaps: list[tuple[int, float | None]] = [(t, 4.0 if i % 4 else 0.0) for i, (t, _) in enumerate(running)]
    stepped = Series.of(running.track, running.metric, running.source, gaps)
    changed = replace(trace, series={**trace.series, (stepped.track, stepped.metric.name): stepped})
    assert bool(findings_of(engine_starved, changed)) is speaks


@pytest.mark.parametrize("unknown", [{"gpus": ()}, NO_ENDPOINT | {"gpus": (4.0,)}])
def test_without_gpu_or_server_others_must_queue_too(unknown: dict[str, None]) -> None:
    alone = last(STARVED.but(**unknown), involuntary=0.0)
    assert not found(run_queue_starvation, alone)
    assert (
        only(run_queue_starvation, alone.but(pressure=11.0)).evidence[-1]
        == "CPU pressure (PSI some, 10 s) 11 % (metrics)"
    )
    assert not found(run_queue_starvation, alone.but(pressure=9.0))
    slow = only(run_queue_starvation, alone.but(queue_latency_ns={7: 12e6}))
    assert slow.evidence[-1].startswith("run-queue latency p99 4 to 16 ms (eBPF)")
    assert not found(run_queue_starvation, alone.but(queue_latency_ns={7: 2e6}))
    assert found(run_queue_starvation, last(alone, involuntary=10.1))
    assert not found(run_queue_starvation, last(alone, involuntary=9.9))


@pytest.mark.parametrize(
    ("cores", "words"), [(0, "cap thread pools"), (1, "cap thread pools"), (2, "others take the CPUs")]
)
def test_starved_by_itself_or_by_others(cores: int, words: str) -> None:
    """Its threads use 0.8 cores."""
    finding = only(run_queue_starvation, STARVED.but(cores=cores))
    assert words in finding.action
    said = finding.evidence[-1] == f"all threads of the server together: 0.8 of {cores} cores (schedstat)"
    assert said == bool(cores)


@pytest.mark.parametrize(("duty", "speaks"), [(70.0, True), (79.0, True), (81.0, False)])
def test_the_duty_cycle_tells_too_whether_the_gpu_waits(duty: float, speaks: bool) -> None:
    """Without GPM: on an H100 it was within 4 points of the GR engine's activity (benchmarks/busy_truth.py)."""
    unseen = STARVED.but(gpus=(), gauges={("gpu:0", v.GPU_UTIL): duty}, more_gpus=(0,))
    assert bool(found(run_queue_starvation, last(unseen, involuntary=0.0))) == speaks


def test_a_worker_that_waits_for_a_cpu_is_named() -> None:
    worker = Thread("Worker_TP1", 101, 101, on_cpu=0.5, run_queue=0.2)
    finding = only(run_queue_starvation, STARVED.but(threads=(API, Thread(), worker), gpus=(40.0, 45.0)))
    assert finding.subject == "Worker_TP1"


def test_only_threads_that_run_the_model_starve_it() -> None:
    front = Thread("APIServer", 5, 5, on_cpu=0.5, run_queue=0.4, involuntary=90)
    assert not found(run_queue_starvation, STARVED.but(threads=(front, Thread(on_cpu=0.6))))


def test_an_api_server_short_of_cpu_starves_an_engine_that_waits_for_it() -> None:
    scene = STARVED.but(threads=(Thread("APIServer", 5, 5, on_cpu=0.48, run_queue=0.52), Thread(on_cpu=0.05)))
    (finding,) = diagnose(scene.but(gpus=(9.0,)).trace()).findings
    assert finding.message == "APIServer waits for a CPU 52 % of the time, GPU 9 % busy"
    assert "APIServer: 52 % queue, 48 % CPU (schedstat, causes measured at each sleep)" in finding.evidence


# -- 2: throttled --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "severity"), [(0.099, Severity.WARNING), (0.101, Severity.ERROR)])
def test_throttled_is_grave_from_a_tenth_on(share: float, severity: Severity) -> None:
    finding = only(cgroup_throttled, THROTTLED.but(throttled=share))
    assert finding.severity is severity
    assert f"{share:.2g} s per second" in finding.message


@pytest.mark.parametrize("throttled", [0.0, None])
def test_not_throttled(throttled: float | None) -> None:
    assert not found(cgroup_throttled, THROTTLED.but(throttled=throttled))


STEADY = last(THROTTLED, run_queue=0.04).but(itl=0.02, tokens=900.0)


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        ({"itl": (0.02, 0.024)}, None),
        ({"itl": (0.02, 0.026)}, "inter-token latency 26.0 ms, was 20.0 ms (metrics)"),
        ({"tokens": (900.0, 730.0)}, None),
        ({"tokens": (900.0, 700.0)}, "output 700 tok/s, was 900 tok/s (metrics)"),
        ({"tokens": (900.0, 700.0), "running": (9.0, 8.0)}, None),
        ({"tokens": (900.0, 0.0), "running": 0.0}, None),
    ],
)
def test_throttling_needs_its_effect(change: dict[str, object], evidence: str | None) -> None:
    """Later tokens, or fewer under the same load."""
    findings = found(cgroup_throttled, STEADY.but(**change))
    assert [one.evidence[-1] for one in findings] == ([] if evidence is None else [evidence])


@pytest.mark.parametrize(("share", "speaks"), [(0.049, False), (0.051, True)])
def test_a_throttled_thread_stands_still(share: float, speaks: bool) -> None:
    assert bool(found(cgroup_throttled, last(STEADY, run_queue=share))) == speaks


def test_throttling_explains_the_run_queue() -> None:
    assert found(run_queue_starvation, THROTTLED)
    assert [one.rule for one in diagnose(THROTTLED.trace()).findings] == ["cgroup-throttled"]


# -- 3: the GIL ----------------------------------------------------------------------------------------------------


def test_gil_by_the_clocks() -> None:
    finding = only(gil_bound, GIL)
    assert finding.message == "GIL-bound: 2 Python threads of EngineCore share one core, 170 waits/s"
    assert finding.evidence[:2] == (
        "GIL waits 170 /s (eBPF), each 5 ms in vain",
        "2 threads make 0.97 cores together and else wait in futex: EngineCore 55 %, output 42 % (schedstat)",
    )


def gil_threads(*shares: float | None, on_cpu: Sequence[float] = (0.2, 0.2), asleep_in: str = "epoll") -> Scene:
    """Threads that had the GIL in so many of py-spy's looks."""
    threads = (
        Thread(tid=7 + i, name=f"t{i}", on_cpu=cpu, asleep_in=asleep_in, gil=gil)
        for i, (gil, cpu) in enumerate(zip(shares, on_cpu, strict=True))
    )
    return GIL.but(threads=(API, *threads))


@pytest.mark.parametrize(
    ("shares", "speaks"),
    [((0.5, 0.45), True), ((0.74, 0.09), False), ((0.72, 0.11), True), ((0.4, 0.39), False), ((0.41, 0.4), True)],
)
def test_gil_by_its_owners(shares: tuple[float, float], speaks: bool) -> None:
    """Two have it a tenth of the time each, and somebody has it 80 % of the time."""
    findings = found(gil_bound, gil_threads(*shares))
    assert bool(findings) == speaks
    assert all("the GIL goes round: t0" in one.evidence[1] and "(py-spy)" in one.evidence[1] for one in findings)


@pytest.mark.parametrize(("looks", "speaks"), [(4, False), (5, True)])
def test_gil_owners_need_five_looks(looks: int, speaks: bool) -> None:
    scene = gil_threads(0.5, 0.45).but(looks_per_s=(looks + 0.01) / 15)
    assert bool(found(gil_bound, scene)) == speaks


@pytest.mark.parametrize(
    ("on_cpu", "speaks"),
    [((0.5, 0.45), True), ((0.4, 0.39), False), ((0.41, 0.4), True), ((0.6, 0.55), False), ((0.9, 0.09), False)],
)
def test_gil_rivals_share_one_core(on_cpu: tuple[float, float], speaks: bool) -> None:
    scene = gil_threads(None, None, on_cpu=on_cpu, asleep_in="futex")
    assert bool(found(gil_bound, scene)) == speaks


def test_gil_rivals_sleep_in_futex() -> None:
    assert not found(gil_bound, gil_threads(None, None, on_cpu=(0.5, 0.45), asleep_in="socket"))


@pytest.mark.parametrize(("rate", "speaks"), [(19.0, False), (21.0, True)])
def test_gil_waits_from_twenty_a_second_on(rate: float, speaks: bool) -> None:
    assert bool(found(gil_bound, GIL.but(gil_waits={7: rate}))) == speaks


def test_gil_waits_of_another_process_do_not_count() -> None:
    assert not found(gil_bound, GIL.but(gil_waits={5: 170.0}))


def test_gil_does_not_matter_to_a_busy_gpu() -> None:
    assert not found(gil_bound, GIL.but(gpus=(93.0,)))
    assert not found(gil_bound, GIL.but(running=0.0))


# -- 4: the API server ---------------------------------------------------------------------------------------------


def test_api_bound() -> None:
    finding = only(api_bound, API_BOUND)
    assert finding.message == "API-bound: APIServer is on its CPU 98 % of the time, EngineCore waits for it"
    assert finding.evidence[:2] == (
        "APIServer: on-CPU 98 % (schedstat)",
        "EngineCore: 90 % epoll, 10 % CPU (schedstat, causes measured at each sleep)",
    )


@pytest.mark.parametrize(("on_cpu", "speaks"), [(0.89, False), (0.91, True)])
def test_api_bound_from_ninety_per_cent_on(on_cpu: float, speaks: bool) -> None:
    assert bool(found(api_bound, first(API_BOUND, on_cpu=on_cpu))) == speaks


@pytest.mark.parametrize(("on_cpu", "speaks"), [(0.1, True), (0.89, True), (0.93, False)])
def test_api_bound_while_the_engine_has_time_left(on_cpu: float, speaks: bool) -> None:
    assert bool(found(api_bound, last(API_BOUND, on_cpu=on_cpu, sync=0.0))) == speaks


@pytest.mark.parametrize(("seconds", "speaks"), [(0.9, False), (1.0, True)])
def test_a_slow_scrape_shows_an_api_server_at_its_limit(seconds: float, speaks: bool) -> None:
    """Whatever engine and GPU do: what is streamed to clients comes from the same event loop."""
    busy = last(API_BOUND, on_cpu=0.97).but(gauges={(ids.endpoint(1), v.ENDPOINT_TIME): seconds}, gpus=(95.0,))
    trace = busy.trace()
    tracks = {**trace.tracks, ids.endpoint(1): Track(ids.endpoint(1), TrackKind.ENDPOINT, ":1")}
    findings = findings_of(api_bound, replace(trace, tracks=tracks))
    assert [one.message for one in findings] == (
        ["API-bound: APIServer is on its CPU 98 % of the time, its own metrics take 1.0 s"] if speaks else []
    )


def test_an_api_server_at_its_limit_leads_over_an_engine_that_computes() -> None:
    threads = (Thread("APIServer", 5, 5, on_cpu=0.99), Thread(on_cpu=0.7, run_queue=0.0, launches=900, sync=0.01))
    (finding,) = diagnose(API_BOUND.but(threads=threads, gpus=(30.0,)).trace()).findings
    assert finding.rule == "api-bound"


@pytest.mark.parametrize("cause", ["other", "not sampled"])
def test_an_engine_whose_sleeps_have_no_cause_is_not_said_to_wait_for_a_lock(cause: str) -> None:
    """As when a tracer has given up its system-call probes."""
    (finding,) = diagnose(last(API_BOUND, asleep_in=cause, on_cpu=0.05).trace()).findings
    assert finding.rule == "api-bound"


@pytest.mark.parametrize(("cause", "speaks"), [("futex", True), ("poll", True), ("disk", False), ("gpu_driver", False)])
def test_api_bound_while_the_engine_waits_for_input(cause: str, speaks: bool) -> None:
    assert bool(found(api_bound, last(API_BOUND, asleep_in=cause))) == speaks


def test_api_bound_when_the_engine_polls_for_input() -> None:
    scene = last(API_BOUND, on_cpu=0.97, yields=300_000, launches=0.0, sync=None)
    assert only(api_bound, scene).evidence[1].startswith("EngineCore: 97 % CPU")


@pytest.mark.parametrize(("sm", "speaks"), [(79.0, True), (81.0, False)])
def test_not_api_bound_while_the_gpu_works(sm: float, speaks: bool) -> None:
    assert bool(found(api_bound, API_BOUND.but(gpus=(sm,)))) == speaks


def test_a_server_of_one_process_is_not_api_bound() -> None:
    assert not found(api_bound, API_BOUND.but(threads=API_BOUND.threads[:1]))


# -- CPU-bound -----------------------------------------------------------------------------------------------------


def test_cpu_bound() -> None:
    finding = only(cpu_bound, CPU_BOUND)
    assert finding.message == "CPU-bound: EngineCore computes 94 % of the time, GPU 62 % busy, running 8 requests"
    assert "EngineCore: in CUDA synchronisation 4.0 % (eBPF)" in finding.evidence


@pytest.mark.parametrize(
    ("rule", "scene", "did"), [(cpu_bound, CPU_BOUND, "worked on the CPU"), (engine_starved, ON_DISK, "disk")]
)
def test_what_was_done_while_the_gpu_idled_is_quoted(rule: Rule, scene: Scene, did: str) -> None:
    (line,) = (one for one in only(rule, scene).evidence if one.startswith("GPU 0 idle"))
    assert f"of it EngineCore was blocked ({did})" in line or f"of it EngineCore {did}" in line
    assert line.endswith("(estimated second by second)")


@pytest.mark.parametrize(
    ("busy", "severities"),
    [(79.0, [Severity.WARNING]), (81.0, [Severity.INFO]), (89.0, [Severity.INFO]), (91.0, [])],
)
def test_cpu_bound_with_probes_below_eighty_per_cent(busy: float, severities: list[Severity]) -> None:
    """Of a GPU that rests for less than a fifth of the time it is told what there is to be had, and no fault."""
    assert [one.severity for one in found(cpu_bound, CPU_BOUND.but(gpus=(busy,)))] == severities


@pytest.mark.parametrize(("sync", "is_told"), [(0.22, True), (0.24, False)])
def test_what_the_cpu_can_give_is_told_of_a_thread_that_works_for_three_quarters_of_the_time(
    sync: float, is_told: bool
) -> None:
    findings = found(cpu_bound, last(CPU_BOUND, sync=sync).but(gpus=(85.0,)))
    assert [one.message for one in findings] == (
        ["the GPU rests 15 % of the time, and EngineCore is at work 76 %"] if is_told else []
    )


@pytest.mark.parametrize(
    ("busy", "severities"),
    [(49.0, [Severity.WARNING]), (51.0, [Severity.INFO]), (79.0, [Severity.INFO]), (81.0, []), (97.0, [])],
)
def test_without_probes_the_gpu_must_idle_half_of_the_time(busy: float, severities: list[Severity]) -> None:
    assert [one.severity for one in found(cpu_bound, CPU_BOUND_UNSEEN.but(gpus=(busy,)))] == severities


def test_what_the_cpu_can_give_at_most_is_told_where_nobody_sees_whether_it_works_or_waits() -> None:
    finding = only(cpu_bound, CPU_BOUND_UNSEEN.but(gpus=(70.0,)))
    assert (
        finding.message
        == "the GPU rests 30 % of the time, and EngineCore is on its CPU 98 %: it works, or waits for the GPU"
    )
    assert finding.action.startswith("30 % is what the CPU's side can give at most: cut CPU work per step")
    assert (
        "which of both is not seen: no probe tells yet whether its thread works or waits for the GPU"
        in finding.evidence
    )


@pytest.mark.parametrize(("sync", "sm", "speaks"), [(0.09, 70.0, True), (0.11, 70.0, False), (0.11, 45.0, True)])
def test_a_loop_that_waits_for_the_gpu_is_cpu_bound_only_if_it_idles(sync: float, sm: float, speaks: bool) -> None:
    findings = found(cpu_bound, last(CPU_BOUND, sync=sync).but(gpus=(sm,)))
    assert any(one.severity is Severity.WARNING for one in findings) == speaks


@pytest.mark.parametrize(("sync", "speaks"), [(0.47, True), (0.49, False)])
def test_cpu_bound_is_mostly_at_work(sync: float, speaks: bool) -> None:
    """Of 98 % on-CPU, what is spent spinning in cuStreamSynchronize is the GPU's time."""
    assert bool(found(cpu_bound, last(CPU_BOUND, sync=sync).but(gpus=(40.0,)))) == speaks


@pytest.mark.parametrize(("on_cpu", "speaks"), [(0.89, False), (0.91, True)])
def test_cpu_bound_never_rests(on_cpu: float, speaks: bool) -> None:
    assert bool(found(cpu_bound, last(CPU_BOUND_UNSEEN, on_cpu=on_cpu))) == speaks


def test_polling_is_not_work() -> None:
    scene = last(CPU_BOUND_UNSEEN.but(probed=True, dram=10.0), yields=400_000)
    assert not found(cpu_bound, scene)
    assert not diagnose(scene.trace()).findings


@pytest.mark.parametrize(("yields", "speaks"), [(48_000, True), (50_000, False)])
def test_a_worker_that_spins_between_its_launches_is_not_at_work(yields: float, speaks: bool) -> None:
    """50,000 yields per second on the CPU, of which it has 98 %: how much of that time they take cannot be told."""
    assert bool(found(cpu_bound, last(CPU_BOUND, yields=yields))) == speaks


def test_cpu_bound_without_requests_is_nothing() -> None:
    for scene in (CPU_BOUND, CPU_BOUND_UNSEEN, CPU_ONLY_PROMPTS):
        assert not found(cpu_bound, scene.but(running=0.0))


@pytest.mark.parametrize(
    ("scene", "change", "speaks"),
    [
        (CPU_BOUND, {"gpus": (2.0,)}, True),
        (CPU_BOUND_UNSEEN, {"gpus": (5.1,)}, True),
        (CPU_BOUND_UNSEEN, {"gpus": (4.9,)}, False),
        (CPU_BOUND_UNSEEN, {"gpus": (4.9,), "gauges": {("gpu:0", v.GPU_ACTIVE): 40.0}}, True),
        (CPU_ONLY_PROMPTS, {}, False),
    ],
)
def test_without_an_endpoint_work_shows_where_it_is_done(scene: Scene, change: dict[str, object], speaks: bool) -> None:
    """Kernels that are launched, or that a GPU is seen to run."""
    assert bool(found(cpu_bound, scene.but(**NO_ENDPOINT, **change))) == speaks


def test_a_gpu_that_is_used_and_not_seen_may_be_waited_for() -> None:
    """In a container without NVML: launches, or waits in its driver, tell that there is one."""
    probed = CPU_ONLY_PROMPTS.but(probed=True)
    assert found(cpu_bound, probed)
    assert not found(cpu_bound, last(probed, launches=100.0))
    assert not found(cpu_bound, last(probed, asleep_in="gpu_driver"))


def test_without_a_gpu_that_a_model_is_computed_is_no_fault() -> None:
    """llama-server on two CPUs: 97 % of the time on one, nothing planted."""
    finding = only(model_on_cpu, CPU_ONLY.but(cores=2))
    assert finding.severity is Severity.INFO
    assert finding.message == "the model runs on the CPU: EngineCore computes 98 % of the time, running 8 requests"
    assert "all threads of the server together: 1.2 of 2 cores (schedstat)" in finding.evidence
    assert "no GPU is seen on this machine (NVML)" in finding.evidence
    assert not found(model_on_cpu, CPU_ONLY_PROMPTS)
    assert not found(model_on_cpu, last(CPU_ONLY.but(probed=True), asleep_in="gpu_driver"))
    assert not found(model_on_cpu, CPU_ONLY.but(running=0.0))


@pytest.mark.parametrize(
    ("told", "in_use", "is_advised"), [(1.0, 1.1, True), (2.0, 1.1, False), (1.0, 1.6, False), (None, 1.1, True)]
)
def test_more_threads_are_advised_where_cpus_are_free_for_them(
    told: float | None, in_use: float, *, is_advised: bool
) -> None:
    value = Unknown("it decides by itself") if told is None else told
    told_it: dict[str, Fact] = {
        "engine_kind": "llamacpp",
        "setting.cpu_threads": value,
        "setting.cpu_threads.source": "-t 1",
        "setting.cpu_threads.change": "--threads",
    }
    scene = CPU_ONLY.but(cores=2, facts=told_it, gauges={(ids.HOST, v.HOST_CPU): in_use})
    action = only(model_on_cpu, scene).action
    assert ("compute with more threads: 1.1 of 2 CPUs are in use (--threads)" in action) == is_advised


def test_a_gpu_of_the_machine_that_the_server_does_not_use_is_advised() -> None:
    trace = CPU_ONLY.but(gpus=(0.0,)).trace()
    process = trace.tracks[ids.process(7)]
    tracks = {id: track for id, track in trace.tracks.items() if track.kind is not TrackKind.GPU_PROCESS}
    tracks[ids.process(7)] = replace(process, facts={**process.facts, "gpus_open": 0})
    (finding,) = findings_of(model_on_cpu, replace(trace, tracks=tracks))
    assert finding.action.startswith("let it use this machine's GPU")
    assert any(line.startswith("the server does not use this machine's GPU") for line in finding.evidence)


def test_a_queue_is_told_by_what_waits_at_the_sockets_where_the_server_tells_no_times() -> None:
    finding = only(queue_standing, CPU_ONLY_SATURATED)
    assert finding.message == (
        "saturated: 6 requests wait, 2 of them at least for 1 s or longer; all 2 places are taken"
    )
    assert "let more requests run at once (--parallel)" in finding.action
    told = {("endpoint:1", v.ENDPOINT_UNANSWERED): 2.4}
    assert not found(queue_standing, CPU_ONLY_SATURATED.but(gauges=told)), "those that run may be the ones"


def test_launches_are_quoted_where_requests_cannot_be() -> None:
    assert "CUDA launches 4000 /s (eBPF)" in only(cpu_bound, CPU_BOUND.but(**NO_ENDPOINT)).evidence


def test_a_worker_may_be_the_one_that_is_cpu_bound() -> None:
    engine, worker = Thread(on_cpu=0.1, asleep_in="futex"), Thread("Worker_TP0", 101, 101, on_cpu=0.97, sync=0.02)
    scene = CPU_BOUND.but(threads=(API, engine, worker), gpus=(0.0, 30.0))
    assert only(cpu_bound, scene).subject == "Worker_TP0"
    assert not found(cpu_bound, scene.but(threads=(API, replace(engine, on_cpu=0.6), worker)))


# -- 5: GPU-bound --------------------------------------------------------------------------------------------------


def test_gpu_bound_says_that_all_is_well() -> None:
    finding = only(gpu_bound, GPU_BOUND_SPINNING)
    assert finding.message == "GPU-bound, healthy: the server waits for the GPU (busy 94 % of the time)"
    assert "EngineCore: in CUDA synchronisation 83 % (eBPF)" in finding.evidence
    assert finding.severity is Severity.INFO


def test_spinning_for_the_gpu_is_not_cpu_bound() -> None:
    assert not found(cpu_bound, GPU_BOUND_SPINNING)
    assert not found(cpu_bound, GPU_BOUND_UNSEEN)


@pytest.mark.parametrize(
    ("change", "words"),
    [({}, "neither memory nor tensor"), ({"dram": 61.0}, "memory is the limit"), ({"tensor": 70.0}, "arithmetic")],
)
def test_gpu_bound_says_what_would_make_it_faster(change: dict[str, float], words: str) -> None:
    assert words in only(gpu_bound, GPU_BOUND_SPINNING.but(**change)).action


@pytest.mark.parametrize(
    ("sm", "words"),
    [(90.0, "no CPU can help; "), (64.0, "the CPU's side can give 36 % at most, in which the GPU rests; ")],
)
def test_gpu_bound_says_what_is_left_to_the_cpu(sm: float, words: str) -> None:
    assert only(gpu_bound, GPU_BOUND_SPINNING.but(gpus=(sm,))).action.startswith(words)


@pytest.mark.parametrize(("sync", "speaks"), [(0.29, False), (0.31, True)])
def test_gpu_bound_waits_a_third_of_the_time(sync: float, speaks: bool) -> None:
    assert bool(found(gpu_bound, last(GPU_BOUND_SPINNING, sync=sync).but(gpus=(85.0,)))) == speaks


@pytest.mark.parametrize(("sm", "speaks"), [(59.0, False), (61.0, True)])
def test_gpu_bound_with_probes_from_sixty_per_cent_on(sm: float, speaks: bool) -> None:
    assert bool(found(gpu_bound, GPU_BOUND_SPINNING.but(gpus=(sm,)))) == speaks


@pytest.mark.parametrize(("sm", "speaks"), [(89.0, False), (91.0, True)])
def test_gpu_bound_without_probes_from_ninety_per_cent_on(sm: float, speaks: bool) -> None:
    assert bool(found(gpu_bound, GPU_BOUND_UNSEEN.but(gpus=(sm,)))) == speaks


def test_gpu_bound_asks_for_requests_where_they_are_counted() -> None:
    for scene in (GPU_BOUND_SPINNING, GPU_BOUND_UNSEEN):
        assert found(gpu_bound, scene.but(**NO_ENDPOINT))
        assert not found(gpu_bound, scene.but(running=0.0))


def test_a_wait_in_the_driver_counts_too() -> None:
    scene = last(GPU_BOUND_UNSEEN, on_cpu=0.3, asleep_in="gpu_driver").but(gpus=(80.0,))
    assert "EngineCore: blocked 70 %: gpu_driver 70 % (sampled at each poll)" in only(gpu_bound, scene).evidence


@pytest.mark.parametrize(("share", "speaks"), [(0.049, True), (0.051, False)])
def test_gpu_bound_has_no_thread_that_waits_for_a_cpu(share: float, speaks: bool) -> None:
    assert bool(found(gpu_bound, last(GPU_BOUND_ASLEEP, run_queue=share))) == speaks


@pytest.mark.parametrize(("duty", "speaks"), [(89.0, False), (91.0, True)])
def test_the_duty_cycle_tells_too_that_the_gpu_never_rests(duty: float, speaks: bool) -> None:
    scene = GPU_BOUND_UNSEEN.but(gpus=(), gauges={("gpu:0", v.GPU_UTIL): duty}, more_gpus=(0,))
    assert bool(found(gpu_bound, scene)) == speaks


# -- 6: straggler --------------------------------------------------------------------------------------------------


def test_the_rank_that_waits_least_is_late() -> None:
    finding = only(straggler, STRAGGLER)
    assert finding.message == "Worker_TP2 is late: it waits 25 % of the time in CUDA and NCCL, its peers 70 %"
    assert finding.evidence[1] == "Worker_TP2: at work on its CPU 73 % of the time, its peers 28 % (schedstat)"
    assert finding.next_command.endswith("--pid 102")


@pytest.mark.parametrize(("late", "speaks"), [(0.51, False), (0.49, True)])
def test_late_is_a_fifth_of_the_time(late: float, speaks: bool) -> None:
    assert bool(found(straggler, STRAGGLER.but(threads=ranks(0.7, 0.7, late, 0.7)))) == speaks


def test_two_ranks_suffice() -> None:
    assert only(straggler, STRAGGLER.but(threads=ranks(0.3, 0.8), gpus=(90.0, 90.0))).subject == "Worker_TP0"


def test_a_late_rank_must_do_something_else() -> None:
    """Its clocks are the second signal: a rank whose probes see less but whose time is spent alike is not late."""
    engine, *workers = ranks(0.7, 0.7, 0.3, 0.7)
    alike = [replace(worker, on_cpu=0.2, asleep_in="cuda_sync") for worker in workers]
    assert not found(straggler, STRAGGLER.but(threads=(engine, *alike)))


def test_ranks_of_different_pipeline_stages_or_replicas_do_not_keep_step() -> None:
    for kind in ("PP", "DP"):
        threads = [replace(one, role=one.role.replace("TP", kind)) for one in STRAGGLER.threads]
        assert not found(straggler, STRAGGLER.but(threads=tuple(threads)))


def test_a_late_rank_and_its_slow_gpu_are_one_finding() -> None:
    clocks = {(f"gpu:{i}", v.GPU_SM_CLOCK): 1400.0 if i == 2 else 1980.0 for i in range(4)}
    finding = only(straggler, STRAGGLER.but(gauges=clocks))
    assert finding.subject == "Worker_TP2"
    assert finding.evidence[-1].startswith("GPU 2: SM clock 1400 MHz, its 3 peers' 1980 MHz")


def test_a_slow_gpu_alone_is_named_by_itself() -> None:
    clocks = {(f"gpu:{i}", v.GPU_SM_CLOCK): 1400.0 if i == 2 else 1980.0 for i in range(4)}
    finding = only(straggler, STRAGGLER.but(threads=ranks(0.7, 0.7, 0.7, 0.7), gauges=clocks))
    assert finding.subject == "GPU 2"


def test_ranks_are_compared_by_their_processes_calls_too() -> None:
    """Where no thread's waits are timed, the time that its process spent in NCCL and in synchronising calls is."""
    threads = tuple(
        replace(one, sync=None, on_cpu=cpu) for one, cpu in zip(ranks(0, 0, 0), (0.2, 0.3, 0.3, 0.8), strict=True)
    )
    calls = {100 + i: share for i, share in enumerate((0.6, 0.6, 0.1))}
    finding = only(straggler, STRAGGLER.but(threads=threads, gpus=(90.0,) * 3, collectives=calls))
    assert finding.subject == "Worker_TP2"
    assert finding.evidence[0] == "Worker_TP2 waits 10 % of the time in CUDA and NCCL, its peers 60 % (eBPF)"


# -- 7: KV cache ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "waiting", "speaks"), [(0.3, 1.0, True), (0.79, 0.0, False), (0.81, 0.0, True), (0.99, 255.0, True)]
)
def test_kv_bound_at_any_gauge_with_a_queue(usage: float, waiting: float, speaks: bool) -> None:
    assert bool(found(kv_bound, KV_FULL.but(kv=usage, waiting=waiting))) == speaks


# -- 8: a queue that stands ----------------------------------------------------------------------------------------


def settings_of(command: str) -> dict[str, Fact]:
    return facts(BY_KIND["vllm"], told(BY_KIND["vllm"], command.split(), {}, lambda _: None), {}, "0.26.0")


def test_saturated_says_how_long_requests_wait() -> None:
    finding = only(queue_standing, SATURATED)
    assert finding.message.startswith("saturated: 57 requests wait, for 2.90 s on average")
    assert finding.evidence[:2] == ("waiting 57 requests (metrics)", "mean time queued 2.90 s (metrics, mean of 60 s)")


def test_the_present_tense_is_of_now_and_the_time_to_a_first_token_is_called_that() -> None:
    """Of a queue that has grown the mean tells too little; the time to a first token has more in it than the queue."""
    grown = only(queue_standing, SATURATED.but(waiting=(20.0, 57.0)))
    assert grown.message.startswith("saturated: 57 requests wait, for 2.90 s on average")
    assert grown.evidence[0].startswith("waiting 54.7 requests (metrics, mean of 15 s; now 57)")
    firsts = {
        ("server:1", v.bucket(v.SERVER_TTFT, 1.0)): 0.0,
        ("server:1", v.bucket(v.SERVER_TTFT, float("inf"))): 20.0,
        ("server:1", v.total(v.SERVER_TTFT)): 60.0,
    }
    late = only(queue_standing, SATURATED.but(queued_s=None, counters=firsts))
    assert late.message.startswith("saturated: 57 requests wait, first tokens take 3.00 s on average; ")
    assert only(queue_standing, SATURATED.but(counters=firsts)).message == only(queue_standing, SATURATED).message


def test_without_latencies_the_queue_says_how_long_it_takes() -> None:
    finding = only(queue_standing, SATURATED.but(queued_s=None))
    assert finding.message.startswith("saturated: 57 requests wait, for about 2.9 s at 20.0 req/s; ")
    assert "a queue of 57 at 20.0 req/s finished (metrics) is 2.9 s" in finding.evidence[1]


@pytest.mark.parametrize(
    ("change", "speaks"),
    [
        ({"waiting": 1.9}, False),
        ({"waiting": (0.0, 57.0)}, True),
        ({"waiting": (57.0, 0.0)}, False),
        ({"queued_s": 0.4, "waiting": 4.0}, False),
        ({"seconds": 6}, False),
    ],
)
def test_saturated_needs_a_queue_that_stands_and_a_long_wait(change: dict[str, object], speaks: bool) -> None:
    assert bool(found(queue_standing, SATURATED.but(**change))) == speaks


@pytest.mark.parametrize(
    ("change", "limit", "advice"),
    [
        ({"facts": settings_of("vllm serve m"), "kv": 0.97}, "the KV cache is full", "--kv-cache-dtype fp8"),
        (
            {"facts": settings_of("vllm serve m --max-num-seqs 64"), "gpus": (30.0,)},
            "all 64 places are taken",
            "let more requests run at once (--max-num-seqs)",
        ),
        ({"facts": settings_of("vllm serve m --max-num-seqs 64"), "kv": 0.85}, "all 64 places", "would be thrown out"),
        ({"facts": settings_of("vllm serve m --max-num-seqs 64"), "dram": 80.0}, "all 64 places", "quantise"),
        ({"facts": settings_of("vllm serve m --max-num-seqs 128")}, "the GPU is busy", "replica"),
        ({"facts": settings_of("vllm serve m --max-num-seqs 128"), "gpus": (20.0,)}, "too slow", "threads"),
    ],
)
def test_saturated_names_what_is_at_its_limit(change: dict[str, object], limit: str, advice: str) -> None:
    finding = only(queue_standing, SATURATED.but(**change))
    assert limit in finding.message, finding.message
    assert advice in finding.action, finding.action
    assert len(finding.evidence) >= 3


FEW_PREEMPTED = SATURATED.but(preemptions=0.75, finished=215.0, queued_s=0.6, gpus=(30.0,))
"""A third of a percent of what ends is thrown out, beside clients that keep all places taken."""


@pytest.mark.parametrize(
    ("change", "said", "limit"),
    [
        ({}, {"queue-standing", "kv-bound"}, "all 64 places are taken"),
        ({"running": 30.0, "steps": 6.4}, {"queue-standing", "kv-bound"}, "all 64 places are taken"),
        ({"running": 30.0, "steps": 50.0}, {"queue-standing", "kv-bound"}, "too slow for its load"),
        ({"kv": 0.97}, {"queue-standing", "kv-bound"}, "all 64 places are taken"),
        ({"kv": 0.85, "running": 40.0}, {"kv-bound"}, "the KV cache is full"),
        ({"preemptions": 70.0}, {"queue-standing", "kv-bound"}, "all 64 places are taken"),
        ({"preemptions": 72.0}, {"kv-bound"}, "the KV cache is too small"),
    ],
    ids=["few", "read after a step", "free", "full and taken", "full and free", "below a third", "a third"],
)
def test_a_few_preempted_are_not_what_a_queue_waits_for(change: dict[str, object], said: set[str], limit: str) -> None:
    trace = FEW_PREEMPTED.but(facts=settings_of("vllm serve m --max-num-seqs 64"), **change).trace()
    found = {one.rule: one for one in diagnose(trace).findings if one.rule in ("queue-standing", "kv-bound")}
    assert found.keys() == said
    assert found["kv-bound"].message.startswith("KV-bound" if said == {"kv-bound"} else "KV full now and then: ")
    assert (found["kv-bound"].severity is Severity.INFO) == (len(said) == 2)
    assert limit_of(trace, ids.server(1)).name.endswith(limit)
    assert not any("let more requests run" in one.action for one in found.values())


@pytest.mark.parametrize(("running", "is_taken"), [(7.55, True), (7.4, False)])
def test_of_few_places_half_a_one_may_be_free(running: float, is_taken: bool) -> None:
    told = settings_of("vllm serve m --max-num-seqs 8")
    finding = only(queue_standing, SATURATED.but(facts=told, running=running))
    assert ("all 8 places are taken" in finding.message) == is_taken


def test_how_many_ended_in_a_step_is_said_where_it_counts() -> None:
    told = settings_of("vllm serve m --max-num-seqs 64")
    finding = only(queue_standing, FEW_PREEMPTED.but(facts=told, running=30.0, steps=6.4))
    assert any("33.6 of them end in each step" in line for line in finding.evidence)


def test_a_full_cache_is_not_missed_where_no_place_is_free() -> None:
    """Of a server that counts no preemptions."""
    scene = SATURATED.but(facts=settings_of("vllm serve m --max-num-seqs 64"), kv=0.97, preemptions=None)
    assert not found(kv_bound, scene)
    assert found(kv_bound, scene.but(running=40.0))


def test_more_at_once_is_never_advised_where_kv_or_gpu_are_short() -> None:
    told = settings_of("vllm serve m --max-num-seqs 64")
    shortages: tuple[dict[str, object], ...] = ({"kv": 0.85}, {"kv": 0.97}, {"gpus": (95.0,)})
    for short in shortages:
        assert "more requests run" not in only(queue_standing, SATURATED.but(facts=told, **short)).action


def test_kv_bound_tells_the_command_for_its_metrics() -> None:
    finding = only(kv_bound, KV_FULL)
    assert finding.next_command.startswith("curl -s http://127.0.0.1:1/metrics | grep -E 'preempt")


# -- 8: polling ----------------------------------------------------------------------------------------------------


def test_idle_polling() -> None:
    finding = only(idle_polling, POLLING)
    assert finding.message == "idle polling: scheduler at 97 % of a core, asking for work when there is none"
    assert finding.evidence == (
        "scheduler: on-CPU 97 % (schedstat), polling 97 % (eBPF)",
        "waiting 0 requests (metrics), running 0 requests (metrics)",
    )
    assert finding.action == "nothing is wrong; to free the cores: have it sleep when idle"


@pytest.mark.parametrize(("yields", "speaks"), [(47_000, False), (50_000, True)])
def test_polling_makes_many_yields(yields: float, speaks: bool) -> None:
    """50,000 per second on the CPU, of which it has 97 %."""
    assert bool(found(idle_polling, last(POLLING, yields=yields))) == speaks


@pytest.mark.parametrize(("on_cpu", "speaks"), [(0.89, False), (0.91, True)])
def test_polling_takes_a_whole_core(on_cpu: float, speaks: bool) -> None:
    assert bool(found(idle_polling, last(POLLING, on_cpu=on_cpu))) == speaks


def test_a_thread_that_launches_does_not_only_poll() -> None:
    assert not found(idle_polling, last(POLLING, launches=5.0))


def test_polling_with_requests_is_not_idle() -> None:
    assert not found(idle_polling, POLLING.but(running=(0.0, 0.2)))


@pytest.mark.parametrize(("sm", "speaks"), [(4.9, True), (5.1, False)])
def test_without_the_servers_word_the_gpu_must_be_quiet(sm: float, speaks: bool) -> None:
    assert bool(found(idle_polling, POLLING.but(running=None, waiting=None, gpus=(sm,)))) == speaks


# -- what is left --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cause", "words"),
    [("socket", "network"), ("futex", "lock"), ("gpu_driver", "PCIe"), ("nanosleep", "sleeps")],
)
def test_what_to_do_depends_on_what_the_engine_sleeps_in(cause: str, words: str) -> None:
    assert words in only(engine_starved, last(ON_DISK, asleep_in=cause)).action


def test_an_engine_that_sleeps_is_told_with_what_it_sleeps_in() -> None:
    finding = only(engine_starved, ON_DISK)
    assert finding.message == "EngineCore waits: 90 % disk, 10 % CPU (GPU 8 % busy, waiting 6 requests)"
    assert "faster disk" in finding.action


@pytest.mark.parametrize(("change", "speaks"), [({"gpus": (49.0,)}, True), ({"gpus": (51.0,)}, False)])
def test_engine_starved_below_half(change: dict[str, object], speaks: bool) -> None:
    assert bool(found(engine_starved, ON_DISK.but(**change))) == speaks


@pytest.mark.parametrize(
    ("running", "waiting", "speaks"), [(0.0, 0.9, False), (0.0, 1.0, True), (1.0, 0.0, True), (0.0, 0.0, False)]
)
def test_engine_starved_with_requests_at_hand(running: float, waiting: float, speaks: bool) -> None:
    assert bool(found(engine_starved, ON_DISK.but(running=running, waiting=waiting))) == speaks


@pytest.mark.parametrize("cause", ["disk", "futex", "socket", "child", "nanosleep"])
def test_an_engine_that_sleeps_is_named_without_a_gpu_too(cause: str) -> None:
    (finding,) = diagnose(last(ON_DISK, asleep_in=cause).but(gpus=(), probed=False).trace()).findings
    assert finding.message == f"EngineCore waits: 90 % {cause}, 10 % CPU (waiting 6 requests)"
    assert "GPU" not in finding.action


def test_small_kernels_are_no_idle_gpu() -> None:
    assert not found(engine_starved, ON_DISK.but(gauges={("gpu:0", v.GPU_ACTIVE): 85.0}))


def test_the_blocked_loop_is_named_and_not_the_helper_that_holds_the_lock() -> None:
    loop = Thread(on_cpu=0.05, asleep_in="futex")
    helper = Thread(tid=8, name="kv-offload", on_cpu=0.2, asleep_in="nanosleep")
    (finding,) = diagnose(ON_DISK.but(threads=(API, loop, helper)).trace()).findings
    assert finding.subject == "EngineCore"
    assert finding.message.startswith("EngineCore waits: 95 % futex, 5 % CPU")
    assert any(line.startswith("EngineCore/kv-offload: 80 % nanosleep, 20 % CPU") for line in finding.evidence)


def test_a_main_thread_that_does_nothing_is_not_the_loop() -> None:
    main, executor = Thread(on_cpu=0.0, asleep_in="futex"), Thread(tid=8, name="executor", on_cpu=0.2, asleep_in="disk")
    (finding,) = diagnose(ON_DISK.but(threads=(API, main, executor)).trace()).findings
    assert finding.subject == "EngineCore/executor"


def herd(main: Thread, rivals: int, **changes: object) -> Scene:
    """A main thread, and others that make the rest of one core between them."""
    each = (1.0 - main.on_cpu) / rivals if isinstance(main.on_cpu, float) else 0.0
    others = (Thread(tid=8 + i, name=f"detok-{i}", on_cpu=each, asleep_in="futex") for i in range(rivals))
    return ON_DISK.but(threads=(API, main, *others), gpus=(12.0,)).but(**changes)


@pytest.mark.parametrize("rivals", [3, 6, 20])
def test_a_herd_that_queues_a_little_is_bound_by_the_gil(rivals: int) -> None:
    main = Thread(on_cpu=0.12, run_queue=0.06, asleep_in="futex")
    (finding,) = diagnose(herd(main, rivals, gil_waits={7: 170.0}).trace()).findings
    assert finding.rule == "gil-bound"
    assert f"{rivals + 1} Python threads" in finding.message


def test_without_probes_the_largest_share_leads_all_the_same() -> None:
    main = Thread(on_cpu=0.12, run_queue=0.06, asleep_in="futex")
    (finding,) = diagnose(herd(main, 6, probed=False, pressure=20.0).trace()).findings
    assert finding.message.startswith("EngineCore waits: 82 % futex, 12 % CPU, 6 % queue")
    assert any("7 threads take turns on 1.00 cores" in line for line in finding.evidence)


def test_on_a_crowded_machine_a_herd_is_judged_by_the_loop_and_not_by_its_busiest_thread() -> None:
    main = Thread(on_cpu=0.08, run_queue=0.15, asleep_in="futex")
    rivals = (Thread(tid=8 + i, name=f"detok-{i}", on_cpu=0.15, run_queue=0.43, asleep_in="futex") for i in range(6))
    scene = ON_DISK.but(threads=(API, main, *rivals), gpus=(12.0,), probed=False, pressure=60.0)
    (finding,) = diagnose(scene.trace()).findings
    assert finding.message.startswith("EngineCore waits: 77 % futex, 15 % queue, 8 % CPU")


def test_a_helper_that_never_rests_is_what_the_loop_waits_for() -> None:
    helper = Thread(tid=8, name="output", on_cpu=0.98)
    scene = CPU_BOUND_UNSEEN.but(threads=(API, Thread(on_cpu=0.1, asleep_in="futex"), helper))
    (finding,) = diagnose(scene.trace()).findings
    assert (finding.rule, finding.subject) == ("cpu-bound", "EngineCore/output")


@pytest.mark.parametrize(
    ("system", "faults", "words"),
    [(0.7, 250_000.0, "fresh memory"), (0.7, 100.0, "the kernel works for it"), (0.2, 250_000.0, "cut CPU work")],
)
def test_work_in_the_kernel_is_told_from_the_engines_own(system: float, faults: float, words: str) -> None:
    trace = CPU_BOUND.trace()
    times = (trace.end_ns - 15 * NS_PER_S, trace.end_ns)
    rates = {v.PROCESS_CPU: NS_PER_S, v.PROCESS_SYSTEM: system * NS_PER_S, v.PROCESS_FAULTS: faults}
    series = {
        (ids.process(7), metric.name): Series.of(
            ids.process(7), metric, "/proc/PID/stat", [(times[0], 0), (times[1], 15 * n)]
        )
        for metric, n in rates.items()
    }
    (finding,) = findings_of(cpu_bound, replace(trace, series={**trace.series, **series}))
    assert words in finding.action
    said = f"EngineCore: 70 % of its process's CPU time in the kernel, {faults:g} page faults/s (/proc/PID/stat)"
    assert (said in finding.evidence) == (system > 0.5)


def test_a_large_part_in_the_run_queue_leads_over_the_rest() -> None:
    main = Thread(on_cpu=0.12, run_queue=0.4, asleep_in="futex")
    (finding,) = diagnose(ON_DISK.but(threads=(API, main), gpus=(12.0,)).trace()).findings
    assert finding.rule == "run-queue-starvation"


@pytest.mark.parametrize(
    ("run_queue", "rules"),
    [
        (0.12, ["cpu-bound"]),
        (0.25, ["cpu-bound", "run-queue-starvation"]),
        (0.4, ["run-queue-starvation", "cpu-bound"]),
    ],
)
def test_the_larger_share_leads_and_a_second_large_one_is_said_beside(run_queue: float, rules: list[str]) -> None:
    busy = Thread(on_cpu=0.99 - run_queue, run_queue=run_queue, launches=900, sync=0.01)
    findings = diagnose(CPU_BOUND.but(threads=(API, busy), gpus=(30.0,)).trace()).findings
    assert [one.rule for one in findings] == rules


def test_a_server_that_starts_is_not_cpu_bound() -> None:
    """It compiles and captures graphs, which launches kernels: no request is served yet."""
    trace = CPU_BOUND.but(running=None, waiting=None, gpus=(1.0,)).trace()
    assert findings_of(cpu_bound, trace)
    nothing_listens = Missing(What("server"), Unknown("vLLM listens on no port yet"))
    assert not findings_of(cpu_bound, replace(trace, missing=(nothing_listens,)))


@pytest.mark.parametrize(("on_cpu", "speaks"), [(0.49, True), (0.51, False)])
def test_engine_starved_while_it_sleeps(on_cpu: float, speaks: bool) -> None:
    assert bool(found(engine_starved, last(ON_DISK, on_cpu=on_cpu))) == speaks


def test_engine_starved_without_threads_says_so_much() -> None:
    finding = only(engine_starved, ON_DISK.but(threads=()))
    assert finding.message == "the CPU side does not feed the GPU (GPU 8 % busy, waiting 6 requests)"


def test_engine_starved_falls_back_on_the_duty_cycle() -> None:
    scene = ON_DISK.but(gpus=(), gauges={("gpu:0", v.GPU_UTIL): 30.0}, more_gpus=(0,))
    assert "GPU 0: GPU busy 30 % (NVML)" in only(engine_starved, scene).evidence


def test_nothing_contradicts_a_thermal_slowdown() -> None:
    """A server that waits for a GPU that is too hot is not well."""
    hot = {("gpu:0", v.GPU_CLOCK_REASONS): 64.0, ("gpu:0", v.GPU_TEMPERATURE): 91.0, ("gpu:0", v.GPU_SM_CLOCK): 1200.0}
    assert [one.rule for one in diagnose(GPU_BOUND_SPINNING.but(gauges=hot).trace()).findings] == ["clocks-capped"]


def _with_processes(*names: str, share: float = 30.0, **facts: Fact) -> Trace:
    """The server's process 7 on GPU 0, and others from PID 90 on, each with that share of its time."""
    recorder = Recorder(Origin("live"))
    tracks = {
        ids.process(7): Track(ids.process(7), TrackKind.PROCESS, "EngineCore"),
        ids.gpu(0): Track(ids.gpu(0), TrackKind.GPU, "H200"),
    }
    for pid, name in ((7, "VLLM::EngineCore"), *enumerate(names, 90)):
        track = ids.gpu_process(ids.gpu(0), pid)
        more = facts if pid != 7 else {}
        tracks[track] = Track(track, TrackKind.GPU_PROCESS, name, ids.gpu(0), facts=more)
    for second in range(20):
        t = (second + 1) * NS_PER_S
        readings = [Reading(track, v.GPU_PROCESS_SM, t, share, "NVML") for track in tracks if "/process:" in track]
        readings.append(Reading(ids.gpu(0), v.GPU_ACTIVE, t, 80.0, "GPM"))
        recorder.append("test", Trace(Origin("live"), t, t, tracks=tracks, readings=tuple(readings)))
    return recorder.freeze()


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("train.py",), "GPU 0 is shared: train.py (pid 90), 30 % of its time; they take turns (no MPS)"),
        (("train.py", "nvidia-cuda-mps-server"), "GPU 0 is shared: train.py (pid 90), 30 % of its time; under MPS"),
        (("a", "b"), "GPU 0 is shared: a (pid 90) and 1 more, 60 % of its time; they take turns (no MPS)"),
    ],
)
def test_another_program_on_the_server_s_gpu(names: tuple[str, ...], words: str) -> None:
    (finding,) = findings_of(gpu_shared, _with_processes(*names))
    assert finding.message == words
    assert len(finding.evidence) >= 2


def test_a_gpu_is_not_shared_with_oneself_or_with_nobody() -> None:
    assert not findings_of(gpu_shared, _with_processes())
    assert not findings_of(gpu_shared, _with_processes("nvidia-cuda-mps-server"))
    assert not findings_of(gpu_shared, _with_processes("idle", share=3.0))
    assert not findings_of(gpu_shared, _with_processes("unseen", container_pid=Unknown("another namespace")))
    assert not findings_of(gpu_shared, _with_processes("ours", container_pid=7))


def test_a_queue_is_evidence_of_the_cause_that_takes_most_of_the_time() -> None:
    queued = STARVED.but(waiting=57.0, finished=20.0, queued_s=2.9)
    slept = queued.but(threads=(API, Thread(on_cpu=0.1, asleep_in="disk")), gpus=(9.0,))
    ttft = {
        v.bucket(v.SERVER_TTFT, 1.0): 0.0,
        v.bucket(v.SERVER_TTFT, float("inf")): 20.0,
        v.total(v.SERVER_TTFT): 60.0,
    }
    late = slept.but(counters={("server:1", metric): rate for metric, rate in ttft.items()})
    finding, missed, *_ = diagnose(late.trace()).findings
    assert (finding.rule, missed.rule) == ("engine-starved", "objective-missed")
    assert missed.action.startswith('"EngineCore waits" comes first')
    assert finding.evidence[-1].startswith("saturated: 57 requests wait, for 2.90 s on average")
    little = diagnose(queued.trace()).findings
    assert [one.rule for one in little] == ["run-queue-starvation", "queue-standing"], (
        "17 % of the time explain no queue"
    )


@pytest.mark.parametrize(("asleep", "said"), [(0.6, True), (0.3, True), (0.1, False)])
def test_memory_that_is_read_from_a_disk_comes_first_where_it_holds_up_steps(asleep: float, said: bool) -> None:
    """No screen shows the name of a rule. Below half of the time other advice stays too."""
    counters = {
        ("server:1", v.bucket(v.SERVER_TTFT, 1.0)): 0.0,
        ("server:1", v.bucket(v.SERVER_TTFT, float("inf"))): 20.0,
        ("server:1", v.total(v.SERVER_TTFT)): 60.0,
        ("process:7", v.PROCESS_MAJOR_FAULTS): 500.0,
    }
    threads = (API, Thread(on_cpu=1.0 - asleep, asleep_in="disk"))
    found = {one.rule: one for one in diagnose(STARVED.but(threads=threads, counters=counters).trace()).findings}
    action = found["objective-missed"].action
    named = '"EngineCore waits for its own memory ' in action
    assert ("paging" in found, named) == (True, said)
    assert action.endswith(" the time between tokens, late") is (said and asleep >= 0.5)


def test_the_gil_is_named_where_it_is_what_the_loop_is_found_at() -> None:
    """One that holds it asleep: nobody takes turns, and no second is lost by computing."""
    scene = ON_DISK.but(threads=(API, Thread(on_cpu=0.05, asleep_in="futex", at_gil=1.0)), probed=False)
    (finding,) = diagnose(scene.trace()).findings
    assert finding.message.startswith("EngineCore waits: 95 % the GIL, 5 % CPU")
    assert finding.action.startswith("find what holds the GIL")
    assert any(
        "in 14 of 14 looks at 7/7 in futex it was the GIL (/proc/TID/syscall)" in one for one in finding.evidence
    )


def test_two_looks_at_the_gil_prove_nothing() -> None:
    trace = ON_DISK.but(threads=(API, Thread(on_cpu=0.85, asleep_in="futex", at_gil=1.0))).trace()
    assert found_at_gil(trace, threads(trace)) is None


def test_what_an_engine_computes_on_its_own_cpu_is_said_where_it_is_prompts() -> None:
    (finding,) = diagnose(CPU_ONLY_PROMPTS.trace()).findings
    assert finding.message.startswith(
        "CPU-bound: EngineCore computes 98 % of the time, 95 % of its tokens are prompts'"
    )
    assert "prefill on servers of its own" in finding.action
    (without,) = diagnose(CPU_ONLY.trace()).findings
    assert "prompts" not in without.message


@pytest.mark.parametrize(
    ("swapped", "words", "action"),
    [(6e9, "5.59 GiB of it are swapped out", "swapoff"), (0.0, "files that it has mapped are read again", "--mlock")],
)
def test_a_server_waits_for_its_own_memory(swapped: float, words: str, action: str) -> None:
    counters = {("process:7", v.PROCESS_MAJOR_FAULTS): 900.0}
    scene = ON_DISK.but(counters=counters, gauges={("process:7", v.PROCESS_SWAP): swapped})
    (finding,) = diagnose(scene.trace()).findings
    assert finding.message == f"EngineCore waits for its own memory 90 % of the time: {words}"
    assert action in finding.action
    assert finding.evidence[0] == "EngineCore: 900 major page faults/s (metrics)"


def test_what_the_kernel_does_to_find_room_counts_as_waiting_for_memory() -> None:
    """So it leads before what the thread queues for a CPU each time that a page has come."""
    first, second = diagnose(EVICTED.trace()).findings
    assert (first.rule, second.rule) == ("paging", "run-queue-starvation")
    assert first.message == "server waits for its own memory 23 % of the time: files that it has mapped are read again"
    assert any("77 % of its process's CPU time in the kernel" in line for line in first.evidence)


@pytest.mark.parametrize(("faults", "is_felt"), [(4.7, True), (4.5, False)])
def test_fewer_faults_are_felt_where_they_explain_the_wait(faults: float, *, is_felt: bool) -> None:
    """23 % of the time at up to 50 ms each is 4.6 a second at least."""
    scene = EVICTED.but(counters={("process:7", v.PROCESS_MAJOR_FAULTS): faults})
    assert bool(found(paging, scene)) == is_felt


@pytest.mark.parametrize(("faults", "asleep_in"), [(17.0, "disk"), (900.0, "socket")])
def test_a_few_faults_or_no_wait_for_a_disk_is_no_want_of_memory(faults: float, asleep_in: str) -> None:
    counters = {("process:7", v.PROCESS_MAJOR_FAULTS): faults}
    scene = ON_DISK.but(counters=counters, threads=(API, Thread(on_cpu=0.1, asleep_in=asleep_in)))
    assert [one.rule for one in diagnose(scene.trace()).findings] == ["engine-starved"]
