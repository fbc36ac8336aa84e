"""vLLM: engines V0 (to 0.8) and V1. Names read in the sources of releases 0.6.6 to 0.33."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Engine, Role, Sample

NAMES = {
    v.SERVER_RUNNING: (Sample("vllm_num_requests_running"),),
    v.SERVER_WAITING: (Sample("vllm_num_requests_waiting"),),
    v.SERVER_KV_USAGE: (Sample("vllm_kv_cache_usage_perc"), Sample("vllm_gpu_cache_usage_perc")),  # renamed in 0.9
    v.SERVER_PREEMPTIONS: (Sample("vllm_num_preemptions"),),
    v.SERVER_PROMPT_TOKENS: (Sample("vllm_prompt_tokens"),),
    v.SERVER_OUTPUT_TOKENS: (Sample("vllm_generation_tokens"),),
    v.SERVER_REQUESTS: (Sample("vllm_request_success"),),
    v.SERVER_FAILURES: (Sample("vllm_request_success", {"finished_reason": ("abort", "error")}),),
    v.SERVER_PREFIX_QUERIES: (Sample("vllm_prefix_cache_queries"), Sample("vllm_gpu_prefix_cache_queries")),
    v.SERVER_PREFIX_HITS: (Sample("vllm_prefix_cache_hits"), Sample("vllm_gpu_prefix_cache_hits")),
    v.SERVER_PREFIX_HIT_RATE: (Sample("vllm_gpu_prefix_cache_hit_rate"),),  # V0 only
    v.SERVER_FLOPS: (Sample("vllm_estimated_flops_per_gpu"),),
    v.SERVER_READ_BYTES: (Sample("vllm_estimated_read_bytes_per_gpu"),),
    v.SERVER_WRITE_BYTES: (Sample("vllm_estimated_write_bytes_per_gpu"),),
    v.SERVER_STEPS: (Sample("vllm_iteration_tokens_total_count"),),  # a histogram in spite of its name
}
DISTRIBUTIONS = {
    v.SERVER_TTFT: (Sample("vllm_time_to_first_token_seconds"),),
    v.SERVER_ITL: (
        Sample("vllm_inter_token_latency_seconds"),
        Sample("vllm_time_per_output_token_seconds"),  # the same until 0.11; hidden in 0.12, gone by 0.17
    ),
    v.SERVER_E2E: (Sample("vllm_e2e_request_latency_seconds"),),
    v.SERVER_QUEUE_TIME: (Sample("vllm_request_queue_time_seconds"), Sample("vllm_time_in_queue_requests")),
    v.SERVER_PREFILL_TIME: (Sample("vllm_request_prefill_time_seconds"),),
    v.SERVER_DECODE_TIME: (Sample("vllm_request_decode_time_seconds"),),
}
ENGINE = Engine(
    kind="vllm",
    title="vLLM",
    roles=(
        # setproctitle (0.10.2 and newer); VLLM_PROCESS_NAME_PREFIX may replace the word before the colons.
        Role(r"\1", r"^[\w.-]+::(EngineCore\S*|Worker(?:_\S*)?|APIServer\S*|DPCoordinator|DPSupervisor)(?:\s|$)"),
        Role("Worker", r"^ray::RayWorkerWrapper"),
        Role("APIServer", r"^(?:\S*/)?vllm-rs(?:\s|$)"),
        Role("APIServer", r"^(?:\S*/)?vllm serve(?:\s|$)"),
        Role("APIServer", r"^-m vllm\.entrypoints\.(?:(?:openai\.)?api_server|cli\.main serve)(?:\s|$)"),
    ),
    library=r"/vllm/[^\n]*\.so",
    port=8000,
    prefixes=("vllm_",),
    metrics_remedy="start vLLM without --disable-log-stats",
    names=NAMES,
    distributions=DISTRIBUTIONS,
    model_flags=("--model",),
    model_after=("serve",),
    info={"vllm_cache_config_info": ("num_gpu_blocks", "block_size", "cache_dtype", "gpu_memory_utilization")},
    version_path="/version",
    backs=r"EngineCore|Worker|DPCoordinator",
    alias_flags=("--served-model-name",),
)
