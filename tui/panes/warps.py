"""What the schedulers of the SMs have to choose from, and what warps wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.tui.panes.section_page import SectionPagePane

if TYPE_CHECKING:
    from llmtop.analysis.kernels.section_page import PageOf


class WarpsPane(SectionPagePane):
    """Scheduler statistics and warp states."""

    title = "Warps"

    @classmethod
    def page_of(cls) -> PageOf:
        from llmtop.analysis.kernels.warps import warps_page

        return warps_page


VIEW: Final = WarpsPane
