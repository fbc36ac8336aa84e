"""Where verdicts change as one thing of a situation changes and all else stays: the limits as they are met."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules import (
    clocks_capped,
    compute_bound,
    kv_bound,
    memory_bound_decode,
    prefix_misses,
    queue_growth,
    requests_held,
    requests_outside,
    speculation_poor,
)
from llmtop.analysis.rules.base import Rule
from llmtop.analysis.rules.registry import diagnose
from tests.analysis.limits import in_full, limits, without_numbers
from tests.analysis.test_rules_live import Values, clocks, gpu, prefix, server, trace
from tests.analysis.verdict_scenes import SITUATIONS, Scene, Thread, findings_of

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from llmtop.model import Trace

Change = Callable[[Scene, float], Scene]


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


@pytest.mark.parametrize("case", CASES)
def test_the_limits_of_verdicts(case: str, snapshot: SnapshotAssertion) -> None:
    situation, change, least, most = CASES[case]
    scene = SITUATIONS[situation][0]

    def said(level: float) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.rule for one in diagnose(change(scene, level).trace()).findings))

    found = limits(said, least, most)
    assert "\n".join(f"{where}: {', '.join(rules) or 'nothing'}" for where, rules in found) == snapshot


def api_server(name: str) -> Change:
    def change(scene: Scene, level: float) -> Scene:
        changed: dict[str, Any] = {name: level}
        chosen = next(one for one in scene.threads if not _is_engine(one))
        return scene.but(threads=[replace(one, **changed) if one is chosen else one for one in scene.threads])

    return change


def whole(name: str) -> Change:
    return lambda scene, level: scene.but(**{name: round(level)})


EACH: dict[str, tuple[Change, float, str]] = {
    "GPUs": (gpus, 100.0, "cpu-bound"),
    "DRAM": (scenes("dram"), 100.0, "well"),
    "tensor cores": (scenes("tensor"), 100.0, "well"),
    "running": (scenes("running"), 16.0, "cpu-bound"),
    "waiting": (scenes("waiting"), 64.0, "saturated"),
    "throttled": (scenes("throttled"), 1.0, "starved"),
    "silent": (whole("silent_for"), 24.0, "starved"),
    "looked at": (whole("seconds"), 90.0, "starved"),
    "engine on CPU": (engine("on_cpu"), 1.0, "starved"),
    "engine queued": (engine("run_queue"), 1.0, "throttled"),
    "engine in CUDA": (engine("sync"), 1.0, "cpu-bound"),
    "engine yields": (engine("yields"), 500_000.0, "cpu-bound"),
    "API server on CPU": (api_server("on_cpu"), 1.0, "api-bound"),
    "API server queued": (api_server("run_queue"), 1.0, "api-bound"),
    "preemptions": (scenes("preemptions"), 1.0, "saturated"),
    "finished": (scenes("finished"), 40.0, "saturated"),
    "queued": (scenes("queued_s"), 4.0, "a short queue, soon served"),
    "answer": (scenes("answer_s"), 4.0, "alive"),
    "tokens": (scenes("tokens"), 2000.0, "engine deadlocked"),
    "ITL": (scenes("itl"), 0.2, "well"),
    "KV": (scenes("kv"), 1.0, "saturated"),
    "pressure": (scenes("pressure"), 40.0, "starved"),
}
"""What changes, up to where, and in which situation."""


@pytest.mark.parametrize("case", EACH)
def test_the_limits_of_what_is_said(case: str, snapshot: SnapshotAssertion) -> None:
    change, most, situation = EACH[case]
    found = limits(partial(_all_said, change, SITUATIONS[situation][0]), 0.0, most)
    lines = [f"{where}: {', '.join(str(one[0]) for one in said) or 'nothing'}" for where, said in found]
    assert "\n".join([situation, *lines]) == snapshot


def _all_said(change: Change, scene: Scene, level: float) -> tuple[tuple[object, ...], ...]:
    return without_numbers(diagnose(change(scene, level).trace()).findings)


DRAFTS: Values = {(ids.server(1), v.SERVER_DRAFTED): 200.0, (ids.server(1), v.SERVER_ACCEPTED): 50.0}
OUTSIDE: Values = {(ids.endpoint(1), v.ENDPOINT_UNANSWERED): 14.0, (ids.endpoint(1), v.ENDPOINT_LONGEST_WAIT): 4.0}
ALONE: dict[str, tuple[Rule, Values]] = {
    "memory-bound": (memory_bound_decode, gpu(dram=84, tensor=18, sm=98, busy=98) | server(kv=0.6, waiting=3)),
    "memory-bound in bursts": (memory_bound_decode, gpu(dram=20, tensor=3, busy=25)),
    "compute-bound": (compute_bound, gpu(dram=35, tensor=72, busy=90)),
    "preempts": (kv_bound, server(kv=0.85, waiting=2, preemptions=0.5, requests=4.0, running=8)),
    "preempts, and nothing waits": (kv_bound, server(kv=0.85, waiting=0, preemptions=0.5, running=8)),
    "counts no preemptions": (kv_bound, server(kv=0.97, waiting=2, running=8)),
    "drafts in vain": (speculation_poor, DRAFTS | server(running=20)),
    "says that it drafts in vain": (
        speculation_poor,
        server(running=20) | {(ids.server(1), v.SERVER_ACCEPTANCE): 0.4},
    ),
    "holds requests": (requests_held, server(waiting=4) | {(ids.server(1), v.SERVER_HELD): 3.0}),
    "keeps requests outside": (requests_outside, server(running=1, waiting=1) | OUTSIDE),
    "a growing queue": (queue_growth, server(waiting=[2, 8, 16], running=[60, 64])),
    "near the power limit": (clocks_capped, clocks(0x04, power=690)),
    "hot": (clocks_capped, clocks(0x20, heat=88, memory=88)),
    "hot memory": (clocks_capped, clocks(0x40, heat=70, memory=96)),
}
"""A rule, and what it speaks on."""


def _ends(values: Values, key: Any, level: float) -> Values:
    """With another value of one of them; of those that change it is the last."""
    before = values[key]
    return {**values, key: [*before[:-1], level] if isinstance(before, list) else level}


def _of_each(rule: Rule, values: Values) -> Iterator[str]:
    for key, value in values.items():
        last = value[-1] if isinstance(value, list) else value
        if key[1] is not v.GPU_CLOCK_REASONS:
            found = limits(partial(_said_with, rule, values, key), 0.0, 2 * last or 4.0)
            yield _line(f"{key[0]} {key[1].name}", found)
    yield _line("looks", limits(lambda ticks: _said(rule, trace(values, ticks=round(ticks))), 1, 33))


def _said(rule: Rule, seen: Trace) -> tuple[object, ...]:
    return without_numbers(findings_of(rule, seen))


def _said_of(rule: Rule, of: Callable[[float], Trace], level: float) -> tuple[object, ...]:
    return _said(rule, of(level))


def _said_with(rule: Rule, values: Values, key: Any, level: float) -> tuple[object, ...]:
    return _said(rule, trace(_ends(values, key, level)))


def _line(name: str, found: Iterable[tuple[str, tuple[object, ...]]]) -> str:
    return f"{name}: " + ", ".join(f"{where} {'said' if said else 'silent'}" for where, said in found)


@pytest.mark.parametrize("case", ALONE)
def test_the_limits_of_a_rule(case: str, snapshot: SnapshotAssertion) -> None:
    rule, values = ALONE[case]
    said = [in_full(finding) for finding in findings_of(rule, trace(values))]
    assert said
    assert "\n".join([*said, *_of_each(rule, values)]) == snapshot


def test_the_limits_of_prefix_hits(snapshot: SnapshotAssertion) -> None:
    seen: dict[str, Callable[[float], Trace]] = {
        "before": lambda hits: prefix([hits, hits, 0.3]),
        "after": lambda hits: prefix([0.6, 0.6, hits]),
        "KV usage": lambda kv: prefix([0.6, 0.1], kv),
    }
    found = (_line(name, limits(partial(_said_of, prefix_misses, of), 0.0, 1.0)) for name, of in seen.items())
    assert "\n".join(found) == snapshot
