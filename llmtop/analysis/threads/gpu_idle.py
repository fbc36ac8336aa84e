"""The idle share of a GPU, cell by cell, from the best source there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.grid import gauge_steps, grid_of, on_grid, usual_step_ns
from llmtop.analysis.series.readings import BUSY, gpu_tracks, source, why_absent, why_kind_missing
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, TrackId, TrackKind, Unknown

if TYPE_CHECKING:
    from llmtop.analysis.series.grid import Cells, Grid
    from llmtop.model import Metric, Trace

_QUARTER_NS = NS_PER_S // 4
"""Polls come a little early or late: cells are a whole number of quarters of a second long."""
_LEAST_CELLS = 2
"""Of fewer nothing is said."""


@frozen
class IdleCells:
    """How idle one GPU was.

    Attributes:
        shares: For each cell of the grid 1 - activity, 0 to 1; None where it was not read.
        source: "GPU busy (GPM)": the share of the time with any kernel, however few multiprocessors that takes.
    """

    gpu: TrackId
    title: str
    grid: Grid
    shares: Cells
    source: str


def gpu_idle(trace: Trace, gpu: TrackId | None, window_ns: int) -> IdleCells | Unknown:
    """The idle shares of one GPU (a track id; the first where None) over the window.

    The cells are as long as the slower of the GPU's and the threads' sampling intervals: finer ones would hold
    nothing new. They end at whole multiples of that, so that a newer trace moves no sample into another cell.
    """
    tracks = gpu_tracks(trace)
    track = next((one for one in tracks if gpu in (None, one.id)), None)
    if track is None:
        return why_kind_missing(trace, TrackKind.GPU)
    for metric in BUSY:
        found = _idle(trace, track.id, metric, window_ns)
        if found is not None:
            title = f"GPU {ids.gpu_index(track.id)}"
            return IdleCells(track.id, title, *found, f"{metric.title} ({source(trace, track.id, metric)})")
    return why_absent(trace, track.id, BUSY[-1])


def _idle(trace: Trace, track: TrackId, metric: Metric, window_ns: int) -> tuple[Grid, Cells] | None:
    series = trace.get(track, metric)
    if series is None or series.between(trace.end_ns - window_ns, trace.end_ns).at(trace.end_ns) is None:
        return None
    step_ns = max(usual_step_ns(series), _clock_step_ns(trace))
    step_ns = max(1, round(step_ns / _QUARTER_NS)) * _QUARTER_NS
    end_ns = trace.end_ns // step_ns * step_ns
    grid = grid_of(max(trace.start_ns, end_ns - window_ns), end_ns, step_ns)
    cells = on_grid(gauge_steps(series, grid.start_ns, grid.end_ns), grid)
    if sum(cell is not None for cell in cells) < _LEAST_CELLS:
        return None
    return grid, tuple(None if percent is None else min(1.0, max(0.0, 1 - percent / 100)) for percent in cells)


def _clock_step_ns(trace: Trace) -> int:
    """The usual time between two readings of threads' clocks."""
    track = next((one.id for one in trace.tracks_of(TrackKind.THREAD)), None)
    return usual_step_ns(trace.get(track, v.THREAD_ON_CPU)) if track else 0
