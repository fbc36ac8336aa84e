"""Text Generation Inference. Names read in its router's source, which is in maintenance mode."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Engine, Role, Sample

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
        v.SERVER_RUNNING: (Sample("tgi_batch_current_size"),),
        v.SERVER_WAITING: (Sample("tgi_queue_size"),),
        # There are no token counters: these grow when a request ends, by all its tokens at once.
        v.SERVER_PROMPT_TOKENS: (Sample("tgi_request_input_length_sum"),),
        v.SERVER_OUTPUT_TOKENS: (Sample("tgi_request_generated_tokens_sum"),),
        v.SERVER_REQUESTS: (Sample("tgi_request_success"),),
        v.SERVER_FAILURES: (Sample("tgi_request_failure"),),
        v.SERVER_STEPS: (Sample("tgi_batch_inference_count"),),
    },
    distributions={
        v.SERVER_ITL: (Sample("tgi_request_mean_time_per_token_duration"),),
        v.SERVER_E2E: (Sample("tgi_request_duration"),),
        v.SERVER_QUEUE_TIME: (Sample("tgi_request_queue_duration"),),
        v.SERVER_PREFILL_TIME: (Sample("tgi_batch_inference_duration", {"method": ("prefill",)}),),
        v.SERVER_DECODE_TIME: (Sample("tgi_batch_inference_duration", {"method": ("decode",)}),),
    },
    model_flags=("--model-id",),
    alias_flags=("--served-model-name",),
    backs=r"shard",
    model_after=("serve",),
    version_path="/info",
)
