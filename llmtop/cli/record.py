"""Record a server without a screen: what the live screen would show, as a file that `llmtop open` plays."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop.cli.live import (
    add_dtype_argument,
    add_header_argument,
    add_objective_arguments,
    add_probes_argument,
    endpoint,
    find,
    interval,
    live_session,
    objectives,
    process_id,
    seconds,
)
from llmtop.session_recording import begin_recording
from llmtop.units import binary_bytes, clock_time

if TYPE_CHECKING:
    from llmtop.session_recording import SessionRecording

_LOOK_S = 0.5
"""How often it is looked whether the recording has ended by itself."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "-p", "--attach", metavar="PID", type=process_id, help="the server of this process or container"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="a new file (default: one in $XDG_STATE_HOME/llmtop/recordings, ~/.local/state/llmtop/recordings)",
    )
    parser.add_argument("--duration", metavar="S", type=seconds, help="end after so many seconds (default: Ctrl+C)")
    parser.add_argument(
        "--interval", metavar="S", type=interval, default=1.0, help="seconds between looks (default 1, at least 0.25)"
    )
    add_dtype_argument(parser)
    add_probes_argument(parser)
    add_header_argument(parser)
    add_objective_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Record until the time is over, or a signal comes, or the file cannot be written; the path goes to stdout.

    Returns:
        0; or 1 where the recording has ended by itself.

    Raises:
        FileError: The file is there already, or cannot be made.
    """
    session = live_session(
        find(args.attach) if args.attach is not None else None,
        args.interval,
        dtype=args.dtype,
        endpoint=endpoint(args),
        probes=args.probes,
        objectives=objectives(args),
    )
    recording = begin_recording(session, args.output)
    title = session.target.title if session.target is not None else "this machine's GPUs"
    print(f"llmtop: recording {title} to {recording.path}; Ctrl+C ends it", file=sys.stderr)
    session.start()
    try:
        _wait(recording, args.duration)
    finally:
        recording.stop()
        session.stop()
    print(recording.path)
    print(f"llmtop: {clock_time(recording.seconds)}, {binary_bytes(recording.size)}", file=sys.stderr)
    if recording.failure:
        print(f"llmtop: {recording.failure}", file=sys.stderr)
    return 1 if recording.failure else 0


def _wait(recording: SessionRecording, seconds: float | None) -> None:
    """Until the time is over, somebody ends it, or it ends by itself."""
    is_over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: is_over.set())
    left = float("inf") if seconds is None else seconds
    while left > 0 and recording.is_running and not is_over.wait(min(left, _LOOK_S)):
        left -= _LOOK_S
