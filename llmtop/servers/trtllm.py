"""TensorRT-LLM's trtllm-serve. Names read in its metrics collector."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Engine, Role, Sample

ENGINE = Engine(
    kind="trtllm",
    title="TensorRT-LLM",
    roles=(
        Role("APIServer", r"^(?:\S*/)?trtllm-serve(?:\s|$)|^-m tensorrt_llm\.commands\.serve(?:\s|$)"),
        Role("Worker", r"^-m mpi4py\.futures\.server|^-m tensorrt_llm\S*mgmn_worker"),
    ),
    library=r"libnvinfer_plugin_tensorrt_llm|tensorrt_llm/libs",
    port=8000,
    # Never /metrics: that is a queue of iteration records, and reading takes them away from everyone else.
    metrics_paths=("/prometheus/metrics",),
    prefixes=("trtllm_",),
    metrics_remedy="put return_perf_metrics: true into the file given to trtllm-serve --extra_llm_api_options",
    names={
        v.SERVER_RUNNING: (Sample("trtllm_num_requests_running"),),
        v.SERVER_WAITING: (Sample("trtllm_num_requests_waiting"),),
        v.SERVER_KV_USAGE: (Sample("trtllm_kv_cache_utilization"),),
        v.SERVER_PROMPT_TOKENS: (Sample("trtllm_prompt_tokens"),),
        v.SERVER_OUTPUT_TOKENS: (Sample("trtllm_generation_tokens"),),
        v.SERVER_REQUESTS: (Sample("trtllm_request_success"),),
        v.SERVER_FAILURES: (Sample("trtllm_request_error"),),
        v.SERVER_PREFIX_HIT_RATE: (Sample("trtllm_kv_cache_hit_rate"),),
    },
    distributions={
        v.SERVER_TTFT: (Sample("trtllm_time_to_first_token_seconds"),),
        v.SERVER_ITL: (Sample("trtllm_time_per_output_token_seconds"),),
        v.SERVER_E2E: (Sample("trtllm_e2e_request_latency_seconds"),),
        v.SERVER_QUEUE_TIME: (Sample("trtllm_request_queue_time_seconds"),),
    },
    model_after=("serve", "trtllm-serve"),
    version_path="/version",
    backs=r"Worker",
)
