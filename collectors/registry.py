"""All live sources. A new one is one file and one line here."""

from __future__ import annotations

import queue
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from llmtop.collectors.base import Aim, Collector, DoctorCheck
    from llmtop.model import Target


OF_THE_HOST = ("gpus", "dcgm", "selfcost")
"""Modules beside this one whose `collector()` looks at this machine, whichever server is watched."""
OF_A_TARGET = (
    "proc",
    "consumers",
    "tracing.collector",
    "perf_counters",
    "pyspy",
    "prometheus",
    "connections",
    "core_dumps",
)
"""Those whose `collector(target, aim)` looks at one server: made anew when another one takes its place.

They are loaded when they are made: what a command does not use it does not wait for.
"""


def host_collectors() -> tuple[Collector, ...]:
    """The collectors for this machine."""
    return tuple(import_module(f"llmtop.collectors.{name}").collector() for name in OF_THE_HOST)


def target_collectors(target: Target, aim: Aim) -> tuple[Collector, ...]:
    """The collectors for a server."""
    return tuple(import_module(f"llmtop.collectors.{name}").collector(target, aim) for name in OF_A_TARGET)


CHECK_S = 20.0
"""The longest that one source's checks take by themselves: probes are compiled and tried, in some seconds."""


def checks(patience_s: float = CHECK_S) -> tuple[DoctorCheck, ...]:
    """What each source can see here, for `llmtop doctor`; one that hangs is named, and the others are told."""
    from llmtop.collectors import dcgm, gpus, host_checks
    from llmtop.collectors.tracing import collector as tracers

    sources = {"GPUs": gpus.checks, "DCGM exporter": dcgm.checks, "host": host_checks.checks, "probes": tracers.checks}
    return bounded(sources, patience_s)


def bounded(sources: Mapping[str, Callable[[], Sequence[DoctorCheck]]], patience_s: float) -> tuple[DoctorCheck, ...]:
    """The checks of several sources, side by side, each for at most so long."""
    from llmtop.collectors.base import DoctorCheck
    from llmtop.model import Unknown

    deadline_s = time.monotonic() + patience_s
    found = {name: _begin(check) for name, check in sources.items()}
    checks: list[DoctorCheck] = []
    for name, one in found.items():
        try:
            result = one.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            why = Unknown(f"hung: it has not answered within {patience_s:.0f} s", "dmesg may say why")
            result = (DoctorCheck(name, why),)
        if isinstance(result, Exception):
            raise result
        checks += result
    return tuple(checks)


def _begin(check: Callable[[], Sequence[DoctorCheck]]) -> queue.SimpleQueue[Sequence[DoctorCheck] | Exception]:
    """Make a source's checks in a thread of their own, which is left behind when they hang."""
    answer: queue.SimpleQueue[Sequence[DoctorCheck] | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            answer.put(check())
        except Exception as error:  # told by the caller
            answer.put(error)

    threading.Thread(target=run, name="check", daemon=True).start()
    return answer
