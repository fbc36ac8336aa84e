"""Correlations of a whole trace: each source on its own clock, the cause found, the others not."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from llmtop import vocabulary as v
from llmtop.analysis.pages.correlate import Correlation, Correlations, correlations
from llmtop.model import NS_PER_S, Metric, Trace, Unknown, UnknownKind
from tests.analysis.probe_traces import GPU, PROCESS, SERVER, THREAD, Probed, Rate
from tests.live_traces import NO_GPU, live_trace

_RNG = random.Random(11)
NOISE = [_RNG.random() for _ in range(400)]
OTHER = [_RNG.random() for _ in range(400)]


def noise(later: int = 0, source: list[float] = NOISE) -> Callable[[int], float]:
    return lambda second: source[second - later + 50]


def starved(delay_s: int = 2, seconds: int = 120) -> Trace:
    """A GPU that idles `delay_s` after its thread had to queue; tokens fall with it; launches are unrelated."""
    queued = noise()
    return Probed(
        {v.THREAD_RUN_QUEUE: lambda s: 0.5 * queued(s), v.THREAD_ON_CPU: 0.4},
        counters={(SERVER, v.SERVER_OUTPUT_TOKENS): lambda s: 1000 * (1 - noise(delay_s)(s))},
        probes={
            (THREAD, v.labelled(v.THREAD_BLOCKED, "futex")): lambda s: 0.6 - 0.5 * queued(s),
            (THREAD, v.THREAD_LAUNCHES): lambda s: 100 + 500 * noise(source=OTHER)(s),
        },
        gauges={
            (GPU, v.GPU_ACTIVE): lambda s: 100 - 80 * noise(delay_s)(s),
            (SERVER, v.SERVER_WAITING): 3.0,
        },
    ).trace(seconds)


def by_title(trace: Trace) -> dict[str, Correlation | Unknown]:
    found = correlations(trace)
    assert isinstance(found, Correlations)
    return dict(found.rows)


@pytest.mark.parametrize("delay_s", [0, 2, 4])
def test_cause_is_found_with_its_lag(delay_s: int) -> None:
    found = by_title(starved(delay_s))["run queue of EngineCore/engine"]
    assert isinstance(found, Correlation)
    assert found.lag_ns == delay_s * NS_PER_S
    assert found.r > 0.9
    assert found.is_significant
    words = f"rises {delay_s}.00 s before the GPU idles" if delay_s else "rises as the GPU idles"
    assert found.direction == words
    assert "p < 0.001" in found.evidence


def test_lag_of_one_reading_is_told_though_readings_come_late() -> None:
    gauges = {(GPU, v.GPU_ACTIVE): lambda s: 100 - 80 * noise(1)(s)}
    trace = Probed({v.THREAD_RUN_QUEUE: noise(), v.THREAD_ON_CPU: 0.0}, gauges=gauges, jitter_ns=30_000_000).trace(90)
    found = by_title(trace)["run queue of EngineCore/engine"]
    assert isinstance(found, Correlation)
    assert found.resolution_ns == NS_PER_S
    assert found.direction == "rises 1.00 s before the GPU idles"


@pytest.mark.parametrize(("share", "is_told"), [(0.008, False), (0.012, True)])
def test_what_takes_less_than_a_hundredth_of_the_time_explains_nothing(share: float, is_told: bool) -> None:
    gauges = {(GPU, v.GPU_ACTIVE): lambda s: 100 - 80 * noise()(s)}
    clocks: dict[Metric, Rate] = {v.THREAD_RUN_QUEUE: lambda s: 2 * share * (s % 2), v.THREAD_ON_CPU: 0.4}
    found = by_title(Probed(clocks, gauges=gauges).trace(120))
    assert ("run queue of EngineCore/engine" in found) is is_told


def test_unrelated_series_is_called_chance() -> None:
    found = by_title(starved())["launches of EngineCore/engine"]
    assert isinstance(found, Correlation)
    assert not found.is_significant
    assert "may be chance" in found.evidence


def test_tokens_are_a_control_and_never_the_answer() -> None:
    found = correlations(starved())
    assert isinstance(found, Correlations)
    controls = [row for _, row in found.rows if isinstance(row, Correlation) and row.is_control]
    assert [one.title for one in controls] == ["output tokens"]
    assert controls[0].r < -0.9
    assert found.sentence.startswith(
        "run queue of EngineCore/engine rises 2.00 s before the GPU idles (r +1.00, p < 0.001"
    )
    assert controls[0] in found.significant


def test_constant_series_say_so() -> None:
    rows = by_title(starved())
    assert rows["requests waiting"] == Unknown("constant over the window")


def test_too_short_a_look_says_how_long_to_wait() -> None:
    assert correlations(starved(seconds=14)) == Unknown(
        "GPU 0's idle share: not enough data: 14 of at least 30 samples", "wait 16 s more", UnknownKind.PASSING
    )


def test_series_that_came_later_says_how_long_to_wait() -> None:
    late = Probed(
        {v.THREAD_RUN_QUEUE: lambda s: 0.5 * noise()(s), v.THREAD_ON_CPU: 0.4},
        gauges={
            (GPU, v.GPU_ACTIVE): lambda s: 80 * noise()(s),
            (SERVER, v.SERVER_WAITING): lambda s: None if s < 50 else noise(source=OTHER)(s),
        },
    ).trace(60)
    waiting = by_title(late)["requests waiting"]
    assert isinstance(waiting, Unknown)
    assert waiting.reason.startswith("not enough data: 1")
    assert waiting.remedy.startswith("wait ")


def test_idle_share_that_never_changes_correlates_with_nothing() -> None:
    trace = Probed({v.THREAD_RUN_QUEUE: 0.1, v.THREAD_ON_CPU: noise()}, gauges={(GPU, v.GPU_ACTIVE): 40.0}).trace(60)
    assert correlations(trace) == Unknown("GPU 0's idle share: constant over the window")


def test_without_a_gpu_its_reason_stands() -> None:
    assert correlations(live_trace(NO_GPU)) == Unknown(
        "no NVIDIA driver library was found", "install the NVIDIA driver"
    )


def test_busy_waiting_of_nothing_is_no_finding() -> None:
    found = correlations(live_trace())
    assert isinstance(found, Correlations)
    assert found.significant == ()
    assert found.sentence.startswith("none of ")


def test_gil_waits_and_yields_are_among_the_series() -> None:
    waits = noise(1)
    probes = {
        (PROCESS, v.PROCESS_GIL_WAITS): lambda s: 40 * waits(s),
        (PROCESS, v.labelled(v.SYSCALL_COUNT, "sched_yield")): lambda s: 40 * noise(source=OTHER)(s),
    }
    gauges = {(GPU, v.GPU_ACTIVE): lambda s: 100 - 60 * waits(s)}
    rows = by_title(Probed({v.THREAD_RUN_QUEUE: 0.1, v.THREAD_ON_CPU: 0.5}, probes=probes, gauges=gauges).trace(90))
    found = rows["GIL waits of EngineCore"]
    assert isinstance(found, Correlation)
    assert found.is_significant
    yields = rows["sched_yield of EngineCore"]
    assert isinstance(yields, Correlation)
    assert not yields.is_significant
