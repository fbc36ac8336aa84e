"""What helpers say, over JSON and back; and that both sides mean the same by it."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import pytest

from llmtop.collectors.tracing import wire
from tests.collectors.tracing.wire_types import assert_is_told

FULL: wire.Sample = {
    "kind": "sample",
    "t": 9_000,
    "elapsed": 1_000,
    "observed": {"calls": 1, "timed": 2, "scheduler": 3},
    "hits": {"call": 7},
    "lost": 0,
    "missing": {"samples": wire.Why("no perf events", "sudo")},
    "shed": "",
    "settling": False,
    "children_ns": 5,
    "born": [11],
    "gone": [12],
    "renewed": [13],
    "ended": [wire.EndedThread(7, 8)],
    "calls": [wire.CallTotal(7, 0, 5, None, 900, {3: 5}), wire.CallTotal(7, 24, 5, 0, 0, {})],
    "names": {0: "read", 24: "sched_yield"},
    "switch_timeouts": [wire.SwitchTimeouts(7, 1)],
    "spins": [wire.SpinTotal(7, 8, "poll", 4)],
    "waits": [wire.SleepTotal(7, 8, 202, 1, 3, 500)],
    "blocked": [wire.CauseTotal(7, 8, "futex", 500)],
    "queue": [wire.QueueTotal(7, {0: 1, 27: 2})],
    "wakes": [wire.WakeTotal(7, 8, 0, 3)],
    "stacks": [wire.SleepStack(7, 8, 202, 1, 3, ["main", "wait"], 500)],
    "asleep": [wire.CauseStack(7, 8, "futex", ["main"], 500)],
    "running": [wire.RunStack(7, 8, [], 20)],
    "functions": [wire.FunctionTotal(7, "cuLaunchKernel", 2, 40, {4: 2})],
    "in_libraries": [wire.LibraryThread(7, 8, 2, 30)],
    "collecting": [wire.CollectingThread(7, 8, 30, 2)],
    "gpu_rounds": [wire.GpuRound(7, 8, 900, 500, 300, 9, 1, None, 0, 5, 0, 0, None, None, 2)],
    "probed": 1,
    "library_observed": [wire.LibraryObserved(7, 100)],
    "uncounted": [wire.Uncounted(7, ["cuMemcpy"])],
    "unseen": [wire.Unseen(7, ["sync"])],
    "sampled": [wire.SampledCalls(7, ["cuLaunchKernel"], ["launches"])],
    "unprobed": {"cuMemcpy": "too dear"},
}


def as_read(said: Any) -> Any:
    return json.loads(json.dumps(said))


def test_what_is_written_is_what_is_read() -> None:
    assert FULL.keys() == get_type_hints(wire.Sample).keys(), "a key that no test sends"
    read = wire.sample(as_read(FULL))
    assert read == FULL
    assert (read["waits"][0].descriptor, read["calls"][0].slots) == (3, {3: 5})
    assert read["missing"]["samples"].remedy == "sudo"


def test_what_is_left_out_stays_out() -> None:
    assert wire.sample({"t": 5, "elapsed": 1}) == {"t": 5, "elapsed": 1, "missing": {}}


@pytest.mark.parametrize(
    "damage",
    [
        {"waits": [[7, 8, 202, 1, 3]]},
        {"waits": [[7, 8, 202, 1, 3, 500, 1]]},
        {"waits": 5},
        {"queue": [[]]},
        {"calls": [[7, 0, 5, 0, 900, {"three": 5}]]},
        {"names": {"read": 0}},
        {"missing": {"samples": ["one word"]}},
        {"t": "now"},
        {"elapsed": None},
    ],
)
def test_a_sample_that_is_none_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(wire.WireError):
        wire.sample(as_read(FULL) | damage)


def test_the_types_are_held() -> None:
    """Of the tests' own checker: what the real helpers say goes through it."""
    assert_is_told(as_read(FULL))
    for damage in ({"more": 1}, {"lost": True}, {"waits": [[7, 8, "futex", 1, 3, 5]]}, {"observed": {"calls": 1}}):
        with pytest.raises(AssertionError):
            assert_is_told(as_read(FULL) | damage)
