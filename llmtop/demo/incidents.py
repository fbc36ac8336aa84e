"""Incidents that `llmtop demo --incident NAME` stages on its own server: the true cause of each is known.

Some are faults within the server's processes (`llmtop.demo.faults`), some are its settings and its load, some are done
to it from outside: signals, neighbours, a quota.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from llmtop import programs
from llmtop.demo.faults import Paging
from llmtop.demo.lifeline import child_environment
from llmtop.demo.limits import cpu_quota, why_no_quota
from llmtop.demo.options import Options
from llmtop.demo.process import DemoServer
from llmtop.frozen import frozen
from llmtop.model import Unknown

if TYPE_CHECKING:
    from types import TracebackType

_QUOTA = 0.15
"""CPUs, for all of the server."""
_NEIGHBOUR = "import ctypes\nctypes.CDLL(None).prctl(15, b'batch-job', 0, 0, 0)\nwhile True: pass"

STEADY = ("--phases=steady:3600", "--rate=2")

Stage = Callable[[DemoServer], AbstractContextManager[object]]


@frozen
class Incident:
    """One thing that goes wrong.

    Attributes:
        what: What is staged, in half a sentence.
        fault: A name in `faults.FAULTS`; empty for none.
        settings: Fields of `Options`.
        load: Flags of `llmtop.demo.load`.
        stage: What is done to the server from outside when it begins, undone at the end.
        why_not: Why it cannot be staged on this machine.
        verdicts: The rules of which one must be what llmtop says first; none where it may say nothing.
        beside: Rules that may speak too: what the cause leads to.
        is_watched: llmtop must have looked before it begins: what is gone cannot be told from what never was.
    """

    what: str
    fault: str = ""
    settings: Mapping[str, int | str] = field(default_factory=dict)
    load: tuple[str, ...] = STEADY
    stage: Stage | None = None
    why_not: Callable[[], Unknown | None] = lambda: None
    verdicts: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    is_watched: bool = False

    def options(self, options: Options, after_s: float) -> Options:
        """The server's settings with the incident's own."""
        fault = f"{self.fault}:{after_s:g}" if self.fault else ""
        return replace(options, **self.settings, fault=fault)  # type: ignore[arg-type]


class Staged:
    """An incident on a running server, from `after_s` on until it is left."""

    def __init__(self, incident: Incident, server: DemoServer, after_s: float) -> None:
        self._stage = incident.stage
        self._server = server
        self._undo = ExitStack()
        self._timer = threading.Timer(after_s, self._begin)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._stage is not None:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()
        self._undo.close()

    def _begin(self) -> None:
        assert self._stage is not None
        self._undo.enter_context(self._stage(self._server))


@contextlib.contextmanager
def _signalled(number: int, of: str, server: DemoServer) -> Iterator[None]:
    """A signal to a process of the server; one that was stopped goes on again at the end, or it could not leave."""
    pid = server.engine_pid if of == "engine" else server.pid
    os.kill(pid, number)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def _neighbours(count: int, cpus: set[int] | None = None) -> Iterator[None]:
    """Programs that compute all the time, on all CPUs or some."""
    with ExitStack() as stack:
        for _ in range(count):
            started = programs.start(
                [sys.executable, *programs.ALONE, "-c", _NEIGHBOUR],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=child_environment(),
                start_new_session=True,
            )
            stack.callback(started.wait)
            stack.callback(started.kill)
            if cpus:
                os.sched_setaffinity(started.pid, cpus)
        yield


def _crowded(_server: DemoServer) -> AbstractContextManager[None]:
    return _neighbours(4 * len(os.sched_getaffinity(0)))


@contextlib.contextmanager
def _crowded_api(server: DemoServer) -> Iterator[None]:
    """The API server shares one CPU with programs that compute; the engine has the others."""
    cpus = os.sched_getaffinity(0)
    last = max(cpus)
    _pin(server.pid, {last})
    _pin(server.engine_pid, cpus - {last})
    with _neighbours(6, {last}):
        yield


def _pin(pid: int, cpus: set[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            os.sched_setaffinity(int(thread.name), cpus)


def _throttled(server: DemoServer) -> AbstractContextManager[Path]:
    return cpu_quota(_QUOTA, server.pid, server.engine_pid)


@contextlib.contextmanager
def _restarted(server: DemoServer) -> Iterator[None]:
    """The server ends and another one starts on its port."""
    server.close()
    with DemoServer(port=server.port) as other:
        other.start_load(*STEADY)
        yield


def _why_no_second_cpu() -> Unknown | None:
    if len(os.sched_getaffinity(0)) > 1:
        return None
    return Unknown("it needs two CPUs, and llmtop may use one", "see taskset and the container's cpuset")


def _why_too_few_rights() -> Unknown | None:
    reason = why_no_quota()
    return Unknown(reason, "run llmtop as root on the host") if reason else None


def _why_pages_stay() -> Unknown | None:
    if Paging.can_be_staged():
        return None
    return Unknown("/var/tmp keeps its pages in memory", "mount a disk there")


_NONE = ("--phases=idle:3600",)
_BURSTS = ("--phases=steady:3600", "--rate=40", "--concurrency=256")
_AT_A_CAP = ("--phases=steady:3600", "--rate=60", "--concurrency=48")
_LONG_PROMPTS = ("--phases=steady:3600", "--rate=5", "--prompt-words=75", "--answer-tokens=20")
_MORE = ("--phases=steady:3600", "--rate=5")
_ROOM: Mapping[str, int | str] = {"kv_blocks": 1024}
"""So much KV cache that it is not what is short."""
_LIGHT: Mapping[str, int | str] = {"model": "tiny", "kv_blocks": 1024}
"""And an engine that needs a quarter of the CPU time."""
_LATE = ("objective-missed", "queue-growth", "queue-standing")
"""What late steps lead to, whatever makes them late."""

HEALTHY = Incident("nothing goes wrong: steady traffic, bursts and none in turn", load=())

INCIDENTS: Mapping[str, Incident] = {
    "healthy": Incident("nothing goes wrong: steady traffic"),
    "kv-exhaustion": Incident(
        "the KV cache is too small for the requests that run",
        settings={"kv_blocks": 40, "max_num_seqs": 16},
        load=_BURSTS,
        verdicts=("kv-bound",),
        beside=(*_LATE, "prefix-misses"),
    ),
    "saturated": Incident(
        "48 clients, each with its next request ready: the queue stands, and the engine computes all the time",
        settings=_ROOM,
        load=_AT_A_CAP,
        verdicts=("queue-standing", "cpu-bound"),
        beside=_LATE,
    ),
    "long-prompts": Incident(
        "long prompts come between the tokens of others, each in one step",
        settings={"kv_blocks": 1024, "max_step_tokens": 1024, "prefix_caching": False},
        load=_LONG_PROMPTS,
        verdicts=("cpu-bound", "objective-missed"),
        beside=_LATE,
    ),
    "neighbours": Incident(
        "other programs take the CPUs", stage=_crowded, verdicts=("run-queue-starvation",), beside=(*_LATE, "cpu-bound")
    ),
    "api-short-of-cpu": Incident(
        "other programs take the one CPU that the API server may use",
        settings=_LIGHT,
        load=_AT_A_CAP,
        stage=_crowded_api,
        why_not=_why_no_second_cpu,
        verdicts=("run-queue-starvation",),
        beside=(*_LATE, "cpu-bound", "endpoint-slow"),
    ),
    "throttled": Incident(
        "a CPU quota holds the server",
        load=_MORE,
        stage=_throttled,
        why_not=_why_too_few_rights,
        verdicts=("cgroup-throttled",),
        beside=(*_LATE, "endpoint-slow"),
    ),
    "gil": Incident(
        "threads of the engine fight for Python's lock",
        fault="gil",
        verdicts=("gil-bound", "engine-starved"),
        beside=_LATE,
    ),
    "lock": Incident(
        "the engine waits for a lock that a thread of its own holds",
        fault="lock",
        verdicts=("engine-starved",),
        beside=_LATE,
    ),
    "disk": Incident("each step waits for the disk", fault="disk", verdicts=("engine-starved",), beside=_LATE),
    "network": Incident(
        "each step waits for an answer over the network",
        fault="network",
        verdicts=("engine-starved",),
        beside=_LATE,
    ),
    "page-faults": Incident(
        "each step touches fresh memory", fault="page-faults", verdicts=("cpu-bound",), beside=_LATE
    ),
    "paging": Incident(
        "each step touches memory that has to be read from a disk",
        fault="paging",
        why_not=_why_pages_stay,
        verdicts=("paging",),
        beside=_LATE,
    ),
    "forks": Incident(
        "each step starts a process and waits for it",
        fault="forks",
        verdicts=("engine-starved",),
        beside=_LATE,
    ),
    "sleeping-engine": Incident(
        "each step begins with a sleep", fault="sleep", verdicts=("engine-starved",), beside=_LATE
    ),
    "tokenizer": Incident(
        "the API server computes a quarter of a second for each request",
        fault="tokenizer",
        settings=_LIGHT,
        load=_AT_A_CAP,
        verdicts=("api-bound", "gil-bound"),
        beside=(*_LATE, "requests-outside", "endpoint-slow"),
    ),
    "blocked-api": Incident(
        "requests queue in the API server for a call to elsewhere",
        fault="blocked-api",
        load=_MORE,
        verdicts=("requests-outside",),
    ),
    "busy-wait": Incident(
        "an engine without work keeps a CPU busy",
        fault="busy-wait",
        load=_NONE,
        verdicts=("idle-polling",),
    ),
    "engine-hangs": Incident(
        "the engine waits for a lock for ever, with requests running",
        fault="hang",
        verdicts=("engine-hung",),
        beside=_LATE,
    ),
    "engine-stopped": Incident(
        "the engine is stopped (SIGSTOP)",
        stage=partial(_signalled, signal.SIGSTOP, "engine"),
        verdicts=("process-stopped",),
        beside=("engine-hung",),
    ),
    "engine-killed": Incident(
        "the engine is killed, its API server stays",
        fault="outlive",
        stage=partial(_signalled, signal.SIGKILL, "engine"),
        verdicts=("process-gone",),
        is_watched=True,
    ),
    "engine-killed-idle": Incident(
        "the same without a request",
        fault="outlive",
        load=_NONE,
        stage=partial(_signalled, signal.SIGKILL, "engine"),
        verdicts=("process-gone",),
        is_watched=True,
    ),
    "engine-gone": Incident(
        "the engine was killed before llmtop came, its API server stays",
        fault="outlive-and-bury",
        stage=partial(_signalled, signal.SIGKILL, "engine"),
        verdicts=("process-gone",),
    ),
    "server-stopped": Incident(
        "the API server is stopped (SIGSTOP)",
        stage=partial(_signalled, signal.SIGSTOP, "server"),
        verdicts=("process-stopped",),
    ),
    "server-killed": Incident(
        "all of the server is killed",
        stage=partial(_signalled, signal.SIGKILL, "server"),
        verdicts=("process-gone",),
        is_watched=True,
    ),
    "restart": Incident(
        "the server ends, and another starts on its port",
        stage=_restarted,
        verdicts=("restarted", "objective-missed"),
        is_watched=True,
    ),
    "metrics-fail": Incident(
        "/metrics answers with an error", fault="metrics-fail", verdicts=("endpoint-failing",), is_watched=True
    ),
    "metrics-foreign": Incident(
        "/metrics answers with a web page", fault="metrics-foreign", verdicts=("endpoint-failing",), is_watched=True
    ),
    "metrics-slow": Incident("/metrics takes two seconds", fault="metrics-slow", verdicts=("endpoint-slow",)),
    "metrics-hang": Incident(
        "/metrics does not answer", fault="metrics-hang", verdicts=("endpoint-dead",), is_watched=True
    ),
}
"""By the name that the command line takes."""
