"""Ids of tracks: made and read here alone, as `ids.thread(4242, 4243)` and `ids.pid(track)`.

They are what JSON, snapshots and recordings name a track by, so none of them changes its looks: "host", "host:CPU3",
"self", "gpu:0", "gpu:0/mig:3", "gpu:0/process:4242", "gpu:0/process:4242/stream:13", "server:8000", "endpoint:8000",
"process:4242", "thread:4242/4243", "neighbour:4242", "ended:4242/81516". Where files of several ranks are one trace,
the numbers of each are told apart by its name: "gpu:rank 3", "gpu:rank 3.1" of several, "process:4242@rank 3".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from llmtop.model import TrackId, TrackKind

HOST: Final = TrackId("host")
SELF: Final = TrackId("self")
"""llmtop's own."""
NONE: Final = TrackId("")
"""Of what belongs to no track, or to none that is known."""
SOME_GPU: Final = TrackId("gpu")
"""A GPU, where nothing tells which one."""
_KINDS: Final = {kind.value: kind for kind in TrackKind}
_OF_A_PROCESS: Final = frozenset({"process", "thread", "neighbour", "ended"})
_INSTANCE, _PROCESS, _STREAM = "/mig:", "/process:", "/stream:"
_NUMBER = "[0-9]{1,19}"
_SHAPE = re.compile(
    rf"host(?::.+)?|self|gpu(?::{_NUMBER})?(?:{_INSTANCE}{_NUMBER})?(?:{_PROCESS}{_NUMBER}(?:{_STREAM}{_NUMBER})?)?"
    rf"|(?:server|endpoint):.+|(?:process|neighbour):{_NUMBER}|(?:thread|ended):{_NUMBER}/{_NUMBER}",
    re.DOTALL,
)


def gpu(index: int) -> TrackId:
    """A GPU, by NVML's index."""
    return TrackId(f"gpu:{index}")


def host_part(name: str) -> TrackId:
    """A part of the machine: a CPU, a core, a socket, a NUMA node, a cgroup, threads of one name, as tools call it."""
    return TrackId(f"{HOST}:{name}")


def gpu_instance(of: TrackId, number: int) -> TrackId:
    """A MIG slice of a GPU, by its GPU instance."""
    return TrackId(f"{of}{_INSTANCE}{number}")


def gpu_process(of: TrackId, pid: int) -> TrackId:
    """A process on a GPU, by the PID that the driver gives."""
    return TrackId(f"{of}{_PROCESS}{pid}")


def stream(of: TrackId, pid: int, number: int) -> TrackId:
    """A CUDA stream of a process on a GPU."""
    return TrackId(f"{of}{_PROCESS}{pid}{_STREAM}{number}")


def server(port: int | str) -> TrackId:
    """A server, by its port or the name of its Unix socket."""
    return TrackId(f"server:{port}")


def endpoint(port: int | str) -> TrackId:
    """Where a server's metrics are asked for, whether it answers or not."""
    return TrackId(f"endpoint:{port}")


def process(pid: int) -> TrackId:
    """A process of the server."""
    return TrackId(f"process:{pid}")


def thread(pid: int, tid: int) -> TrackId:
    """A thread of a process of the server."""
    return TrackId(f"thread:{pid}/{tid}")


def neighbour(pid: int) -> TrackId:
    """A process outside the server."""
    return TrackId(f"neighbour:{pid}")


def ended(pid: int, start_ticks: int) -> TrackId:
    """A process of the server that has ended; its PID may be another one's by now, its start tells them apart."""
    return TrackId(f"ended:{pid}/{start_ticks}")


_RANK = "@"
_NO_ID = re.compile(r"[/:@.]")
_PID = re.compile(r"\b(process|thread):(\d+)")


def of_rank(track: TrackId, name: str, *, is_only_gpu: bool) -> TrackId:
    """The same track among those of several ranks.

    >>> of_rank("gpu:0/process:7/stream:13", "rank 3", is_only_gpu=True)
    'gpu:rank 3/process:7@rank 3/stream:13'
    >>> of_rank("gpu:1", "rank 3", is_only_gpu=False), of_rank("thread:7/8", "rank 3", is_only_gpu=True)
    ('gpu:rank 3.1', 'thread:7@rank 3/8')

    Args:
        track: Of one rank alone.
        name: What to call the rank.
        is_only_gpu: Whether it has one GPU, which is then called as it is.
    """
    own = _NO_ID.sub("_", name)
    gpu, is_below, below = track.partition("/")
    if kind(gpu) is TrackKind.GPU:
        number = gpu.partition(":")[2]
        gpu = f"gpu:{own}" if is_only_gpu or not number else f"gpu:{own}.{number}"
        return TrackId(f"{gpu}{is_below}{_of_process(below, own)}")
    return TrackId(_of_process(track, own) if _PID.match(track) else f"{track}{_RANK}{own}")


def _of_process(text: str, rank: str) -> str:
    return _PID.sub(lambda found: f"{found[0]}{_RANK}{rank}", text)


@lru_cache(maxsize=8192)  # asked for of each thread and series, in each frame
def kind(track: str) -> TrackKind | None:
    """What a track is of; None for text that is no track's id.

    >>> kind("gpu:0/mig:3").value, kind("thread:7/8").value, kind("self").value, kind("nvml")
    ('gpu_instance', 'thread', 'self', None)
    """
    if _STREAM in track:
        return TrackKind.STREAM
    if _PROCESS in track:
        return TrackKind.GPU_PROCESS
    if _INSTANCE in track:
        return TrackKind.GPU_INSTANCE
    return _KINDS.get(track.partition(":")[0].partition(_RANK)[0])


@lru_cache(maxsize=8192)
def is_well_formed(track: str) -> bool:
    """Whether a text is an id as a live session makes it, or none at all: no function here fails on it.

    >>> is_well_formed("thread:7/8"), is_well_formed("nvml"), is_well_formed("thread:7"), is_well_formed("process:x")
    (True, True, False, False)
    """
    return kind(track) is None or _SHAPE.fullmatch(track) is not None


def is_gpu_process(track: str, gpu: str) -> bool:
    """Whether a track is of a process on this GPU."""
    return track.startswith(f"{gpu}{_PROCESS}")


def gpu_of(track: str) -> TrackId:
    """The GPU that an instance, a process or a stream is on.

    >>> gpu_of("gpu:0/process:7/stream:13")
    'gpu:0'
    """
    return TrackId(track.partition("/")[0])


def gpu_label(track: str) -> str:
    """What people call a GPU or an instance beside the word GPU; "" where nothing tells which one it is.

    >>> gpu_label("gpu:0"), gpu_label("gpu:0/mig:3"), gpu_label("gpu")
    ('0', '0/3', '')
    """
    return track.partition(":")[2].replace(_INSTANCE, "/")


def gpu_index(track: str) -> int:
    """NVML's index of a GPU.

    Raises:
        ValueError: The track is no GPU's.
    """
    return int(track.removeprefix("gpu:"))


def port(track: str) -> str:
    """The port of a server or an endpoint, or the name of its Unix socket."""
    return track.partition(":")[2]


@lru_cache(maxsize=8192)
def pid(track: str) -> int:
    """The PID of a process, of one on a GPU, of a neighbour, of a thread's process, of a process that has ended.

    >>> [pid(one) for one in ("process:7", "gpu:0/process:7", "thread:7/8", "neighbour:7", "ended:7/99")]
    [7, 7, 7, 7, 7]

    Raises:
        ValueError: The track is of no process.
    """
    _, is_on_gpu, rest = track.partition(_PROCESS)
    if not is_on_gpu:
        kind, _, rest = track.partition(":")
        if kind not in _OF_A_PROCESS:
            raise ValueError(f"{track!r} is of no process")
    return int(rest.partition("/")[0].partition(_RANK)[0])


@lru_cache(maxsize=8192)
def tid(track: str) -> int:
    """The TID of a thread.

    Raises:
        ValueError: The track is no thread's.
    """
    return int(track.removeprefix("thread:").partition("/")[2])


@lru_cache(maxsize=8192)
def process_of(track: str) -> TrackId:
    """The process of a thread, or of what stands on a GPU.

    >>> process_of("thread:4242/4243"), process_of("gpu:0/process:4242/stream:7")
    ('process:4242', 'process:4242')
    >>> process_of("thread:4242@rank 3/4243")
    'process:4242@rank 3'

    Raises:
        ValueError: The track is of no process.
    """
    if not track:
        return NONE
    rank = track.partition(_RANK)[2].partition("/")[0]
    return TrackId(f"{process(pid(track))}{_RANK}{rank}") if rank else process(pid(track))


def is_first_thread(track: str) -> bool:
    """Whether a thread is the first one of its process; what is of no thread that is known counts as one."""
    return not track or pid(track) == tid(track)


def thread_label(track: str) -> str:
    """What people call a thread without a name: "4242/4243"."""
    return f"{pid(track)}/{tid(track)}"
