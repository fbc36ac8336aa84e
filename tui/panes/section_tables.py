"""The tables of all sections that a report has of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.tui.panes.section_page import SectionPagePane

if TYPE_CHECKING:
    from llmtop.analysis.kernels.section_page import PageOf


class SectionTablesPane(SectionPagePane):
    """NVIDIA's sections and a user's own, as their files describe them."""

    title = "Section tables"

    @classmethod
    def page_of(cls) -> PageOf:
        from llmtop.analysis.kernels.section_tables import section_tables

        return section_tables


VIEW: Final = SectionTablesPane
