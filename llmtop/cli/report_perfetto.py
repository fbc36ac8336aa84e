"""`llmtop report --format perfetto`: what was observed or captured as a trace for https://ui.perfetto.dev.

Numbers are counters of a process, a GPU, the machine; what a thread spent most of the time between two looks in is a
slice; events are instants; spans of a timeline are slices on the lines of their streams and threads.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, BinaryIO

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series.rates import rate_samples
from llmtop.analysis.series.summary import names_of
from llmtop.cli.perfetto_packets import PacketWriter, args
from llmtop.cli.perfetto_spans import has_spans, write_spans
from llmtop.cli.perfetto_tracks import PerfettoTracks
from llmtop.errors import FileError
from llmtop.model import TrackId, TrackKind
from llmtop.vocabulary import is_part, parted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from llmtop.model import Series, Trace

_RUNNING, _QUEUED, _SLEEPING = "on CPU", "waits for a CPU", "sleeps"


def refuse_what_has_no_time(trace: Trace) -> None:
    """Nothing can be drawn over time of kernels one by one, of stacks, of tables.

    Raises:
        FileError: The trace has nothing else.
    """
    if not trace.origin.is_observed and not trace.series and not has_spans(trace):
        raise FileError(f"{trace.origin.path} has nothing that goes over time: Perfetto draws recordings and timelines")


def write_perfetto(trace: Trace, file: BinaryIO) -> None:
    """Write all of the window that the trace has; not more than what is open at one time is kept.

    Raises:
        OSError: It cannot be written.
    """
    packets = PacketWriter(file)
    if trace.origin.utc_ns is not None:
        packets.clock(trace.origin.utc_ns)
    tracks = PerfettoTracks(trace, packets)
    for id in trace.tracks:
        tracks.number(id)
    causes = _blocked(trace)
    for track in trace.tracks_of(TrackKind.THREAD):
        for start_ns, end_ns, state in _alike(_stretches(trace, track.id, causes.get(track.id, {}))):
            packets.begin(tracks.number(track.id), start_ns, state)
            packets.end(tracks.number(track.id), end_ns)
    alike = Counter((id, names_of(trace, series)[1]) for (id, _), series in trace.series.items())
    for (id, _), series in trace.series.items():
        if id in trace.tracks and ids.kind(id) is not TrackKind.THREAD and not is_part(series.metric):
            name = names_of(trace, series)[1]
            name = name if alike[id, name] == 1 else f"{name} ({series.metric.name})"  # of two sources
            _write_counter(series, name, tracks.number(id), packets)
    _write_instants(trace, tracks, packets)
    write_spans(trace, tracks, packets)


def _write_counter(series: Series, name: str, on: int, packets: PacketWriter) -> None:
    """Samples of a number; of a counter how fast it grew from then on. What the source had none of is left out.

    Perfetto draws a value up to the next one. Of codes and bits, of which a counter has the number alone, it is told
    what they stand for when they become another.
    """
    metric = series.metric
    counter = packets.counter(name, f"{metric.unit}/s" if metric.counter else metric.unit, on)
    rates = (rate for _, rate in rate_samples(series))
    for t_ns, value in zip(series.times, rates, strict=False) if metric.counter else series:
        if value is not None:
            packets.sample(counter, t_ns, value)
    for value, samples in groupby(series.known if metric.unit in v.SIGNS else (), key=itemgetter(1)):
        packets.instant(on, next(samples)[0], f"{name}: {v.said(metric, value)}", args=args({"value": value}))


def _write_instants(trace: Trace, tracks: PerfettoTracks, packets: PacketWriter) -> None:
    """Events on what they happened to; what is of none of it, as findings are, on a line of its own."""
    for mark in trace.marks:
        told = args({"kind": str(mark.kind), "severity": str(mark.severity)})
        on = tracks.number(TrackId(mark.track)) if mark.track in trace.tracks else tracks.of_all
        packets.instant(on, mark.t_ns, mark.text, args=told)
    for finding in diagnose(trace).findings if trace.origin.is_observed else ():
        about = args({"rule": finding.rule, "severity": str(finding.severity), "action": finding.action})
        packets.instant(tracks.of_all, trace.end_ns, finding.headline(), args=about)


# -- threads ---------------------------------------------------------------------------------------------------


def _alike(stretches: Iterable[tuple[int, int, str]]) -> Iterator[tuple[int, int, str]]:
    """Stretches that follow each other alike as one."""
    begun: tuple[int, int, str] | None = None
    for start_ns, end_ns, state in stretches:
        if begun is not None and begun[1:] == (start_ns, state):
            begun = begun[0], end_ns, state
            continue
        if begun is not None:
            yield begun
        begun = start_ns, end_ns, state
    if begun is not None:
        yield begun


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
