"""How near a kernel is to what the GPU can do, and which part of compute and of memory is the busiest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from llmtop.analysis.kernels.speed_of_light import Throughput, speed_of_light
from llmtop.model import Unknown
from llmtop.tui.panes.lines import LinesPane
from llmtop.tui.panes.one_kernel import KernelPage, KernelPagePane
from llmtop.tui.render.lines import explain
from llmtop.tui.render.speed_of_light import speed_of_light_lines

if TYPE_CHECKING:
    from textual.content import Content
    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.tui.render.look import Look

Both: TypeAlias = "tuple[Throughput, ...]"


class SpeedOfLightPane(LinesPane[KernelPage[Both]], KernelPagePane[Both]):
    """Compute and memory throughput, and what each is the largest of."""

    title = "Speed of light"

    def page(self, trace: Trace, launch: int) -> Both | Unknown:
        return speed_of_light(trace, launch)

    def lines(self, view: KernelPage[Both], width: int, look: Look) -> list[Strip]:
        if isinstance(view.page, Unknown):
            return explain(view.page, width, self.size.height, look)
        return speed_of_light_lines(view.page, width, look)

    def subtitle(self, view: KernelPage[Both]) -> Content:
        return KernelPagePane.subtitle(self, view) + LinesPane.subtitle(self, view)


VIEW: Final = SpeedOfLightPane
