"""llmtop's own embedded server, which writes its metrics under vLLM's names."""

from __future__ import annotations

from dataclasses import replace

from llmtop.model import Role
from llmtop.servers import vllm

ENGINE = replace(
    vllm.ENGINE,
    kind="demo",
    title="llmtop demo",
    roles=(
        Role("EngineCore", r"^-m llmtop\.demo\.engine(?:\s|$)|^EngineCore(?:\s|$)"),
        Role("APIServer", r"^-m llmtop\.demo\.server(?:\s|$)|^APIServer(?:\s|$)"),
    ),
    library="",
    metrics_remedy="",
    version_path="",
)
