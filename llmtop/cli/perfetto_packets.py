"""Packets of a Perfetto trace: tracks, slices, instants and counters, each written as it comes.

The messages are those of protos/perfetto/trace/perfetto_trace.proto (https://perfetto.dev/docs/reference/trace-packet-proto):
a trace is a sequence of `TracePacket`, and what one has is told by numbered fields. Unlike Trace Event Format it knows
tracks that are of no process, and nanoseconds.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
"""TrackEvent.Type."""
_FROM_HERE, _LIKE_BEFORE = 1, 2
"""TracePacket.SequenceFlags: what names stand for begins anew; and names are those that were told before."""
_REALTIME, _TRACE = 1, 6
"""BuiltinClock: seconds since 1970, and the one that times in a trace are of (BOOTTIME)."""
_SEQUENCE: Final = 1


class PacketWriter:
    """Writes packets to a file.

    Args:
        file: Where they go; whoever opened it closes it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._write = file.write
        self._tracks = 0
        self._names: dict[str, int] = {}
        self._events: dict[tuple[int, int], bytes] = {}
        """The beginnings of slices by track and name, but for their times."""
        self._ends: dict[int, bytes] = {}
        self._packet(_number(10, _SEQUENCE) + _number(13, _FROM_HERE))

    def clock(self, utc_ns: int) -> None:
        """Tell when the trace's clock read 0, in ns since 1970."""
        at = max(0, -utc_ns)
        clocks = (_number(1, clock) + _number(2, t_ns) for clock, t_ns in ((_TRACE, at), (_REALTIME, utc_ns + at)))
        snapshot = b"".join(_bytes(1, one) for one in clocks)
        self._packet(_number(8, at) + _number(10, _SEQUENCE) + _bytes(6, snapshot))

    # -- tracks ------------------------------------------------------------------------------------------------

    def group(self, name: str, parent: int = 0) -> int:
        """A track that is of no process or thread; siblings of one name are drawn as one.

        Returns:
            Its number, as all that follow.
        """
        return self._track(name, parent, b"")

    def process(self, pid: int, name: str) -> int:
        """A process; without a name where that is not known."""
        return self._track("", 0, _bytes(3, _number(1, pid) + (_text(6, name) if name else b"")))

    def thread(self, pid: int, tid: int, name: str) -> int:
        """A thread of a process."""
        return self._track("", 0, _bytes(4, _number(1, pid) + _number(2, tid) + _text(5, name)))

    def counter(self, name: str, unit: str, parent: int) -> int:
        """A number over time."""
        return self._track(name, parent, _bytes(8, _text(6, unit)))

    def _track(self, name: str, parent: int, what: bytes) -> int:
        self._tracks += 1
        told = _number(1, self._tracks) + (_text(2, name) if name else b"") + (_number(5, parent) if parent else b"")
        self._packet(_number(10, _SEQUENCE) + _bytes(60, told + what))
        return self._tracks

    # -- events ------------------------------------------------------------------------------------------------

    def begin(self, track: int, t_ns: int, name: str, flow: int = 0, args: bytes = b"") -> None:
        """Begin a slice.

        Args:
            track: Where; what is within another slice there ends before that.
            t_ns: When.
            name: What it is.
            flow: What it has in common with slices of other tracks, between which arrows are drawn; 0 for nothing.
            args: As `args` gives them.
        """
        key = track, self._names.get(name) or self._named(name)
        if (event := self._events.get(key)) is None:
            event = self._events[key] = _number(9, _BEGIN) + _number(11, track) + _number(10, key[1])
        self._event(t_ns, event + (_FLOW + flow.to_bytes(8, "little") if flow else b"") + args)

    def end(self, track: int, t_ns: int) -> None:
        """End the slice that was begun last."""
        if (event := self._ends.get(track)) is None:
            event = self._ends[track] = _number(9, _END) + _number(11, track)
        self._event(t_ns, event)

    def instant(self, track: int, t_ns: int, name: str, flow: int = 0, args: bytes = b"") -> None:
        """What has no length."""
        told = _number(9, _INSTANT) + _number(11, track) + _number(10, self._names.get(name) or self._named(name))
        self._event(t_ns, told + (_FLOW + flow.to_bytes(8, "little") if flow else b"") + args)

    def sample(self, track: int, t_ns: int, value: float) -> None:
        """A value of a counter from now on."""
        self._event(t_ns, _number(9, _COUNTER) + _number(11, track) + _double(44, value))

    def _event(self, t_ns: int, event: bytes) -> None:
        self._packet(b"\x40" + varint(t_ns) + _OF_SEQUENCE + varint(len(event)) + event)

    def _named(self, name: str) -> int:
        """Tell what a number stands for where names are."""
        number = self._names[name] = len(self._names) + 1
        known = _bytes(12, _bytes(2, _number(1, number) + _text(2, name)))
        self._packet(_number(10, _SEQUENCE) + _number(13, _LIKE_BEFORE) + known)
        return number

    def _packet(self, content: bytes) -> None:
        self._write(b"\x0a" + varint(len(content)) + content)


def args(told: Mapping[str, str | float]) -> bytes:
    """What is told of an event beside its name."""
    return b"".join(
        _bytes(4, _text(10, name) + (_text(6, value) if isinstance(value, str) else _double(5, value)))
        for name, value in told.items()
    )


def varint(value: int) -> bytes:
    r"""An integer from 0 on, seven bits a byte, the lowest first.

    >>> varint(5), varint(300)
    (b'\x05', b'\xac\x02')
    """
    if value < 128:
        return _ONE_BYTE[value]
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode("utf-8", "replace"))


def _double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


_ONE_BYTE: Final = tuple(bytes((i,)) for i in range(128))
_FLOW: Final = varint(47 << 3 | 1)
_OF_SEQUENCE: Final = _number(10, _SEQUENCE) + _number(13, _LIKE_BEFORE) + varint(11 << 3 | 2)
