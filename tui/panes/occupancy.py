"""How full a kernel makes the SMs, what limits that, and what other blocks would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType

from llmtop.analysis.kernels.occupancy_what_if import OccupancyWhatIf, occupancy_what_if
from llmtop.tui.panes.one_kernel import KernelPage, KernelPagePane
from llmtop.tui.render.occupancy import NEEDS, OccupancyScreen, draw_occupancy

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.kernels.occupancy_calculator import BlockNeeds
    from llmtop.model import Trace, Unknown
    from llmtop.tui.render.look import Look


class OccupancyPane(KernelPagePane[OccupancyWhatIf]):
    """What a block needs, what an SM has, and curves between the two; keys try other blocks."""

    number = 9
    title = "Occupancy"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "change(1)", "more", key_display="← →", tooltip="More or less of it, by a step"),
        Binding("left,h", "change(-1)", "less", show=False, tooltip="More or less of it, by a step"),
        Binding(
            "pageup",
            "change_far(1)",
            "to the next change",
            key_display="PgUp",
            tooltip="Until another number of warps fits",
        ),
        Binding("pagedown", "change_far(-1)", "less", show=False, tooltip="Until another number of warps fits"),
        Binding("x", "as_launched", "as launched", tooltip="The block as it was launched"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._block: BlockNeeds | None = None
        """The block that is tried; None for that of the launch."""

    def page(self, trace: Trace, launch: int) -> OccupancyWhatIf | Unknown:
        return occupancy_what_if(trace, launch)

    def draw_page(self, page: OccupancyWhatIf, width: int, height: int, look: Look) -> list[Strip]:
        screen = OccupancyScreen(page, self._block or page.launched, NEEDS[self.at])
        return draw_occupancy(screen, width, height, look)

    def count(self) -> int:
        return len(NEEDS)

    def leave_kernel(self) -> None:
        """What was tried is of the kernel that is left."""
        self._block = None

    @property
    def _page(self) -> OccupancyWhatIf | None:
        page = self._view.page if isinstance(self._view, KernelPage) else None
        return page if isinstance(page, OccupancyWhatIf) else None

    def action_change(self, step: int) -> None:
        """Try more or less of what the cursor is on."""
        if (page := self._page) is not None:
            self._try(page.stepped(self._block or page.launched, NEEDS[self.at], step))

    def action_change_far(self, step: int) -> None:
        """The same, until another number of warps fits."""
        if (page := self._page) is not None:
            self._try(page.stepped_far(self._block or page.launched, NEEDS[self.at], step))

    def action_as_launched(self) -> None:
        """Try nothing any more."""
        self._try(None)

    def _try(self, block: BlockNeeds | None) -> None:
        self._block = block
        self.redraw()


VIEW: Final = OccupancyPane
