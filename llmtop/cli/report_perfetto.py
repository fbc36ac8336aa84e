"""`llmtop report --format perfetto`: what was observed as a Chrome trace, for Perfetto and what else reads it.

Numbers are counters ("C") of a process, a GPU, the machine; what a thread spent most of the time between two looks in
is a slice ("X"); events are instants ("i"). The format: Trace Event Format, Google; https://ui.perfetto.dev opens it.
"""

from __future__ import annotations

import json
from itertools import count, groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series.rates import rate_samples
from llmtop.analysis.series.summary import names_of
from llmtop.errors import FileError
from llmtop.model import TrackKind
from llmtop.vocabulary import is_part, parted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from llmtop.cli.documents import Json
    from llmtop.model import Series, Trace, Track, TrackId

_OF_ALL_PID: Final = 1 << 22
"""Linux gives no PID from here on (PID_MAX_LIMIT)."""
_FIRST_PID: Final = _OF_ALL_PID + 1
"""Of what is no process."""
_NS_PER_US: Final = 1000
_OF_ALL: Final = "findings and events"
"""Where events are that are of no process: Perfetto has no name for a track that is of none."""
_RUNNING, _QUEUED, _SLEEPING = "on CPU", "waits for a CPU", "sleeps"


def report_perfetto(trace: Trace) -> Iterator[str]:
    """The document, an event a line, of the window that the trace has.

    Raises:
        FileError: The trace is of a tool, whose own format has more of it.
    """
    if not trace.origin.is_observed:
        raise FileError(f"{trace.origin.path} is no recording: open it in Perfetto as its own tool exports it")
    return _document(trace)


def _document(trace: Trace) -> Iterator[str]:
    yield '{"displayTimeUnit": "ms",\n"traceEvents": ['
    for i, event in enumerate(_events(trace)):
        yield (",\n" if i else "\n") + json.dumps(event, allow_nan=False, ensure_ascii=False)
    yield "\n]}\n"


def _events(trace: Trace) -> Iterator[dict[str, Json]]:
    pids = _pids(trace)
    for id, pid in pids.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": _process_name(trace.tracks[id])}}
    causes = _blocked(trace)
    for track in trace.tracks_of(TrackKind.THREAD):
        yield {"ph": "M", "name": "thread_name", **_thread(track.id), "args": {"name": track.name}}
        yield from _states(track.id, _stretches(trace, track.id, causes.get(track.id, {})))
    for (id, _), series in trace.series.items():
        if id in pids and not is_part(series.metric):
            yield from _counter(trace, series, pids[id])
            yield from _changes(trace, series, pids[id])
    yield from _instants(trace, {str(id): pid for id, pid in pids.items()})


def _pids(trace: Trace) -> dict[TrackId, int]:
    """What each track but threads is called in the trace: processes as they are, all else by numbers that none has."""
    free = count(_FIRST_PID)
    tracks = (track for track in trace.tracks.values() if track.kind is not TrackKind.THREAD)
    return {track.id: ids.pid(track.id) if track.kind is TrackKind.PROCESS else next(free) for track in tracks}


def _process_name(track: Track) -> str:
    """What a track is called among processes, which Perfetto orders by name where they have no threads."""
    match track.kind:
        case TrackKind.GPU | TrackKind.GPU_INSTANCE:
            return f"GPU {ids.gpu_label(track.id)}: {track.name}"
        case TrackKind.GPU_PROCESS:
            return f"GPU {ids.gpu_label(ids.gpu_of(track.id))}, process {ids.pid(track.id)}: {track.name}"
        case TrackKind.NEIGHBOUR | TrackKind.ENDED:
            return f"{track.kind} {ids.pid(track.id)}: {track.name}"
        case TrackKind.HOST | TrackKind.SERVER | TrackKind.ENDPOINT:
            return f"{track.kind}: {track.name}"
        case _:
            return track.name


def _thread(id: TrackId) -> dict[str, Json]:
    return {"pid": ids.pid(id), "tid": ids.tid(id)}


def _counter(trace: Trace, series: Series, pid: int) -> Iterator[dict[str, Json]]:
    """Samples of a number; of a counter how fast it grew from then on. What the source had none of is left out.

    Perfetto calls it by its name and the argument's, "power (W)", and draws a value up to the next one.
    """
    metric, name = series.metric, names_of(trace, series)[1]
    unit = f"({metric.unit}/s)" if metric.counter else f"({metric.unit})"
    rates = (rate for _, rate in rate_samples(series))
    for t_ns, value in zip(series.times, rates, strict=False) if metric.counter else series:
        if value is not None:
            yield {"ph": "C", "name": name, "pid": pid, "ts": t_ns / _NS_PER_US, "args": {unit: value}}


def _changes(trace: Trace, series: Series, pid: int) -> Iterator[dict[str, Json]]:
    """Of codes and bits, of which a counter has the number alone, what they stand for, when they become another."""
    if series.metric.unit not in v.SIGNS:
        return
    known = ((t_ns, value) for t_ns, value in series if value is not None)
    for value, samples in groupby(known, key=itemgetter(1)):
        name = f"{names_of(trace, series)[1]}: {v.said(series.metric, value)}"
        yield _instant(next(samples)[0], name, pid, {"value": value})


def _instants(trace: Trace, pids: Mapping[str, int]) -> Iterator[dict[str, Json]]:
    """Events on what they happened to; what is of none of it, as findings are, on a line of its own."""
    findings = diagnose(trace).findings
    if findings or any(mark.track not in pids for mark in trace.marks):
        yield {"ph": "M", "name": "process_name", "pid": _OF_ALL_PID, "args": {"name": _OF_ALL}}
    for mark in trace.marks:
        told: dict[str, Json] = {"kind": str(mark.kind), "severity": str(mark.severity)}
        yield _instant(mark.t_ns, mark.text, pids.get(mark.track, _OF_ALL_PID), told)
    for finding in findings:
        about: dict[str, Json] = {"rule": finding.rule, "severity": str(finding.severity), "action": finding.action}
        yield _instant(trace.end_ns, finding.headline(), _OF_ALL_PID, about)


def _instant(t_ns: int, name: str, pid: int, args: dict[str, Json]) -> dict[str, Json]:
    return {"ph": "i", "name": name, "ts": t_ns / _NS_PER_US, "s": "p", "pid": pid, "tid": pid, "args": args}


# -- threads ---------------------------------------------------------------------------------------------------


def _states(id: TrackId, stretches: Iterable[tuple[int, int, str]]) -> Iterator[dict[str, Json]]:
    """Stretches that follow each other alike as one slice."""
    begun: tuple[int, int, str] | None = None
    for start_ns, end_ns, state in stretches:
        if begun is not None and begun[1:] == (start_ns, state):
            begun = begun[0], end_ns, state
            continue
        if begun is not None:
            yield _slice(id, *begun)
        begun = start_ns, end_ns, state
    if begun is not None:
        yield _slice(id, *begun)


def _slice(id: TrackId, start_ns: int, end_ns: int, state: str) -> dict[str, Json]:
    times = {"ts": start_ns / _NS_PER_US, "dur": (end_ns - start_ns) / _NS_PER_US}
    return {"ph": "X", "name": state, **_thread(id), **times}


def _stretches(trace: Trace, id: TrackId, blocked: Mapping[str, Mapping[int, float]]) -> Iterator[tuple[int, int, str]]:
    """Each stretch between two looks at a thread, and what most of it was spent in."""
    on_cpu = trace.get(id, v.THREAD_ON_CPU)
    queued = _values(trace.get(id, v.THREAD_RUN_QUEUE))
    for (start_ns, was), (end_ns, now) in pairwise(() if on_cpu is None else on_cpu.known):
        running, waiting = now - was, _grown(queued, start_ns, end_ns)
        if max(running, waiting) >= (end_ns - start_ns) / 2:
            yield start_ns, end_ns, _RUNNING if running >= waiting else _QUEUED
            continue
        causes = {cause: _grown(values, start_ns, end_ns) for cause, values in blocked.items()}
        longest = max(causes, key=causes.__getitem__, default="")
        yield start_ns, end_ns, f"{_SLEEPING}: {longest}" if longest and causes[longest] > 0 else _SLEEPING


def _blocked(trace: Trace) -> dict[TrackId, dict[str, Mapping[int, float]]]:
    """What each thread slept in, by cause, as far as that was measured."""
    found: dict[TrackId, dict[str, Mapping[int, float]]] = {}
    for (track, name), series in trace.series.items():
        metric, cause = parted(name)
        if metric == v.THREAD_BLOCKED.name:
            found.setdefault(track, {})[cause] = _values(series)
    return found


def _values(series: Series | None) -> dict[int, float]:
    return {} if series is None else dict(series.known)


def _grown(values: Mapping[int, float], start_ns: int, end_ns: int) -> float:
    """By how much a counter grew between two looks; 0 where it was not read at both."""
    return values[end_ns] - values[start_ns] if start_ns in values and end_ns in values else 0.0
