"""Counters across the end of one helper and the start of another; no probe is loaded here."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors.tracing.reports import Reports
from llmtop.collectors.tracing.wire import Sample, sample
from llmtop.model import NS_PER_S, Reading

T = 100 * NS_PER_S
slots = st.dictionaries(st.integers(0, 27).map(str), st.integers(1, 100), min_size=1, max_size=5)


def report(t_s: int, count: int, latencies: dict[str, int]) -> Sample:
    calls = [[7, 0, count, 0, count * 1000, latencies]]
    waits = [[7, 9, 0xFFFF, 2, 0, count * 10]]
    observed = {"calls": count, "timed": count, "scheduler": count}
    said = {
        "kind": "sample",
        "t": T + t_s * NS_PER_S,
        "elapsed": NS_PER_S,
        "calls": calls,
        "names": {"0": "read"},
        "waits": waits,
        "observed": observed,
    }
    return sample(said)


def series(readings: list[Reading], name: str) -> list[tuple[int, float | None]]:
    return [((one.t_ns - T) // NS_PER_S, one.value) for one in readings if one.metric.name == name]


def test_counters_go_on_after_a_gap() -> None:
    reports = Reports()
    readings = list(reports.readings(report(1, 5, {"3": 5})))
    readings += reports.resume(T + 2 * NS_PER_S, lambda track: True)
    readings += reports.readings(report(40, 2, {"4": 2}))
    readings += reports.readings(report(41, 3, {"4": 3}))

    expected = [(0, 0), (1, 5), (2, None), (39, 5), (40, 7), (41, 8)]
    assert series(readings, "syscall.count|read") == expected
    assert series(readings, "syscall.latency|read|inf") == expected
    assert series(readings, "syscall.observed") == expected
    slept = [
        (t, None if value is None else value / 10) for t, value in series(readings, "thread.blocked|uninterruptible")
    ]
    assert slept == expected


def test_what_is_another_by_now_begins_at_zero() -> None:
    reports = Reports()
    reports.readings(report(1, 5, {"3": 5}))
    gaps = reports.resume(T + 2 * NS_PER_S, lambda track: track != "process:7")
    readings = list(reports.readings(report(40, 2, {"3": 2})))

    assert {one.track for one in gaps} == {"thread:7/9"}
    assert series(readings, "syscall.count|read") == [(39, 0), (40, 2)]
    assert series(readings, "syscall.latency|read|inf") == [(39, 0), (40, 2)]


@given(slots, slots)
def test_a_distribution_that_goes_on_is_still_one(before: dict[str, int], after: dict[str, int]) -> None:
    reports = Reports()
    readings = list(reports.readings(report(1, 1, before)))
    readings += reports.resume(T + 2 * NS_PER_S, lambda track: True)
    readings += reports.readings(report(40, 2, after))

    last: dict[float, float] = {}
    for one in readings:
        if one.metric.name.startswith("syscall.latency") and one.value is not None:
            bound = float(one.metric.name.rpartition("|")[2])
            assert one.value >= last.get(bound, 0.0), "a counter only grows"
            last[bound] = one.value
    counts = [last[bound] for bound in sorted(last)]
    assert counts == sorted(counts), "what is below a bound is below the next one too"
    assert counts[-1] == sum(before.values()) + sum(after.values())
