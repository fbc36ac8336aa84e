"""A command that llmtop starts and owns: its output, its signals, its exit code, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from llmtop import procfs, programs
from llmtop.errors import TargetError
from llmtop.lines import MAX_LINES, Lines
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

_MOMENT_S = 1.0
_NAMED = 3
GRACE_S = 10.0
"""Time between SIGTERM and SIGKILL: servers give running requests some seconds to finish."""
_SUPERVISOR = Path(__file__).with_name("supervise.py")
_LOST_SUPERVISOR = 137
"""The command was killed with its supervisor: 128 + SIGKILL."""


class Launched:
    """A command in a session of its own, that never outlives llmtop.

    A supervisor process (`llmtop.servers.supervise`) stands between: it ends the command and everything the
    command has started when `close` is called or when llmtop is gone, however it went.

    Args:
        argv: The command and its arguments; looked up on PATH.
        capture: Read stdout and stderr, merged, into `lines`, with stdin empty. Otherwise all three are llmtop's.
        env: The command's whole environment; llmtop's when None.
        grace_s: Seconds from SIGTERM to SIGKILL in `close`.

    Raises:
        TargetError: The command does not exist or cannot be executed.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        capture: bool = True,
        env: Mapping[str, str] | None = None,
        grace_s: float = GRACE_S,
        max_lines: int = MAX_LINES,
    ) -> None:
        self.argv = tuple(argv)
        self.environment: Mapping[str, str] = dict(os.environ if env is None else env)
        self._grace_s = grace_s
        self._output = Lines(max_lines)
        self._ended = threading.Condition()
        self._exit_code: int | None = None
        self._control, theirs = socket.socketpair()
        with theirs:
            self._supervisor = _start_supervisor(theirs, capture, self.environment)
        self._messages = self._control.makefile("r")
        self.pid = self._order()
        self._threads = [threading.Thread(target=self._read_control, name="llmtop launched", daemon=True)]
        if self._supervisor.stdout is not None:
            self._threads.append(threading.Thread(target=self._read_output, name="llmtop log", daemon=True))
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def supervisor_pid(self) -> int:
        """The process that everything the command starts is below, also what has detached itself."""
        return self._supervisor.pid

    def lines(self, n: int) -> tuple[str, ...]:
        """The newest `n` lines of output, oldest first, safe to draw."""
        return self._output.last(n)

    def poll(self) -> int | None:
        """The exit code (128 + number after a signal), or None while the command runs."""
        return self._exit_code

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the end of the command; None when the time is up first."""
        with self._ended:
            self._ended.wait_for(lambda: self._exit_code is not None, timeout_s)
        return self._exit_code

    def send_signal(self, number: int) -> None:
        """Signal the command's whole process group; nothing happens when the command has ended."""
        with contextlib.suppress(OSError):
            self._send({"signal": int(number)})

    def close(self, say: Callable[[str], None] | None = None) -> None:
        """End the command and all it started: SIGTERM, then SIGKILL after the grace. Returns when all are gone.

        Args:
            say: Told what is waited for where that takes longer than a moment.
        """
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        try:
            self._supervisor.wait(_MOMENT_S)
        except subprocess.TimeoutExpired:
            if say is not None and (left := procfs.below(self._supervisor.pid)):
                named = ", ".join(f"{clean(procfs.name(pid))} ({pid})" for pid in left[:_NAMED])
                more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
                say(f"{named}{more} got SIGTERM and has not ended; SIGKILL follows {self._grace_s:g} s after that")
        try:
            self._supervisor.wait(self._grace_s + 5)
        except subprocess.TimeoutExpired:  # a descendant hangs in the kernel where even SIGKILL waits
            self._supervisor.kill()
            self._supervisor.wait()
        for thread in self._threads:
            thread.join(1.0)
        self._messages.close()
        self._control.close()

    def _order(self) -> int:
        """Have the supervisor start the command; return the command's PID."""
        self._send({"argv": self.argv, "grace_s": self._grace_s})
        reply = json.loads(self._messages.readline() or '{"error": "the supervisor did not start"}')
        if "error" in reply:
            self._supervisor.wait()
            if self._supervisor.stdout is not None:
                self._supervisor.stdout.close()
            self._messages.close()
            self._control.close()
            raise TargetError(f"cannot start {clean(self.argv[0])}: {reply['error']}; check the path and PATH")
        return int(reply["pid"])

    def _send(self, message: dict[str, object]) -> None:
        self._control.sendall(json.dumps(message).encode() + b"\n")

    def _read_control(self) -> None:
        reply = self._messages.readline()
        code = json.loads(reply)["exit"] if reply else _LOST_SUPERVISOR
        with self._ended:
            self._exit_code = int(code)
            self._ended.notify_all()

    def _read_output(self) -> None:
        assert self._supervisor.stdout is not None
        with self._supervisor.stdout as stream:
            while data := stream.read(65536):
                self._output.feed(data)
        self._output.feed(b"")


def _start_supervisor(control: socket.socket, capture: bool, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the supervisor with the socket. The command's words are not in its argv: it is no server itself."""
    if capture:
        env = {"PYTHONUNBUFFERED": "1", **env}  # or a Python server's log would arrive in blocks of 8 kB
    return programs.start(
        [sys.executable, *programs.ALONE, str(_SUPERVISOR), str(control.fileno())],
        stdin=subprocess.DEVNULL if capture else None,
        stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.STDOUT if capture else None,
        bufsize=0,
        pass_fds=(control.fileno(),),
        start_new_session=True,
        env=dict(env),
        cwd=None,  # that of the command
    )
