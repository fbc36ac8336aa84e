"""Start the embedded LLM server with load and watch it: the whole product on any Linux machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from llmtop.cli import live
from llmtop.errors import LlmtopError

if TYPE_CHECKING:
    from llmtop.demo import DemoServer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the demo."""
    live.add_watch_arguments(parser)
    parser.add_argument("--port", type=port, default=0, help="of the server (default: any that is free)")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: CUDA where torch is installed"
    )
    parser.add_argument("--server-only", action="store_true", help="no screen: print URL and PID, serve until a signal")
    parser.add_argument(
        "--load",
        action=argparse.BooleanOptionalAction,
        help="send requests to the server (default: yes, with --server-only no)",
    )
    parser.add_argument("--seed", type=int, default=0, help="makes the model's weights and the load")


def run(args: argparse.Namespace) -> int:
    """Start the server, show it or wait, and take everything down."""
    if not args.server_only:
        live.refuse_unfit_terminal()
    from llmtop.demo import DemoServer, Options

    options = Options(device=args.device, seed=args.seed)
    with DemoServer(options, port=args.port) as server:
        if args.load or (args.load is None and not args.server_only):
            server.start_load(f"--seed={args.seed}")
        if args.server_only:
            return serve(server, args.seconds)
        dtype = live.dtype(server.description["dtype"])
        return live.watch(live.find(server.pid), seconds=args.seconds, interval=args.interval, dtype=dtype)


def serve(server: DemoServer, seconds: float | None) -> int:
    """Print where the server is and wait: for the time to be up, a signal, or its unforeseen end."""
    from llmtop.demo.lifeline import exit_on_signals

    exit_on_signals()
    print(f"{server.url} pid {server.pid}", flush=True)
    code = server.wait(seconds)
    if code is not None:
        raise LlmtopError(f"the demo server ended with exit code {code}: {' '.join(server.lines(1))}")
    return 0


def port(text: str) -> int:
    """An argparse type: a TCP port, or 0.

    >>> port("8000")
    8000
    """
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)
