"""Run one command for llmtop and leave nothing of it behind, even when llmtop is killed.

A process of its own, between llmtop and the command, because only something that outlives `kill -9` of llmtop can
clean up after it. It is a child subreaper (prctl(2)), so descendants that detach themselves (double fork, setsid)
become its children and are found too. Run by path with `python -I -S`: standard library only.

Protocol, JSON lines over the socket on file descriptor `argv[1]`:
    llmtop -> here: {"argv": [...], "grace_s": 10.0}, then any of {"signal": 15}
    here -> llmtop: {"pid": 42} or {"error": "not found"}, then {"exit": 0}
End of file from llmtop means: end everything, then exit.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(control_fd: int) -> None:
    """Serve one command over the control socket until llmtop lets go of it."""
    control = socket.socket(fileno=control_fd)
    wake = _wake_on_signals()
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    messages = control.makefile("r")
    order = messages.readline()
    if not order:
        return
    request = json.loads(order)
    pid = _start(request["argv"], control)
    if pid is not None:
        _serve(pid, control, wake)
        _end_all(pid, control, request["grace_s"], wake)


def _wake_on_signals() -> int:
    """Have SIGCHLD and requests to end arrive as bytes on a pipe, so that one select waits for everything."""
    readable, writable = os.pipe()
    for end in (readable, writable):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writable)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    return readable


def _start(argv: list[str], control: socket.socket) -> int | None:
    try:
        # The command dies with this process should somebody kill -9 exactly it.
        process = subprocess.Popen(
            argv,
            start_new_session=True,
            preexec_fn=lambda: _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
        )
    except OSError as error:
        _tell(control, error=error.strerror or str(error))
        return None
    process.returncode = 0  # reaped by `_reap` with all the others: Popen must not try again
    _release_output()
    _tell(control, pid=process.pid)
    return process.pid


def _release_output() -> None:
    """Let go of the command's stdin and output, so that its readers see their end when it ends."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def _serve(pid: int, control: socket.socket, wake: int) -> None:
    """Pass signals on and the exit code back until llmtop closes the socket or asks by SIGTERM."""
    running, pending = True, b""
    while True:
        readable, _, _ = select.select([control.fileno(), wake], [], [])
        if wake in readable:
            numbers = os.read(wake, 4096)
            running = not _reap(pid, control) and running
            if set(numbers) - {signal.SIGCHLD}:
                return
        if control.fileno() in readable:
            received = control.recv(4096)
            if not received:
                return
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                if running:
                    _signal_group(pid, json.loads(line)["signal"])


def exit_code(status: int) -> int:
    """A wait status as a shell tells it: the exit code, or 128 and the signal's number."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _tell(control: socket.socket, **message: int | str) -> None:
    with contextlib.suppress(OSError):  # llmtop is gone: the end of file that follows says so
        control.sendall(json.dumps(message).encode() + b"\n")


def _reap(pid: int, control: socket.socket) -> bool:
    """Collect all children and adopted orphans that have ended; if the command is among them, tell its exit code."""
    has_ended = False
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == pid:
                has_ended = True
                _tell(control, exit=exit_code(ended[1]))
    return has_ended


def _end_all(pid: int, control: socket.socket, grace_s: float, wake: int) -> None:
    """SIGTERM to every descendant, SIGKILL to what is left after the grace, until there is none."""
    deadline = time.monotonic() + grace_s
    _signal_all(signal.SIGTERM)
    _signal_all(signal.SIGCONT)  # a stopped process could not obey
    while True:
        everything_ended = not list(descendants(os.getpid()))
        _reap(pid, control)  # after the look, so that the last ones to end are reaped too
        if everything_ended:
            return
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            _signal_all(signal.SIGKILL)
        select.select([wake], [], [], left_s if left_s > 0 else 0.05)
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)


def _signal_all(number: int) -> None:
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def descendants(root: int) -> Iterator[int]:
    """PIDs of all processes below `root` that have not ended, by the parents that /proc names."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # The name in brackets may hold anything: fields start after the last bracket (proc_pid_stat(5)).
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    children.setdefault(int(parent), []).append(int(entry.name))
    todo = children.get(root, [])
    while todo:
        pid = todo.pop()
        yield pid
        todo += children.get(pid, [])


if __name__ == "__main__":
    main(int(sys.argv[1]))
