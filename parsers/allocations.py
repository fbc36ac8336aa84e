"""Memory that is held, of the events that tell of its getting and giving back: whatever tool wrote them."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from llmtop.columns import in_order
from llmtop.model import FROM_BEFORE, GIVING_BACK_LOST, NOT_GIVEN_BACK


class MemoryEvent(NamedTuple):
    """Memory that a process got, or gave back."""

    t_ns: int
    key: int
    """Whose it is: a number that stands for the process and the device."""
    address: int
    bytes: int
    kind: int
    is_release: bool
    join: int = -1
    """Of the call that did it."""


class Ends(IntEnum):
    """Which ends of the time for which memory was held are in the capture."""

    BOTH = 0
    BEFORE = 1
    """It was there before."""
    KEPT = 2
    """It was not given back until the last event."""
    LOST = 3
    """Its address was got once more: in between it was given back, and nothing tells when."""


SUFFIXES: Mapping[Ends, str] = {
    Ends.BOTH: "",
    Ends.BEFORE: FROM_BEFORE,
    Ends.KEPT: NOT_GIVEN_BACK,
    Ends.LOST: GIVING_BACK_LOST,
}
"""What the names of such allocations end with."""


ODD_RELEASES = "memory was given back that nobody held then: twice, or its getting is not in the file; left out"


class Held(NamedTuple):
    """Memory from when it was got until it was given back."""

    start_ns: int
    end_ns: int
    event: MemoryEvent
    ends: Ends


class Allocations(NamedTuple):
    """All that was held, and how many events gave back what was not held by anyone."""

    held: Sequence[Held]
    odd: int


def allocations(events: Sequence[MemoryEvent]) -> Allocations:
    """What events in the order of their times tell.

    What is given back and was never got was there from before the first of them.
    """
    made: list[Held] = []
    held: dict[tuple[int, int], MemoryEvent] = {}
    seen: set[tuple[int, int]] = set()
    odd = 0
    for event in events:
        place = event.key, event.address
        since = held.pop(place, None)
        if since is not None:
            made.append(Held(since.t_ns, event.t_ns, since, Ends.BOTH if event.is_release else Ends.LOST))
        elif event.is_release and place not in seen:
            made.append(Held(events[0].t_ns, event.t_ns, event, Ends.BEFORE))
        elif event.is_release:
            odd += 1
        if not event.is_release:
            held[place] = event
        seen.add(place)
    made += (Held(event.t_ns, events[-1].t_ns, event, Ends.KEPT) for event in held.values())
    return Allocations(made, odd)


def columns_of(held: Iterable[Held]) -> list[array[int]]:
    """By start: start, end, name (`kind * len(Ends)` plus the ends), whose, the join, bytes."""
    columns = [array("q") for _ in range(6)]
    for start, end, event, ends in held:
        row = start, end, event.kind * len(Ends) + ends, event.key, event.join, event.bytes
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return in_order(columns)


def levels(held: Iterable[Held]) -> Iterator[tuple[tuple[int, int], list[tuple[int, int]]]]:
    """By whose and kind: how much is held from each moment on at which that changes; never below nothing."""
    changes: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    first: dict[tuple[int, int], int] = defaultdict(int)
    for start, end, event, ends in held:
        own = event.key, event.kind
        if ends is Ends.BEFORE:
            first[own] += event.bytes
        else:
            changes[own][start] += event.bytes
        if ends is not Ends.KEPT:
            changes[own][end] -= event.bytes
    for own, of_one in changes.items():
        level, samples = first[own], []
        for t_ns in sorted(of_one):
            level += of_one[t_ns]
            samples.append((t_ns, level))
        yield own, samples
