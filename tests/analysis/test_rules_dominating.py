"""What dominates the time of a capture is a finding: copies, and a model that runs on the CPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from llmtop.analysis.rules.registry import diagnose
from llmtop.parsers.registry import load
from tests.nsys_capture import DTOH, HTOD, MS, US, Capture

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Finding


def copied(folder: Path, kernel_us: int, *, beside: bool = False) -> dict[str, Finding]:
    """Ten times 900 µs of copies; a kernel after each, or beside them."""
    made = Capture()
    for step in range(10):
        now = step * 2 * MS
        call = made.call("cudaMemcpyAsync", now, now + 5 * US)
        made.copy(now + 10 * US, now + 600 * US, call, HTOD, size=8 << 20)
        begins = now + (10 * US if beside else 600 * US)
        made.kernel(
            begins, begins + kernel_us * US, made.call("cudaLaunchKernel", now + 5 * US, now + 9 * US), stream=8
        )
        made.copy(now + 1690 * US, now + 2000 * US, made.call("cudaMemcpyAsync", now + 9 * US, now + 12 * US), DTOH)
    return {one.rule: one for one in diagnose(load(made.write(folder / "capture.sqlite"))).findings}


@pytest.mark.parametrize(
    ("kernel_us", "beside", "is_told"), [(100, False, True), (1000, False, False), (1600, True, False)]
)
def test_copies_that_take_most_of_the_busy_time_are_told(
    tmp_path: Path, kernel_us: int, beside: bool, is_told: bool
) -> None:
    found = copied(tmp_path, kernel_us, beside=beside)
    assert ("copies-dominate" in found) is is_told
    if is_told:
        assert found["copies-dominate"].message.startswith("copies take 90 % of the time that the GPU is busy: 9.00 ms")
        assert found["copies-dominate"].evidence[0].startswith("10 x copy HtoD: 5.90 ms, 80.0 MiB at 14.2 GB/s")


def traced(folder: Path, operator: str, call: str, *, kernel: bool = False) -> dict[str, Finding]:
    """A second of operators, one CUDA call, and maybe a kernel."""
    of = {"ph": "X", "pid": 9, "tid": 9}
    events = [
        {**of, "cat": "cpu_op", "name": operator, "ts": 100_000.0 * i, "dur": 90_000.0, "args": {"External id": i + 1}}
        for i in range(10)
    ]
    events.append({**of, "cat": "cuda_runtime", "name": call, "ts": 5.0, "dur": 2.0, "args": {"correlation": 7}})
    if kernel:
        args = {"device": 0, "stream": 7, "correlation": 7}
        events.append({**of, "pid": 0, "cat": "kernel", "name": "gemm", "ts": 9.0, "dur": 50.0, "args": args})
    device = {"id": 0, "name": "NVIDIA A100", "computeMajor": 8, "computeMinor": 0}
    path = folder / "made.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}))
    return {one.rule: one for one in diagnose(load(path)).findings}


@pytest.mark.parametrize(
    ("operator", "call", "kernel", "message"),
    [
        ("aten::addmm", "cudaDeviceSynchronize", False, "the model runs on the CPU"),
        ("aten::addmm", "cudaLaunchKernel", True, ""),  # its time may be that of launches and waits
        ("aten::mkldnn_convolution", "cudaLaunchKernel", True, "part of the model runs on the CPU"),
    ],
)
def test_a_model_on_the_cpu_is_told(tmp_path: Path, operator: str, call: str, kernel: bool, message: str) -> None:
    found = traced(tmp_path, operator, call, kernel=kernel)
    assert ("operators-on-cpu" in found) is bool(message)
    if message:
        assert found["operators-on-cpu"].message.startswith(f"{message}: operators compute 900 ms there")
