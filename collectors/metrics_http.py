"""One GET of a metrics page: bounded in time and size, kept alive, in the server's own network or at its socket."""

from __future__ import annotations

import ctypes
import http.client
import io
import ipaddress
import os
import socket
import ssl
import struct
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast
from urllib.parse import SplitResult, unquote, urljoin, urlsplit, urlunsplit

from llmtop import foreign, procfs
from llmtop.frozen import frozen

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from llmtop.collectors.base import Clock

TIMEOUT_S = 20.0
"""From connecting to the last byte, however it drips. A page takes milliseconds, but a front end at its limit gets to
it seconds late, and its numbers count then more than ever."""
MAX_BYTES = 8 << 20
"""A vLLM page is about 100 kB; eight data-parallel engines with all histograms stay below 1 MB."""
_REDIRECTS = (301, 302, 303, 307, 308)
"""Statuses that name another place in Location (RFC 9110, 15.4)."""
_CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h
_EITHER = 32
"""For zlib: by its first bytes a stream is gzip's or zlib's."""
_HEADERS = {"Accept": "text/plain; version=0.0.4, */*; q=0.1", "User-Agent": "llmtop", "Connection": "keep-alive"}
_STATUS_LINE = b"HTTP/"
_UNIX = "http+unix"
_TCP_INFO = struct.Struct("=B55xI")
"""Of struct tcp_info (include/uapi/linux/tcp.h): the state, and the milliseconds since the last ACK, the FIN's here."""
_CLOSE_WAIT = 8
"""TCP_CLOSE_WAIT: the other side has sent its last byte (include/net/tcp_states.h)."""
_TLS_ALERT = 0x15  # RFC 8446, 5.1: the content type of an alert


class NotHttpError(http.client.HTTPException):
    """Something answers, but not in HTTP."""

    def __init__(self, said: bytes) -> None:
        super().__init__(f"{said[:16]!r} is no HTTP")
        self.is_tls = said[:1] == bytes([_TLS_ALERT])


@frozen
class Page:
    """What came back.

    Attributes:
        location: Where a redirect points.
        is_cut: There was more than `MAX_BYTES`.
        t_ns: When the first byte came: then the page had been written; None where that was not noted.
    """

    status: int
    body: bytes
    location: str = ""
    is_cut: bool = False
    t_ns: int | None = None


Fetch = Callable[[str], Page]
"""Raises OSError (refused, timed out, unreachable, TLS) or http.client.HTTPException (not HTTP)."""


class Fetcher:
    """GETs pages of one server over one kept connection.

    Args:
        pid: A process of the server; where it lives in another network namespace (a container), connections are
            made from inside that.
        headers: Sent besides our own: a key.
    """

    def __init__(
        self,
        pid: int,
        timeout_s: float = TIMEOUT_S,
        max_bytes: int = MAX_BYTES,
        headers: Mapping[str, str] | None = None,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self.timeout_s = timeout_s
        """May be changed between two pages."""
        self._pid = pid
        self._max_bytes = max_bytes
        self._headers = _HEADERS | dict(headers or {})
        self._clock = clock
        self._connection: _Connection | None = None
        self._origin = ""
        self._came_ns = 0
        """When the last page came."""
        self.closed_ns: int | None = None
        """When the server closed the connection that was kept, as the kernel knows it; None while it is open."""

    def __call__(self, url: str) -> Page:
        page = self._get(url)
        if page.status in _REDIRECTS:
            here = urlsplit(url)
            target = urlsplit(urljoin(here.path, page.location))
            # Only to another path of the same server: a redirect must not make us talk to anyone else.
            if not target.netloc or (target.scheme, target.netloc) == (here.scheme, here.netloc):
                return self._get(urlunsplit((here.scheme, here.netloc, target.path, target.query, "")))
        return page

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _get(self, url: str) -> Page:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        asked = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        deadline = time.monotonic() + self.timeout_s
        if origin != self._origin:
            self.close()
            self._origin = origin
        try:
            if self._connection is not None:
                self._note_close(self._connection)
            if self._connection is not None:
                try:
                    return self._ask(self._connection, asked, deadline)
                except (http.client.HTTPException, ConnectionError):
                    self.closed_ns = self._clock()
                    self.close()  # an idle connection that the server has closed: ask once more on a new one
            self._connection = _Connection(self._pid, parts)
            return self._ask(self._connection, asked, deadline)
        except BaseException:
            self.close()
            raise

    def _note_close(self, connection: _Connection) -> None:
        """Leave a connection that the server has closed, before anything is sent: that would change what is known.

        The clock is read first: a busy machine may stop us between the two, and what was closed would seem to be later.
        The kernel counts in ticks: what it says may be some ms before the last page, after which it was closed.
        """
        now_ns = self._clock()
        since_ns = connection.closed_for_ns()
        if since_ns is not None:
            self.closed_ns = max(now_ns - since_ns, self._came_ns)
            self.close()

    def _ask(self, connection: _Connection, path: str, deadline: float) -> Page:
        connection.deadline = deadline
        connection.request("GET", path, headers=self._headers)
        with connection.getresponse() as response:  # closed, or the connection takes no other request
            t_ns = self._came_ns = self._clock()
            self.closed_ns = None
            body = _unpacked(self._body(response), response.headers.get("Content-Encoding", ""), self._max_bytes + 1)
        is_cut = len(body) > self._max_bytes
        if is_cut or response.will_close:
            self.close()
        location = response.headers.get("Location", "")
        return Page(response.status, bytes(body[: self._max_bytes]), location, is_cut, t_ns)

    def _body(self, response: http.client.HTTPResponse) -> bytearray:
        """What came, and no more than is of use.

        Raises:
            IncompleteRead: It broke off. Half a page has numbers that are cut off, and lacks others.
        """
        announced = response.length or 0
        body = bytearray()
        while len(body) <= self._max_bytes and (chunk := response.read1(1 << 16)):
            body += chunk
        if len(body) < min(announced, self._max_bytes):
            raise http.client.IncompleteRead(bytes(body), announced - len(body))
        return body


def _unpacked(body: bytearray, encoding: str, most: int) -> bytearray:
    """What a proxy has compressed though nobody asked it to; so many bytes at most."""
    if encoding.lower() not in ("gzip", "x-gzip", "deflate"):
        return body
    try:
        return bytearray(zlib.decompressobj(zlib.MAX_WBITS | _EITHER).decompress(body, most))
    except zlib.error:  # it is not what it says: whoever reads it sees what it is
        return body


class _Connection(http.client.HTTPConnection):
    """A connection in the network of a process, of which no wait goes beyond one deadline."""

    def __init__(self, pid: int, parts: SplitResult) -> None:
        secure = parts.scheme == "https"
        host = "localhost" if parts.scheme == _UNIX else parts.hostname or ""
        super().__init__(host, (parts.port or (443 if secure else 80)) if parts.scheme != _UNIX else 80)
        self.deadline = 0.0
        self._pid = pid
        self._path = unquote(parts.netloc) if parts.scheme == _UNIX else ""
        self._secure = secure

    def connect(self) -> None:
        left_s = self.left_s()
        if self._path:
            sock = _connect_unix(self._pid, self._path, left_s)
        elif is_same_network(self._pid):
            sock = socket.create_connection((self.host, self.port), left_s)
        else:
            sock = _connect_inside(self._pid, (self.host, self.port), left_s)
        sock.settimeout(self.left_s())
        if self._secure:
            try:
                sock = _context(self.host).wrap_socket(sock, server_hostname=self.host)
            except BaseException:
                sock.close()
                raise
        # http.client asks of a socket only what this has.
        self.sock = cast("socket.socket", _Timed(sock, self))
        self._opened = sock

    def closed_for_ns(self) -> int | None:
        """How long ago the other side has closed it; None where it has not, or it is no TCP connection."""
        if self.sock is None or self._path:
            return None
        try:
            info = self._opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        except OSError:
            return None
        state, last_ack_ms = _TCP_INFO.unpack(info)
        return int(last_ack_ms) * 1_000_000 if state == _CLOSE_WAIT else None

    def left_s(self) -> float:
        """Seconds until the deadline.

        Raises:
            TimeoutError: It has passed.
        """
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the page was not complete in time")
        return left_s


class _Timed:
    """A socket whose reads and writes all end at the connection's deadline.

    It is open as long as it or an answer is, as files of a socket are: of a server that closes after each answer
    http.client closes the socket once the headers are there, and reads the body after that.
    """

    def __init__(self, sock: socket.socket, connection: _Connection) -> None:
        self._sock = sock
        self._connection = connection
        self._users = 1

    def sendall(self, data: ReadableBuffer) -> None:
        self._sock.settimeout(self._connection.left_s())
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        self._users += 1
        return io.BufferedReader(_Answer(self._sock, self._connection, self.close))

    def close(self) -> None:
        """One user less."""
        self._users -= 1
        if not self._users:
            self._sock.close()


class _Answer(io.RawIOBase):
    """The bytes of one answer. One that does not begin like HTTP is known for it at once, not after a silence."""

    def __init__(self, sock: socket.socket, connection: _Connection, on_close: Callable[[], None]) -> None:
        super().__init__()
        self._sock = sock
        self._connection = connection
        self._on_close = on_close
        self._head = b""

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._on_close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._sock.settimeout(self._connection.left_s())
        view = memoryview(buffer)
        count = self._sock.recv_into(view)
        if count and len(self._head) < len(_STATUS_LINE):
            self._head += bytes(view[:count])
            if not self._head.startswith(_STATUS_LINE[: len(self._head)]):
                raise NotHttpError(self._head)
        return count


def _context(host: str) -> ssl.SSLContext:
    """How a server is believed to be itself: on this machine without a certificate that says so.

    Whoever could stand in for a server at an address of this machine runs here already; and certificates are made for
    the name that clients use, never for a loopback address.
    """
    context = ssl.create_default_context()
    if is_here(host):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def is_here(host: str) -> bool:
    """Whether a host is an address of this machine: one that a socket can be bound to."""
    if host == "localhost":
        return True
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except (ValueError, OSError):
        return False
    return True


def is_same_network(pid: int) -> bool:
    """Whether a process sees the same network as we do; True where that cannot be read."""
    theirs = procfs.read_link(f"{procfs.PROC}/{pid}/ns/net")
    return theirs is None or theirs == procfs.read_link(f"{procfs.PROC}/self/ns/net")


def _connect_unix(pid: int, path: str, timeout_s: float) -> socket.socket:
    """Connect to a Unix socket as the process sees it: in its container's files.

    Raises:
        FileNotFoundError: It is not there (yet).
        PermissionError: It belongs to another user.
    """
    if procfs.read_link(f"{procfs.PROC}/{pid}/root") is None and os.geteuid() != 0:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)  # another user's server: with our own rights
    else:
        descriptor = foreign.found_socket(pid, path)
    # Through a descriptor: the address of a Unix socket has room for 107 bytes only.
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(f"{procfs.PROC}/self/fd/{descriptor}")
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(descriptor)
    return sock


def _connect_inside(pid: int, address: tuple[str, int], timeout_s: float) -> socket.socket:
    """Connect from inside a process's network namespace.

    A thread can enter a namespace by itself, and a socket stays in the one where it was made. So a thread is
    spent on making the socket, and nothing else of llmtop ever leaves its own namespace.

    Raises:
        PermissionError: Entering needs CAP_SYS_ADMIN.
    """
    outcome: list[socket.socket | OSError] = []

    def connect() -> None:
        try:
            _enter_network(pid)
            outcome.append(socket.create_connection(address, timeout_s))
        except OSError as error:
            outcome.append(error)

    thread = threading.Thread(target=connect, name="llmtop netns", daemon=True)
    thread.start()
    thread.join()
    if isinstance(outcome[0], OSError):
        raise outcome[0]
    return outcome[0]


def _enter_network(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns is there from Python 3.12 on
    fd = os.open(f"{procfs.PROC}/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(fd, _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot enter the network namespace of process {pid}: {os.strerror(code)}")
    finally:
        os.close(fd)
