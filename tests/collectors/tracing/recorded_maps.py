"""The kernel's maps as tables in memory, into which a test puts what the probes would have counted."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from llmtop.collectors.tracing.helper.elf import Site
from llmtop.collectors.tracing.helper.libraries import ProbePoint
from llmtop.collectors.tracing.probes.helper.programs import COMPILED, SLOTS, Module

Key = tuple[Any, ...]
ARRAY = 2
"""BPF_MAP_TYPE_ARRAY of include/uapi/linux/bpf.h: its keys are places, and all of them are there."""


@cache
def units() -> list[dict[str, Any]]:
    """The compiled programs in the tree."""
    return [json.loads(path.read_text()) for path in sorted((COMPILED / "x86_64").glob("*.json"))]


@cache
def layouts(name: str) -> list[tuple[int, ...]]:
    """Kind, sizes of key and value, and capacity that maps of this name have in the programs."""
    return [tuple(unit["maps"][name][:4]) for unit in units() if name in unit["maps"]]


@dataclass
class Room:
    """What is known of the map behind a table."""

    capacity: int = 64


class RecordedTable:
    """As `kernel.Table`: entries have the layouts that the program under test asks for, and no others."""

    def __init__(self, name: str, key: str, value: str) -> None:
        self.key, self.value = struct.Struct("=" + key), struct.Struct("=" + value)
        found = [(kind, room) for kind, *sizes, room in layouts(name) if sizes == [self.key.size, self.value.size]]
        assert found, f"no program has such a map {name}"
        self._places = max(room for _, room in found) if found[0][0] == ARRAY else None
        self.rows: dict[Key, Key] = {}
        self.map = Room()

    def put(self, key: Key, value: Key, *, only_new: bool = False) -> None:
        key, value = self.key.unpack(self.key.pack(*key)), self.value.unpack(self.value.pack(*value))
        assert self._places is None or key[0] < self._places, "E2BIG"
        if not (only_new and key in self.rows):
            self.rows[key] = value

    def get(self, *key: Any) -> Key | None:
        return self.rows.get(key)

    def count(self) -> int:
        return int(self.rows.get((0,), (0,))[0])

    def remove(self, *key: Any) -> None:
        self.rows.pop(key, None)

    def clear(self) -> None:
        self.rows.clear()

    def entries(self, *, take: bool = False) -> Iterator[tuple[Key, Key]]:
        found = list(self.rows.items())
        if take:
            self.rows.clear()
        return iter(found)


class RecordedModule:
    """As `programs.Module`, with every function loaded and every map there."""

    def __init__(self) -> None:
        self.tables: dict[str, RecordedTable] = {}
        self.loaded: list[tuple[str | int, ...]] = []

    def __getitem__(self, name: str) -> RecordedTable:
        return self.tables[name]

    def table(self, name: str, key: str, value: str) -> RecordedTable:
        return self.tables.setdefault(name, RecordedTable(name, key, value))

    def map(self, name: str) -> str:
        assert layouts(name), f"no program has a map {name}"
        return name

    def load(self, function: str, kind: int, expected_attach: int = 0, **numbers: int) -> int:
        names = {name for unit in units() for name in unit["functions"]}
        assert function in names, f"no program has {function}"
        self.loaded.append((function, kind, *numbers.values()))
        return 0

    @property
    def module(self) -> Module:
        """For those who want one."""
        return cast("Module", self)


def slots(**counts: int) -> tuple[int, ...]:
    """A histogram: `slots(s3=2)` has two in the slot 3."""
    return tuple(counts.get(f"s{slot}", 0) for slot in range(SLOTS))


def at(place: int, hit: str = "library") -> ProbePoint:
    """A function that begins there."""
    return ProbePoint((Site(place),), hit)
