"""How full a kernel makes the SMs, what limits that, and what other blocks would change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.analysis.kernels.absent import no_kernels, not_of_kernels
from llmtop.analysis.kernels.occupancy_what_if import OccupancyWhatIf, occupancy_what_if
from llmtop.model import Unknown
from llmtop.tui.panes.one_kernel import KernelChoice, OneKernelPane
from llmtop.tui.render.lines import explain
from llmtop.tui.render.occupancy import NEEDS, OccupancyScreen, draw_occupancy

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.kernels.occupancy_calculator import BlockNeeds
    from llmtop.model import Trace
    from llmtop.tui.render.look import Look

_OF_TIMELINES = Unknown("a timeline does not count warps", "Session has the command of Nsight Compute that does")


@dataclass(frozen=True, slots=True)
class OccupancyView(KernelChoice):
    """One of the kernels, with its occupancy, or why that cannot be told."""

    page: OccupancyWhatIf | Unknown


class OccupancyPane(OneKernelPane[OccupancyView]):
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

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return _OF_TIMELINES if trace.spans else not_of_kernels(trace)

    def view(self, trace: Trace) -> OccupancyView | Unknown:
        if why := no_kernels(trace):
            return why
        choice = self.chosen(trace)
        return OccupancyView(choice.launches, choice.at, choice.name, occupancy_what_if(trace, choice.launch))

    def subtitle(self, view: OccupancyView) -> Content:
        return Content(view.said)

    def draw(self, view: OccupancyView, width: int, height: int, look: Look) -> list[Strip]:
        if isinstance(view.page, Unknown):
            return explain(view.page, width, height, look)
        screen = OccupancyScreen(view.page, self._block or view.page.launched, NEEDS[self.at])
        return draw_occupancy(screen, width, height, look)

    def count(self) -> int:
        return len(NEEDS)

    def leave_kernel(self) -> None:
        """What was tried is of the kernel that is left."""
        self._block = None

    @property
    def _page(self) -> OccupancyWhatIf | None:
        page = self._view.page if isinstance(self._view, OccupancyView) else None
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
