"""Kineto traces for tests: those at hand, and ones that are written as Kineto and other tools write them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.parsers.sample_reports import OTHERS, SAMPLE_TRACES

SHIPPED = SAMPLE_TRACES / "kineto" / "1" / "llama-generate.pt.trace.json.gz"
QWEN = OTHERS / "public" / "AMD-AGI__TraceLens__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
needs_qwen = pytest.mark.skipif(not QWEN.exists(), reason="../shared/samples has traces that are not shipped")


def kineto_traces() -> list[Path]:
    """Every Kineto trace of up to 1 MB at hand, the one shipped with llmtop first."""
    others = sorted((OTHERS / "public").glob("*.json.gz"))
    return [SHIPPED, *(path for path in others if path.stat().st_size < 1_000_000)]


def document(path: Path) -> dict[str, Any]:
    """What the JSON parser of Python makes of it, numbers with a point as texts."""
    read: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()), parse_float=str, strict=False)
    return read


def span(category: str, name: str, start: object, length: object, pid: object = 10, **more: Any) -> dict[str, Any]:
    """A span with the keys in the order of Kineto."""
    tid = more.pop("tid", 10)
    event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": length}
    return event | ({"args": more} if more else {})


def kernel_pair(join: int, start: int) -> list[dict[str, Any]]:
    """A launch, and a kernel of 5 µs that begins 10 µs later."""
    shape = {"grid": [4, 2, 1], "block": [128, 1, 1], "registers per thread": 32, "shared memory": 1024}
    return [
        span("cuda_runtime", "cudaLaunchKernel", start, 8, correlation=join),
        span("kernel", "void step<int>(int*)", start + 10, 5, 0, tid=7, device=0, stream=7, correlation=join, **shape),
    ]


def few_events() -> list[dict[str, Any]]:
    """An operator of 100 µs, within it two kernels and a copy, in a range."""
    copy = {"device": 0, "stream": 7, "bytes": 4096, "correlation": 3}
    return [
        span("user_annotation", "ProfilerStep#1", 1000, 200),
        span("cpu_op", "aten::mm", 1010, 100, **{"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}),
        *kernel_pair(1, 1020),
        *kernel_pair(2, 1060),
        span("cuda_runtime", "cudaMemcpyAsync", 1120, 20, correlation=3),
        span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 1130, 4, 0, tid=7, **copy),
    ]


def allocator_event(at: float, args: dict[str, Any], tid: int = 10) -> dict[str, Any]:
    """A moment at which PyTorch's allocator got memory or gave it back."""
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 10, "tid": tid, "ts": at,
            "args": args}  # fmt: skip


def written(events: list[dict[str, Any]], indent: int | None = 2, **facts: Any) -> bytes:
    """A trace in one layout or another."""
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA X", "numSms": 8}], **facts}
    return json.dumps({**head, "traceEvents": events, "traceName": "t.json"}, indent=indent).encode()
