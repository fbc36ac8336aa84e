"""What was observed: which server, on which machine, from when to when. Of a file that llmtop has recorded."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop.analysis.commands.profiling import program
from llmtop.facts import OriginFact, ProcessFact, ServerFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackKind, Unknown
from llmtop.remedies import PROGRAM
from llmtop.units import clock_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.model import Fact, Trace

_NO_HOST = Unknown("the recording does not name its machine")
_NO_CLOCK = Unknown("the recording does not tell the time of day")
_NO_SERVER = Unknown("no server had told of itself")
_NO_ROOT = Unknown("no server was observed")


@frozen
class Observation:
    """What a recording is of.

    Attributes:
        seconds: How long the window is that the trace has.
        start_utc_ns, end_utc_ns: Its ends, in ns since 1970 on the clock of the machine.
        server: What the server calls itself, with its version; of one that told nothing what it was taken for.
        pid: Of the server's root process.
        command: Its command line, without its secrets.
        trigger: The condition by which it was recorded; None where a user began to.
        moment_s: From the first moment of the recording to the end of the trace; None where it is all of a recording.
        recorded_s: With that, how long the recording is.
    """

    seconds: float
    host: str | Unknown
    start_utc_ns: int | Unknown
    end_utc_ns: int | Unknown
    server: Fact
    model: Fact
    pid: Fact
    command: str | Unknown
    trigger: Fact | None = None
    moment_s: Fact | None = None
    recorded_s: Fact | None = None


def observation(trace: Trace) -> Observation | None:
    """What was observed; None for a report of a tool."""
    if not trace.origin.is_observed:
        return None
    utc_ns = trace.origin.utc_ns
    command = program(trace)
    return Observation(
        (trace.end_ns - trace.start_ns) / NS_PER_S,
        trace.origin.host or _NO_HOST,
        _NO_CLOCK if utc_ns is None else utc_ns + trace.start_ns,
        _NO_CLOCK if utc_ns is None else utc_ns + trace.end_ns,
        _server(trace),
        _model(trace),
        next(_roots(trace), _NO_ROOT if trace.target is None else trace.target.root_pid),
        command if command != PROGRAM else _NO_ROOT,
        *map(trace.origin.facts.get, (OriginFact.TRIGGER, OriginFact.MOMENT_S, OriginFact.RECORDED_S)),
    )


def observed_lines(trace: Trace) -> Iterator[str]:
    """The same in lines: the machine and the time, the server, its command line; none for a report of a tool."""
    of = observation(trace)
    if of is None:
        return
    where = "" if isinstance(of.host, Unknown) else f"of {of.host}, "
    length = clock_time(of.seconds)
    yield f"{where}{length}" if isinstance(of.end_utc_ns, Unknown) else f"{where}{length} up to {_local(of.end_utc_ns)}"
    yield from _place(of)
    pid = "" if isinstance(of.pid, Unknown) else f"pid {of.pid}"
    known = [str(one) for one in (of.server, of.model, pid) if one and not isinstance(one, Unknown)]
    if known:
        yield " · ".join(known)
    if not isinstance(of.command, Unknown):
        yield f"command: {of.command}"
    if of.trigger is not None:
        yield f"recorded by: {of.trigger}{', which held at the first moment (--at 0)' if of.moment_s else ''}"


def _place(of: Observation) -> Iterator[str]:
    """Where in a recording it is, and how to see the rest."""
    if isinstance(of.moment_s, float) and isinstance(of.recorded_s, float) and of.recorded_s > 0:
        place = "the end" if of.moment_s == of.recorded_s else clock_time(of.moment_s)
        yield f"at {place} of {clock_time(of.recorded_s)} that were recorded (--at TIME: another moment)"


def _server(trace: Trace) -> Fact:
    engine, version = (_told_by_server(trace, name) for name in (ServerFact.ENGINE, ServerFact.VERSION))
    if isinstance(engine, Unknown):
        return engine if trace.target is None else trace.target.title
    return engine if isinstance(version, Unknown) else f"{engine} {version}"


def _model(trace: Trace) -> Fact:
    told = _told_by_server(trace, ServerFact.MODEL)
    return trace.target.model if isinstance(told, Unknown) and trace.target is not None else told


def _told_by_server(trace: Trace, name: str) -> Fact:
    return next((track.facts[name] for track in trace.tracks_of(TrackKind.SERVER) if name in track.facts), _NO_SERVER)


def _roots(trace: Trace) -> Iterator[int]:
    for track in trace.tracks_of(TrackKind.PROCESS):
        if ids.pid(track.id) == track.facts.get(ProcessFact.ROOT):
            yield ids.pid(track.id)


def _local(utc_ns: int) -> str:
    """Date and time here, with its zone: who reads it may be elsewhere."""
    return f"{datetime.fromtimestamp(utc_ns / NS_PER_S).astimezone():%Y-%m-%d %H:%M:%S %Z}"
