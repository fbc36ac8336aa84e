"""The demo's processes from the outside: started, watched and ended as one thing."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

from llmtop import programs
from llmtop.demo.lifeline import child_environment
from llmtop.demo.options import Options
from llmtop.errors import LlmtopError
from llmtop.lines import Lines

READY_S = 120.0
"""Making the weights of the largest model on a busy GPU machine takes some tens of seconds."""
_STOP_S = 5.0
_CPU_RATE, _GPU_RATE = 3, 6
"""Requests a second that keep the device busy and leave it room; six times that, as in a burst, is too much."""


class DemoServer:
    """The embedded LLM server: an API server process with an engine process below it, and a load if asked for.

    Their output goes to `lines`, never to the terminal. They end with `close`, and when this process is gone: each
    reads a pipe that nobody else holds open.

    Args:
        port: 0 takes any that is free.

    Raises:
        LlmtopError: From `wait_ready`, and so from `with`: the server did not come up; says its last line.
    """

    def __init__(self, options: Options | None = None, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.host = host
        self.port = port
        self.description: dict[str, Any] = {}
        """What the engine says of itself once ready: model, device, kv_blocks, max_model_len, pid ..."""
        self._output = Lines()
        self._lifeline, self._their_lifeline = os.pipe()[::-1]
        self._load: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        output, self._output_end = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(output,), name="llmtop demo log", daemon=True)
        self._reader.start()
        self._ready, ready = os.pipe()
        flags = [f"--host={host}", f"--port={port}", f"--ready={ready}", *(options or Options()).settled().flags()]
        self._server = self._start("llmtop.demo.server", flags, ready)
        os.close(ready)

    def __enter__(self) -> Self:
        try:
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The API server's process id."""
        return self._server.pid

    @property
    def engine_pid(self) -> int:
        """The engine's process id; known once ready."""
        return int(self.description["pid"])

    @property
    def load_pid(self) -> int | None:
        """The load generator's process id; None while there is no load."""
        return self._load.pid if self._load is not None else None

    @property
    def url(self) -> str:
        """Where the API is, without a slash at the end; the port is known once ready."""
        return f"http://{self.host}:{self.port}"

    def lines(self, n: int) -> tuple[str, ...]:
        """The newest `n` lines of the processes' output, oldest first, safe to draw."""
        return self._output.last(n)

    def poll(self) -> int | None:
        """The server's exit code (128 + number after a signal), or None while it runs."""
        code = self._server.poll()
        return 128 - code if code is not None and code < 0 else code

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the server's end; None when the time is up first."""
        try:
            self._server.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return self.poll()

    def send_signal(self, number: int) -> None:
        """Signal the API server."""
        self._server.send_signal(number)

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Wait until requests are answered."""
        if self.description:
            return
        line = _read_line(self._ready, time.monotonic() + timeout_s)
        if not line:
            fault = "took too long to start" if line is None else "could not start"
            self.close()
            raise LlmtopError(f"the demo server {fault}: {'; '.join(self.lines(2)) or 'it said nothing'}")
        announced = json.loads(line)
        self.port, self.description = announced["port"], announced["engine"]

    def start_load(self, *flags: str) -> None:
        """Start the load generator on this server, with flags of `llmtop.demo.load`, at a rate that suits it."""
        rate = _GPU_RATE if self.description["device"] == "cuda" else _CPU_RATE
        self._load = self._start("llmtop.demo.load", [f"--url={self.url}", f"--rate={rate}", *flags])

    def close(self) -> None:
        """End all processes; returns when they are gone."""
        if self._is_closed:
            return
        self._is_closed = True
        os.close(self._lifeline)
        for process in filter(None, (self._load, self._server)):
            process.send_signal(signal.SIGTERM)
        for process in filter(None, (self._load, self._server)):
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for descriptor in (self._output_end, self._their_lifeline, self._ready):
            os.close(descriptor)
        self._reader.join(_STOP_S)

    def _start(self, module: str, flags: list[str], *descriptors: int) -> subprocess.Popen[bytes]:
        return programs.start(
            [sys.executable, "-P", "-m", module, *flags, f"--lifeline={self._their_lifeline}"],
            stdin=subprocess.DEVNULL,
            stdout=self._output_end,
            stderr=subprocess.STDOUT,
            pass_fds=[self._their_lifeline, *descriptors],
            start_new_session=True,  # Ctrl-C in the terminal is llmtop's alone to handle
            env=child_environment(),
        )

    def _read(self, output: int) -> None:
        with os.fdopen(output, "rb", buffering=0) as stream:
            while data := stream.read(65536):
                self._output.feed(data)


def _read_line(descriptor: int, deadline_s: float) -> bytes | None:
    """One line from a pipe; what there is of it when the pipe ends, None when the time is up."""
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([descriptor], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
            return None
        data = os.read(descriptor, 4096)
        if not data:
            return line
        line += data
    return line
