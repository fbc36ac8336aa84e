"""SGLang. Names read in the sources of releases 0.3.6 to 0.5.23."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Default, Engine, ExposedNumber, Feature, Knob, Role
from llmtop.servers.web_frameworks import SGLANG

_TOKENS = "sglang_realtime_tokens"
_PREFILL = {"mode": ("prefill_compute", "prefill_cache")}
_ALL_PRIORITIES = {"priority": ("",)}
"""With priority scheduling the queues are written once as a whole and once more for each priority."""

KNOBS = {
    Feature.CUDA_GRAPHS: Knob(
        flags=("--cuda-graph-backend-decode", "--cuda-graph-config.decode.backend"),
        switches={"--disable-cuda-graph": "off", "--disable-decode-cuda-graph": "off"},
        words={"disabled": "off"},
        defaults=(Default("on"),),
        change="start without --disable-cuda-graph",
    ),
    Feature.TORCH_COMPILE: Knob(
        switches={"--enable-torch-compile": "on"}, defaults=(Default("off"),), change="--enable-torch-compile"
    ),
    Feature.ASYNC_SCHEDULING: Knob(  # its name there: overlap scheduling, on since 0.4
        switches={"--disable-overlap-schedule": "off", "--enable-overlap-schedule": "on"},
        defaults=(Default("on", unless=(Feature.SPECULATIVE_DECODING, Feature.PIPELINE_PARALLEL)),),
        change="start without --disable-overlap-schedule",
    ),
    Feature.PREFIX_CACHING: Knob(
        switches={"--disable-radix-cache": "off"},
        defaults=(Default("on"),),
        change="start without --disable-radix-cache",
    ),
    Feature.CHUNKED_PREFILL: Knob(
        flags=("--chunked-prefill-size",),
        words={"-1": "off"},
        defaults=(Default("on"),),
        change="--chunked-prefill-size",
    ),
    Feature.QUANTIZATION: Knob(flags=("--quantization",), change="--quantization fp8"),
    Feature.KV_CACHE_DTYPE: Knob(
        flags=("--kv-cache-dtype",), defaults=(Default("auto"),), change="--kv-cache-dtype fp8_e5m2"
    ),
    Feature.SPECULATIVE_DECODING: Knob(
        flags=("--speculative-algorithm", "--speculative-algo"),
        defaults=(Default("off"),),
        change="--speculative-algorithm",
    ),
    Feature.EXPERT_PARALLEL: Knob(
        flags=("--ep-size", "--expert-parallel-size", "--ep"),
        switches={"--enable-ep-moe": "on"},
        words={"1": "off"},
        defaults=(Default("off"),),
        change="--ep-size",
    ),
    Feature.SLEEP_WHEN_IDLE: Knob(
        switches={"--sleep-on-idle": "on"}, defaults=(Default("off"),), change="--sleep-on-idle"
    ),
    Feature.KV_OFFLOADING: Knob(
        switches={"--enable-hierarchical-cache": "on"}, defaults=(Default("off"),), change="--enable-hierarchical-cache"
    ),
    Feature.MAX_RUNNING: Knob(flags=("--max-running-requests",), change="--max-running-requests"),
    Feature.MAX_BATCHED_TOKENS: Knob(flags=("--max-prefill-tokens",), change="--max-prefill-tokens"),
    Feature.MAX_LENGTH: Knob(flags=("--context-length",), change="--context-length"),
    Feature.GPU_MEMORY_SHARE: Knob(flags=("--mem-fraction-static",), change="--mem-fraction-static"),
    Feature.KV_BLOCK_SIZE: Knob(flags=("--page-size",)),
    Feature.TENSOR_PARALLEL: Knob(
        flags=("--tensor-parallel-size", "--tp-size", "--tp"), defaults=(Default(1),), change="--tp-size"
    ),
    Feature.PIPELINE_PARALLEL: Knob(
        flags=("--pipeline-parallel-size", "--pp-size", "--pp"), defaults=(Default(1),), change="--pp-size"
    ),
    Feature.DATA_PARALLEL: Knob(
        flags=("--data-parallel-size", "--dp-size", "--dp"), defaults=(Default(1),), change="--dp-size"
    ),
    Feature.API_SERVERS: Knob(
        flags=("--tokenizer-worker-num",), defaults=(Default(1),), change="--tokenizer-worker-num"
    ),
    Feature.CPU_THREADS: Knob(
        variables=("OMP_NUM_THREADS",), change="OMP_NUM_THREADS, TORCHINDUCTOR_COMPILE_THREADS, TOKENIZERS_PARALLELISM"
    ),
}
"""Read in its documentation of server arguments and in its source as of the middle of 2026; `--enable-ep-moe` and
`--enable-overlap-schedule` are of older releases. Whether steps overlap with speculative decoding or pipeline
parallelism changed from release to release, and no page that is cheap to read tells the release (`/server_info` asks
the scheduler)."""
ENGINE = Engine(
    kind="sglang",
    package="sglang",
    title="SGLang",
    roles=(
        Role(r"\1", r"^sglang::((?:scheduler|detokenizer|data_parallel_controller|http_server)\w*)"),
        Role("tokenizer_worker", r"^sglang::tokenizer_worker"),
        Role("router", r"^-m sglang_router\.|^(?:\S*/)?(?:sgl-router|sglang-router|smg)(?:\s|$)"),
        Role("http_server", r"^-m sglang\.launch_server(?:\s|$)|^(?:\S*/)?sglang serve(?:\s|$)"),
        Role("http_server", r"^\S*/sglang/launch_server\.py(?:\s|$)"),
        Role("http_server", r"^-c [\s\S]*\bsglang\.(?:srt\.server|launch_server|srt\.entrypoints\.http_server)\b"),
    ),
    titles=("sglang::scheduler", "sglang::detokenizer", "sglang::data_parallel_controller"),
    cores={"http_server": "scheduler"},
    core_elsewhere=r"--nnodes|--node-rank|--dist-init-addr|--use-ray",
    library=r"sgl_kernel|/sglang/[^\n]*\.so",
    port=30000,
    prefixes=("sglang_",),
    metrics_remedy="start SGLang with --enable-metrics",
    names={
        v.SERVER_RUNNING: (ExposedNumber("sglang_num_running_reqs", _ALL_PRIORITIES),),
        v.SERVER_WAITING: (ExposedNumber("sglang_num_queue_reqs", _ALL_PRIORITIES),),
        v.SERVER_KV_USAGE: (ExposedNumber("sglang_token_usage"),),
        v.SERVER_PREEMPTIONS: (ExposedNumber("sglang_num_retracted_requests"),),  # 0.5.8; gauges before, no counter
        # With each step since 0.5.8; the other counters move when a request ends, in all releases.
        v.SERVER_PROMPT_TOKENS: (ExposedNumber(_TOKENS, _PREFILL), ExposedNumber("sglang_prompt_tokens", at_end=True)),
        v.SERVER_OUTPUT_TOKENS: (
            ExposedNumber(_TOKENS, {"mode": ("decode",)}),
            ExposedNumber("sglang_generation_tokens", at_end=True),
        ),
        v.SERVER_OUTPUT_RATE: (ExposedNumber("sglang_gen_throughput"),),
        v.SERVER_REQUESTS: (ExposedNumber("sglang_num_requests"),),
        v.SERVER_FAILURES: (ExposedNumber("sglang_num_aborted_requests"),),
        **SGLANG,
        v.SERVER_PREFIX_QUERIES: (ExposedNumber(_TOKENS, _PREFILL), ExposedNumber("sglang_prompt_tokens")),
        v.SERVER_PREFIX_HITS: (
            ExposedNumber(_TOKENS, {"mode": ("prefill_cache",)}),
            ExposedNumber("sglang_cached_tokens"),
        ),
        v.SERVER_PREFIX_HIT_RATE: (ExposedNumber("sglang_cache_hit_rate"),),
        v.SERVER_FLOPS: (ExposedNumber("sglang_estimated_flops_per_gpu"),),
        v.SERVER_READ_BYTES: (ExposedNumber("sglang_estimated_read_bytes_per_gpu"),),
        v.SERVER_WRITE_BYTES: (ExposedNumber("sglang_estimated_write_bytes_per_gpu"),),
        v.SERVER_ACCEPTANCE: (ExposedNumber("sglang_spec_accept_rate"),),
        v.SERVER_HELD_GRAMMAR: (ExposedNumber("sglang_num_grammar_queue_reqs", _ALL_PRIORITIES),),
        v.SERVER_HELD_TRANSFER: (ExposedNumber("sglang_num_decode_transfer_queue_reqs", _ALL_PRIORITIES),),
        v.SERVER_STEPS: (ExposedNumber("sglang_cuda_graph_passes"),),
    },
    distributions={
        v.SERVER_TTFT: (ExposedNumber("sglang_time_to_first_token_seconds"),),
        v.SERVER_ITL: (
            ExposedNumber("sglang_inter_token_latency_seconds"),
            ExposedNumber("sglang_time_per_output_token_seconds"),  # to 0.4.1
        ),
        v.SERVER_E2E: (ExposedNumber("sglang_e2e_request_latency_seconds"),),
        v.SERVER_QUEUE_TIME: (ExposedNumber("sglang_queue_time_seconds"), ExposedNumber("sglang_queue_time_s")),
    },
    model_flags=("--model-path", "--model"),
    alias_flags=("--served-model-name",),
    backs=r"scheduler|detokenizer|data_parallel_controller|tokenizer_worker",
    model_after=("serve",),
    model_labels=("model_name", "name"),  # "name" in 0.3 and 0.4
    # With --enable-metrics-for-all-schedulers every rank tells the same story.
    replicas=("tp_rank", "pp_rank", "moe_ep_rank"),
    knobs=KNOBS,
    config_flags=("--config",),
)
