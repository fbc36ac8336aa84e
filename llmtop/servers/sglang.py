"""SGLang. Names read in the sources of releases 0.3.6 to 0.5.23."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Engine, Role, Sample

_ALL_PRIORITIES = {"priority": ("",)}
"""With priority scheduling the queues are written once as a whole and once more for each priority."""

ENGINE = Engine(
    kind="sglang",
    title="SGLang",
    roles=(
        Role(r"\1", r"^sglang::((?:scheduler|detokenizer|data_parallel_controller|http_server)\w*)"),
        Role("tokenizer_worker", r"^sglang::tokenizer_worker"),
        Role("router", r"^-m sglang_router\.|^(?:\S*/)?(?:sgl-router|sglang-router|smg)(?:\s|$)"),
        Role("http_server", r"^-m sglang\.launch_server(?:\s|$)|^(?:\S*/)?sglang serve(?:\s|$)"),
    ),
    library=r"sgl_kernel|/sglang/[^\n]*\.so",
    port=30000,
    prefixes=("sglang_",),
    metrics_remedy="start SGLang with --enable-metrics",
    names={
        v.SERVER_RUNNING: (Sample("sglang_num_running_reqs", _ALL_PRIORITIES),),
        v.SERVER_WAITING: (Sample("sglang_num_queue_reqs", _ALL_PRIORITIES),),
        v.SERVER_KV_USAGE: (Sample("sglang_token_usage"),),
        v.SERVER_PREEMPTIONS: (Sample("sglang_num_retracted_requests"),),  # 0.5.8; gauges before, no counter
        v.SERVER_PROMPT_TOKENS: (Sample("sglang_prompt_tokens"),),
        v.SERVER_OUTPUT_TOKENS: (Sample("sglang_generation_tokens"),),
        v.SERVER_REQUESTS: (Sample("sglang_num_requests"),),
        v.SERVER_FAILURES: (Sample("sglang_num_aborted_requests"),),
        v.SERVER_PREFIX_QUERIES: (Sample("sglang_prompt_tokens"),),
        v.SERVER_PREFIX_HITS: (Sample("sglang_cached_tokens"),),
        v.SERVER_PREFIX_HIT_RATE: (Sample("sglang_cache_hit_rate"),),
        v.SERVER_FLOPS: (Sample("sglang_estimated_flops_per_gpu"),),
        v.SERVER_READ_BYTES: (Sample("sglang_estimated_read_bytes_per_gpu"),),
        v.SERVER_WRITE_BYTES: (Sample("sglang_estimated_write_bytes_per_gpu"),),
        v.SERVER_STEPS: (Sample("sglang_cuda_graph_passes"),),
    },
    distributions={
        v.SERVER_TTFT: (Sample("sglang_time_to_first_token_seconds"),),
        v.SERVER_ITL: (
            Sample("sglang_inter_token_latency_seconds"),
            Sample("sglang_time_per_output_token_seconds"),  # to 0.4.1
        ),
        v.SERVER_E2E: (Sample("sglang_e2e_request_latency_seconds"),),
        v.SERVER_QUEUE_TIME: (Sample("sglang_queue_time_seconds"), Sample("sglang_queue_time_s")),
    },
    model_flags=("--model-path", "--model"),
    alias_flags=("--served-model-name",),
    backs=r"scheduler|detokenizer|data_parallel_controller|tokenizer_worker",
    model_after=("serve",),
    model_labels=("model_name", "name"),  # "name" in 0.3 and 0.4
    # With --enable-metrics-for-all-schedulers every rank tells the same story.
    replicas=("tp_rank", "pp_rank", "moe_ep_rank"),
)
