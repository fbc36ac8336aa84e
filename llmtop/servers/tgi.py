"""Text Generation Inference. Names read in its router's source, which is in maintenance mode."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Default, Engine, ExposedNumber, Feature, Knob, Role, Unknown

KNOBS = {
    Feature.CUDA_GRAPHS: Knob(
        flags=("--cuda-graphs",),
        variables=("CUDA_GRAPHS",),
        defaults=(Default("on"),),
        change="start without --cuda-graphs 0",
    ),
    Feature.PREFIX_CACHING: Knob(
        variables=("PREFIX_CACHING", "USE_PREFIX_CACHING"),
        defaults=(Default("on", "2.3"), Default("off")),
        change="PREFIX_CACHING=1",
        since="2.4",
    ),
    Feature.QUANTIZATION: Knob(flags=("--quantize",), variables=("QUANTIZE",), change="--quantize fp8"),
    Feature.KV_CACHE_DTYPE: Knob(
        flags=("--kv-cache-dtype",),
        variables=("KV_CACHE_DTYPE",),
        defaults=(Default("auto"),),
        change="--kv-cache-dtype fp8_e5m2",
        since="2.4",
    ),
    Feature.SPECULATIVE_DECODING: Knob(
        flags=("--speculate",),
        variables=("SPECULATE",),
        words={"0": "off"},
        defaults=(Default("off"),),
        change="--speculate",
    ),
    Feature.MAX_RUNNING: Knob(
        flags=("--max-batch-size",),
        variables=("MAX_BATCH_SIZE",),
        defaults=(Default(Unknown("TGI limits tokens, not requests, unless it is told")),),
        undo="start without --max-batch-size",
    ),
    Feature.MAX_BATCHED_TOKENS: Knob(
        flags=("--max-batch-prefill-tokens",),
        variables=("MAX_BATCH_PREFILL_TOKENS",),
        change="--max-batch-prefill-tokens",
    ),
    Feature.MAX_LENGTH: Knob(
        flags=("--max-total-tokens",), variables=("MAX_TOTAL_TOKENS",), change="--max-total-tokens"
    ),
    Feature.GPU_MEMORY_SHARE: Knob(
        flags=("--cuda-memory-fraction",),
        variables=("CUDA_MEMORY_FRACTION",),
        defaults=(Default(1),),
        change="--cuda-memory-fraction",
    ),
    Feature.TENSOR_PARALLEL: Knob(
        flags=("--num-shard",),
        variables=("NUM_SHARD",),
        defaults=(Default(Unknown("TGI takes all GPUs that it sees")),),
        change="--num-shard",
    ),
    Feature.CPU_THREADS: Knob(variables=("OMP_NUM_THREADS",), change="OMP_NUM_THREADS, TOKENIZERS_PARALLELISM"),
}
"""Read in its launcher's source, releases 2.2 to 3.3.7. It switches prefix caching off by itself for vision and
encoder-decoder models, LoRA adapters and GPUs before Ampere, and CUDA graphs for bitsandbytes and EXL2."""
ENGINE = Engine(
    kind="tgi",
    title="TGI",
    roles=(
        Role("router", r"^(?:\S*/)?text-generation-router(?:-\S*)?(?:\s|$)"),
        Role("shard", r"^(?:\S*/)?text-generation-server serve(?:\s|$)"),
        Role("launcher", r"^(?:\S*/)?text-generation-launcher(?:\s|$)"),
    ),
    port=3000,
    port_variable="PORT",
    prefixes=("tgi_",),
    names={
        v.SERVER_RUNNING: (ExposedNumber("tgi_batch_current_size"),),
        v.SERVER_WAITING: (ExposedNumber("tgi_queue_size"),),
        # There are no token counters: these grow when a request ends, by all its tokens. Batches are counted as they
        # are done, so that steps and running requests tell about how many tokens come.
        v.SERVER_PROMPT_TOKENS: (ExposedNumber("tgi_request_input_length_sum", at_end=True),),
        v.SERVER_OUTPUT_TOKENS: (ExposedNumber("tgi_request_generated_tokens_sum", at_end=True),),
        v.SERVER_REQUESTS: (ExposedNumber("tgi_request_success"),),
        v.SERVER_FAILURES: (ExposedNumber("tgi_request_failure"),),
        v.SERVER_STEPS: (ExposedNumber("tgi_batch_inference_count"),),
    },
    distributions={
        v.SERVER_ITL: (ExposedNumber("tgi_request_mean_time_per_token_duration"),),
        v.SERVER_E2E: (ExposedNumber("tgi_request_duration"),),
        v.SERVER_QUEUE_TIME: (ExposedNumber("tgi_request_queue_duration"),),
        v.SERVER_PREFILL_TIME: (ExposedNumber("tgi_batch_inference_duration", {"method": ("prefill",)}),),
        v.SERVER_DECODE_TIME: (ExposedNumber("tgi_batch_inference_duration", {"method": ("decode",)}),),
    },
    model_flags=("--model-id",),
    alias_flags=("--served-model-name",),
    backs=r"shard",
    model_after=("serve",),
    version_path="/info",
    knobs=KNOBS,
    preempts=False,  # its queue gives a request room for its prompt and all that it may generate (backends/v3, queue)
)
