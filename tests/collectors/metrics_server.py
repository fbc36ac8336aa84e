"""A stand-in for a server's metrics endpoint, on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Answer = Callable[[BaseHTTPRequestHandler], None]


def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    """Answer with a body and its length."""
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


class MetricsServer(ThreadingHTTPServer):
    """Serves what `pages` says, by path; other paths are 404."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int = 0, path: Path | None = None) -> None:
        if path is not None:
            self.address_family = socket.AF_UNIX
        super().__init__(("127.0.0.1", port), _Handler, bind_and_activate=path is None)
        if path is not None:
            with chdir(path.parent):  # the address has room for 107 bytes only
                self.socket.bind(path.name)
            self.server_activate()
        self.pages: dict[str, str | Answer] = {}
        self.paths: list[str] = []
        self.connections: list[socket.socket] = []

    @property
    def port(self) -> int:
        return self.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one segment: two would wait 40 ms for a delayed acknowledgement
    server: MetricsServer

    def setup(self) -> None:
        super().setup()
        self.server.connections.append(self.connection)

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        page = self.server.pages.get(self.path)
        if callable(page):
            page(self)
        elif page is None:
            send(self, b"Not Found", 404)
        else:
            send(self, page.encode("utf-8", "surrogateescape"))

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def metrics_server(port: int = 0, path: Path | None = None) -> Iterator[MetricsServer]:
    """A running server, on a port or on a Unix socket; it ends with the block."""
    server = MetricsServer(port, path)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        for connection in server.connections:  # or kept ones would go on being served
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join()
