"""All live sources. A new one is one file and one line here."""

from __future__ import annotations

import os
import queue
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from llmtop.collectors.base import Aim, Check, Collector
    from llmtop.model import Target


def _nvml() -> Collector:
    from llmtop.collectors.gpus import GpuCollector

    return GpuCollector()


def _dcgm() -> Collector:
    from llmtop.collectors.dcgm import DcgmCollector

    return DcgmCollector()


def _self_cost() -> Collector:
    from llmtop.collectors import children
    from llmtop.collectors.selfcost import SelfCostCollector
    from llmtop.collectors.tracing.collector import running_helpers

    return SelfCostCollector(helpers=running_helpers, brief_ns=children.spent_ns)


def _proc(target: Target, aim: Aim) -> Collector:
    from llmtop.collectors.exits import Exits
    from llmtop.collectors.proc import ProcCollector
    from llmtop.collectors.signal_senders import SignalSenders
    from llmtop.collectors.tracing.collector import are_allowed

    senders = SignalSenders() if are_allowed(aim.probes) else None
    return ProcCollector(target, aim.engines, exits=Exits(senders=senders))


def _consumers(target: Target, aim: Aim) -> Collector:
    from llmtop.collectors.consumers import ConsumersCollector

    return ConsumersCollector(target)


def _tracer(target: Target, aim: Aim) -> Collector:
    from llmtop.collectors.tracing.collector import TracerCollector

    return TracerCollector(target, probes=aim.probes)


def _python(target: Target, aim: Aim) -> Collector:
    from llmtop.collectors.pyspy import PySpyCollector

    return PySpyCollector(target)


def _prometheus(target: Target, aim: Aim) -> Collector:
    from llmtop.collectors.prometheus import PrometheusCollector

    told = aim.endpoint.url
    return PrometheusCollector(
        replace(target, metrics_urls=(told,)) if told else target,
        aim.engines,
        find_urls=None if told else aim.find_urls,
        headers=aim.endpoint.headers,
        last_line=aim.last_line,
        asks_from=os.getpid() if told else None,
    )


def _connections(target: Target, aim: Aim) -> Collector:
    from llmtop.collectors.connections import ConnectionsCollector

    return ConnectionsCollector(target, find_urls=aim.find_urls)


OF_THE_HOST: tuple[Callable[[], Collector], ...] = (_nvml, _dcgm, _self_cost)
"""What looks at this machine, whichever server is watched."""
OF_A_TARGET: tuple[Callable[[Target, Aim], Collector], ...] = (
    _proc,
    _consumers,
    _tracer,
    _python,
    _prometheus,
    _connections,
)
"""What looks at one server: made anew when another one takes its place."""


def host_collectors() -> tuple[Collector, ...]:
    """The collectors for this machine."""
    return tuple(make() for make in OF_THE_HOST)


def target_collectors(target: Target, aim: Aim) -> tuple[Collector, ...]:
    """The collectors for a server."""
    return tuple(make(target, aim) for make in OF_A_TARGET)


CHECK_S = 20.0
"""The longest that one source's checks take by themselves: probes are compiled and tried, in some seconds."""


def checks(patience_s: float = CHECK_S) -> tuple[Check, ...]:
    """What each source can see here, for `llmtop doctor`; one that hangs is named, and the others are told."""
    from llmtop.collectors import dcgm, gpus, host_checks
    from llmtop.collectors.tracing import collector as tracers

    sources = {"GPUs": gpus.checks, "DCGM exporter": dcgm.checks, "host": host_checks.checks, "probes": tracers.checks}
    return bounded(sources, patience_s)


def bounded(sources: Mapping[str, Callable[[], Sequence[Check]]], patience_s: float) -> tuple[Check, ...]:
    """The checks of several sources, side by side, each for at most so long."""
    from llmtop.collectors.base import Check
    from llmtop.model import Unknown

    deadline_s = time.monotonic() + patience_s
    found = {name: _begin(check) for name, check in sources.items()}
    checks: list[Check] = []
    for name, one in found.items():
        try:
            result = one.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            why = Unknown(f"hung: it has not answered within {patience_s:.0f} s", "dmesg may say why")
            result = (Check(name, why),)
        if isinstance(result, Exception):
            raise result
        checks += result
    return tuple(checks)


def _begin(check: Callable[[], Sequence[Check]]) -> queue.SimpleQueue[Sequence[Check] | Exception]:
    """Make a source's checks in a thread of their own, which is left behind when they hang."""
    answer: queue.SimpleQueue[Sequence[Check] | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            answer.put(check())
        except Exception as error:  # told by the caller
            answer.put(error)

    threading.Thread(target=run, name="check", daemon=True).start()
    return answer
