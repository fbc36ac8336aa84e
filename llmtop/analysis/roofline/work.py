"""The work that was done, which the GPU's counters only bound: by the server's own count, or by tokens and shapes.

GPM counts a tile that is partly padding as full: in decode the counted FLOP/s were 1.5 times (batch 64 and 128) to 2.6
times (batch 4) what an H200 running vLLM did. Where the model's shape and the token rates are known, the work is

    FLOP/s = 2 N x tokens/s + 4 x layers x heads x head size x (context x output tokens/s + context x prompt tokens/s)

(Kaplan et al., arXiv:2001.08361, 2.1; the second term is attention). A prompt's mean length is its tokens over the
first tokens that were served; its tokens attend to half of it on the mean, and to what a cache held of it. Lengths
differ, and attention goes with their square, so this part is a lower bound.
The point that leads is of one window: this work, and the mean of the bytes that were measured, over the last 15 s.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.roofline.efficiency import WINDOW_NS, kv_bytes_in_use, model_flops_per_s
from llmtop.analysis.roofline.estimate import SERVER_ESTIMATE
from llmtop.analysis.series import ages
from llmtop.analysis.series.readings import counter_rate, mean, server_track
from llmtop.analysis.server.tokens import output_tokens, prompt_tokens
from llmtop.analysis.views import Quality, RooflinePoint, RooflineView
from llmtop.model import NS_PER_S, Quantity, Trace, TrackKind, Unknown
from llmtop.units import si

if TYPE_CHECKING:
    from llmtop.analysis.roofline.ceilings import Ceilings
    from llmtop.analysis.roofline.model_facts import ModelSize

WORK, COUNTED = "work done", "counted by the pipes"
"""The labels of the point that leads and of the one that it stands before."""
_LEAST_SHARE, _MOST_SHARE = 0.02, 1.05
"""Less than this of the counted is another program's work; well over all of it means that tokens were not computed. In
prefill, which fills its tiles, the work of a real vLLM was 0.91 to 1.01 of the counted."""
_GAP = 1.6
"""Times the usual distance of two windows, from which on one without work lies between them."""
_ALIKE = 2.0
"""Points of the trail within this ratio of the newest intensity are of the same phase, and as padded."""


def work_flops_per_s(trace: Trace, size: ModelSize | Unknown) -> Quantity | Unknown:
    """FLOP/s that a server's tokens took, over all its GPUs; with attention as far as contexts are known."""
    linear = model_flops_per_s(trace, size)
    if isinstance(linear, Unknown) or isinstance(size, Unknown):
        return linear
    attention = _attention_flops_per_s(trace, size) + _prefill_attention_flops_per_s(trace, size)
    return Quantity(float(linear.value) + attention, "FLOP/s", "tokens and shapes")


def with_work(
    trace: Trace, view: RooflineView, size: ModelSize | Unknown, ceilings: Ceilings | Unknown, share: float
) -> RooflineView:
    """The view led by the work done where that is known, and the pipes' count, an upper bound of it, behind.

    `share` is what the GPUs of this view do of the server's work.
    """
    counted = [point for point in view.points if point.quality is Quality.UPPER_BOUND]
    if isinstance(ceilings, Unknown) or not counted or counted[0].age_s or counted[0] is not view.points[0]:
        return view
    newest, done = counted[0], _work(trace, view, size, share)
    if done is None:
        return view
    flops, (counted_flops, bytes_per_s) = float(done.value), _means(counted)
    of_counted = flops / counted_flops
    if not _LEAST_SHARE <= of_counted <= _MOST_SHARE:
        return view
    old = ages.age_text(ages.old_s(trace, TrackKind.SERVER))
    of = f" ({old})" if old else ""
    said = f"mean of 15 s, from {done.source}{of}, estimate; the tensor pipes counted {si(counted_flops, 'FLOP/s')}"
    lead = _point(newest, flops, bytes_per_s, ceilings)
    trail = [
        _point(point, point.flops_per_s * of_counted, point.bytes_per_s, ceilings)
        if point.age_s and _is_alike(point, newest)
        else point
        for point in view.points[1:]
    ]
    points = (replace(lead, label=WORK, source=f"{said}: padding"), replace(newest, label=COUNTED), *trail)
    return replace(view, points=points)


def _work(trace: Trace, view: RooflineView, size: ModelSize | Unknown, share: float) -> Quantity | None:
    """The server's own count leads; it knows each request's length."""
    own = next((point for point in view.points if point.label == SERVER_ESTIMATE), None)
    if own is not None:
        return Quantity(own.flops_per_s, "FLOP/s", "the server's FLOP counters")
    done = work_flops_per_s(trace, size)
    return None if isinstance(done, Unknown) else Quantity(float(done.value) * share, "FLOP/s", done.source)


def _attention_flops_per_s(trace: Trace, size: ModelSize) -> float:
    """Of output tokens: each multiplies its queries with all keys of its context, and the weights with all values."""
    server, cache = server_track(trace), kv_bytes_in_use(trace, size)
    if server is None or isinstance(cache, Unknown) or not size.kv_bytes_per_token or size.attention_width is None:
        return 0.0
    running, tokens = mean(trace, server.id, v.SERVER_RUNNING, WINDOW_NS), output_tokens(trace, server.id, WINDOW_NS)
    if isinstance(running, Unknown) or isinstance(tokens, Unknown) or not running:
        return 0.0
    context = cache / size.kv_bytes_per_token / running
    return 4.0 * size.attention_width * context * tokens.per_second


def _prefill_attention_flops_per_s(trace: Trace, size: ModelSize) -> float:
    """Of the prompt tokens that were computed, at the mean length of the prompts whose first token came."""
    server = server_track(trace)
    if server is None or size.attention_width is None:
        return 0.0
    prompt = prompt_tokens(trace, server.id, WINDOW_NS)
    started = counter_rate(trace, server.id, v.bucket(v.SERVER_TTFT, math.inf), WINDOW_NS)
    if isinstance(prompt, Unknown) or isinstance(started, Unknown) or not started:
        return 0.0
    cached = counter_rate(trace, server.id, v.SERVER_PREFIX_HITS, WINDOW_NS)
    known_cached = 0.0 if isinstance(cached, Unknown) else min(cached, prompt.per_second)
    context = (prompt.per_second + known_cached) / started / 2
    return 4.0 * size.attention_width * context * (prompt.per_second - known_cached)


def _means(counted: list[RooflinePoint]) -> tuple[float, float]:
    """FLOP/s and bytes/s over the seconds that tokens are counted in; windows without a point count as idle."""
    window_s = WINDOW_NS / NS_PER_S
    recent = [point for point in counted if point.age_s < window_s]
    gaps = [older.age_s - point.age_s for point, older in pairwise(recent)]
    if not gaps:
        return recent[0].flops_per_s, recent[0].bytes_per_s
    usual_s = median(gaps)
    # A window lasts from the one before it; after a gap in which the GPU did nothing, as long as windows usually do.
    lengths = [gap if gap < _GAP * usual_s else usual_s for gap in (*gaps, usual_s)]
    seen_s = sum(gaps) + usual_s
    flops = sum(point.flops_per_s * length for point, length in zip(recent, lengths, strict=True)) / seen_s
    return flops, sum(point.bytes_per_s * length for point, length in zip(recent, lengths, strict=True)) / seen_s


def _is_alike(point: RooflinePoint, newest: RooflinePoint) -> bool:
    return point.quality is Quality.UPPER_BOUND and 1 / _ALIKE < point.intensity / newest.intensity < _ALIKE


def _point(point: RooflinePoint, flops: float, bytes_per_s: float, ceilings: Ceilings) -> RooflinePoint:
    """The point with other work and bytes, as an estimate."""
    return replace(
        point,
        intensity=flops / bytes_per_s,
        flops_per_s=flops,
        bytes_per_s=bytes_per_s,
        quality=Quality.ESTIMATE,
        roof_fraction=max(flops / ceilings.peak(ceilings.precision), bytes_per_s / ceilings.bytes_per_s),
    )
