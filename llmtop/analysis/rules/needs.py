"""What live rules need, and what they say where it is not there: None, or why it is not known.

Each asks first whether it applies here at all (`scope.is_watched`, `has_gpu`): what does not apply lacks nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.rules.evidence import WINDOW_NS
from llmtop.analysis.rules.signals import gpu_activity
from llmtop.analysis.series.readings import BUSY, latest, mean, own_gpus, server_gpus, server_track, why_kind_missing
from llmtop.analysis.threads.shares import Shares, threads_view
from llmtop.facts import ProcessFact
from llmtop.model import Trace, TrackId, TrackKind, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.model import Metric


def has_gpu(trace: Trace) -> bool:
    """Whether there is a GPU to be judged: one is seen, or the server shows that it uses one."""
    return bool(own_gpus(trace)) or uses_unseen_gpu(trace)


@lru_cache(maxsize=4)
def uses_unseen_gpu(trace: Trace) -> bool:
    """It has a GPU's device file open, launches kernels, or sleeps in a GPU's driver; and no GPU is seen.

    Kept for the newest traces: every rule about GPUs asks, of thousands of series.
    """
    if own_gpus(trace):
        return False
    opened = (track.facts.get(ProcessFact.GPUS_OPEN) for track in trace.tracks_of(TrackKind.PROCESS))
    if any(isinstance(count, int) and count for count in opened):
        return True
    metrics = {v.THREAD_LAUNCHES.name, v.THREAD_CUDA_SYNC.name}  # a library that is loaded alone uses none
    metrics |= {
        v.labelled(sleep, cause).name
        for sleep in (v.THREAD_BLOCKED, v.THREAD_STATE_SAMPLES)
        for cause in (v.ThreadCause.GPU_DRIVER, v.ThreadCause.CUDA_SYNC)
    }
    return any(metric in metrics for _, metric in trace.series)


def lacks_threads(trace: Trace) -> Unknown | None:
    """Why no thread's times are known."""
    view = threads_view(trace)
    if isinstance(view, Unknown):
        return view
    whys = [row.shares for row in view.rows if not isinstance(row.shares, Shares)]
    return whys[0] if len(whys) == len(view.rows) else None


def lacks_gauges(trace: Trace, tracks: Sequence[TrackId], *metrics: Metric) -> Unknown | None:
    """Why the mean of one of `metrics` is not known over the window, of the first of `tracks` of which it is not."""
    for track in tracks:
        for metric in metrics:
            for value in (latest(trace, track, metric), mean(trace, track, metric, WINDOW_NS)):
                if isinstance(value, Unknown):
                    return value
    return None


def lacks_server(trace: Trace, *metrics: Metric) -> Unknown | None:
    """Why the server's own numbers are not known."""
    server = server_track(trace)
    return why_kind_missing(trace, TrackKind.SERVER) if server is None else lacks_gauges(trace, [server.id], *metrics)


def lacks_requests(trace: Trace) -> Unknown | None:
    """Why it is not known whether requests run or wait."""
    return lacks_server(trace, v.SERVER_RUNNING, v.SERVER_WAITING)


def lacks_activity(trace: Trace) -> Unknown | None:
    """Why it is not known how busy the server's GPUs are; None also where there is no GPU."""
    if not has_gpu(trace):
        return None
    tracks = [one.id for one in server_gpus(trace)] or [one.id for one in own_gpus(trace)]
    if not tracks:
        return why_kind_missing(trace, TrackKind.GPU)
    return lacks_gauges(trace, tracks, BUSY[-1]) if gpu_activity(trace) is None else None


def lacks_gpu_gauges(trace: Trace, *metrics: Metric) -> Unknown | None:
    """Why GPUs do not tell something of themselves; None where there is no GPU."""
    tracks = [one.id for one in server_gpus(trace)] or [one.id for one in own_gpus(trace)]
    if tracks or not has_gpu(trace):
        return lacks_gauges(trace, tracks, *metrics)
    return why_kind_missing(trace, TrackKind.GPU)
