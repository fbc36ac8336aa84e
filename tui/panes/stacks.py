"""Where threads wait and run, or where a program was: stacks as an icicle, live and of a file."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop import whats
from llmtop.analysis.rules.scope import is_live
from llmtop.analysis.series.readings import NO_TARGET
from llmtop.analysis.threads.flames import FlameView, Order, TreeContent
from llmtop.analysis.threads.folded import folded_tree
from llmtop.analysis.threads.stack_tree import stack_flame, why_no_stacks
from llmtop.model import NS_PER_S, Trace, TrackId, Unknown
from llmtop.tui.panes.base import SLOW_NS
from llmtop.tui.panes.lines import SearchedPane
from llmtop.tui.panes.view import CollectionWanted, Place, with_a_server
from llmtop.tui.render.flame import (
    FrameWords,
    Names,
    Path,
    draw_flame,
    found_share,
    names_of,
    node_at,
    path_of,
    step_aside,
    step_down,
    step_to_end,
)
from llmtop.units import percent

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.views import StackNode
    from llmtop.tui.contents import Contents
    from llmtop.tui.render.look import Look

_ORDERS = tuple(Order)
_FOUND, _NOT_FOUND = "selected", "dim"
_AWAKE_FOR_NS = 30 * NS_PER_S
_PAGE = 10
"""Frames that a page goes."""
_ROOM_FOR_FLAME = 4
"""A process, a thread, its states, and the line that says what the selected frame is."""


class StacksPane(SearchedPane[FlameView]):
    """A frame is as wide as what was seen in it and below. Arrows move, Enter zooms, `/` searches.

    Of a server's threads it tells what they were in, in several orders (`f`), alone or against another moment.
    """

    number = 8
    title = "Stacks"
    is_of_reports = False
    place = Place(5, "middle", title="Stall flame", least=(100, 0), suits=with_a_server)
    least_ns = SLOW_NS
    """Stacks of a server come every two seconds."""
    of_files = frozenset(("leave_zoom",))
    of_live = frozenset(("order", "python", "baseline", "freeze", "resting", "detail"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False, tooltip="The frame above or below"),
        Binding("down,j", "move(1)", "down", show=False, tooltip="The frame above or below"),
        Binding("left,h", "aside(-1)", "aside", show=False, tooltip="The frame beside this one"),
        Binding("right,l", "aside(1)", "aside", show=False, tooltip="The frame beside this one"),
        Binding("home,g", "edge(-1)", "root", show=False, tooltip="The root, or the end of the heaviest stack"),
        Binding("end,G", "edge(1)", "end", show=False, tooltip="The root, or the end of the heaviest stack"),
        Binding("enter", "zoom_in", "into", tooltip="Give the frame the whole width"),
        Binding("backspace,0", "zoom_out", "out", show=False, tooltip="All of it again"),
        Binding("escape", "leave_zoom", "out", show=False, tooltip="All of it again"),
        Binding("f", "order", "order", tooltip="Levels by thread, state, waits, CPU, inverted"),
        Binding("slash", "search", "search", key_display="/", tooltip="Mark functions by a part of their name"),
        Binding("p", "python", "Python", tooltip="Python's functions (py-spy), on or off"),
        Binding("b", "baseline", "compare", tooltip="Compare with what is shown now; or end that"),
        Binding("x", "freeze", "freeze", tooltip="Hold the flame alone, or let it go on"),
        Binding("a", "resting", "all threads", tooltip="With the sleep of threads that wait for work, or without"),
        Binding("i", "detail", "detail", show=False, tooltip="Every frame and line; or only what tells"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.wanted = TreeContent(python=False)
        self.shows_resting = False
        self._selected: Names = ()
        self._zoom: Names = ()
        self._frozen: Trace | None = None
        self._baseline: Trace | None = None
        self._seen_awake: dict[str, int] = {}

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return why_no_stacks(trace)

    def view(self, trace: Trace) -> FlameView | Unknown:
        if not is_live(trace):
            return stack_flame(trace)
        # What sorts a server's threads is loaded with the first of them: a file never needs it.
        from llmtop.analysis.threads.stall_flame import stall_flame

        if not self.context.is_of_a_server:
            return NO_TARGET
        shown = self._frozen or trace
        moments = (shown,) if self._baseline is None else (self._baseline, shown)
        without = frozenset[TrackId]() if self.shows_resting else self._resting(*moments)
        wanted = replace(self.wanted, without=without)
        return stall_flame(trace, wanted, frozen=self._frozen, baseline=self._baseline)

    def _resting(self, *moments: Trace) -> frozenset[TrackId]:
        """Who rests now and has for a while: a thread at the border would come and go with each frame."""
        from llmtop.analysis.threads.stall_times import resting_threads, timed_stacks

        resting, now_ns = resting_threads(*moments), moments[-1].end_ns
        by_time = {track: t_ns for track, t_ns in self._seen_awake.items() if 0 <= now_ns - t_ns <= _AWAKE_FOR_NS}
        threads = {stack.track for stack in timed_stacks(moments[-1])}
        self._seen_awake = by_time | dict.fromkeys(threads - resting, now_ns)
        return frozenset(resting - self._seen_awake.keys())

    def draw(self, view: FlameView, width: int, height: int, look: Look) -> list[Strip]:
        words = FrameWords()
        last: list[Strip] = []
        if view.has_states:
            from llmtop.tui.render.stall_frames import last_lines, words_of

            words, last = words_of(view.tree), last_lines(view, width, max(0, height - _ROOM_FOR_FLAME), look)
        strips = draw_flame(
            view.tree,
            width,
            height - len(last),
            look,
            selected=path_of(view.tree.root, self._selected),
            zoom=path_of(view.tree.root, self._zoom),
            role_of=self._marked if self.search else words.role_of,
            label_of=words.label_of,
            value_of=words.value_of,
            about=words.about,
        )
        return [*strips[:-1], *last, *strips[-1:]]

    def subtitle(self, view: FlameView) -> Content:
        if not self.search and not self._is_searching:
            return Content(" · ".join(view.notes))
        share = found_share(view.tree.root, self.search) if self.search else 0.0
        return self.said_search(f"{percent(100 * share)} of {'the time' if view.has_states else 'all'}")

    def contents(self) -> Contents | Unknown:
        """Also its stacks, of the frame that has the whole width; changes against another moment are none."""
        contents, root = super().contents(), self._root
        if root is None or isinstance(contents, Unknown) or self._baseline is not None:
            return contents
        return replace(contents, folded=partial(folded_tree, root, path_of(root, self._zoom)))

    def count(self) -> int:
        return 1

    def _marked(self, node: StackNode) -> str:
        return _FOUND if self.search.casefold() in node.name.casefold() else _NOT_FOUND

    @property
    def _root(self) -> StackNode | None:
        return self._view.tree.root if isinstance(self._view, FlameView) else None

    # -- keys --------------------------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """The frame above or below."""
        if (root := self._root) is not None:
            path = path_of(root, self._selected)
            self._select(root, step_down(root, path) if step > 0 else path[:-1])

    def action_page(self, step: int) -> None:
        """Some frames further down or up."""
        if (root := self._root) is not None:
            path = path_of(root, self._selected)
            above = path[: max(0, len(path) - _PAGE)]
            self._select(root, (*path, *step_to_end(node_at(root, path), ())[:_PAGE]) if step > 0 else above)

    def action_edge(self, side: int) -> None:
        """The root, or the end of the heaviest stack below the frame."""
        if (root := self._root) is not None:
            self._select(root, () if side < 0 else step_to_end(root, path_of(root, self._selected)))

    def action_aside(self, step: int) -> None:
        """The frame beside this one."""
        if (root := self._root) is not None:
            self._select(root, step_aside(root, path_of(root, self._selected), step))

    def _select(self, root: StackNode, path: Path) -> None:
        """Put the cursor on a frame, and widen the zoom until it is on the screen."""
        self._selected = names_of(root, path)
        while self._selected[: len(self._zoom)] != self._zoom:
            self._zoom = self._zoom[:-1]
        self.redraw()

    def action_zoom_in(self) -> None:
        """Give the selected frame the whole width."""
        self._zoom = self._selected
        self.redraw()

    def action_zoom_out(self) -> None:
        """Show all of it again, without marks."""
        self._zoom = ()
        self.search = ""
        self.redraw()

    def action_leave_zoom(self) -> None:
        """The same with Escape, which on the live screen leaves more than a frame."""
        self.action_zoom_out()

    def action_order(self) -> None:
        """Draw the next order of levels."""
        order = _ORDERS[(_ORDERS.index(self.wanted.order) + 1) % len(_ORDERS)]
        self._selected = self._zoom = ()
        self._want(replace(self.wanted, order=order))

    def action_detail(self) -> None:
        """Show every frame, or fold those away that tell nothing."""
        self._want(replace(self.wanted, detail=not self.wanted.detail))

    def action_resting(self) -> None:
        """Show threads that only wait too, or leave them out."""
        self.shows_resting = not self.shows_resting
        self._again()

    def action_python(self) -> None:
        """Have interpreters looked at and show what they do; or neither."""
        self._want(replace(self.wanted, python=not self.wanted.python))
        self.post_message(CollectionWanted(whats.PYTHON_FRAMES, self.wanted.python))

    def action_baseline(self) -> None:
        """Compare what comes with what is shown now; or end that."""
        self._baseline = self._kept(self._frozen or self._trace) if self._baseline is None else None
        self._frozen = None
        self._again()

    def action_freeze(self) -> None:
        """Hold the flame as it is while the rest lives; or let it go on."""
        self._frozen = self._kept(self._trace) if self._frozen is None else None
        self._again()

    @staticmethod
    def _kept(trace: Trace | None) -> Trace | None:
        from llmtop.analysis.threads.stall_flame import stacks_alone

        return None if trace is None else stacks_alone(trace)

    def _want(self, wanted: TreeContent) -> None:
        self.wanted = wanted
        self._again()

    def _again(self) -> None:
        """Make the view anew from the same trace."""
        if self._trace is not None:
            self.show(self._trace)


VIEW: Final = StacksPane
