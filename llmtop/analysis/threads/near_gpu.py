"""Whether the thread that drives a GPU, and its memory, are near it: on the NUMA node that the GPU hangs on.

From the other socket each launch, each copy and each look at a flag in pinned memory crosses the link between the two.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.labels import labels
from llmtop.analysis.series.readings import latest
from llmtop.analysis.threads.shares import gpu_thread, thread_label
from llmtop.facts import GpuFact, ThreadFact
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llmtop.model import Trace, Track

_CPU_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_MUCH = 0.25
"""Of the server's memory, from which on what lies on other nodes is worth a word. Ours."""
NEAR_DISTANCE = 10.0
"""What the firmware calls the distance of a node to itself (ACPI specification, SLIT)."""


@frozen
class FarFromGpu:
    """A thread that drives a GPU from afar, or whose server's memory is far from it.

    Attributes:
        thread: What people call it; `cpu` is the one that it ran on last.
        near_cpus, node: The GPU's.
        distance: Of the farthest CPUs where 10 is near; None where the firmware does not say.
        is_far: Whether the thread ran far from it; if not, only memory is far.
        far_memory: The share of the server's memory on other nodes, and on which; None where that is not known.
    """

    thread: str
    pid: int
    cpu: int
    gpu: str
    near_cpus: str
    node: int
    distance: float | None
    is_far: bool
    far_memory: tuple[float, tuple[int, ...]] | None

    @property
    def has_far_memory(self) -> bool:
        """Whether so much of it is far that it is worth a word."""
        return self.far_memory is not None and self.far_memory[0] >= _MUCH

    @property
    def text(self) -> str:
        """What is where: "EngineCore runs on CPU 70, GPU 0 is near CPUs 0-31 (NUMA node 0), 62 % of its memory ..."."""
        where = (
            f"{self.thread} runs on CPU {self.cpu}, {self.gpu} is near CPUs {self.near_cpus} (NUMA node {self.node})"
        )
        if self.far_memory is None:
            return f"{where}; where its memory is: numastat -p {self.pid}"
        return f"{where}; {percent(100 * self.far_memory[0])} of the server's memory is on other nodes"

    @property
    def command(self) -> str:
        """What brings it there while it runs."""
        commands = [f"taskset -apc {self.near_cpus} {self.pid}"] if self.is_far else []
        if self.has_far_memory and self.far_memory is not None:
            commands.append(f"migratepages {self.pid} {','.join(map(str, self.far_memory[1]))} {self.node}")
        return "; ".join(commands)

    @property
    def at_start(self) -> str:
        """What keeps it there from its next start on."""
        return f"numactl --cpunodebind={self.node} --membind={self.node}"


def far_from_gpus(trace: Trace, gpus: Sequence[Track]) -> tuple[FarFromGpu, ...]:
    """The GPUs' own threads that are far, each once; none where the machine has one node or does not tell.

    A thread that drives several GPUs is near all of them if it is near one. Of a server with GPUs on several nodes
    it is not told whose memory is on which.
    """
    found: dict[int, FarFromGpu | None] = {}
    is_of_one = len({gpu.facts.get(GpuFact.NUMA_NODE) for gpu in gpus}) == 1
    for gpu in gpus:
        for one in _of_gpu(trace, gpu, tells_memory=is_of_one):
            is_near = not one.is_far and not one.has_far_memory
            found[one.pid] = None if is_near else found.get(one.pid, one)
    return tuple(one for one in found.values() if one is not None)


def _of_gpu(trace: Trace, gpu: Track, *, tells_memory: bool) -> Iterator[FarFromGpu]:
    node, near = gpu.facts.get(GpuFact.NUMA_NODE), str(gpu.facts.get(GpuFact.NEAR_CPUS, ""))
    # It becomes part of a command, and a recording may say anything.
    if not isinstance(node, int) or not _CPU_LIST.fullmatch(near):
        return
    if isinstance(row := gpu_thread(trace, gpu.id), Unknown):
        return
    cpu = trace.tracks[row.track].facts.get(ThreadFact.CPU)
    if isinstance(cpu, int):
        distance = gpu.facts.get(GpuFact.NUMA_DISTANCE)
        far = float(distance) if isinstance(distance, int) else None
        is_far, memory = cpu not in cpus_in(near), _far_memory(trace, node) if tells_memory else None
        yield FarFromGpu(
            thread_label(row), row.pid, cpu, f"GPU {ids.gpu_index(gpu.id)}", near, node, far, is_far, memory
        )


def _far_memory(trace: Trace, node: int) -> tuple[float, tuple[int, ...]] | None:
    """The share of the server's memory that is on other nodes than this, and on which of them."""
    for process, told in labels(trace, v.CGROUP_NODE_MEMORY).items():
        read = {int(label): latest(trace, process, v.labelled(v.CGROUP_NODE_MEMORY, label)) for label in told}
        sizes = {label: size for label, size in read.items() if not isinstance(size, Unknown)}
        whole = sum(sizes.values())
        far = tuple(label for label, size in sorted(sizes.items()) if label != node and size)
        if whole:
            return sum(sizes[label] for label in far) / whole, far
    return None


def cpus_in(listed: str) -> frozenset[int]:
    """The CPUs that a kernel's list names.

    >>> sorted(cpus_in("0-2,8")), cpus_in("")
    ([0, 1, 2, 8], frozenset())
    """
    parts = (part.partition("-") for part in listed.split(",") if part.strip())
    return frozenset(cpu for first, _, last in parts for cpu in range(int(first), int(last or first) + 1))
