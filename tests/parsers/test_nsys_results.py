"""Errors that CUDA calls returned, in Nsight Systems exports."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from llmtop import columns
from llmtop.analysis.timeline.span_facts import span_facts
from llmtop.analysis.timeline.span_rows import span_rows
from llmtop.analysis.timeline.spans import TraceTimeline
from llmtop.model import Trace
from llmtop.parsers.nsys import NsysSqliteParser
from tests.nsys_capture import Capture


def trace(folder: Path, *returned: object) -> Trace:
    """One of a call for each value that it returned, in turn one that launches and one that does not."""
    capture = Capture()
    capture.kernel(30, 40, 1)
    for i in range(len(returned)):
        capture.call("cudaMalloc" if i % 2 else "cudaLaunchKernel", 10_000 * i, 10_000 * i + 5_000)
    path = capture.write(folder / "capture.sqlite")
    with closing(sqlite3.connect(path)) as database, database:
        for i, value in enumerate(returned):
            query = "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET returnValue = ? WHERE start = ?"
            database.execute(query, (value, 10_000 * i))
    return NsysSqliteParser().parse(path)


@pytest.mark.parametrize("long", [1, columns.LONG], ids=["pages", "sqlite"])
def test_a_call_says_which_error_it_returned(tmp_path: Path, long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "LONG", long)
    made = trace(tmp_path, 700, 2, 0, 0, 0, 12345)
    assert dict(made.spans["launch"].notes) == {0: {"returned": "illegal address (700)"}}
    assert dict(made.spans["call"].notes) == {0: {"returned": "out of memory (2)"}, 2: {"returned": "error 12345"}}
    assert {row.name: row.recorded for row in span_rows(made) if row.recorded} == {
        "cudaLaunchKernel": "returned illegal address (700)",
        "cudaMalloc": "returned out of memory (2), error 12345",
    }
    timeline = TraceTimeline(made)
    assert span_facts(timeline, timeline.code("call", 0)).told == ("returned: out of memory (2)",)
    assert made.issues == []


CUDA_ERRORS = """
InvalidValue 1 invalid value
MemoryAllocation 2 out of memory
InitializationError 3 not initialized
CudartUnloading 4 deinitialized
InvalidDeviceFunction 98 invalid device function
NoDevice 100 no device
InvalidDevice 101 invalid device
InvalidKernelImage 200 invalid image
DeviceUninitialized 201 invalid context
NoKernelImageForDevice 209 no binary for this GPU
PeerAccessUnsupported 217 peer access unsupported
InvalidPtx 218 invalid PTX
InvalidResourceHandle 400 invalid handle
IllegalState 401 illegal state
SymbolNotFound 500 not found
NotReady 600 not ready
IllegalAddress 700 illegal address
LaunchOutOfResources 701 too many resources asked for
LaunchTimeout 702 timeout
PeerAccessAlreadyEnabled 704 peer access is enabled already
PeerAccessNotEnabled 705 peer access is not enabled
ContextIsDestroyed 709 context destroyed
Assert 710 assertion failed
IllegalInstruction 715 illegal instruction
MisalignedAddress 716 misaligned address
LaunchFailure 719 launch failed
CooperativeLaunchTooLarge 720 cooperative launch too large
NotPermitted 800 not permitted
NotSupported 801 not supported
StreamCaptureUnsupported 900 not while a stream is captured
StreamCaptureInvalidated 901 capture of a stream ended by an error
StreamCaptureImplicit 906 the capturing stream would wait for the default one
Unknown 999 unknown error
"""
"""The names and numbers that driver_types.h of CUDA 13.0 has behind cudaError, each with what is said of it."""


def test_errors_are_told_by_the_numbers_that_cuda_gives_them(tmp_path: Path) -> None:
    known = {int(number): told for _, number, told in (line.split(" ", 2) for line in CUDA_ERRORS.split("\n")[1:-1])}
    made = trace(tmp_path, *known)
    notes = [note for kind in ("launch", "call") for note in made.spans[kind].notes.values()]
    assert {str(note["returned"]) for note in notes} == {f"{told} ({number})" for number, told in known.items()}


@pytest.mark.parametrize("junk", ["text", None, 1.5, b"\xff"])
def test_what_is_no_number_of_an_error_is_none(tmp_path: Path, junk: object) -> None:
    made = trace(tmp_path, junk, 2)
    assert dict(made.spans["launch"].notes) == {}
    assert dict(made.spans["call"].notes) == {0: {"returned": "out of memory (2)"}}


def test_an_export_that_does_not_tell_has_no_errors(tmp_path: Path) -> None:
    capture = Capture()
    capture.kernel(30, 40, capture.call("cudaLaunchKernel", 10, 20))
    assert dict(capture.trace(tmp_path).spans["launch"].notes) == {}
