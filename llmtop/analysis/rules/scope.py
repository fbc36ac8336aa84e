"""What a trace is of: a machine under observation, with a server or without, or a tool's report."""

from __future__ import annotations

from llmtop.model import Trace, TrackKind

_OF_A_SERVER = ("proc", "prometheus", "server", "thread", "process")
"""Who speaks up only where a server is observed: collectors that a look at GPUs alone does not run."""


def is_live(trace: Trace) -> bool:
    """Whether the trace is of a machine under observation, now or in a recording, and not a tool's report."""
    return trace.kernels is None and not trace.spans and trace.origin.kind in ("live", "recording")


def is_watched(trace: Trace) -> bool:
    """Whether a server is observed, or was to be: its threads, its endpoint, or why there are none."""
    if not is_live(trace):
        return False
    kinds = (TrackKind.THREAD, TrackKind.PROCESS, TrackKind.SERVER)
    return any(trace.tracks_of(kind) for kind in kinds) or any(one.what in _OF_A_SERVER for one in trace.missing)
