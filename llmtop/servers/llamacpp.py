"""llama.cpp's llama-server. Names read in its source; older ones from its history."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Default, Engine, ExposedNumber, Feature, Knob, Role, Unknown

KNOBS = {
    Feature.PREFIX_CACHING: Knob(
        switches={"--cache-prompt": "on", "--no-cache-prompt": "off"},
        variables=("LLAMA_ARG_CACHE_PROMPT",),
        defaults=(Default("on"),),
        change="--cache-prompt",
    ),
    Feature.QUANTIZATION: Knob(change="a model file with fewer bits a weight"),
    Feature.KV_CACHE_DTYPE: Knob(
        flags=("--cache-type-k", "-ctk"),
        variables=("LLAMA_ARG_CACHE_TYPE_K",),
        words={"f16": "auto"},
        defaults=(Default("auto"),),
        change="--cache-type-k q8_0 --cache-type-v q8_0",
    ),
    Feature.SPECULATIVE_DECODING: Knob(
        flags=("--model-draft", "-md", "--spec-type"), defaults=(Default("off"),), change="--model-draft"
    ),
    Feature.MAX_RUNNING: Knob(
        flags=("--parallel", "-np"),
        variables=("LLAMA_ARG_N_PARALLEL",),
        words={"-1": "auto"},
        defaults=(Default(Unknown("older builds have one slot, newer ones decide by themselves")),),
        change="--parallel; its slots share --ctx-size",
    ),
    Feature.MAX_BATCHED_TOKENS: Knob(
        flags=("--batch-size", "-b"),
        variables=("LLAMA_ARG_BATCH",),
        defaults=(Default(2048),),
        change="--batch-size",
    ),
    # That is the size of its KV cache too, which slots share.
    Feature.MAX_LENGTH: Knob(
        flags=("--ctx-size", "-c"),
        variables=("LLAMA_ARG_CTX_SIZE",),
        words={"0": "auto"},
        change="--ctx-size; its slots share it",
    ),
    Feature.KV_BLOCKS: Knob(change="a larger --ctx-size"),
    Feature.CPU_THREADS: Knob(
        flags=("--threads", "-t"), variables=("LLAMA_ARG_THREADS",), words={"-1": "auto"}, change="--threads"
    ),
    Feature.API_SERVERS: Knob(
        flags=("--threads-http",),
        variables=("LLAMA_ARG_THREADS_HTTP",),
        words={"-1": "auto"},
        change="--threads-http",
    ),
}
"""Read in the server's documentation (its README of 2026). Its CUDA graphs have no flag."""
_PROMPTS = ExposedNumber("llamacpp_prompt_tokens", plus=("llamacpp_prompt_tokens_cached",))
ENGINE = Engine(
    kind="llamacpp",
    title="llama.cpp",
    roles=(Role("server", r"^(?:\S*/)?llama-server(?:\s|$)|^-m llama_cpp\.server(?:\s|$)"),),
    library=r"libllama\.so|libggml",
    port=8080,
    port_variable="LLAMA_ARG_PORT",
    prefixes=("llamacpp_",),
    metrics_remedy="start llama-server with --metrics",
    names={
        v.SERVER_RUNNING: (ExposedNumber("llamacpp_requests_processing"),),
        v.SERVER_WAITING: (ExposedNumber("llamacpp_requests_deferred"),),
        v.SERVER_KV_USAGE: (ExposedNumber("llamacpp_kv_cache_usage_ratio"),),  # removed from newer builds
        # Those computed, with each batch (older builds: when a prompt is done), and those that its cache held.
        v.SERVER_PROMPT_TOKENS: (_PROMPTS,),
        # When a request ends, by all its tokens; /slots has those of the requests that run.
        v.SERVER_OUTPUT_TOKENS: (ExposedNumber("llamacpp_tokens_predicted", at_end=True),),
        v.SERVER_STEPS: (ExposedNumber("llamacpp_n_decode"),),
        v.SERVER_PREFIX_HITS: (ExposedNumber("llamacpp_prompt_tokens_cached"),),  # at a prompt's start; newer builds
        v.SERVER_PREFIX_QUERIES: (_PROMPTS,),
    },
    means={
        v.SERVER_ITL: (
            ExposedNumber("llamacpp_tokens_predicted_seconds"),
            ExposedNumber("llamacpp_tokens_predicted"),
        ),  # at the end
    },
    version_path="/props",
    version_key="build_info",
    slots_path="/slots",
    slots_remedy="start llama-server with --slots, without --no-slots",
    model_flags=("--model", "-m", "--hf-repo", "-hf"),
    alias_flags=("--alias", "-a"),
    answers_between_steps=True,
    preempts=False,  # a slot keeps its context; where there is no room the request fails
    knobs=KNOBS,
)
