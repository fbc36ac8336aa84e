"""One GET of a metrics page: bounded in time and size, kept alive, in the server's own network namespace."""

from __future__ import annotations

import ctypes
import http.client
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from llmtop import procfs

TIMEOUT_S = 3.0
"""For connecting, for each wait, and for the page as a whole: a metrics page takes milliseconds."""
MAX_BYTES = 8 << 20
"""A vLLM page is about 100 kB; eight data-parallel engines with all histograms stay below 1 MB."""
_REDIRECTS = (301, 302, 303, 307, 308)
_CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h
_HEADERS = {"Accept": "text/plain; version=0.0.4, */*; q=0.1", "User-Agent": "llmtop", "Connection": "keep-alive"}


@dataclass(frozen=True, slots=True)
class Page:
    """What came back.

    Attributes:
        location: Where a redirect points.
        is_cut: There was more than `MAX_BYTES`.
    """

    status: int
    body: bytes
    location: str = ""
    is_cut: bool = False


Fetch = Callable[[str], Page]
"""Raises OSError (refused, timed out, unreachable) or http.client.HTTPException (not HTTP)."""


class Fetcher:
    """GETs pages of one server over one kept connection.

    Args:
        pid: A process of the server; where it lives in another network namespace (a container), connections are
            made from inside that.
    """

    def __init__(self, pid: int, timeout_s: float = TIMEOUT_S, max_bytes: int = MAX_BYTES) -> None:
        self._pid = pid
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._connection: http.client.HTTPConnection | None = None
        self._origin = ""

    def __call__(self, url: str) -> Page:
        page = self._get(url)
        if page.status in _REDIRECTS:
            target = urlsplit(page.location)
            here = urlsplit(url)
            # Only to another path of the same server: a redirect must not make us talk to anyone else.
            if not target.netloc or target.netloc == here.netloc:
                path = target.path if target.path.startswith("/") else "/" + target.path
                return self._get(f"{here.scheme}://{here.netloc}{path}")
        return page

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _get(self, url: str) -> Page:
        parts = urlsplit(url)
        if parts.netloc != self._origin:
            self.close()
            self._origin = parts.netloc
        try:
            if self._connection is not None:
                try:
                    return self._ask(self._connection, parts.path)
                except (http.client.HTTPException, ConnectionError):
                    self.close()  # an idle connection that the server has closed: ask once more on a new one
            self._connection = _Connection(self._pid, parts.hostname or "", parts.port or 80, self._timeout_s)
            return self._ask(self._connection, parts.path)
        except BaseException:
            self.close()
            raise

    def _ask(self, connection: http.client.HTTPConnection, path: str) -> Page:
        deadline = time.monotonic() + self._timeout_s
        connection.request("GET", path or "/", headers=_HEADERS)
        response = connection.getresponse()
        body = bytearray()
        while len(body) <= self._max_bytes and (chunk := response.read1(1 << 16)):
            body += chunk
            if time.monotonic() > deadline:
                raise TimeoutError(f"the page was not complete after {self._timeout_s:g} s")
        is_cut = len(body) > self._max_bytes
        response.close()  # reading by pieces does not: without it the connection takes no other request
        if is_cut or response.will_close:
            self.close()
        return Page(response.status, bytes(body[: self._max_bytes]), response.headers.get("Location", ""), is_cut)


class _Connection(http.client.HTTPConnection):
    """A connection made in the network namespace of a process."""

    def __init__(self, pid: int, host: str, port: int, timeout_s: float) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self._pid = pid
        self._timeout_s = timeout_s

    def connect(self) -> None:
        if is_same_network(self._pid):
            super().connect()
        else:
            self.sock = _connect_inside(self._pid, (self.host, self.port), self._timeout_s)


def is_same_network(pid: int) -> bool:
    """Whether a process sees the same network as we do; True where that cannot be read."""
    theirs = procfs.read_link(f"{procfs.PROC}/{pid}/ns/net")
    return theirs is None or theirs == procfs.read_link(f"{procfs.PROC}/self/ns/net")


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
