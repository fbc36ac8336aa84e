"""Panes of one kernel at a time: which it is, and the keys that take another."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.analysis.kernels.absent import no_kernels, not_of_kernels
from llmtop.analysis.kernels.table import kernels_of
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.tui.aside import analyse_on_thread
from llmtop.tui.panes.lines import PagedPane
from llmtop.tui.render.lines import explain

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.model import Trace
    from llmtop.tui.aside import Analysed
    from llmtop.tui.render.look import Look

_OF_TIMELINES = Unknown("a timeline has no counters of kernels", "Session has the command of Nsight Compute that does")


@frozen
class KernelChoice:
    """One of the kernels.

    Attributes:
        launches: Of each kernel the launch that stands for it, the kernel with the most time first.
        at: Which of them it is.
        name: What it is called.
    """

    launches: tuple[int, ...]
    at: int
    name: str

    @property
    def launch(self) -> int:
        """The one that stands for the kernel."""
        return self.launches[self.at]

    @property
    def said(self) -> str:
        """For the title: which kernel, and of how many."""
        return f"{self.name} ({self.at + 1} of {len(self.launches)})"


C = TypeVar("C", bound=KernelChoice)


class OneKernelPane(PagedPane[C], Generic[C]):
    """A pane that shows the kernel that one went to, until keys take another."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("full_stop", "kernel(1)", "kernel", key_display=", .", tooltip="The kernel with the next most time"),
        Binding("comma", "kernel(-1)", "kernel", show=False, tooltip="The kernel with more time"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._wanted: int | None = None
        """A launch of the kernel that was asked for; None for the one that the pane begins at."""

    def chosen(self, trace: Trace, first: int = 0) -> KernelChoice:
        """The kernel that was asked for, else one by its place among them."""
        kernels = kernels_of(trace)
        launches = kernels.standing()
        at = first if self._wanted is None else kernels.place(self._wanted)
        return KernelChoice(launches, at, kernels.short_name(launches[at]))

    def kernel_here(self) -> int | None:
        return self._wanted

    def action_kernel(self, step: int) -> None:
        """Show another kernel: of the one that was asked for last, whether it is on the screen by now or not."""
        if isinstance(self._view, KernelChoice) and self._trace is not None:
            launches = self._view.launches
            at = self._view.at if self._wanted is None else kernels_of(self._trace).place(self._wanted)
            self.show_kernel(launches[(at + step) % len(launches)])

    def show_kernel(self, launch: int) -> None:
        """The cursor stays where it is the kernel that is shown; before there is a trace, `view` heeds it."""
        self._wanted, trace, view = launch, self._trace, self._view
        if trace is None or (isinstance(view, KernelChoice) and kernels_of(trace).place(launch) == view.at):
            return
        self.leave_kernel()
        analyse_on_thread(self, trace, self.view)

    def is_late(self, result: object) -> bool:
        """Whether it is of a kernel that was asked for before another one: threads may end in any order."""
        if self._wanted is None or self._trace is None or not isinstance(result, KernelChoice):
            return False
        return kernels_of(self._trace).place(self._wanted) != result.at

    def on_analysed(self, message: Analysed) -> None:
        message.prevent_default()  # Textual would call the base's too
        if not self.is_late(message.result):
            super().on_analysed(message)

    def leave_kernel(self) -> None:
        """Forget what is of the kernel that is shown: another one comes."""


P = TypeVar("P")


@frozen
class KernelPage(KernelChoice, Generic[P]):
    """One of the kernels, with what its counters tell, or why they do not."""

    page: P | Unknown


class KernelPagePane(OneKernelPane[KernelPage[P]], Generic[P]):
    """A pane of what the counters of one kernel tell, in a report of them."""

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return _OF_TIMELINES if trace.spans else not_of_kernels(trace)

    def page(self, trace: Trace, launch: int) -> P | Unknown:
        """What is drawn of a launch, or why there is nothing to draw."""
        raise NotImplementedError

    def draw_page(self, page: P, width: int, height: int, look: Look) -> list[Strip]:
        """The page in lines, as many as there is room for."""
        raise NotImplementedError

    def view(self, trace: Trace) -> KernelPage[P] | Unknown:
        if why := no_kernels(trace):
            return why
        choice = self.chosen(trace)
        return KernelPage(choice.launches, choice.at, choice.name, self.page(trace, choice.launch))

    def subtitle(self, view: KernelPage[P]) -> Content:
        return Content(view.said)

    def draw(self, view: KernelPage[P], width: int, height: int, look: Look) -> list[Strip]:
        if isinstance(view.page, Unknown):
            return explain(view.page, width, height, look)
        return self.draw_page(view.page, width, height, look)
