"""The roofline of whatever a trace is of: a server's GPUs over the last minute, or the kernels of a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from llmtop.analysis.gpus.models import short_gpu_name
from llmtop.analysis.kernels.absent import not_of_kernels
from llmtop.analysis.rules.scope import is_live
from llmtop.analysis.series.readings import target_gpus, why_kind_missing, why_no_gpu
from llmtop.analysis.views import RooflineView
from llmtop.model import Target, Trace, TrackId, TrackKind, Unknown

ALL_GPUS: Final = TrackId("all")
"""Stands for the server's GPUs together."""


_OF_TIMELINES = Unknown(
    "a timeline has no counters to put kernels under a roofline", "Session has the command that collects them"
)


def why_no_roofline(trace: Trace) -> Unknown | None:
    """Why a trace has nothing for a roofline: it is neither of GPUs over time nor of kernels."""
    if has_trail(trace):
        return None
    return not_of_kernels(trace) or (_OF_TIMELINES if trace.spans else None)


def has_trail(trace: Trace) -> bool:
    """Whether its points are one thing over time, and not many to choose from."""
    return is_live(trace)


def roofline(trace: Trace, target: Target | None = None, gpu: TrackId | None = None) -> RooflineView | Unknown:
    """Points of the GPUs of a server with their trail, or one of each shape of the kernels.

    Args:
        trace: Any trace.
        target: The server whose GPUs are meant; None for all of the trace.
        gpu: A track, `ALL_GPUS`, or None for the first of the server's GPUs; one that is gone stands for the first.
    """
    # Each loaded where it is needed: the other kind of trace never does, and a screen shows one kind for long.
    if not has_trail(trace):
        from llmtop.analysis.kernels.table import roofline_view

        return roofline_view(trace)
    from llmtop.analysis.roofline.server import server_roofline

    gpus = target_gpus(trace, target)
    if not gpus:
        return why_no_gpu(trace) or why_kind_missing(trace, TrackKind.GPU)
    is_there = gpu is not None and gpu in trace.tracks
    chosen = None if gpu == ALL_GPUS else gpu if is_there else gpus[0].id
    view = server_roofline(trace, target, chosen)
    return replace(view, title=short_gpu_name(view.title))
