"""A synthetic server under observation: the same numbers for the same tick, so that screens can be compared."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.collectors.base import Aim, Owner
from llmtop.collectors.registry import host_collectors, target_collectors
from llmtop.model import (
    NS_PER_S,
    Fact,
    Mark,
    MarkKind,
    Metric,
    Missing,
    Origin,
    Reading,
    Series,
    Severity,
    Sources,
    Target,
    TargetProcess,
    Trace,
    Track,
    TrackId,
    TrackKind,
    Unknown,
    What,
)
from llmtop.session import Recorder

START_NS = 1_000 * NS_PER_S
TARGET = Target(
    pid=4242,
    root_pid=4242,
    kind="vllm",
    title="vLLM",
    processes=(TargetProcess(4242, "APIServer", "vllm serve"), TargetProcess(4300, "EngineCore", "VLLM::EngineCore")),
    ports=(8000,),
    model="meta-llama/Llama-3.1-8B",
    dtype="bfloat16",
    gpus=(0,),
)
COLLECTORS = (*host_collectors(), *target_collectors(TARGET, Aim(engines=())))
SOURCES = Sources(replace(one.owns, lanes=()) for one in COLLECTORS if isinstance(one, Owner))
"""Who reads what, of all collectors; without lanes of their own, so that a new one changes no picture."""
H100: Mapping[str, Fact] = {
    "index": 0,
    "name": "NVIDIA H100 80GB HBM3",
    "uuid": "GPU-1f2e3d4c-0000-1111-2222-333344445555",
    "memory_total": 80 * 2**30,
    "bus_width_bits": 5120,
    "max_sm_mhz": 1980,
    "max_memory_mhz": 2619,
    "sm_count": 132,
    "compute_capability": "9.0",
    "driver": "580.159.04",
    "gpm": "supported",
    "mig": "disabled",
}
THREADS = (
    (4300, 4300, "EngineCore", "EngineCore", 0.78, 0.09, "futex"),
    (4242, 4242, "vllm serve", "APIServer", 0.31, 0.01, "epoll"),
    (4242, 4250, "ZMQbg/IO/0", "APIServer", 0.04, 0.0, "epoll"),
    (4300, 4311, "cuda-EvtHandlr", "EngineCore", 0.01, 0.0, "poll"),
    (4300, 4312, "pt_nccl_watchdg", "EngineCore", 0.0, 0.0, "futex"),
)
_TTFT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, math.inf)
_ITL_BUCKETS = (0.01, 0.02, 0.03, 0.05, 0.1, math.inf)


@dataclass(frozen=True)
class Scene:
    """What the synthetic machine does.

    `is_idle` stops its counters. `values` override GPU or server values; None leaves a metric out.
    """

    gpus: int = 1
    is_moving: bool = True
    is_idle: bool = False
    has_server: bool = True
    has_threads: bool = True
    hostile: str = ""
    values: Mapping[str, float | None] = field(default_factory=dict)
    missing: tuple[Missing, ...] = ()


def wave(tick: int, low: float, high: float, period: int, scene: Scene) -> float:
    """Between low and high, or its middle where nothing moves."""
    share = 0.5 + 0.5 * math.sin(tick * 2 * math.pi / period) if scene.is_moving else 0.5
    return low + (high - low) * share


def poll(scene: Scene, tick: int, t_ns: int) -> Trace:
    """What all collectors together report at one tick, one second after another."""
    tick = 0 if scene.is_idle else tick
    told = [*_gpus(scene, tick, t_ns), *_own(tick, t_ns)]
    if scene.has_server:
        told += _server(scene, tick, t_ns)
    if scene.has_threads:
        told += _threads(scene, tick, t_ns)
    marks = (Mark(t_ns, MarkKind.SERVER, "server:8000", "preemption", Severity.WARNING),) if tick == 30 else ()
    kept = tuple(reading for reading in told if scene.values.get(reading.metric.name, 0.0) is not None)
    return Trace(Origin("live"), t_ns, t_ns, tracks=tracks(scene), readings=kept, marks=marks, missing=scene.missing)


def readings(track: TrackId, values: Mapping[Metric, float | None], t_ns: int, source: str) -> Iterator[Reading]:
    """Readings of one track at one time."""
    for metric, value in values.items():
        yield Reading(track, metric, t_ns, value, source)


def live_trace(scene: Scene | None = None, ticks: int = 90) -> Trace:
    """What the recorder holds after so many seconds."""
    scene = scene or Scene()
    recorder = Recorder(Origin("live"))
    recorder.tell_sources(SOURCES.all)
    for tick in range(ticks):
        recorder.append("synthetic", poll(scene, tick, START_NS + tick * NS_PER_S))
    return recorder.freeze()


def probed(trace: Trace) -> Trace:
    """The last 30 s with probes: reads of some µs, futexes of some ms, and a run queue."""
    start, end = trace.end_ns - 30 * NS_PER_S, trace.end_ns
    counters: dict[Metric, float] = {
        v.SYSCALL_OBSERVED: NS_PER_S,
        v.SYSCALL_TIMED: NS_PER_S,
        v.SCHEDULER_OBSERVED: NS_PER_S,
        v.bucket(v.PROCESS_RUN_QUEUE_LATENCY, 4096.0): 50,
        v.bucket(v.PROCESS_RUN_QUEUE_LATENCY, math.inf): 50,
    }
    for name, upper, count in (("read", 8192.0, 100), ("futex", 4194304.0, 10)):
        counters[v.labelled(v.SYSCALL_COUNT, name)] = count
        counters[v.labelled(v.SYSCALL_TIME, name)] = upper * count
        counters[v.bucket(v.labelled(v.SYSCALL_LATENCY, name), upper)] = count
        counters[v.bucket(v.labelled(v.SYSCALL_LATENCY, name), math.inf)] = count
    seconds = range(start, end + 1, NS_PER_S)
    series = {
        (ids.process(4300), metric.name): Series.of(
            ids.process(4300), metric, "eBPF", [(t, grown * (t - start) / NS_PER_S) for t in seconds]
        )
        for metric, grown in counters.items()
    }
    return replace(trace, series={**trace.series, **series})


def tracks(scene: Scene) -> dict[TrackId, Track]:
    """All tracks of a scene."""
    found = [Track(ids.SELF, TrackKind.SELF, "llmtop"), Track(ids.HOST, TrackKind.HOST, "host", facts={"cores": 16})]
    for i in range(scene.gpus):
        found.append(Track(ids.gpu(i), TrackKind.GPU, str(H100["name"]), facts={**H100, "index": i}))
        found.append(
            Track(ids.gpu_process(ids.gpu(i), 4300), TrackKind.GPU_PROCESS, scene.hostile or "VLLM::EngineCore")
        )
    if scene.has_server:
        found.append(Track(ids.server(8000), TrackKind.SERVER, "vLLM :8000", facts={"engine": "vllm"}))
    if scene.has_threads:
        found += [
            Track(ids.process(pid), TrackKind.PROCESS, role)
            for pid, role in ((4242, "APIServer"), (4300, "EngineCore"))
        ]
        found += [
            Track(ids.thread(pid, tid), TrackKind.THREAD, scene.hostile or name, facts={"role": role, "state": "S"})
            for pid, tid, name, role, *_ in THREADS
        ]
    return {track.id: track for track in found}


def _gpus(scene: Scene, tick: int, t_ns: int) -> Iterator[Reading]:
    for i in range(scene.gpus):
        at = tick + 3 * i
        gauges = {
            v.GPU_UTIL: 100.0,
            v.GPU_ACTIVE: wave(at, 97, 100, 7, scene),
            v.GPU_SM: wave(at, 93, 98, 7, scene),
            v.GPU_DRAM: wave(at, 78, 88, 9, scene),
            v.GPU_TENSOR: wave(at, 14, 22, 9, scene),
            v.GPU_TENSOR_HMMA: wave(at, 14, 22, 9, scene),
            v.GPU_TENSOR_IMMA: 0.0,
            v.GPU_TENSOR_DFMA: 0.0,
            v.GPU_FP32: wave(at, 3, 5, 11, scene),
            v.GPU_FP64: 0.0,
            v.GPU_FP16: wave(at, 1, 2, 11, scene),
            v.GPU_PCIE_RX: wave(at, 2e8, 6e8, 13, scene),
            v.GPU_PCIE_TX: wave(at, 1e8, 3e8, 13, scene),
            v.GPU_MEMORY_USED: 71.5 * 2**30,
            v.GPU_POWER: wave(at, 610, 697, 15, scene),
            v.GPU_POWER_LIMIT: 700.0,
            v.GPU_SM_CLOCK: 1929.0,
            v.GPU_MEMORY_CLOCK: 2619.0,
            v.GPU_TEMPERATURE: 61.0,
            v.GPU_CLOCK_REASONS: 4.0,
        }
        for metric, value in gauges.items():
            source = "GPM" if metric.name in ("gpu.active", "gpu.sm", "gpu.dram", "gpu.tensor") else "NVML"
            yield Reading(ids.gpu(i), metric, t_ns, scene.values.get(metric.name, value), source)
        yield Reading(ids.gpu_process(ids.gpu(i), 4300), v.GPU_PROCESS_MEMORY, t_ns, 70.2 * 2**30, "NVML")


def _server(scene: Scene, tick: int, t_ns: int) -> Iterator[Reading]:
    gauges = {
        v.SERVER_RUNNING: 64.0,
        v.SERVER_WAITING: round(wave(tick, 4, 20, 40, scene)),
        v.SERVER_KV_USAGE: wave(tick, 0.83, 0.91, 50, scene),
    }
    counters = {
        v.SERVER_OUTPUT_TOKENS: 2431.0 * tick + 400 * wave(tick, -1, 1, 12, scene),
        v.SERVER_PROMPT_TOKENS: 12100.0 * tick,
        v.SERVER_REQUESTS: 38.0 * tick,
        v.SERVER_FAILURES: 0.0,
        v.SERVER_PREEMPTIONS: float(tick // 20),
        v.SERVER_PREFIX_QUERIES: 1000.0 * tick,
        v.SERVER_PREFIX_HITS: 410.0 * tick,
    }
    told = {metric: scene.values.get(metric.name, value) for metric, value in (gauges | counters).items()}
    yield from _of_server(told, t_ns)
    for metric, uppers, shares, mean in (
        (v.SERVER_TTFT, _TTFT_BUCKETS, (0.05, 0.2, 0.7, 0.9, 0.97, 1.0, 1.0), 0.26),
        (v.SERVER_ITL, _ITL_BUCKETS, (0.1, 0.45, 0.9, 0.99, 1.0, 1.0), 0.023),
        (v.SERVER_QUEUE_TIME, _TTFT_BUCKETS, (0.3, 0.5, 0.8, 0.95, 1.0, 1.0, 1.0), 0.17),
    ):
        counts = (38.0 * tick * share for share in shares)
        yield from _of_server({v.bucket(metric, upper): n for upper, n in zip(uppers, counts, strict=True)}, t_ns)
        yield from _of_server({v.total(metric): 38.0 * tick * mean}, t_ns)


def _of_server(values: Mapping[Metric, float | None], t_ns: int) -> Iterator[Reading]:
    return readings(ids.server(8000), values, t_ns, "vLLM metrics")


def _threads(scene: Scene, tick: int, t_ns: int) -> Iterator[Reading]:
    for pid, tid, _, _, on_cpu, run_queue, cause in THREADS:
        track = ids.thread(pid, tid)
        wobble = wave(tick, -0.02, 0.02, 6, scene) if on_cpu > 0.1 else 0.0
        counters = {
            v.THREAD_ON_CPU: (on_cpu * tick + wobble) * NS_PER_S,
            v.THREAD_RUN_QUEUE: run_queue * tick * NS_PER_S,
            v.THREAD_INVOLUNTARY: 40.0 * run_queue * 10 * tick,
            v.labelled(v.THREAD_STATE_SAMPLES, cause): float(tick),
            v.labelled(v.THREAD_STATE_SAMPLES, "running"): float(tick),
        }
        yield from readings(track, counters, t_ns, "schedstat")


def _own(tick: int, t_ns: int) -> Iterator[Reading]:
    yield Reading(ids.SELF, v.SELF_CPU, t_ns, 0.018 * NS_PER_S * tick, "getrusage")
    yield Reading(ids.SELF, v.SELF_HELPERS, t_ns, 0.004 * NS_PER_S * tick, "/proc/PID/stat")
    yield Reading(ids.SELF, v.SELF_RSS, t_ns, 58e6, "statm")
    yield Reading(ids.HOST, v.HOST_CPU_PRESSURE, t_ns, 12.0, "PSI")
    yield Reading(ids.HOST, v.HOST_LOAD, t_ns, 3.0, "loadavg")


NO_NVML = Missing(What("nvml"), Unknown("no NVIDIA driver library was found", "install the NVIDIA driver"))
NO_GPM = Missing(
    What("gpu:0/gpm"), Unknown("GPM needs Hopper or newer", "use the server's own estimate: --enable-mfu-metrics")
)
_GPM_NAMES = (
    "gpu.active",
    "gpu.sm",
    "gpu.dram",
    "gpu.tensor",
    "gpu.tensor_hmma",
    "gpu.fp32",
    "gpu.fp16",
    "gpu.pcie_rx",
    "gpu.pcie_tx",
)
NO_GPU = Scene(gpus=0, missing=(NO_NVML,))
AMPERE = Scene(values=dict.fromkeys(_GPM_NAMES), missing=(NO_GPM,))
NOTHING = Scene(
    gpus=0,
    has_server=False,
    has_threads=False,
    missing=(
        NO_NVML,
        Missing(
            What("server"), Unknown("127.0.0.1:8000 refuses connections", "is the server still loading its weights?")
        ),
        Missing(What("proc"), Unknown("the process is not ours to read", "run as the server's user, or as root")),
    ),
)


class PlayedCollector:
    """A collector that needs nothing: each poll is what is made up for that moment.

    Args:
        name: The collector's.
        play: A trace of a time in ns.
        clock: Tells that time.
    """

    period_s = 0.0

    def __init__(self, name: str, play: Callable[[int], Trace], clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.name = name
        self._play = play
        self._clock = clock

    def missing(self) -> Unknown | None:
        """Nothing is."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def poll(self) -> Trace:
        """What is played now."""
        return self._play(self._clock())


class SyntheticCollector(PlayedCollector):
    """Plays a scene in real time, one tick a poll."""

    def __init__(self, scene: Scene, *, clock: Callable[[], int] = time.monotonic_ns, first_tick: int = 0) -> None:
        super().__init__("synthetic", self._next, clock)
        self.scene = scene
        self._tick = first_tick

    def _next(self, t_ns: int) -> Trace:
        self._tick += 1
        return poll(self.scene, self._tick, t_ns)


def without(scene: Scene, *names: str) -> Scene:
    """The same scene without some metrics."""
    return replace(scene, values={**scene.values, **dict.fromkeys(names)})
