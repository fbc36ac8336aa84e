"""All live sources. A new one is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from llmtop.collectors.base import Aim, Check, Collector
    from llmtop.model import Target


def _nvml() -> Collector:
    from llmtop.collectors.nvml import NvmlCollector

    return NvmlCollector()


def _dcgm() -> Collector:
    from llmtop.collectors.dcgm import DcgmCollector

    return DcgmCollector()


def _self_cost() -> Collector:
    from llmtop.collectors import children
    from llmtop.collectors.selfcost import SelfCostCollector
    from llmtop.collectors.tracers import running_helpers

    return SelfCostCollector(helpers=running_helpers, brief_ns=children.spent_ns)


def _proc(target: Target, aim: Aim) -> Collector:
    from llmtop.collectors.proc import ProcCollector

    return ProcCollector(target, aim.engines)


def _consumers(target: Target, aim: Aim) -> Collector:
    from llmtop.collectors.consumers import ConsumersCollector

    return ConsumersCollector(target)


def _tracer(target: Target, aim: Aim) -> Collector:
    from llmtop.collectors.tracers import TracerCollector

    return TracerCollector(target, probes=aim.probes)


def _python(target: Target, aim: Aim) -> Collector:
    from llmtop.collectors.pyspy import PySpyCollector

    return PySpyCollector(target)


def _prometheus(target: Target, aim: Aim) -> Collector:
    from llmtop.collectors.prometheus import PrometheusCollector

    return PrometheusCollector(
        target, aim.engines, find_urls=aim.find_urls, headers=aim.headers, last_line=aim.last_line
    )


OF_THE_HOST: tuple[Callable[[], Collector], ...] = (_nvml, _dcgm, _self_cost)
"""What looks at this machine, whichever server is watched."""
OF_A_TARGET: tuple[Callable[[Target, Aim], Collector], ...] = (_proc, _consumers, _tracer, _python, _prometheus)
"""What looks at one server: made anew when another one takes its place."""


def host_collectors() -> tuple[Collector, ...]:
    """The collectors for this machine."""
    return tuple(make() for make in OF_THE_HOST)


def target_collectors(target: Target, aim: Aim) -> tuple[Collector, ...]:
    """The collectors for a server."""
    return tuple(make(target, aim) for make in OF_A_TARGET)


def checks() -> tuple[Check, ...]:
    """What each source can see here, for `llmtop doctor`."""
    from llmtop.collectors import dcgm, host_checks, nvml, tracers

    return (*nvml.checks(), *dcgm.checks(), *host_checks.checks(), *tracers.checks())
