"""Servers of which nearly everything is told, each number drawn by chance: the same for the same seed, anywhere.

What they do makes no sense together. That is their use: each view meets what nobody thought of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.model import (
    NS_PER_S,
    Fact,
    Mark,
    MarkKind,
    Metric,
    Missing,
    Origin,
    Series,
    Severity,
    Stack,
    Target,
    TargetProcess,
    Trace,
    Track,
    TrackId,
    TrackKind,
    Unknown,
    What,
)
from tests.live_traces import SOURCES

START_NS, SECONDS, NOW_S = 1000 * NS_PER_S, 75, 15
METRICS = tuple(metric for metric in vars(v).values() if isinstance(metric, Metric))
HISTOGRAMS = {
    v.SERVER_TTFT: (0.02, 0.1, 0.5, 2.5),
    v.SERVER_ITL: (0.005, 0.02, 0.05, 0.2),
    v.SERVER_E2E: (0.5, 2.0, 8.0, 30.0),
    v.SERVER_QUEUE_TIME: (0.01, 0.1, 1.0, 10.0),
    v.SERVER_PREFILL_TIME: (0.05, 0.2, 1.0),
    v.SERVER_DECODE_TIME: (0.5, 2.0, 10.0),
    v.PROCESS_RUN_QUEUE_LATENCY: (65536.0, 1048576.0, 16777216.0),
    v.SYSCALL_LATENCY: (8192.0, 262144.0, 4194304.0),
    v.LIBRARY_LATENCY: (8192.0, 262144.0, 4194304.0),
}
_CALLS = ("futex", "epoll_wait", "read", "sched_yield", "ioctl", "fsync")
_LIBRARY = ("cudaLaunchKernel", "cuStreamSynchronize", "ncclAllReduce", "cudaMalloc")
_CAUSES = tuple(v.ThreadCause)
LABELS = {
    v.THREAD_STATE_SAMPLES: _CAUSES,
    v.THREAD_BLOCKED: _CAUSES,
    v.THREAD_WAKES: ("0", "71", "outside"),
    v.THREAD_SPINS: ("sched_yield", "poll"),
    v.THREAD_GIL_SAMPLES: ("owner",),
    v.SYSCALL_COUNT: _CALLS,
    v.SYSCALL_ERRORS: _CALLS,
    v.SYSCALL_TIME: _CALLS,
    v.SYSCALL_LATENCY: _CALLS,
    v.LIBRARY_COUNT: _LIBRARY,
    v.LIBRARY_TIME: _LIBRARY,
    v.LIBRARY_LATENCY: _LIBRARY,
}
LEVELS: dict[str, tuple[float, ...]] = {
    "%": (0.0, 1.0, 5.0, 10.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 85.0, 90.0, 95.0, 100.0),
    "ratio": (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 1.0),
    "requests": (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 16.0, 64.0),
    "bytes": (3e6, 4.4e8, 1.7e10, 6.1e10),
    "bytes/s": (2e6, 7e8, 2.4e10, 3.1e11),
    "ns": (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0),
    "tokens": (0.0, 40.0, 900.0, 12000.0),
    "FLOP": (3e12, 2e14),
    "W": (80.0, 410.0, 699.0),
    "MHz": (1200.0, 1755.0, 1980.0, 2619.0),
    "°C": (41.0, 84.0, 93.0),
    "cores": (0.1, 0.5, 1.0, 3.0, 6.5),
    "s": (0.004, 0.3, 1.0, 1.6, 5.0, 7.0),
    "samples": (0.0, 0.1, 0.2, 0.5, 1.0),
    "errors": (0.0, 0.0, 0.2),
    "rows": (0.0, 1.0),
    "": (0.0, 0.1, 0.4, 1.0, 5.0, 10.0, 50.0, 100.0, 1000.0, 10000.0),
}
"""By unit: what is drawn from, round numbers, as limits are. Of a counter it is its growth a second, of one in ns that
many seconds."""
CODES: dict[Metric, tuple[float, ...]] = {
    v.GPU_CLOCK_REASONS: (0.0, 1.0, 4.0, 8.0, 0x20, 0x44),
    v.ENDPOINT_ANSWER: (*[0.0] * 12, 1.0, 2.0, 3.0, 5.0, 503.0),
    v.PROCESS_STATE: (*[0.0] * 30, 1.0, 2.0),
    v.GPU_POWER_LIMIT: (700.0,),
}
GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L4", "NVIDIA H200", "A card of tomorrow")
THREADS = (
    (5, 5, "vllm serve", "APIServer"),
    (5, 51, "conn-1", "APIServer"),
    (7, 7, "EngineCore", "EngineCore"),
    (7, 71, "output", "EngineCore"),
    (100, 100, "Worker_TP0", "Worker_TP0"),
    (101, 101, "Worker_TP1", "Worker_TP1"),
)
TARGET = Target(
    pid=5,
    root_pid=5,
    kind="vllm",
    title="vLLM",
    processes=tuple(TargetProcess(pid, role, name) for pid, tid, name, role in THREADS if pid == tid),
    ports=(8000,),
    model="meta-llama/Llama-3.1-70B",
    dtype="bfloat16",
    gpus=(0, 1),
)


@dataclass(frozen=True)
class RandomServer:
    """A server with two GPUs, four processes and what surrounds them.

    Attributes:
        told: The share of the metrics that are told of a track at all.
        noise: How far a reading is off its level at most, as a share of it; without, levels are met exactly.
    """

    seed: int
    told: float = 0.85
    noise: float = 0.05

    def trace(self) -> Trace:
        """The last `SECONDS` of it."""
        chance = Random(self.seed)
        tracks = {track.id: track for track in self._tracks(chance)}
        return Trace(
            Origin("live", facts={"interval_s": 1.0}),
            START_NS,
            START_NS + SECONDS * NS_PER_S,
            tracks,
            series={(one.track, one.metric.name): one for one in self._series(tracks, chance)},
            stacks=tuple(self._stacks(chance)),
            stacks_end_ns=START_NS + SECONDS * NS_PER_S,
            marks=tuple(self._marks(chance)),
            missing=MISSING,
            sources=SOURCES,
        )

    def _tracks(self, chance: Random) -> Iterator[Track]:
        yield Track(ids.HOST, TrackKind.HOST, "host", facts={"cores": chance.choice((4, 8, 64))})
        yield Track(ids.SELF, TrackKind.SELF, "llmtop")
        url: Fact = "http://127.0.0.1:8000/metrics"
        server: dict[str, Fact] = {"engine": "vllm", "version": "0.11.2", "url": url}
        yield Track(ids.server(8000), TrackKind.SERVER, "vLLM :8000", facts=server)
        said = Unknown("it answers with status 503", "look at the server's log")
        yield Track(ids.endpoint(8000), TrackKind.ENDPOINT, ":8000", facts={"url": url, "said": said, "own_s": 0.2})
        name = chance.choice(GPUS)
        for index in range(2):
            yield self._gpu(index, name, chance)
            for pid in (7, 100 + index):
                mine = ids.gpu_process(ids.gpu(index), pid)
                yield Track(mine, TrackKind.GPU_PROCESS, f"program {pid}", ids.gpu(index))
        for pid, tid, title, role in THREADS:
            facts: dict[str, Fact] = {"role": role}
            if pid == tid:
                whole: dict[str, Fact] = {"part": 1, "root": 5, "gpus_open": pid > 5, "engine_kind": "vllm"}
                whole |= {
                    "cgroup": "serve.slice",
                    "cgroup_folder": "/sys/fs/cgroup/serve.slice",
                    "cpu_quota": "2 cores",
                }
                yield Track(ids.process(pid), TrackKind.PROCESS, title, facts=facts | whole)
            facts |= {"cpu": chance.randrange(4), "cpus": chance.choice(("0-3", "2", "0-63")), "state": "S"}
            yield Track(ids.thread(pid, tid), TrackKind.THREAD, title, ids.process(pid), facts)
        for pid in (900, 901):
            others: dict[str, Fact] = {"pid": pid, "cgroup": "batch.slice"}
            yield Track(ids.neighbour(pid), TrackKind.NEIGHBOUR, f"batch-{pid}", facts=others)

    def _gpu(self, index: int, name: str, chance: Random) -> Track:
        facts: dict[str, Fact] = {
            "index": index,
            "name": name,
            "uuid": f"GPU-{index}",
            "memory_total": 80 * 2**30,
            "bus_width_bits": 5120,
            "max_sm_mhz": 1980,
            "max_memory_mhz": 2619,
            "sm_count": 132,
            "compute_capability": "9.0",
            "driver": "580.1",
            "nvlinks": 18,
            "pcie_max_generation": 5,
            "pcie_max_width": 16,
            "ecc": chance.choice(("enabled", "disabled")),
            "mig": chance.choice(("disabled", "enabled")),
            "row_remapping": chance.choice(("none", "pending", "failed")),
            "recovery_action": chance.choice(("none", "none", "reset the GPU")),
        }
        return Track(ids.gpu(index), TrackKind.GPU, name, facts=facts)

    def _series(self, tracks: dict[TrackId, Track], chance: Random) -> Iterator[Series]:
        for track in tracks.values():
            for metric in METRICS:
                if not _is_of(metric, track) or chance.random() > self.told:
                    continue
                for one, levels in _drawn_from(metric):
                    before = chance.choice(levels)
                    now = before if chance.random() < 0.6 else chance.choice(levels)
                    yield Series.of(track.id, one, one.name.partition(".")[0], self._samples(one, before, now, chance))

    def _samples(self, metric: Metric, before: float, now: float, chance: Random) -> list[tuple[int, float | None]]:
        """One a second; of the last fifteen the level may be another one."""
        samples, total = list[tuple[int, float | None]](), 0.0
        for second in range(*self._known(chance)):
            if metric.counter and self.noise and chance.random() < 0.002:
                total = 0.0  # it was restarted
            value = now if second > SECONDS - NOW_S else before
            if metric.unit not in ("bitmask", "code"):
                value *= 1 + self.noise * (2 * chance.random() - 1)
            if metric.counter:
                total += value * (NS_PER_S if metric.unit == "ns" else 1) if second else 0.0
                value = total
            samples.append((START_NS + second * NS_PER_S, None if chance.random() < self.noise / 5 else value))
        return samples

    def _known(self, chance: Random) -> tuple[int, int]:
        """From which second on it is told, and until when; mostly always."""
        first = chance.choice((1, 20, 45, 66)) if chance.random() < 0.1 else 0
        return first, chance.choice((50, 70, 74)) if chance.random() < 0.05 else SECONDS + 1

    def _stacks(self, chance: Random) -> Iterator[Stack]:
        states = (v.ON_CPU, v.ThreadCause.FUTEX, v.ThreadCause.EPOLL, v.ThreadCause.GPU_DRIVER)
        python = (v.PythonState.RUNNING, v.PythonState.WAITING)
        for pid, tid, _, _ in THREADS:
            for n in range(4):
                frames = ("main", f"step_{chance.randrange(3)}", f"work_{n}")
                track = ids.thread(pid, tid)
                yield Stack(frames, 1e8 * chance.randrange(1, 30), "ns", chance.choice(states), track)
                code = (f"run (serve.py:{n})", f"step_{n} (model.py:{chance.randrange(90)})")
                yield Stack(
                    code, float(chance.randrange(1, 40)), "samples", chance.choice(python), ids.thread(pid, tid)
                )

    def _marks(self, chance: Random) -> Iterator[Mark]:
        gpu = ids.gpu(chance.randrange(2))
        kinds = (
            (MarkKind.XID, gpu, "XID 79: the GPU has fallen off the bus"),
            (MarkKind.GPU_EVENT, gpu, "a clock change"),
            (MarkKind.GPU_LOST, gpu, "GPU lost"),
            (MarkKind.PROCESS, ids.process(7), "EngineCore (pid 7) ended"),
            (MarkKind.METRICS_LOST, ids.server(8000), "metrics lost"),
            (MarkKind.STUCK, ids.server(8000), "preemption"),
        )
        for second in (9, 44, 71):
            yield Mark(START_NS + second * NS_PER_S, *chance.choice(kinds), chance.choice(tuple(Severity)))


MISSING = (
    Missing(What("py-spy"), Unknown("py-spy is not installed", "pip install py-spy")),
    Missing(whats.track(ids.gpu(1)), Unknown("GPU 1 does not answer for 4 s", "nvidia-smi")),
)
_PLACES = {
    "gpu": TrackKind.GPU,
    "gpu_process": TrackKind.GPU_PROCESS,
    "server": TrackKind.SERVER,
    "endpoint": TrackKind.ENDPOINT,
    "process": TrackKind.PROCESS,
    "scheduler": TrackKind.PROCESS,
    "syscall": TrackKind.PROCESS,
    "library": TrackKind.PROCESS,
    "cgroup": TrackKind.PROCESS,
    "thread": TrackKind.THREAD,
    "host": TrackKind.HOST,
    "neighbour": TrackKind.NEIGHBOUR,
    "self": TrackKind.SELF,
}


def _is_of(metric: Metric, track: Track) -> bool:
    return _PLACES[metric.name.partition(".")[0]] is track.kind


def _drawn_from(metric: Metric) -> Iterator[tuple[Metric, tuple[float, ...]]]:
    """The series of a metric, and what their levels are drawn from."""
    levels = CODES.get(metric) or LEVELS.get(metric.unit, LEVELS[""])
    if metric.name.endswith("observed") or metric is v.SYSCALL_TIMED:
        levels = (1.0,)
    for one in [v.labelled(metric, label) for label in LABELS.get(metric, ())] or [metric]:
        if metric not in HISTOGRAMS:
            yield one, levels
            continue
        for n, upper in enumerate((*HISTOGRAMS[metric], math.inf)):
            yield v.bucket(one, upper), (0.1 * n, 0.1 * (n + 1), 10.0 * (n + 1), 10.0 * (n + 1) + 5)
        if metric.unit == "s":  # what probes see has no sum
            yield v.total(one), (0.5, 20.0)
    if metric in LABELS and metric in (v.THREAD_STATE_SAMPLES, v.THREAD_GIL_SAMPLES):
        yield metric, (len(LABELS[metric]) * 1.0,)
