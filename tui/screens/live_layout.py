"""The arrangement of the live screen: which of its panes are shown, and how large.

What is shown where follows from three values: the room there is, what the trace has, and where the focus is.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from llmtop.analysis.series.readings import gpu_tracks, why_no_gpu
from llmtop.frozen import frozen
from llmtop.model import TrackKind
from llmtop.tui.panes.live import LIVE_VIEWS

if TYPE_CHECKING:
    from llmtop.model import Trace
    from llmtop.tui.panes.view import Context, Place

_SMALL = (60, 18)
"""Below this many columns or rows one pane is shown at a time."""
_WIDE = 100
_TALL = 36
"""Rows from which the findings get a third line."""
_KEYS_ROWS = 18
_MANY_GPUS, _CROWD = 4, 8
"""With more GPUs (MIG instances count too) than this a line for each needs more height than the server's numbers."""


@frozen
class Room:
    """The screen's size in cells, and how many GPUs share it."""

    width: int
    height: int
    gpus: int = 0

    @property
    def is_small(self) -> bool:
        """Whether there is room for one pane only."""
        return self.width < _SMALL[0] or self.height < _SMALL[1]

    @property
    def is_wide(self) -> bool:
        """Whether two panes of text fit side by side."""
        return self.width >= _WIDE

    @property
    def is_tall(self) -> bool:
        """Whether there are rows to spare."""
        return self.height >= _TALL

    def has_place_for(self, place: Place) -> bool:
        """Whether a pane has room beside the others."""
        leasts = (place.least, place.least_among_many if self.gpus > _MANY_GPUS else (0, 0))
        return all(self.width >= width and self.height >= height for width, height in leasts)

    @property
    def is_cramped(self) -> bool:
        """Whether lines for many GPUs need the room of the lanes."""
        return self.gpus > _MANY_GPUS and not self.is_tall

    @property
    def has_keys(self) -> bool:
        """Whether the last line lists keys."""
        return self.height >= _KEYS_ROWS

    def classes(self) -> dict[str, bool]:
        """What the style sheet is told."""
        return {
            "-wide": self.is_wide,
            "-roomy": not self.is_small and not self.is_tall,
            "-tall": self.is_tall,
            "-cramped": self.is_cramped,
            "-many-gpus": self.gpus > _MANY_GPUS and self.is_tall,
            "-crowd": self.gpus > _CROWD and self.is_tall,
        }


def gpu_lines(trace: Trace) -> int:
    """How many lines GPUs ask for: MIG instances have lines of their own."""
    return len(gpu_tracks(trace)) + len(trace.tracks_of(TrackKind.GPU_INSTANCE))


def places_of_use(
    watched: Context, room: Room, trace: Trace | None, had: frozenset[int] = frozenset()
) -> frozenset[int]:
    """The panes that have a place beside the others now; `had` are those that have had something to show."""
    fitting = (view for view in LIVE_VIEWS if view.place.suits(watched) and room.has_place_for(view.place))
    with_data = frozenset(
        place.number
        for _, kind, place in fitting
        if not place.waits or place.number in had or (trace is not None and kind.why_not(trace) is None)
    )
    return with_data - folded_places(watched, trace)


def folded_places(watched: Context, trace: Trace | None) -> frozenset[int]:
    """The panes that a line stands for: those of GPUs, where a server runs without one."""
    if watched.target is None or trace is None or why_no_gpu(trace) is None:
        return frozenset()
    return frozenset(view.place.number for view in LIVE_VIEWS if view.place.needs_gpu)


class Form(StrEnum):
    """What takes the room of the panes."""

    PANES = "panes"
    TABLE = "table"
    HEATMAP = "heatmap"
    EVENTS = "events"


@frozen
class Focus:
    """Where the user is: on a pane, in it alone, or in the event log.

    Attributes:
        is_lent: The pane has the screen to itself only because it has no place beside the others.
    """

    number: int = 1
    is_zoomed: bool = False
    is_lent: bool = False
    is_log_open: bool = False
    is_heatmap: bool = False

    def on_pane(self, number: int, of_use: frozenset[int]) -> Focus:
        """On another pane: where one is alone on the screen it takes that one's place, else what it needs is lent."""
        was_zoomed = self.is_zoomed and not self.is_lent
        is_lent = not was_zoomed and number not in of_use
        return Focus(number, is_zoomed=was_zoomed or is_lent, is_lent=is_lent)

    def zoomed(self) -> Focus:
        """On its pane alone; one that the screen was lent to keeps it."""
        return replace(self, is_lent=False) if self.is_lent else Focus(self.number, is_zoomed=True)

    def among_others(self, of_use: frozenset[int]) -> Focus:
        """On its pane beside the others, or where it has no place there on the first of them."""
        return Focus(self.number if self.number in of_use else min(of_use))

    def back_in_place(self, of_use: frozenset[int]) -> Focus:
        """The same, or what is lent given back where the pane has a place by now."""
        return replace(self, is_zoomed=False, is_lent=False) if self.is_lent and self.number in of_use else self


def form_of(focus: Focus, *, has_table: bool) -> Form:
    """What is shown: the event log, the heatmap or the rows of a zoomed pane, or panes."""
    if focus.is_log_open:
        return Form.EVENTS
    if focus.is_zoomed and focus.is_heatmap:
        return Form.HEATMAP
    return Form.TABLE if focus.is_zoomed and has_table else Form.PANES


def shown_panes(
    focus: Focus, form: Form, of_use: frozenset[int], *, is_small: bool, keeps_pane: bool
) -> frozenset[int]:
    """The panes on the screen: all that are of use, one alone, or none where rows or the log take its place."""
    if form in (Form.EVENTS, Form.HEATMAP) or (form is Form.TABLE and not keeps_pane):
        return frozenset()
    return frozenset({focus.number}) if focus.is_zoomed or is_small else of_use


@frozen
class Arrangement:
    """What is on the screen.

    Attributes:
        focus: Where the user is: on another pane where the one in focus has been folded away.
        form: What takes the room of the panes.
        shown: The panes, by number.
        has_folded: Whether a line stands for those that are folded away.
        has_rows_below: Whether the rows of a pane stand below it.
    """

    focus: Focus
    form: Form
    shown: frozenset[int]
    has_folded: bool
    has_rows_below: bool


def arrangement(
    focus: Focus,
    room: Room,
    of_use: frozenset[int],
    folded: frozenset[int],
    *,
    has_table: bool,
    keeps_pane: bool,
) -> Arrangement:
    """What follows from where the user is, the room there is, and the panes that have something to show.

    Args:
        focus: Where the user is.
        room: The screen's size.
        of_use: The panes that have a place beside the others.
        folded: Those that a line stands for.
        has_table: Whether the pane in focus opens into rows.
        keeps_pane: Whether it stays above these.
    """
    form = form_of(focus, has_table=has_table)
    is_free = form is Form.PANES and not focus.is_zoomed
    if is_free and focus.number not in of_use:
        focus = replace(focus, number=min(of_use))
    return Arrangement(
        focus,
        form,
        shown_panes(focus, form, of_use, is_small=room.is_small, keeps_pane=keeps_pane),
        has_folded=is_free and not room.is_small and bool(folded),
        has_rows_below=form is Form.TABLE and keeps_pane,
    )
