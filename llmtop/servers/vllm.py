"""vLLM: engines V0 (to 0.8) and V1. Names read in the sources of releases 0.6.6 to 0.33."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Default, Engine, ExposedNumber, Feature, FormerDefault, Knob, Role, Unknown
from llmtop.servers.web_frameworks import FASTAPI

# Output tokens are counted with each step, prompt tokens when a prompt is done (with its first output token), as are
# the times to a first token and between tokens; requests and their other times are counted when they end. Requests
# that a client aborts are not counted at all by the engine V1: they leave its books without having ended.
NAMES = {
    v.SERVER_RUNNING: (ExposedNumber("vllm_num_requests_running"),),
    v.SERVER_WAITING: (ExposedNumber("vllm_num_requests_waiting"),),
    v.SERVER_KV_USAGE: (
        ExposedNumber("vllm_kv_cache_usage_perc"),
        ExposedNumber("vllm_gpu_cache_usage_perc"),
    ),  # renamed in 0.9
    v.SERVER_PREEMPTIONS: (ExposedNumber("vllm_num_preemptions"),),
    v.SERVER_PROMPT_TOKENS: (ExposedNumber("vllm_prompt_tokens"),),
    v.SERVER_OUTPUT_TOKENS: (ExposedNumber("vllm_generation_tokens"),),
    v.SERVER_REQUESTS: (ExposedNumber("vllm_request_success"),),
    v.SERVER_FAILURES: (ExposedNumber("vllm_request_success", {"finished_reason": ("abort", "error")}),),
    v.SERVER_PREFIX_QUERIES: (
        ExposedNumber("vllm_prefix_cache_queries"),
        ExposedNumber("vllm_gpu_prefix_cache_queries"),
    ),
    v.SERVER_PREFIX_HITS: (ExposedNumber("vllm_prefix_cache_hits"), ExposedNumber("vllm_gpu_prefix_cache_hits")),
    v.SERVER_PREFIX_HIT_RATE: (ExposedNumber("vllm_gpu_prefix_cache_hit_rate"),),  # V0 only
    v.SERVER_FLOPS: (ExposedNumber("vllm_estimated_flops_per_gpu"),),
    v.SERVER_READ_BYTES: (ExposedNumber("vllm_estimated_read_bytes_per_gpu"),),
    v.SERVER_WRITE_BYTES: (ExposedNumber("vllm_estimated_write_bytes_per_gpu"),),
    v.SERVER_DRAFTED: (ExposedNumber("vllm_spec_decode_num_draft_tokens"),),
    v.SERVER_ACCEPTED: (ExposedNumber("vllm_spec_decode_num_accepted_tokens"),),
    v.SERVER_ACCEPTANCE: (ExposedNumber("vllm_spec_decode_draft_acceptance_rate"),),  # V0
    v.SERVER_HELD: (ExposedNumber("vllm_num_requests_waiting_by_reason", {"reason": ("deferred",)}),),  # 0.20
    v.SERVER_STEPS: (ExposedNumber("vllm_iteration_tokens_total_count"),),  # a histogram in spite of its name
    **FASTAPI,
}
DISTRIBUTIONS = {
    v.SERVER_TTFT: (ExposedNumber("vllm_time_to_first_token_seconds"),),
    v.SERVER_ITL: (
        ExposedNumber("vllm_inter_token_latency_seconds"),
        ExposedNumber("vllm_time_per_output_token_seconds"),  # the same until 0.11; hidden in 0.12, gone by 0.17
    ),
    v.SERVER_E2E: (ExposedNumber("vllm_e2e_request_latency_seconds"),),
    v.SERVER_QUEUE_TIME: (
        ExposedNumber("vllm_request_queue_time_seconds"),
        ExposedNumber("vllm_time_in_queue_requests"),
    ),
    v.SERVER_PREFILL_TIME: (ExposedNumber("vllm_request_prefill_time_seconds"),),
    v.SERVER_DECODE_TIME: (ExposedNumber("vllm_request_decode_time_seconds"),),
}
_BY_MEMORY = Unknown("vLLM chooses it by the GPU's memory")
KNOBS = {
    Feature.CUDA_GRAPHS: Knob(
        flags=(
            "--compilation-config.cudagraph_mode",
            "-cc.cudagraph_mode",
            "-O.cudagraph_mode",
            "--optimization-level",
        ),
        switches={"--enforce-eager": "off", "--no-enforce-eager": "on", "-O0": "off", "-O=0": "off"},
        defaults=(Default("on"),),
        change="start without --enforce-eager",
    ),
    Feature.TORCH_COMPILE: Knob(
        flags=(
            *("--compilation-config.mode", "--compilation-config.level", "-cc.mode", "-O.mode", "-O.level"),
            "--optimization-level",
        ),
        switches={"--enforce-eager": "off", "-O0": "off", "-O=0": "off"},
        defaults=(Default("on", "0.8"), Default("off")),  # with the engine V1
        change="start without --enforce-eager",
    ),
    Feature.ASYNC_SCHEDULING: Knob(
        switches={"--async-scheduling": "on", "--no-async-scheduling": "off"},
        # By default with some kinds of speculative decoding only; with pipeline parallelism in newer releases only.
        defaults=(
            Default("on", "0.14", unless=(Feature.SPECULATIVE_DECODING, Feature.PIPELINE_PARALLEL)),
            Default("off"),
        ),
        change="--async-scheduling",
        since="0.10",
    ),
    Feature.PREFIX_CACHING: Knob(
        switches={"--enable-prefix-caching": "on", "--no-enable-prefix-caching": "off"},
        labels=("enable_prefix_caching",),
        defaults=(Default("on", "0.8"), Default("off")),
        change="--enable-prefix-caching",
    ),
    Feature.CHUNKED_PREFILL: Knob(
        switches={"--enable-chunked-prefill": "on", "--no-enable-chunked-prefill": "off"},
        defaults=(Default("on", "0.8"), Default(Unknown("this vLLM decides it by the model's longest context"))),
        change="--enable-chunked-prefill",
    ),
    Feature.QUANTIZATION: Knob(flags=("--quantization", "-q"), change="--quantization fp8"),
    Feature.KV_CACHE_DTYPE: Knob(
        flags=("--kv-cache-dtype",),
        labels=("cache_dtype",),
        defaults=(Default("auto"),),
        change="--kv-cache-dtype fp8",
    ),
    Feature.SPECULATIVE_DECODING: Knob(
        flags=(
            *("--speculative-config", "-sc", "--speculative-model", "--spec-model", "--spec-method"),
            *("--speculative-config.model", "-sc.model", "--speculative-config.method", "-sc.method"),
        ),
        defaults=(Default("off"),),
        change="--speculative-config",
    ),
    Feature.EXPERT_PARALLEL: Knob(
        switches={"--enable-expert-parallel": "on", "-ep": "on", "--no-enable-expert-parallel": "off"},
        defaults=(Default("off"),),
        change="--enable-expert-parallel",
    ),
    Feature.SLEEP_WHEN_IDLE: Knob(
        variables=("VLLM_SLEEP_WHEN_IDLE",),
        # Added in June 2025, after 0.9.0. Readers that wait without it replaced the variable in March 2026, when 0.17
        # was made: 0.26 has none.
        defaults=(
            Default("on", "0.18"),
            Default(Unknown("it changed when this vLLM was made"), "0.17"),
            Default("off"),
        ),
        change="VLLM_SLEEP_WHEN_IDLE=1",
        since="0.9.1",
        until="0.17",
    ),
    Feature.KV_OFFLOADING: Knob(
        flags=("--kv-offloading-size", "--kv-transfer-config.kv_connector"), defaults=(Default("off"),)
    ),
    Feature.MAX_RUNNING: Knob(
        flags=("--max-num-seqs",), defaults=(Default(_BY_MEMORY, "0.8"), Default(256)), change="--max-num-seqs"
    ),
    Feature.MAX_BATCHED_TOKENS: Knob(
        flags=("--max-num-batched-tokens",), defaults=(Default(_BY_MEMORY),), change="--max-num-batched-tokens"
    ),
    Feature.MAX_LENGTH: Knob(flags=("--max-model-len",), change="--max-model-len"),
    Feature.GPU_MEMORY_SHARE: Knob(
        flags=("--gpu-memory-utilization",), labels=("gpu_memory_utilization",), change="--gpu-memory-utilization"
    ),
    Feature.KV_BLOCKS: Knob(
        flags=("--num-gpu-blocks-override",),
        labels=("num_gpu_blocks",),
        undo="start without --num-gpu-blocks-override",
    ),
    Feature.KV_BLOCK_SIZE: Knob(flags=("--block-size",), labels=("block_size",)),
    Feature.TENSOR_PARALLEL: Knob(
        flags=("--tensor-parallel-size", "-tp"), defaults=(Default(1),), change="--tensor-parallel-size"
    ),
    Feature.PIPELINE_PARALLEL: Knob(
        flags=("--pipeline-parallel-size", "-pp"), defaults=(Default(1),), change="--pipeline-parallel-size"
    ),
    Feature.DATA_PARALLEL: Knob(
        flags=("--data-parallel-size", "-dp"), defaults=(Default(1),), change="--data-parallel-size"
    ),
    Feature.API_SERVERS: Knob(
        flags=("--api-server-count", "-asc"),
        defaults=(Default(1, unless=(Feature.DATA_PARALLEL,)),),
        change="--api-server-count",
        since="0.9",
    ),
    Feature.CPU_THREADS: Knob(
        variables=("OMP_NUM_THREADS",), change="OMP_NUM_THREADS, TORCHINDUCTOR_COMPILE_THREADS, TOKENIZERS_PARALLELISM"
    ),
}
"""Read in the source of 0.26 (arguments, their defaults, its environment variables); when a default changed is from
vLLM's pull requests (asynchronous scheduling: 0.14, 31998; sleeping: 16226, 28053) and the release notes of 0.8. Hybrid
models (attention beside state space layers) have no prefix caching by default: the metrics tell it."""
ENGINE = Engine(
    kind="vllm",
    package="vllm",
    title="vLLM",
    roles=(
        # setproctitle (0.10.2 and newer); VLLM_PROCESS_NAME_PREFIX may replace the word before the colons.
        Role(r"\1", r"^[\w.-]+::(EngineCore\S*|Worker(?:_\S*)?|APIServer\S*|DPCoordinator|DPSupervisor)(?:\s|$)"),
        Role("Worker", r"^ray::RayWorkerWrapper"),
        Role("APIServer", r"^(?:\S*/)?vllm-rs(?:\s|$)"),
        Role("APIServer", r"^(?:\S*/)?vllm serve(?:\s|$)"),
        Role("APIServer", r"^-m vllm\.entrypoints\.(?:(?:openai\.)?api_server|cli\.main serve)(?:\s|$)"),
        Role("APIServer", r"^\S*/vllm/entrypoints/(?:openai/)?api_server\.py(?:\s|$)"),
        Role("APIServer", r"^-c [\s\S]*\bvllm\.entrypoints\.(?:openai\.api_server\b|cli\.main\b[\s\S]* serve(?:\s|$))"),
    ),
    titles=("VLLM::EngineCore", "VLLM::DPCoordinator", "VLLM::DPSupervisor"),
    library=r"/vllm/[^\n]*\.so",
    port=8000,
    prefixes=("vllm_",),
    metrics_remedy="start vLLM without --disable-log-stats",
    names=NAMES,
    distributions=DISTRIBUTIONS,
    remarks={v.SERVER_FAILURES: "aborts not counted"},
    model_flags=("--model",),
    model_after=("serve",),
    info={
        "vllm_cache_config_info": (
            *("num_gpu_blocks", "block_size", "cache_dtype", "gpu_memory_utilization", "enable_prefix_caching"),
        )
    },
    version_path="/version",
    backs=r"EngineCore|Worker|DPCoordinator",
    cores={"APIServer": "EngineCore"},
    core_elsewhere=r"vllm-rs|--headless|--disable-frontend-multiprocessing|--nnodes|--node-rank"
    r"|--data-parallel-(?:size-local|start-rank|address|backend[= ]ray)|-dp[lrs]\b",
    core_elsewhere_with={"VLLM_USE_V1": "0", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
    core_since="0.8",  # with the engine V1; the other one is in a process without a title, or in that of the API
    alias_flags=("--served-model-name",),
    knobs=KNOBS,
    config_flags=("--config",),
    formers=(FormerDefault("VLLM_USE_V1", "0", version="0.7", until="0.11"),),  # 0.11 has no engine V0 any more
)
