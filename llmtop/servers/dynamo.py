"""NVIDIA Dynamo's front end. Its workers are engines of their own, and theirs are the engine's names."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Engine, ExposedNumber, Role

ENGINE = Engine(
    kind="dynamo",
    title="Dynamo",
    roles=(
        Role("frontend", r"^-m dynamo\.frontend(?:\s|$)"),
        Role(r"\1_worker", r"^-m dynamo\.(vllm|sglang|trtllm)(?:\s|$)"),
    ),
    port=8000,
    port_flags=("--http-port", "--port"),
    prefixes=("dynamo_frontend_", "dynamo_component_"),
    metrics_remedy="for a worker, set DYN_SYSTEM_PORT in its environment",
    names={
        v.SERVER_RUNNING: (ExposedNumber("dynamo_frontend_inflight_requests"),),
        v.SERVER_WAITING: (ExposedNumber("dynamo_frontend_queued_requests"),),
        v.SERVER_PROMPT_TOKENS: (ExposedNumber("dynamo_frontend_input_sequence_tokens_sum"),),
        v.SERVER_OUTPUT_TOKENS: (ExposedNumber("dynamo_frontend_output_tokens"),),
        v.SERVER_REQUESTS: (ExposedNumber("dynamo_frontend_requests"),),
        v.SERVER_FAILURES: (ExposedNumber("dynamo_frontend_requests", {"status": ("error",)}),),
    },
    distributions={
        v.SERVER_TTFT: (ExposedNumber("dynamo_frontend_time_to_first_token_seconds"),),
        v.SERVER_ITL: (ExposedNumber("dynamo_frontend_inter_token_latency_seconds"),),
        v.SERVER_E2E: (ExposedNumber("dynamo_frontend_request_duration_seconds"),),
    },
    model_labels=("model",),
)
