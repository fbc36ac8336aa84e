"""A few pictures of the explorer's drawing, at three sizes; data and colours fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from llmtop.analysis.kernels.stalls import StallBar
from llmtop.analysis.views import Quality, Refusal, Roof, RooflinePoint, RooflineView
from llmtop.model import Origin, Trace, Unknown
from llmtop.tui.app import LlmtopApp
from llmtop.tui.panes.base import Pane
from llmtop.tui.render.bars import draw_stall_bars
from llmtop.tui.render.roofline import draw_roofline
from llmtop.tui.screens.explore_screen import ExploreApp
from tests.timeline_traces import scene
from tests.tui.report_traces import report
from tests.tui.test_explore import read, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.pilot import Pilot
    from textual.strip import Strip

    from llmtop.tui.render.look import Look


@pytest.fixture(autouse=True)
def _one_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    for name in ("NO_COLOR", "LLMTOP_ASCII", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)


class DrawnPane(Pane[Trace]):
    """A pane of a fixed drawing."""

    number = 3
    title = "Drawn"

    def __init__(self, drawing: Callable[[int, int, Look], list[Strip]]) -> None:
        super().__init__()
        self._drawing = drawing

    def view(self, trace: Trace) -> Trace:
        return trace

    def draw(self, view: Trace, width: int, height: int, look: Look) -> list[Strip]:
        return self._drawing(width, height, look)


class DrawnApp(LlmtopApp):
    def __init__(self, drawing: Callable[[int, int, Look], list[Strip]]) -> None:
        super().__init__()
        self._pane = DrawnPane(drawing)

    def compose(self) -> ComposeResult:
        yield self._pane

    def on_mount(self) -> None:
        self._pane.show(Trace(Origin("live")))


ROOFS = (
    Roof("memory", "DRAM", 3.35e12, "NVML", practical=3.0e12),
    Roof("memory", "L2", 9e12, "ncu"),
    Roof("compute", "bf16", 989e12, "datasheet", practical=683e12),
    Roof("compute", "FP32", 67e12, "datasheet"),
)


def point(label: str, intensity: float, flops: float, weight: float, age_s: float = 0.0) -> RooflinePoint:
    fraction = min(1.0, flops / min(989e12, intensity * 3.35e12))
    bandwidth = flops / intensity
    return RooflinePoint(
        label, intensity, flops, bandwidth, "bf16", "GPM", Quality.MEASURED, "DRAM", weight, age_s, fraction
    )


VIEW = RooflineView(
    "GPU0",
    ROOFS,
    (
        point("now", 61, 172e12, 1.0),
        *(point("", 61 * (1 + i / 20), 160e12 * (1 - i / 90), 1.0, float(i)) for i in range(1, 60)),
    ),
    band=(120e12, 260e12),
    refusals=(Refusal("copy", Unknown("no floating-point operations")),),
    notes=("the SM clock is 1410 MHz, 23 % below that of the published peak: power cap",),
)
BARS = tuple(
    StallBar(
        f"kernel_{i}<float, {1 << i}>",
        i,
        0.4 / (i + 1),
        (("long_scoreboard", 0.6 - i / 40), ("wait", 0.2), ("barrier", 0.1 + i / 80), ("not_selected", 0.1)),
        "cycles per issued instruction",
    )
    for i in range(12)
)


def test_kernels_at_80x24(snap_compare: Any) -> None:
    async def ready(pilot: Pilot[Any]) -> None:
        await settle(pilot)
        await pilot.press("down")
        await settle(pilot)

    app = ExploreApp([read(report(details=False))])
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready)


def test_timeline_at_120x40(snap_compare: Any) -> None:
    async def ready(pilot: Pilot[Any]) -> None:
        await settle(pilot)
        await pilot.press("2")
        await settle(pilot)
        await settle(pilot)
        await pilot.press("full_stop", "m", "full_stop", "m")
        await settle(pilot)

    assert snap_compare(ExploreApp([read(scene())]), terminal_size=(120, 40), run_before=ready)


def test_roofline_at_120x40(snap_compare: Any) -> None:
    app = DrawnApp(lambda width, height, look: draw_roofline(VIEW, width, height, look))
    assert snap_compare(app, terminal_size=(120, 40))


def test_stalls_at_200x60(snap_compare: Any) -> None:
    app = DrawnApp(lambda width, height, look: draw_stall_bars(BARS, width, height, look, cursor=2))
    assert snap_compare(app, terminal_size=(200, 60))
