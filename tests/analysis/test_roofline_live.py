"""The live roofline against recorded GPM percentages of known work."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.roofline.live import live_view
from llmtop.analysis.roofline.rates import dram_bytes_per_s, newest_rates
from llmtop.analysis.views import Quality
from llmtop.model import NS_PER_S, Metric, Missing, Origin, Reading, Series, Trace, Track, TrackKind, Unknown, What
from llmtop.session import Recorder
from tests.live_traces import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from llmtop.model import Fact

CALIBRATION = Path(__file__).parent / "data" / "h100_gpm_calibration.jsonl"
PHASES = Path(__file__).parents[3] / "shared" / "samples" / "h100_nvml_llm_phases.jsonl"
H100_FACTS: Mapping[str, Fact] = {
    "name": "NVIDIA H100 80GB HBM3",
    "bus_width_bits": 5120,
    "max_memory_mhz": 2619,
    "max_sm_mhz": 1980,
    "gpm": "supported",
}
H100 = Track(ids.gpu(0), TrackKind.GPU, "NVIDIA H100 80GB HBM3", facts=H100_FACTS)
METRIC_BY_SAMPLE_NAME = {
    "tensor": v.GPU_TENSOR,
    "dfma": v.GPU_TENSOR_DFMA,
    "hmma": v.GPU_TENSOR_HMMA,
    "imma": v.GPU_TENSOR_IMMA,
    "dram": v.GPU_DRAM,
    "fp64": v.GPU_FP64,
    "fp32": v.GPU_FP32,
    "fp16": v.GPU_FP16,
}
DECODE = {
    v.GPU_TENSOR_HMMA: 17.85,
    v.GPU_TENSOR_IMMA: 0.0,
    v.GPU_TENSOR_DFMA: 0.0,
    v.GPU_DRAM: 84.34,
    v.GPU_FP32: 0.0,
    v.GPU_FP64: 0.0,
    v.GPU_SM_CLOCK: 1800.0,
}


def trace_of(
    samples: Iterable[tuple[float, Mapping[Metric, float | None]]],
    *,
    track: Track = H100,
    missing: tuple[Missing, ...] = (),
    extra: Iterable[Track] = (),
) -> Trace:
    """A trace of one GPU: (second, values) pairs."""
    columns: dict[Metric, list[tuple[int, float | None]]] = {}
    end_ns = 0
    for t_s, values in samples:
        end_ns = int(t_s * NS_PER_S)
        for metric, value in values.items():
            columns.setdefault(metric, []).append((end_ns, value))
    series = {(track.id, metric.name): Series.of(track.id, metric, "GPM", column) for metric, column in columns.items()}
    tracks = {one.id: one for one in (track, *extra)}
    return Trace(Origin("live"), 0, end_ns, tracks=tracks, series=series, missing=missing, sources=SOURCES)


def recorded(kind: str) -> dict[str, Any]:
    """The second repetition of a kind of work: the first holds a part of what ran before it."""
    rows = [json.loads(line) for line in CALIBRATION.read_text(encoding="utf-8").splitlines()]
    return next(row for row in rows if row["kind"] == kind and row["rep"] == 1)


def trace_of_recording(row: Mapping[str, Any]) -> Trace:
    values = {metric: float(row["gpm"][name]) for name, metric in METRIC_BY_SAMPLE_NAME.items()}
    return trace_of([(1.0, values | {v.GPU_SM_CLOCK: row["sm_mhz"], v.GPU_CLOCK_REASONS: float(row["thr"])})])


@pytest.mark.parametrize(
    ("kind", "dtype", "precision", "low", "high"),
    [
        ("bf16", "bfloat16", "bf16", 0.98, 1.02),
        ("fp16", "float16", "fp16", 0.98, 1.02),
        ("tf32", "float32", "tf32", 0.98, 1.02),
        ("fp8", "fp8", "fp8", 0.98, 1.02),
        ("gemm_b64", "bfloat16", "bf16", 1.00, 1.05),
        ("fp32", "float32", "FP32", 1.00, 1.10),
        ("fp64", "float64", "fp64_tensor", 1.00, 1.10),
        ("int8", "int8", "int8", 1.00, 2.20),
        ("gemv", "bfloat16", "bf16", 1.00, 10.0),
    ],
)
def test_flops_of_known_work(kind: str, dtype: str, precision: str, low: float, high: float) -> None:
    row = recorded(kind)
    point = live_view(trace_of_recording(row), ids.gpu(0), dtype).points[0]
    assert point.precision == precision
    assert low <= point.flops_per_s / (row["tflops"] * 1e12) <= high
    assert point.intensity == pytest.approx(point.flops_per_s / point.bytes_per_s)


@pytest.mark.parametrize("kind", ["copy", "read", "gemv", "gemm_b64"])
def test_bytes_of_known_work(kind: str) -> None:
    row = recorded(kind)
    rates = newest_rates(trace_of_recording(row), ids.gpu(0), "bfloat16")
    assert not isinstance(rates, Unknown)
    assert rates.bytes_per_s / (row["gbps"] * 1e9) == pytest.approx(1, abs=0.01)
    assert dram_bytes_per_s(trace_of_recording(row), ids.gpu(0), 60 * NS_PER_S) == rates.bytes_per_s


@pytest.mark.parametrize(
    ("kind", "dtype", "quality"),
    [("bf16", "bfloat16", Quality.UPPER_BOUND), ("bf16", Unknown("no server"), Quality.ESTIMATE)],
)
def test_quality_says_what_gpm_cannot_tell(kind: str, dtype: Fact, quality: Quality) -> None:
    assert live_view(trace_of_recording(recorded(kind)), ids.gpu(0), dtype).points[0].quality is quality


def test_a_pure_copy_has_no_point_but_says_its_traffic() -> None:
    view = live_view(trace_of_recording(recorded("copy")), ids.gpu(0), "bfloat16")
    assert view.points == ()
    assert view.why_not is not None
    assert view.why_not.reason == "no floating-point work in the last window, 2.99 TB/s of memory traffic"


def test_an_unknown_dtype_gives_a_band_from_bf16_to_fp8() -> None:
    view = live_view(trace_of_recording(recorded("bf16")), ids.gpu(0), Unknown("the server does not say"))
    assert view.band is not None
    low, high = view.band
    assert high / low == pytest.approx(1978.9 / 989.4)
    assert view.points[0].flops_per_s == pytest.approx(low)
    assert view.points[0].precision == "bf16..fp8"
    assert [roof.level for roof in view.roofs] == ["DRAM", "bf16", "fp8"]
    assert (
        "precision not known (the server does not say; llmtop --dtype tells it): tensor work counts as bf16 or fp8"
        in view.notes
    )


def test_a_known_dtype_gives_no_band() -> None:
    assert live_view(trace_of_recording(recorded("bf16")), ids.gpu(0), "bf16").band is None


def test_roofs_carry_their_source_and_what_is_reached_in_practice() -> None:
    memory, compute = live_view(trace_of([(1, DECODE)]), ids.gpu(0), "bf16").roofs
    assert (memory.kind, memory.level, memory.value) == ("memory", "DRAM", 3352.32e9)
    assert memory.source == "NVML: 5120 bit x 2619 MHz x 2"
    assert memory.practical == pytest.approx(3067e9, rel=0.001)
    assert (compute.kind, compute.level, compute.value) == ("compute", "bf16", 989.4e12)
    assert compute.practical == pytest.approx(0.803 * 989.4e12)
    assert "1830 MHz" in compute.source
    assert "stas00" in compute.source


def test_the_clock_of_the_moment_scales_compute_and_is_noted() -> None:
    capped = DECODE | {v.GPU_SM_CLOCK: 1372.5, v.GPU_CLOCK_REASONS: 4.0}
    view = live_view(trace_of([(1, capped)]), ids.gpu(0), "bf16")
    assert view.points[0].flops_per_s == pytest.approx(0.1785 * 989.4e12 * 0.75)
    assert view.notes == ("at 1372 MHz (power cap) the bf16 roof is 742 TFLOP/s; the one drawn is at 1830 MHz",)


def test_the_clock_over_a_window_is_the_mean_of_its_ends() -> None:
    samples = [(1.0, DECODE | {v.GPU_SM_CLOCK: 1400.0}), (1.25, DECODE | {v.GPU_SM_CLOCK: 1500.0})]
    rates = newest_rates(trace_of(samples), ids.gpu(0), "bf16")
    assert not isinstance(rates, Unknown)
    assert rates.sm_mhz == 1450


def test_the_roof_fraction_is_of_the_nearer_roof() -> None:
    point = live_view(trace_of([(1, DECODE)]), ids.gpu(0), "bf16").points[0]
    assert point.roof_fraction == pytest.approx(0.8434)


def test_the_trail_has_ages_and_ends_where_it_should() -> None:
    view = live_view(trace_of([(t, DECODE) for t in range(100)]), ids.gpu(0), "bf16", trail_s=60)
    assert [point.age_s for point in view.points] == list(range(61))
    assert view.points[0].label == "now"
    assert view.points[3].label == "3 s ago"


def test_an_idle_gpu_has_a_reason_and_no_point() -> None:
    idle = dict.fromkeys(DECODE, 0.0) | {v.GPU_DRAM: 0.0006, v.GPU_SM_CLOCK: 345.0}
    view = live_view(trace_of([(1, DECODE), (2, idle)]), ids.gpu(0), "bf16")
    assert view.points == ()
    assert view.why_not is not None
    assert view.why_not.reason.startswith("idle")
    assert [roof.level for roof in view.roofs] == ["DRAM", "bf16"]


def test_idle_moments_leave_the_trail() -> None:
    idle = dict.fromkeys(DECODE, 0.0) | {v.GPU_DRAM: 0.0006, v.GPU_SM_CLOCK: 345.0}
    view = live_view(trace_of([(1, DECODE), (2, idle), (3, DECODE)]), ids.gpu(0), "bf16")
    assert [point.age_s for point in view.points] == [0, 2]


def test_a_lost_value_is_not_now() -> None:
    gap: dict[Metric, float | None] = {v.GPU_DRAM: None, v.GPU_TENSOR_HMMA: None}
    why = Unknown("the GPU is lost", "dmesg")
    view = live_view(
        trace_of([(1, DECODE), (2, gap)], missing=(Missing(whats.track(ids.gpu(0)), why),)), ids.gpu(0), "bf16"
    )
    assert (view.points, view.why_not) == ((), why)


def test_an_old_window_is_not_now() -> None:
    trace = replace(trace_of([(1, DECODE)]), end_ns=31 * NS_PER_S)
    view = live_view(trace, ids.gpu(0), "bf16")
    assert view.points == ()
    assert view.why_not is not None
    assert view.why_not.reason == "the last GPM window ended 30 s ago"
    assert newest_rates(trace, ids.gpu(0), "bf16") == view.why_not


def test_without_a_clock_there_is_no_flops_and_the_clock_is_the_reason() -> None:
    why = Unknown("the driver does not report it for this GPU")
    without = {metric: value for metric, value in DECODE.items() if metric is not v.GPU_SM_CLOCK}
    trace = trace_of([(1, without)], missing=(Missing(What("gpu:0/gpu.sm_clock"), why),))
    assert live_view(trace, ids.gpu(0), "bf16").why_not == why


def test_a_tensor_pipe_without_a_value_is_not_counted_as_rest() -> None:
    why = Unknown("GPM had no value for this window")
    broken = DECODE | {v.GPU_TENSOR_HMMA: None}
    trace = trace_of([(1, DECODE), (2, broken)], missing=(Missing(What("gpu:0/gpu.tensor_hmma"), why),))
    view = live_view(trace, ids.gpu(0), "bf16")
    assert (view.points, view.why_not) == ((), why)


def test_a_lesser_pipe_without_a_value_is_noted() -> None:
    view = live_view(trace_of([(1, DECODE | {v.GPU_TENSOR_IMMA: None})]), ids.gpu(0), "bf16")
    assert view.points
    assert view.notes == ("not counted, because GPM has no value: IMMA",)


def test_without_gpm_the_reason_is_the_collectors() -> None:
    why = Unknown("GPM needs a Hopper or newer GPU", "...")
    a100 = replace(H100, facts={**H100_FACTS, "name": "NVIDIA A100-SXM4-80GB"})
    view = live_view(
        trace_of([(1, {v.GPU_SM_CLOCK: 1410.0})], track=a100, missing=(Missing(What("gpu:0/gpm"), why),)),
        ids.gpu(0),
        "bf16",
    )
    assert (view.points, view.why_not) == ((), why)
    assert [roof.level for roof in view.roofs] == ["DRAM", "bf16"]


def test_without_a_gpu_the_reason_is_nvmls() -> None:
    why = Unknown("libnvidia-ml.so.1 not found", "install the driver")
    view = live_view(Trace(Origin("live"), missing=(Missing(What("nvml"), why),), sources=SOURCES), ids.gpu(0), "bf16")
    assert (view.roofs, view.points, view.why_not) == ((), (), why)


def test_an_unlisted_gpu_still_has_its_memory_roof() -> None:
    unlisted = replace(H100, facts={**H100_FACTS, "name": "NVIDIA X1 [/b]"})
    trace = trace_of([(1, DECODE)], track=unlisted)
    view = live_view(trace, ids.gpu(0), "bf16")
    assert [(roof.level, roof.value) for roof in view.roofs] == [("DRAM", 3352.32e9)]
    assert view.why_not is not None
    assert 'no published peaks for "NVIDIA X1 [/b]"' in view.why_not.reason
    assert dram_bytes_per_s(trace, ids.gpu(0), 60 * NS_PER_S) == pytest.approx(0.8434 * 3352.32e9)


def test_sharing_and_mig_are_noted() -> None:
    mig = replace(H100, facts={**H100_FACTS, "mig": "enabled"})
    processes = [
        Track(ids.gpu_process(ids.gpu(0), pid), TrackKind.GPU_PROCESS, "p", parent=ids.gpu(0)) for pid in (1, 2)
    ]
    notes = live_view(trace_of([(1, DECODE | {v.GPU_FP16: 3.0})], track=mig, extra=processes), ids.gpu(0), "bf16").notes
    assert "2 processes share this GPU: the point is of all of them" in notes
    assert "MIG is enabled: the roofs are of the whole GPU" in notes
    assert "FP16 work on CUDA cores (3.0 % of that pipe) is not counted" in notes


@pytest.mark.parametrize("others", [0, 1])
def test_a_process_that_has_its_gpu_for_itself_is_no_note(others: int) -> None:
    """Nor is one beside it on another GPU."""
    processes = [
        Track(ids.gpu_process(ids.gpu(gpu), 1 + gpu), TrackKind.GPU_PROCESS, "p", parent=ids.gpu(gpu))
        for gpu in range(1 + others)
    ]
    assert live_view(trace_of([(1, DECODE)], extra=processes), ids.gpu(0), "bf16").notes == ()


SERVER = Track(ids.server(8000), TrackKind.SERVER, "vLLM")


def with_server(trace: Trace, growth: Mapping[Metric, float]) -> Trace:
    """The trace with server counters that grow by so much a second."""
    end_s = trace.end_ns // NS_PER_S
    series = {
        (SERVER.id, metric.name): Series.of(
            SERVER.id, metric, "vLLM metrics", [(t * NS_PER_S, per_second * t) for t in range(end_s + 1)]
        )
        for metric, per_second in growth.items()
    }
    return replace(trace, tracks={**trace.tracks, SERVER.id: SERVER}, series={**trace.series, **series})


ESTIMATED = {v.SERVER_FLOPS: 180e12, v.SERVER_READ_BYTES: 2.7e12, v.SERVER_WRITE_BYTES: 0.1e12}


def test_the_servers_estimate_is_a_second_point() -> None:
    trace = with_server(trace_of([(t, DECODE) for t in range(20)]), ESTIMATED)
    now, estimate, before = live_view(trace, ids.gpu(0), "bf16").points[:3]
    assert (now.label, estimate.label, before.age_s) == ("now", "server estimate", 1)
    assert estimate.flops_per_s == pytest.approx(180e12)
    assert estimate.bytes_per_s == pytest.approx(2.8e12)
    assert estimate.quality is Quality.ESTIMATE
    assert estimate.source == "model estimate (vLLM metrics)"
    assert estimate.roof_fraction == pytest.approx(2.8e12 / 3352.32e9)


def test_the_estimate_stands_in_where_there_is_no_gpm() -> None:
    why = Unknown("GPM needs a Hopper or newer GPU")
    bare = trace_of([(20, {v.GPU_SM_CLOCK: 1980.0})], missing=(Missing(What("gpu:0/gpm"), why),))
    view = live_view(with_server(bare, ESTIMATED), ids.gpu(0), "bf16")
    assert [point.label for point in view.points] == ["server estimate"]
    assert view.why_not is None
    assert [(refusal.label, refusal.why) for refusal in view.refusals] == [("GPM", why)]


def test_counters_that_stand_still_while_tokens_advance_are_off() -> None:
    off = dict.fromkeys(ESTIMATED, 0.0) | {v.SERVER_OUTPUT_TOKENS: 500.0}
    view = live_view(with_server(trace_of([(t, DECODE) for t in range(20)]), off), ids.gpu(0), "bf16")
    assert [point.label for point in view.points[:2]] == ["now", "1 s ago"]
    (refusal,) = view.refusals
    assert refusal.label == "server estimate"
    assert "they are off" in refusal.why.reason
    assert "--enable-mfu-metrics" in refusal.why.remedy


def test_every_number_is_finite_whatever_the_percentages() -> None:
    for percent in (0.0, 1e-9, 100.0):
        values = dict.fromkeys(DECODE, percent) | {v.GPU_SM_CLOCK: 1980.0}
        for point in live_view(trace_of([(1, values)]), ids.gpu(0), "bf16").points:
            assert math.isfinite(point.intensity)
            assert point.intensity > 0


@pytest.mark.skipif(not PHASES.exists(), reason="the recorded phases are not in this checkout")
def test_recorded_phases_of_a_server() -> None:
    """Larger batches of decode stand further right, prefill right of them, and idle has no point."""
    rows = [json.loads(line) for line in PHASES.read_text(encoding="utf-8").splitlines()]
    recorder = Recorder(Origin("live"), 600)
    best: dict[str, float] = {}
    idle_reasons = 0
    for row in (row for row in rows if row["gpm"]):
        t_ns = int((row["t"] - rows[0]["t"]) * NS_PER_S) + 1
        values = {metric: row["gpm"][name] for name, metric in METRIC_BY_SAMPLE_NAME.items()}
        values[v.GPU_SM_CLOCK] = float(row["sm_mhz"])
        readings = tuple(Reading(ids.gpu(0), metric, t_ns, value, "GPM") for metric, value in values.items())
        recorder.append("nvml", Trace(Origin("live"), t_ns, t_ns, tracks={ids.gpu(0): H100}, readings=readings))
        view = live_view(recorder.freeze(), ids.gpu(0), "bfloat16")
        if view.points:
            assert 0 < (view.points[0].roof_fraction or 0) < 1.05
            best[row["phase"]] = max(best.get(row["phase"], 0.0), view.points[0].intensity)
        elif row["phase"] == "idle":
            idle_reasons += view.why_not is not None and view.why_not.reason.startswith("idle")
    assert best["decode B1 L512"] < best["decode B16 L512"] < best["prefill B16 L512"]
    assert idle_reasons > 20
