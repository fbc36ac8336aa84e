"""What a trace is of: a machine under observation, with a server or without, or a tool's report."""

from __future__ import annotations

from llmtop.analysis.series.readings import told_why_kind_missing
from llmtop.model import Trace, TrackKind

_OF_A_SERVER = (TrackKind.THREAD, TrackKind.PROCESS, TrackKind.SERVER)
"""What a look at GPUs alone has none of, nor a reason why not."""


def is_live(trace: Trace) -> bool:
    """Whether the trace is of a machine under observation, now or in a recording, and not a tool's report."""
    return trace.kernels is None and not trace.spans and trace.origin.is_observed


def is_watched(trace: Trace) -> bool:
    """Whether a server is observed, or was to be: its threads, its endpoint, or why there are none."""
    if not is_live(trace):
        return False
    return any(trace.tracks_of(kind) or told_why_kind_missing(trace, kind) for kind in _OF_A_SERVER)
