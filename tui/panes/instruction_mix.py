"""What a kernel executes, and which pipes that keeps busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.tui.panes.section_page import SectionPagePane

if TYPE_CHECKING:
    from llmtop.analysis.kernels.section_page import PageOf


class InstructionMixPane(SectionPagePane):
    """Instructions by opcode, and the use of each pipe."""

    title = "Instruction mix"

    @classmethod
    def page_of(cls) -> PageOf:
        from llmtop.analysis.kernels.instruction_mix import instruction_mix

        return instruction_mix


VIEW: Final = InstructionMixPane
