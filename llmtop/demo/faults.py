"""What can go wrong inside the demo's processes: each fault is one thing, of which the true cause is known.

A fault is named with the seconds after which it begins, `lock:10`, and does its harm where its process calls it: before
a step of the engine, at a request, at a scrape of /metrics.
"""

from __future__ import annotations

import argparse
import mmap
import os
import resource
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from llmtop import programs
from llmtop.demo.lifeline import name_thread

Part: TypeAlias = Literal["engine", "server"]
Page: TypeAlias = tuple[int, bytes, str]
"""HTTP status, body and content type."""

_HELD_S = 0.08
"""How long a step waits for what it waits for: several times as long as it computes."""


_MOSTLY_READ = 32
"""Of 64 pages."""


class StagedFault:
    """Nothing goes wrong."""

    part: Part = "engine"
    """The process in which it goes wrong."""
    busy_waits = False
    """The engine asks for work again and again instead of sleeping."""
    outlives_engine = False
    """The API server goes on without its engine."""
    buries_engine = False
    """And waits for it, so that nothing is left of it, not even a zombie."""

    def before_step(self) -> None:
        """Called by the engine's main thread before each step."""

    def at_request(self) -> None:
        """Called by the API server's thread of a connection before a request is handed on."""

    def metrics(self) -> Page | None:
        """What is answered in place of the metrics; None for the metrics."""
        return None


class Lock(StagedFault):
    """A thread of the engine holds a lock most of the time, asleep; each step needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _start("kv-offload", self._hold)

    def before_step(self) -> None:
        with self._lock:
            pass

    def _hold(self) -> None:
        while True:
            with self._lock:
                time.sleep(_HELD_S)
            time.sleep(0.001)


class Gil(StagedFault):
    """Threads of the engine run Python code all the time."""

    def __init__(self) -> None:
        for n in range(6):
            _start(f"detokenize-{n}", _run_python)


class Disk(StagedFault):
    """Each step writes to a file, a little at a time, and waits for the disk each time."""

    def __init__(self) -> None:
        self._file, path = tempfile.mkstemp(dir="/var/tmp")  # which is on a disk, as /tmp often is not
        os.unlink(path)  # noqa: PTH108 - the file lives as long as the process
        self._block = os.urandom(64 << 10)

    def before_step(self) -> None:
        end_s = time.monotonic() + _HELD_S
        while time.monotonic() < end_s:
            os.pwrite(self._file, self._block, 0)
            os.fdatasync(self._file)


class Network(StagedFault):
    """Each step asks something over TCP and waits for the answer, as of a remote KV store."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._ours = socket.create_connection(listener.getsockname())
            self._theirs, _ = listener.accept()
        _start("kv-store", self._answer)

    def before_step(self) -> None:
        self._ours.sendall(b"?")
        self._ours.recv(1)

    def _answer(self) -> None:
        while self._theirs.recv(1):
            time.sleep(_HELD_S)
            self._theirs.sendall(b"!")


class PageFaults(StagedFault):
    """Each step maps fresh memory, touches every page of it and gives it back."""

    def before_step(self) -> None:
        size = 192 << 20
        with mmap.mmap(-1, size) as memory:
            memory.madvise(mmap.MADV_NOHUGEPAGE)
            for page in range(0, size, mmap.PAGESIZE):
                memory[page] = 1


class Paging(StagedFault):
    """Each step touches memory that has to be read from a file on a disk first, as of weights that find no room.

    Args:
        size: Bytes of the file.
    """

    def __init__(self, size: int = 32 << 20) -> None:
        self._file, path = tempfile.mkstemp(dir="/var/tmp")
        os.unlink(path)  # noqa: PTH108 - the file lives as long as the process
        os.write(self._file, os.urandom(size))
        os.fsync(self._file)
        self._memory = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
        self._memory.madvise(mmap.MADV_RANDOM)

    def before_step(self) -> None:
        self._memory.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        end_s = time.monotonic() + _HELD_S
        for page in range(0, len(self._memory), mmap.PAGESIZE):
            self._memory[page]
            if time.monotonic() > end_s:
                break

    @classmethod
    def can_be_staged(cls) -> bool:
        """Whether pages that are dropped are read from a disk again: a file system in memory keeps them."""
        few = cls(64 * mmap.PAGESIZE)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        few.before_step()
        few._memory.close()
        os.close(few._file)
        return resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before >= _MOSTLY_READ


class Forks(StagedFault):
    """Each step starts a process and waits for its end, as of one that asks a tool how much memory is free."""

    def before_step(self) -> None:
        programs.run(["/bin/sleep", f"{_HELD_S}"], check=True)


class Sleep(StagedFault):
    """Each step begins with a sleep, as one that polls for work does."""

    def before_step(self) -> None:
        time.sleep(2 * _HELD_S)


class Hang(StagedFault):
    """The engine waits for ever for a lock that nobody gives back, some steps after a request has come."""

    def __init__(self) -> None:
        self._steps = 10

    def before_step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()


class BusyWait(StagedFault):
    """Without work the engine yields its CPU again and again instead of sleeping."""

    busy_waits = True


class Tokenizer(StagedFault):
    """Each request costs the API server a quarter of a second of Python."""

    part: Part = "server"

    def at_request(self) -> None:
        end_s = time.thread_time() + 0.25
        while time.thread_time() < end_s:
            sum(range(1000))


class BlockedApi(StagedFault):
    """Each request waits in the API server for a call that takes one at a time, as of a service that checks keys."""

    part: Part = "server"

    def __init__(self) -> None:
        self._turn = threading.Lock()

    def at_request(self) -> None:
        with self._turn:
            time.sleep(0.6)


class Outlive(StagedFault):
    """The API server stays when its engine is gone."""

    part: Part = "server"
    outlives_engine = True


class OutliveAndBury(Outlive):
    """The API server stays when its engine is gone, and has waited for it."""

    buries_engine = True


class FailingMetrics(StagedFault):
    """The metrics answer with an error."""

    part: Part = "server"

    def metrics(self) -> Page:
        return 500, b"Internal Server Error", "text/plain"


class ForeignMetrics(StagedFault):
    """Something else answers for the metrics: a proxy's page."""

    part: Part = "server"

    def metrics(self) -> Page:
        return 200, b"<!DOCTYPE html><html><body><h1>Welcome</h1></body></html>", "text/html"


class SlowMetrics(StagedFault):
    """The metrics take two seconds."""

    part: Part = "server"

    def metrics(self) -> None:
        time.sleep(2.0)


class HangingMetrics(StagedFault):
    """The metrics do not answer."""

    part: Part = "server"

    def metrics(self) -> None:
        time.sleep(3600.0)


FAULTS: Mapping[str, type[StagedFault]] = {
    "lock": Lock,
    "gil": Gil,
    "disk": Disk,
    "network": Network,
    "page-faults": PageFaults,
    "paging": Paging,
    "forks": Forks,
    "sleep": Sleep,
    "hang": Hang,
    "busy-wait": BusyWait,
    "tokenizer": Tokenizer,
    "blocked-api": BlockedApi,
    "outlive": Outlive,
    "outlive-and-bury": OutliveAndBury,
    "metrics-fail": FailingMetrics,
    "metrics-foreign": ForeignMetrics,
    "metrics-slow": SlowMetrics,
    "metrics-hang": HangingMetrics,
}


class Faults:
    """The fault of a process, in its time: nothing until then.

    Args:
        spec: NAME:SECONDS as `fault_spec` checks it; empty for none.
        part: The process that asks: a fault of the other one is none here.
    """

    def __init__(self, spec: str, part: Part, clock: Callable[[], float] = time.monotonic) -> None:
        name, _, after_s = spec.partition(":")
        named = FAULTS.get(name, StagedFault)
        self._make = named if named.part == part else StagedFault
        self._clock = clock
        self._begin_s = clock() + float(after_s or 0)
        self._lock = threading.Lock()
        self._none = StagedFault()
        self._fault: StagedFault | None = None

    @property
    def due_s(self) -> float | None:
        """Seconds until it begins; None when it has begun."""
        return None if self._fault is not None else max(0.0, self._begin_s - self._clock())

    @property
    def now(self) -> StagedFault:
        """What goes wrong now."""
        if self._fault is None and self._clock() < self._begin_s:
            return self._none
        with self._lock:
            if self._fault is None:
                self._fault = self._make()
            return self._fault


def fault_spec(text: str) -> str:
    """An argparse type: a fault and the seconds after which it begins.

    >>> fault_spec("lock:10")
    'lock:10'
    """
    name, _, after_s = text.partition(":")
    if text and (name not in FAULTS or not after_s.replace(".", "", 1).isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(FAULTS)} with seconds, as lock:10")
    return text


def _run_python() -> None:
    while True:
        sum(range(1000))


def _start(name: str, target: Callable[[], None]) -> None:
    def run() -> None:
        name_thread(name)
        target()

    threading.Thread(target=run, name=name, daemon=True).start()
