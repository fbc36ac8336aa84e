"""The library functions that are counted, by the library's name, and what kinds of them are told by thread."""

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
NUMBERS = {name: number for number, name in enumerate(name for names in FUNCTIONS.values() for name in names)}
"""What the programs know them by."""
