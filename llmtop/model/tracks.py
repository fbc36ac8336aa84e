"""Lines of time: the GPUs, streams, processes and threads that everything else in a trace belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import NewType

from llmtop.frozen import frozen
from llmtop.model.values import Fact

TrackId = NewType("TrackId", str)
"""Made and read by `llmtop.ids`."""


class TrackKind(StrEnum):
    """What a line of time belongs to."""

    HOST = "host"
    SELF = "self"
    GPU = "gpu"
    GPU_INSTANCE = "gpu_instance"
    """A MIG slice of a GPU."""
    GPU_PROCESS = "gpu_process"
    SERVER = "server"
    ENDPOINT = "endpoint"
    """Where a server's metrics are asked for, whether it answers or not."""
    PROCESS = "process"
    NEIGHBOUR = "neighbour"
    """A process outside the server that uses CPUs."""
    ENDED = "ended"
    """A part of the server that has ended while it was watched."""
    THREAD = "thread"
    STREAM = "stream"


@frozen
class Track:
    """A GPU, a stream, a process, a thread: one line of time, with what is slow or never to change about it.

    Attributes:
        id: Unique in a trace: "gpu:0", "server:8000", "process:4242", "thread:4242/4243", "gpu:0/process:4242".
        name: What to call it on screen; already clean.
        parent: The id of the track that holds it.
        facts: Slow values by name: {"uuid": "GPU-...", "role": "EngineCore", "mig": Unknown(...)}.
    """

    id: TrackId
    kind: TrackKind
    name: str
    parent: TrackId | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
