"""Advice names no type that the GPU's tensor cores do not have, and none that is narrower than what is used already."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from llmtop import ids
from llmtop.analysis.kernels.architecture import architecture, narrower_types, quantised_types, tensor_types_used
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.server.configuration import change
from llmtop.capability import tensor_types
from llmtop.facts import SETTINGS_OF, GpuFact, OriginFact
from llmtop.model import LIVE, Feature, Trace, Track, TrackKind
from llmtop.parsers.registry import load
from llmtop.settings import keys_of
from tests.kernel_traces import COMPUTE, LLAMA, MEMORY, OCCUPANCY, TENSOR, WAVES, Launch, report

if TYPE_CHECKING:
    from pathlib import Path

SGEMM = "volta_sgemm_128x64_nn"
IDLE_TENSOR_CORES = {
    COMPUTE: 80.0, MEMORY: 20.0, TENSOR: 0.0, OCCUPANCY: 60.0, WAVES: 8.0,
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": 80.0,
}  # fmt: skip


def of_capability(written: str, name: str = SGEMM, gpu: str = "") -> Trace:
    trace = report(Launch(name, 50_000.0, IDLE_TENSOR_CORES), gpu=gpu)
    return replace(trace, origin=replace(trace.origin, facts={OriginFact.COMPUTE_CAPABILITY: written}))


def actions(trace: Trace, rule: str) -> list[str]:
    return [one.action for one in diagnose(trace).findings if one.rule == rule]


@pytest.mark.parametrize(
    ("written", "told", "withheld"),
    [
        ("7.0", "fp16", ("tf32", "TF32", "bf16")),
        ("7.5", "fp16", ("tf32", "TF32", "bf16")),
        ("8.0", "tf32", ()),
        ("7.5, 9.0", "fp16", ("tf32", "bf16")),
        ("", "both need compute capability 8.0", ()),
    ],
)
@pytest.mark.parametrize("name", [SGEMM, "sgemm_of_my_own"])
def test_fp32_goes_to_tensor_cores_in_a_type_that_they_have(
    name: str, written: str, told: str, withheld: tuple[str, ...]
) -> None:
    (action,) = actions(of_capability(written, name), "kernel-tensor-missed")
    assert told in action or not (written or name == SGEMM)
    assert not [one for one in withheld if one in action]


@pytest.mark.parametrize(("written", "gpu"), [("6.1", ""), ("7.5", "NVIDIA GeForce GTX 1660 SUPER")])
def test_a_gpu_without_tensor_cores_misses_none(written: str, gpu: str) -> None:
    assert actions(of_capability(written, gpu=gpu), "kernel-tensor-missed") == []


@pytest.mark.parametrize(
    ("written", "dtype", "inputs", "weights"),
    [
        ("8.6", "bf16", "INT8", "INT8, INT4"),
        ("8.9", "bf16", "FP8 or INT8", "FP8, INT4"),
        ("12.0", "fp8", "FP4", "INT4"),
        ("9.0", "fp8", "", "INT4"),
        ("7.0", "fp16", "", "INT8, INT4"),
        ("8.0", "tf32", "bf16, fp16 or INT8", "INT8, INT4"),
    ],
)
def test_narrower_types_are_those_of_the_gpu(written: str, dtype: str, inputs: str, weights: str) -> None:
    trace = of_capability(written)
    assert narrower_types(trace, dtype) == inputs
    assert quantised_types(trace, dtype) == weights


def test_a_model_that_is_listed_tells_what_it_has_without_a_capability() -> None:
    assert tensor_types_used(report(Launch(SGEMM, 1.0, {}), gpu="Tesla T4")) == tensor_types((7, 5))


def test_a_kernel_of_one_architecture_alone_tells_it() -> None:
    trace = report(Launch("nvjet_sm90_tst_64x8", 1.0, {}), gpu="")
    assert architecture(trace) == "Hopper"
    assert tensor_types_used(trace) == tensor_types((9, 0))


def test_a_report_has_the_capability_of_its_gpu() -> None:
    assert load(LLAMA).origin.facts[OriginFact.COMPUTE_CAPABILITY] == "9.0"


def _kineto(tmp_path: Path, **device: object) -> Trace:
    path = tmp_path / "made.pt.trace.json"
    event = {"ph": "X", "cat": "kernel", "name": SGEMM, "pid": 0, "tid": 7, "ts": 1, "dur": 2,
             "args": {"device": 0, "stream": 7, "correlation": 1}}  # fmt: skip
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": [event]}))
    return load(path)


def test_a_pytorch_trace_has_it_on_the_gpus_track(tmp_path: Path) -> None:
    trace = _kineto(tmp_path, id=0, name="NVIDIA GeForce RTX 2080 Ti", computeMajor=7, computeMinor=5)
    (gpu,) = trace.tracks_of(TrackKind.GPU)
    assert gpu.facts[GpuFact.COMPUTE_CAPABILITY] == "7.5"
    assert architecture(trace) == "Turing"


def test_what_rocm_calls_a_compute_capability_is_none(tmp_path: Path) -> None:
    trace = _kineto(tmp_path, id=0, name="AMD Instinct MI300X", computeMajor=9, computeMinor=4)
    assert architecture(trace) == ""


@pytest.mark.parametrize(("written", "is_named"), [("9.0", True), ("7.5", False), (None, True)])
def test_a_server_is_told_of_fp8_only_where_its_gpu_has_it(written: str | None, is_named: bool) -> None:
    gpu = Track(ids.gpu(0), TrackKind.GPU, "GPU 0", facts={GpuFact.COMPUTE_CAPABILITY: written} if written else {})
    keys = keys_of(Feature.QUANTIZATION)
    facts = {SETTINGS_OF: "vllm", keys.change: "--quantization fp8"}
    server = Track(ids.server(8000), TrackKind.SERVER, "vLLM", facts=facts)
    trace = Trace(LIVE, tracks={track.id: track for track in (gpu, server)})
    assert change(trace, Feature.QUANTIZATION, "quantise the weights") == (
        "quantise the weights (--quantization fp8)" if is_named else "quantise the weights"
    )
