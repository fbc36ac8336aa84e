"""The explorer: reports in tabs, and the views of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from llmtop.analysis.pages.damage import damage
from llmtop.errors import ApartError
from llmtop.model import Trace
from llmtop.notes import NoteKind, digest_of, keep
from llmtop.text import clean
from llmtop.tui.app import LlmtopApp
from llmtop.tui.faults import FaultBorder
from llmtop.tui.loading import Loading
from llmtop.tui.panes.bar import Bar, Item, KeyBar, tab_items
from llmtop.tui.panes.base import Pane
from llmtop.tui.panes.lines import TextPane
from llmtop.tui.panes.recorded import all_views, by_digit, views_of
from llmtop.tui.panes.report import KernelWanted, ListPane
from llmtop.tui.panes.view import LAST_DIGIT, RECORDED, Baseline, NoteWanted, StretchWanted, View
from llmtop.tui.render.lines import width_of
from llmtop.tui.screens.beyond import NumberedScreen, ViewBeyond
from llmtop.tui.screens.holding import SHORT_S
from llmtop.tui.screens.kernel import KernelScreen

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.screen import Screen

    from llmtop.model import Stretch

_PROGRESS_S = 0.25
_LONG_S = 12.0
"""How long a message of several lines stands."""


class ReportView(Vertical, FaultBorder):
    """One file: its views, each made when it is first looked at."""

    def __init__(self, loading: Loading) -> None:
        super().__init__()
        self.report = loading
        self.context = RECORDED
        self.wanted: type[View[Any]] | None = None
        """The view that was asked for, of this file or of another; None for the one that it opens on."""
        self.kernel: int | None = None
        """A launch of the kernel that was looked at last, until a view of one kernel shows it."""
        self._views: dict[type[View[Any]], View[Any]] = {}
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
            told = f": {clean(text)}" if (text := self.report.progress.text) else ""
            self._notice.show_text(((f"reading {clean(self.report.path.name)} ({self.report.size}){told}", "text"),))
            self.set_timer(_PROGRESS_S, self.tell_progress)

    def tell_progress(self) -> None:
        """Say how far the file is read, until it is."""
        if not self.report.future.done():
            self.renew()

    @property
    def active(self) -> type[View[Any]]:
        """The view that is shown: the one that was asked for, where the file has it."""
        views = views_of(self.report.trace, self.context)
        return self.wanted if self.wanted in views else views[0]

    def show_view(self, wanted: type[View[Any]] | None) -> None:
        """Bring a view to the front and give it the focus; one of a single kernel shows that of the view before."""
        left = self._views.get(self.active)
        if left is not None:
            with left.border():
                here = left.kernel_here()
                self.kernel = self.kernel if here is None else here
        self.wanted = wanted
        self.renew()

    def compare_with(self, baseline: Baseline | None) -> None:
        """Show the file beside another one, or by itself again; views that were made are made anew."""
        if self.context.baseline is baseline or self.report.trace is None:
            return
        self.context = replace(RECORDED, baseline=baseline)
        for view in self._views.values():
            with view.border():
                view.within(self.context)
                view.show(self.report.trace)
        self.renew()

    def show_anew(self) -> None:
        """Give the views that were made what the file is now."""
        if self.report.trace is not None:
            for view in self._views.values():
                _give(view, self.report.trace)

    def show_stretch(self, stretch: Stretch) -> None:
        """Have the active view show a stretch of time."""
        view = self._views[self.active]
        with view.border():
            view.show_stretch(stretch)

    def _show_active(self, trace: Trace) -> None:
        self._notice.display = False
        kind = self.active
        for known, other in self._views.items():
            other.display = known is kind
        view = self._views.get(kind)
        if view is not None:
            self._show_kernel(view)
            self._focus()  # at once: a change of focus after the view is drawn would draw it again
        else:
            with self.border():
                digits = by_digit(views_of(trace, self.context))
                view = self._views[kind] = _in_full(kind().within(self.context), digits[kind])
                self._show_kernel(view)
                self.mount(view)
                self.call_after_refresh(_give, view, trace)
                self.call_after_refresh(self._focus)

    def _show_kernel(self, view: View[Any]) -> None:
        if self.kernel is not None and view.is_of_one_kernel():
            with view.border():
                view.show_kernel(self.kernel)
            self.kernel = None

    def _focus(self) -> None:
        view = self._views.get(self.active)
        if view is None or not self.display or not self.screen.is_current:
            return
        with view.border():
            view.wanting_keys.focus()


def _in_full(view: View[Any], digit: int) -> View[Any]:
    """As it is shown of a file, which has all of the screen: rows that it opens into, unless it stays above them."""
    view.number = digit
    is_drawn = not view.has_rows() or (view.place is not None and view.place.keeps_pane)
    return view if is_drawn or not isinstance(view, Pane) else ListPane().open(view)


def _give(view: View[Any], trace: Trace) -> None:
    """Give a view its trace: Textual would call it on behalf of the screen."""
    with view.border():
        view.show(trace)


class ExploreScreen(NumberedScreen):
    """Files, their views, and the keys."""

    DEFAULT_CSS = "ReportView { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(digit), f"digit({digit})", str(digit), show=False) for digit in range(1, LAST_DIGIT + 1)),
        Binding("tab", "step_view(1)", "next", show=False, tooltip="The next or the last view", priority=True),
        Binding("shift+tab", "step_view(-1)", "last", show=False, tooltip="The next or the last view", priority=True),
        Binding("enter", "open_row", "details", show=False),
        Binding("escape", "stop_reading", "stop", show=False, tooltip="Give up a file that takes long to read"),
        Binding("left_square_bracket", "step_file(-1)", "file", key_display="[", show=False, tooltip="Another file"),
        Binding("right_square_bracket", "step_file(1)", "file", key_display="]", show=False, tooltip="Another file"),
        Binding("B", "baseline", "baseline", show=False, tooltip="Compare the other files with this one, or no longer"),
        Binding("v", "diff", "diff", tooltip="What differs from the baseline: the first file, or the marked one"),
    ]

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Textual's, with the names of the views that the file on the screen has, and no digits of others."""
        titles = {str(digit): view.title for view, digit in self.views.items() if digit}
        return {
            key: one._replace(binding=replace(one.binding, description=titles[key])) if is_digit else one
            for key, one in super().active_bindings.items()
            if not (is_digit := one.node is self and one.binding.action.startswith("digit(")) or key in titles
        }

    @property
    def views(self) -> dict[type[View[Any]], int]:
        """Those of the file on the screen with their digits, as their tabs stand; one that was refused has none."""
        loading = self.loadings[self.active]
        context = self.reports[self.active].context
        return by_digit(() if loading.error is not None else views_of(loading.trace, context))

    def views_beyond(self) -> list[ViewBeyond]:
        active = self.reports[self.active].active
        kinds = [view for view, digit in self.views.items() if not digit]
        return [ViewBeyond(kind.title, kind is active, partial(self.show_view, kind)) for kind in kinds]

    @property
    def shown(self) -> list[int]:
        """The files that have a tab: a run in place of its ranks, or these."""
        return [i for i, loading in enumerate(self.loadings) if loading.is_shown]

    def all_views(self) -> Iterable[type[View[Any]]]:
        """Those that are not made yet too."""
        return self.views

    class Loaded(Message):
        """A file was read or refused."""

    def __init__(self, loadings: Sequence[Loading]) -> None:
        super().__init__()
        self.loadings = tuple(loadings)
        self.reports = tuple(ReportView(loading) for loading in self.loadings)
        self.active = 0
        self.baseline: Loading | None = None
        """What the others are compared with."""
        self._is_told = False
        self._typed_ahead: int | None = None
        """The digit that was pressed while the file on the screen was read."""
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
        self._tell_apart()
        if all(loading.error is not None for loading in self.loadings):
            self.leave_unread()
            return
        if self.loadings[self.active].error is not None and self._is_first_good():
            return
        self.reports[self.active].renew()
        if self._typed_ahead is not None and self.loadings[self.active].trace is not None:
            digit, self._typed_ahead = self._typed_ahead, None
            self.action_digit(digit)
        self._draw_bars()

    def leave_unread(self) -> None:
        """None of the files could be read: who started the program says why."""
        self.app.exit(return_code=1)

    def _tell_apart(self) -> None:
        """Say why timelines are not shown as one, which their reader may have expected."""
        error = self.loadings[0].error if self.loadings[0].files else None
        if isinstance(error, ApartError) and not (error.is_final or self._is_told):
            self._is_told = True
            self.notify(f"shown apart: {error}; --together takes them as one", markup=False, timeout=_LONG_S)

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
        views = self.views
        shown = self.reports[self.active].active
        active = next((i for i, view in enumerate(views) if view is shown), -1)
        tabs = self._view_tabs(active)
        self._tabs.show_items(tab_items(tabs.values(), list(tabs).index(active) if active in tabs else -1))

    def _view_tabs(self, active: int) -> dict[int, tuple[str, str]]:
        """The title and the action of each view's tab, by its place; one for all those that only `M` shows.

        Where not all fit those are counted first, then the last digits stand without names, and then the last are left
        out: the one on the screen is always named.
        """
        views = self.views
        tabs = {
            i: (f"{digit or ''} {view.title}".strip(), f"screen.view({i})")
            for i, (view, digit) in enumerate(views.items())
        }
        beyond = [i for i, digit in enumerate(views.values()) if not digit and i != active]
        if beyond and not self._fit(tabs):
            tabs = {i: tab for i, tab in tabs.items() if i not in beyond}
            tabs[len(views)] = (f"M {len(beyond)} more", "screen.beyond")
        for i, digit in reversed(tuple(enumerate(views.values()))):
            if digit and i != active and not self._fit(tabs):
                tabs[i] = (str(digit), tabs[i][1])
        for i in reversed(tuple(tabs)):
            if i != active and not self._fit(tabs):
                del tabs[i]
        return tabs

    def _fit(self, tabs: Mapping[int, tuple[str, str]]) -> bool:
        return sum(width_of(title) + 2 for title, _ in tabs.values()) < self.size.width

    def _head_items(self) -> list[Item]:
        items = [Item(" llmtop ", "title")]
        shown = self.shown
        if len(shown) > 1:
            names = ((self._tab_name(self.loadings[i]), f"screen.file({i})") for i in shown)
            items += tab_items(names, shown.index(self.active) if self.active in shown else 0)
        loading = self.loadings[self.active]
        if len(shown) == 1:
            items.append(Item(f" {clean(loading.path.name)} ", "value"))
        if loading.trace is not None and damage(loading.trace):
            items.append(Item(" damaged: Session says what is lost ", "bad"))
        room = self.size.width - sum(width_of(item.text) for item in items)
        return [*items, *(Item(text, "dim") for text in _fitting(_about(loading), room))]

    def _tab_name(self, loading: Loading) -> str:
        return f"{'= ' if loading is self.baseline else ''}{clean(loading.path.name)}"

    # -- actions -----------------------------------------------------------------------------------------------

    def action_digit(self, digit: int) -> None:
        """Show the view of a digit; of one that the file has nothing for, why."""
        trace = self.loadings[self.active].trace
        if trace is None:  # what it has is not known yet, nor the digits of that
            self._typed_ahead = digit
            if self.loadings[self.active].error is not None:
                self._say_unread()
            return
        found = next((view for view, own in self.views.items() if own == digit), None)
        if found is not None:
            self.show_view(found)
        else:
            whys = [f"{view.title}: {view.why_not(trace)}" for view in all_views() if view.number == digit]
            self.notify("\n".join(whys), markup=False)

    def action_view(self, index: int) -> None:
        """Show a view of the file, by the place of its tab."""
        self.show_view(list(self.views)[index])

    def show_view(self, view: type[View[Any]] | None) -> None:
        """Show a view of the file; None, and one that it does not have, is the one that it opens on."""
        self.reports[self.active].show_view(view)
        self._draw_bars()

    def action_step_view(self, step: int) -> None:
        """Show the view beside this one."""
        views = list(self.views)
        if not views:
            self._say_unread()
            return
        self.show_view(views[(views.index(self.reports[self.active].active) + step) % len(views)])

    def action_open_row(self) -> None:
        """Say why there is no row to open yet."""
        self._say_unread()

    def _say_unread(self, wanted: Loading | None = None) -> None:
        """Say of a file without a trace, the one on the screen if no other is given, why it cannot be looked at."""
        active = self.loadings[self.active]
        name = "" if wanted is None or wanted is active else clean(wanted.path.name)
        refused = f"{name} could not be read: nothing is compared with it" if name else _REFUSED
        said = refused if (wanted or active).error is not None else f"{name or 'the file'} is still being read"
        self.notify(said, severity="warning", markup=False, timeout=SHORT_S)

    def action_stop_reading(self) -> None:
        """Give up the file on the screen, where reading it is long."""
        self.loadings[self.active].progress.stop()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """There is something to stop only while a file tells how far it is; once it is read, views open their rows."""
        if action == "open_row":
            return self.loadings[self.active].trace is None
        if action in ("baseline", "diff"):
            return len(self.shown) > 1
        if action == "stop_reading":
            loading = self.loadings[self.active]
            return bool(loading.progress.text) and not loading.future.done()
        return super().check_action(action, parameters)

    def action_file(self, index: int) -> None:
        """Show another file, in the same view."""
        view = self.reports[self.active].wanted
        self.reports[self.active].display = False
        self.active = index
        self.reports[index].display = True
        self.show_view(view)

    def action_step_file(self, step: int) -> None:
        """Show the file beside this one."""
        shown = self.shown
        if len(shown) > 1 and self.active in shown:
            self.action_file(shown[(shown.index(self.active) + step) % len(shown)])

    def action_baseline(self) -> None:
        """Make the file on the screen what the others are compared with; if it is, compare none any more."""
        active = self.loadings[self.active]
        self._compare_with(None if active is self.baseline else active)

    def _compare_with(self, wanted: Loading | None) -> None:
        trace = None if wanted is None else wanted.trace
        if wanted is not None and trace is None:
            self._say_unread(wanted)
            return
        self.baseline = wanted
        baseline = None if wanted is None or trace is None else Baseline(clean(wanted.path.name), trace)
        for report in self.reports:
            report.compare_with(None if report.report is wanted else baseline)
        self._draw_bars()
        if wanted is not None:
            said = f"compared with {clean(wanted.path.name)}: v says how a file differs"
            self.notify(said, markup=False, timeout=SHORT_S)

    def action_diff(self) -> None:
        """Show what differs from the baseline, of the baseline itself what differs in the next file."""
        if self.baseline is None:
            self._compare_with(self.loadings[self.shown[0]])
        if self.baseline is None:
            return
        if self.loadings[self.active] is self.baseline:
            self.action_step_file(1)
        self.show_view(next((view for view in self.views if view.is_of_two), None))

    def on_stretch_wanted(self, message: StretchWanted) -> None:
        """Go to a stretch of time in the view that has an axis of all of it."""
        found = next((view for view in self.views if view.has_time_axis()), None)
        if found is not None:
            self.show_view(found)
            self.reports[self.active].show_stretch(message.stretch)

    def on_note_wanted(self, message: NoteWanted) -> None:
        """Ask for a name or a note; what is kept shows in all files at once."""
        key = message.key or self._digest()
        if not key:
            self.notify("a note is of one file, by its content: this is none", severity="warning", markup=False)
            return
        # Imported here: few readers write anything down.
        from llmtop.tui.screens.note import NoteDialog

        title = f"{_NOTES[message.kind]} {message.called}"
        self.app.push_screen(NoteDialog(title, message.text, partial(self._keep, message.kind, key)))

    def _digest(self) -> str:
        loading = self.loadings[self.active]
        return "" if loading.files else digest_of(loading.path)

    def _keep(self, kind: NoteKind, key: str, text: str) -> None:
        keep(kind, key, text)
        for report in self.reports:
            report.report.renote()
            report.show_anew()
        if self.baseline is not None:
            self._compare_with(self.baseline)

    def on_kernel_wanted(self, message: KernelWanted) -> None:
        trace = self.loadings[self.active].trace
        if trace is not None:
            read = [(clean(one.path.name), one.trace) for one in self.loadings if one.trace is not None]
            baseline = self.reports[self.active].context.baseline
            self.reports[self.active].kernel = message.launch
            self.app.push_screen(KernelScreen(trace, message.launch, read, baseline))


_NOTES = {NoteKind.NAME: "name of", NoteKind.KERNEL: "note on", NoteKind.REPORT: "note on"}
_REFUSED = "it has no views: it could not be read"


def _about(loading: Loading) -> list[str]:
    """Facts of a file, those that matter most first."""
    trace = loading.trace
    if trace is None:
        return [] if loading.error is None else ["cannot be read"]
    launches = [f"{len(trace.kernels)} launches"] if trace.kernels is not None else []
    return [part for part in (trace.origin.gpu, *launches, trace.origin.kind) if part]


def _fitting(facts: Iterable[str], room: int) -> Iterator[str]:
    """Those for which there is room, each whole; the first in any case, as half of a name says more than none."""
    for i, fact in enumerate(facts):
        text = f"{' ' if i == 0 else '  '}{fact}"
        if i and width_of(text) > room:
            return
        room -= width_of(text)
        yield text


class ExploreApp(LlmtopApp):
    """The explorer as a program."""

    def __init__(self, loadings: Sequence[Loading]) -> None:
        super().__init__()
        self._loadings = tuple(loadings)

    def get_default_screen(self) -> Screen[None]:
        return ExploreScreen(self._loadings)
