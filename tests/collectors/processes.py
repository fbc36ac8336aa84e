"""Real processes with known behaviour, and a way to wait for what they come to show."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from llmtop import procfs

T = TypeVar("T")
DEADLINE_S = 90.0
"""For what never comes: nothing is measured by it, and a busy machine has time."""

THREADS = """
import ctypes, os, select, signal, socket, sys, threading, time

def named(name, work):
    def run():
        ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
        work()
    threading.Thread(target=run, daemon=True).start()

def spin():
    # sum() over a range keeps the interpreter's lock no longer than any loop; hashing gives it up.
    import hashlib
    data = b"x" * (1 << 20)
    while True:
        hashlib.sha256(data).digest()

read_end, write_end = os.pipe()
left, right = socket.socketpair()
held = threading.Lock(); held.acquire()
ep = select.epoll(); ep.register(read_end)
ep_idle = select.epoll()
"""
WORKS = {
    "spinner": "named('spinner', spin)",
    "sleeper": "named('sleeper', lambda: time.sleep(1000))",
    "futex": "named('futex', held.acquire)",
    "pipe": "named('pipe', lambda: os.read(read_end, 1))",
    "socket": "named('socket', lambda: left.recv(1))",
    "epoll": "named('epoll', lambda: ep_idle.poll())",
    "poll": "named('poll', lambda: select.select([right], [], []))",
    "signal": "named('signal', lambda: signal.sigwait({signal.SIGUSR1}))",
}


@contextmanager
def python(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program; it has said it is ready, and is killed at the end of the block."""
    program = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
            yield process
        finally:
            process.kill()


@contextmanager
def threads(*works: str) -> Iterator[subprocess.Popen[str]]:
    """A program with one thread for each of `works`, named like it; its main thread waits for its input."""
    code = THREADS + "\n".join(WORKS[work] for work in works) + "\nprint('ready', flush=True)\nsys.stdin.read()\n"
    with python(code) as process:
        yield process


TREE = """
import ctypes, json, os, signal, socket, sys

libc = ctypes.CDLL(None)

def call_oneself(argv, name):
    # What setproctitle does: write over the arguments where the kernel shows them from.
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = "\\0".join(argv).encode("utf-8", "surrogateescape")
    assert len(text) < end - start
    ctypes.memmove(start, text + bytes(end - start - len(text)), end - start)
    libc.prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME

def run(spec, out):
    call_oneself(spec["argv"], spec.get("name", "python"))
    os.environ.clear()
    listener = None
    if spec.get("listen"):
        listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1] if listener else 0
    os.write(out, json.dumps([spec["key"], os.getpid(), port]).encode() + b"\\n")
    for child in spec.get("children", ()):
        if os.fork() == 0:
            libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
            run(child, out)
    while True:
        signal.pause()

print("ready", flush=True)
run(json.loads(sys.argv[1]), 1)
"""
PADDING = "." * 2000
"""Room for titles that are longer than the real arguments."""


@dataclass(frozen=True)
class Fake:
    """A process of a made-up tree: what its command line and short name say, and whether it listens on a port."""

    key: str
    argv: tuple[str, ...]
    children: tuple[Fake, ...] = ()
    listen: bool = False
    name: str = "python"

    def processes(self) -> list[Fake]:
        """This one and all below."""
        return [self, *(one for child in self.children for one in child.processes())]


@dataclass(frozen=True)
class Running:
    """A made-up tree that runs: PIDs and ports by key."""

    pids: Mapping[str, int]
    ports: Mapping[str, int]


@contextmanager
def tree(root: Fake, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """Run a made-up tree of processes; all end with the block."""
    program = [sys.executable, "-c", TREE, json.dumps(asdict(root)), PADDING]
    environment = {"PATH": "/usr/bin:/bin", **(env or {})}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=cwd, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
            lines = [json.loads(process.stdout.readline()) for _ in root.processes()]
            yield Running({key: pid for key, pid, _ in lines}, {key: port for key, _, port in lines})
        finally:
            process.kill()


def is_running(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for has, as below a first process that reaps none."""
    stat = procfs.stat(pid)
    return stat is not None and stat.state not in "ZX"


def eventually(look: Callable[[], T | None], what: str = "it") -> T:
    """The first true result of `look`, which is asked until it gives one.

    Raises:
        AssertionError: It gave none before the deadline.
    """
    deadline = time.monotonic() + DEADLINE_S
    while True:
        result = look()
        if result:
            return result
        assert time.monotonic() < deadline, f"{what} did not come within {DEADLINE_S} s"
        time.sleep(0.005)  # the pace of the asking, not a wait for a result
