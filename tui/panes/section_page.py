"""Panes of what a section of a report tells of one kernel: a title, and the function that makes the page."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from llmtop.model import Unknown
from llmtop.tui.panes.lines import LinesPane
from llmtop.tui.panes.one_kernel import KernelPage, KernelPagePane
from llmtop.tui.render.lines import explain

if TYPE_CHECKING:
    from textual.content import Content
    from textual.strip import Strip

    from llmtop.analysis.kernels.section_page import PageOf, SectionPage
    from llmtop.model import Trace
    from llmtop.tui.render.look import Look


class SectionPagePane(LinesPane["KernelPage[SectionPage]"], KernelPagePane["SectionPage"]):
    """Lines that scroll and are searched, of the kernel that one went to."""

    @classmethod
    @abstractmethod
    def page_of(cls) -> PageOf:
        """What makes the page: loaded when the view is first looked at, as every report of kernels has its tab."""

    def page(self, trace: Trace, launch: int) -> SectionPage | Unknown:
        return self.page_of()(trace, launch)

    def lines(self, view: KernelPage[SectionPage], width: int, look: Look) -> list[Strip]:
        if isinstance(view.page, Unknown):
            return explain(view.page, width, self.size.height, look)
        from llmtop.tui.render.section_page import section_page_lines

        return section_page_lines(view.page, width, look)

    def subtitle(self, view: KernelPage[SectionPage]) -> Content:
        return KernelPagePane.subtitle(self, view) + LinesPane.subtitle(self, view)
