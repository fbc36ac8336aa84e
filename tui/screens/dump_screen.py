"""A core dump of a GPU over the live screen, which goes on below: the explorer on this one file."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from llmtop.model import CoreDump
from llmtop.tui.loading import start_loading
from llmtop.tui.screens.explore_screen import ExploreScreen


class DumpScreen(ExploreScreen):
    """What is known of one dump, as `llmtop open` shows it; Esc goes back.

    Args:
        dump: It is read anew, whole: the finding has the first faults alone.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", key_display="Esc", tooltip="Back to the server"),
        Binding("q", "leave", "back", show=False),
    ]

    def __init__(self, dump: CoreDump) -> None:
        super().__init__(start_loading([Path(dump.file)]))

    def action_leave(self) -> None:
        """Go back to the server, also from a dump that is still being read."""
        for loading in self.loadings:
            loading.progress.stop()
        self.dismiss()

    def leave_unread(self) -> None:
        """It is gone by now, or of another machine: the server is still there to be looked at."""
        self.app.notify(self.loadings[0].failure, severity="error", markup=False)
        self.dismiss()
