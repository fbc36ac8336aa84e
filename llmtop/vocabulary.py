"""The live metrics, by name: what collectors write and what analysis and panes read.

A collector never invents a name. Where one idea has several sources (GPM, DCGM, a server's estimate) the metric
is the same and each reading's `source` tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import Final

from llmtop.model import NS_PER_S, Metric

CODE: Final = "code"
BITS: Final = "bitmask"
SIGNS: Final = (CODE, BITS)
"""Units of numbers that stand for something: they have no mean."""

# GPU, on tracks "gpu:<index>". Percentages of activity are averages over the sampling window.
GPU_ACTIVE = Metric("gpu.active", "%", title="GPU busy")
"""Share of time in which any kernel ran, however few multiprocessors it took (GPM graphics utilisation, DCGM GR engine
active). Never an input of the roofline, as the next."""
GPU_UTIL = Metric("gpu.util", "%", title="GPU busy")
"""The same as NVML's duty cycle tells it: within 4 points of it in bursts of kernels and rests from 10 µs on
(benchmarks/busy_truth.py, H100)."""
GPU_SM = Metric("gpu.sm", "%", title="SM")
"""Of all multiprocessors, how much of the time each had a warp on it: kernels of few blocks leave most of them idle."""
GPU_OCCUPANCY = Metric("gpu.occupancy", "%", title="occupancy")
GPU_INTEGER = Metric("gpu.integer", "%", title="INT")
GPU_TENSOR = Metric("gpu.tensor", "%", title="tensor")
GPU_TENSOR_HMMA = Metric("gpu.tensor_hmma", "%", title="HMMA")
GPU_TENSOR_IMMA = Metric("gpu.tensor_imma", "%", title="IMMA")
GPU_TENSOR_DFMA = Metric("gpu.tensor_dfma", "%", title="DFMA")
GPU_FP64 = Metric("gpu.fp64", "%", title="FP64")
GPU_FP32 = Metric("gpu.fp32", "%", title="FP32")
GPU_FP16 = Metric("gpu.fp16", "%", title="FP16")
GPU_DRAM = Metric("gpu.dram", "%", title="DRAM")
GPU_PCIE_TX = Metric("gpu.pcie_tx", "bytes/s", title="PCIe tx")
GPU_PCIE_RX = Metric("gpu.pcie_rx", "bytes/s", title="PCIe rx")
GPU_NVLINK_TX = Metric("gpu.nvlink_tx", "bytes/s", title="NVLink tx")
GPU_NVLINK_RX = Metric("gpu.nvlink_rx", "bytes/s", title="NVLink rx")
GPU_C2C_TX = Metric("gpu.c2c_tx", "bytes/s", title="C2C tx")
"""Between the GPU and the Grace CPU of its own package; GPUs without such a link have no reading and no reason."""
GPU_C2C_RX = Metric("gpu.c2c_rx", "bytes/s", title="C2C rx")
GPM = (
    *(GPU_ACTIVE, GPU_SM, GPU_OCCUPANCY, GPU_INTEGER, GPU_FP64, GPU_FP32, GPU_FP16, GPU_DRAM),
    *(GPU_TENSOR, GPU_TENSOR_HMMA, GPU_TENSOR_IMMA, GPU_TENSOR_DFMA),
    *(GPU_PCIE_TX, GPU_PCIE_RX, GPU_NVLINK_TX, GPU_NVLINK_RX, GPU_C2C_TX, GPU_C2C_RX),
)
"""What NVML reads by GPM alone: one reason stands for all of them."""
GPU_MEMORY_USED = Metric("gpu.memory_used", "bytes", title="memory")
GPU_POWER = Metric("gpu.power", "W", title="power")
GPU_POWER_LIMIT = Metric("gpu.power_limit", "W", title="power limit")
GPU_ENERGY = Metric("gpu.energy", "J", counter=True, title="energy")
"""Read at 0 s, 1 s, and then every 5 s: the call takes 3 ms."""
GPU_SM_CLOCK = Metric("gpu.sm_clock", "MHz", title="SM clock")
GPU_SM_CLOCK_TRUE = Metric("gpu.sm_clock_true", "MHz", title="true SM clock")
"""The SMs' elapsed cycles over time, out of GPM's raw samples; NVML's SM clock is up to 10 % above it."""
GPU_MEMORY_CLOCK = Metric("gpu.memory_clock", "MHz", title="memory clock")
GPU_TEMPERATURE = Metric("gpu.temperature", "°C", title="temperature")
GPU_CLOCK_REASONS = Metric("gpu.clock_reasons", BITS, title="throttle")
"""NVML clock event reasons; `analysis.gpus` has the words."""
GPU_THROTTLED = Metric("gpu.throttled", "ns", counter=True, title="throttled")
"""Time in which the clock was held down since the driver was loaded: `labelled(GPU_THROTTLED, reason)`, with the
reasons of `ThrottleReason`. Read every 5 s, as all that follows for GPUs."""
GPU_TEMPERATURE_MEMORY = Metric("gpu.temperature_memory", "°C", title="memory temperature")
GPU_ECC_CORRECTED = Metric("gpu.ecc_corrected", "errors", counter=True, title="ECC errors corrected")
"""Since the driver was loaded or the GPU reset (NVML's volatile count); never of the GPU's whole life."""
GPU_ECC_UNCORRECTED = Metric("gpu.ecc_uncorrected", "errors", counter=True, title="ECC errors not corrected")
GPU_ROWS_CORRECTED = Metric("gpu.rows_corrected", "rows", title="rows remapped for corrected errors")
"""Memory rows replaced over the GPU's life; the fact "row_remapping" says whether one waits or failed."""
GPU_ROWS_UNCORRECTED = Metric("gpu.rows_uncorrected", "rows", title="rows remapped for uncorrected errors")
GPU_PCIE_GENERATION = Metric("gpu.pcie_generation", "1", title="PCIe generation")
"""What the link runs at now: idle GPUs go down to save power. The most is in the fact "pcie_max_generation"."""
GPU_PCIE_WIDTH = Metric("gpu.pcie_width", "lanes", title="PCIe width")
"""The most is in the fact "pcie_max_width"; a link that is narrower under load is a fault."""
GPU_PCIE_REPLAYS = Metric("gpu.pcie_replays", "replays", counter=True, title="PCIe replays")
GPU_NVLINK_ACTIVE = Metric("gpu.nvlink_active", "links", title="NVLinks up")
"""Of as many as the fact "nvlinks" says; a GPU without NVLink has neither."""
GPU_NVLINK_ERRORS = Metric("gpu.nvlink_errors", "errors", counter=True, title="NVLink errors")
"""Over all links; `labelled(GPU_NVLINK_ERRORS, kind)` is one kind: "replay", "recovery" or "crc". Read every 10 s: the
call takes 8 ms."""


class ThrottleReason(StrEnum):
    """What held the clock down: the labels of GPU_THROTTLED."""

    POWER_CAP = "power_cap"
    SYNC_BOOST = "sync_boost"
    SOFTWARE_THERMAL = "software_thermal"
    HARDWARE_THERMAL = "hardware_thermal"
    POWER_BRAKE = "power_brake"


# MIG instance, on tracks "gpu:<index>/mig:<GPU instance>" of kind GPU_INSTANCE: the GPM metrics above as the driver
# gives them for it, GPU_MEMORY_USED, and the facts gpu_instance, compute_instances (how many), name, uuid, profile
# ("1g.10gb"), memory_total (bytes), sm_count.
# GPU process, on tracks "gpu:<index>/process:<pid>".
GPU_PROCESS_MEMORY = Metric("gpu_process.memory", "bytes", title="GPU memory")
GPU_PROCESS_SM = Metric("gpu_process.sm", "%", title="SM share")
"""Share of time in which a kernel of the process ran (NVML's duty cycle, by process). Not a share of SMs."""

# Server, on tracks "server:<port>".
SERVER_RUNNING = Metric("server.running", "requests", title="running")
SERVER_WAITING = Metric("server.waiting", "requests", title="waiting")
SERVER_KV_USAGE = Metric("server.kv_usage", "ratio", title="KV cache")
SERVER_PREEMPTIONS = Metric("server.preemptions", "requests", counter=True, title="preemptions")
SERVER_PROMPT_TOKENS = Metric("server.prompt_tokens", "tokens", counter=True, title="prompt tokens")
SERVER_OUTPUT_TOKENS = Metric("server.output_tokens", "tokens", counter=True, title="output tokens")
SERVER_OUTPUT_TOKENS_ENDED = Metric(
    "server.output_tokens_ended", "tokens", counter=True, title="output tokens of requests that ended"
)
SERVER_PROMPT_TOKENS_ENDED = Metric(
    "server.prompt_tokens_ended", "tokens", counter=True, title="prompt tokens of requests that ended"
)
ENDED = {SERVER_OUTPUT_TOKENS: SERVER_OUTPUT_TOKENS_ENDED, SERVER_PROMPT_TOKENS: SERVER_PROMPT_TOKENS_ENDED}
"""What a counter that moves only when a request ends is read as (`Sample.at_end`): no rate of the moment."""
SERVER_OUTPUT_RATE = Metric("server.output_rate", "tok/s", title="output rate")
"""A server's own mean over its last steps."""
SERVER_REQUESTS = Metric("server.requests", "requests", counter=True, title="requests finished")
SERVER_FAILURES = Metric("server.failures", "requests", counter=True, title="requests failed")
# What the web framework in front of the engine counts, by HTTP status: requests of clients, not GETs of pages.
SERVER_HTTP_DONE = Metric("server.http_done", "requests", counter=True, title="requests answered (HTTP 2xx)")
SERVER_HTTP_REFUSED = Metric("server.http_refused", "requests", counter=True, title="requests refused (HTTP 4xx)")
SERVER_HTTP_FAILED = Metric("server.http_failed", "requests", counter=True, title="requests failed (HTTP 5xx)")
SERVER_HTTP_GENERATED = Metric(
    "server.http_generated", "requests", counter=True, title="answers with tokens (HTTP 2xx)"
)
"""The part of SERVER_HTTP_DONE for which an engine makes tokens."""
SERVER_PREFIX_QUERIES = Metric("server.prefix_queries", "tokens", counter=True, title="prefix queries")
SERVER_PREFIX_HITS = Metric("server.prefix_hits", "tokens", counter=True, title="prefix hits")
SERVER_PREFIX_HIT_RATE = Metric("server.prefix_hit_rate", "ratio", title="prefix hit rate")
SERVER_FLOPS = Metric("server.estimated_flops", "FLOP", counter=True, title="estimated FLOPs")
SERVER_READ_BYTES = Metric("server.estimated_read_bytes", "bytes", counter=True, title="estimated reads")
SERVER_WRITE_BYTES = Metric("server.estimated_write_bytes", "bytes", counter=True, title="estimated writes")
SERVER_STEPS = Metric("server.steps", "steps", counter=True, title="engine steps")
# Latency distributions: cumulative counts by upper bound, one counter per bucket (see `bucket`), plus sum and count.
SERVER_TTFT = Metric("server.ttft", "s", title="time to first token")
SERVER_ITL = Metric("server.itl", "s", title="inter-token latency")
SERVER_E2E = Metric("server.e2e", "s", title="end-to-end latency")
SERVER_QUEUE_TIME = Metric("server.queue_time", "s", title="queue time")
SERVER_PREFILL_TIME = Metric("server.prefill_time", "s", title="prefill time")
SERVER_DECODE_TIME = Metric("server.decode_time", "s", title="decode time")
# What only some set-ups have: where it is not there, nothing is missing.
SERVER_DRAFTED = Metric("server.drafted_tokens", "tokens", counter=True, title="drafted tokens")
SERVER_ACCEPTED = Metric("server.accepted_tokens", "tokens", counter=True, title="accepted tokens")
"""Of those drafted, without the one that each step of the model itself gives."""
SERVER_ACCEPTANCE = Metric("server.acceptance", "ratio", title="accepted share of drafted tokens")
SERVER_HELD = Metric("server.held", "requests", title="held back")
"""Waiting requests that lack something other than room: among SERVER_WAITING."""
SERVER_HELD_GRAMMAR = Metric("server.held_grammar", "requests", title="waiting for a grammar")
SERVER_HELD_TRANSFER = Metric("server.held_transfer", "requests", title="waiting for KV transfer")
SERVER_CONTEXT = Metric("server.context", "tokens", title="room of a slot")
SERVER_CONTEXT_FILLED = Metric(
    "server.context_filled", "requests", counter=True, title="requests that filled their context"
)
SERVER_OPTIONAL = frozenset(
    {
        SERVER_DRAFTED,
        SERVER_ACCEPTED,
        SERVER_ACCEPTANCE,
        SERVER_HELD,
        SERVER_HELD_GRAMMAR,
        SERVER_HELD_TRANSFER,
        SERVER_CONTEXT,
        SERVER_CONTEXT_FILLED,
        SERVER_HTTP_DONE,
        SERVER_HTTP_REFUSED,
        SERVER_HTTP_FAILED,
        SERVER_HTTP_GENERATED,
    }
)


ENDPOINT_ANSWER = Metric("endpoint.answer", CODE, title="metrics endpoint")
"""What each request for the metrics came to: an `Answer`, or the HTTP status that came instead of metrics."""
ENDPOINT_TIME = Metric("endpoint.time", "s", title="scrape time")
"""How long the server took to answer; while it has not, how long it has been waited for."""
ENDPOINT_CONNECTIONS = Metric("endpoint.connections", "connections", title="connections")
ENDPOINT_UNANSWERED = Metric("endpoint.unanswered", "requests", title="without an answer")
"""Requests that came a second ago or earlier, of which no byte of an answer has gone out: with those that the engine
runs and answers in one piece, those that it has in its queue, and those that it has not heard of."""
ENDPOINT_LONGEST_WAIT = Metric("endpoint.longest_wait", "s", title="longest wait for an answer")


class EndpointAnswer(IntEnum):
    """What a request for the metrics came to: values of ENDPOINT_ANSWER below 100, where HTTP statuses begin."""

    METRICS = 0
    REFUSED = 1
    """Nothing listens at the port."""
    SILENT = 2
    """Connected or not, nothing came in time; or nothing has come yet."""
    UNREACHABLE = 3
    """A network, a namespace or a right stands between, which is not the server's fault."""
    NOT_HTTP = 4
    STRANGE = 5
    """Status 200, and something that is not the server's metrics."""


_ANSWERS: Mapping[int, str] = {
    EndpointAnswer.METRICS: "answers",
    EndpointAnswer.REFUSED: "refuses",
    EndpointAnswer.SILENT: "silent",
    EndpointAnswer.UNREACHABLE: "unreachable",
    EndpointAnswer.NOT_HTTP: "not HTTP",
    EndpointAnswer.STRANGE: "no metrics",
}


# Process, on tracks "process:<pid>". Facts: "part" is 1 for those that make up the server, 0 for their helpers; "root"
# is the PID of the server's root.
PROCESS_CPU = Metric("process.cpu", "ns", counter=True, title="CPU time")
PROCESS_SYSTEM = Metric("process.system", "ns", counter=True, title="CPU time in the kernel")
PROCESS_FAULTS = Metric("process.faults", "faults", counter=True, title="page faults")
"""Minor ones: memory touched for the first time, or again after it was given back."""
PROCESS_MAJOR_FAULTS = Metric("process.major_faults", "faults", counter=True, title="major page faults")
"""Memory that had to be read from a disk first: from swap space, or of a mapped file."""
PROCESS_SWAP = Metric("process.swap", "bytes", title="swapped out")
"""Of the parts of the server, every five seconds."""
PROCESS_RSS = Metric("process.rss", "bytes", title="RSS")
PROCESS_FILES = Metric("process.files", "files", title="open files")
PROCESS_FILES_LIMIT = Metric("process.files_limit", "files", title="limit of open files")
"""Of the parts of the server; without the descriptors above a limit that was lowered."""
PROCESS_THREADS = Metric("process.threads", "threads", title="threads")
PROCESS_STATE = Metric("process.state", CODE, title="state")
"""A `ProcessState`, of the process's first thread."""


class ProcessState(IntEnum):
    """Whether a process may run: values of PROCESS_STATE."""

    ALIVE = 0
    UNINTERRUPTIBLE = 1
    """State D: it waits in the kernel for a disk, a network file system or a driver, and no signal reaches it."""
    STOPPED = 2
    """State T: by SIGSTOP, or by a terminal."""
    TRACED = 3
    """State t: a debugger holds it."""
    FROZEN = 4
    """Its cgroup is frozen: docker pause."""


_STATES: Mapping[int, str] = {
    ProcessState.ALIVE: "runs or sleeps",
    ProcessState.UNINTERRUPTIBLE: "uninterruptible",
    ProcessState.STOPPED: "stopped",
    ProcessState.TRACED: "traced",
    ProcessState.FROZEN: "frozen",
}


# Thread, on tracks "thread:<pid>/<tid>".
THREAD_ON_CPU = Metric("thread.on_cpu", "ns", counter=True, title="on-CPU")
THREAD_RUN_QUEUE = Metric("thread.run_queue", "ns", counter=True, title="run-queue wait")
THREAD_VOLUNTARY = Metric("thread.voluntary_switches", "switches", counter=True, title="voluntary switches")
THREAD_INVOLUNTARY = Metric("thread.involuntary_switches", "switches", counter=True, title="involuntary switches")
THREAD_MINOR_FAULTS = Metric("thread.minor_faults", "faults", counter=True, title="minor page faults")
THREAD_MAJOR_FAULTS = Metric("thread.major_faults", "faults", counter=True, title="major page faults")
"""As of processes."""
THREAD_MIGRATIONS = Metric("thread.migrations", "migrations", counter=True, title="migrations")
"""How often it went on on another CPU than before."""
# What the processor counts of a thread, where the machine shows its counters (PMU).
THREAD_CYCLES = Metric("thread.cycles", "cycles", counter=True, title="CPU cycles")
THREAD_INSTRUCTIONS = Metric("thread.instructions", "instructions", counter=True, title="instructions")
THREAD_CACHE_REFERENCES = Metric("thread.cache_references", "accesses", counter=True, title="last-level cache accesses")
THREAD_CACHE_MISSES = Metric("thread.cache_misses", "misses", counter=True, title="last-level cache misses")
THREAD_DTLB_MISSES = Metric("thread.dtlb_misses", "misses", counter=True, title="data TLB misses")
THREAD_STATE_SAMPLES = Metric("thread.state_samples", "samples", counter=True, title="state samples")
"""How often the thread was looked at; `labelled(THREAD_STATE_SAMPLES, "futex_wait")` counts one cause."""


class ThreadCause(StrEnum):
    """What a thread was found doing or waiting for: the labels of THREAD_STATE_SAMPLES.

    RUNNING is state R, on a CPU or queued for one: the clocks (THREAD_ON_CPU, THREAD_RUN_QUEUE) tell these apart.
    All others are waits.
    """

    RUNNING = "running"
    FUTEX = "futex"
    EPOLL = "epoll"
    POLL = "poll"
    NANOSLEEP = "nanosleep"
    PIPE = "pipe"
    SOCKET = "socket"
    DISK = "disk"
    NETWORK_FS = "network_fs"
    """At a file of a network file system, or of one that a program serves (FUSE)."""
    TERMINAL = "terminal"
    GPU_DRIVER = "gpu_driver"
    CUDA_SYNC = "cuda_sync"
    """Asleep within a synchronising call of CUDA or NCCL; only probes on those libraries tell."""
    CHILD = "child"
    SIGNAL = "signal"
    IO_URING = "io_uring"
    STOPPED = "stopped"
    EXITED = "exited"
    UNINTERRUPTIBLE = "uninterruptible"
    OTHER = "other"
    UNSEEN = "unseen"
    """Asleep while no probe looked at what in (system calls were shed, say): no cause, and never shown as one."""


# What probes in the kernel count (collectors/tracing). Sums over the time a probe was attached, which the OBSERVED
# counters tell: rates are made with them, not with the wall clock, because probes that cost too much are taken off.
THREAD_BLOCKED = Metric("thread.blocked", "ns", counter=True, title="blocked")
"""Exact time off the CPU until it was woken; `labelled(THREAD_BLOCKED, "futex")` is one cause of ThreadCause."""
THREAD_WAKES = Metric("thread.wakes", "wakes", counter=True, title="woken")
"""How often the thread was woken; labelled with who did it: a TID, "0" for a timer or an interrupt, or
`OUTSIDE`. Of the first 16 that woke it."""
THREAD_SPINS = Metric("thread.spins", "calls", counter=True, title="spins")
"""Calls that only pass the time, by thread: labelled with a `SpinKind`."""
THREAD_LAUNCHES = Metric("thread.launches", "launches", counter=True, title="CUDA launches")
"""Kernels and graphs that the thread has launched."""
THREAD_CUDA_SYNC = Metric("thread.cuda_sync", "ns", counter=True, title="in CUDA synchronisation")
"""Wall time within synchronising calls of CUDA and NCCL, asleep (ThreadCause.CUDA_SYNC) or spinning on the CPU; and in
loops that ask the GPU until it has finished, while they have the CPU."""
THREAD_COLLECTING = Metric("thread.collecting", "ns", counter=True, title="in Python's garbage collector")
"""Wall time, of the thread on which it runs; without the GIL the others stand still meanwhile."""
THREAD_COLLECTIONS = Metric("thread.collections", "collections", counter=True, title="garbage collections")
"""Those of Python that ran on the thread, of all generations."""
PYTHON_COLLECTOR: Final = "Python gc"
"""What the collector is called among library calls, and where it has no probes."""
THREAD_ROUND = Metric("thread.round", "ns", title="launches and the wait for them")
"""A sample each time that work which the thread had launched was waited for, at the end of that wait: how long since
the end of the one before. `labelled(THREAD_ROUND, part)` is how long of it was a `RoundPart`; as of the three numbers
below it has a sample where that is not 0, a first one where it began to be looked at, and one without a value where it
ceased."""
ROUND_LAUNCHES = Metric("thread.round_launches", "launches", title="launches of a round")
ROUND_GRAPHS = Metric("thread.round_graphs", "launches", title="launches of CUDA graphs of a round")
ROUND_FAULTS = Metric("thread.round_faults", "faults", title="page faults of a round")


class RoundPart(StrEnum):
    """What the time of a round is spent in: the labels of THREAD_ROUND. All else is on the CPU."""

    WAIT = "wait"
    """For the GPU, by whichever thread waits."""
    QUEUE = "queue"
    """For a CPU, as all that follow of the thread that launches."""
    LOCK = "lock"
    """Asleep in futex."""
    INPUT = "input"
    """Asleep in poll, epoll, select or a read of a socket: for somebody to send something."""
    ASLEEP = "asleep"
    """Asleep in any other call, but not in one that waits for the GPU."""
    ALLOCATION = "allocation"
    """In calls that get or give back memory of the GPU."""
    COPY = "copy"
    """In calls that copy, but do not wait for the GPU."""
    COLLECTION = "collection"
    """In Python's garbage collector."""


THREAD_GIL_FUTEX = Metric("thread.gil_futex", "samples", counter=True, title="found waiting for the GIL")
"""Of its samples in futex those at the condition variable of the interpreter's lock."""
THREAD_GIL_SAMPLES = Metric("thread.gil_samples", "samples", counter=True, title="GIL samples")
"""How often the thread's interpreter was looked at; labelled `GIL_OWNER` how often it held the GIL then."""
GIL_OWNER: Final = "owner"
ON_CPU = "on-cpu"
"""The `Stack.state` of a thread that runs; of one that sleeps it is a ThreadCause."""
STACKS_WINDOW_NS = 30 * NS_PER_S
"""Live stacks are sums over so long: what was long ago is not where the server waits."""


class SpinKind(StrEnum):
    """How a thread asks again instead of waiting: the labels of THREAD_SPINS."""

    YIELD = "sched_yield"
    POLL = "poll"
    """Polls that do not wait."""


OUTSIDE: Final = "outside"
"""The label of THREAD_WAKES for a thread that has no id in the PID namespace in which llmtop runs."""


class OffCpu(StrEnum):
    """Why a thread of a capture was not on a CPU: the names of its spans."""

    RUNNABLE = "runnable"
    BLOCKED = "blocked"
    UNINTERRUPTIBLE = "blocked, uninterruptible"


class PythonState(StrEnum):
    """What a thread was doing when its interpreter was looked at: the states of stacks that count samples of it."""

    RUNNING = "python running"
    WAITING = "python waiting"

    @property
    def of_thread(self) -> str:
        """Without whose state it is: "running"."""
        return self.value.removeprefix("python ")


# On tracks "process:<pid>"; SYSCALL_* are labelled with the system call's name, LIBRARY_* with the function's.
SCHEDULER_OBSERVED = Metric("scheduler.observed", "ns", counter=True, title="scheduler probes attached")
PROCESS_RUN_QUEUE_LATENCY = Metric("process.run_queue_latency", "ns", title="run-queue latency")
"""A distribution (see `bucket`): from being runnable to being on a CPU."""
PROCESS_GIL_WAITS = Metric("process.gil_waits", "waits", counter=True, title="GIL waits")
"""futex waits that timed out after 5 ms: a CPython thread that asked for the GIL and did not get it."""
SYSCALL_OBSERVED = Metric("syscall.observed", "ns", counter=True, title="system-call probes attached")
SYSCALL_TIMED = Metric("syscall.timed", "ns", counter=True, title="system calls timed")
"""The part of SYSCALL_OBSERVED in which latencies and errors were taken too."""
SYSCALL_COUNT = Metric("syscall.count", "calls", counter=True, title="calls")
SYSCALL_ERRORS = Metric("syscall.errors", "calls", counter=True, title="errors")
SYSCALL_TIME = Metric("syscall.time", "ns", counter=True, title="time in calls")
SYSCALL_LATENCY = Metric("syscall.latency", "ns", title="call latency")
LIBRARY_OBSERVED = Metric("library.observed", "ns", counter=True, title="library probes attached")
"""For how long all calls of a process that wait for the GPU had probes: what THREAD_CUDA_SYNC is a share of. Other
functions may be without probes meanwhile: their series then have a gap."""
LIBRARY_COUNT = Metric("library.count", "calls", counter=True, title="library calls")
LIBRARY_TIME = Metric("library.time", "ns", counter=True, title="time in library calls")
LIBRARY_LATENCY = Metric("library.latency", "ns", title="library call latency")

# cgroup and host, on tracks "process:<root>" and "host".
CGROUP_THROTTLED = Metric("cgroup.throttled", "ns", counter=True, title="cgroup throttled")
CGROUP_PERIODS_THROTTLED = Metric(
    "cgroup.periods_throttled", "periods", counter=True, title="cgroup periods with throttling"
)
CGROUP_NODE_MEMORY = Metric("cgroup.node_memory", "bytes", title="memory by NUMA node")
"""Anonymous memory of the server's cgroup, labelled with a node's number; only on machines with several."""
HOST_CPU_PRESSURE = Metric("host.cpu_pressure", "%", title="CPU pressure (PSI some, 10 s)")
HOST_LOAD = Metric("host.load", "1", title="load average, 1 min")
HOST_CPU = Metric("host.cpu", "cores", title="CPUs in use")
HOST_CPU_UNSEEN = Metric("host.cpu_unseen", "cores", title="CPUs in use by no process that is seen")
"""Processes in other PID namespaces than llmtop's, or that came and went without a parent that counts them."""
HOST_STEAL = Metric("host.steal", "%", title="CPU time stolen")
"""Of all CPUs' time, what the hypervisor gave to other virtual machines while this one wanted it."""
HOST_INTERRUPTS = Metric("host.interrupts", "%", title="CPU time in interrupts")

# Processes outside the server that use CPUs, on tracks "neighbour:<pid>" with the facts pid and cgroup (its name).
NEIGHBOUR_CPU = Metric("neighbour.cpu", "cores", title="CPU")
"""A mean since the last look, 2 to 10 s ago. Its ended children that nobody saw are in it."""

# llmtop itself, on track "self".
SELF_CPU = Metric("self.cpu", "ns", counter=True, title="own CPU")
SELF_HELPERS = Metric("self.helpers_cpu", "ns", counter=True, title="own CPU, helpers")
"""The part of SELF_CPU that is its helper processes': probes, the NVIDIA driver's, interpreters' stacks."""
SELF_RSS = Metric("self.rss", "bytes", title="own RSS")
SELF_PROBE_HITS = Metric("self.probe_hits", "hits", counter=True, title="probe hits")

# Bits of nvml.h (nvmlClocksEventReason*).
_CLOCK_REASONS = (
    (0x1, "idle"),
    (0x2, "application clocks set"),
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "too hot (driver slows it)"),
    (0x40, "too hot (hardware slows it)"),
    (0x80, "power brake (external)"),
    (0x100, "display clocks set"),
    (0x200, "board limit"),
    (0x400, "reliability voltage"),
)
_FIRST_STATUS = 100
_WORDS: Mapping[str, Mapping[int, str]] = {ENDPOINT_ANSWER.name: _ANSWERS, PROCESS_STATE.name: _STATES}


def clock_reasons(mask: float) -> tuple[str, ...]:
    """Why the clock is not higher, in plain words; () when nothing holds it.

    >>> clock_reasons(0), clock_reasons(4), clock_reasons(0x1048)
    ((), ('power cap',), ('hardware slowdown', 'too hot (hardware slows it)', 'unknown reason 0x1000'))
    """
    bits = int(mask)
    words = tuple(word for bit, word in _CLOCK_REASONS if bits & bit)
    unknown = bits & ~sum(bit for bit, _ in _CLOCK_REASONS)
    return (*words, f"unknown reason {unknown:#x}") if unknown else words


def said(metric: Metric, code: float) -> str:
    """What a code or bits stand for; what is not known as its number.

    >>> said(PROCESS_STATE, 2.0), said(ENDPOINT_ANSWER, 0.0), said(ENDPOINT_ANSWER, 503.0), said(PROCESS_STATE, 9.0)
    ('stopped', 'answers', 'HTTP 503', 'code 9')
    >>> said(GPU_CLOCK_REASONS, 0.0), said(GPU_CLOCK_REASONS, 5.0)
    ('none', 'idle, power cap')
    """
    if metric.unit == BITS:
        return ", ".join(clock_reasons(code)) or "none"
    if metric.name == ENDPOINT_ANSWER.name and code >= _FIRST_STATUS:
        return f"HTTP {code:.0f}"
    return _WORDS.get(metric.name, {}).get(int(code), f"code {code:g}")


_BAR = "|"
SUM = "sum"
"""In place of a bound: the sum of what was observed."""


@lru_cache(maxsize=4096)  # asked for at each poll and each view, thousands of times
def labelled(metric: Metric, label: str) -> Metric:
    """The same metric, split by a label: "thread.state_samples|futex_wait"."""
    return Metric(f"{metric.name}{_BAR}{label}", metric.unit, metric.counter, f"{metric.title} {label}")


@lru_cache(maxsize=4096)
def bucket(metric: Metric, upper: float) -> Metric:
    """The counter of observations at or below `upper` (inf for all) of a latency distribution.

    >>> bucket(SERVER_TTFT, 0.5).name, bucket(SERVER_TTFT, float("inf")).name
    ('server.ttft|0.5', 'server.ttft|inf')
    """
    return Metric(f"{metric.name}{_BAR}{upper:g}", "1", counter=True)


def remark_of(metric: Metric) -> str:
    """The fact of a server's track that says what its number leaves out ("aborts not counted")."""
    return f"{metric.name}.remark"


def total(metric: Metric) -> Metric:
    """The counter of the sum of all observations of a latency distribution, in the metric's own unit."""
    return Metric(f"{metric.name}{_BAR}{SUM}", metric.unit, counter=True)


def has_label(name: str) -> bool:
    """Whether a metric's name has a label, or is that of a bucket."""
    return _BAR in name


def is_part(metric: Metric) -> bool:
    """Whether it is a bucket, or the sum, of a distribution, and means nothing by itself.

    >>> is_part(bucket(SERVER_TTFT, 0.5)), is_part(SERVER_TTFT), is_part(labelled(THREAD_STATE_SAMPLES, "futex"))
    (True, False, False)
    """
    return not metric.title and has_label(metric.name)


def parted(name: str) -> tuple[str, str]:
    """The name of a metric without its labels, and these, which may be a bucket's too; "" where it has none.

    >>> parted("thread.blocked|futex"), parted("syscall.latency|read|1024"), parted("gpu.sm")
    (('thread.blocked', 'futex'), ('syscall.latency', 'read|1024'), ('gpu.sm', ''))
    """
    metric, _, label = name.partition(_BAR)
    return metric, label


def without_bound(name: str) -> tuple[str, str]:
    """The name or the label of a distribution, and the bound (or SUM) of one of its counters.

    >>> without_bound("server.ttft|0.5"), without_bound("read|1024")
    (('server.ttft', '0.5'), ('read', '1024'))
    """
    distribution, _, bound = name.rpartition(_BAR)
    return distribution, bound
