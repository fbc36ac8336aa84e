"""One machine-readable look at this machine's GPUs, and at the server when one is named."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from llmtop.cli.live import (
    add_dtype_argument,
    add_header_argument,
    add_objective_arguments,
    add_probes_argument,
    find,
    live_session,
    objectives,
    process_id,
    seconds,
)
from llmtop.vocabulary import PYTHON_FRAMES

if TYPE_CHECKING:
    from llmtop.analysis.liveness.fault import Fault

_MIN_WINDOW_S = 0.3
"""Two GPM samples, which must be 100 ms apart, and two looks at every counter."""
_LOOKS_EVERY_S = 0.5
"""What comes late must not be missed: probes take a second or two to be attached, interpreters are looked at rarely."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", required=True, help="the only format so far")
    parser.add_argument("-p", "--attach", metavar="PID", type=process_id, help="the server this process belongs to")
    add_dtype_argument(parser)
    add_probes_argument(parser)
    add_header_argument(parser)
    add_objective_arguments(parser)
    parser.add_argument(
        "--python", action="store_true", help="with the functions of Python in the stacks (py-spy; longer is better)"
    )
    parser.add_argument("--seconds", metavar="N", type=seconds, default=1.0, help="how long to look (default 1)")


def run(args: argparse.Namespace) -> int:
    """Look for a while, then print one JSON document.

    Returns:
        0; or 1 where the server, or a part of it, is dead, stopped, hung or failing: the document says what.
    """
    from llmtop.analysis.live_summary import snapshot_document
    from llmtop.analysis.liveness.view import liveness

    target = find(args.attach) if args.attach is not None else None
    window_s = max(args.seconds, _MIN_WINDOW_S)
    interval_s = min(window_s / 3, _LOOKS_EVERY_S)
    session = live_session(
        target,
        interval_s,
        dtype=args.dtype,
        headers=args.metrics_header,
        probes=args.probes,
        objectives=objectives(args),
    )
    session.ask(PYTHON_FRAMES, args.python)
    session.start()
    try:
        time.sleep(window_s)
    finally:
        trace = session.trace()
        session.stop()
    json.dump(snapshot_document(trace, session.target, window_s), sys.stdout, allow_nan=False, indent=2)
    sys.stdout.write("\n")
    return _exit_code(liveness(trace).gravest if session.target is not None else None)


def _exit_code(fault: Fault | None) -> int:
    """The target's fault is the command's exit code, so that a script need not read the document."""
    if fault is None:
        return 0
    print(f"llmtop: {fault.state}: {fault.message}", file=sys.stderr)
    return 1
