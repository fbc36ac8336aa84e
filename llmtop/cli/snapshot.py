"""One machine-readable look at this machine's GPUs, and at the server when one is named."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop import whats
from llmtop.cli.live import add_attach_argument, add_look_arguments, attached_session, interval, seconds
from llmtop.cli.waiting import ended_by_signal
from llmtop.errors import print_message
from llmtop.model import Missing, Unknown

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Iterator

    from llmtop.analysis.server.fault import Fault
    from llmtop.model import Trace
    from llmtop.session import Session

_SECONDS = 1.0
_MIN_WINDOW_S = 0.3
"""Two GPM samples, which must be 100 ms apart, and two looks at every counter."""
_WAIT_S = 10.0
"""Compiling probes takes 1 to 3 s, and on a busy machine up to 10; a slow page of metrics seconds too."""
_READY_EVERY_S = 0.05
_LOOKS_EVERY_S = 0.5
"""What comes late must not be missed: probes take a second or two to be attached, interpreters are looked at rarely."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="the format, the only one so far: also without this")
    add_attach_argument(parser)
    add_look_arguments(parser)
    parser.add_argument(
        "--python", action="store_true", help="with the functions of Python in the stacks (py-spy; longer is better)"
    )
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=seconds,
        help="how long to look (default 1; with --interval the end of it, which by default is Ctrl+C)",
    )
    parser.add_argument(
        "--interval",
        metavar="S",
        type=interval,
        help="go on, with a document on a line every S seconds, each of the time since the one before; --seconds or "
        "Ctrl+C ends it",
    )
    parser.add_argument(
        "--wait",
        metavar="S",
        type=patience,
        default=_WAIT_S,
        help=f"how long to wait for probes and the server's first numbers before the window (default {_WAIT_S:g})",
    )


def run(args: argparse.Namespace) -> int:
    """Look for a while, then print one JSON document; or one after another.

    Returns:
        0; or 1 where the server, or a part of it, is dead, stopped, hung or failing: the document says what.
    """
    from llmtop.analysis.server.liveness import liveness
    from llmtop.cli.snapshot_json import snapshot_document

    window_s = max(args.interval or args.seconds or _SECONDS, _MIN_WINDOW_S)
    session = attached_session(args, min(window_s / 3, _LOOKS_EVERY_S))
    session.ask(whats.PYTHON_FRAMES, args.python)
    with nullcontext() if args.interval is None else ended_by_signal() as is_over:
        session.start()
        try:
            late = wait_until_ready(session, args.wait)
            if is_over is not None:
                return _stream(session, late, _windows(window_s, args.seconds), is_over)
            started = time.monotonic()
            time.sleep(window_s)
            window_s = time.monotonic() - started
        finally:
            trace = session.trace()
            session.stop()
    trace = _seen(trace, late)
    json.dump(snapshot_document(trace, session.target, window_s), sys.stdout, allow_nan=False, indent=2)
    sys.stdout.write("\n")
    return _exit_code(liveness(trace).gravest if session.target is not None else None)


def _windows(interval_s: float, seconds: float | None) -> Iterator[float]:
    """How long each document of a stream looks; the last one may be shorter, and what is too short for one is left.

    >>> list(_windows(1.0, 3.0)), list(_windows(1.0, 2.5)), list(_windows(0.3, 1.0)), list(_windows(5.0, 0.1))
    ([1.0, 1.0, 1.0], [1.0, 1.0, 0.5], [0.3, 0.3, 0.3], [0.3])
    """
    left_s = float("inf") if seconds is None else max(seconds, _MIN_WINDOW_S)
    while left_s > _MIN_WINDOW_S - 1e-9:
        yield min(interval_s, left_s)
        left_s -= interval_s


def _stream(session: Session, late: tuple[Missing, ...], windows: Iterable[float], is_over: threading.Event) -> int:
    """A document on a line each time, until the time is over or somebody ends it."""
    from llmtop.cli.snapshot_json import snapshot_document

    started = time.monotonic()
    for window_s in windows:
        if is_over.wait(window_s):
            break
        trace, now = session.trace(), time.monotonic()
        trace = _seen(trace, late)
        json.dump(snapshot_document(trace, session.target, now - started), sys.stdout, allow_nan=False)
        sys.stdout.write("\n")
        sys.stdout.flush()
        started, late = now, ()
    return 0


def _seen(trace: Trace, late: tuple[Missing, ...]) -> Trace:
    """The trace with what was not ready in time, and with the time of day at which its clock read 0."""
    origin = replace(trace.origin, utc_ns=time.time_ns() - time.monotonic_ns())
    return replace(trace, origin=origin, missing=(*late, *trace.missing))


def _exit_code(fault: Fault | None) -> int:
    """The target's fault is the command's exit code, so that a script need not read the document."""
    if fault is None:
        return 0
    print_message(f"{fault.state}: {fault.message}")
    return 1


def wait_until_ready(session: Session, patience_s: float) -> tuple[Missing, ...]:
    """Begin the window when everything looks: what is attached late would be seen for a part of it, or not at all.

    Returns:
        What was not ready in time: it may come within the window yet.
    """
    deadline = time.monotonic() + patience_s
    while (unready := session.unready) and time.monotonic() < deadline:
        time.sleep(_READY_EVERY_S)
    trace = session.trace()
    remedy = f"wait for longer: llmtop snapshot --wait {3 * max(patience_s, _WAIT_S):g}"
    whys = ((name, trace.why_missing(whats.source(name))) for name in unready)
    said = ((name, f": {why.reason}" if why else "") for name, why in whys)
    return tuple(
        Missing(whats.state(name, whats.State.LATE), Unknown(f"not ready within {patience_s:g} s{why}", remedy))
        for name, why in said
    )


def patience(text: str) -> float:
    """An argparse type: seconds, of which there may be none."""
    return 0.0 if text.strip() == "0" else seconds(text)
