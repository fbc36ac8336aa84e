"""What is missing: made and read here alone, as `whats.reading(track, metric)` and `whats.STACKS`.

They are what documents and screens list under "missing", so none of them changes its looks: "gpu:0/gpu.dram" and
"gpu:0/gpm" (of one track), "gpu:0", "thread" (all of a kind), "thread.blocked" (on any track), "nvml" (all that a
collector reads), "ebpf.shed" (some of it), "library.cuLaunchKernel" (a function without probes), "stacks".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from llmtop.model import Metric, TrackId, TrackKind, What

# What live sources give beside readings.
STACKS: Final = What("stacks")
ON_CPU_STACKS: Final = What("on-CPU stacks")
SYSCALLS: Final = What("syscalls")
SCHEDULER: Final = What("scheduler")
RUN_QUEUE_LATENCY: Final = What("run-queue latency")
SLEEP_CAUSES: Final = What("thread.blocked/cause")
LIBRARY: Final = What("library")
LIBRARY_CALLS: Final = What("library calls")
ROUNDS: Final = What("rounds of GPU work")
"""Launches and the wait for them, of which the engine's steps are made."""
PYTHON_FRAMES: Final = What("python frames")
BEST_TRACER: Final = What("tracer")
"""Of several that could look into the kernel, the one that sees most."""
KERNEL_LOG: Final = What("kernel_log")
ANY_XID: Final = What("gpu/xid")
CORE_DUMPS: Final = What("core dumps")
"""Those of GPUs, of the server that is watched."""
IDLE_THREADS: Final = What("thread.idle")
"""Looks at threads that rest, as often as at others."""
TARGET: Final = What("target")
TARGET_URLS: Final = What("target.metrics_urls")
TARGET_PORTS: Final = What("target.ports")
TARGET_GPUS: Final = What("target.gpus")
# What captures hold.
KERNELS: Final = What("kernels")
KERNELS_IN_GRAPHS: Final = What("kernels in CUDA graphs")
TIMELINE: Final = What("timeline")
NVTX: Final = What("nvtx")
CUDA_CALLS: Final = What("CUDA calls")
OS_CALLS: Final = What("OS calls")
CPU_SCHEDULING: Final = What("CPU scheduling")
CPU_SAMPLES: Final = What("CPU samples")
# What traces of PyTorch hold where its profiler was told to record it.
SHAPES: Final = What("shapes")
ALLOCATIONS: Final = What("allocations")
PYTHON_CALLS: Final = What("Python calls")
SERIES: Final = What("series")
OTHER_METRICS: Final = What("other metrics")
"""What was collected of kernels, and is not on a printed page."""
# What counters tell of a kernel.
BOUND: Final = What("bound")
ROOFLINE: Final = What("roofline")
OCCUPANCY: Final = What("occupancy")
REGISTERS: Final = What("registers")
WAVES: Final = What("waves")
STALLS: Final = What("stalls")
DRAM_TRAFFIC: Final = What("DRAM traffic")
L1_HIT_RATE: Final = What("L1 hit rate")
L2_HIT_RATE: Final = What("L2 hit rate")
# Sections of a document that are empty.
GPUS: Final = What("gpus")
THREADS: Final = What("threads")
IDLE_CAUSES: Final = What("idle_causes")
CORRELATION: Final = What("correlation")
_FUNCTION: Final = "library."
_FAULT: Final = "collector-"


class Facet(StrEnum):
    """What there is of a track where its driver tells: facets under its id."""

    GPM = "gpm"
    PROCESSES = "processes"
    INSTANCES = "mig"
    XID = "xid"
    PYTHON = PYTHON_FRAMES


class State(StrEnum):
    """Why a collector that works gives less than it could, or nothing for a while."""

    SHED = "shed"
    """It would cost too much."""
    LIGHT = "light"
    OFF = "off"
    """As `--probes` says."""
    LATE = "late"


def track(id: TrackId) -> What:
    """All of a track."""
    return What(id)


def kind(of: TrackKind) -> What:
    """All tracks of a kind."""
    return What(of.value)


def metric(of: Metric) -> What:
    """A metric on whichever track."""
    return What(of.name)


def reading(track: TrackId, metric: Metric) -> What:
    """A metric on one track."""
    return named(track, metric.name)


def facet(track: TrackId, one: Facet) -> What:
    """A facet of a track that is no metric, or is several."""
    return named(track, one.value)


def named(track: TrackId, name: str) -> What:
    """What has this name on one track: a metric without its labels, a part of the track's (`Source.parts`)."""
    return What(f"{track}/{name}")


def is_facet(what: What, one: Facet) -> bool:
    """Whether it is this facet of whichever track.

    >>> is_facet(ANY_XID, Facet.XID), is_facet(facet(TrackId("gpu:0"), Facet.GPM), Facet.XID)
    (True, False)
    """
    return what.endswith(f"/{one.value}")


def source(collector: str) -> What:
    """All that a collector reads, by its name."""
    return What(collector)


def state(collector: str, of: State) -> What:
    """Some of what a collector reads."""
    return What(f"{collector}.{of.value}")


def of_source(collector: str) -> tuple[What, ...]:
    """Where a collector's own reasons stand, the one to name first at the head: it sheds, or reads nothing."""
    return state(collector, State.SHED), source(collector)


def renamed(what: What, collector: str, other: str) -> What:
    """What one collector says of itself, said of another; all else stays.

    >>> [renamed(one, "perf", "ebpf") for one in (state("perf", State.SHED), source("perf"), STACKS)]
    ['ebpf.shed', 'ebpf', 'stacks']
    """
    name, dot, of = what.partition(".")
    return What(f"{other}{dot}{of}") if name == collector else what


def fault(collector: str) -> str:
    """The code of the issue that a collector has failed."""
    return f"{_FAULT}{collector}"


def of_fault(code: str) -> What | None:
    """All that a collector reads, by the code of the issue that it has failed; None of another issue.

    >>> of_fault(fault("nvml")), of_fault("ebpf-lost")
    ('nvml', None)
    """
    return source(code.removeprefix(_FAULT)) if code.startswith(_FAULT) else None


def function(name: str) -> What:
    """A function of a library, without probes."""
    return What(f"{_FUNCTION}{name}")


def function_of(what: What) -> str:
    """The function that has no probes; empty of anything else."""
    return what.removeprefix(_FUNCTION) if what.startswith(_FUNCTION) else ""


def told(name: str) -> What:
    """What a helper, a tool or a view calls by this name, and nobody asks for by another one."""
    return What(name)


def together(whats: list[What]) -> What:
    """Several that are missing for one reason, as they are listed."""
    return What(", ".join(whats))
