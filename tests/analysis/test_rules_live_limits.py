"""Where verdicts change as one thing of a situation changes and all else stays: the limits as they are met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from llmtop.analysis.rules.registry import diagnose
from tests.analysis.verdict_scenes import SITUATIONS, Scene, Thread

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

Change = Callable[[Scene, float], Scene]
STEPS, FINE = 6, 5
"""So many levels are tried from the least to the most, and so often the distance of two that differ is halved."""


def scenes(name: str) -> Change:
    return lambda scene, level: scene.but(**{name: level})


def engine(name: str) -> Change:
    """What the first thread does that is not the API server's."""

    def change(scene: Scene, level: float) -> Scene:
        chosen = max(scene.threads, key=_is_engine)
        changed: dict[str, Any] = {name: level}
        return scene.but(threads=[replace(one, **changed) if one is chosen else one for one in scene.threads])

    return change


def _is_engine(thread: Thread) -> bool:
    return thread.role != "APIServer"


def gpus(scene: Scene, level: float) -> Scene:
    return scene.but(gpus=[level for _ in scene.gpus])


CASES: dict[str, tuple[str, Change, float, float]] = {
    "waits for a CPU": ("starved", engine("run_queue"), 0.0, 0.4),
    "waits for a CPU, and the GPU has work": ("starved", gpus, 0.0, 100.0),
    "is throttled": ("throttled", scenes("throttled"), 0.0, 0.65),
    "waits for the GIL": ("gil", lambda scene, level: scene.but(gil_waits={7: level}), 0.0, 170.0),
    "computes": ("cpu-bound", engine("on_cpu"), 0.3, 1.0),
    "computes, seen by no probe": ("cpu-bound, no probes", engine("on_cpu"), 0.3, 1.0),
    "computes, and the GPU works": ("cpu-bound", gpus, 0.0, 100.0),
    "waits in CUDA": ("gpu-bound, spins", engine("sync"), 0.0, 0.95),
    "waits for a GPU that works": ("gpu-bound, spins", gpus, 40.0, 100.0),
    "reads memory": ("gpu-bound, sleeps", scenes("dram"), 0.0, 100.0),
    "computes in tensor cores": ("gpu-bound, sleeps", scenes("tensor"), 0.0, 100.0),
    "has no room": ("kv-bound", scenes("kv"), 0.5, 1.0),
    "preempts": ("kv-bound at any gauge", scenes("preemptions"), 0.0, 1.0),
    "has a queue": ("saturated", scenes("waiting"), 0.0, 57.0),
    "lets requests wait": ("saturated", scenes("queued_s"), 0.0, 3.0),
    "polls": ("polling", engine("on_cpu"), 0.3, 1.0),
    "sleeps on the disk": ("asleep on the disk", engine("on_cpu"), 0.0, 1.0),
    "answers slowly": ("endpoint slow", scenes("answer_s"), 0.1, 3.0),
    "is behind the other ranks": (
        "straggler",
        lambda scene, level: scene.but(
            threads=[replace(one, sync=level) if one.sync == 0.25 else one for one in scene.threads]
        ),
        0.0,
        0.7,
    ),
}


def _said(scene: Scene) -> str:
    return ", ".join(dict.fromkeys(finding.rule for finding in diagnose(scene.trace()).findings)) or "nothing"


@pytest.mark.parametrize("case", CASES)
def test_the_limits_of_verdicts(case: str, snapshot: SnapshotAssertion) -> None:
    situation, change, least, most = CASES[case]
    said = {
        level: _said(change(SITUATIONS[situation][0], level))
        for level in (least + (most - least) * step / (STEPS - 1) for step in range(STEPS))
    }
    for low, high in pairwise(sorted(said)):
        for _ in range(FINE):
            if said[low] == said[high]:
                break
            middle = (low + high) / 2
            said[middle] = _said(change(SITUATIONS[situation][0], middle))
            low, high = (low, middle) if said[middle] == said[high] else (middle, high)
    levels = sorted(said)
    changes = [f"up to {low:.4g}: {said[low]}" for low, high in pairwise(levels) if said[low] != said[high]]
    assert "\n".join([*changes, f"up to {levels[-1]:.4g}: {said[levels[-1]]}"]) == snapshot
