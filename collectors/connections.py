"""Requests that have come to the server and have no answer yet, whether or not its engine knows of them.

The kernel says of each TCP connection when data came and went last (sock_diag(7), tcp_info). Where a request came after
the last byte of an answer, or none was ever sent, somebody waits. Nothing is asked of the server, and no data is read.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.frozen import frozen
from llmtop.model import LIVE, Missing, Reading, Source, Target, Trace, Unknown

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Aim, Clock, Collector

AFTER_S = 1.0
"""A request without an answer counts from this age on: younger ones are on their way."""
MAX_SHARE = 0.001
"""Of one core: a thousand connections take 4 ms, once in four seconds."""
_WHERE = "TCP sockets (sock_diag)"
_DIAG = 4  # NETLINK_SOCK_DIAG
_TCP_OF_ALL = 18
"""TCPDIAG_GETSOCK, the older request (inet_diag.h): of both families at once. SOCK_DIAG_BY_FAMILY asks for one, and for
each the kernel goes through all of its connections, which is what the answer costs."""
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_INFO = 2  # INET_DIAG_INFO
_ESTABLISHED = 1 << 1
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_REQUEST = struct.Struct("=BBBB48sII")  # struct inet_diag_req
_MESSAGE = 4 + 48 + 20  # struct inet_diag_msg
_SENT, _RECEIVED, _IN, _OUT = 44, 52, 152, 156
"""Offsets in struct tcp_info (linux/tcp.h, since 4.6): ms since data was sent and received last, segments with data."""
_LEAST_INFO = 160
"""Bytes of struct tcp_info up to the counts of segments: kernels before 4.6 tell less."""
_ENDIAN = sys.byteorder
_PATIENCE_S = 1.0
"""For an answer of the kernel, which takes milliseconds."""
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_CLOSED = Unknown("the server's network cannot be looked into", "run llmtop as root")


@frozen
class Connection:
    """One connection: milliseconds since its last data, and how many segments of it went each way."""

    sent_ms: int
    received_ms: int
    segments_in: int
    segments_out: int

    @property
    def waits_s(self) -> float:
        """For how long whoever is at the other end has waited for the first byte of an answer; 0 for not at all.

        A request that came in the tick of the kernel's clock (1 to 10 ms) in which an answer ended is not seen: an
        answer that took less than a tick would look the same.
        """
        has_asked = self.segments_in > 0 and (self.segments_out == 0 or self.received_ms < self.sent_ms)
        return self.received_ms / 1000 if has_asked else 0.0


class ConnectionsCollector:
    """Counts the connections to the port where the server takes requests, and those on which an answer is due.

    Args:
        target: The server, in whose network namespace is looked.
        find_urls: Where its metrics are by now: a server that is still starting has no port yet.
        after_s: From which age on a request without an answer counts.
    """

    name = "connections"
    owns = Source(name, metrics=(v.ENDPOINT_CONNECTIONS, v.ENDPOINT_UNANSWERED, v.ENDPOINT_LONGEST_WAIT))
    period_s = 1.0

    def __init__(
        self,
        target: Target,
        find_urls: Callable[[], Sequence[str]] | None = None,
        clock: Clock = time.monotonic_ns,
        cpu_clock: Clock = time.thread_time_ns,
        after_s: float = AFTER_S,
    ) -> None:
        self._after_s = after_s
        self._pid = target.root_pid
        self._urls = tuple(target.metrics_urls)
        self._find_urls = find_urls
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._socket: socket.socket | None = None
        self._why: Unknown | None = None
        self._not_before_ns = 0

    def missing(self) -> Unknown | None:
        return None  # only looking tells

    def __enter__(self) -> Self:
        try:
            self._socket = _open(self._pid)
        except OSError as error:
            self._why = _CLOSED if error.errno in (errno.EPERM, errno.EACCES) else Unknown(f"no sock_diag: {error}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()

    def poll(self) -> Trace:
        now = self._clock()
        if self._socket is None:
            return Trace(LIVE, now, now, missing=self._missing())
        if now < self._not_before_ns:
            return Trace(LIVE, now, now)
        began = self._cpu_clock()
        try:
            readings = [
                one
                for port in self._ports()
                for one in _told(port, list(connections(self._socket, port)), self._after_s, now)
            ]
        except OSError as error:
            self._why = Unknown(f"no sock_diag: {error}")
            self._socket.close()
            self._socket, readings = None, []
        self._not_before_ns = now + int((self._cpu_clock() - began) / MAX_SHARE)
        return Trace(LIVE, now, self._clock(), readings=tuple(readings), missing=self._missing())

    def _missing(self) -> tuple[Missing, ...]:
        return () if self._why is None else (Missing(whats.source(self.name), self._why),)

    def _ports(self) -> set[int]:
        urls = self._find_urls() if self._find_urls is not None and not self._urls else self._urls
        return {port for url in urls if url.startswith("http") and (port := urlsplit(url).port) is not None}


def _told(port: int, found: Sequence[Connection], after_s: float, now: int) -> Iterator[Reading]:
    waits = [one.waits_s for one in found if one.waits_s >= after_s]
    track = ids.endpoint(port)
    yield Reading(track, v.ENDPOINT_CONNECTIONS, now, float(len(found)), _WHERE)
    yield Reading(track, v.ENDPOINT_UNANSWERED, now, float(len(waits)), _WHERE)
    yield Reading(track, v.ENDPOINT_LONGEST_WAIT, now, max(waits, default=0.0), _WHERE)


def connections(diag: socket.socket, port: int) -> Iterator[Connection]:
    """The established connections to a port, asked of a socket in the port's network namespace.

    Raises:
        OSError: The kernel does not tell.
    """
    diag.send(_asked(port))
    yield from _answers(diag)


def _asked(port: int) -> bytes:
    body = _REQUEST.pack(socket.AF_UNSPEC, 0, 0, 1 << (_INFO - 1), struct.pack(">HH", port, 0), _ESTABLISHED, 0)
    return _HEADER.pack(_HEADER.size + len(body), _TCP_OF_ALL, _DUMP, 0, 0) + body


def _answers(diag: socket.socket) -> Iterator[Connection]:
    while True:
        data = diag.recv(1 << 16)
        place = 0
        while place + _HEADER.size <= len(data):
            length, kind, *_ = _HEADER.unpack_from(data, place)
            if kind == _DONE:
                return
            if kind == _ERROR:
                (code,) = struct.unpack_from("=i", data, place + _HEADER.size)
                raise OSError(-code, os.strerror(-code))
            info = _info(data[place + _HEADER.size + _MESSAGE : place + length])
            if info is not None:
                sent, received, segments_in, segments_out = (
                    int.from_bytes(info[at : at + 4], _ENDIAN) for at in (_SENT, _RECEIVED, _IN, _OUT)
                )
                yield Connection(sent, received, segments_in, segments_out)
            place += (length + 3) & ~3


def _info(attributes: bytes) -> bytes | None:
    """The tcp_info, among what is told of a socket; None of a kernel that does not tell enough."""
    place = 0
    while place + 4 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, place)
        if length < 4:
            return None
        if kind == _INFO:
            info = attributes[place + 4 : place + length]
            return info if len(info) >= _LEAST_INFO else None
        place += (length + 3) & ~3
    return None


def _open(pid: int) -> socket.socket:
    """A socket of the kernel's socket diagnosis in the network namespace of a process.

    This thread alone is in that namespace meanwhile.
    """
    own, theirs = Path("/proc/thread-self/ns/net"), Path(f"/proc/{pid}/ns/net")
    if own.samefile(theirs):
        return _diag_socket()
    home, there = os.open(own, os.O_RDONLY | os.O_CLOEXEC), os.open(theirs, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(there)
        try:
            return _diag_socket()
        finally:
            _enter(home)
    finally:
        os.close(home)
        os.close(there)


def _diag_socket() -> socket.socket:
    diag = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _DIAG)
    diag.settimeout(_PATIENCE_S)
    return diag


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _NEW_NETWORK):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def collector(target: Target, aim: Aim) -> Collector:
    """For the registry."""
    return ConnectionsCollector(target, find_urls=aim.find_urls)
