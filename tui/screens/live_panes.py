"""The panes of the live screen: one for each view, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from llmtop.analysis.pages.roofline import ALL_GPUS
from llmtop.analysis.series.readings import target_gpus
from llmtop.tui.panes.live import LIVE_VIEWS
from llmtop.tui.panes.view import View
from llmtop.tui.screens.live_layout import places_of_use

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.model import Target, Trace, TrackId
    from llmtop.tui.panes.view import Context
    from llmtop.tui.screens.live_layout import Room

P = TypeVar("P", bound="View[Any]")


class LivePanes(Mapping[int, View[Any]]):
    """By digit, the panes of all views that can have something to show here.

    They share the server that is watched, the GPU that panes of one GPU are of, and the room.

    Args:
        watched: What is known beside the traces.
    """

    def __init__(self, watched: Context) -> None:
        self.places = {view.place.number: view.place for view in LIVE_VIEWS}
        """In the order of Tab."""
        existing = (view for view in LIVE_VIEWS if view.place.exists(watched))
        made = {place.number: kind(id=name).within(watched) for name, kind, place in existing}
        self._panes: dict[int, View[Any]] = dict(sorted(made.items()))
        self.watched = watched
        self.of_use: frozenset[int] = frozenset()
        """Those that have a place beside the others."""
        self._had: frozenset[int] = frozenset()
        self._gpu: TrackId | None = None

    def __getitem__(self, number: int) -> View[Any]:
        return self._panes[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._panes)

    def __len__(self) -> int:
        return len(self._panes)

    def of_kind(self, kind: type[P]) -> P:
        """The pane of a kind."""
        return next(pane for pane in self.values() if isinstance(pane, kind))

    def standing_in(self, container: str) -> Iterator[View[Any]]:
        """The panes of one container, in the order in which they stand there."""
        places = (place for place in self.places.values() if place.container == container)
        return (self[place.number] for place in places if place.number in self)

    def names_of_gpu_panes(self) -> list[str]:
        """Digits and titles of those that a machine without a GPU folds away."""
        return [pane.heading for number, pane in self.items() if self.places[number].needs_gpu]

    # -- the server, and the room ------------------------------------------------------------------------------

    def follow(self, target: Target) -> None:
        """Be of another server from the next trace on."""
        self.watched = replace(self.watched, target=target)
        for pane in self.values():
            pane.within(self.watched)

    def find_places(self, room: Room, trace: Trace | None) -> bool:
        """Note which have a place beside the others now; whether these are others than before."""
        before, self.of_use = self.of_use, places_of_use(self.watched, room, trace, self._had)
        self._had |= self.of_use
        return before != self.of_use

    def beside(self, number: int, step: int, *, is_alone: bool) -> int:
        """The digit of the pane so many steps on in the order of Tab.

        Args:
            number: The pane to go from.
            step: 1 or -1.
            is_alone: Only one is shown at a time: then all are in the round.
        """
        order = [one for one in self.places if one in (self if is_alone else self.of_use)]
        at = order.index(number) if number in order else -step
        return order[(at + step) % len(order)]

    # -- the GPU -----------------------------------------------------------------------------------------------

    def choose_gpu(self, gpu: TrackId | None) -> None:
        """Have all panes of one GPU show this one; None lets each choose."""
        self._gpu = gpu
        for pane in self.values():
            pane.choose_gpu(gpu)

    def choose_next_gpu(self, trace: Trace) -> None:
        """The server's next GPU; after the last one all together, where a pane can show that."""
        stops = [track.id for track in target_gpus(trace, self.watched.target)]
        stops += [ALL_GPUS] if len(stops) > 1 else []
        if stops:
            at = stops.index(self._gpu) if self._gpu in stops else 0
            self.choose_gpu(stops[(at + 1) % len(stops)])
