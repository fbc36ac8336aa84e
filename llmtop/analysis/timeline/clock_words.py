"""How the clock of one rank's file was brought onto another's, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.model import ClockBasis, ClockFit, Unknown
from llmtop.units import count, duration

if TYPE_CHECKING:
    from llmtop.model import Trace

_SEEN = 1e-9
"""Drift below a nanosecond in each second is none."""


def clock_text(clock: ClockFit | Unknown) -> str:
    """By what, by how much, and how sure.

    >>> clock_text(ClockFit(ClockBasis.COLLECTIVES, 3_200_000_000, 20e-6, 0, 400.0, 60))
    '+3.20 s, +20.0 µs in each second, by 60 collectives: their ends are then 400 ns apart in the median'
    >>> clock_text(ClockFit(ClockBasis.UTC, -1500))
    '-1.50 µs by the clocks of several hosts, good to milliseconds at best: who waits for whom is not told'
    """
    if isinstance(clock, Unknown):
        return f"not known ({clock}): it is shown from the same moment on; who waits for whom is not told"
    moved = f"{_signed(clock.offset_ns)}"
    if clock.basis is ClockBasis.COLLECTIVES:
        drift = f", {_signed(clock.drift * 1e9)} in each second" if abs(clock.drift) >= _SEEN else ""
        left = duration(round(clock.residual_ns or 0.0))
        sure = "" if clock.is_sure else "; they repeat so evenly that other ways to match them fit as well"
        how = f"by {count(clock.matched)} collectives: their ends are then {left} apart in the median"
        return f"{moved}{drift}, {how}{sure}"
    if clock.basis is ClockBasis.UTC:
        return f"{moved} by the {clock.basis}, good to milliseconds at best: who waits for whom is not told"
    return f"{moved} by {clock.basis}: no collectives tell it, so who waits for whom is not told"


def clocks_text(trace: Trace) -> str:
    """Of all files of a run: how many have a clock that can be compared, and how near at worst."""
    fits = [part.clock for part in trace.parts[1:]]
    known = [fit for fit in fits if isinstance(fit, ClockFit) and fit.is_comparable]
    worst = round(max((fit.residual_ns or 0.0 for fit in known), default=0.0))
    near = f", whose ends are then up to {duration(worst)} apart in the median" if known else ""
    return f"{len(known)} of {len(fits)} brought onto that of {trace.parts[0].name} by collectives{near}"


def _signed(ns: float) -> str:
    return f"{'-' if ns < 0 else '+'}{duration(abs(ns))}"
