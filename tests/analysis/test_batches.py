"""Batches: the line through what was seen, when there is none, and what limits a larger one."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.pages.batch_advice import BatchAdvice, batch_advice
from llmtop.analysis.series.lines import fitted
from llmtop.analysis.server.batches import StepLine
from llmtop.facts import SETTINGS_OF
from llmtop.model import NS_PER_S, Fact, Feature, Metric, Series, Trace, Unknown
from llmtop.settings import keys_of
from tests.analysis.llama_on_h100 import ACTIVE, DRAM_PEAK
from tests.analysis.test_efficiency import TARGET, trace_of

LEVEL_S, SLOPE_S = 0.008, 0.0001
PEAK = 989.4e12
BLOCKS: dict[str, Fact] = {"num_gpu_blocks": "1000", "block_size": "16"}


def seen(
    batches: list[float], noise_s: float = 0.0, per_request: bool = False, facts: dict[str, Fact] | None = None
) -> Trace:
    """A look each second at a server whose steps take 8 ms and 0.1 ms for each request."""
    whole = trace_of(facts=facts)
    server, chance = ids.server(8000), random.Random(7)
    total_s, count, usage = 0.0, 0.0, list[float]()
    columns: dict[Metric, list[float]] = {metric: [] for metric in (v.total(v.SERVER_ITL), _COUNT, v.SERVER_RUNNING)}
    for batch in batches:
        itl_s = LEVEL_S + SLOPE_S * batch + chance.gauss(0, noise_s)
        count += 10.0 if per_request else batch / itl_s
        total_s += (10.0 if per_request else batch / itl_s) * itl_s
        usage.append(batch / 320)
        for column, value in zip(columns.values(), (total_s, count, batch), strict=True):
            column.append(value)
    columns |= {v.SERVER_KV_USAGE: usage}
    if per_request:
        columns |= {v.SERVER_REQUESTS: [10.0 * i for i in range(len(batches))]}
    start_ns = whole.end_ns - (len(batches) - 1) * NS_PER_S
    series = {
        (server, metric.name): Series.of(
            server, metric, "vllm", [(start_ns + i * NS_PER_S, value) for i, value in enumerate(column)]
        )
        for metric, column in columns.items()
    }
    return replace(whole, series={**whole.series, **series})


_COUNT = v.bucket(v.SERVER_ITL, math.inf)
STAIRS = [float(batch) for batch in (8, 8, 16, 16, 16, 24, 24, 24, 32, 32, 32, 48, 48, 48, 64, 64, 64, 64, 64, 64)]
NOW = 44.5
"""The mean of the last 15 s of these."""


def advice(trace: Trace) -> BatchAdvice:
    found = batch_advice(trace, TARGET)
    assert isinstance(found, BatchAdvice), found
    return found


def line(found: BatchAdvice) -> StepLine:
    assert isinstance(found.line, StepLine), found.line
    return found.line


# -- the line --------------------------------------------------------------------------------------------------------


def test_a_line_by_the_textbook() -> None:
    """Slope, level and their errors as least squares give them for points whose residuals alternate."""
    found = fitted([(1.0, 2.1), (2.0, 3.9), (3.0, 6.1), (4.0, 7.9)])
    assert (found.slope, found.intercept) == pytest.approx((1.96, 0.1))
    assert found.n_effective == 4
    assert found.scatter == pytest.approx(math.sqrt(0.032 / 2))
    assert found.slope_error == pytest.approx(math.sqrt(0.016 / 5))
    assert found.intercept_error == pytest.approx(math.sqrt(0.016 * (1 / 4 + 2.5**2 / 5)))


def test_points_that_follow_each_other_count_less() -> None:
    slow = [(float(i), math.sin(i / 5)) for i in range(60)]
    assert fitted(slow).n_effective < 8
    assert fitted(slow).slope_error > 3 * fitted(sorted(slow, key=lambda point: (point[0] % 7, point[0]))).slope_error


def test_a_line_needs_points() -> None:
    with pytest.raises(ValueError, match="needs points"):
        fitted([])
    flat = fitted([(2.0, 1.0), (2.0, 3.0), (2.0, 5.0)])
    assert (flat.slope, flat.intercept, flat.slope_error) == (0.0, 3.0, math.inf)


# -- what was seen ---------------------------------------------------------------------------------------------------


def test_the_planted_line_is_found() -> None:
    found = line(advice(seen(STAIRS)))
    assert (found.line.intercept, found.line.slope) == pytest.approx((LEVEL_S, SLOPE_S), rel=1e-3)
    assert (found.smallest, found.largest) == (8, 64)
    assert found.looks == len(STAIRS) - 6  # the first look, and those in which the batch changed by more than a quarter


def test_the_error_of_the_slope_covers_the_planted_one() -> None:
    found = line(advice(seen(STAIRS * 6, noise_s=0.0004))).line
    assert 0 < found.slope_error < SLOPE_S / 3
    assert abs(found.slope - SLOPE_S) < 3 * found.slope_error


def test_times_between_tokens_stand_by_batch() -> None:
    found = advice(seen(STAIRS)).ranges
    assert [one.text for one in found] == ["8", "16", "24 to 32", "48 to 64"]
    assert found[0].itl_s == pytest.approx(LEVEL_S + 8 * SLOPE_S)
    assert sum(one.looks for one in found) == len(STAIRS) - 6


@pytest.mark.parametrize(
    ("batches", "noise_s", "why"),
    [
        ([64.0] * 20, 0.0, "not enough spread yet: batches 64 to 64 were seen"),
        ([50.0] * 10 + [60.0] * 10, 0.0, "not enough spread yet: batches 50 to 60 were seen"),
        ([8.0] * 3 + [9.0, 11.0, 14.0], 0.0, "5 looks count as 4 independent ones"),
        (STAIRS, 0.01, "no slope that is surer than chance: batches 8 to 64 were seen"),
    ],
)
def test_until_the_spread_supports_it_there_is_no_line(batches: list[float], noise_s: float, why: str) -> None:
    found = advice(seen(batches, noise_s))
    assert isinstance(found.line, Unknown)
    assert why in found.line.reason
    assert found.knee is found.line
    assert found.ranges


def test_a_server_that_tells_times_between_tokens_when_requests_end_has_no_line() -> None:
    found = batch_advice(seen(STAIRS, per_request=True), TARGET)
    assert isinstance(found, Unknown)
    assert "when a request ends" in found.reason


# -- the knee --------------------------------------------------------------------------------------------------------


def limits(found: BatchAdvice) -> dict[str, float]:
    return {one.name: one.batch for one in found.limits}


def test_the_knee_is_where_the_objective_is_met() -> None:
    found = advice(seen(STAIRS, facts=dict(BLOCKS)))
    assert limits(found)["ITL p50 25 ms"] == pytest.approx((0.025 - LEVEL_S) / SLOPE_S, rel=1e-3)
    assert limits(found)["KV cache"] == pytest.approx(320)
    assert not isinstance(found.knee, Unknown)
    assert found.knee.name == "ITL p50 25 ms"
    assert found.tokens_per_s == pytest.approx((NOW / (LEVEL_S + NOW * SLOPE_S), 170 / 0.025), rel=1e-3)
    assert found.is_beyond
    assert found.text == (
        "knee at batch 170 by ITL p50 25 ms, then 320 by KV cache, 339 by compute: "
        "6800 tok/s there, 3600 tok/s at the batch of now, 44.5; beyond what was seen"
    )


def test_compute_limits_where_a_step_reads_for_as_long_as_it_computes() -> None:
    found = limits(advice(seen(STAIRS, facts=dict(BLOCKS))))
    per_request = 16000 / 320 * 32 * 2 * 1024 * 2 / DRAM_PEAK
    batch = found["compute"]
    assert batch * 2 * ACTIVE / PEAK == pytest.approx(ACTIVE * 2 / DRAM_PEAK + batch * per_request, rel=1e-3)


def test_the_cache_limits_where_it_is_full_first() -> None:
    whole, key = seen(STAIRS), (ids.server(8000), v.SERVER_KV_USAGE.name)
    fuller: list[tuple[int, float | None]] = [(t, 4 * (value or 0.0)) for t, value in whole.series[key]]
    found = advice(replace(whole, series={**whole.series, key: Series.of(key[0], v.SERVER_KV_USAGE, "vllm", fuller)}))
    assert not isinstance(found.knee, Unknown)
    assert found.knee.name == "KV cache"
    assert found.knee.batch == pytest.approx(80)


def test_what_the_server_is_set_to_limits_too() -> None:
    keys = keys_of(Feature.MAX_RUNNING)
    told: dict[str, Fact] = {SETTINGS_OF: "vllm", keys.value: 96, keys.source: "--max-num-seqs 96"}
    found = advice(seen(STAIRS, facts=told))
    assert not isinstance(found.knee, Unknown)
    assert (found.knee.name, found.knee.batch) == ("requests at once", 96)
    assert found.knee.how.endswith("--max-num-seqs 96")


def test_an_objective_that_no_batch_keeps_is_said_to_be_that() -> None:
    trace = seen(STAIRS)
    promised = replace(trace, origin=replace(trace.origin, facts={"objective.itl.p50": 0.005}))
    found = advice(promised)
    assert found.tokens_per_s is None
    assert found.text.endswith(": no batch keeps it")
