"""TensorRT-LLM's trtllm-serve. Names read in its metrics collector."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Default, Engine, ExposedNumber, Feature, Knob, Role

KNOBS = {
    Feature.CUDA_GRAPHS: Knob(
        flags=("--cuda-graph-config",), words={"null": "off"}, defaults=(Default("on", "1.0"), Default("off"))
    ),
    Feature.ASYNC_SCHEDULING: Knob(
        flags=("--disable-overlap-scheduler",),
        words={"true": "off", "false": "on"},
        defaults=(Default("on"),),
        change="disable_overlap_scheduler: false in its options file",
    ),
    Feature.PREFIX_CACHING: Knob(
        flags=("--kv-cache-config.enable-block-reuse",),
        defaults=(Default("on"),),
        change="kv_cache_config: enable_block_reuse: true in its options file",
    ),
    Feature.CHUNKED_PREFILL: Knob(
        flags=("--enable-chunked-prefill",),
        switches={"--enable-chunked-prefill": "on"},
        defaults=(Default("off"),),
        change="enable_chunked_prefill: true in its options file",
    ),
    Feature.KV_CACHE_DTYPE: Knob(
        flags=("--kv-cache-config.dtype", "--kv-cache-dtype"),
        defaults=(Default("auto"),),
        change="kv_cache_config: dtype: fp8 in its options file",
    ),
    Feature.SPECULATIVE_DECODING: Knob(
        flags=("--speculative-config.decoding-type",),
        defaults=(Default("off"),),
        change="speculative_config: in its options file",
    ),
    Feature.MAX_RUNNING: Knob(flags=("--max-batch-size",), defaults=(Default(2048),), change="--max_batch_size"),
    Feature.MAX_BATCHED_TOKENS: Knob(flags=("--max-num-tokens",), defaults=(Default(8192),), change="--max_num_tokens"),
    Feature.MAX_LENGTH: Knob(flags=("--max-seq-len",), change="--max_seq_len"),
    Feature.GPU_MEMORY_SHARE: Knob(
        flags=(
            *("--kv-cache-free-gpu-memory-fraction", "--free-gpu-memory-fraction"),
            "--kv-cache-config.free-gpu-memory-fraction",
        ),
        defaults=(Default(0.9),),
        change="--kv_cache_free_gpu_memory_fraction",
    ),
    Feature.TENSOR_PARALLEL: Knob(
        flags=("--tp-size", "--tensor-parallel-size"), defaults=(Default(1),), change="--tp_size"
    ),
    Feature.PIPELINE_PARALLEL: Knob(
        flags=("--pp-size", "--pipeline-parallel-size"), defaults=(Default(1),), change="--pp_size"
    ),
    Feature.EXPERT_PARALLEL: Knob(
        flags=("--ep-size", "--moe-expert-parallel-size"),
        words={"1": "off"},
        defaults=(Default("off"),),
        change="--ep_size",
    ),
    Feature.CPU_THREADS: Knob(variables=("OMP_NUM_THREADS",), change="OMP_NUM_THREADS, TOKENIZERS_PARALLELISM"),
}
"""Read in the source of trtllm-serve and of its arguments (llm_args), releases 0.18 and 1.x: the options file
overwrites what the command line says."""
ENGINE = Engine(
    kind="trtllm",
    package="tensorrt_llm",
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
    # Tokens, successes and all latencies, that of the first token too, are counted when a request ends.
    names={
        v.SERVER_RUNNING: (ExposedNumber("trtllm_num_requests_running"),),
        v.SERVER_WAITING: (ExposedNumber("trtllm_num_requests_waiting"),),
        v.SERVER_KV_USAGE: (ExposedNumber("trtllm_kv_cache_utilization"),),
        v.SERVER_PROMPT_TOKENS: (ExposedNumber("trtllm_prompt_tokens", at_end=True),),
        v.SERVER_OUTPUT_TOKENS: (ExposedNumber("trtllm_generation_tokens", at_end=True),),
        v.SERVER_REQUESTS: (ExposedNumber("trtllm_request_success"),),
        v.SERVER_FAILURES: (ExposedNumber("trtllm_request_error"),),
        v.SERVER_PREFIX_HIT_RATE: (ExposedNumber("trtllm_kv_cache_hit_rate"),),
    },
    distributions={
        v.SERVER_TTFT: (ExposedNumber("trtllm_time_to_first_token_seconds"),),
        v.SERVER_ITL: (ExposedNumber("trtllm_time_per_output_token_seconds"),),
        v.SERVER_E2E: (ExposedNumber("trtllm_e2e_request_latency_seconds"),),
        v.SERVER_QUEUE_TIME: (ExposedNumber("trtllm_request_queue_time_seconds"),),
        v.SERVER_PREFILL_TIME: (ExposedNumber("trtllm_request_prefill_time_seconds"),),
        v.SERVER_DECODE_TIME: (ExposedNumber("trtllm_request_decode_time_seconds"),),
    },
    model_after=("serve", "trtllm-serve"),
    version_path="/version",
    backs=r"Worker",
    knobs=KNOBS,
    config_flags=("--extra-llm-api-options", "--config"),
    config_wins=True,
    preempts=False,  # trtllm-serve schedules with GUARANTEED_NO_EVICT
)
