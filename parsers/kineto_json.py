"""The events of a trace in Chrome's JSON, a piece of the file at a time: of whole files, cut ones and broken ones.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU describes the format; Kineto's writer is
libkineto/src/output_json.cpp. Nearly all events of Kineto have the same keys in the same order, and one regular
expression takes these apart in a third of the time that a JSON parser needs. What it does not take is read as JSON,
event by event; what is no JSON either is mended, or left out and counted.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from llmtop.frozen import frozen
from llmtop.parsers.kineto_repair import mended

if TYPE_CHECKING:
    from typing import BinaryIO

Event: TypeAlias = "dict[str, Any]"
"""An event as JSON has it; numbers with a point are texts, so that no digit of a time is lost."""

CHUNK = 4 << 20
"""Bytes that are in memory as text at once, and as much again of what is made of them."""
LONGEST_EVENT: Final = 16 << 20
"""What has no end after so much is no event: the largest seen, of a call stack with source code, have 100 kB."""
_LONGEST_HEAD = 64 << 20
"""Of what stands before the events: settings and, of some tools, all that they know of the machine."""
_LIMIT_NS = 1 << 62

_TIME = rb"([1-7]?\d{1,15})(?:\.(\d+))?"
_WHO = rb'("[^"\\]*"|-?\d{1,18})'
_EVENT = re.compile(
    rb'\{\s*"ph":\s*"(?:([Xi])",\s*(?:"cat":\s*"(\w*)",\s*)?(?:"s":\s*"\w",\s*)?'
    rb'"name":\s*"([^"\\]*(?:\\.[^"\\]*)*)",\s*"pid":\s*' + _WHO + rb',\s*"tid":\s*' + _WHO + rb',\s*"ts":\s*'
    + _TIME + rb'(?:,\s*"dur":\s*' + _TIME + rb')?(?:,\s*"args":\s*\{([^{}]*+)\})?'
    rb'|[stf]",\s*"id":\s*\d+,\s*"pid":\s*[^,{}]+,\s*"tid":\s*[^,{}]+,\s*"ts":\s*[\d.]+,\s*'
    rb'"cat":\s*"\w*",\s*"name":\s*"\w*"(?:,\s*"bp":\s*"e")?)\s*\}',
    re.DOTALL,
)  # fmt: skip
"""Spans and instants as Kineto writes them, and flows, of which nothing is kept: correlation ids tell the same."""
_STEP = _EVENT.groups + 1
_BETWEEN = b", \t\r\n"
_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
_BEGIN_AGAIN = re.compile(r'"traceEvents"\s*:\s*\[')
_KEY = re.compile(r'[\s,{}]*"((?:[^"\\]|\\.)*)"\s*:\s*')
_SPACE = re.compile(r"[\s,]*")
_NEXT = re.compile(r'(?:\}\s*,?|\n)\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|args|id|dur)"\s*:)')
"""Where an event may begin behind a broken one."""


class _Thousandths(dict[bytes | None, int]):
    """Nanoseconds by the digits behind the point of microseconds."""

    def __missing__(self, digits: bytes | None) -> int:
        value = 0 if digits is None else round(int(digits[:18]) * 1000 / 10 ** len(digits[:18]))
        self[digits] = value
        return value


class _LosslessDecoder(json.JSONDecoder):
    """Takes control characters in texts, and keeps all digits of numbers with a point."""

    def __init__(self) -> None:
        super().__init__(strict=False, parse_float=str, parse_constant=lambda _: None)


DECODER: Final = _LosslessDecoder()


@frozen
class EventColumns:
    """Events of one phase and category, as they are written (bytes) or as JSON has them.

    Attributes:
        args: The text between the braces of each, or what they are; None where there are none.
        ends: In ns, as `starts`; the same as the start where the event has no duration.
    """

    phase: str
    category: str
    names: Sequence[bytes | str]
    pids: Sequence[bytes | str | int]
    tids: Sequence[bytes | str | int]
    starts: Sequence[int]
    ends: Sequence[int]
    args: Sequence[bytes | Event | None]
    has_fractions: bool

    @classmethod
    def of_one(cls, event: Event, start: int, end: int) -> EventColumns:
        """One event that was read as JSON."""
        args, fraction = event.get("args"), isinstance(event.get("ts"), str)
        pid, tid = (one if isinstance(one := event.get(key), int | str) else "" for key in ("pid", "tid"))
        return cls(
            str(event.get("ph")), str(event.get("cat", "")), (str(event.get("name", "")),), (pid,), (tid,),
            (start,), (end,), (args if isinstance(args, dict) else None,), fraction,
        )  # fmt: skip


def nanoseconds(microseconds: object) -> int | None:
    """A time of an event, exact; None where it is none, or out of all bounds.

    >>> nanoseconds(3), nanoseconds("4367210385508.747"), nanoseconds("x"), nanoseconds(None)
    (3000, 4367210385508747, None, None)
    """
    if isinstance(microseconds, int):
        value = microseconds * 1000
    elif isinstance(microseconds, str):
        try:
            exact = Decimal(microseconds)
            value = round(exact * 1000) if exact.is_finite() and abs(exact.adjusted()) < 30 else _LIMIT_NS
        except InvalidOperation:
            return None
    else:
        return None
    return value if abs(value) < _LIMIT_NS else None


class EventReader:
    """The events of one file, and what stands around them.

    `tell` gets the number of bytes that are read, after each piece; what it raises ends the reading.

    Attributes:
        found: Whether the file has a list of events; known once `facts_before` has been called.
        facts: The keys beside the events; those behind the events are there when all events are read.
        broken: Events that could not be read, and were left out.
        mended: Events whose JSON was wrong, and could be read all the same.
        left_bytes: Of an event without an end, or None where the list of events ends as it should.
        lossy_facts: Whether keys beside the events could not be read.
        joined: Further lists of events behind the first: files that were joined.
    """

    def __init__(self, file: BinaryIO, tell: Callable[[int], object]) -> None:
        self._file = file
        self._tell = tell
        self.found = False
        self.facts: dict[str, Any] = {}
        self.broken = 0
        self.mended = 0
        self.left_bytes: int | None = None
        self.lossy_facts = False
        self.joined = 0
        self._fractions = _Thousandths()
        self._behind: list[str] = []
        self._is_list = False
        self._is_over = False

    def facts_before(self) -> bytes:
        """Read up to the first event; returns what was read of the events, or of the whole file where it has none."""
        head = bytearray(self._more().removeprefix(b"\xef\xbb\xbf"))
        if head.lstrip().startswith(b"["):
            self.found = self._is_list = True
            return bytes(head.lstrip()[1:])
        begin = _BEGIN.search(head)
        while begin is None and len(head) < _LONGEST_HEAD and (more := self._more()):
            start = max(0, len(head) - 64)
            head += more
            begin = _BEGIN.search(head, start)
        self.found = begin is not None
        before, rest = (head[: begin.start()], bytes(head[begin.end() :])) if begin else (head, bytes(head))
        self._take_facts(before.decode("utf-8", "replace"))
        return rest

    def __iter__(self) -> Iterator[EventColumns | Event]:
        """All events, those of Kineto's layout many at a time. `facts_before` need not be called before."""
        rest = self.facts_before()
        if not self.found:
            return
        more = b""
        while True:
            parts = _EVENT.split(rest + more)
            yield from self._columns(parts)
            yield from self._others(parts)
            more = self._more()
            rest = yield from self._unread(parts[-1])
            if not more:
                break
        self._end(rest)

    def _more(self) -> bytes:
        more = self._file.read(CHUNK)
        self._tell(self._file.tell())
        return more

    def _columns(self, parts: list[bytes]) -> Iterator[EventColumns]:
        """What the expression took apart, by phase and category."""
        phases, categories, names, pids, tids, starts, fractions, lengths, more, args = (
            parts[i::_STEP] for i in range(1, _STEP)
        )
        rows: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
        for i, key in enumerate(zip(phases, categories, strict=True)):
            rows[key].append(i)
        rows = {key: own for key, own in rows.items() if key[0] is not None}
        for (phase, category), own in rows.items():
            begin, ns = self._nanoseconds(starts, fractions, own), self._nanoseconds(lengths, more, own)
            yield EventColumns(
                phase.decode(), (category or b"").decode(),
                [names[i] for i in own], [pids[i] for i in own], [tids[i] for i in own],
                begin, [start + length for start, length in zip(begin, ns, strict=True)], [args[i] for i in own],
                any(fractions[i] is not None for i in own),
            )  # fmt: skip

    def _nanoseconds(self, whole: list[bytes], fractions: list[bytes], rows: list[int]) -> list[int]:
        """Times in microseconds, of which some have digits behind the point, and some (of instants) are not there."""
        if any(fractions[i] for i in rows):
            return [int(whole[i] or 0) * 1000 + self._fractions[fractions[i]] for i in rows]
        return [int(whole[i] or 0) * 1000 for i in rows]

    def _others(self, parts: list[bytes]) -> Iterator[Event]:
        """What stands between the events that the expression took, read as JSON."""
        for piece in parts[:-1:_STEP]:
            if piece.strip(_BETWEEN):
                yield from self._decoded(piece.decode("utf-8", "replace"), is_last=False)

    def _unread(self, piece: bytes) -> Generator[Event, None, bytes]:
        """Whole events behind the last one that the expression took; returns the bytes of one without an end yet."""
        cut = piece.rfind(b"}") + 1  # so that no character is cut in the middle
        rest = piece
        if piece[:cut].strip(_BETWEEN):
            text = piece[:cut].decode("utf-8", "replace")
            i = yield from self._decoded(text, is_last=True)
            rest = text[i:].encode("utf-8", "replace") + piece[cut:]
        if len(rest) <= LONGEST_EVENT:
            return rest
        self.broken += 1
        return b""

    def _decoded(self, text: str, *, is_last: bool) -> Generator[Event, None, int]:
        """The events of a text, up to where it has no whole one any more; returns where that is.

        `is_last`: more may follow the text, so that what is no whole event may become one.
        """
        i = self._behind_list(text, 0) if self._is_over else _past_space(text, 0)
        while i < len(text):
            if text[i] == "]":
                i = _past_space(text, self._behind_list(text, i + 1))
                continue
            try:
                event, i = DECODER.raw_decode(text, i)
            except (ValueError, RecursionError):
                following = _NEXT.search(text, i + 1)
                if following is None and is_last:
                    return i
                end = len(text) if following is None else following.end()
                event, i = mended(text[i:end], DECODER), end
                self.mended += event is not None
            if isinstance(event, dict):
                yield event
            else:
                self.broken += 1
            i = _past_space(text, i)
        return i

    def _behind_list(self, text: str, i: int) -> int:
        """Keep what stands behind the events; returns where further ones begin: files are sometimes joined."""
        begin = _BEGIN_AGAIN.search(text, i)
        self._is_over = begin is None
        self.joined += begin is not None
        self._behind.append(text[i : begin.start() if begin else len(text)])
        return begin.end() if begin else len(text)

    def _end(self, rest: bytes) -> None:
        """What is left when the file has ended."""
        left = rest.strip(_BETWEEN)
        if self._is_over or left.startswith(b"]"):
            self._behind.append(rest.decode("utf-8", "replace"))
        elif left or not self._is_list:  # the format lets the bracket of a bare list away
            self.left_bytes = len(left)
        self._take_facts("".join(self._behind))

    def _take_facts(self, text: str) -> None:
        """The keys and values of a text, one by one: what stands before a fault counts."""
        i = 0
        while (key := _KEY.match(text, i)) is not None:
            try:
                value, i = DECODER.raw_decode(text, key.end())
            except (ValueError, RecursionError):
                break
            self.facts.setdefault(key[1], value)
        self.lossy_facts |= bool(text[i:].strip(" ,\r\n\t{}[]"))


def _past_space(text: str, i: int) -> int:
    found = _SPACE.match(text, i)
    return found.end() if found is not None else i
