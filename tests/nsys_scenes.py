"""Captures of one known cause each: what an engineer would find in them, and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.nsys_capture import BLOCKED, DTOH, HTOD, MS, PAGEABLE, PID, TID, US, Capture

STEPS = 40


@dataclass(frozen=True, slots=True)
class Scene:
    """A capture, the rules that have to fire in the order of their findings, and a word that the first has to say."""

    make: Callable[[], Capture]
    rules: tuple[str, ...]
    says: str = ""


def _traced() -> Capture:
    """One whose OS calls were traced."""
    made = Capture()
    made.os("write", 0, 1)
    return made


def _launch(
    capture: Capture,
    at: int,
    lasts: int,
    begins: int,
    runs: int,
    *,
    gpu: int = 0,
    stream: int = 7,
    pid: int = PID,
    tid: int = TID,
) -> int:
    """One kernel: when its launch began and how long it took, and the kernel likewise; when that ended."""
    call = capture.call("cudaLaunchKernel", at, at + lasts, pid=pid, tid=tid)
    capture.kernel(begins, begins + runs, call, gpu=gpu, stream=stream, pid=pid)
    return begins + runs


def healthy() -> Capture:
    """Kernels queued far ahead, back to back."""
    made = _traced()
    for i in range(1000):
        _launch(made, i * 5 * US, 4 * US, 10 * US + i * 100 * US, 100 * US - 500)
    return made


def launch_bound() -> Capture:
    """Small kernels, each launched after the last one has long ended."""
    made = _traced()
    for i in range(STEPS * 25):
        now = i * 20 * US
        _launch(made, now + 8 * US, 5 * US, now + 15 * US, 5 * US)
    return made


def graph_inside() -> Capture:
    """Graphs of tiny kernels, launched ahead: what idles is between their nodes."""
    made = _traced()
    for step in range(STEPS):
        ahead = 900 * US if step else 60 * US
        call = made.call("cudaGraphLaunch", step * MS - ahead, step * MS - ahead + 50 * US)
        for node in range(200):
            begins = step * MS + node * 5 * US
            made.kernel(begins, begins + 3 * US, call)
    return made


def graphs_with_kernels_between() -> Capture:
    """Graph replays, their nodes a moment apart; a few kernels before each are launched one by one."""
    made = _traced()
    for step in range(STEPS):
        start = step * MS
        for i in range(4):
            _launch(made, start + i * 20 * US + 8 * US, 5 * US, start + i * 20 * US + 15 * US, 5 * US)
        call = made.call("cudaGraphLaunch", start + 20 * US, start + 70 * US)
        for node in range(120):
            begins = start + 85 * US + node * 7 * US
            made.kernel(begins, begins + 4 * US, call)
    return made


def graph_launched_late() -> Capture:
    """One graph a step, the next launched only after the result of the last was waited for and worked on shortly."""
    made = _traced()
    for step in range(STEPS):
        start = step * 960 * US
        call = made.call("cudaGraphLaunch", start, start + 150 * US)
        for node in range(8):
            made.kernel(start + 155 * US + node * 100 * US, start + 254 * US + node * 100 * US, call)
    return made


def synchronised() -> Capture:
    """A synchronisation after each kernel."""
    made = _traced()
    for i in range(STEPS * 10):
        now = i * 100 * US
        end = _launch(made, now, 6 * US, now + 9 * US, 60 * US)
        made.call("cudaStreamSynchronize", now + 7 * US, end + 15 * US)
    return made


def pageable_copies() -> Capture:
    """Each step stages its input from pageable memory in the call, then copies a result back and waits for it."""
    made = _traced()
    for step in range(STEPS):
        now = step * 855 * US
        call = made.call("cudaMemcpyAsync", now, now + 500 * US)
        made.copy(now + 400 * US, now + 490 * US, call, HTOD, host=PAGEABLE, size=8 << 20)
        end = _launch(made, now + 510 * US, 6 * US, now + 520 * US, 300 * US)
        call = made.call("cudaMemcpyAsync", now + 530 * US, end + 30 * US)
        made.copy(end, end + 5 * US, call, DTOH, host=PAGEABLE)
    return made


def allocated_in_the_loop(allocate: str = "cudaMalloc", free: str = "cudaFree") -> Capture:
    """Memory of the GPU, or of what these calls are for, is allocated and freed around each kernel."""
    made = _traced()
    for step in range(STEPS):
        now = step * 870 * US
        made.call(allocate, now, now + 200 * US)
        end = _launch(made, now + 205 * US, 6 * US, now + 215 * US, 400 * US)
        made.call(free, now + 220 * US, end + 250 * US)
    return made


def sleeping() -> Capture:
    """A polling loop that sleeps between steps."""
    made = _traced()
    for step in range(STEPS):
        now = step * 5 * MS
        _launch(made, now, 6 * US, now + 10 * US, MS)
        made.os("clock_nanosleep", now + 20 * US, now + 4990 * US)
        made.off_cpu(now + 21 * US, now + 4989 * US, BLOCKED)
    return made


def python_in_a_range() -> Capture:
    """Sampling in Python after each step's result was read."""
    made = _traced()
    for step in range(STEPS):
        now = step * 10 * MS
        for i in range(20):
            end = _launch(made, now + i * 5 * US, 4 * US, now + 10 * US + i * 100 * US, 100 * US)
        made.call("cudaStreamSynchronize", now + 101 * US, end + 10 * US)
        made.nvtx(f"step {step}", now, now + 10 * MS)
        made.nvtx("sample tokens", end + 12 * US, now + 9900 * US)
        for at in range(5):
            made.sample(end + MS + at * MS, "dict_lookup", "sample")
    return made


def descheduled() -> Capture:
    """Others take the launching thread's CPU for some milliseconds of each step."""
    made = _traced()
    for step in range(STEPS):
        now = step * 5 * MS
        _launch(made, now, 6 * US, now + 10 * US, MS)
        made.off_cpu(now + 500 * US, now + 4900 * US)
    return made


def nobody_asks() -> Capture:
    """A server that waits for requests most of the time."""
    made = _traced()
    for step in range(STEPS):
        now = step * 50 * MS
        for i in range(60):
            _launch(made, now + i * 5 * US, 4 * US, now + 10 * US + i * 100 * US, 100 * US)
        made.os("epoll_wait", now + 400 * US, now + 49_990 * US)
    return made


def queued_and_not_started() -> Capture:
    """Each second kernel waits for something that is not on this GPU."""
    made = _traced()
    for step in range(STEPS):
        now = step * MS
        _launch(made, now - 200 * US, 6 * US, now, 400 * US)
        _launch(made, now - 190 * US, 6 * US, now + 700 * US, 290 * US, stream=8)
    return made


def tiny_kernels_queued() -> Capture:
    """Kernels of two microseconds, queued far ahead: the GPU needs a moment for each."""
    made = _traced()
    for i in range(2000):
        _launch(made, i * US, 800, 10 * US + i * 3 * US, 2 * US)
    return made


def code_loaded_in_the_capture() -> Capture:
    """A capture that begins before the warm-up: modules are loaded between the first kernels."""
    made = _traced()
    for i in range(10):
        now = i * 11 * MS
        made.call("cuLibraryLoadData", now, now + 9 * MS)
        _launch(made, now + 9100 * US, 900 * US, now + 10_005 * US, 900 * US)
    return made


def graphs_traced_as_a_whole() -> Capture:
    """One graph a step, without its kernels; after each its result is read and worked on."""
    made = _traced()
    for step in range(STEPS):
        now = step * 10 * MS
        call = made.call("cudaGraphLaunch", now, now + 50 * US)
        made.graph(now + 55 * US, now + 6 * MS, call)
        made.call("cudaEventSynchronize", now + 60 * US, now + 6010 * US)
    return made


def graphs_not_exported() -> Capture:
    """A graph a step that was traced as a whole, as exports up to 2023.4 have it: not; and two kernels beside it."""
    made = _traced()
    for step in range(STEPS):
        now = step * 10 * MS
        made.call("cudaGraphLaunch", now, now + 50 * US)
        made.call("cudaEventSynchronize", now + 60 * US, now + 8 * MS)
        for i in (0, 1):
            at = now + 8 * MS + i * 60 * US
            _launch(made, at, 6 * US, at + 10 * US, 800 * US - i * 30 * US)
    return made


def one_thread_for_two_gpus() -> Capture:
    """One thread launches twenty kernels for each GPU in turn."""
    made = _traced()
    for step in range(STEPS):
        for i in range(40):
            now = (step * 40 + i) * 6 * US
            _launch(made, now, 5800, now + 5800, 5 * US, gpu=i // 20)
    return made


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def one_gpu_late(kernel: str = ALL_REDUCE) -> Capture:
    """Two ranks: the second computes longer each step, so the first waits for it in the all-reduce."""
    made = _traced()
    for step in range(STEPS):
        now = step * 10 * MS
        for gpu, computes in ((0, 4 * MS), (1, 7 * MS)):
            who = {"pid": 100 + 100 * gpu, "tid": 101 + 100 * gpu}
            _launch(made, now - 100 * US, 5 * US, now, computes, gpu=gpu, **who)
            call = made.call("cudaLaunchKernel", now - 90 * US, now - 85 * US, **who)
            made.kernel(now + computes, now + 8 * MS, call, kernel, gpu=gpu, pid=who["pid"])
            _launch(made, now - 80 * US, 5 * US, now + 8 * MS, 2 * MS - US, gpu=gpu, **who)
    return made


def one_gpus_cpu_late() -> Capture:
    """Two ranks with the same work: the second is launched later each step, so the first waits for it."""
    made = _traced()
    for step in range(STEPS):
        now = step * 10 * MS
        for gpu, late in ((0, 0), (1, 3 * MS)):
            who = {"pid": 100 + 100 * gpu, "tid": 101 + 100 * gpu}
            _launch(made, now + late - 100 * US, 5 * US, now + late, 4 * MS, gpu=gpu, **who)
            call = made.call("cudaLaunchKernel", now + late - 90 * US, now + late - 85 * US, **who)
            made.kernel(now + late + 4 * MS, now + 8 * MS, call, ALL_REDUCE, gpu=gpu, pid=who["pid"])
            _launch(made, now + late - 80 * US, 5 * US, now + 8 * MS, 2 * MS - US, gpu=gpu, **who)
    return made


def one_gpus_cpu_later_than_the_others() -> Capture:
    """Two ranks whose own code lasts: by far longer on the second, long enough to be worth a word on the first."""
    made = _traced()
    for gpu, pause in ((0, 400 * US), (1, 3 * MS)):
        who = {"pid": 100 + 100 * gpu, "tid": 101 + 100 * gpu}
        made.os("write", -100 * US, -99 * US, tid=who["tid"], pid=who["pid"])
        for step in range(STEPS):
            now = step * 10 * MS
            _launch(made, now + pause, 5 * US, now + pause + 6 * US, 10 * MS - pause - 6 * US, gpu=gpu, **who)
    return made


def queries_in_the_loop() -> Capture:
    """The thread asks the driver for attributes before each launch, and the GPU waits."""
    made = _traced()
    for step in range(STEPS):
        now = step * MS
        made.call("cudaDeviceGetAttribute", now, now + 600 * US)
        _launch(made, now + 600 * US, 6 * US, now + 610 * US, 390 * US)
    return made


def communication_hidden() -> Capture:
    """The same all-reduces, beside kernels of another stream."""
    made = _traced()
    for step in range(STEPS):
        now = step * 10 * MS
        for gpu in (0, 1):
            _launch(made, now - 100 * US, 5 * US, now, 10 * MS - US, gpu=gpu)
            call = made.call("cudaLaunchKernel", now - 90 * US, now - 85 * US)
            made.kernel(now + MS, now + 4 * MS, call, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL()", gpu=gpu, stream=9)
    return made


def traced_without_os_calls() -> Capture:
    """Long pauses, and nothing in the capture that would tell what the thread did."""
    made = Capture()
    for step in range(STEPS):
        now = step * 10 * MS
        _launch(made, now, 6 * US, now + 10 * US, 2 * MS)
    return made


SCENES: Mapping[str, Scene] = {
    "healthy": Scene(healthy, ()),
    "launch-bound": Scene(launch_bound, ("launch-gaps",), "one by one"),
    "inside graphs": Scene(graph_inside, ("graph-gaps",), "graph"),
    "graphs and kernels": Scene(graphs_with_kernels_between, ("graph-gaps", "launch-gaps"), "graph"),
    "graph launched late": Scene(graph_launched_late, ("graph-launch-gaps",), "launched late"),
    "a sync per kernel": Scene(synchronised, ("sync-stalls",), "waits for the GPU"),
    "pageable copies": Scene(pageable_copies, ("blocking-copies",), "pageable"),
    "allocation in the loop": Scene(allocated_in_the_loop, ("allocation-stalls",), "allocates"),
    "sleep": Scene(sleeping, ("host-waits",), "clock_nanosleep"),
    "Python in a range": Scene(python_in_a_range, ("host-code",), "sample tokens"),
    "no CPU": Scene(descheduled, ("host-descheduled",), "waits for a CPU"),
    "no requests": Scene(nobody_asks, ("no-work",), "epoll_wait"),
    "queued": Scene(queued_and_not_started, ("queued-work",), "does not start"),
    "tiny kernels": Scene(tiny_kernels_queued, ("kernel-turnaround",), "moment to start"),
    "warm-up": Scene(code_loaded_in_the_capture, ("code-loading",), "loaded"),
    "graphs as a whole": Scene(graphs_traced_as_a_whole, ("host-code",), "its own code"),
    "graphs not exported": Scene(graphs_not_exported, ("idle-unknown", "host-code"), "or busy with CUDA graphs"),
    "one thread for two GPUs": Scene(one_thread_for_two_gpus, ("launch-gaps",), "one by one"),
    "one GPU late": Scene(one_gpu_late, ("exposed-communication",), "mostly for GPU 1"),
    "one GPU launched late": Scene(one_gpus_cpu_late, ("exposed-communication", "host-code"), "mostly for GPU 1"),
    "one GPU's CPU later": Scene(one_gpus_cpu_later_than_the_others, ("host-code",), "own code"),
    "driver queries": Scene(queries_in_the_loop, ("cuda-calls",), "cudaDeviceGetAttribute"),
    "communication hidden": Scene(communication_hidden, ()),
    "not traced": Scene(traced_without_os_calls, ("idle-unknown",), "does not tell"),
}
