"""Counters that go on when bpftrace starts anew and counts from 0."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

from llmtop.collectors.tracing.bpftrace.output import Key, Slots

Value = TypeVar("Value", int, "Slots")


class MapSums(Generic[Value]):
    """The counters of one map: what earlier runs came to, and what this one has counted."""

    def __init__(self) -> None:
        self._before: dict[Key, Value] = {}
        self._now: dict[Key, Value] = {}
        self._ended: dict[Key, Value] = {}
        """Where the counters of what has ended stand: the map may keep them, and ids are used again."""

    def take(self, table: Mapping[Key, Value]) -> list[Key]:
        """Take in what the map holds now; the keys whose counters have changed."""
        self._ended = {key: value for key, value in self._ended.items() if key in table or key in self._now}
        living = {key: value for key, value in table.items() if self._ended.get(key) != value}
        changed = [key for key, value in living.items() if self._now.get(key) != value]
        self._now.update(living)
        return changed

    def get(self, key: Key) -> Value | None:
        """The sum over all runs; None for what has never been counted."""
        before, now, ended = self._before.get(key), self._now.get(key), self._ended.get(key)
        if now is not None and ended is not None:
            now = _without(now, ended)
        if before is None or now is None:
            return before if now is None else now
        return _added(before, now)

    def items(self) -> list[tuple[Key, Value]]:
        """All sums."""
        keys = self._before.keys() | self._now.keys()
        return [(key, value) for key in keys if (value := self.get(key)) is not None]

    def begin_again(self) -> None:
        """The run has ended: the next one counts from 0."""
        self._before = dict(self.items())
        self._now.clear()
        self._ended.clear()

    def forget(self, places: Collection[int], place: int) -> None:
        """Drop what ended: another one of its id counts from 0. `place` is where in the key the id stands."""
        if places:
            for key in [key for key in self._before if len(key) > place and key[place] in places]:
                del self._before[key]
            for key in [key for key in self._now if len(key) > place and key[place] in places]:
                self._ended[key] = self._now.pop(key)

    def entries(self) -> int:
        """How many entries the map in the kernel has: of a histogram, one for each slot."""
        held = self._ended | self._now
        return sum(1 if isinstance(value, int) else len(value) for value in held.values())


def _without(now: Value, ended: Value) -> Value:
    if isinstance(now, int):
        assert isinstance(ended, int)
        return now - ended
    assert isinstance(ended, dict)
    return {slot: count - ended.get(slot, 0) for slot, count in now.items() if count > ended.get(slot, 0)}


def _added(one: Value, other: Value) -> Value:
    if isinstance(one, int):
        assert isinstance(other, int)
        return one + other
    assert isinstance(other, dict)
    return {slot: one.get(slot, 0) + other.get(slot, 0) for slot in one.keys() | other.keys()}
