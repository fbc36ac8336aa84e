"""Servers in trouble, second by second, as the collectors would give them: what the verdicts are tested on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.base import Rule, Unjudged
from llmtop.model import NS_PER_S, Fact, Finding, Metric, Origin, Reading, Trace, Track, TrackId, TrackKind, Unknown
from llmtop.session import Recorder
from llmtop.vocabulary import EndpointAnswer, ProcessState

START_NS = 500 * NS_PER_S
SECONDS = 90
NOW = 15
"""Seconds of the window that verdicts are about; a pair of values is (before it, within it)."""
Level = float | tuple[float, float]


@dataclass(frozen=True)
class Thread:
    """A thread's shares of the time. What is left of them it sleeps in `asleep_in`.

    Attributes:
        sync: Share within cuStreamSynchronize, or None where no probe looks.
        sync_sleeps: Whether that is asleep (else it spins).
        gil: Share of py-spy's looks in which it had the GIL, or None without py-spy.
        at_gil: Share of the looks at it in futex in which that was the GIL's.
    """

    role: str = "EngineCore"
    pid: int = 7
    tid: int = 7
    name: str = ""
    on_cpu: Level = 0.3
    run_queue: Level = 0.0
    asleep_in: str = "epoll"
    involuntary: Level = 0.0
    yields: float = 0.0
    launches: float = 0.0
    sync: float | None = None
    sync_sleeps: bool = False
    gil: float | None = None
    at_gil: float = 0.0

    @property
    def track(self) -> TrackId:
        return ids.thread(self.pid, self.tid)


@dataclass(frozen=True)
class Scene:
    """A server and its machine.

    Attributes:
        gpus: How busy each GPU is in %, with all of its SMs; none for a machine without.
        running, waiting: Requests; None where the server has no endpoint.
        itl: Mean inter-token latency in seconds.
        latencies: How often that is observed, of the usual.
        throttled: Seconds throttled per second, or None where the cgroup cannot be read.
        gil_waits: By process, waits of 5 ms in vain per second.
        looks_per_s: Of py-spy.
        queue_latency_ns: What the waits in the run queue take, by process.
        collectives: By process, time in ncclAllReduce and cuStreamSynchronize per second, of all its threads.
        probed: Whether eBPF looks.
        more_gpus: Indices of GPUs without GPM.
        gauges: More gauges, by (track, metric).
        counters: More counters, by (track, metric): their growth per second.
        seconds: How long it has been looked at.
        silent_for: For how many seconds no source has said anything.
        facts: More facts of the server: what it is set to.
        finished: Requests a second.
        steps: Of the engine, a second; 0 where they are not told.
        queued_s: Mean time in the queue of those that finished.
        states: By process, a ProcessState: these processes make up the server, the first of them is its root.
        ended: By PID, the role of a part that ended five seconds ago, and how (empty where that is not known).
        answer: An Answer or an HTTP status of the metrics endpoint; None where nothing asks.
        answer_s: How long it took.
    """

    threads: Sequence[Thread] = (Thread(),)
    gpus: Sequence[float] = (55.0,)
    dram: float = 30.0
    tensor: float = 10.0
    running: Level | None = 8.0
    waiting: Level | None = 0.0
    kv: float = 0.4
    preemptions: float | None = 0.0
    tokens: Level = 900.0
    itl: Level = 0.02
    latencies: Level = 1.0
    throttled: float | None = 0.0
    pressure: float = 0.0
    cores: int = 0
    gil_waits: Mapping[int, float] = field(default_factory=dict)
    looks_per_s: float = 10.0
    queue_latency_ns: Mapping[int, float] = field(default_factory=dict)
    collectives: Mapping[int, float] = field(default_factory=dict)
    probed: bool = True
    more_gpus: Sequence[int] = ()
    gauges: Mapping[tuple[TrackId, Metric], float] = field(default_factory=dict)
    counters: Mapping[tuple[TrackId, Metric], float] = field(default_factory=dict)
    seconds: int = SECONDS
    silent_for: int = 0
    states: Mapping[int, Level] = field(default_factory=dict)
    ended: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    answer: Level | None = None
    answer_s: Level = 0.005
    facts: Mapping[str, Fact] = field(default_factory=dict)
    finished: float = 0.0
    steps: float = 0.0
    queued_s: float | None = None

    def but(self, **changes: object) -> Scene:
        return replace(self, **changes)  # type: ignore[arg-type]

    def trace(self) -> Trace:
        recorder, tracks = Recorder(Origin("live")), self._tracks()
        gauges = self._gauges() | dict(self.gauges)
        counters = [tuple(self._counters(is_now)) for is_now in (False, True)]
        sums: dict[tuple[TrackId, str], float] = {}
        for second in range(self.seconds + 1):
            t, is_now = START_NS + second * NS_PER_S, second > self.seconds - NOW
            read = [_read(track, metric, t, _at(level, is_now)) for (track, metric), level in gauges.items()]
            readings = (*read, *_grown(counters[is_now], second, is_now, sums))
            recorder.append("test", Trace(Origin("live"), t, t, tracks=tracks, readings=readings))
        end = START_NS + (self.seconds + self.silent_for) * NS_PER_S
        recorder.append("clock", Trace(Origin("live"), end, end))
        return recorder.freeze()

    def _gauges(self) -> dict[tuple[TrackId, Metric], Level]:
        found: dict[tuple[TrackId, Metric], Level] = {(ids.HOST, v.HOST_CPU_PRESSURE): self.pressure}
        for i, sm in enumerate(self.gpus):
            found[ids.gpu(i), v.GPU_ACTIVE] = sm
            found[ids.gpu(i), v.GPU_SM] = sm
            found[ids.gpu(i), v.GPU_DRAM] = self.dram
            found[ids.gpu(i), v.GPU_TENSOR] = self.tensor
        if self.running is not None:
            found[ids.server(1), v.SERVER_RUNNING] = self.running
        if self.waiting is not None:
            found[ids.server(1), v.SERVER_WAITING] = self.waiting
        found[ids.server(1), v.SERVER_KV_USAGE] = self.kv
        for pid, state in self.states.items():
            found[ids.process(pid), v.PROCESS_STATE] = state
        if self.answer is not None:
            found[ids.endpoint(1), v.ENDPOINT_ANSWER] = self.answer
            found[ids.endpoint(1), v.ENDPOINT_TIME] = self.answer_s
        return found

    def _counters(self, is_now: bool) -> Iterator[tuple[TrackId, Metric, Level, str]]:
        for (track, metric), rate in self.counters.items():
            yield track, metric, rate, "metrics"
        if self.preemptions is not None:
            yield ids.server(1), v.SERVER_PREEMPTIONS, self.preemptions, "metrics"
        yield ids.server(1), v.SERVER_OUTPUT_TOKENS, self.tokens, "metrics"
        if self.finished:
            yield ids.server(1), v.SERVER_REQUESTS, self.finished, "metrics"
        if self.steps:
            yield ids.server(1), v.SERVER_STEPS, self.steps, "metrics"
        if self.queued_s is not None:
            yield ids.server(1), v.bucket(v.SERVER_QUEUE_TIME, float("inf")), self.finished, "metrics"
            yield ids.server(1), v.total(v.SERVER_QUEUE_TIME), self.queued_s * self.finished, "metrics"
        seen = 100 * _at(self.latencies, is_now)
        yield ids.server(1), v.bucket(v.SERVER_ITL, float("inf")), seen, "metrics"
        yield ids.server(1), v.total(v.SERVER_ITL), _at(self.itl, is_now) * seen, "metrics"
        if self.throttled is not None:
            yield ids.process(7), v.CGROUP_THROTTLED, self.throttled, "cpu.stat"
            yield ids.process(7), v.CGROUP_PERIODS_THROTTLED, 10.0 * (self.throttled > 0), "cpu.stat"
        for thread in self.threads:
            yield from self._thread(thread, is_now)
        for pid in self.states:
            busy = sum(_at(thread.on_cpu, is_now) for thread in self.threads if thread.pid == pid)
            yield ids.process(pid), v.PROCESS_CPU, busy, "/proc/PID/stat"
        if self.probed:
            yield from self._probes()

    def _thread(self, thread: Thread, is_now: bool) -> Iterator[tuple[TrackId, Metric, Level, str]]:
        on_cpu, queued = _at(thread.on_cpu, is_now), _at(thread.run_queue, is_now)
        yield thread.track, v.THREAD_ON_CPU, on_cpu, "schedstat"
        yield thread.track, v.THREAD_RUN_QUEUE, queued, "schedstat"
        yield thread.track, v.THREAD_INVOLUNTARY, thread.involuntary, "status"
        asleep = {thread.asleep_in: max(0.0, 1 - on_cpu - queued)}
        if thread.sync_sleeps and thread.sync:
            asleep = {v.ThreadCause.CUDA_SYNC.value: thread.sync, thread.asleep_in: 1 - on_cpu - queued - thread.sync}
        for cause, share in asleep.items():
            yield thread.track, v.labelled(v.THREAD_STATE_SAMPLES, cause), share, "sampled"
            if self.probed:
                yield thread.track, v.labelled(v.THREAD_BLOCKED, cause), share, "eBPF"
        if thread.at_gil:
            share = thread.at_gil * asleep.get("futex", 0.0)
            yield thread.track, v.THREAD_GIL_FUTEX, share, "/proc/TID/syscall"
        if thread.gil is not None:
            yield thread.track, v.THREAD_GIL_SAMPLES, self.looks_per_s, "py-spy"
            yield thread.track, v.labelled(v.THREAD_GIL_SAMPLES, "owner"), self.looks_per_s * thread.gil, "py-spy"

    def _probes(self) -> Iterator[tuple[TrackId, Metric, Level, str]]:
        for pid in {thread.pid for thread in self.threads}:
            for metric in (v.SCHEDULER_OBSERVED, v.SYSCALL_OBSERVED, v.SYSCALL_TIMED):
                yield ids.process(pid), metric, 1.0, "eBPF"
        users = {thread.pid for thread in self.threads if thread.launches or thread.sync is not None}
        for pid in users - set(self.collectives):
            yield ids.process(pid), v.LIBRARY_OBSERVED, 1.0, "eBPF"
        for thread in self.threads:
            process = ids.process(thread.pid)
            if thread.yields:
                yield thread.track, v.labelled(v.THREAD_SPINS, "sched_yield"), thread.yields, "eBPF"
            if thread.launches:
                yield thread.track, v.THREAD_LAUNCHES, thread.launches, "eBPF"
                yield process, v.labelled(v.LIBRARY_COUNT, "cuLaunchKernel"), thread.launches, "eBPF"
            if thread.sync is not None:
                yield thread.track, v.THREAD_CUDA_SYNC, thread.sync, "eBPF"
                yield process, v.labelled(v.LIBRARY_COUNT, "cuStreamSynchronize"), 50.0, "eBPF"
        for pid, share in self.collectives.items():
            for name in ("ncclAllReduce", "cuStreamSynchronize"):
                yield ids.process(pid), v.labelled(v.LIBRARY_TIME, name), share / 2, "eBPF"
                yield ids.process(pid), v.labelled(v.LIBRARY_COUNT, name), 50.0, "eBPF"
        for pid, rate in self.gil_waits.items():
            yield ids.process(pid), v.PROCESS_GIL_WAITS, rate, "eBPF"
        for pid, ns in self.queue_latency_ns.items():
            for upper in (1e6, 4e6, 16e6, float("inf")):
                count = 100.0 if upper >= ns else 0.0
                yield ids.process(pid), v.bucket(v.PROCESS_RUN_QUEUE_LATENCY, upper), count, "eBPF"

    def _end_of(self, pid: int, role: str, how: str) -> Track:
        root = next(iter(self.states), pid)
        facts: dict[str, Fact] = {
            "pid": pid,
            "role": role,
            "root": root,
            "ended_ns": START_NS + (self.seconds - 5) * NS_PER_S,
            "how": how or Unknown("its exit status is not known"),
        }
        if how in ("exit code 0", "killed by SIGTERM"):
            facts["is_regular"] = 1
        elif how.startswith("exit code"):
            facts["is_failure"] = 1
        if how == "killed by SIGKILL":
            facts["is_killed"] = 1
        return Track(ids.ended(pid, 1), TrackKind.ENDED, role, facts=facts)

    def _tracks(self) -> dict[TrackId, Track]:
        found = [Track(ids.HOST, TrackKind.HOST, "host", facts={"cores": self.cores} if self.cores else {})]
        if self.running is not None or self.waiting is not None:
            facts = {"url": "http://127.0.0.1:1/metrics", **self.facts}
            found.append(Track(ids.server(1), TrackKind.SERVER, "vLLM :1", facts=facts))
        if self.answer is not None:
            found.append(Track(ids.endpoint(1), TrackKind.ENDPOINT, ":1", facts={"url": "http://127.0.0.1:1/metrics"}))
        found += [self._end_of(pid, *end) for pid, end in self.ended.items()]
        found += [Track(ids.gpu(i), TrackKind.GPU, "H100") for i in (*range(len(self.gpus)), *self.more_gpus)]
        for thread in self.threads:
            role = thread.role
            part = {"part": 1, "root": next(iter(self.states))} if thread.pid in self.states else {}
            found.append(Track(ids.process(thread.pid), TrackKind.PROCESS, role, facts={"role": role, **part}))
            name = thread.name or (role or "python3")
            found.append(Track(thread.track, TrackKind.THREAD, name, ids.process(thread.pid), {"role": role}))
            for i in range(len(self.gpus)):
                owner = thread.pid - 100 if len(self.gpus) > 1 else 0
                if owner == i and role != "APIServer":
                    key = ids.gpu_process(ids.gpu(i), thread.pid)
                    found.append(Track(key, TrackKind.GPU_PROCESS, role, ids.gpu(i)))
        return {track.id: track for track in found}


def findings_of(rule: Rule, trace: Trace) -> list[Finding]:
    """What one rule finds, without what it could not judge."""
    return [one for one in rule.check(trace) if isinstance(one, Finding)]


def unjudged_of(rule: Rule, trace: Trace) -> list[Unknown]:
    """What one rule says that it lacks."""
    return [one.why for one in rule.check(trace) if isinstance(one, Unjudged)]


def _read(track: TrackId, metric: Metric, t: int, value: float) -> Reading:
    return Reading(track, metric, t, value, "NVML" if track.startswith("gpu") else "metrics")


def _grown(
    counters: Sequence[tuple[TrackId, Metric, Level, str]],
    second: int,
    is_now: bool,
    sums: dict[tuple[TrackId, str], float],
) -> Iterator[Reading]:
    """Counters as they stand after so many seconds; `sums` has what they were, and what they are from now on."""
    t = START_NS + second * NS_PER_S
    for track, metric, level, where in counters:
        key = (track, metric.name)
        grown = _at(level, is_now) * (NS_PER_S if metric.unit == "ns" else 1) if second else 0.0
        sums[key] = sums.get(key, 0.0) + grown
        if where != "eBPF" or grown or not second:
            yield Reading(track, metric, t, sums[key], where)


def _at(level: Level, is_now: bool) -> float:
    return level[is_now] if isinstance(level, tuple) else level


def ranks(*syncs: float) -> tuple[Thread, ...]:
    """Workers of one tensor-parallel group that spin for the GPU, and for each other, so much of the time."""
    engine = Thread(on_cpu=0.2, asleep_in="futex")
    workers = (
        Thread(f"Worker_TP{i}", 100 + i, 100 + i, on_cpu=0.98, launches=800, sync=sync) for i, sync in enumerate(syncs)
    )
    return (engine, *workers)


def by_status(done: float, refused: float, failed: float) -> dict[tuple[TrackId, Metric], float]:
    """Requests a second by HTTP status; all that are done have tokens."""
    counted = {v.SERVER_HTTP_DONE: done, v.SERVER_HTTP_GENERATED: done}
    counted |= {v.SERVER_HTTP_REFUSED: refused, v.SERVER_HTTP_FAILED: failed}
    return {(ids.server(1), metric): rate for metric, rate in counted.items()}


API = Thread("APIServer", 5, 5, on_cpu=0.2)
STARVED = Scene(threads=(API, Thread(on_cpu=0.6, run_queue=0.12, involuntary=80, asleep_in="futex")))
THROTTLED = Scene(
    threads=(API, Thread(on_cpu=0.3, run_queue=0.69, involuntary=80, asleep_in="futex")),
    gpus=(12.0,),
    throttled=0.65,
    itl=(0.009, 0.08),
    tokens=(900.0, 110.0),
)
GIL = Scene(
    threads=(
        API,
        Thread(on_cpu=0.55, asleep_in="futex"),
        Thread(tid=8, name="output", on_cpu=0.42, asleep_in="futex"),
        Thread(tid=9, name="idle", on_cpu=0.0),
    ),
    gpus=(40.0,),
    gil_waits={7: 170.0},
)
API_BOUND = Scene(
    threads=(Thread("APIServer", 5, 5, on_cpu=0.98), Thread(on_cpu=0.1, asleep_in="epoll", launches=50, sync=0.02)),
    gpus=(9.0,),
)
CPU_BOUND = Scene(threads=(API, Thread(on_cpu=0.98, launches=4000, sync=0.04)), gpus=(62.0,))
CPU_BOUND_UNSEEN = Scene(threads=(API, Thread(on_cpu=0.98)), gpus=(31.0,), probed=False)
CPU_ONLY = Scene(threads=(API, Thread(on_cpu=0.98)), gpus=(), probed=False)
"""The CPUs compute the model, which is what they are there for."""
CPU_ONLY_PROMPTS = CPU_ONLY.but(counters={("server:1", v.SERVER_PROMPT_TOKENS): 4000.0}, tokens=200.0)
CPU_ONLY_SATURATED = CPU_ONLY.but(
    waiting=6.0,
    running=2.0,
    gauges={("endpoint:1", v.ENDPOINT_UNANSWERED): 4.0},
    facts={
        "engine_kind": "llamacpp",
        "setting.max_running": 2.0,
        "setting.max_running.source": "-np 2",
        "setting.max_running.change": "--parallel",
    },
)
"""llama-server with 2 slots for 8 clients: it tells neither how long requests wait nor how many ended."""
EVICTED = CPU_ONLY.but(
    threads=(Thread("server", on_cpu=0.43, run_queue=0.34, asleep_in="uninterruptible", involuntary=736),),
    counters={
        ("process:7", v.PROCESS_MAJOR_FAULTS): 17.6,
        ("process:7", v.PROCESS_CPU): 0.43,
        ("process:7", v.PROCESS_SYSTEM): 0.33,
    },
    running=2.0,
    cores=2,
    pressure=61.0,
)
"""llama-server in a memory cgroup of 230 MiB, weights of 274 MiB: 5 steps a second, 50 with room for them."""
OVERSUBSCRIBED = Scene(
    threads=[
        Thread("server", 7, 7 + i, "llama-server", on_cpu=0.17, run_queue=0.52, asleep_in="futex", involuntary=1800)
        for i in range(8)
    ],
    gpus=(),
    probed=False,
    cores=2,
    pressure=73.0,
)
"""Eight threads that compute one model on two CPUs (llama-server -t 8): none has one for long, whoever else runs."""
GPU_BOUND_SPINNING = Scene(threads=(API, Thread(on_cpu=0.99, launches=900, sync=0.83)), gpus=(94.0,))
GPU_BOUND_ASLEEP = Scene(
    threads=(API, Thread(on_cpu=0.15, launches=900, sync=0.7, sync_sleeps=True)), gpus=(94.0,), dram=72.0
)
GPU_BOUND_UNSEEN = Scene(threads=(API, Thread(on_cpu=0.99)), gpus=(97.0,), probed=False)
STRAGGLER = Scene(threads=ranks(0.7, 0.68, 0.25, 0.72), gpus=(91.0, 90.0, 92.0, 91.0), waiting=0.0)
KV_FULL = Scene(threads=GPU_BOUND_SPINNING.threads, gpus=(94.0,), kv=0.99, preemptions=0.4, waiting=14.0, running=64.0)
KV_THRASHING = Scene(
    threads=CPU_ONLY.threads, gpus=(), probed=False, kv=0.85, preemptions=371 / 60, waiting=255.0, running=1.0
)
"""Preempting keeps the gauge low, and what was thrown out is computed again: the engine never rests."""
SATURATED = Scene(
    threads=GPU_BOUND_SPINNING.threads, gpus=(94.0,), waiting=57.0, running=64.0, kv=0.5, finished=20.0, queued_s=2.9
)
"""Clients that send their next request when they have an answer: the queue stands at their number."""
POLLING = Scene(
    threads=(Thread("scheduler", on_cpu=0.97, yields=400_000),), gpus=(0.0,), running=0.0, waiting=0.0, tokens=0.0
)
ON_DISK = Scene(threads=(API, Thread(on_cpu=0.1, asleep_in="disk")), gpus=(8.0,), waiting=6.0)
API_SHORT_OF_CPU = Scene(
    threads=(Thread("APIServer", 5, 5, on_cpu=0.48, run_queue=0.52, involuntary=300), Thread(on_cpu=0.05)), gpus=(9.0,)
)
HERD = Scene(
    threads=(
        API,
        Thread(on_cpu=0.12, run_queue=0.06, asleep_in="futex", involuntary=90),
        *(Thread(tid=8 + i, name=f"detok-{i}", on_cpu=0.145, run_queue=0.05, asleep_in="futex") for i in range(6)),
    ),
    gpus=(12.0,),
    gil_waits={7: 170.0},
)
LOCKED = Scene(
    threads=(
        API,
        Thread(on_cpu=0.05, asleep_in="futex"),
        Thread(tid=8, name="kv-offload", on_cpu=0.2, asleep_in="nanosleep"),
    ),
    gpus=(11.0,),
)
IDLE = Scene(threads=(API, Thread(on_cpu=0.01)), gpus=(0.0,), running=0.0, waiting=0.0, tokens=0.0)
WELL = Scene(threads=(API, Thread(on_cpu=0.35, launches=500, sync=0.2)), gpus=(58.0,))
BUSY_BUT_FED = STARVED.but(gpus=(96.0,))

ALIVE = WELL.but(states={5: ProcessState.ALIVE, 7: ProcessState.ALIVE}, answer=EndpointAnswer.METRICS)
STUCK = ALIVE.but(
    threads=(API, Thread(on_cpu=(0.35, 0.0), asleep_in="futex")), gpus=(0.0,), tokens=(900.0, 0.0), latencies=(1.0, 0.0)
)
"""Nothing comes out any more, and the requests still run."""
ENGINE_KILLED = ALIVE.but(threads=(API,), gpus=(0.0,), tokens=0.0, ended={7: ("EngineCore", "killed by SIGKILL")})
EXITED = Scene(threads=(), gpus=(0.0,), running=None, waiting=None, ended={5: ("APIServer", "killed by SIGKILL")})

SITUATIONS: Mapping[str, tuple[Scene, frozenset[str]]] = {
    "starved": (STARVED, frozenset({"run-queue-starvation"})),
    "throttled": (THROTTLED, frozenset({"cgroup-throttled"})),
    "throttled since long": (THROTTLED.but(itl=0.08, tokens=110.0), frozenset({"cgroup-throttled"})),
    "gil": (GIL, frozenset({"gil-bound"})),
    "gil, no gpu": (GIL.but(gpus=()), frozenset({"gil-bound"})),
    "api-bound": (API_BOUND, frozenset({"api-bound"})),
    "cpu-bound": (CPU_BOUND, frozenset({"cpu-bound"})),
    "cpu-bound, no probes": (CPU_BOUND_UNSEEN, frozenset({"cpu-bound"})),
    "cpu-bound, no gpu": (CPU_ONLY_PROMPTS, frozenset({"cpu-bound"})),
    "the model runs on the cpu": (CPU_ONLY, frozenset({"model-on-cpu"})),
    "the model runs on the cpu, saturated": (CPU_ONLY_SATURATED, frozenset({"model-on-cpu", "queue-standing"})),
    "more threads than cpus": (OVERSUBSCRIBED, frozenset({"run-queue-starvation"})),
    "gpu-bound, spins": (GPU_BOUND_SPINNING, frozenset({"gpu-bound"})),
    "gpu-bound, sleeps": (GPU_BOUND_ASLEEP, frozenset({"gpu-bound", "memory-bound-decode"})),
    "gpu-bound, no probes": (GPU_BOUND_UNSEEN, frozenset({"gpu-bound"})),
    "straggler": (STRAGGLER, frozenset({"straggler"})),
    "kv-bound": (KV_FULL, frozenset({"kv-bound"})),
    "kv-bound at any gauge": (KV_THRASHING, frozenset({"kv-bound"})),
    "kv-bound, gpu busy": (
        GPU_BOUND_SPINNING.but(kv=0.86, preemptions=43 / 60, waiting=8.0),
        frozenset({"kv-bound"}),
    ),
    "saturated": (SATURATED, frozenset({"queue-standing", "gpu-bound"})),
    "saturated, no latencies": (SATURATED.but(queued_s=None), frozenset({"queue-standing", "gpu-bound"})),
    "saturated, and the engine starved": (
        STARVED.but(waiting=57.0, finished=20.0, queued_s=2.9),
        frozenset({"run-queue-starvation", "queue-standing"}),
    ),
    "a short queue, soon served": (SATURATED.but(waiting=3.0, queued_s=0.12), frozenset({"gpu-bound"})),
    "kv-bound and starved": (
        STARVED.but(kv=0.99, preemptions=0.4, waiting=14.0),
        frozenset({"kv-bound", "run-queue-starvation"}),
    ),
    "polling": (POLLING, frozenset({"idle-polling"})),
    "asleep on the disk": (ON_DISK, frozenset({"engine-starved"})),
    "asleep at a socket, no gpu": (
        ON_DISK.but(threads=(API, Thread(on_cpu=0.1, asleep_in="socket")), gpus=(), probed=False),
        frozenset({"engine-starved"}),
    ),
    "asleep in what nobody may read": (
        ON_DISK.but(threads=(API, Thread(on_cpu=0.1, asleep_in="not sampled")), gpus=(), probed=False),
        frozenset(),
    ),
    "memory in swap space": (
        ON_DISK.but(
            counters={("process:7", v.PROCESS_MAJOR_FAULTS): 900.0}, gauges={("process:7", v.PROCESS_SWAP): 6e9}
        ),
        frozenset({"paging"}),
    ),
    "weights in a file that does not fit into memory": (EVICTED, frozenset({"paging", "run-queue-starvation"})),
    "requests run, none waits, all sleep": (ON_DISK.but(waiting=0.0), frozenset({"engine-starved"})),
    "locked out by a helper": (LOCKED, frozenset({"engine-starved"})),
    "a herd for the gil": (HERD, frozenset({"gil-bound"})),
    "a herd for the gil, no probes": (HERD.but(probed=False, gil_waits={}), frozenset({"engine-starved"})),
    "a herd for the gil, found in its futex": (
        HERD.but(
            probed=False, gil_waits={}, threads=[replace(one, at_gil=0.95 * (one.pid == 7)) for one in HERD.threads]
        ),
        frozenset({"gil-bound"}),
    ),
    "the api server is short of a cpu, and the engine computes all the time": (
        API_SHORT_OF_CPU.but(
            threads=(
                Thread("APIServer", 5, 5, on_cpu=0.1, run_queue=0.3, involuntary=300),
                *(Thread("APIServer", 5, 50 + i, "conn", on_cpu=0.01, run_queue=0.2) for i in range(4)),
                Thread(on_cpu=0.95),
            ),
            gpus=(),
            probed=False,
            counters=CPU_ONLY_PROMPTS.counters,
            tokens=CPU_ONLY_PROMPTS.tokens,
        ),
        frozenset({"run-queue-starvation", "cpu-bound"}),
    ),
    "the api server is short of a cpu": (API_SHORT_OF_CPU, frozenset({"run-queue-starvation"})),
    "the api server is short of a cpu, no gpu": (
        API_SHORT_OF_CPU.but(gpus=(), probed=False),
        frozenset({"run-queue-starvation"}),
    ),
    "idle": (IDLE, frozenset()),
    "well": (WELL, frozenset()),
    "short of CPUs, but the GPU is fed": (BUSY_BUT_FED, frozenset()),
    "alive": (ALIVE, frozenset()),
    "alive and idle": (ALIVE.but(running=0.0, tokens=0.0, gpus=(0.0,)), frozenset()),
    "exited": (EXITED, frozenset({"process-gone"})),
    "engine killed": (ENGINE_KILLED, frozenset({"process-gone"})),
    "engine killed, queue full": (ENGINE_KILLED.but(waiting=20.0, kv=0.99), frozenset({"process-gone"})),
    "engine killed while the API server works": (
        ENGINE_KILLED.but(threads=(API_BOUND.threads[0],)),
        frozenset({"process-gone"}),
    ),
    "engine stopped": (
        ALIVE.but(states={5: ProcessState.ALIVE, 7: (ProcessState.ALIVE, ProcessState.STOPPED)}, gpus=(0.0,)),
        frozenset({"process-stopped"}),
    ),
    "frozen": (
        ALIVE.but(states={5: ProcessState.FROZEN, 7: ProcessState.ALIVE}, gpus=(0.0,)),
        frozenset({"process-stopped"}),
    ),
    "engine frozen alone": (
        ALIVE.but(states={5: ProcessState.ALIVE, 7: (ProcessState.ALIVE, ProcessState.FROZEN)}, gpus=(0.0,)),
        frozenset({"process-stopped"}),
    ),
    "engine hung in the kernel": (
        STUCK.but(states={5: ProcessState.ALIVE, 7: ProcessState.UNINTERRUPTIBLE}),
        frozenset({"process-hung"}),
    ),
    "engine deadlocked": (STUCK, frozenset({"engine-hung"})),
    "collective hangs": (
        STUCK.but(threads=(API, Thread(on_cpu=0.99, launches=1.0, sync=0.98)), gpus=(100.0,), dram=0.2, tensor=0.0),
        frozenset({"engine-hung"}),
    ),
    "endpoint refused": (
        ALIVE.but(answer=(EndpointAnswer.METRICS, EndpointAnswer.REFUSED)),
        frozenset({"endpoint-dead"}),
    ),
    "endpoint hangs": (
        ALIVE.but(answer=(EndpointAnswer.METRICS, EndpointAnswer.SILENT), answer_s=(0.005, 9.0)),
        frozenset({"endpoint-dead"}),
    ),
    "endpoint fails": (ALIVE.but(answer=(EndpointAnswer.METRICS, 500)), frozenset({"endpoint-failing"})),
    "endpoint is a web page": (
        ALIVE.but(answer=(EndpointAnswer.METRICS, EndpointAnswer.STRANGE)),
        frozenset({"endpoint-failing"}),
    ),
    "held before the engine": (
        ALIVE.but(
            gpus=(6.0,),
            threads=(API, Thread(on_cpu=0.05)),
            running=0.6,
            gauges={("endpoint:1", v.ENDPOINT_UNANSWERED): 14.0, ("endpoint:1", v.ENDPOINT_LONGEST_WAIT): 6.0},
        ),
        frozenset({"requests-outside"}),
    ),
    "threads of the api server take turns": (
        ALIVE.but(
            gpus=(),
            threads=(
                Thread("APIServer", 5, 5, on_cpu=0.0, asleep_in="signal"),
                *(Thread("APIServer", 5, 50 + i, "conn", on_cpu=0.021, asleep_in="futex") for i in range(45)),
                Thread(on_cpu=0.1, asleep_in="socket"),
            ),
            running=0.4,
            gauges={("endpoint:1", v.ENDPOINT_UNANSWERED): 46.0, ("endpoint:1", v.ENDPOINT_LONGEST_WAIT): 9.0},
        ),
        frozenset({"api-bound"}),
    ),
    "threads of the api server take turns, and queue for it": (
        ALIVE.but(
            gpus=(),
            threads=(
                Thread("APIServer", 5, 5, on_cpu=0.0, asleep_in="signal"),
                *(
                    Thread("APIServer", 5, 50 + i, "conn", on_cpu=0.021, run_queue=0.05, asleep_in="futex")
                    for i in range(45)
                ),
                Thread(on_cpu=0.1, asleep_in="socket"),
            ),
            running=0.4,
            gauges={("endpoint:1", v.ENDPOINT_UNANSWERED): 46.0, ("endpoint:1", v.ENDPOINT_LONGEST_WAIT): 9.0},
        ),
        frozenset({"api-bound"}),
    ),
    "never rests without a request, no probes": (
        IDLE.but(threads=(API, Thread(on_cpu=0.99)), gpus=(), probed=False),
        frozenset({"idle-polling"}),
    ),
    "endpoint slow": (ALIVE.but(answer_s=1.4), frozenset({"endpoint-slow"})),
    "out of file descriptors": (
        ALIVE.but(gauges={(ids.process(5), v.PROCESS_FILES): 64.0, (ids.process(5), v.PROCESS_FILES_LIMIT): 64.0}),
        frozenset({"files-exhausted"}),
    ),
    "room for connections": (
        ALIVE.but(gauges={(ids.process(5), v.PROCESS_FILES): 57.0, (ids.process(5), v.PROCESS_FILES_LIMIT): 64.0}),
        frozenset(),
    ),
    "all requests are refused": (
        ALIVE.but(running=0.0, gpus=(0.0,), tokens=0.0, counters=by_status(0.0, 148.0, 0.0)),
        frozenset({"requests-failed"}),
    ),
    "most requests are refused": (ALIVE.but(counters=by_status(9.0, 14.0, 0.0)), frozenset({"requests-failed"})),
    "one request in ten fails": (ALIVE.but(counters=by_status(9.0, 0.0, 1.0)), frozenset({"requests-failed"})),
    "a request is refused now and then": (ALIVE.but(counters=by_status(9.0, 0.2, 0.0)), frozenset()),
    "the engine fails requests": (
        ALIVE.but(finished=9.0, counters={("server:1", v.SERVER_FAILURES): 3.0}),
        frozenset({"requests-failed"}),
    ),
    "clients leave": (ALIVE.but(finished=10.0, counters=by_status(33.0, 0.0, 0.0)), frozenset({"clients-leave"})),
    "no client leaves": (ALIVE.but(finished=33.0, counters=by_status(33.0, 0.0, 0.0)), frozenset()),
}
"""By name: the scene, and all the rules that must speak on it."""
