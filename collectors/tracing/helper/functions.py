"""The library functions that are counted, by the library's name, and what kinds of them are told by thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

LAUNCH, GRAPH, WAIT, QUERY, READ, COLLECT, OTHER = "launch", "graph", "wait", "query", "read", "collect", "other"
KINDS = (WAIT, QUERY, READ, GRAPH, COLLECT, OTHER, LAUNCH)
"""Of calls, the one to be counted all the time first: waits tell the most and are the fewest. Of the next four each
tells something of its own, the cheapest first: a graph's launch stands for those of all its kernels; a collection stops
all of Python; queries that are asked until the GPU has finished are a wait, of which the first and the last cost
something, for the others would be made all the same; copies to the host wait where their memory is pageable. Launches
are the most. What costs too much is given up in the opposite order."""
EACH_OF_ITS_OWN = frozenset((QUERY, READ, GRAPH, COLLECT))
LAUNCHING = frozenset((LAUNCH, GRAPH))
"""What makes up the launches that are told of threads and rounds."""
COLLECTOR = "Python gc"
"""Python's garbage collector: no function that is exported, but found all the same (interpreters.py)."""
_KINDS_BY_LIBRARY = {
    r"libcuda\.so": {
        "cuLaunchKernel": LAUNCH,
        "cuLaunchKernelEx": LAUNCH,
        "cuLaunchCooperativeKernel": LAUNCH,
        "cuGraphLaunch": GRAPH,
        "cuStreamSynchronize": WAIT,
        "cuEventSynchronize": WAIT,
        "cuCtxSynchronize": WAIT,
        "cuStreamQuery": QUERY,
        "cuEventQuery": QUERY,
        "cuMemcpy": WAIT,
        "cuMemcpyDtoH_v2": WAIT,
        "cuMemcpyHtoD_v2": WAIT,
        "cuMemcpyHtoDAsync_v2": OTHER,
        "cuMemcpyDtoHAsync_v2": READ,
        "cuMemcpyDtoDAsync_v2": OTHER,
        "cuMemcpyAsync": OTHER,
        "cuMemAlloc_v2": OTHER,
        "cuMemFree_v2": OTHER,
        "cuMemAllocAsync": OTHER,
    },
    r"libcudart\.so": {
        "cudaLaunchKernel": LAUNCH,
        "cudaLaunchKernelExC": LAUNCH,
        "cudaGraphLaunch": GRAPH,
        "cudaStreamSynchronize": WAIT,
        "cudaEventSynchronize": WAIT,
        "cudaDeviceSynchronize": WAIT,
        "cudaStreamQuery": QUERY,
        "cudaEventQuery": QUERY,
        "cudaMemcpyAsync": OTHER,
        "cudaMemcpy": WAIT,
        "cudaMalloc": OTHER,
        "cudaFree": OTHER,
    },
    r"libnccl\.so": {
        "ncclAllReduce": OTHER,
        "ncclAllGather": OTHER,
        "ncclReduceScatter": OTHER,
        "ncclBroadcast": OTHER,
        "ncclSend": OTHER,
        "ncclRecv": OTHER,
        "ncclGroupEnd": OTHER,
    },
    r"(lib)?python3": {COLLECTOR: COLLECT},
}
"""Calls that wait for the GPU are of kind WAIT. cuMemcpyDtoHAsync does where the memory it copies to is pageable ("API
synchronization behavior" in the CUDA driver API's manual); else it comes back in microseconds, and is no wait where it
took less than READ_WAIT_NS of programs/library.c. vLLM makes two a step, to pinned memory, and another thread waits:
they may not pass for its waits, nor cost those their probes."""
ALLOCATION, COPY, COLLECTION = "allocation", "copy", "collection"
SORTS = {
    **dict.fromkeys(("cuGraphLaunch", "cudaGraphLaunch"), GRAPH),
    "cuMemcpyDtoHAsync_v2": READ,
    **dict.fromkeys(("cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cudaMalloc", "cudaFree"), ALLOCATION),
    **dict.fromkeys(("cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyAsync"), COPY),
    "cudaMemcpyAsync": COPY,
    COLLECTOR: COLLECTION,
}
"""What calls do beside their kind, of those of which a step's time is told apart."""
FUNCTIONS = {library: tuple(kinds) for library, kinds in _KINDS_BY_LIBRARY.items()}
_KIND_BY_NAME = {name: kind for kinds in _KINDS_BY_LIBRARY.values() for name, kind in kinds.items()}
LAUNCHES = frozenset(name for name, kind in _KIND_BY_NAME.items() if kind in LAUNCHING)
SYNCHRONISING = frozenset(name for name, kind in _KIND_BY_NAME.items() if kind in (WAIT, READ))
QUERIES = frozenset(name for name, kind in _KIND_BY_NAME.items() if kind == QUERY)
DRIVERS = {
    "cudaLaunchKernel": ("cuLaunchKernel", "cuLaunchKernelEx"),
    "cudaLaunchKernelExC": ("cuLaunchKernelEx",),
    "cudaGraphLaunch": ("cuGraphLaunch",),
    "cudaStreamSynchronize": ("cuStreamSynchronize",),
    "cudaEventSynchronize": ("cuEventSynchronize",),
    "cudaDeviceSynchronize": ("cuCtxSynchronize",),
    "cudaStreamQuery": ("cuStreamQuery",),
    "cudaEventQuery": ("cuEventQuery",),
}
"""Functions of the runtime that end in one of these of the driver: with probes on both, each call costs twice."""
POLL_GAP_NS, FEWEST_POLLS, LOST_CPU_NS = 10_000, 3, 200_000_000
"""Queries that are asked again this soon are a loop that waits, once so many have said in a row that the GPU works on.
If it is asked again only later, up to the last of these times, the same wait goes on: others may have had the CPU.
programs/library.c has the same."""
_UNDER_WAY, _UNDER_WAY_OF = 16, 6
"""The two counts of a call are made one after the other, and read at one moment: so many calls, and of few a sixth."""
_ENOUGH = 24
"""Of fewer calls nothing can be concluded."""
DUPLICATES = "runtime"
"""What is said not to be probed where functions of the runtime are counted as the driver's alone."""
IN_THE_DRIVER = "its calls are counted in the driver: probes on both would cost too much"
"""Why they are not."""
NUMBERS = {name: number for number, name in enumerate(_KIND_BY_NAME)}
"""What the programs know them by."""


def kind_of(name: str) -> str:
    """What kind of call this is for those who decide which are counted all the time: see sampling.py."""
    return _KIND_BY_NAME.get(name, OTHER)


def duplicates(counts: Mapping[str, int]) -> frozenset[str]:
    """The runtime's functions whose every call has been seen in the driver too, by the calls counted of one process.

    Not so where the driver is reached by another way than its exported functions.
    """
    return frozenset(
        name
        for name, drivers in DRIVERS.items()
        if (count := counts.get(name, 0)) >= _ENOUGH
        and count - min(_UNDER_WAY, count // _UNDER_WAY_OF) <= sum(counts.get(driver, 0) for driver in drivers)
    )


def kinds_of(unseen: Iterable[str]) -> list[str]:
    """What is not known of a process when these functions have no probes: "launches", "sync", "collections"."""
    names, collectors = frozenset(unseen), frozenset({COLLECTOR})
    groups = (("launches", LAUNCHES), ("sync", SYNCHRONISING), ("collections", collectors))
    return [kind for kind, group in groups if names & group]
