"""How the use of units goes on over a kernel's time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.tui.panes.section_page import SectionPagePane

if TYPE_CHECKING:
    from llmtop.analysis.kernels.section_page import PageOf


class PmSamplesPane(SectionPagePane):
    """Series of sampled counters."""

    title = "PM samples"

    @classmethod
    def page_of(cls) -> PageOf:
        from llmtop.analysis.kernels.pm_samples import pm_samples

        return pm_samples


VIEW: Final = PmSamplesPane
