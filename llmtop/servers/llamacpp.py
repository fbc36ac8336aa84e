"""llama.cpp's llama-server. Names read in its source; older ones from its history."""

from __future__ import annotations

from llmtop import vocabulary as v
from llmtop.model import Engine, Role, Sample

ENGINE = Engine(
    kind="llamacpp",
    title="llama.cpp",
    roles=(Role("server", r"^(?:\S*/)?llama-server(?:\s|$)|^-m llama_cpp\.server(?:\s|$)"),),
    library=r"libllama\.so|libggml",
    port=8080,
    prefixes=("llamacpp_",),
    metrics_remedy="start llama-server with --metrics",
    names={
        v.SERVER_RUNNING: (Sample("llamacpp_requests_processing"),),
        v.SERVER_WAITING: (Sample("llamacpp_requests_deferred"),),
        v.SERVER_KV_USAGE: (Sample("llamacpp_kv_cache_usage_ratio"),),  # removed from newer builds
        v.SERVER_PROMPT_TOKENS: (Sample("llamacpp_prompt_tokens"),),
        v.SERVER_OUTPUT_TOKENS: (Sample("llamacpp_tokens_predicted"),),
        v.SERVER_STEPS: (Sample("llamacpp_n_decode"),),
    },
    model_flags=("--model", "-m", "--hf-repo", "-hf"),
    alias_flags=("--alias", "-a"),
)
