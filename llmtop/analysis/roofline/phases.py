"""Whether a server prefills or decodes, guessed from where its GPU moves on the roofline.

The rule, for one window: let c be the GPU's FLOP/s as a share of what it could compute at its clock, m its DRAM traffic
as a share of the DRAM peak. c / m is the window's intensity over that of the ridge.

    neither moves                 idle
    c / m >= PREFILL_BALANCE (1)  prefill: right of the ridge, where only long prompts get
    c / m <= DECODE_BALANCE (1/2) decode: every weight read for a few tokens
    between                       mixed: chunked prefill beside decode, or both within one window

The phase now is that of four fifths of the traffic-carrying windows of the last seconds, else "mixed". Measured on an
H100 SXM (docs/panes/roofline.md): c / m was 1.1 to 1.8 in prefill of 16 x 512 and 64 x 1024 tokens, 0.03 to 0.1 in
decode at batch 1 to 64. Decode reaches 1/2 at I(B) of half the ridge: batches near 150 on an H100, without KV traffic.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

from llmtop import vocabulary as v
from llmtop.analysis.roofline.ceilings import Ceilings, ceilings_of
from llmtop.analysis.roofline.estimate import server_estimate
from llmtop.analysis.roofline.rates import Rates, is_resting, rates_history, why_no_rates
from llmtop.analysis.series.readings import source
from llmtop.analysis.views import RooflinePoint
from llmtop.model import NS_PER_S, Quantity, Trace, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from llmtop.model import Fact, Track

PREFILL_BALANCE = 1.0
DECODE_BALANCE = 0.5
WINDOW_NS = 5 * NS_PER_S
"""Long enough for a few windows at 1 Hz, short enough to follow a burst of prompts."""
CLEAR_SHARE = 0.8
"""Of the windows in which the GPU worked, so many must agree before a phase is named."""


class Phase(StrEnum):
    """What an LLM server's GPUs are doing."""

    IDLE = "idle"
    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


def phase_of(rates: Rates, ceilings: Ceilings) -> Phase:
    """The phase of one window."""
    if is_resting(rates, ceilings):
        return Phase.IDLE
    compute = sum(flops / ceilings.peak(kind) for kind, flops in rates.flops_by_precision.items())
    at_this_clock = compute * ceilings.published_mhz / rates.sm_mhz if rates.sm_mhz > 0 else compute
    return _by_balance(at_this_clock, rates.bytes_per_s / ceilings.bytes_per_s)


def _by_balance(compute: float, memory: float) -> Phase:
    if compute >= PREFILL_BALANCE * memory:
        return Phase.PREFILL
    return Phase.DECODE if compute <= DECODE_BALANCE * memory else Phase.MIXED


def together(phases: Iterable[Phase]) -> Phase | None:
    """The phase of several windows: idle when all rest, else what clearly most of the others are."""
    counts = Counter(phases)
    if not counts:
        return None
    working = sum(count for phase, count in counts.items() if phase is not Phase.IDLE)
    if not working:
        return Phase.IDLE
    return next(
        (phase for phase in (Phase.PREFILL, Phase.DECODE) if counts[phase] >= CLEAR_SHARE * working), Phase.MIXED
    )


def phase_now(trace: Trace, gpus: Sequence[Track], dtype: Fact) -> Quantity | Unknown:
    """The phase of a server over its GPUs and the last few seconds, and how many windows say so.

    Where no counter of the GPUs is read, the server's own estimate of FLOPs and bytes is held against the ridge.
    """
    phases: list[Phase] = []
    why = Unknown("no GPU seen yet")
    estimated: Phase | None = None
    for track in gpus:
        ceilings = ceilings_of(track, dtype)
        if isinstance(ceilings, Unknown):
            why = ceilings
            continue
        windows = rates_history(trace, track.id, ceilings, trace.end_ns - WINDOW_NS, trace.end_ns)
        phases += [phase_of(rates, ceilings) for rates in windows]
        if not windows:
            why = why_no_rates(trace, track.id, trace.end_ns)
            estimated = _by_estimate(trace, ceilings)
    phase = together(phases)
    if phase is None:
        return why if estimated is None else Quantity(estimated.value, "", "the server's estimate of FLOPs and bytes")
    origin = source(trace, gpus[0].id, v.GPU_DRAM)
    agree = phases.count(phase)
    return Quantity(phase.value, "", f"{origin}, {agree} of {len(phases)} windows in {WINDOW_NS // NS_PER_S} s")


def _by_estimate(trace: Trace, ceilings: Ceilings) -> Phase | None:
    point = server_estimate(trace, ceilings)
    if not isinstance(point, RooflinePoint):
        return None
    compute = point.flops_per_s / ceilings.peak(ceilings.precision)
    return _by_balance(compute, point.bytes_per_s / ceilings.bytes_per_s)
