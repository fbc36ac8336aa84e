"""What the demo server can be told, and the flags that its two processes share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from llmtop.demo.faults import fault_spec
from llmtop.frozen import frozen

DTYPES = ("auto", "float32", "float16", "bfloat16")


@frozen
class Options:
    """Settings of the engine.

    Attributes:
        model: A name in `llmtop.demo.model.MODELS`, or "auto": what suits the device.
        device: "cpu", "cuda", or "auto": CUDA where torch finds it.
        dtype: Of weights and KV cache; "auto" is bfloat16 on a GPU and float32, the only one there, on the CPU.
        kv_blocks: KV blocks of `block_size` tokens; 0 is what suits the model.
        max_num_seqs: Requests computed at the same time; 0 is what suits the model.
        max_step_tokens: Tokens computed in one step; 0 alike.
        seed: Makes the weights.
        fault: What goes wrong, and after how many seconds: "lock:10" (`llmtop.demo.faults`).
    """

    model: str = "auto"
    device: str = "auto"
    dtype: str = "auto"
    kv_blocks: int = 0
    block_size: int = 16
    max_num_seqs: int = 0
    max_step_tokens: int = 0
    prefix_caching: bool = True
    seed: int = 0
    fault: str = ""

    def flags(self) -> list[str]:
        """These settings as command-line flags; what is left at its default is not named."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {name: value for name, value in values.items() if value != getattr(Options(), name)}
        caching = [] if changed.pop("prefix_caching", True) else ["--no-prefix-caching"]
        return [f"--{name.replace('_', '-')}={value}" for name, value in changed.items()] + caching

    def settled(self) -> Options:
        """The same with device, model and type named where they are certain: command lines are what people read."""
        if self.device == "cuda" or (self.device == "auto" and has_gpu_device()):
            return self
        return replace(self, device="cpu", dtype="float32", model="small" if self.model == "auto" else self.model)


def has_gpu_device() -> bool:
    """Whether the driver shows this process a GPU."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the flags that `Options.flags` writes."""
    parser.add_argument("--model", default="auto", help="tiny, small, 1b, 7b or auto: what suits the device")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--dtype", choices=DTYPES, default="auto")
    parser.add_argument("--kv-blocks", type=int, default=0, help="KV cache blocks (0: what suits the model)")
    parser.add_argument("--block-size", type=int, default=16, help="tokens in a KV cache block")
    parser.add_argument("--max-num-seqs", type=int, default=0, help="requests in a batch (0: what suits the model)")
    parser.add_argument("--max-step-tokens", type=int, default=0, help="tokens in one step (0: what suits the model)")
    parser.add_argument("--no-prefix-caching", dest="prefix_caching", action="store_false")
    parser.add_argument("--seed", type=int, default=0, help="makes the model's random weights")
    parser.add_argument("--fault", type=fault_spec, default="", help="NAME:SECONDS, what goes wrong and when")


def from_flags(args: argparse.Namespace) -> Options:
    """The settings in parsed flags."""
    values: Mapping[str, object] = vars(args)
    return Options(**{field.name: values[field.name] for field in fields(Options)})  # type: ignore[arg-type]
