"""What is said of CUDA calls that returned errors, as Nsight Systems keeps them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llmtop.analysis.rules import failed_calls
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import Severity, SpanKind, Trace
from llmtop.parsers.registry import load
from tests.kernel_traces import TIMELINE
from tests.parsers.test_nsys_results import trace

if TYPE_CHECKING:
    from llmtop.model import Finding


def found(made: Trace) -> list[Finding]:
    return [one for one in diagnose(made).findings if one.rule == failed_calls.id]


def test_errors_of_one_kind_are_one_finding_the_gravest_first(tmp_path: Path) -> None:
    said = found(trace(tmp_path, 701, 2, 0, 2, 700, 700, 0, 1))
    assert [(one.severity, one.message) for one in said] == [
        (Severity.ERROR, "a kernel or the GPU failed: illegal address (700)"),
        (Severity.WARNING, "memory was short: out of memory (2)"),
        (Severity.WARNING, "work was not launched: too many resources asked for (701)"),
        (Severity.INFO, "CUDA calls returned errors: invalid value (1)"),
    ]
    assert all(one.next_command or one.no_command for one in said)


def test_the_first_is_where_one_looks_and_calls_are_counted(tmp_path: Path) -> None:
    made = trace(tmp_path, 0, 2, 0, 2)
    (short,) = found(made)
    assert short.evidence == (
        "the first: cudaMalloc after 10.0 µs of the capture",
        "cudaMalloc returned out of memory (2): 2 x",
    )
    assert short.place is not None
    assert (short.place.start_ns - made.start_ns, short.place.end_ns - made.start_ns) == (10_000, 15_000)
    assert short.place.track is not None
    assert made.tracks[short.place.track].name == short.subject


@pytest.mark.parametrize("number", [0, 600, 704], ids=["succeeded", "not ready", "peer access is there"])
def test_an_answer_is_no_failure(tmp_path: Path, number: int) -> None:
    assert not found(trace(tmp_path, number, number))


@pytest.mark.parametrize("name", ["cudaGetLastError", "cudaPeekAtLastError"])
def test_what_tells_of_an_earlier_call_did_not_fail_itself(tmp_path: Path, name: str) -> None:
    made = trace(tmp_path, 0, 700)
    calls = made.spans[SpanKind.CALL]
    assert found(made)
    assert not found(replace(made, spans={**made.spans, SpanKind.CALL: replace(calls, names=(name,))}))


def test_an_error_without_a_name_is_told_by_its_number(tmp_path: Path) -> None:
    (other,) = found(trace(tmp_path, 0, 12345))
    assert other.message == "CUDA calls returned errors: error 12345"


def test_a_capture_in_which_all_calls_succeeded_has_none() -> None:
    assert not found(load(TIMELINE))
