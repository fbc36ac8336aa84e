"""Panes of one kernel at a time: which it is, and the keys that take another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType

from llmtop.analysis.kernels.table import kernels_of
from llmtop.tui.aside import analyse_on_thread
from llmtop.tui.panes.lines import PagedPane

if TYPE_CHECKING:
    from llmtop.model import Trace


@dataclass(frozen=True, slots=True)
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
        """Show another kernel."""
        if isinstance(self._view, KernelChoice):
            launches = self._view.launches
            self.show_kernel(launches[(self._view.at + step) % len(launches)])

    def show_kernel(self, launch: int) -> None:
        """The cursor stays where it is the kernel that is shown; before there is a trace, `view` heeds it."""
        self._wanted, trace, view = launch, self._trace, self._view
        if trace is None or (isinstance(view, KernelChoice) and kernels_of(trace).place(launch) == view.at):
            return
        self.leave_kernel()
        analyse_on_thread(self, trace, self.view)

    def leave_kernel(self) -> None:
        """Forget what is of the kernel that is shown: another one comes."""
