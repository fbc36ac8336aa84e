"""LMDeploy. Names read in its source."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Default, Engine, ExposedNumber, Feature, Knob, Role, Unknown

KNOBS = {
    Feature.CUDA_GRAPHS: Knob(
        switches={"--eager-mode": "off"},
        defaults=(Default(Unknown("its PyTorch engine has them, TurboMind has none")),),
        undo="start without --eager-mode",
    ),
    Feature.PREFIX_CACHING: Knob(
        switches={"--enable-prefix-caching": "on"}, defaults=(Default("off"),), change="--enable-prefix-caching"
    ),
    Feature.QUANTIZATION: Knob(flags=("--model-format",), words={"hf": "off"}),
    Feature.KV_CACHE_DTYPE: Knob(
        flags=("--quant-policy",),
        words={"0": "auto", "none": "auto", "4": "int4", "8": "int8"},
        defaults=(Default("auto"),),
        change="--quant-policy 8",
    ),
    Feature.SPECULATIVE_DECODING: Knob(flags=("--speculative-algorithm",), defaults=(Default("off"),)),
    Feature.EXPERT_PARALLEL: Knob(flags=("--ep",), words={"1": "off"}, defaults=(Default("off"),)),
    Feature.MAX_RUNNING: Knob(
        flags=("--max-batch-size",),
        defaults=(Default(Unknown("LMDeploy chooses it by the GPU")),),
        change="--max-batch-size",
    ),
    Feature.MAX_BATCHED_TOKENS: Knob(
        flags=("--max-prefill-token-num",), defaults=(Default(8192),), change="--max-prefill-token-num"
    ),
    Feature.MAX_LENGTH: Knob(flags=("--session-len",), change="--session-len"),
    Feature.GPU_MEMORY_SHARE: Knob(
        flags=("--cache-max-entry-count",), defaults=(Default(0.8),), change="--cache-max-entry-count"
    ),
    Feature.KV_BLOCK_SIZE: Knob(flags=("--cache-block-seq-len",), defaults=(Default(64),)),
    Feature.TENSOR_PARALLEL: Knob(flags=("--tp",), defaults=(Default(1),), change="--tp"),
    Feature.DATA_PARALLEL: Knob(flags=("--dp",), defaults=(Default(1),), change="--dp"),
    Feature.CPU_THREADS: Knob(variables=("OMP_NUM_THREADS",), change="OMP_NUM_THREADS, TOKENIZERS_PARALLELISM"),
}
"""Read in the source of its command line, releases 0.6.0 to 0.11.0 and of August 2026. The share of GPU memory is that
of what is free beside the weights."""
ENGINE = Engine(
    kind="lmdeploy",
    package="lmdeploy",
    title="LMDeploy",
    roles=(
        Role("APIServer", r"^(?:\S*/|-m )?lmdeploy serve api_server(?:\s|$)|^-m lmdeploy\.serve\.openai\.api_server"),
        Role("proxy", r"^(?:\S*/|-m )?lmdeploy serve proxy(?:\s|$)"),
    ),
    library=r"_turbomind|lmdeploy/lib",
    port=23333,
    port_flags=("--server-port", "--port"),
    prefixes=("lmdeploy_",),
    metrics_remedy="start LMDeploy without --disable-metrics (before 0.11: with --enable-metrics)",
    names={
        v.SERVER_RUNNING: (ExposedNumber("lmdeploy_num_requests_running"),),
        v.SERVER_WAITING: (ExposedNumber("lmdeploy_num_requests_waiting"),),
        v.SERVER_KV_USAGE: (ExposedNumber("lmdeploy_gpu_cache_usage_perc"),),
        v.SERVER_PROMPT_TOKENS: (ExposedNumber("lmdeploy_prompt_tokens"),),
        v.SERVER_OUTPUT_TOKENS: (ExposedNumber("lmdeploy_generation_tokens"),),
        v.SERVER_REQUESTS: (ExposedNumber("lmdeploy_request_success"),),
        v.SERVER_PREFIX_QUERIES: (ExposedNumber("lmdeploy_prompt_tokens"),),
        v.SERVER_PREFIX_HITS: (ExposedNumber("lmdeploy_cached_tokens"),),  # newer than 0.11
        v.SERVER_DRAFTED: (ExposedNumber("lmdeploy_spec_decode_num_draft_tokens"),),
        v.SERVER_ACCEPTED: (ExposedNumber("lmdeploy_spec_decode_num_accepted_tokens"),),
        v.SERVER_PREFIX_HIT_RATE: (ExposedNumber("lmdeploy_prefix_cache_hit_rate"),),
        v.SERVER_STEPS: (ExposedNumber("lmdeploy_iteration_tokens_total_count"),),
    },
    distributions={
        v.SERVER_TTFT: (ExposedNumber("lmdeploy_time_to_first_token_seconds"),),
        v.SERVER_ITL: (
            ExposedNumber("lmdeploy_time_per_output_token_seconds"),
            ExposedNumber("lmdeploy_iter_token_latency"),
        ),
        v.SERVER_E2E: (ExposedNumber("lmdeploy_e2e_request_latency_seconds"),),
        v.SERVER_QUEUE_TIME: (ExposedNumber("lmdeploy_request_queue_time_seconds"),),
        v.SERVER_PREFILL_TIME: (ExposedNumber("lmdeploy_request_prefill_time_seconds"),),
        v.SERVER_DECODE_TIME: (ExposedNumber("lmdeploy_request_decode_time_seconds"),),
    },
    model_flags=(),
    alias_flags=("--model-name",),
    model_after=("api_server",),
    knobs=KNOBS,
)
