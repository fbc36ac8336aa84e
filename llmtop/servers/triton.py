"""Triton Inference Server, with the gauges of its TensorRT-LLM backend. Names read in the core's source."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Engine, ExposedNumber, Role


def _backend_requests(*kinds: str) -> ExposedNumber:
    return ExposedNumber("nv_trt_llm_request_metrics", {"request_type": kinds})


def _kv_blocks(kind: str, over: ExposedNumber | None = None) -> ExposedNumber:
    return ExposedNumber("nv_trt_llm_kv_cache_block_metrics", {"kv_cache_block_type": (kind,)}, over=over)


ENGINE = Engine(
    kind="triton",
    title="Triton",
    roles=(
        Role("server", r"^(?:\S*/)?tritonserver(?:\s|$)"),
        Role("python_backend", r"^(?:\S*/)?triton_python_backend_stub(?:\s|$)"),
        Role("executor", r"^(?:\S*/)?trtllmExecutorWorker(?:\s|$)"),
    ),
    library=r"libtritonserver\.so",
    port=8002,
    port_flags=("--metrics-port",),
    backs=r"python_backend|executor",
    prefixes=("nv_inference_", "nv_trt_llm_"),
    metrics_remedy="start tritonserver without --allow-metrics=false",
    names={
        v.SERVER_RUNNING: (_backend_requests("scheduled"),),
        v.SERVER_WAITING: (_backend_requests("waiting"), ExposedNumber("nv_inference_pending_request_count")),
        v.SERVER_KV_USAGE: (
            _kv_blocks("fraction"),
            _kv_blocks("used", over=_kv_blocks("max")),  # releases without the fraction
        ),
        v.SERVER_REQUESTS: (ExposedNumber("nv_inference_request_success"),),
        v.SERVER_FAILURES: (ExposedNumber("nv_inference_request_failure"),),
    },
    # No tokens are counted; requests and the sums of their times, when they end.
    means={
        v.SERVER_E2E: (
            ExposedNumber("nv_inference_request_duration_us", scale=1e-6),
            ExposedNumber("nv_inference_request_success"),
        ),
        v.SERVER_QUEUE_TIME: (
            ExposedNumber("nv_inference_queue_duration_us", scale=1e-6),
            ExposedNumber("nv_inference_request_success"),
        ),
    },
    distributions={v.SERVER_TTFT: (ExposedNumber("nv_inference_first_response_histogram_ms", scale=1e-3),)},
    entry_counts=("nv_inference_request_success", "nv_inference_request_failure", "nv_inference_request_duration_us"),
    model_flags=("--model-repository", "--model-store"),
    model_labels=("model",),
)
