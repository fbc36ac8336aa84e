"""Llama 3.1 8B on an H100, by their published numbers: what rooflines and efficiency are tried on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmtop.model import Fact

LLAMA_8B: dict[str, Fact] = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
ACTIVE = 7_504_658_432
"""Parameters that a token is multiplied with: all but the table of embeddings."""
H100: dict[str, Fact] = {"name": "NVIDIA H100 80GB HBM3", "bus_width_bits": 5120, "max_memory_mhz": 2619}
DRAM_PEAK = 5120 / 8 * 2619e6 * 2
"""Bytes a second: twice a clock over the width of the bus."""
