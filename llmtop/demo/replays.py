"""Recordings of a real vLLM on a real GPU that ship with llmtop: what a machine without one cannot stage.

All are of vLLM 0.26 with a Llama-shaped model of 3 billion parameters in bf16 (random weights) on one H100, at 2 Hz
with all probes; sample_traces/README.md tells how each was made. `llmtop share --anonymise` has taken names and paths
out.
"""

from __future__ import annotations

from pathlib import Path

from llmtop.frozen import frozen

_FOLDER = Path(__file__).with_name("replays")


@frozen
class DemoReplay:
    """One recording.

    Attributes:
        name: Of the file, without its extension.
        what: What is seen in it, in half a sentence.
        verdicts: Rules of which each is found at some moment.
    """

    name: str
    what: str
    verdicts: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Where it lies."""
        return _FOLDER / f"{self.name}.llmtop.xz"


_ALL = (
    DemoReplay(
        "gpu-decode", "32 clients, short prompts: a healthy server, whose GPU rests a sixth of the time", ("cpu-bound",)
    ),
    DemoReplay("gpu-kv-exhaustion", "48 clients, a KV cache of 14,400 tokens", ("kv-bound", "objective-missed")),
    DemoReplay("gpu-starved", "the engine may run on one CPU, with three busy loops", ("run-queue-starvation",)),
    DemoReplay(
        "gpu-long-prompts", "three prompts a second of 4,000 to 7,000 tokens", ("step-tail", "objective-missed")
    ),
    DemoReplay("gpu-steps", "which of the engine's steps are slow, and why (key M)", ("step-tail",)),
    DemoReplay(
        "gpu-power-cap",
        "prompts keep the tensor cores busy until the GPU is at its 700 W",
        ("clocks-capped", "queue-standing"),
    ),
    DemoReplay("gpu-xid", "a kernel of another program fails on the same GPU: XID 13", ("xid",)),
)
REPLAYS = {one.name: one for one in _ALL}
