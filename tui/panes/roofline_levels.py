"""One kernel under the ceilings of L1, L2 and DRAM.

What that takes is loaded when the view is first looked at: every report of kernels has its tab.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.tui.panes.one_kernel import KernelPagePane

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.kernels.roofline_levels import RooflineLevels
    from llmtop.model import Trace, Unknown
    from llmtop.tui.render.look import Look


class RooflineLevelsPane(KernelPagePane["RooflineLevels"]):
    """A point at each memory level, for the kernel that one went to."""

    title = "Roofline by level"

    def page(self, trace: Trace, launch: int) -> RooflineLevels | Unknown:
        from llmtop.analysis.kernels.roofline_levels import roofline_levels

        return roofline_levels(trace, launch)

    def draw_page(self, page: RooflineLevels, width: int, height: int, look: Look) -> list[Strip]:
        from llmtop.tui.render.roofline_levels import draw_roofline_levels

        return draw_roofline_levels(page, width, height, look)

    def count(self) -> int:
        return 1


VIEW: Final = RooflineLevelsPane
