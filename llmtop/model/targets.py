"""The server that llmtop is attached to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from llmtop.frozen import frozen
from llmtop.model.values import Fact, Missing, Unknown


@frozen
class TargetProcess:
    """One process of the server under observation."""

    pid: int
    role: str
    name: str


PLAIN_PROCESS: Final = "process"
"""The kind of a target that is no server that llmtop knows."""
PLAIN_ROLE: Final = "main"
"""The role of its root."""
DEMO: Final = "demo"
"""The kind of llmtop's own embedded server."""


@frozen
class Target:
    """What llmtop is attached to: the server a PID belongs to, and where to find its parts.

    Attributes:
        kind: The engine's key in `llmtop.servers` ("vllm", "sglang", "demo" ...), or `PLAIN_PROCESS`.
        metrics_urls: Where to try the Prometheus endpoint, best first.
    """

    pid: int
    root_pid: int
    kind: str
    title: str
    processes: tuple[TargetProcess, ...]
    ports: tuple[int, ...] = ()
    metrics_urls: tuple[str, ...] = ()
    model: Fact = Unknown("the server's model is not known yet")
    dtype: Fact = Unknown("the server's dtype is not known")
    gpus: tuple[int, ...] = ()
    """Numbers of the /dev/nvidia<N> that its processes hold open: device minors, which are mostly NVML's indices."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """What else its command line and configuration say: "quantization", "kv_cache_dtype", "command" (redacted)."""
    config: Mapping[str, Fact] = field(default_factory=dict)
    """The single values of the model's config.json, by their names there; "quantization_config.bits" is one of a group.
    Empty where it cannot be read."""
    missing: tuple[Missing, ...] = ()
    """What could not be found out about it, by "target.<field>"."""
