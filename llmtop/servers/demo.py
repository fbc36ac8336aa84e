"""llmtop's own embedded server, which writes its metrics under vLLM's names."""

from __future__ import annotations

from dataclasses import replace

from llmtop.model import DEMO, Default, Feature, Knob, Role
from llmtop.servers import vllm

ENGINE = replace(
    vllm.ENGINE,
    kind=DEMO,
    title="llmtop demo",
    roles=(
        Role("EngineCore", r"^-m llmtop\.demo\.engine(?:\s|$)|^EngineCore(?:\s|$)"),
        Role("APIServer", r"^-m llmtop\.demo\.server(?:\s|$)|^APIServer(?:\s|$)"),
    ),
    titles=(),
    cores={"APIServer": "EngineCore"},
    library="",
    metrics_remedy="",
    version_path="",
    package="",
    remarks={},
    info={name: (*labels, "max_num_seqs") for name, labels in vllm.ENGINE.info.items()},
    knobs={
        Feature.PREFIX_CACHING: Knob(
            switches={"--no-prefix-caching": "off"},
            labels=("enable_prefix_caching",),
            defaults=(Default("on"),),
            change="start without --no-prefix-caching",
        ),
        Feature.CHUNKED_PREFILL: Knob(defaults=(Default("on"),)),
        Feature.MAX_RUNNING: Knob(
            flags=("--max-num-seqs",), labels=("max_num_seqs",), words={"0": "auto"}, change="--max-num-seqs"
        ),
        Feature.MAX_BATCHED_TOKENS: Knob(flags=("--max-step-tokens",), words={"0": "auto"}, change="--max-step-tokens"),
        Feature.KV_BLOCKS: Knob(flags=("--kv-blocks",), labels=("num_gpu_blocks",), change="--kv-blocks"),
        Feature.KV_BLOCK_SIZE: Knob(flags=("--block-size",), labels=("block_size",)),
    },
    config_flags=(),
    formers=(),
)
