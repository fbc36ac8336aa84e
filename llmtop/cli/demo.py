"""Start the embedded LLM server with load and watch it: the whole product on any Linux machine."""

from __future__ import annotations

import argparse
import threading
from typing import TYPE_CHECKING

from llmtop.cli import live
from llmtop.errors import LlmtopError, UsageError

if TYPE_CHECKING:
    from llmtop.demo import DemoServer
    from llmtop.demo.incidents import Incident
    from llmtop.demo.replays import DemoReplay

LIST = "list"
BEGIN_S = 8.0
"""What an incident begins with: a server that is well. Settings and load go wrong at once."""


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
    parser.add_argument(
        "--incident",
        metavar="NAME",
        type=incident,
        help="let something go wrong, or play what a GPU has shown; `list` names all",
    )
    parser.add_argument(
        "--after",
        metavar="S",
        type=live.seconds,
        default=BEGIN_S,
        help=f"seconds after which it goes wrong (default {BEGIN_S:g})",
    )


def run(args: argparse.Namespace) -> int:
    """Start the server, show it or wait, and take everything down."""
    from llmtop.demo import DemoServer, Options
    from llmtop.demo.incidents import HEALTHY, Staged
    from llmtop.demo.replays import DemoReplay

    if args.incident == LIST:
        return print_incidents()
    if isinstance(args.incident, DemoReplay):
        refuse_options_of_a_server(args)
        return play(args.incident)
    staged = args.incident or HEALTHY
    reason = staged.why_not()
    if reason is not None:
        raise LlmtopError(f"this incident cannot be staged here: {reason}")
    if not args.server_only:
        live.refuse_unfit_terminal()
    options = staged.options(Options(device=args.device, seed=args.seed), args.after)
    with DemoServer(options, port=args.port) as server:
        if args.load or (args.load is None and (args.incident or not args.server_only)):
            server.start_load(f"--seed={args.seed}", *staged.load)
        with Staged(staged, server, args.after):
            if args.server_only:
                return serve(server, args.seconds, may_end=args.incident is not None)
            look = live.look_options(args, live.dtype(server.description["dtype"]))
            return live.watch(live.find(server.pid), look, seconds=args.seconds, interval=args.interval)


def refuse_options_of_a_server(args: argparse.Namespace) -> None:
    """Say which option a recording has no use for.

    Raises:
        UsageError: There is one.
    """
    given = {
        "--server-only": args.server_only,
        "--load": args.load is not None,
        "--port": args.port != 0,
        "--after": args.after != BEGIN_S,
    }
    if wrong := next((option for option, is_given in given.items() if is_given), None):
        raise UsageError(f"{wrong} is of a server, and this incident is a recording: leave it out")


def incident(text: str) -> Incident | DemoReplay | str:
    """An argparse type: one of the incidents, the name of a recorded one, or `list`."""
    from llmtop.demo.incidents import INCIDENTS
    from llmtop.demo.replays import REPLAYS

    if text not in (LIST, *incident_names()):
        raise argparse.ArgumentTypeError(f"{text!r} is no incident; there are: {', '.join(incident_names())}")
    return INCIDENTS[text] if text in INCIDENTS else REPLAYS.get(text, LIST)


def incident_names() -> tuple[str, ...]:
    """All that --incident takes beside `list`: those that are staged, and those that were recorded."""
    from llmtop.demo.incidents import INCIDENTS
    from llmtop.demo.replays import REPLAYS

    return *INCIDENTS, *REPLAYS


def print_incidents() -> int:
    """Say what can be staged here, of the others why they cannot, and which were recorded."""
    from llmtop.demo.incidents import INCIDENTS
    from llmtop.demo.replays import REPLAYS

    for name, one in INCIDENTS.items():
        reason = one.why_not()
        print(f"{name:20} {one.what}" + (f"  [not here: {reason.reason}]" if reason else ""))
    for name, replay in REPLAYS.items():
        print(f"{name:20} {replay.what}  [a recording: vLLM on an H100]")
    return 0


def play(replay: DemoReplay) -> int:
    """Play one that was recorded, from its beginning; the exit code."""
    from llmtop.parsers.registry import recording_at
    from llmtop.tui.screens.replay import play_recording

    live.refuse_unfit_terminal()
    recording = recording_at(replay.path)
    if recording is None:
        raise LlmtopError(f"{replay.path} cannot be read: install llmtop again")
    return play_recording(recording, is_playing=True)


def serve(server: DemoServer, seconds: float | None, *, may_end: bool = False) -> int:
    """Print where the server is and wait: for the time to be up, a signal, or its end unless that is staged."""
    from llmtop.demo.lifeline import exit_on_signals

    exit_on_signals()
    print(f"{server.url} pid {server.pid}", flush=True)
    if may_end:
        threading.Event().wait(seconds)
        return 0
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
