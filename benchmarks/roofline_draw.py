"""What one frame of the live roofline costs: the view made of a recorded window, and its drawing.

Usage: python benchmarks/roofline_draw.py [REPEATS]

The budget is that of the whole pane: 6.5 ms of CPU for a frame of 120x40 and 8.9 ms for one of 200x60.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench import cpu_ms
from llmtop.analysis.gpus.stragglers import stragglers
from llmtop.analysis.roofline.efficiency import efficiency_view
from llmtop.analysis.roofline.server import server_roofline
from llmtop.model import TrackKind
from llmtop.tui.render.look import ASCII, Look
from llmtop.tui.render.roofline import draw_roofline
from tests.live_traces import TARGET, Scene, live_trace

SIZES = ((40, 12), (120, 40), (200, 60))


def rows(repeats: int) -> Iterator[tuple[str, float]]:
    """(what, ms) of analysis and drawing."""
    for gpus in (1, 8):
        trace = live_trace(Scene(gpus=gpus), ticks=120)
        tracks = trace.tracks_of(TrackKind.GPU)
        target = TARGET if gpus == 1 else None
        yield f"view, {gpus} GPU", cpu_ms(partial(server_roofline, trace, target), repeats)
        yield f"efficiency, {gpus} GPU", cpu_ms(partial(efficiency_view, trace, target), repeats)
        yield f"stragglers, {gpus} GPU", cpu_ms(partial(stragglers, trace, tracks), repeats)
    view = server_roofline(live_trace(Scene(), ticks=120), TARGET)
    for width, height in SIZES:
        yield f"draw {width}x{height}", cpu_ms(partial(draw_roofline, view, width, height, Look()), repeats)
    yield "draw 120x40 ASCII", cpu_ms(partial(draw_roofline, view, 120, 40, Look(ASCII)), repeats)


def main() -> None:
    """Print one line for each measurement."""
    for what, ms in rows(int(sys.argv[1]) if len(sys.argv) > 1 else 50):
        print(f"{what:24} {ms:7.2f} ms")


if __name__ == "__main__":
    main()
