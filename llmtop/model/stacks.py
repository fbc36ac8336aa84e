"""Where threads or warps were, folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmtop.frozen import frozen
from llmtop.model.tracks import TrackId


@frozen
class Stack:
    """A folded stack, root first, with what it weighs ("ns", "samples") and the state it was seen in."""

    frames: tuple[str, ...]
    weight: float
    unit: str
    state: str = ""
    track: TrackId = TrackId("")


@dataclass(frozen=True, slots=True, eq=False)
class StackWindow:
    """Stacks as they stood at a moment: sums over the time before it (`vocabulary.STACKS_WINDOW_NS`)."""

    end_ns: int
    stacks: Sequence[Stack]
