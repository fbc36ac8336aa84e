"""Where the server's threads wait and run, as an icicle of their stacks; alone, or against another moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message

from llmtop import whats
from llmtop.analysis.pages.header import NO_TARGET
from llmtop.analysis.series.readings import told_why_unseen
from llmtop.analysis.threads.flame_diff import LEAST_POINTS, DiffNode, diff_trees, moved_points
from llmtop.analysis.threads.shares import WINDOW_NS
from llmtop.analysis.threads.stall_times import resting_threads, timed_stacks
from llmtop.analysis.threads.stall_tree import MergedNode, Order, StallTree, Wanted, stall_tree, why_no_times
from llmtop.analysis.views import StackNode, StackTree
from llmtop.model import NS_PER_S, TrackId, Unknown
from llmtop.remedies import each_once
from llmtop.tui.panes.base import SLOW_NS, Pane
from llmtop.tui.panes.view import Place, with_a_server
from llmtop.tui.render.flame import Path, about_frame, draw_flame, node_at, step_aside, step_down
from llmtop.tui.render.lines import line
from llmtop.units import percent, quantity
from llmtop.vocabulary import STACKS_WINDOW_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events
    from textual.strip import Strip

    from llmtop.model import Trace, What
    from llmtop.tui.render.lines import Part
    from llmtop.tui.render.look import Look

_ORDERS = tuple(Order)
_ROLES = {
    "root": "dim",
    "process": "accent",
    "thread": "series5",
    "running": "good",
    "queued": "bad",
    "waiting": "stall2",
    "python": "stall7",
    "frame": "stall3",
    "kernel": "stall8",
}
_FOUND, _NOT_FOUND = "selected", "dim"
_GROWN = ((5.0, "stall1"), (1.0, "stall2"), (LEAST_POINTS, "stall3"))
_SHRUNK = ((5.0, "stall6"), (1.0, "stall5"), (LEAST_POINTS, "stall4"))
"""Colours by the size of a change in points, from the largest; the sign on the frame says the same."""
_NO_SHARE = frozenset({"root", "process", "thread"})
"""What stands above states: all threads are observed for equally long, so shares would tell how many are shown."""
_ALL = 0.999
_LATE_NS = 4 * NS_PER_S
"""Stacks come every two seconds; those that are older than this are of a window that has to be named."""
_AWAKE_FOR_NS = 30 * NS_PER_S

_ROOM_FOR_FLAME = 4
"""A process, a thread, its states, and the line that says what the selected frame is."""
_NOT_COMPARABLE = Unknown(
    "the two moments cannot be compared: of one there are times, of the other only looks at interpreters", "b"
)
_PYTHON_IN_ONE = Unknown("only one of the two moments has them")
_NO_LOOK = Unknown("no interpreter has been looked at yet")

Names = tuple[tuple[str, str], ...]
"""A frame by the (name, kind) of each step from the root: places change from frame to frame, names do not."""


@dataclass(frozen=True, slots=True)
class FlameView:
    """What is drawn.

    Attributes:
        tree: Times, or changes: then its nodes are `DiffNode`.
        notes: What the title says of it.
        lack: What of it is missing, and why: functions; Python's, where they are wanted; or times.
        resting: How many threads are left out.
    """

    tree: StackTree
    notes: tuple[str, ...] = ()
    lack: tuple[str, Unknown] | None = None
    resting: int = 0


class StallFlamePane(Pane[FlameView]):
    """Where threads spend their time, and in which functions. Arrows move, Enter zooms, `f` orders, `/` searches."""

    title = "Stall flame"
    place = Place(5, "middle", least=(100, 0), suits=with_a_server)
    least_ns = SLOW_NS
    """Stacks come every two seconds."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False, tooltip="The frame above or below"),
        Binding("down,j", "move(1)", "down", show=False, tooltip="The frame above or below"),
        Binding("left,h", "aside(-1)", "aside", show=False, tooltip="The frame beside this one"),
        Binding("right,l", "aside(1)", "aside", show=False, tooltip="The frame beside this one"),
        Binding("enter", "zoom_in", "into", tooltip="Give the frame the whole width"),
        Binding("backspace,0", "zoom_out", "out", show=False, tooltip="All of it again"),
        Binding("f", "order", "order", tooltip="Levels by thread, state, waits, CPU, inverted"),
        Binding("slash", "search", "search", key_display="/", tooltip="Mark functions by a part of their name"),
        Binding("p", "python", "Python", tooltip="Python's functions (py-spy), on or off"),
        Binding("b", "baseline", "compare", tooltip="Compare with what is shown now; or end that"),
        Binding("x", "freeze", "freeze", tooltip="Hold the flame alone, or let it go on"),
        Binding("a", "resting", "all threads", tooltip="With the sleep of threads that wait for work, or without"),
        Binding("i", "detail", "detail", show=False, tooltip="Every frame and line; or only what tells"),
    ]

    class Asked(Message):
        """Something is to be collected that is not collected unasked, or not any more."""

        def __init__(self, what: What, is_wanted: bool) -> None:
            super().__init__()
            self.what = what
            self.is_wanted = is_wanted

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.wanted = Wanted(python=False)
        self.shows_resting = False
        self.search = ""
        self._is_searching = False
        self._selected: Names = ()
        self._zoom: Names = ()
        self._frozen: Trace | None = None
        self._baseline: Trace | None = None
        self._seen_awake: dict[str, int] = {}

    def view(self, trace: Trace) -> FlameView | Unknown:
        if self.context.target is None:
            return NO_TARGET
        shown = self._frozen or trace
        moments = (shown,) if self._baseline is None else (self._baseline, shown)
        without = frozenset[TrackId]() if self.shows_resting else self._resting(*moments)
        wanted = replace(self.wanted, without=without)
        tree = stall_tree(shown, wanted)
        lack = _lack(tree, trace, wanted)
        if tree.why_not is not None:
            return _why_empty(tree.why_not, lack if wanted.python else None)
        if self._baseline is None:
            return FlameView(tree, tuple(self._notes(tree, shown, trace)), lack, len(without))
        return self._compared(self._baseline, shown, trace, wanted)

    def _resting(self, *moments: Trace) -> frozenset[TrackId]:
        """Who rests now and has for a while: a thread at the border would come and go with each frame."""
        resting, now_ns = resting_threads(*moments), moments[-1].end_ns
        by_time = {track: t_ns for track, t_ns in self._seen_awake.items() if 0 <= now_ns - t_ns <= _AWAKE_FOR_NS}
        threads = {stack.track for stack in timed_stacks(moments[-1])}
        self._seen_awake = by_time | dict.fromkeys(threads - resting, now_ns)
        return frozenset(resting - self._seen_awake.keys())

    def _compared(self, baseline: Trace, shown: Trace, newest: Trace, wanted: Wanted) -> FlameView | Unknown:
        before, tree = stall_tree(baseline, wanted), stall_tree(shown, wanted)
        if before.unit != tree.unit:
            return _NOT_COMPARABLE
        lack = _lack(tree, newest, wanted)
        if bool(before.looks) != bool(tree.looks):
            # Else every Python frame would seem to be gone, or new.
            native = replace(wanted, python=False)
            before, tree = stall_tree(baseline, native), stall_tree(shown, native)
            lack = ("no Python frames", _PYTHON_IN_ONE)
        notes = (*_comparison(before, tree), *self._notes(tree, shown, newest))
        return FlameView(StackTree(diff_trees(before.root, tree.root), "%"), notes, lack, len(wanted.without))

    def _notes(self, tree: StallTree, shown: Trace, newest: Trace) -> Iterator[str]:
        if self._frozen is not None:
            yield f"frozen {(newest.end_ns - shown.end_ns) / NS_PER_S:.0f} s ago (x)"
        else:
            yield f"last {min(WINDOW_NS, shown.end_ns - shown.start_ns) / NS_PER_S:.0f} s"
        if tree.no_functions is not None:
            yield "states alone"
        elif tree.end_ns and shown.end_ns - tree.end_ns > _LATE_NS:
            yield f"functions of {(shown.end_ns - tree.end_ns) / NS_PER_S:.0f} s earlier"
        if tree.looks:
            yield f"Python estimated from {tree.looks} look{'s' if tree.looks > 1 else ''}"

    def draw(self, view: FlameView, width: int, height: int, look: Look) -> list[Strip]:
        root = view.tree.root
        last = _last_lines(view, width, look)[: max(0, height - _ROOM_FOR_FLAME)]
        strips = draw_flame(
            view.tree,
            width,
            height - len(last),
            look,
            selected=path_of(root, self._selected),
            zoom=path_of(root, self._zoom),
            role_of=self._role,
            label_of=label_of,
            value_of=lambda node: value_of(root, node),
            about=lambda node: about(view.tree, node),
        )
        return [*strips[:-1], *last, *strips[-1:]]

    def subtitle(self, view: FlameView) -> Content:
        if not self.search and not self._is_searching:
            return Content(" · ".join((self.wanted.order.value, *view.notes)))
        share = found_share(view.tree.root, self.search) if self.search else 0.0
        cursor = "_" if self._is_searching else ""
        return Content(f"/{self.search}{cursor} {percent(100 * share)} of the time")

    @property
    def is_searching(self) -> bool:
        """Whether keys are text now."""
        return self._is_searching

    def _role(self, node: StackNode) -> str:
        if self.search:
            return _FOUND if self.search.casefold() in node.name.casefold() else _NOT_FOUND
        return role_of(node)

    @property
    def _root(self) -> StackNode | None:
        return self._view.tree.root if isinstance(self._view, FlameView) else None

    # -- keys --------------------------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """The frame above or below."""
        if (root := self._root) is not None:
            path = path_of(root, self._selected)
            self._select(root, step_down(root, path) if step > 0 else path[:-1])

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
        self.post_message(self.Asked(whats.PYTHON_FRAMES, self.wanted.python))

    def action_baseline(self) -> None:
        """Compare what comes with what is shown now; or end that."""
        shown = self._frozen or self._trace
        self._baseline = None if self._baseline is not None or shown is None else _with_stacks_alone(shown)
        self._frozen = None
        self._again()

    def action_freeze(self) -> None:
        """Hold the flame as it is while the rest lives; or let it go on."""
        self._frozen = None if self._frozen is not None or self._trace is None else _with_stacks_alone(self._trace)
        self._again()

    def _want(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._again()

    def _again(self) -> None:
        """Make the view anew from the same trace."""
        if self._trace is not None:
            self.show(self._trace)

    def action_search(self) -> None:
        """Take what is typed, until Enter or Escape, as a part of names to mark."""
        self._is_searching, self.search = True, ""
        self.redraw()

    async def on_key(self, event: events.Key) -> None:
        """While searching, keys are text."""
        if not self._is_searching:
            return
        event.stop()
        event.prevent_default()
        if event.key in ("enter", "escape"):
            self._is_searching = False
            self.search = self.search if event.key == "enter" else ""
        elif event.key == "backspace":
            self.search = self.search[:-1]
        elif event.is_printable and event.character:
            self.search += event.character
        self.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """No key of the pane does anything else while text is typed."""
        return not self._is_searching


def path_of(root: StackNode, names: Names) -> Path:
    """The way to a frame of these names, as far as there is one in this tree."""
    path: list[int] = []
    for name in names:
        index = next((i for i, child in enumerate(root.children) if (child.name, child.kind) == name), None)
        if index is None:
            break
        path.append(index)
        root = root.children[index]
    return tuple(path)


def names_of(root: StackNode, path: Path) -> Names:
    """The names on the way to a frame."""
    nodes = [node_at(root, path[: step + 1]) for step in range(len(path))]
    return tuple((node.name, node.kind) for node in nodes)


def found_share(root: StackNode, text: str) -> float:
    """The share of time in stacks with a frame of this name, each counted once; 0 to 1."""
    wanted = text.casefold()
    found, waiting = 0.0, [root]
    while waiting:
        node = waiting.pop()
        if wanted in node.name.casefold():
            found += node.total
        else:
            waiting += node.children
    return found / root.total if root.total else 0.0


# -- what frames say -------------------------------------------------------------------------------------------


def role_of(node: StackNode) -> str:
    """The colour of a frame: by its kind, or by how its share has changed."""
    if not isinstance(node, DiffNode):
        return _ROLES.get(node.kind, "text")
    steps = _GROWN if node.change > 0 else _SHRUNK
    return next((role for least, role in steps if abs(node.change) >= least), "dim")


def label_of(node: StackNode) -> str:
    """The name of a frame; where moments are compared, behind its change in percentage points."""
    if not isinstance(node, DiffNode) or abs(node.change) < LEAST_POINTS:
        return node.name
    what = "new " if node.is_new else "gone " if node.is_gone else ""
    return f"{node.change:+.1f} {what}{node.name}"


def value_of(root: StackNode, node: StackNode) -> str:
    """Below a thread the share of that thread's time, as in the threads' pane. Changes say theirs in the label."""
    if isinstance(node, DiffNode) or node.kind in _NO_SHARE:
        return ""
    whole = (node.whole if isinstance(node, MergedNode) else 0.0) or root.total
    return percent(100 * node.total / whole)


def about(tree: StackTree, node: StackNode) -> Sequence[Part]:
    """What the last line says of a frame."""
    if not isinstance(node, DiffNode):
        return [*_about_time(tree, node), *_python_note(tree, node)]
    moved = f"{node.change:+.1f} points  " if abs(node.change) >= LEAST_POINTS else "no change  "
    what = "new, " if node.is_new else "gone, " if node.is_gone else ""
    return [(moved, "value"), (f"{what}{percent(node.before)} → {percent(node.now)}  ", "text"), (node.name, "text")]


def _about_time(tree: StackTree, node: StackNode) -> Sequence[Part]:
    if not isinstance(node, MergedNode) or not node.whole:
        return about_frame(tree, node)
    time = f"{quantity(node.total, tree.unit)}  {percent(100 * node.total / node.whole)} of {node.thread}"
    awake = ", the rest asleep by design" if node.kind == "thread" and node.total < node.whole * _ALL else ""
    return [(f"{time}{awake}  ", "value"), ("" if node.kind == "thread" else node.name, "text")]


def _last_lines(view: FlameView, width: int, look: Look) -> list[Strip]:
    """Below the frames: the threads that take no width, then what of the picture is missing."""
    lines: list[list[Part]] = []
    if view.resting:
        count = f"{view.resting} thread{'s' if view.resting > 1 else ''}"
        lines.append([(f"{count} asleep by design ", "dim"), ("(a shows all)", "accent")])
    if view.lack is not None:
        what, why = view.lack
        lines.append([(f"{what}: ", "warn"), (str(why), "text")])
    return [line(parts, width, look) for parts in lines]


def _python_note(tree: StackTree, node: StackNode) -> Sequence[Part]:
    if not isinstance(tree, StallTree) or not tree.looks or tree.unit != "ns":
        return []
    if node.kind == "root":
        return [(f"  Python frames, estimated, in {percent(100 * tree.python_share)} of the time", "dim")]
    return [("  (estimate)", "dim")] if node.kind == "python" else []


def _comparison(before: StallTree, now: StallTree) -> Iterator[str]:
    apart_ns = now.end_ns - before.end_ns
    yield f"{moved_points(before.folded, now.folded):.0f} points moved"
    yield f"against {abs(apart_ns) / NS_PER_S:.0f} s {'earlier' if apart_ns >= 0 else 'later'}"
    if abs(apart_ns) < STACKS_WINDOW_NS:
        yield f"windows overlap by {(STACKS_WINDOW_NS - abs(apart_ns)) / NS_PER_S:.0f} s"


def _lack(tree: StallTree, trace: Trace, wanted: Wanted) -> tuple[str, Unknown] | None:
    """What is not there: times, Python frames although they are wanted, or functions at all."""
    if tree.unit == "samples":
        return "no times, looks alone", why_no_times(trace)
    if wanted.python and not tree.looks:
        return "no Python frames", told_why_unseen(trace, whats.PYTHON_FRAMES) or _NO_LOOK
    return None if tree.no_functions is None or tree.looks else ("no functions", tree.no_functions)


def _why_empty(why: Unknown, lack: tuple[str, Unknown] | None) -> Unknown:
    """Why there is no stack at all, and that interpreters may be looked at without probes."""
    if lack is None:
        return Unknown(why.reason, f"{why.remedy}; or p: Python's functions alone, with py-spy".removeprefix("; or "))
    remedy = each_once((lack[1].remedy, why.remedy), "; ")
    return Unknown(f"{why.reason}; {lack[0]}: {lack[1].reason}", remedy)


def _with_stacks_alone(trace: Trace) -> Trace:
    """A trace to keep: without the series, which grow."""
    stacks = timed_stacks(trace)
    return replace(trace, stacks=stacks, series={}, spans={}, readings=(), marks=(), past_stacks=())


VIEW: Final = StallFlamePane
