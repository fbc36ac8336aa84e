"""Serve what the panes show to Prometheus, as long as one likes."""

from __future__ import annotations

import argparse
import hmac
import ipaddress
import re
import socket
import ssl
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
from llmtop.errors import FileError, TargetError, UsageError, print_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="answer requests for this name of the machine too; others are refused (may be given several times)",
    )
    parser.add_argument("--tls-cert", metavar="FILE", type=Path, help="serve HTTPS with this certificate (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="its private key, where FILE does not have it")
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


def tls_context(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """What speaks TLS with a certificate; None without one.

    Raises:
        FileError: The certificate or its key cannot be used.
        UsageError: There is a key alone.
    """
    if cert is None:
        if key is not None:
            raise UsageError("--tls-key needs its certificate: --tls-cert FILE")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        named = f"{cert} and {key}" if key else str(cert)
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise FileError(
            f"{named}: no certificate with its key that can be used ({reason}); --tls-cert takes both as PEM"
        ) from error
    return context


def run(args: argparse.Namespace) -> int:
    """Serve until a signal comes.

    Raises:
        FileError: The token, or the certificate, cannot be read.
        TargetError: Nothing can listen there.
        UsageError: Others could read it, and there is no token.
    """
    host, port = args.listen
    token = token_in(args.token_file, host)
    tls = tls_context(args.tls_cert, args.tls_key)
    session = attached_session(args, args.interval)
    from llmtop.cli.exposition import exposition  # with the client library, which nothing else here needs

    try:
        server = MetricsServer(
            (host, port),
            lambda: exposition(session.trace(), session.target, is_public=not token),
            token,
            names=(host, *args.allow_host),
            tls=tls,
        )
    except OSError as error:
        raise TargetError(f"{host}:{port} cannot be listened at: {error.strerror}; --listen names another") from error
    with ended_by_signal() as is_over:
        session.start()
        threading.Thread(target=server.serve_forever, args=(_END_S,), name="llmtop serves", daemon=True).start()
        print_message(f"serving {server.url}/metrics; Ctrl+C ends it")
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
        names: Hosts that a request may be for, with the machine's own name and addresses.
        tls: What speaks TLS; None for plain HTTP.

    Raises:
        OSError: Nothing can listen there.
    """

    daemon_threads = True

    def __init__(
        self,
        at: tuple[str, int],
        page: Callable[[], bytes],
        token: str = "",
        names: Iterable[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        self._make = page
        self.token = token
        self._made: tuple[float, bytes] = (-_FRESH_S, b"")
        self._making = threading.Lock()
        own = socket.gethostname()
        self.names = frozenset(name.casefold().rstrip(".") for name in (own, own.partition(".")[0], *names))
        super().__init__(at, _Handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:  # the handshake is the request's, in its own thread and time
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        """Its address."""
        host, port = self.server_address[:2]
        return f"{self._scheme}://[{host!s}]:{port}" if ":" in str(host) else f"{self._scheme}://{host!s}:{port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever leaves early, or does not speak TLS, is no fault of the server and is not reported."""
        error = sys.exception()
        if not isinstance(error, OSError):
            print_message(f"a request failed: {type(error).__name__}; please report this")

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
        if not self._is_for_us():
            self._answer(421, b"this name is not served; llmtop export --allow-host NAME\n")
        elif not self._is_let_in():
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

    def _is_for_us(self) -> bool:
        """Whether a request names this machine.

        A web page can give a name of its own the address 127.0.0.1 (DNS rebinding); its requests then have that name.
        """
        hosts = self.headers.get_all("Host") or []
        found = re.fullmatch(r"(\[[0-9a-fA-F:.%]+\]|[^:\[\]]+)(?::\d{1,5})?", hosts[0]) if len(hosts) == 1 else None
        if found is None:
            return False
        name = found[1].strip("[]").casefold().rstrip(".")
        return is_own(name) or name in self.server.names or name == self.connection.getsockname()[0]

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
