"""Page faults of unified memory in a capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.timeline.account import idle_account
from llmtop.analysis.timeline.causes import Cause
from llmtop.cli.report_text import report_text
from llmtop.cli.text_layout import TextStyle
from llmtop.model import Finding, Severity, Trace
from llmtop.parsers.registry import load
from tests.nsys_capture import MS, PID, US, Capture, add_table, global_id

MIGRATED_TO_CPU = 12
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


def migrated(folder: Path, *calls: str, gap: int = 10 * US) -> Trace:
    """A kernel, then 20 pages that move to the CPU as it reads the result: no call is theirs."""
    made = Capture()
    for call in calls:
        made.call(call, 0, US)
    made.kernel(10 * US, MS, made.call("cudaLaunchKernel", 2 * US, 8 * US))
    for page in range(20):
        at = MS + gap + page * (5 * US + gap)
        made.copy(at, at + 5 * US, 0, MIGRATED_TO_CPU, size=65536)
    return load(made.write(folder / "capture.sqlite"))


def test_migrations_are_named_without_page_faults_and_without_a_launch(tmp_path: Path) -> None:
    trace = migrated(tmp_path)
    (finding,) = [one for one in diagnose(trace).findings if one.rule == "unified-faults"]
    assert finding.message.startswith("page migrations of unified memory take 23 % of the capture")
    assert finding.at_stake_ns == 300 * US
    assert "1.25 MiB to the CPU (20 times)" in finding.evidence[1]
    assert "faults" not in " ".join(finding.evidence)  # they were not recorded
    assert "idle-unknown" not in {one.rule for one in diagnose(trace).findings}
    text = "\n".join(report_text(trace, TextStyle()))
    assert "20 page migrations" in text
    assert "between page migrations" in text
    assert "its launch is not in the capture" not in text


def test_a_remedy_that_the_program_takes_is_not_advised(tmp_path: Path) -> None:
    findings = diagnose(migrated(tmp_path, "cudaMemPrefetchAsync")).findings
    (finding,) = [one for one in findings if one.rule == "unified-faults"]
    assert "prefetch earlier" in finding.action
    assert "(cudaMemPrefetchAsync)" not in finding.action
    assert "cudaMemAdvise" in finding.action


@pytest.mark.parametrize("pages", [20, 5000])
def test_a_long_gap_before_a_migration_is_the_programs(tmp_path: Path, pages: int) -> None:
    """However many there are: many gaps are added up in columns."""
    made = Capture()
    made.kernel(10 * US, MS, made.call("cudaLaunchKernel", 2 * US, 8 * US))
    for page in range(pages):
        at = MS + page * 300 * US + 250 * US * (page > 0)
        made.copy(at, at + 5 * US, 0, MIGRATED_TO_CPU, size=65536)
    (gpu,) = idle_account(load(made.write(tmp_path / "capture.sqlite"))).gpus
    long = [(part.cause, part.gaps) for part in gpu.parts if part.name == "until managed memory was touched"]
    assert long == [(Cause.NO_WORK, pages - 1)]
