"""All servers that llmtop knows. A new one is one file beside this and one line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmtop.model import Engine

MODULES = (
    "dynamo",  # before the engines that it starts
    "vllm",
    "sglang",
    "tgi",
    "trtllm",
    "triton",
    "lmdeploy",
    "ollama",  # before llama.cpp, whose server it may start
    "llamacpp",
    "demo",  # last: its metrics have vLLM's names
)
"""The modules beside this one that describe an `ENGINE`, in the order in which a process is compared with them."""

ENGINES: tuple[Engine, ...] = tuple(import_module(f"llmtop.servers.{name}").ENGINE for name in MODULES)
"""All of them, in this order."""

BY_KIND = {engine.kind: engine for engine in ENGINES}
