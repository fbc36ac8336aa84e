"""What differs between a file and the one that is marked as its baseline."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from llmtop.analysis.pages.diff.page import DiffView, diff_view
from llmtop.model import Trace, Unknown
from llmtop.tui.panes.lines import LinesPane
from llmtop.tui.render.diff import diff_lines

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.tui.render.look import Look

NO_BASELINE = Unknown("no other file is marked as the baseline", "B in the file to compare with")


class DiffPane(LinesPane[DiffView]):
    """The comparison that `llmtop diff` prints, of the baseline and this file."""

    title = "Diff"
    is_of_reports = False
    is_of_two = True

    def view(self, trace: Trace) -> DiffView | Unknown:
        baseline = self.context.baseline
        if baseline is None:
            return NO_BASELINE
        return diff_view(trace, PurePath(trace.origin.path).name, baseline.trace, baseline.name)

    def lines(self, view: DiffView, width: int, look: Look) -> list[Strip]:
        return diff_lines(view, width, look)


VIEW: Final = DiffPane
