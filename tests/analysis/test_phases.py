"""The phase rule against recorded prefill and decode, whose truth is known."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.roofline.ceilings import Ceilings, ceilings_of
from llmtop.analysis.roofline.phases import CLEAR_SHARE, Phase, phase_now, phase_of, together
from llmtop.analysis.roofline.rates import Rates
from llmtop.model import NS_PER_S, Metric, Origin, Quantity, Series, Trace, Track, TrackKind, Unknown

SAMPLE = Path(__file__).parent / "data" / "h100_phases.csv"
SWITCH_S = 0.4
"""The label changes when Python does; the GPU still works off what was queued, and a window may span both."""
H100 = Track(
    ids.gpu(0),
    TrackKind.GPU,
    "H100",
    facts={"name": "NVIDIA H100 80GB HBM3", "bus_width_bits": 5120, "max_memory_mhz": 2619, "max_sm_mhz": 1980},
)


def ceilings() -> Ceilings:
    found = ceilings_of(H100, "bfloat16")
    assert isinstance(found, Ceilings)
    return found


def trace_of(rows: list[dict[Metric, float]]) -> Trace:
    """One window a second."""
    columns: dict[Metric, list[tuple[int, float | None]]] = {}
    for i, values in enumerate(rows):
        for metric, value in values.items():
            columns.setdefault(metric, []).append(((i + 1) * NS_PER_S, value))
    series = {
        (ids.gpu(0), metric.name): Series.of(ids.gpu(0), metric, "GPM", column) for metric, column in columns.items()
    }
    return Trace(Origin("live"), 0, len(rows) * NS_PER_S, tracks={ids.gpu(0): H100}, series=series)


def window(dram: float, hmma: float, mhz: float = 1830) -> dict[Metric, float]:
    return {v.GPU_DRAM: dram, v.GPU_TENSOR_HMMA: hmma, v.GPU_FP32: 0.0, v.GPU_SM_CLOCK: mhz}


def guessed() -> list[tuple[float, str, Phase]]:
    """(seconds since the label changed, label, guess) of every window of the recording."""
    limits = ceilings()
    label, since, found = "", 0.0, []
    with SAMPLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            t_s = float(row["t_s"])
            if row["phase"] != label:
                label, since = row["phase"], t_s
            mhz = float(row["sm_mhz"])
            flops = {
                name: float(row[column]) / 100 * limits.peak(name) * mhz / 1830
                for name, column in (("bf16", "hmma"), ("FP32", "fp32"))
            }
            rates = Rates(0, float(row["dram"]) / 100 * limits.bytes_per_s, flops, mhz)
            found.append((t_s - since, label.split()[0], phase_of(rates, limits)))
    return found


def test_recorded_phases_are_told_in_every_working_window_away_from_a_switch() -> None:
    settled = Counter(
        (label, guess) for since, label, guess in guessed() if since > SWITCH_S and guess is not Phase.IDLE
    )
    assert settled["prefill", Phase.PREFILL] == 50
    assert settled["decode", Phase.DECODE] == 118
    assert set(settled) <= {("prefill", Phase.PREFILL), ("decode", Phase.DECODE), ("load", Phase.DECODE)}


def test_recorded_phases_are_told_in_nine_of_ten_windows_with_the_switches() -> None:
    working = [(label, guess) for _, label, guess in guessed() if label != "load" and guess is not Phase.IDLE]
    of_phases = [(label, guess) for label, guess in working if label in ("prefill", "decode")]
    right = sum(label == guess.value for label, guess in of_phases)
    assert right / len(of_phases) >= 0.93


@pytest.mark.parametrize(
    ("dram", "hmma", "phase"),
    [
        (40.0, 60.0, Phase.PREFILL),
        (84.0, 18.0, Phase.DECODE),
        (50.0, 40.0, Phase.MIXED),
        (0.0005, 0.0, Phase.IDLE),
    ],
)
@pytest.mark.parametrize("mhz", [1000, 1830, 1980])
def test_the_rule_does_not_depend_on_the_clock(dram: float, hmma: float, phase: Phase, mhz: float) -> None:
    now = phase_now(trace_of([window(dram, hmma, mhz)] * 6), [H100], "bfloat16")
    assert isinstance(now, Quantity)
    assert now.value == phase.value
    assert now.source == "GPM, 6 of 6 windows in 5 s"


def test_a_burst_of_prompts_makes_it_mixed_and_rest_does_not_count() -> None:
    decode, prefill, rest = window(84, 18), window(40, 60), window(0.0, 0.0)
    assert together([Phase.DECODE, Phase.PREFILL]) is Phase.MIXED
    mixed = phase_now(trace_of([decode, decode, prefill, prefill, decode]), [H100], "bfloat16")
    resting = phase_now(trace_of([rest, rest, decode, rest, rest]), [H100], "bfloat16")
    assert isinstance(mixed, Quantity)
    assert isinstance(resting, Quantity)
    assert (mixed.value, resting.value) == ("mixed", "decode")


@pytest.mark.parametrize(("flops", "traffic", "phase"), [(0.6, 0.4, "prefill"), (0.1, 0.8, "decode")])
def test_without_windows_the_servers_estimate_is_held_against_the_ridge(
    flops: float, traffic: float, phase: str
) -> None:
    limits = ceilings()
    rates = {
        v.SERVER_FLOPS: flops * limits.peak("bf16"),
        v.SERVER_READ_BYTES: traffic * limits.bytes_per_s,
    }
    series = {
        (ids.server(1), metric.name): Series.of(
            ids.server(1), metric, "vllm", [(s * NS_PER_S, s * x) for s in range(20)]
        )
        for metric, x in rates.items()
    }
    tracks = {ids.gpu(0): H100, ids.server(1): Track(ids.server(1), TrackKind.SERVER, "vLLM")}
    now = phase_now(Trace(Origin("live"), 0, 19 * NS_PER_S, tracks=tracks, series=series), [H100], "bfloat16")
    assert now == Quantity(phase, "", "the server's estimate of FLOPs and bytes")


def test_without_windows_it_says_why() -> None:
    assert isinstance(phase_now(trace_of([]), [H100], "bfloat16"), Unknown)
    assert isinstance(phase_now(trace_of([]), [], "bfloat16"), Unknown)


@given(st.lists(st.sampled_from(Phase), max_size=20))
def test_a_named_phase_is_that_of_most_working_windows(phases: list[Phase]) -> None:
    found = together(phases)
    working = [phase for phase in phases if phase is not Phase.IDLE]
    if found in (Phase.PREFILL, Phase.DECODE):
        assert working.count(found) >= CLEAR_SHARE * len(working)
    assert (found is None) == (not phases)
    assert (found is Phase.IDLE) == (bool(phases) and not working)
