"""All servers that llmtop knows: adding one is a file beside this and a line here."""

from __future__ import annotations

from llmtop.servers import demo, dynamo, llamacpp, lmdeploy, ollama, sglang, tgi, triton, trtllm, vllm

ENGINES = (
    dynamo.ENGINE,  # before the engines that it starts
    vllm.ENGINE,
    sglang.ENGINE,
    tgi.ENGINE,
    trtllm.ENGINE,
    triton.ENGINE,
    lmdeploy.ENGINE,
    ollama.ENGINE,  # before llama.cpp, whose server it may start
    llamacpp.ENGINE,
    demo.ENGINE,  # last: its metrics have vLLM's names
)
"""In the order in which a process is compared with them."""

BY_KIND = {engine.kind: engine for engine in ENGINES}
