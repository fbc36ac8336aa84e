"""LMDeploy. Names read in its source."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Engine, Role, Sample

ENGINE = Engine(
    kind="lmdeploy",
    title="LMDeploy",
    roles=(
        Role("APIServer", r"^(?:\S*/|-m )?lmdeploy serve api_server(?:\s|$)|^-m lmdeploy\.serve\.openai\.api_server"),
        Role("proxy", r"^(?:\S*/|-m )?lmdeploy serve proxy(?:\s|$)"),
    ),
    library=r"_turbomind|lmdeploy/lib",
    port=23333,
    port_flags=("--server-port", "--port"),
    prefixes=("lmdeploy_",),
    metrics_remedy="start LMDeploy without --disable-metrics",
    names={
        v.SERVER_RUNNING: (Sample("lmdeploy_num_requests_running"),),
        v.SERVER_WAITING: (Sample("lmdeploy_num_requests_waiting"),),
        v.SERVER_KV_USAGE: (Sample("lmdeploy_gpu_cache_usage_perc"),),
        v.SERVER_PROMPT_TOKENS: (Sample("lmdeploy_prompt_tokens"),),
        v.SERVER_OUTPUT_TOKENS: (Sample("lmdeploy_generation_tokens"),),
        v.SERVER_REQUESTS: (Sample("lmdeploy_request_success"),),
        v.SERVER_PREFIX_HIT_RATE: (Sample("lmdeploy_prefix_cache_hit_rate"),),
        v.SERVER_STEPS: (Sample("lmdeploy_iteration_tokens_total_count"),),
    },
    distributions={
        v.SERVER_TTFT: (Sample("lmdeploy_time_to_first_token_seconds"),),
        v.SERVER_ITL: (Sample("lmdeploy_time_per_output_token_seconds"), Sample("lmdeploy_iter_token_latency")),
        v.SERVER_E2E: (Sample("lmdeploy_e2e_request_latency_seconds"),),
        v.SERVER_QUEUE_TIME: (Sample("lmdeploy_request_queue_time_seconds"),),
        v.SERVER_PREFILL_TIME: (Sample("lmdeploy_request_prefill_time_seconds"),),
        v.SERVER_DECODE_TIME: (Sample("lmdeploy_request_decode_time_seconds"),),
    },
    model_flags=(),
    alias_flags=("--model-name",),
    model_after=("api_server",),
)
