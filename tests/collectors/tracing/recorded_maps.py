"""The kernel's maps as tables in memory, into which a test puts what the probes would have counted."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from llmtop.collectors.tracing.bcc.helper.programs import SLOTS, Module

Key = tuple[Any, ...]


@dataclass
class Room:
    """What is known of the map behind a table."""

    capacity: int = 64


class RecordedTable:
    """As `kernel.Table`: entries have the layouts that the program under test asks for, and no others."""

    def __init__(self, key: str, value: str) -> None:
        self.key, self.value = struct.Struct("=" + key), struct.Struct("=" + value)
        self.rows: dict[Key, Key] = {}
        self.map = Room()

    def put(self, key: Key, value: Key, *, only_new: bool = False) -> None:
        key, value = self.key.unpack(self.key.pack(*key)), self.value.unpack(self.value.pack(*value))
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
        self.loaded: list[tuple[str, int]] = []

    def __getitem__(self, name: str) -> RecordedTable:
        return self.tables[name]

    def table(self, name: str, key: str, value: str) -> RecordedTable:
        return self.tables.setdefault(name, RecordedTable(key, value))

    def map(self, name: str) -> str:
        return name

    def load(self, function: str, kind: int, expected_attach: int = 0) -> int:
        self.loaded.append((function, kind))
        return 0

    @property
    def module(self) -> Module:
        """For those who want one."""
        return cast("Module", self)


def slots(**counts: int) -> tuple[int, ...]:
    """A histogram: `slots(s3=2)` has two in the slot 3."""
    return tuple(counts.get(f"s{slot}", 0) for slot in range(SLOTS))
