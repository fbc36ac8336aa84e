"""The parts of a step's time, and what a change would save of them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from llmtop.frozen import frozen
from llmtop.units import duration

if TYPE_CHECKING:
    from llmtop.analysis.views import Quality

_ALIKE = 1.02
"""Bounds of a gain that are closer are one number."""


class BudgetPart(StrEnum):
    """What a step's time is for."""

    WEIGHTS = "weights"
    KV_CACHE = "KV cache"
    COMPUTE = "compute"
    PROMPTS = "prompts"
    COMMUNICATION = "communication"
    LATE_CPU = "late CPU"
    REST = "rest"


@frozen
class BudgetTerm:
    """One part of a step.

    Attributes:
        seconds: Of one mean step; of the rest it may be below zero.
        source: What it was computed or read from.
        details: Words and seconds, the largest first: of late CPU, by what the engine's thread did; of communication,
            what it is made of and who says so.
        working_s: Of late CPU, while that thread worked: launches are in it.
        collecting_s: Of late CPU, while Python's garbage collector ran on that thread.
        waiting_s: Of communication, while the other GPUs waited for a late rank.
    """

    part: BudgetPart
    seconds: float
    quality: Quality
    source: str
    details: tuple[tuple[str, float], ...] = ()
    working_s: float = 0.0
    collecting_s: float = 0.0
    waiting_s: float = 0.0


@frozen
class BudgetGain:
    """What a change would save of a mean step, everything else as it is.

    Attributes:
        change: What one would do, with this server's way to do so.
        low, high: Between what it saves, in seconds; with a low of 0 no more is known than a bound.
        how: The arithmetic, and what it takes for granted.
        source: Whose sum it is; empty where it is no more than the term itself.
    """

    part: BudgetPart
    change: str
    low: float
    high: float
    how: str
    source: str = ""

    @property
    def text(self) -> str:
        """What it saves: "2.4 to 3.0 ms", "at most 11 ms", "2.4 ms"."""
        low, high = duration(self.low * 1e9), duration(self.high * 1e9)
        if self.low <= 0:
            return f"at most {high}"
        if self.high <= self.low * _ALIKE:
            return high
        return f"{low.partition(' ')[0] if low.split()[1] == high.split()[1] else low} to {high}"
