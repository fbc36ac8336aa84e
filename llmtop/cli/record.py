"""Record a server without a screen: what the live screen would show, as a file that `llmtop open` plays."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop.cli.live import (
    add_attach_argument,
    add_interval_argument,
    add_look_arguments,
    attached_session,
    seconds,
    servers_here,
)
from llmtop.cli.output import new_file
from llmtop.cli.waiting import ended_by_signal
from llmtop.errors import FileError, UsageError, print_message
from llmtop.model import TrackKind
from llmtop.session_recording import begin_recording, recordings_folder
from llmtop.units import binary_bytes, clock_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from llmtop.analysis.pages.triggers import Trigger
    from llmtop.session import Session
    from llmtop.session_recording import SessionRecording

_LOOK_S = 0.5
"""How often it is looked whether the recording has ended by itself."""
_PERIOD_S = 1.0
"""How often it is looked whether a condition holds."""
_KEEP_S = 120.0, 60.0
_LEAST_S = 90.0
"""Kept before an incident whatever is asked for: rules and latencies look back a minute."""
_KEPT = {
    "files": "how many files of incidents are kept (default 20)",
    "mib": "how many MiB they may take together (default 1024)",
    "days": "for how many days they are kept (default 30)",
}
_MOST_KEPT = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_attach_argument(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=new_file,
        help="a new file (default: one in $XDG_STATE_HOME/llmtop/recordings, ~/.local/state/llmtop/recordings); with "
        "--when the folder of the files",
    )
    parser.add_argument("--duration", metavar="S", type=seconds, help="end after so many seconds (default: Ctrl+C)")
    add_interval_argument(parser)
    _add_trigger_arguments(parser)
    add_look_arguments(parser)


def _add_trigger_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--when",
        metavar="CONDITION",
        type=_trigger,
        action="append",
        default=[],
        help="write files of incidents alone: 'ttft_p99 > 1s for 10s', 'kv_usage > 90%%', 'finding:kv-bound'; may be "
        "given several times, and the error for an unknown name lists all",
    )
    parser.add_argument(
        "--keep",
        metavar="BEFORE,AFTER",
        type=_keep,
        help="with --when: seconds before the trigger, and after no condition holds any more (default 120,60)",
    )
    for name, what in _KEPT.items():
        parser.add_argument(
            f"--keep-{name}", metavar="N", type=_count, help=f"with --when: {what}; the oldest go first"
        )


def _trigger(text: str) -> Trigger:
    """An argparse type: a condition."""
    from llmtop.analysis.pages.triggers import TriggerError, trigger

    try:
        return trigger(text)
    except TriggerError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _keep(text: str) -> tuple[float, float]:
    """An argparse type: seconds before and after.

    >>> _keep("120,60")
    (120.0, 60.0)
    """
    parts = text.split(",")
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not seconds before and after, as in 120,60")
    return seconds(parts[0]), seconds(parts[1])


def _count(text: str) -> int:
    """An argparse type: how many, at least one."""
    if not text.isdecimal() or not 0 < int(text) < _MOST_KEPT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Record until the time is over, or a signal comes, or the file cannot be written; the path goes to stdout.

    Returns:
        0; or 1 where the recording has ended by itself.

    Raises:
        FileError: The file is there already, or cannot be made.
        UsageError: Options of incidents without one.
    """
    if not args.when and (args.keep or args.keep_files or args.keep_mib or args.keep_days):
        raise UsageError("--keep goes with --when CONDITION")
    before_s, after_s = args.keep or _KEEP_S
    window_s = max(before_s, _LEAST_S) if args.when else None
    session = attached_session(args, args.interval, window_s=window_s)
    return _record_incidents(args, session, after_s) if args.when else _record_all(args, session)


def record_for(session: Session, path: Path, seconds: float) -> None:
    """Record a session that was not started yet into a new file, for some seconds or until a signal comes.

    Raises:
        FileError: The file cannot be made, or not be written to its end.
    """
    recording = begin_recording(session, path)
    _record(recording, session, seconds)
    if recording.failure:
        raise FileError(recording.failure)


def _record_all(args: argparse.Namespace, session: Session) -> int:
    recording = begin_recording(session, args.output)
    title = session.target.title if session.target is not None else "this machine's GPUs"
    print_message(f"recording {title} to {recording.path}; Ctrl+C ends it")
    _record(recording, session, args.duration)
    if recording.path.exists():
        print(recording.path)
    print_message(recording.failure or f"{clock_time(recording.seconds)}, {binary_bytes(recording.size)}")
    return 1 if recording.failure else 0


def _record_incidents(args: argparse.Namespace, session: Session, after_s: float) -> int:
    """Look for incidents until the time is over, or a signal comes; the paths of complete files go to stdout."""
    from llmtop.session_triggers import IncidentRecorder, KeptIncidents

    usual = KeptIncidents()
    kept = KeptIncidents(
        args.keep_files or usual.count,
        args.keep_mib << 20 if args.keep_mib else usual.size,
        args.keep_days * 86400.0 if args.keep_days else usual.age_s,
    )
    folder = args.output or recordings_folder()
    incidents = IncidentRecorder(session, args.when, folder, after_s=after_s, kept=kept, tell=print_message)
    with ended_by_signal() as is_over:
        print_message(f"{', '.join(one.text for one in args.when)}: looking; files go to {folder}; Ctrl+C ends it")
        until_s = time.monotonic() + (args.duration or float("inf"))
        remarks = _remarks(session)
        session.start()
        try:
            while not is_over.wait(_PERIOD_S) and time.monotonic() < until_s:
                _tell_next(remarks)
                _print_paths(incidents.look())
        finally:
            _print_paths(incidents.end())
            session.stop()
    for said in incidents.said_of_silence():
        print_message(said)
    return 1 if incidents.has_failed else 0


def _print_paths(paths: Iterable[Path]) -> None:
    for path in paths:
        print(path, flush=True)


def _tell_next(remarks: Iterator[str]) -> None:
    if said := next(remarks, ""):
        print_message(said)


def _remarks(session: Session) -> Iterator[str]:
    """What a recording of no server lacks, as soon as it is known; empty while it is not."""
    from llmtop.analysis.series.readings import why_kind_missing

    if session.target is not None:
        return
    if here := servers_here():
        yield f"no server is recorded, and here runs {here}: --attach PID"
    while session.unready:
        yield ""
    trace = session.trace()
    if not trace.tracks_of(TrackKind.GPU):
        yield f"no GPU is recorded: {why_kind_missing(trace, TrackKind.GPU)}"


def _record(recording: SessionRecording, session: Session, seconds: float | None) -> None:
    """Until the time is over, somebody ends it, or it ends by itself; what there is to be said is said meanwhile."""
    left = float("inf") if seconds is None else seconds
    with ended_by_signal() as is_over:
        remarks = _remarks(session)
        session.start()
        try:
            while left > 0 and recording.is_running and not is_over.wait(min(left, _LOOK_S)):
                left -= _LOOK_S
                _tell_next(remarks)
        finally:
            recording.stop()
            session.stop()
