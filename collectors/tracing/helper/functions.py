"""The library functions that are counted, by the library's name, and what kinds of them are told by thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

FUNCTIONS = {
    r"libcuda\.so": (
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cuLaunchCooperativeKernel",
        "cuGraphLaunch",
        "cuStreamSynchronize",
        "cuEventSynchronize",
        "cuCtxSynchronize",
        "cuMemcpy",
        "cuMemcpyDtoH_v2",
        "cuMemcpyHtoD_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyDtoDAsync_v2",
        "cuMemcpyAsync",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuMemAllocAsync",
    ),
    r"libcudart\.so": (
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cudaGraphLaunch",
        "cudaStreamSynchronize",
        "cudaEventSynchronize",
        "cudaDeviceSynchronize",
        "cudaMemcpyAsync",
        "cudaMemcpy",
        "cudaMalloc",
        "cudaFree",
    ),
    r"libnccl\.so": (
        "ncclAllReduce",
        "ncclAllGather",
        "ncclReduceScatter",
        "ncclBroadcast",
        "ncclSend",
        "ncclRecv",
        "ncclGroupEnd",
    ),
}
LAUNCHES = frozenset(
    {
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cuLaunchCooperativeKernel",
        "cuGraphLaunch",
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cudaGraphLaunch",
    }
)
SYNCHRONISING = frozenset(
    {
        "cuStreamSynchronize",
        "cuEventSynchronize",
        "cuCtxSynchronize",
        "cuMemcpy",
        "cuMemcpyDtoH_v2",
        "cuMemcpyHtoD_v2",
        "cuMemcpyDtoHAsync_v2",
        "cudaStreamSynchronize",
        "cudaEventSynchronize",
        "cudaDeviceSynchronize",
        "cudaMemcpy",
    }
)
"""Calls that wait for the GPU. cuMemcpyDtoHAsync does where the memory it copies to is pageable ("API synchronization
behavior" in the CUDA driver API's manual); else it comes back in microseconds, which do no harm here."""
DRIVERS = {
    "cudaLaunchKernel": ("cuLaunchKernel", "cuLaunchKernelEx"),
    "cudaLaunchKernelExC": ("cuLaunchKernelEx",),
    "cudaGraphLaunch": ("cuGraphLaunch",),
    "cudaStreamSynchronize": ("cuStreamSynchronize",),
    "cudaEventSynchronize": ("cuEventSynchronize",),
    "cudaDeviceSynchronize": ("cuCtxSynchronize",),
}
"""Functions of the runtime that end in one of these of the driver: with probes on both, each call costs twice."""
_UNDER_WAY = 16
"""The two counts of a call are made one after the other, and read at one moment."""
_ENOUGH = 100
"""Of fewer calls nothing can be concluded."""
DUPLICATES = "runtime"
"""What is said not to be probed where functions of the runtime are counted as the driver's alone."""
IN_THE_DRIVER = "its calls are counted in the driver: probes on both would cost too much"
"""Why they are not."""
NUMBERS = {name: number for number, name in enumerate(name for names in FUNCTIONS.values() for name in names)}
"""What the programs know them by."""


KINDS = ("wait", "other", "launch")
"""Of calls, the one to be counted all the time first: waits tell the most and are the fewest. What costs too much is
given up in the opposite order."""


def kind_of(name: str) -> str:
    """What kind of call this is for those who decide which are counted all the time: see sampling.py."""
    return "launch" if name in LAUNCHES else "wait" if name in SYNCHRONISING else "other"


def duplicates(counts: Mapping[str, int]) -> frozenset[str]:
    """The runtime's functions whose every call has been seen in the driver too, by the calls counted of one process.

    Not so where the driver is reached by another way than its exported functions.
    """
    return frozenset(
        name
        for name, drivers in DRIVERS.items()
        if _ENOUGH <= counts.get(name, 0) <= sum(counts.get(driver, 0) for driver in drivers) + _UNDER_WAY
    )


def kinds_of(unseen: Iterable[str]) -> list[str]:
    """What is not known of a process when these functions have no probes: "launches", "sync"."""
    names = frozenset(unseen)
    return [kind for kind, group in (("launches", LAUNCHES), ("sync", SYNCHRONISING)) if names & group]
