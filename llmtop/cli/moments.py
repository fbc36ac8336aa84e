"""Moments of a recording, as a command line names them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.errors import FileError, UsageError
from llmtop.model import NS_PER_S
from llmtop.parsers.registry import load, recording_at
from llmtop.replay import moment_of
from llmtop.text import clean
from llmtop.units import clock_time

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from pathlib import Path

    from llmtop.model import Trace
    from llmtop.recording.reader import RecordingReader


def add_at_argument(parser: ArgumentParser) -> None:
    """Declare which moment is looked at."""
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="of a recording this moment, with what was kept before it, and not its end: 90, 2:00 or 1:02:00 from the "
        "beginning, =-1:00 before the end",
    )


def moment(at: str, path: Path, reader: RecordingReader) -> int:
    """The moment nearest to what a user calls `at`, or the end: screens round seconds, and so do users.

    Raises:
        UsageError: It is none, or lies outside of the recording.
    """
    first_ns, last_ns = reader.begin_ns, reader.times[-1]
    t_ns = moment_of(at, last_ns, first_ns) if at else last_ns
    if t_ns is None:
        raise UsageError(f"--at {at}: a moment is 90, 2:00 or 1:02:00 from the beginning, -1:00 before the end")
    if not first_ns - NS_PER_S < t_ns < last_ns + NS_PER_S:
        raise UsageError(f"--at {at} is outside of {path}, which is {clock_time((last_ns - first_ns) / NS_PER_S)} long")
    return min(reader.times, key=lambda one: abs(one - t_ns))


def recorded_at(path: Path, at: str) -> Trace:
    """A moment of a recording, with what was kept before it.

    Raises:
        FileError: The file cannot be read.
        UsageError: It is no recording, or has no such moment.
    """
    reader = recording_at(path)
    if reader is None:
        load(path)  # whoever cannot read it says why
        raise UsageError(f"--at takes a moment of a recording, and {path} is none")
    return _named(reader, path, moment(at, path, reader))


def recorded_between(path: Path, since: int, until: int | None) -> Trace | None:
    """A recording from one moment to another alone, as far back as it has kept; None of any other file.

    Args:
        path: Any file.
        since: From when on, in ns after its first moment.
        until: Until when; None to its end.

    Raises:
        FileError: It is not as long.
    """
    reader = recording_at(path)
    if reader is None:
        return None
    first_ns, last_ns = reader.begin_ns, reader.times[-1]
    start_ns = first_ns + since
    end_ns = last_ns if until is None else min(first_ns + until, last_ns)
    if until is not None and until <= since:
        raise FileError(f"{path}: that range ends before it begins: --range START:END")
    if start_ns >= end_ns:
        length = clock_time((last_ns - first_ns) / NS_PER_S)
        raise FileError(f"{path}: nothing is left of that range: the recording is {length} long")
    trace = _named(reader, path, end_ns)
    return replace(
        trace,
        start_ns=max(start_ns, trace.start_ns),
        series={key: one.between(start_ns, trace.end_ns) for key, one in trace.series.items()},
        marks=tuple(mark for mark in trace.marks if mark.t_ns >= start_ns),
        past_stacks=tuple(window for window in trace.past_stacks if window.end_ns >= start_ns),
    )


def _named(reader: RecordingReader, path: Path, t_ns: int) -> Trace:
    trace = reader.report(t_ns)
    return replace(trace, origin=replace(trace.origin, path=clean(str(path))))
