"""What the words of machine code say by themselves, against the reports' own counters of opcodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.model import Unknown
from llmtop.parsers.registry import load
from llmtop.parsers.sass import fused_half
from tests.parsers.sample_reports import ncu_reports

MOST_KERNELS = 40


@pytest.mark.parametrize("path", ncu_reports(), ids=lambda path: path.name)
def test_fused_halves_were_executed_as_often_as_their_opcode_was_counted(path: Path) -> None:
    kernels = load(path).kernels
    assert kernels is not None
    assert kernels.details is not None
    assert kernels.codes is not None
    for i in range(min(len(kernels), MOST_KERNELS)):
        by_opcode = kernels.details.instances(i, "sass__inst_executed_per_opcode")
        found, executed = kernels.codes.fused_half(i), kernels.codes.values(i, "inst_executed")
        if isinstance(by_opcode, Unknown) or isinstance(found, Unknown) or not executed:
            continue
        counted = dict(zip(by_opcode.keys, by_opcode.values, strict=True)).get("HFMA2", 0)
        assert sum(executed.get(address, 0) for address in found) == counted


def test_code_that_is_cut_has_the_instructions_that_are_whole() -> None:
    word = bytes.fromhex("31740bff0000803fff01000000e20f00")
    assert fused_half(word * 2 + word[:15]) == {0: False, 16: False}


@pytest.mark.parametrize(
    ("word", "computes"),
    [
        ("35740bff0000803fff01000000e20f00", False),  # -RZ, RZ, 1.875, 0
        ("31740bff0000000000ff000000e20f00", True),  # R0 for the second RZ
        ("35740b020000803fff01000000e20f00", True),  # R2 for the first
        ("31720bff0000803fff01000000e20f00", True),  # a register for the constant
    ],
)
def test_only_zero_times_zero_and_a_constant_computes_nothing(word: str, *, computes: bool) -> None:
    assert fused_half(bytes.fromhex(word)) == {0: computes}
