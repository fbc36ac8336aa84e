"""What the words of NVIDIA's machine code say by themselves, without a disassembler: which instructions these are.

An instruction has 16 bytes from Volta on. NVIDIA tells nobody how they are encoded. What is read here was found in what
nvdisasm prints of code, and in every report under sample_traces the instructions that are found so were executed as
often as the report's own counter of their opcode says (`sass__inst_executed_per_opcode`).
"""

from __future__ import annotations

from typing import Final

WIDE: Final = 16
"""Bytes of an instruction."""
_FUSED_HALF = (0x31, 0x35)
"""The low eight bits of HFMA2 and HFMA2.MMA; the four above them say where operands are from."""
_WITH_CONSTANT = (0x431, 0x435)
"""These with a constant as what is added."""
_ZERO = 0xFF
"""The register that is always zero."""


def fused_half(code: bytes) -> dict[int, bool]:
    """Of each fused multiply-add in half precision, by its offset in bytes, whether it computes anything.

    Compilers put constants into registers by multiplying zero with zero and adding the constant, as the pipe of this
    instruction is free more often than that of others.

    Args:
        code: The machine code of a function.

    >>> constant = bytes.fromhex("35740bff 0000803f ff010000 00e20f00")  # HFMA2.MMA R11, -RZ, RZ, 1.875, 0
    >>> product = bytes.fromhex("317404ff 0000803f 02010000 00e20f00")  # the same with R2 for RZ
    >>> fused_half(constant + bytes(16) + product)
    {0: False, 32: True}
    """
    found: dict[int, bool] = {}
    for offset in range(0, len(code) - WIDE + 1, WIDE):
        if code[offset] in _FUSED_HALF:
            opcode = int.from_bytes(code[offset : offset + 2], "little") & 0xFFF
            factors = code[offset + 3], code[offset + 8]
            found[offset] = not (opcode in _WITH_CONSTANT and factors == (_ZERO, _ZERO))
    return found
