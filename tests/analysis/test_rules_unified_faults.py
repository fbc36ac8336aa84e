"""Page faults of unified memory in a capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.analysis.rules.registry import diagnose
from llmtop.model import Finding, Severity
from llmtop.parsers.registry import load
from tests.nsys_capture import MS, PID, US, Capture, add_table, global_id

COLUMNS = "start end globalPid deviceId address numberOfPageFaults faultAccessType"


def found(folder: Path, fault_ns: int) -> tuple[Finding, ...]:
    """Of ten kernels of 1 ms, one after the other, each of which meets a fault."""
    made = Capture()
    for step in range(10):
        now = step * MS
        made.kernel(now + 10 * US, now + MS, made.call("cudaLaunchKernel", now, now + 5 * US))
    path = made.write(folder / "capture.sqlite")
    begins = [step * MS + 100 * US for step in range(10)]
    rows = ((at, at + fault_ns, global_id(PID, 0), 0, 4096, 3, 2) for at in begins)
    add_table(path, "CUDA_UM_GPU_PAGE_FAULT_EVENTS", COLUMNS, *rows)
    return tuple(one for one in diagnose(load(path)).findings if one.rule == "unified-faults")


@pytest.mark.parametrize(
    ("fault_us", "severity"), [(9, None), (11, Severity.INFO), (49, Severity.INFO), (51, Severity.WARNING)]
)
def test_faults_are_told_by_their_share_of_the_capture(
    tmp_path: Path, fault_us: int, severity: Severity | None
) -> None:
    findings = found(tmp_path, fault_us * US)
    assert [one.severity for one in findings] == ([severity] if severity else [])


def test_it_says_how_long_how_many_and_where(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, 200 * US)
    assert finding.message == "page faults of unified memory take 20 % of the capture: kernels wait for pages"
    assert (finding.subject, finding.at_stake_ns) == ("GPU 0", 2 * MS)
    assert finding.evidence[0] == "page faults of GPUs: 2.00 ms on the one with the most"
    assert "30 GPU page faults" in finding.evidence[1]
    assert finding.evidence[2].startswith("0x1000: ")
    assert "cudaMemPrefetchAsync" in finding.action
