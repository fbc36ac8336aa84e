"""What a GPU can do by its compute capability, for every rule, parser and collector that must know.

Sources: CUDA C++ Programming Guide (features, and throughput of arithmetic, by compute capability); NVIDIA's white
papers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

Capability: TypeAlias = tuple[int, int]
"""Major and minor version."""
_ARCHITECTURES: Final = (
    ((12, 9), ""),  # newer than this table
    ((10, 0), "Blackwell"),
    ((9, 0), "Hopper"),
    ((8, 9), "Ada"),
    ((8, 0), "Ampere"),
    ((7, 5), "Turing"),
    ((7, 0), "Volta"),
    ((6, 0), "Pascal"),
    ((5, 0), "Maxwell"),
)
"""From which compute capability on, the newest first."""
FIRST_OF: Final = {name: since for since, name in _ARCHITECTURES}
"""The lowest compute capability of an architecture."""
_TENSOR_TYPES: Final = {"fp16": (7, 0), "int8": (7, 2), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9), "fp4": (10, 0)}
"""The types that tensor cores multiply, and since which compute capability; 6.x and older have no tensor cores."""
_WITHOUT_TENSOR_CORES = re.compile(r"\b(?:GTX 16\d\d|MX[45]\d0|T(?:400|500|550|600|1000|1200|2000))\b")
"""Turing chips without tensor cores (TU116, TU117), by their boards' names: 7.5 like all others."""
WITHOUT_MEMORY: Final = frozenset({(7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
"""GPUs that have the machine's memory, and none of their own: Xavier, Orin, Thor, GB10 (DGX Spark)."""
_CORES: Final = {(6, 0): 64, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
_FP32_PER_FP64: Final[Mapping[Capability, int]] = {
    (5, 0): 32, (5, 2): 32, (6, 0): 2, (6, 1): 32, (7, 0): 2, (7, 5): 32, (8, 0): 2, (8, 6): 64, (8, 9): 64,
    (9, 0): 2, (10, 0): 2, (10, 3): 64, (12, 0): 64,
}  # fmt: skip
_WRITTEN = re.compile(r"(?<![\d.])(\d{1,2})[.,](\d)(?![\d.])")
"""In languages with decimal commas Nsight Compute prints 8,6."""


def capabilities(text: str) -> list[Capability]:
    """All compute capabilities in a text.

    >>> capabilities("7.5, 8.6"), capabilities("none")
    ([(7, 5), (8, 6)], [])
    """
    return [(int(major), int(minor)) for major, minor in _WRITTEN.findall(text)]


def architecture_of(capability: Capability) -> str:
    """The architecture's name, as NVIDIA has it; empty of one before Maxwell or after Blackwell.

    >>> architecture_of((8, 6)), architecture_of((8, 9)), architecture_of((12, 1)), architecture_of((3, 5))
    ('Ampere', 'Ada', 'Blackwell', '')
    """
    return next((name for since, name in _ARCHITECTURES if capability >= since), "")


def tensor_types(capability: Capability, gpu: str = "") -> frozenset[str]:
    """The types that its tensor cores multiply; none where it has no tensor cores.

    >>> sorted(tensor_types((7, 5))), sorted(tensor_types((7, 5), "NVIDIA GeForce GTX 1660"))
    (['fp16', 'int8'], [])
    """
    if _WITHOUT_TENSOR_CORES.search(gpu):
        return frozenset()
    return frozenset(name for name, since in _TENSOR_TYPES.items() if capability >= since)


def fp32_lanes(capability: Capability) -> int:
    """Of an SM."""
    return _CORES.get(capability, 128)


def fp32_per_fp64(capability: Capability) -> int | None:
    """FP32 operations in the time of one of FP64; None where it is not known.

    From 10.0 on the rates of NVIDIA's Blackwell data sheets. The driver's own attribute says 32 where an 8.6 does 64.
    """
    return _FP32_PER_FP64.get(capability)
