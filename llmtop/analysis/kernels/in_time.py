"""When a launch of a timeline ran, and where."""

from __future__ import annotations

from llmtop.model import SpanKind, Stretch, Trace, Unknown

_NO_TIMES = Unknown("this capture does not tell when its kernels ran", "nsys profile COMMAND; torch.profiler")


def launch_stretch(trace: Trace, launch: int) -> Stretch | Unknown:
    """From when to when a launch ran, in ns on the trace's clock, and on which stream, where the timeline has it.

    Args:
        trace: One with kernels.
        launch: Counted from 0.
    """
    kernels, spans = trace.kernels, trace.spans.get(SpanKind.KERNEL)
    if kernels is None or not launch < len(kernels):
        return _NO_TIMES
    start, ns = kernels.start_ns[launch], kernels.duration_ns[launch]
    if start < 0 or ns != ns:
        return _NO_TIMES
    is_its_span = spans is not None and len(spans) == len(kernels) and spans.start_ns[launch] == start
    track = spans.tracks[spans.track_id[launch]] if spans is not None and is_its_span else None
    return Stretch(start, start + round(ns), track)
