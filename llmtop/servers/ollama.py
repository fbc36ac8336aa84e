"""Ollama: processes only, for it exports no metrics.

Newer ones start llama.cpp's llama-server as a child, without --metrics; that child is a part of Ollama here, so
this engine is asked before llama.cpp.
"""

from __future__ import annotations

from llmtop.model import Engine, Role

ENGINE = Engine(
    kind="ollama",
    title="Ollama",
    roles=(
        Role("runner", r"^(?:\S*/)?ollama runner(?:\s|$)|^\S*lib/ollama/llama-server(?:\s|$)"),
        Role("server", r"^(?:\S*/)?ollama serve(?:\s|$)"),
    ),
    port=11434,
    metrics_paths=(),
    metrics_remedy="serve the same model with llama-server --metrics to have them",
    model_flags=("--model",),
    version_path="/api/version",
)
