"""How a server does that the live screen shows as it is now: what the header says on its right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.server.fault import said_of
from llmtop.analysis.server.liveness import liveness
from llmtop.frozen import frozen

if TYPE_CHECKING:
    from llmtop.model import Trace
    from llmtop.tui.render.lines import Part
    from llmtop.tui.render.look import Glyphs

_LATER = 1.1
"""Frames so many intervals apart are told: fewer are within what the terminal's answers take."""


@frozen
class LiveRates:
    """How often things happen, as seconds from one to the next.

    Attributes:
        asked_s: Of looks, as the user asks for them.
        looks_s: Of looks, as llmtop's own budget allows them.
        frames_s: Of frames.
    """

    asked_s: float
    looks_s: float
    frames_s: float

    def __str__(self) -> str:
        asked = f" of {1 / self.asked_s:.2g}" if self.looks_s > self.asked_s else ""
        drawn = f", drawn at {1 / self.frames_s:.1f} Hz" if self.frames_s > self.asked_s * _LATER else ""
        return f"{1 / self.looks_s:.2g}{asked} Hz{drawn}"


def live_state(newest: Trace, exit_code: int | None, rates: LiveRates, glyphs: Glyphs) -> Part:
    """That it has exited, or else what is gravest of its faults, or else how often it is looked at.

    Args:
        newest: What is known of it by now.
        exit_code: Of a server that llmtop has launched and that runs no more.
        rates: How often it is looked at.
        glyphs: The characters to say it with.
    """
    if exit_code is not None:
        return f"exited with code {exit_code}", "bad" if exit_code else "warn"
    if (fault := liveness(newest).gravest) is not None:
        return f"{glyphs.bad} {said_of(fault, newest.end_ns)}", "bad"
    return f"{'*' if glyphs.ascii else '●'} live {rates}", "good"
