"""The demo's engine process: takes requests from the API server, computes them in batches, sends tokens back.

Run by `llmtop.demo.server` as `python -m llmtop.demo.engine --control FD ...`. It talks JSON lines over that socket:
    in:  {"add": {"id", "prompt", "max_tokens", "temperature", "seed", "queued_s"}} or {"abort": id}
    out: {"ready": {...}} once, then one {"step": {...}} for each step (`Engine.step`)
Times are monotonic seconds, which all processes of a host share. It blocks while there is nothing to compute.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from llmtop.demo.faults import Faults
from llmtop.demo.gpu import GpuTransformer, has_cuda
from llmtop.demo.lifeline import die_with_parent, exit_on_signals, name_thread
from llmtop.demo.model import MODELS, Piece, Transformer, work
from llmtop.demo.options import Options, add_flags, from_flags
from llmtop.demo.scheduler import Request, Scheduler

_SUITABLE = {"tiny": (64, 8, 256), "small": (192, 8, 256), "1b": (1536, 64, 2048), "7b": (1536, 64, 2048)}
"""KV blocks, batch size and tokens in a step by model: a burst of the demo's load just fills the cache."""
_LARGE_MODEL_MEMORY = 30 << 30
"""Free GPU memory that the 7b model needs, with its cache: 13 GiB of weights and room to work."""


class DemoEngine:
    """Scheduler and model: one step at a time. Not thread-safe."""

    def __init__(self, model: Transformer, scheduler: Scheduler) -> None:
        self.model = model
        self.scheduler = scheduler
        self._generators: dict[str, np.random.Generator] = {}

    def add(self, request: Request) -> None:
        """Queue a request; raises ValueError like `Scheduler.add`."""
        self.scheduler.add(request)
        self._generators[request.id] = np.random.default_rng(request.seed)

    def abort(self, request_id: str) -> None:
        """Drop a request, if it is still here."""
        if self.scheduler.abort(request_id) is not None:
            del self._generators[request_id]

    def step(self) -> dict[str, Any]:
        """Compute one batch.

        Returns:
            "outputs": [id, token, finish reason or "", time scheduled] of each request that got a token; "tokens"
            computed; the step's `Work`; and `state` after it.
        """
        scheduled = self.scheduler.schedule(time.monotonic())
        pieces = [piece for _, piece in scheduled]
        with self.model.phase("prefill" if any(len(piece.tokens) > 1 for piece in pieces) else "decode"):
            logits = self.model.forward(pieces)
        tokens = [self._next(request, piece, row) for (request, piece), row in zip(scheduled, logits, strict=True)]
        advanced = self.scheduler.update(scheduled, tokens)
        for request, reason in advanced:
            if reason:
                del self._generators[request.id]
        return {
            "outputs": [[r.id, r.tokens[-1], reason, r.scheduled_s] for r, reason in advanced],
            "tokens": sum(len(piece.tokens) for piece in pieces),
            "state": self.state(),
            **asdict(work(self.model.config, pieces)),
        }

    def state(self) -> dict[str, Any]:
        """Gauges as they stand, and counters since the start."""
        scheduler = self.scheduler
        gauges = {"running": len(scheduler.running), "waiting": len(scheduler.waiting), "kv_usage": scheduler.kv_usage}
        return gauges | asdict(scheduler.counts)

    def _next(self, request: Request, piece: Piece, logits: np.ndarray[Any, Any]) -> int:
        """Sample by the request's own generator, which must not move before its prompt is done."""
        if piece.end < len(request.tokens):
            return -1
        return sample(logits, request.temperature, self._generators[request.id])


def sample(logits: np.ndarray[Any, Any], temperature: float, generator: np.random.Generator) -> int:
    """Draw a token; temperature 0 takes the likeliest.

    >>> sample(np.array([0.0, 3.0, 1.0]), 0.0, np.random.default_rng(0))
    1
    """
    if temperature <= 0:
        return int(np.argmax(logits))
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max()).cumsum()
    return int(np.searchsorted(weights, generator.random() * weights[-1], side="right"))


def build(options: Options) -> DemoEngine:
    """Make an engine from settings, with what suits the device where they leave it open."""
    if options.model != "auto" and options.model not in MODELS:
        raise SystemExit(f"there is no model {options.model}; there are: {', '.join(MODELS)}")
    on_gpu = options.device == "cuda" or (options.device == "auto" and has_cuda())
    config = MODELS[suitable_model(on_gpu) if options.model == "auto" else options.model]
    dtype = {"auto": "bfloat16"}.get(options.dtype, options.dtype) if on_gpu else "float32"
    config = replace(config, dtype=dtype)
    given = (options.kv_blocks, options.max_num_seqs, options.max_step_tokens)
    blocks, seqs, tokens = (value or suitable for value, suitable in zip(given, _SUITABLE[config.name], strict=True))
    kind = GpuTransformer if on_gpu else Transformer
    return DemoEngine(
        kind(config, blocks, options.block_size, options.seed),
        Scheduler(blocks, options.block_size, seqs, tokens, prefix_caching=options.prefix_caching),
    )


def suitable_model(on_gpu: bool) -> str:
    """The largest model that leaves the machine room."""
    if not on_gpu:
        return "small"
    import torch

    return "7b" if torch.cuda.mem_get_info()[0] >= _LARGE_MODEL_MEMORY else "1b"


def description(engine: DemoEngine) -> dict[str, Any]:
    """What the API server needs to know of the engine."""
    config, scheduler = engine.model.config, engine.scheduler
    return {
        "model": f"llmtop-demo-{config.name}",
        "dtype": config.dtype,
        "device": getattr(engine.model, "device", "cpu"),
        "max_model_len": min(config.max_model_len, scheduler.pool.size * scheduler.block_size),
        "kv_blocks": scheduler.pool.size,
        "block_size": scheduler.block_size,
        "max_num_seqs": scheduler.max_num_seqs,
        "prefix_caching": scheduler.prefix_caching,
        "pid": os.getpid(),
    }


class Inbox:
    """Messages from the API server, in batches."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._pending = b""

    def read(self, *, wait_s: float | None) -> list[dict[str, Any]] | None:
        """What has arrived; waits so long for something, or with None until it comes. None when the server is gone."""
        if wait_s is not None and not select.select([self._control], [], [], wait_s)[0]:
            return []
        received = self._control.recv(1 << 16)
        if not received:
            return None
        *lines, self._pending = (self._pending + received).split(b"\n")
        return [json.loads(line) for line in lines]


def serve(engine: DemoEngine, control: socket.socket, faults: Faults) -> None:
    """Work until the API server is gone."""
    inbox = Inbox(control)

    def wait_s() -> float | None:
        return 0.0 if engine.scheduler.has_work or faults.now.busy_waits else faults.due_s

    while (arrived := inbox.read(wait_s=wait_s())) is not None:
        for message in arrived:
            handle(engine, message, control)
        if engine.scheduler.has_work:
            faults.now.before_step()
            tell(control, step=engine.step())
        elif arrived:
            tell(control, state=engine.state())
        else:
            os.sched_yield()


def handle(engine: DemoEngine, message: dict[str, Any], control: socket.socket) -> None:
    """Do what the API server asks."""
    if "abort" in message:
        engine.abort(message["abort"])
        return
    request = Request(**message["add"])
    try:
        engine.add(request)
    except ValueError as error:
        tell(control, refused=[request.id, str(error)])


def tell(control: socket.socket, **message: Any) -> None:
    """Send one message."""
    control.sendall(json.dumps(message).encode() + b"\n")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the engine process."""
    parser = argparse.ArgumentParser(prog="python -m llmtop.demo.engine")
    parser.add_argument("--control", type=int, required=True, help="file descriptor of the socket")
    add_flags(parser)
    args = parser.parse_args(argv)
    die_with_parent()
    name_thread("EngineCore")
    exit_on_signals()
    with socket.socket(fileno=args.control) as control, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        engine = build(from_flags(args))
        tell(control, ready=description(engine))
        serve(engine, control, Faults(args.fault, "engine"))


if __name__ == "__main__":
    main()
