"""What a kernel moves between itself, the caches and the memories.

What that takes is loaded when the view is first looked at: every report of kernels has its tab.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.tui.panes.one_kernel import KernelPagePane

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.kernels.memory_chart import MemoryChart
    from llmtop.model import Trace, Unknown
    from llmtop.tui.render.look import Look


class MemoryChartPane(KernelPagePane["MemoryChart"]):
    """Units of the memory system with what they kept and how busy they were, and the traffic between them."""

    title = "Memory chart"

    def page(self, trace: Trace, launch: int) -> MemoryChart | Unknown:
        from llmtop.analysis.kernels.memory_chart import memory_chart

        return memory_chart(trace, launch)

    def draw_page(self, page: MemoryChart, width: int, height: int, look: Look) -> list[Strip]:
        from llmtop.tui.render.memory_chart import draw_memory_chart

        return draw_memory_chart(page, width, height, look)

    def count(self) -> int:
        return 1


VIEW: Final = MemoryChartPane
