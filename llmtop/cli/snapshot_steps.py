"""What `llmtop.snapshot/1` says of an engine's steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.server.counted_steps import counted_steps
from llmtop.analysis.server.steps_view import steps_view
from llmtop.cli.documents import document_or_why, fact
from llmtop.model import NS_PER_S, Unknown

if TYPE_CHECKING:
    from llmtop.analysis.server.counted_steps import CountedSteps, LookGroup
    from llmtop.analysis.server.engine_steps import EngineStep
    from llmtop.analysis.server.step_causes import SlowStep
    from llmtop.analysis.server.steps_view import StepsView
    from llmtop.cli.documents import Json
    from llmtop.model import Trace

_MOST = 50
"""Slow steps that are listed, the newest ones: their number is told beside them."""
_NO_TAIL = Unknown("p99 is hardly above p50, or there are fewer than 100 steps", "look for longer: --seconds 30")


def steps_document(trace: Trace, window_ns: int) -> Json:
    """The section "steps", or why none is known."""
    return document_or_why(steps_view(trace, window_ns), steps_of)


def steps_of(view: StepsView) -> dict[str, Json]:
    """The section of steps that were seen."""
    return {
        "thread": view.loop.name,
        "found": view.loop.found,
        "source": view.loop.source,
        "count": len(view.newest),
        "per_s": view.per_s,
        "p50_s": view.p50_ns / NS_PER_S,
        "p99_s": view.p99_ns / NS_PER_S,
        "gpu_share": view.gpu_share,
        "slow_count": len(view.slow),
        "slow": [_slow(view, one) for one in view.slow[-_MOST:]],
        "tail": _tail(view),
        "notes": list(view.notes),
    }


def _slow(view: StepsView, one: SlowStep) -> Json:
    return {
        "ago_s": (view.end_ns - one.step.end_ns) / NS_PER_S,
        "excess_s": one.excess_ns / NS_PER_S,
        "cause": one.cause.value,
        "share": one.share,
        "evidence": one.evidence,
        **_step(one.step),
    }


def _step(step: EngineStep) -> dict[str, Json]:
    """Its numbers; what was not looked at is not among them."""
    counts = {"launches": step.launches, "graph_launches": step.graphs, "page_faults": step.faults}
    parts: dict[str, Json] = {part.value: ns / NS_PER_S for part, ns in step.parts.items()}
    told: dict[str, Json] = {name: value for name, value in counts.items() if value is not None}
    return {"time_s": step.time_ns / NS_PER_S, "parts_s": parts, **told}


def _tail(view: StepsView) -> Json:
    if view.tail is None:
        return fact(_NO_TAIL)
    shares: list[Json] = [{"cause": cause.value, "share": share} for cause, share in view.tail.shares.items()]
    return {"p99_less_p50_s": (view.tail.p99_ns - view.tail.p50_ns) / NS_PER_S, "shares": shares}


def counted_steps_document(trace: Trace, window_ns: int) -> Json:
    """The section "counted_steps": what the server's own counter tells, with probes or without."""
    return document_or_why(counted_steps(trace, window_ns), _counted)


def _counted(view: CountedSteps) -> Json:
    return {
        "source": view.source,
        "looks": len(view.looks),
        "count": view.steps,
        "per_s": view.per_s,
        "mean_s": view.mean_ns / NS_PER_S,
        "fastest_look_s": view.fastest_ns / NS_PER_S,
        "slowest_look_s": view.slowest_ns / NS_PER_S,
        "output_tokens": fact(view.output_tokens),
        "prompt_tokens": fact(view.prompt_tokens),
        **_group("with_prompts", view.with_prompts),
        **_group("without_prompts", view.without_prompts),
        "notes": list(view.notes),
    }


def _group(name: str, group: LookGroup | None) -> dict[str, Json]:
    """Nothing of no looks."""
    return {} if group is None else {name: {"looks": group.looks, "mean_s": group.mean_ns / NS_PER_S}}
