"""Reports and timelines drawn by chance: the same for the same seed, anywhere.

A launch is one that was captured with its counters changed by round factors, so that every counter of it may be at a
limit, beyond it, or not there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TypeAlias

from llmtop.model import Instances, Trace, Unknown, Value
from llmtop.parsers.registry import load
from tests.kernel_traces import Launch, report
from tests.nsys_capture import BLOCKED, DTOH, HTOD, MS, PAGEABLE, PINNED, RUNNABLE, TID, US, Capture
from tests.parsers.sample_reports import SAMPLE_TRACES

_Turn: TypeAlias = Callable[[Capture, int, Random], int]
"""Adds something from a time on, and tells when it has ended."""
_FACTORS = (0.0, 0.1, 0.25, 0.5, 1.0, 1.0, 1.0, 1.0, 2.0, 4.0)
_PERCENTS = (0.0, 5.0, 10.0, 20.0, 30.0, 50.0, 60.0, 80.0, 90.0, 95.0, 100.0)
NAMES = (
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(Params)",
    "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(Flash_fwd_params)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
    "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda()>(int)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(ReduceOp)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)",
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0",
    "void rms_norm_kernel<c10::BFloat16>(c10::BFloat16 *)",
    "void gemv2T_kernel_val<int, int, __nv_bfloat16, 128, 16, 4, 4>(cublasGemvParamsEx)",
)


@lru_cache(maxsize=1)
def _captured() -> tuple[tuple[str, dict[str, Value], dict[str, Instances]], ...]:
    """The first launch of each report of one cause: its name, counters, and what is told of parts of these."""
    found = []
    folder: Path = SAMPLE_TRACES / "ncu" / "2025.3.1"
    for path in sorted(folder.glob("*.ncu-rep.xz")):
        kernels = load(path).kernels
        if path.name.startswith(("llama", "sgemm")) or kernels is None or kernels.details is None:
            continue
        metrics = dict(kernels.details.metrics(0))
        split = {name: kernels.details.instances(0, name) for name in metrics if "opcode" in name or "pcsamp" in name}
        known = {name: one for name, one in split.items() if not isinstance(one, Unknown)}
        found.append((kernels.names[0], metrics, known))
    return tuple(found)


def random_report(seed: int) -> Trace:
    """Six kernels, of which some are launched again with the same counters."""
    chance, launches = Random(seed), list[Launch]()
    for _ in range(6):
        name, metrics, split = chance.choice(_captured())
        changed = {one: _changed(one, value, chance) for one, value in metrics.items() if chance.random() > 0.02}
        launch = Launch(
            name=chance.choice((name, *NAMES)),
            ns=chance.choice((900.0, 2e3, 5e3, 1e4, 1e6)),
            metrics=changed,
            grid=(chance.choice((1, 16, 64, 131, 132, 133, 264, 4096)), chance.choice((1, 1, 4)), 1),
            block=(chance.choice((1, 32, 96, 128, 1024)), 1, 1),
            instances=split,
        )
        launches += [launch] * chance.choice((1, 1, 2, 5))
    return report(*launches, gpu=chance.choice(("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "")))


def _changed(name: str, value: Value, chance: Random) -> Value:
    if isinstance(value, str) or chance.random() < 0.6:
        return value
    if "pct" in name:
        return chance.choice(_PERCENTS)
    return type(value)(value * chance.choice(_FACTORS))


def random_capture(seed: int) -> Capture:
    """A hundred turns of a loop that does one thing or another, on two GPUs."""
    chance, made, now = Random(seed), Capture(), 0
    if chance.random() < 0.8:
        made.os("write", 0, 1)
    habits = chance.sample(sorted(_TURNS), 4)
    for turn in range(100):
        start, gpu = now, chance.choice((0, 0, 0, 1))
        for _ in range(chance.choice((1, 1, 3, 12))):
            lasts, runs = chance.choice((2, 5, 8)) * US, chance.choice((1, 2, 10, 100, 400)) * US
            call = made.call(chance.choice(("cudaLaunchKernel", "cudaLaunchKernelExC")), now, now + lasts)
            begins = now + lasts + chance.choice((0, 1, 3, 200)) * US
            name = chance.choice(NAMES)
            made.kernel(begins, begins + runs, call, name, gpu=gpu, stream=chance.choice((7, 7, 8)))
            now = chance.choice((now + lasts, begins + runs))
        now = _TURNS[chance.choice(habits)](made, now + chance.choice((0, 2, 50)) * US, chance)
        if chance.random() < 0.5:
            made.nvtx(f"step {turn % 3}", start, now)
    return made


def _long(chance: Random) -> int:
    return chance.choice((1, 5, 20, 100, 1000, 3000)) * US


def _call(name: str) -> _Turn:
    def turn(made: Capture, now: int, chance: Random) -> int:
        made.call(name, now, end := now + _long(chance))
        return end

    return turn


def _os(name: str) -> _Turn:
    def turn(made: Capture, now: int, chance: Random) -> int:
        made.os(name, now, end := now + _long(chance))
        return end

    return turn


def _copy(made: Capture, now: int, chance: Random) -> int:
    end = now + _long(chance)
    call = made.call("cudaMemcpyAsync", now, end)
    made.copy(now + US, end, call, chance.choice((HTOD, DTOH)), host=chance.choice((PAGEABLE, PINNED)))
    return end


def _graph(made: Capture, now: int, chance: Random) -> int:
    call, at = made.call("cudaGraphLaunch", now, now + 10 * US), now + 12 * US
    for _ in range(chance.choice((2, 9))):
        made.kernel(at, at + 20 * US, call, chance.choice(NAMES))
        at += 20 * US + chance.choice((1, 3, 40)) * US
    return at


def _descheduled(made: Capture, now: int, chance: Random) -> int:
    made.off_cpu(now, end := now + _long(chance), chance.choice((RUNNABLE, BLOCKED)))
    return end


def _python(made: Capture, now: int, chance: Random) -> int:
    for at in range(6):
        made.sample(now + at * MS, chance.choice(("dict_lookup", "", "eval")), chance.choice(("sample", "detokenize")))
    return now + 6 * MS


def _profiler(made: Capture, now: int, chance: Random) -> int:
    made.overhead("flush", now, end := now + _long(chance), tid=TID)
    return end


_TURNS = {
    "wait": _call("cudaStreamSynchronize"),
    "allocate": _call("cudaMalloc"),
    "load": _call("cuModuleLoadData"),
    "ask": _call("cudaDeviceGetAttribute"),
    "sleep": _os("clock_nanosleep"),
    "poll": _os("epoll_wait"),
    "lock": _os("pthread_mutex_lock"),
    "read": _os("read"),
    "copy": _copy,
    "graph": _graph,
    "descheduled": _descheduled,
    "python": _python,
    "profiler": _profiler,
}
