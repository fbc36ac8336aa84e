"""The explorer: reports in tabs, and the views of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from llmtop.model import Trace
from llmtop.text import clean
from llmtop.tui.app import LlmtopApp
from llmtop.tui.faults import FaultBorder
from llmtop.tui.loading import Loading
from llmtop.tui.panes.bar import Bar, Item, KeyBar, tab_items
from llmtop.tui.panes.findings_report import FindingsReportPane
from llmtop.tui.panes.idle import IdlePane
from llmtop.tui.panes.kernels import KernelsPane
from llmtop.tui.panes.report import KernelWanted, ListPane, PagedPane, TextPane
from llmtop.tui.panes.roofline_report import RooflineReportPane
from llmtop.tui.panes.sections import SectionsPane
from llmtop.tui.panes.session import SessionPane
from llmtop.tui.panes.spans import SpansPane
from llmtop.tui.panes.stalls import StallsPane
from llmtop.tui.screens.base import FullScreen
from llmtop.tui.screens.kernel import KernelScreen

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.screen import Screen

_ROOM_FOR_NAMES = 78
"""Cells that the names of all views take; on a narrower screen only the active one is written out."""

View: TypeAlias = "KernelsPane | ListPane | PagedPane[Any]"

VIEWS: tuple[tuple[str, Callable[[], View]], ...] = (
    ("Kernels", KernelsPane),
    ("Stalls", StallsPane),
    ("Roofline", RooflineReportPane),
    ("Sections", SectionsPane),
    ("Findings", FindingsReportPane),
    ("Session", SessionPane),
    ("Idle", IdlePane),
)
"""The views of a report, in the order of their digits."""
_OF_TIMELINES: Mapping[str, tuple[str, Callable[[], View]]] = {"Sections": ("Spans", SpansPane)}
"""What a timeline has in place of a view of reports with counters: what was collected."""


def views_of(trace: Trace | None) -> tuple[tuple[str, Callable[[], View]], ...]:
    """The views of a file; of one that is not read yet, those of a report."""
    if trace is None or not trace.spans:
        return VIEWS
    return tuple(_OF_TIMELINES.get(name, (name, view)) for name, view in VIEWS)


class ReportView(Vertical, FaultBorder):
    """One file: its views, each made when it is first looked at."""

    def __init__(self, loading: Loading) -> None:
        super().__init__()
        self.report = loading
        self.active = 0
        self._views: dict[int, View] = {}
        self._notice = TextPane()

    def compose(self) -> ComposeResult:
        yield self._notice

    def show_fault(self, said: str) -> None:
        self._notice.display = True
        self._notice.show_text(((said, "bad"),))

    def on_mount(self) -> None:
        self.renew()

    def on_show(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Show the state of the file: being read, refused, or the active view."""
        if self.report.trace is not None:
            self._show_active(self.report.trace)
        elif self.report.error is not None:
            self._notice.show_text(((self.report.failure, "bad"),))
        else:
            self._notice.show_text(((f"reading {clean(self.report.path.name)} ({self.report.size})", "text"),))

    def show_view(self, index: int) -> None:
        """Bring a view to the front and give it the focus."""
        self.active = index
        self.renew()

    def _show_active(self, trace: Trace) -> None:
        self._notice.display = False
        for i, other in self._views.items():
            other.display = i == self.active
        view = self._views.get(self.active)
        if view is None:
            with self.border():
                view = self._views[self.active] = views_of(trace)[self.active][1]()
                self.mount(view)
                self.call_after_refresh(_give, view, trace)
                self.call_after_refresh(self._focus)
        else:
            self._focus()  # at once: a change of focus after the view is drawn would draw it again

    def _focus(self) -> None:
        view = self._views.get(self.active)
        if view is None or not self.display or not self.screen.is_current:
            return
        target = view if view.can_focus else next((child for child in view.query("*") if child.can_focus), None)
        if target is not None:
            target.focus()


def _give(view: View, trace: Trace) -> None:
    """Give a view its trace: Textual would call it on behalf of the screen."""
    with view.border():
        view.show(trace)


class ExploreScreen(FullScreen):
    """Files, their views, and the keys."""

    DEFAULT_CSS = "ReportView { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(i), f"view({i - 1})", name, show=False) for i, (name, _) in enumerate(VIEWS, 1)),
        Binding("tab", "step_view(1)", "next", show=False, tooltip="The next or the last view", priority=True),
        Binding("shift+tab", "step_view(-1)", "last", show=False, tooltip="The next or the last view", priority=True),
        Binding("left_square_bracket", "step_file(-1)", "file", key_display="[", show=False, tooltip="Another file"),
        Binding("right_square_bracket", "step_file(1)", "file", key_display="]", show=False, tooltip="Another file"),
    ]

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Textual's, with the names of the views that the file on the screen has."""
        found = super().active_bindings
        for i, (name, _) in enumerate(views_of(self.loadings[self.active].trace), 1):
            if (one := found.get(str(i))) is not None and one.node is self:
                found[str(i)] = one._replace(binding=replace(one.binding, description=name))
        return found

    class Loaded(Message):
        """A file was read or refused."""

    def __init__(self, loadings: Sequence[Loading]) -> None:
        super().__init__()
        self.loadings = tuple(loadings)
        self.reports = tuple(ReportView(loading) for loading in self.loadings)
        self.active = 0
        self._head = Bar(id="head")
        self._tabs = Bar(id="views")

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._tabs
        for i, report in enumerate(self.reports):
            report.display = i == 0
            yield report
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        for loading in self.loadings:
            loading.future.add_done_callback(self._tell)
        self._draw_bars()

    def _tell(self, _: Future[Trace]) -> None:
        """Runs on the loading thread: may only post."""
        if self.is_running:
            self.post_message(self.Loaded())

    def on_explore_screen_loaded(self) -> None:
        if all(loading.error is not None for loading in self.loadings):
            self.app.exit(return_code=1)
            return
        if self.loadings[self.active].error is not None and self._is_first_good():
            return
        self.reports[self.active].renew()
        self._draw_bars()

    def _is_first_good(self) -> bool:
        """Go from a file that could not be read to the first that could."""
        good = next((i for i, loading in enumerate(self.loadings) if loading.trace is not None), None)
        if good is not None:
            self.action_file(good)
        return good is not None

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height < 14, "-low")
        self._draw_bars()

    # -- bars --------------------------------------------------------------------------------------------------

    def _draw_bars(self) -> None:
        self._head.show_items(self._head_items())
        active = self.reports[self.active].active
        views = views_of(self.loadings[self.active].trace)
        names = [name if i == active or self.size.width >= _ROOM_FOR_NAMES else "" for i, (name, _) in enumerate(views)]
        titles = ((f"{i + 1} {name}".strip(), f"screen.view({i})") for i, name in enumerate(names))
        self._tabs.show_items(tab_items(titles, active))

    def _head_items(self) -> list[Item]:
        items = [Item(" llmtop ", "title")]
        if len(self.loadings) > 1:
            names = ((clean(loading.path.name), f"screen.file({i})") for i, loading in enumerate(self.loadings))
            items += tab_items(names, self.active)
        loading = self.loadings[self.active]
        if len(self.loadings) == 1:
            items.append(Item(f" {clean(loading.path.name)} ", "value"))
        return [*items, Item(f" {_about(loading)}", "dim")]

    # -- actions -----------------------------------------------------------------------------------------------

    def action_view(self, index: int) -> None:
        """Show a view of the file."""
        self.reports[self.active].show_view(index)
        self._draw_bars()

    def action_step_view(self, step: int) -> None:
        """Show the view beside this one."""
        self.action_view((self.reports[self.active].active + step) % len(VIEWS))

    def action_file(self, index: int) -> None:
        """Show another file, in the same view."""
        view = self.reports[self.active].active
        self.reports[self.active].display = False
        self.active = index
        self.reports[index].display = True
        self.action_view(view)

    def action_step_file(self, step: int) -> None:
        """Show the file beside this one."""
        if len(self.reports) > 1:
            self.action_file((self.active + step) % len(self.reports))

    def on_kernel_wanted(self, message: KernelWanted) -> None:
        trace = self.loadings[self.active].trace
        if trace is not None:
            self.app.push_screen(KernelScreen(trace, message.launch))


def _about(loading: Loading) -> str:
    """The facts of a file that fit beside its name."""
    trace = loading.trace
    if trace is None:
        return "" if loading.error is None else "cannot be read"
    launches = [f"{len(trace.kernels)} launches"] if trace.kernels is not None else []
    return "  ".join(part for part in (trace.origin.gpu, *launches, trace.origin.kind) if part)


class ExploreApp(LlmtopApp):
    """The explorer as a program."""

    def __init__(self, loadings: Sequence[Loading]) -> None:
        super().__init__()
        self._loadings = tuple(loadings)

    def get_default_screen(self) -> Screen[None]:
        return ExploreScreen(self._loadings)
