"""What bpftrace prints with `-f json`, read strictly: a line that is not what it should be is no line.

One JSON object a line: {"type": "map", "data": {"@name": {"key,key": value}}}, "hist" with lists of
{"min", "max", "count"} as values, "printf" with text, "attached_probes", "lost_events" and kinds that do not matter
here. Written after the output of 0.17 and 0.23 and after src/output/json.cpp of 0.26, which leaves out spaces in keys
and writes numbers that a double cannot hold as strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Key: TypeAlias = "tuple[int, ...]"
Frames: TypeAlias = "tuple[str, ...]"
Slots: TypeAlias = "dict[int, int]"
LAST_SLOT = 27
"""The last slot of a histogram: what took longer is in it too."""
MAPS = ("map", "hist")
HELPER_ERROR = "helper_error"
"""What the kernel has refused, with its number as `retcode` (0.23 says it unasked, 0.17 not at all)."""
_BEGIN = re.compile(r"begin (\d{1,19})\n?\Z")
_STACKS = re.compile(r"stacks\n?\Z")
_END = re.compile(r"end\n?\Z")
_OFFSET = re.compile(r"\+\d+\Z")


@dataclass(frozen=True)
class Record:
    """One line: its type, the map's name where it has one, and what it says."""

    kind: str
    name: str
    data: Any


@dataclass
class Printout:
    """What was printed at one moment. `t_ns` is of the kernel's monotonic clock, as `time.monotonic_ns`."""

    t_ns: int
    maps: dict[str, Any] = field(default_factory=dict)
    has_stacks: bool = False
    """Whether it was time for stacks: without one, their maps are not printed at all."""

    def table(self, name: str, fields: int) -> dict[Key, int]:
        """A map with so many numbers as key and one as value; what is not like that is left out."""
        return dict(_entries(self.maps.get(name), fields, _integer))

    def histograms(self, name: str, fields: int) -> dict[Key, Slots]:
        """A map of histograms, by the slots of programs/common.h."""
        return dict(_entries(self.maps.get(name), fields, _slots))

    def tuples(self, name: str, fields: int) -> dict[Key, Key]:
        """A map with a tuple of numbers as value."""
        return dict(_entries(self.maps.get(name), fields, _tuple))

    def stacks(self, name: str, fields: int) -> list[tuple[Key, Frames, Frames, int]]:
        """A map with numbers, a user stack and a kernel stack as key: root first, and the value."""
        data = self.maps.get(name)
        found = []
        for text, value in data.items() if isinstance(data, dict) else ():
            key, number = stack_key(text, fields), _integer(value)
            if key is not None and number is not None:
                found.append((*key, number))
        return found

    def frames(self, name: str) -> dict[int, Frames]:
        """A map with one number as key and a stack as value: root first."""
        data = self.maps.get(name)
        found = {}
        for text, value in data.items() if isinstance(data, dict) else ():
            number = _integer(text)
            if number is not None and isinstance(value, str):
                found[number] = _root_first(value.split("\n"))
        return found


class Looks:
    """Puts lines together into looks; one that has no end is dropped, because sums come again."""

    def __init__(self) -> None:
        self._look: Printout | None = None

    def take(self, record: Record) -> Printout | None:
        """The look that this line completes."""
        if record.kind == "printf":
            return self._border(record.data)
        if record.kind in MAPS and self._look:
            self._look.maps[record.name] = record.data
        return None

    def _border(self, text: str) -> Printout | None:
        begin = _BEGIN.match(text)
        if begin:
            self._look = Printout(int(begin.group(1)))
        elif _STACKS.match(text) and self._look:
            self._look.has_stacks = True
        elif _END.match(text):
            look, self._look = self._look, None
            return look
        return None


def parse(line: bytes) -> Record | None:
    """One line; None for one that is blank, cut or foreign."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not isinstance(said.get("type"), str):
        return None
    kind, data = said["type"], said if said["type"] == HELPER_ERROR else said.get("data")
    if kind in MAPS:
        if not isinstance(data, dict) or len(data) != 1:
            return None
        ((name, content),) = data.items()
        return Record(kind, name.lstrip("@"), content)
    if kind == "printf" and not isinstance(data, str):
        return None
    return Record(kind, "", data)


def count_of(record: Record, name: str) -> int:
    """A number that a line speaks of: {"type": "lost_events", "data": {"events": 3}}; 0 if there is none."""
    value = record.data.get(name) if isinstance(record.data, dict) else None
    return _integer(value) or 0


def stack_key(text: str, fields: int) -> tuple[Key, Frames, Frames] | None:
    r"""Numbers, user frames and kernel frames, root first.

    A stack begins and ends with a line break and has a frame a line, the innermost first; one that was not had is
    empty.

    >>> stack_key("7,8,\n    write+16\n    main+4\n,\n    vfs_write+12\n", 2)
    ((7, 8), ('main', 'write'), ('vfs_write',))
    >>> stack_key("7,8,,\n    schedule+1\n", 2), stack_key("7,8,,", 2)
    (((7, 8), (), ('schedule',)), ((7, 8), (), ()))
    """
    head, *lines = text.replace("\\n", "\n").split("\n")  # escaped once more by 0.23
    parts = head.split(",")
    numbers = tuple(number for part in parts[:fields] if (number := _integer(part)) is not None)
    is_user_empty = len(parts) == fields + 2
    if len(numbers) != fields or any(parts[fields:]) or len(parts) - fields not in (1, 2):
        return None
    if is_user_empty:
        return numbers, (), _root_first(lines)
    if "," not in lines:
        return (numbers, _root_first(lines), ()) if not lines else None
    middle = lines.index(",")
    return numbers, _root_first(lines[:middle]), _root_first(lines[middle + 1 :])


def _root_first(lines: list[str]) -> Frames:
    names = [_OFFSET.sub("", line.strip()) for line in lines]
    return tuple(name for name in reversed(names) if name)


def _entries(data: object, fields: int, read: Any) -> Iterator[tuple[Key, Any]]:
    if not fields:
        value = read(data)
        if value is not None:
            yield (), value
        return
    for text, content in data.items() if isinstance(data, dict) else ():
        key = tuple(number for part in text.split(",") if (number := _integer(part)) is not None)
        value = read(content)
        if len(key) == fields == text.count(",") + 1 and value is not None:
            yield key, value


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.match(r"-?\d{1,20}\Z", value.strip(), re.ASCII):
        return int(value)
    return None


def _tuple(value: object) -> Key | None:
    numbers = [_integer(part) for part in value] if isinstance(value, list) else []
    known = tuple(number for number in numbers if number is not None)
    return known if known and len(known) == len(numbers) else None


def _slots(value: object) -> Slots | None:
    """Buckets of powers of two of 256 ns: the one that begins with 2^n is the slot n + 1."""
    slots: Slots = {}
    for one in value if isinstance(value, list) else ():
        lowest, count = (_integer(one.get(name)) if isinstance(one, dict) else None for name in ("min", "count"))
        if lowest is None or count is None or lowest < 0 or count < 0:
            return None
        if count:
            slot = min(lowest.bit_length(), LAST_SLOT)
            slots[slot] = slots.get(slot, 0) + count
    return slots or None
