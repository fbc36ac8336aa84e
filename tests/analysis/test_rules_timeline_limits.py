"""Where the findings on a timeline change as one length or number changes: the limits as they are met."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llmtop.analysis.rules import idle_sms
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import KernelTable, Trace
from tests.analysis.limits import in_full, limits, without_numbers
from tests.analysis.test_rules_idle_sms import made
from tests.analysis.test_rules_kernels import CAST, H100, MUL, NVJET, result
from tests.kernel_traces import Launch, report
from tests.nsys_capture import US

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

FLASH_2 = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(P)"
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(R)"
GEMM = NVJET.replace("64x8_", "256x128_")
Kernels = list[tuple[str, float]]


def in_turn(kernels: Kernels) -> Trace:
    """One after the other on one stream."""
    trace = report(*(Launch(name, ns) for name, ns in kernels), gpu=H100, counted=False)
    assert isinstance(trace.kernels, KernelTable)
    ends = accumulate(int(ns) for _, ns in kernels)
    starts = array("q", (end - int(ns) for end, (_, ns) in zip(ends, kernels, strict=True)))
    return replace(trace, kernels=replace(trace.kernels, start_ns=starts))


def advised(estimate: float) -> Trace:
    rules = (result("OneOfTomorrow", ("global", estimate)),)
    return report(Launch("step", 1e6, rules=rules), Launch("other", 1e5))


LENGTHS: dict[str, tuple[Callable[[float], Trace], float, float]] = {
    "casts, length": (lambda ns: in_turn([(GEMM, 1e4), (CAST, ns)] * 20), 0.0, 2000.0),
    "casts, number": (lambda n: in_turn([(GEMM, 1e4), (CAST, 1e4)] * round(n)), 1.0, 17.0),
    "a chain, length": (lambda ns: in_turn([(GEMM, 1e5), (MUL, ns), (CAST, ns)] * 20), 0.0, 20_000.0),
    "a chain, number": (lambda n: in_turn([(GEMM, 1e4), (MUL, 1e4), (REDUCE, 1e4)] * round(n)), 1.0, 17.0),
    "skinny matrices, length": (lambda ns: in_turn([(GEMM, 1e5), (NVJET, ns)] * 20), 0.0, 200_000.0),
    "short kernels, length": (lambda ns: in_turn([(MUL, ns)] * 60), 1.0, 8000.0),
    "short kernels, number": (lambda n: in_turn([(MUL, 2000.0)] * round(n)), 1.0, 80.0),
    "short kernels among others": (lambda ns: in_turn([(MUL, 2000.0), (GEMM, ns)] * 60), 4000.0, 40_000.0),
    "half of them short": (lambda n: in_turn([(MUL, 4000.0)] * round(n) + [(GEMM, 6000.0)] * 40), 20.0, 60.0),
    "attention, length": (lambda ns: in_turn([(GEMM, 1e5), (FLASH_2, ns)] * 20), 0.0, 40_000.0),
    "the tool's advice": (advised, 0.0, 16.0),
}
"""Of a number a trace, and its least and most."""


@pytest.mark.parametrize("case", LENGTHS)
def test_the_limits_of_a_timelines_findings(case: str, snapshot: SnapshotAssertion) -> None:
    of, least, most = LENGTHS[case]
    found = limits(lambda level: without_numbers(diagnose(of(level)).findings), least, most)
    lines = [f"{where}: {', '.join(str(one[0]) for one in said) or 'nothing'}" for where, said in found]
    assert "\n".join([*lines, *map(in_full, diagnose(of(most)).findings)]) == snapshot


IDLE_SMS: dict[str, tuple[Callable[[Path, float], Trace], float, float]] = {
    "blocks": (lambda folder, blocks: made(folder, blocks=round(blocks)), 1.0, 57.0),
    "length": (lambda folder, us: made(folder, runs=round(us * US)), 0.0, 80.0),
    "length of one beside others": (lambda folder, us: made(folder, runs=round(us * US)), 85.0, 101.0),
    "SMs": (lambda folder, sms: made(folder, blocks=20, sms=round(sms)), 16.0, 80.0),
}


@pytest.mark.parametrize("case", IDLE_SMS)
def test_the_limits_of_too_few_blocks(case: str, snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    of, least, most = IDLE_SMS[case]
    folders = (tmp_path / str(i) for i in range(1000))

    def said(level: float) -> int:
        folder = next(folders)
        folder.mkdir()
        return len(list(idle_sms.check(of(folder, level))))

    assert "\n".join(f"{where}: {count}" for where, count in limits(said, least, most)) == snapshot
