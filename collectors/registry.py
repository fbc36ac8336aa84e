"""All live sources. A new one is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from llmtop.collectors.base import Check, Collector
    from llmtop.model import Engine, Target

    FindUrls = Callable[[], Sequence[str]]
    Maker = Callable[[Target | None, Sequence[Engine], FindUrls | None], Collector | None]


def _nvml(target: Target | None, engines: Sequence[Engine], find_urls: FindUrls | None) -> Collector:
    from llmtop.collectors.nvml import NvmlCollector

    return NvmlCollector()


def _dcgm(target: Target | None, engines: Sequence[Engine], find_urls: FindUrls | None) -> Collector:
    from llmtop.collectors.dcgm import DcgmCollector

    return DcgmCollector()


def _proc(target: Target | None, engines: Sequence[Engine], find_urls: FindUrls | None) -> Collector | None:
    from llmtop.collectors.proc import ProcCollector

    return ProcCollector(target, engines) if target else None


def _tracer(target: Target | None, engines: Sequence[Engine], find_urls: FindUrls | None) -> Collector | None:
    from llmtop.collectors.tracers import TracerCollector

    return TracerCollector(target) if target else None


def _python(target: Target | None, engines: Sequence[Engine], find_urls: FindUrls | None) -> Collector | None:
    from llmtop.collectors.pyspy import PySpyCollector

    return PySpyCollector(target) if target else None


def _prometheus(target: Target | None, engines: Sequence[Engine], find_urls: FindUrls | None) -> Collector | None:
    from llmtop.collectors.prometheus import PrometheusCollector

    return PrometheusCollector(target, engines, find_urls=find_urls) if target else None


def _self_cost(target: Target | None, engines: Sequence[Engine], find_urls: FindUrls | None) -> Collector:
    from llmtop.collectors.selfcost import SelfCostCollector

    if target is None:
        return SelfCostCollector()
    from llmtop.collectors import children
    from llmtop.collectors.tracers import running_helpers

    return SelfCostCollector(helpers=running_helpers, brief_ns=children.spent_ns)


COLLECTORS: tuple[Maker, ...] = (_nvml, _dcgm, _proc, _tracer, _python, _prometheus, _self_cost)
"""Each makes its collector for a target, or None where there is nothing for it to do without one."""


def live_collectors(
    target: Target | None, engines: Sequence[Engine], find_urls: FindUrls | None = None
) -> tuple[Collector, ...]:
    """The collectors for a target, or for this machine's GPUs alone.

    `find_urls` looks for the server's metrics again: a server that is still starting has no port yet.
    """
    made = (make(target, engines, find_urls) for make in COLLECTORS)
    return tuple(collector for collector in made if collector is not None)


def checks() -> tuple[Check, ...]:
    """What each source can see here, for `llmtop doctor`."""
    from llmtop.collectors import dcgm, host_checks, nvml, tracers

    return (*nvml.checks(), *dcgm.checks(), *host_checks.checks(), *tracers.checks())
