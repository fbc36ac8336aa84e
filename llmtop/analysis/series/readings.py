"""What a trace knows of one metric now, or why it does not."""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.series import ages
from llmtop.analysis.series.rates import TOO_FEW, Increase, RateHistory, increase
from llmtop.facts import GpuProcessFact, ProcessFact, ServerFact
from llmtop.model import NS_PER_S, Missing, Series, StackWindow, Trace, TrackId, TrackKind, Unknown, UnknownKind
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmtop.model import Metric, Source, Target, Track, What

NO_TARGET = Unknown("no server is attached", "llmtop --attach PID")
FRESH_NS = 15 * NS_PER_S
"""A reading older than this is not "now" any more: three times the slowest poll of a live source (5 s)."""

BUSY = (v.GPU_ACTIVE, v.GPU_UTIL)
"""Whether a GPU has work, the finer first. SM activity does not tell: a kernel of one block keeps a GPU busy all the
time, and one of 132 SMs active."""
_WORKING_PERCENT = 5.0
"""Below this nothing but housekeeping runs on a GPU: ranks that wait for another spin on their SMs."""
_SLOW_PAGE_MS = 300.0
"""The shortest look that a snapshot takes: within it two pages of a server that answers at once have come."""
_PAGES = 4
_NO_STACKS_THEN = Unknown("no stacks are kept from that moment", "they begin later, or were older than the window")


def why_kind_missing(trace: Trace, kind: TrackKind) -> Unknown:
    """Why there is no track of a kind at all: what the collector of that kind said, in the order it said it."""
    return told_why_kind_missing(trace, kind) or Unknown(f"no {kind.value.replace('_', ' ')} seen yet")


def told_why_kind_missing(trace: Trace, kind: TrackKind) -> Unknown | None:
    """What the sources of a kind said of why there is none; None while they have said nothing."""
    sources = trace.sources.of_kind(kind)
    told = trace.why_missing(whats.kind(kind), *(whats.source(one.name) for one in sources))
    return told or _why_failed(trace, sources)


def _why_failed(trace: Trace, sources: Iterable[Source]) -> Unknown | None:
    """What went wrong in a collector itself, which is a fault of llmtop's."""
    failed = {whats.source(one.name) for one in sources}
    return next((Unknown(issue.message) for issue in trace.issues if whats.of_fault(issue.code) in failed), None)


def why_no_gpu(trace: Trace) -> Unknown | None:
    """Why there is no GPU to look at: the machine shows none, or the server has answered and uses none of them.

    None where there is one, and while that is not known yet: a server that loads opens its GPUs late.
    """
    tracks = gpu_tracks(trace)
    if not tracks:
        return told_why_kind_missing(trace, TrackKind.GPU)
    if server_track(trace) is None or own_gpus(trace):
        return None
    of_machine = "this machine's GPU" if len(tracks) == 1 else f"this machine's {len(tracks)} GPUs"
    return Unknown(f"the server does not use {of_machine}: no process of it has one open", kind=UnknownKind.UNUSED)


def why_absent(trace: Trace, track: TrackId, metric: Metric) -> Unknown:
    """Why a metric has no value on a track: the most specific reason that was listed."""
    return told_why_absent(trace, track, metric) or Unknown(f"no reading of {metric.title or metric.name} yet")


def told_why_absent(trace: Trace, track: TrackId, metric: Metric) -> Unknown | None:
    """What was said of why a metric has no value on a track: of it, of the track, or by a source of its own of all.

    None while nothing was: what other sources lack is no reason.
    """
    name, _ = v.parted(metric.name)
    sources, kind = trace.sources.of_metric(name), ids.kind(track)
    parts = (part for one in sources for part, metrics in one.parts.items() if any(m.name == name for m in metrics))
    keys = [whats.reading(track, metric), *(whats.named(track, one) for one in (name, *parts))]
    keys += [whats.metric(metric), whats.track(track)]
    for one in sources:
        keys += [whats.kind(kind)] if kind is not None and kind in one.tracks else []
        keys += whats.of_source(one.name)
    return trace.why_missing(*keys) or _why_failed(trace, sources)


def told_why_unseen(trace: Trace, *parts: What) -> Unknown | None:
    """What was said of why there is nothing of what no metric tells (stacks): of it, or by a source that gives it.

    None while nothing was.
    """
    sources = trace.sources.of_what(*parts)
    own = (what for one in sources for what in whats.of_source(one.name))
    return trace.why_missing(*parts, *own) or _why_failed(trace, sources)


def told_why_lost(trace: Trace, track: Track) -> Unknown | None:
    """What was said of why nothing at all is known of a track: of it, or by the source that adds its kind."""
    sources = trace.sources.of_kind(track.kind)[:1]
    return trace.why_missing(whats.track(track.id), *(whats.source(one.name) for one in sources))


def latest(trace: Trace, track: TrackId, metric: Metric, max_age_ns: int = FRESH_NS) -> float | Unknown:
    """The newest value of a gauge, unless it is too old to be called "now" or the source had none."""
    series = trace.get(track, metric)
    if series is None or not len(series):
        return why_absent(trace, track, metric)
    if age := _staleness(series, trace.end_ns, max_age_ns):
        return age
    value = series.last
    return why_absent(trace, track, metric) if value is None else value


def mean(trace: Trace, track: TrackId, metric: Metric, window_ns: int, at_least: int = 2) -> float | Unknown:
    """The mean of a gauge's samples over the last `window_ns`; unknown with fewer than `at_least` of them."""
    series = trace.get(track, metric)
    if series is None:
        return why_absent(trace, track, metric)
    values = [value for _, value in series.between(trace.end_ns - window_ns, trace.end_ns).known]
    if len(values) < at_least:
        return Unknown(f"fewer than {at_least} readings of {metric.title or metric.name} in the window")
    return math.fsum(values) / len(values)  # sum() rounds in another way from Python 3.12 on


def since_ns(series: Series) -> int:
    """When the series came to the value that it has now; the time of its first sample where it always had it."""
    last, since = series.last, series.last_t_ns or 0
    for t, value in zip(reversed(series.times), reversed(series.values), strict=True):
        if value != last:
            break
        since = t
    return since


def span_s(trace: Trace, track: TrackId, metric: Metric, window_ns: int) -> float:
    """How much of the last `window_ns` the samples of a metric really cover, in seconds: of a new one less than all."""
    series = trace.get(track, metric)
    times = () if series is None else series.between(trace.end_ns - window_ns, trace.end_ns).times
    return (trace.end_ns - times[0]) / NS_PER_S if times else 0.0


def history(trace: Trace, track: TrackId, metric: Metric, window_ns: int) -> tuple[tuple[int, float | None], ...]:
    """The (t_ns, value) samples of the last `window_ns`, gaps included; empty when it was never read."""
    series = trace.get(track, metric)
    return () if series is None else tuple(series.between(trace.end_ns - window_ns, trace.end_ns))


def counter_rate(trace: Trace, track: TrackId, metric: Metric, window_ns: int) -> float | Unknown:
    """Growth per second of a counter over the last `window_ns`, in its unit per second."""
    grown = counter_increase(trace, track, metric, window_ns)
    return grown if isinstance(grown, Unknown) else grown.per_second


def counter_increase(trace: Trace, track: TrackId, metric: Metric, window_ns: int) -> Increase | Unknown:
    """How much a counter grew over the last `window_ns`; unknown where it was never read or is not read any more.

    Samples without a value are bridged, for the counter went on counting; but not one after which nothing has come for
    two intervals: what a source that has gone counted before is not of now.
    """
    series = trace.get(track, metric)
    if series is None or not len(series):
        return why_absent(trace, track, metric)
    if series.last is None and trace.end_ns - (ages.known_ns(series) or 0) > ages.limit_ns(trace):
        return why_absent(trace, track, metric)
    stale = _staleness(series, trace.end_ns, max(window_ns, FRESH_NS))
    return stale or grown_within(trace, track, series, window_ns)


def grown_within(trace: Trace, track: TrackId, series: Series | None, window_ns: int) -> Increase | Unknown:
    """Like `rates.increase`; where too little of a server's page has come for a rate, it says how long one takes."""
    grown = increase(series, window_ns, trace.end_ns)
    if grown is not TOO_FEW:
        return grown
    page_ms = trace.tracks[track].facts.get(ServerFact.SCRAPE_MS) if track in trace.tracks else None
    if not isinstance(page_ms, int | float) or page_ms < _SLOW_PAGE_MS:
        return grown
    page_s = page_ms / 1000
    return Unknown(
        f"one page of metrics has come in this time, for a page takes {page_s:.1f} s: a rate needs two",
        f"wait for the next; snapshot: look for longer, --seconds {_PAGES * page_s:.0f}",
        UnknownKind.PASSING,
    )


def rate_history(trace: Trace, track: TrackId, metric: Metric, window_ns: int) -> tuple[tuple[int, float | None], ...]:
    """The (t_ns, rate per second) samples of a counter over the last `window_ns`, gaps included."""
    series = trace.get(track, metric)
    if series is None:
        return ()
    key = track, metric.name, window_ns
    if len(_rate_histories) >= _MOST_HISTORIES:
        _rate_histories.clear()
    stretch = series.between(trace.end_ns - window_ns, trace.end_ns)
    known = _rate_histories[key] = RateHistory.of(stretch, _rate_histories.get(key))
    return known.samples


_rate_histories: dict[tuple[str, str, int], RateHistory] = {}
"""By track, metric and window, as it was last asked for: of hundreds of samples all but one are those of then."""
_MOST_HISTORIES = 256
"""Histories that are kept; then all are made anew."""


def source(trace: Trace, track: TrackId, metric: Metric) -> str:
    """Who read it: "GPM", "NVML", "vLLM metrics" ...; empty when nobody did."""
    series = trace.get(track, metric)
    return "" if series is None else clean(series.source)


def gpu_tracks(trace: Trace) -> tuple[Track, ...]:
    """GPUs by index."""
    return tuple(sorted(trace.tracks_of(TrackKind.GPU), key=lambda track: (len(track.id), track.id)))


@lru_cache(maxsize=4)
def own_gpus(trace: Trace) -> tuple[Track, ...]:
    """The GPUs that may be the observed server's: none of them where it is known to use none, whoever works there.

    The driver's list of processes tells, and its own files; where neither can be read, all may be. Kept for the newest
    traces, for nearly every rule and pane asks.
    """
    processes = trace.tracks_of(TrackKind.PROCESS)
    tracks = gpu_tracks(trace)
    if held := _held_gpus(trace):
        return tuple(track for track in tracks if track.id in held) or tracks
    if not processes:
        return tracks
    counts = [track.facts[ProcessFact.GPUS_OPEN] for track in processes if ProcessFact.GPUS_OPEN in track.facts]
    known = [count for count in counts if isinstance(count, int)]
    if any(known) or not counts:
        return tracks
    return () if known or _are_users_listed(trace, tracks) else tracks


def _held_gpus(trace: Trace) -> frozenset[str]:
    """The GPUs on which the driver lists a process of the server."""
    own = {track.id for track in trace.tracks_of(TrackKind.PROCESS)}
    users = trace.tracks_of(TrackKind.GPU_PROCESS)
    return frozenset(one.parent for one in users if one.parent and ids.process_of(one.id) in own)


def _are_users_listed(trace: Trace, tracks: tuple[Track, ...]) -> bool:
    """Whether the driver's list of each GPU is read, and is of our PID namespace: who works on one is in its list."""
    users = trace.tracks_of(TrackKind.GPU_PROCESS)
    if any(isinstance(one.facts.get(GpuProcessFact.CONTAINER_PID), Unknown) for one in users):
        return False
    lists = (trace.why_missing(whats.facet(one.id, whats.Facet.PROCESSES), whats.track(one.id)) for one in tracks)
    are_read = all(why is None for why in lists)
    idle = (one.id for one in tracks if one.id not in {user.parent for user in users})
    return are_read and not any(_works(trace, gpu) for gpu in idle)


def busy_metric(trace: Trace, gpu: TrackId) -> Metric:
    """The best of what now tells how much of the time a GPU has work; NVML's where nothing does."""
    return next((one for one in BUSY if not isinstance(latest(trace, gpu, one), Unknown)), BUSY[-1])


def _works(trace: Trace, gpu: TrackId) -> bool:
    busy = latest(trace, gpu, busy_metric(trace, gpu))
    return not isinstance(busy, Unknown) and busy >= _WORKING_PERCENT


def target_gpus(trace: Trace, target: Target | None) -> tuple[Track, ...]:
    """The GPUs that the server holds memory on, of those that it has open: CUDA opens all that it sees.

    Without a server, and until it has answered, all of them: it opens its GPUs late.
    """
    tracks = gpu_tracks(trace)
    if target is None:
        return tracks
    opened, used = frozenset(ids.gpu(index) for index in target.gpus), _held_gpus(trace)
    wanted = opened & used or used or opened
    held = tuple(track for track in tracks if track.id in wanted)
    return held or (tracks if server_track(trace) is None else own_gpus(trace))


@lru_cache(maxsize=4)
def server_gpus(trace: Trace) -> tuple[Track, ...]:
    """The GPUs that the observed server's processes hold memory on; those that work, where that cannot be told.

    Kept for the newest traces: rules and panes ask some twenty times a frame.
    """
    tracks, held = own_gpus(trace), _held_gpus(trace)
    return tuple(one for one in tracks if one.id in held) or tuple(one for one in tracks if _works(trace, one.id))


def server_track(trace: Trace) -> Track | None:
    """The server under observation; the first one where several endpoints are read."""
    return next(iter(trace.tracks_of(TrackKind.SERVER)), None)


def as_of(trace: Trace, t_ns: int) -> Trace:
    """The trace as it stood at `t_ns`: every series and mark cut there, nothing copied.

    Tracks and reasons stay those of the newest moment: only what is measured has a history. Of stacks some moments
    are kept; those of the last one before `t_ns` are taken.
    """
    if t_ns >= trace.end_ns:
        return trace
    past = trace.past_stacks[: bisect_right(trace.past_stacks, t_ns, key=attrgetter("end_ns"))]
    then = _stacks_then(trace, past, t_ns)
    lost = () if then.stacks or not trace.stacks else (Missing(whats.STACKS, _NO_STACKS_THEN),)
    return Trace(
        origin=trace.origin,
        start_ns=trace.start_ns,
        end_ns=t_ns,
        tracks=trace.tracks,
        series={key: series.between(-(2**62), t_ns) for key, series in trace.series.items()},
        spans=trace.spans,
        stacks=then.stacks,
        kernels=trace.kernels,
        marks=tuple(mark for mark in trace.marks if mark.t_ns <= t_ns),
        issues=trace.issues,
        missing=(*lost, *trace.missing),
        stacks_end_ns=then.end_ns,
        past_stacks=past,
        sources=trace.sources,
    )


def _stacks_then(trace: Trace, past: tuple[StackWindow, ...], t_ns: int) -> StackWindow:
    """The last stacks up to a moment; those of a file, which have no time of their own, are of every moment."""
    if trace.stacks_end_ns <= t_ns:
        return StackWindow(trace.stacks_end_ns, trace.stacks)
    return past[-1] if past else StackWindow(0, ())


def _staleness(series: Series, now_ns: int, max_age_ns: int) -> Unknown | None:
    age_ns = now_ns - (series.last_t_ns or 0)
    if age_ns <= max_age_ns:
        return None
    return Unknown(f"the last reading is {age_ns / NS_PER_S:.0f} s old")
