"""What a server says, or a model's size implies, that a GPU does: the points that need no counter of the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.series.readings import counter_increase, server_track, source
from llmtop.analysis.views import Quality, Refusal, RooflinePoint
from llmtop.model import NS_PER_S, Trace, Unknown

if TYPE_CHECKING:
    from llmtop.analysis.roofline.ceilings import Ceilings
    from llmtop.model import Track

ESTIMATE_WINDOW_NS = 15 * NS_PER_S
"""Servers renew their FLOP counters once per logging interval, 10 s in vLLM."""
SERVER_ESTIMATE = "server estimate"
"""The label of that point."""
_ENABLE_ESTIMATE = "start the server with --enable-mfu-metrics (vLLM, SGLang)"


def server_estimate(trace: Trace, ceilings: Ceilings | None) -> RooflinePoint | Refusal | None:
    """What the server says that its model does on the GPUs under `ceilings`; None without a server."""
    server = server_track(trace)
    if server is None:
        return None
    flops = counter_increase(trace, server.id, v.SERVER_FLOPS, ESTIMATE_WINDOW_NS)
    read = counter_increase(trace, server.id, v.SERVER_READ_BYTES, ESTIMATE_WINDOW_NS)
    written = counter_increase(trace, server.id, v.SERVER_WRITE_BYTES, ESTIMATE_WINDOW_NS)
    if isinstance(flops, Unknown):
        return _refused(flops)
    if isinstance(read, Unknown):
        return _refused(read)
    traffic = read.per_second + (0.0 if isinstance(written, Unknown) else written.per_second)
    if not flops.amount or not traffic:
        return _refused(_why_no_estimate(trace, server))
    origin = f"model estimate ({source(trace, server.id, v.SERVER_FLOPS)})"
    count = 1 if ceilings is None else ceilings.count
    return estimated_point(SERVER_ESTIMATE, flops.per_second * count, traffic * count, ceilings, origin)


def _refused(why: Unknown) -> Refusal:
    return Refusal(SERVER_ESTIMATE, Unknown(why.reason, _ENABLE_ESTIMATE))


def _why_no_estimate(trace: Trace, server: Track) -> Unknown:
    """Servers export the counters at 0 when the feature is off: only tokens tell that from rest."""
    tokens = [
        counter_increase(trace, server.id, metric, ESTIMATE_WINDOW_NS)
        for metric in (v.SERVER_OUTPUT_TOKENS, v.SERVER_PROMPT_TOKENS)
    ]
    if any(not isinstance(grown, Unknown) and grown.amount > 0 for grown in tokens):
        return Unknown("the server's FLOP counters stand still while tokens advance: they are off")
    return Unknown("the server's FLOP counters stand still: it is idle, or they are off")


def estimated_point(
    label: str, flops_per_s: float, bytes_per_s: float, ceilings: Ceilings | None, origin: str
) -> RooflinePoint:
    """A point that nothing on the GPU measured."""
    fraction = None
    precision = ""
    if ceilings is not None:
        precision = ceilings.precision
        fraction = max(flops_per_s / ceilings.peak(precision), bytes_per_s / ceilings.bytes_per_s)
    return RooflinePoint(
        label=label,
        intensity=flops_per_s / bytes_per_s,
        flops_per_s=flops_per_s,
        bytes_per_s=bytes_per_s,
        precision=precision,
        source=origin,
        quality=Quality.ESTIMATE,
        roof_fraction=fraction,
    )
