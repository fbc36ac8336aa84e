"""What is said of a kernel with one fault in full, and where it changes as one counter changes and all others stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from llmtop.analysis.rules.registry import diagnose
from llmtop.model import Finding, Value
from tests.analysis.limits import in_full, limits, without_numbers
from tests.analysis.test_rules_kernels import FAULTS, H100, LATENCY
from tests.kernel_traces import Launch, report

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


def _findings(fault: str, change: Mapping[str, Value]) -> tuple[Finding, ...]:
    metrics, rule, *_ = FAULTS[fault]
    name = "sgemm_kernel" if rule == "kernel-tensor-missed" else "step"
    return diagnose(report(Launch(name, 50_000.0, {**metrics, **change}), gpu=H100)).findings


def _limits(fault: str, counter: str, value: float) -> Iterator[str]:
    most = 100.0 if "pct" in counter else 2.0 * value
    for where, said in limits(lambda level: without_numbers(_findings(fault, {counter: level})), 0.0, most):
        yield f"  {where}: {', '.join(str(one[0]) for one in said) or 'nothing'}"


@pytest.mark.parametrize("fault", FAULTS)
def test_the_limits_of_a_fault(fault: str, snapshot: SnapshotAssertion) -> None:
    metrics = {**LATENCY, **FAULTS[fault][0]}
    lines = [in_full(one) for one in _findings(fault, {})]
    for counter, value in metrics.items():
        if isinstance(value, int | float) and value:
            found = list(_limits(fault, counter, value))
            lines += (counter, *found) if len(found) > 1 else ()
    assert "\n".join(lines) == snapshot
