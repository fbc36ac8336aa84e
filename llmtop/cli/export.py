"""Serve what the panes show to Prometheus, as long as one likes."""

from __future__ import annotations

import argparse
import hmac
import ipaddress
import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop.cli.live import (
    add_attach_argument,
    add_interval_argument,
    add_look_arguments,
    attached_session,
    seconds,
)
from llmtop.cli.waiting import ended_by_signal
from llmtop.errors import FileError, TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

LISTEN = "127.0.0.1:9400"
_END_S = 0.1
"""How soon it ends: so often it is looked whether it is to."""
_FRESH_S = 1.0
"""How long a page is given again: whoever asks often costs no more than who asks once a second."""
_TIMEOUT_S = 10.0
"""For a request to be sent."""
_LEAST_TOKEN = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_attach_argument(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=address,
        default=address(LISTEN),
        help=f"where /metrics is served (default {LISTEN}); beyond this machine's own addresses a token is needed",
    )
    parser.add_argument(
        "--token-file", metavar="FILE", type=Path, help="its first line has to come with each request, as bearer token"
    )
    add_interval_argument(parser)
    parser.add_argument("--seconds", metavar="N", type=seconds, help="end after N seconds (default: Ctrl+C)")
    add_look_arguments(parser)


def address(text: str) -> tuple[str, int]:
    """An argparse type: a host and a port.

    >>> address("127.0.0.1:9400"), address("[::1]:9400")
    (('127.0.0.1', 9400), ('::1', 9400))
    """
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([\w.-]+)):(\d{1,5})", text)
    if found is None or int(found[3]) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no address as {LISTEN} or [::1]:9400")
    return found[1] or found[2], int(found[3])


def is_own(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_own("127.0.0.1"), is_own("localhost"), is_own("0.0.0.0"), is_own("gpu7")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def token_in(path: Path | None, host: str) -> str:
    """The token that is asked for; empty for none.

    Raises:
        FileError: The file cannot be read.
        UsageError: There is none, or none to speak of, where others can reach the address.
    """
    if path is None:
        if not is_own(host):
            raise UsageError(f"others can reach {host}: --token-file FILE keeps them out (openssl rand -hex 32 > FILE)")
        return ""
    try:
        first = path.read_text(encoding="ascii").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not ASCII'}") from error
    if len(first) < _LEAST_TOKEN:
        raise UsageError(f"the first line of {path} is no token: {_LEAST_TOKEN} characters at least")
    return first


def run(args: argparse.Namespace) -> int:
    """Serve until a signal comes.

    Raises:
        FileError: The token cannot be read.
        TargetError: Nothing can listen there.
        UsageError: Others could read it, and there is no token.
    """
    host, port = args.listen
    token = token_in(args.token_file, host)
    session = attached_session(args, args.interval)
    from llmtop.cli.exposition import exposition  # with the client library, which nothing else here needs

    try:
        server = MetricsServer((host, port), lambda: exposition(session.trace(), session.target), token)
    except OSError as error:
        raise TargetError(f"{host}:{port} cannot be listened at: {error.strerror}; --listen names another") from error
    with ended_by_signal() as is_over:
        session.start()
        threading.Thread(target=server.serve_forever, args=(_END_S,), name="llmtop serves", daemon=True).start()
        print(f"llmtop: serving http://{server.shown}/metrics; Ctrl+C ends it", file=sys.stderr, flush=True)
        try:
            is_over.wait(args.seconds)
        finally:
            server.shutdown()
            server.server_close()
            session.stop()
    return 0


class MetricsServer(ThreadingHTTPServer):
    """Serves one page.

    Args:
        at: The address; port 0 is any that is free.
        page: Makes it.
        token: What has to come with a request; empty for nothing.

    Raises:
        OSError: Nothing can listen there.
    """

    daemon_threads = True

    def __init__(self, at: tuple[str, int], page: Callable[[], bytes], token: str = "") -> None:
        self.address_family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        self._make = page
        self.token = token
        self._made: tuple[float, bytes] = (-_FRESH_S, b"")
        self._making = threading.Lock()
        super().__init__(at, _Handler)

    @property
    def shown(self) -> str:
        """Its address in a URL."""
        host, port = self.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def page(self) -> bytes:
        """The page of now, or of just before."""
        with self._making:
            made_s, page = self._made
            if time.monotonic() - made_s >= _FRESH_S:
                page = self._make()
                self._made = time.monotonic(), page
            return page


class _Handler(BaseHTTPRequestHandler):
    """Answers GET /metrics, and to nothing else."""

    server: MetricsServer
    timeout = _TIMEOUT_S
    server_version = "llmtop"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer."""
        if not self._is_let_in():
            self._answer(401, b"a bearer token is needed\n", {"WWW-Authenticate": "Bearer"})
        elif self.path.partition("?")[0] != "/metrics":
            self._answer(404, b"there is only /metrics\n")
        else:
            try:
                page = self.server.page()
            except Exception as error:  # the border: one bad page never ends the program
                self._answer(500, f"{type(error).__name__}: please report this\n".encode())
                return
            self._answer(200, page, {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    def _is_let_in(self) -> bool:
        told = self.headers.get("Authorization", "").encode("utf-8", "replace")
        return not self.server.token or hmac.compare_digest(told, f"Bearer {self.server.token}".encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "text/plain; charset=utf-8"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is written of who asks."""
