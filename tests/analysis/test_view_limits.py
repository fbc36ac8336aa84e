"""Where the words of live views change as one number changes or time passes: the limits as they are met."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.gpus.health import health
from llmtop.analysis.pages.events import events
from llmtop.analysis.pages.gpus import GpuRow, gpus_view
from llmtop.analysis.pages.header import header
from llmtop.analysis.pages.lanes import lanes_view
from llmtop.analysis.roofline.efficiency import efficiency_view
from llmtop.analysis.roofline.live import live_view, mean_point
from llmtop.analysis.roofline.server import server_roofline
from llmtop.analysis.server.heatmaps import run_queue_heatmap
from llmtop.analysis.server.history import server_history
from llmtop.analysis.server.objectives import judged_now
from llmtop.analysis.server.view import server_view
from llmtop.analysis.threads.idle_causes import idle_causes
from llmtop.analysis.threads.neighbours import neighbours
from llmtop.analysis.threads.shares import threads_view
from llmtop.analysis.threads.syscalls import syscalls_view
from llmtop.model import NS_PER_S, Metric, Target, Trace, TrackKind, Unknown
from tests.analysis.limits import limits
from tests.live_traces import TARGET, Scene, live_trace, probed
from tests.whole import whole

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


def gpu_rows(trace: Trace, target: Target | None = None) -> tuple[GpuRow, ...] | Unknown:
    view = gpus_view(trace, target)
    return view if isinstance(view, Unknown) else view.rows


VIEWS: dict[str, Callable[[Trace], object]] = {
    "header": lambda trace: header(trace, TARGET),
    "server": server_view,
    "objectives": judged_now,
    "gpus": lambda trace: gpus_view(trace, TARGET),
    "GPU processes": lambda trace: gpu_rows(trace, TARGET),
    "health": lambda trace: [health(trace, gpu) for gpu in trace.tracks_of(TrackKind.GPU)],
    "roofline": lambda trace: live_view(trace, ids.gpu(0), "bfloat16"),
    "mean point": lambda trace: mean_point(trace, ids.gpu(0), "bfloat16", 60 * NS_PER_S),
    "server's roofline": lambda trace: server_roofline(trace, TARGET),
    "efficiency": lambda trace: efficiency_view(trace, TARGET),
    "lanes": lanes_view,
    "history": server_history,
    "events": events,
    "threads": threads_view,
    "calls": syscalls_view,
    "queues": lambda trace: run_queue_heatmap(trace, 60 * NS_PER_S, 20),
    "idle": idle_causes,
    "neighbours": neighbours,
}
_NUMBERS = re.compile(r"[-+]?\d[\d.,e+-]*(?:, [-+]?\d[\d.,e+-]*)*(?: (?:[nµm]?s|[kMGT]?i?B?(?:/s)?|[kMGT])\b)?")


def words(view: Callable[[Trace], object], trace: Trace) -> str:
    """All that a view tells, whatever the numbers in it are."""
    return _NUMBERS.sub("#", whole(view=view(trace)))


def told(view: Callable[[Trace], object], of: Callable[[float], Trace], least: float, most: float) -> str:
    return ", ".join(where for where, _ in limits(lambda level: words(view, of(level)), least, most))


@cache
def silent(seconds: float) -> Trace:
    """No source has said anything for so long."""
    trace = watched(90)
    return replace(trace, end_ns=trace.end_ns + round(seconds * NS_PER_S))


@cache
def watched(seconds: float) -> Trace:
    return probed(live_trace(ticks=round(seconds)))


@pytest.mark.parametrize("name", VIEWS)
def test_how_long_what_was_said_counts(name: str, snapshot: SnapshotAssertion) -> None:
    assert f"silent: {told(VIEWS[name], silent, 0, 96)}\nseen: {told(VIEWS[name], watched, 1, 65)}" == snapshot


LEVELS: dict[Metric, tuple[float, tuple[str, ...]]] = {
    v.GPU_ACTIVE: (100.0, ("idle",)),
    v.GPU_DRAM: (100.0, ("gpus", "roofline", "mean point", "server's roofline")),
    v.GPU_SM_CLOCK: (2200.0, ("roofline", "mean point")),
    v.SERVER_RUNNING: (128.0, ("server's roofline",)),
}
"""Up to where, and the views whose words change."""


@cache
def of_scene(metric: Metric, level: float) -> Trace:
    return live_trace(Scene(is_moving=False, values={metric.name: level}), ticks=70)


@pytest.mark.parametrize("metric", LEVELS, ids=lambda metric: metric.name)
def test_the_limits_of_words(metric: Metric, snapshot: SnapshotAssertion) -> None:
    most, names = LEVELS[metric]
    lines = {name: told(VIEWS[name], partial(of_scene, metric), 0.0, most) for name in names}
    assert "\n".join(f"{name}: {line}" for name, line in lines.items()) == snapshot
