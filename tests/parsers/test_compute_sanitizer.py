"""Reports of compute-sanitizer: what each of its tools says, in old and new layouts, and as findings."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop.analysis.rules.registry import diagnose
from llmtop.errors import FileError
from llmtop.model import SanitizerError, Severity, Trace, Unknown
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import SAMPLE_TRACES

SAMPLES = SAMPLE_TRACES / "compute-sanitizer" / "2025.3"
BANNER = "========= COMPUTE-SANITIZER\n"


def read(folder: Path, *lines: str, banner: str = BANNER) -> Trace:
    path = folder / "said"
    path.write_text(banner + "".join(f"========= {line}\n" for line in lines))
    return load(path)


def only(trace: Trace) -> SanitizerError:
    (error,) = trace.sanitizer
    return error


def test_an_access_has_its_place_thread_address_and_callers() -> None:
    first = load(SAMPLES / "memcheck.sanitizer.txt").sanitizer[0]
    assert first == SanitizerError(
        what="Invalid __global__ write of size 4 bytes",
        function="scale(float *, int)",
        offset=0xD0,
        place="scale.cu:9",
        thread=(96, 0, 0),
        block=(3, 0, 0),
        notes=(
            "Access at 0x7f241b0001e0 is out of bounds",
            "and is 1 bytes after the nearest allocation at 0x7f241b000000 of size 480 bytes",
        ),
        host_frames=("run(float *, int) in scale.cu:18", "main in scale.cu:25"),
    )


def test_findings_are_by_place_and_say_what_to_do() -> None:
    findings = diagnose(load(SAMPLES / "memcheck.sanitizer.txt")).findings
    assert [(one.subject, one.severity) for one in findings] == [
        ("scale", Severity.ERROR),
        ("reduce", Severity.ERROR),
        ("the program", Severity.ERROR),
        ("the program", Severity.ERROR),
    ]
    access, misaligned, call, leak = findings
    assert access.message == "Invalid __global__ write of size 4 bytes at scale.cu:9, block (3,0,0), thread (96,0,0)"
    assert "reported 2 times, of 1 block" in access.evidence
    assert "called from run(float *, int) in scale.cu:18 < main in scale.cu:25" in access.evidence
    assert misaligned.evidence[1:4] == (
        "the program was compiled without lines (compile it with -lineinfo)",
        "Address 0x204 is misaligned",
        "within void tile<(int)128>(const float4 *)+0x40 in reduce.cuh:31",
    )
    assert misaligned.action.startswith("an access must begin at a multiple of its size")
    assert call.action.startswith("the call failed: an error of a kernel shows in a later call")
    assert leak.action.startswith("free it before the context is destroyed")


def test_a_race_has_both_sides_and_its_hazards() -> None:
    error, warning = diagnose(load(SAMPLES / "racecheck.sanitizer.txt")).findings
    assert error.message == "Race reported between Write access and Read access at reverse.cu:28"
    assert error.evidence == (
        "instruction at reverse(float *)+0xb0",
        "and Read access at reverse(float *)+0xc0 in reverse.cu:30 [1024 hazards]",
        "and Read access at reverse(float *)+0x110 in reverse.cu:31 [512 hazards]",
        "1536 hazards: pairs of accesses that nothing keeps in order",
    )
    assert error.action.startswith("put __syncthreads()")
    assert (warning.subject, warning.severity) == ("fill", Severity.WARNING)


LAYOUTS = {
    "2025": ("at f(int *)+0xd0 in /a b/x.cu:9", "f(int *)", 0xD0, "/a b/x.cu:9"),
    "without lines": ("at void f<(int)2>(T1)+0xe10", "void f<(int)2>(T1)", 0xE10, None),
    "2021": ("at 0x3c8 in U:/x/y.cu:17:add(int*,int*)", "add(int*,int*)", 0x3C8, "U:/x/y.cu:17"),
    "cuda-memcheck": ("at 0x00000020 in test(int*, int*)", "test(int*, int*)", 0x20, None),
}


@pytest.mark.parametrize(("line", "function", "offset", "place"), LAYOUTS.values(), ids=LAYOUTS)
def test_places_of_all_versions(line: str, function: str, offset: int, place: str | None, tmp_path: Path) -> None:
    trace = read(tmp_path, "Invalid __shared__ read of size 2", f"    {line}", banner="========= CUDA-MEMCHECK\n")
    error = only(trace)
    assert (error.function, error.offset) == (function, offset)
    assert isinstance(error.place, Unknown) if place is None else error.place == place


@pytest.mark.parametrize(
    ("header", "action"),
    [
        ("Barrier error detected. Divergent thread(s) in warp.", "let all threads of the block"),
        ("Uninitialized __global__ memory read of size 4 bytes", "write it first: cudaMemset"),
        ("Host API memory access error at host access to 0x13 of size 25600 bytes", "fill all of the buffer"),
        ("Unused memory in allocation 0x13 of size 16 bytes", "get less memory"),
        ("Invalid __global__ atomic of size 4 bytes", "compare the index"),
    ],
)
def test_each_tool_has_its_advice(header: str, action: str, tmp_path: Path) -> None:
    trace = read(tmp_path, header, "    at f(int *)+0x10 in x.cu:3", "    by thread (7,0,0) in block (2,1,0)")
    (finding,) = diagnose(trace).findings
    assert finding.action.startswith(action)
    assert finding.message.endswith("at x.cu:3, block (2,1,0), thread (7,0,0)")


def test_hazards_one_by_one_are_one_finding(tmp_path: Path) -> None:
    lines = [
        line
        for i in range(3)
        for line in (
            f"WARN:(Warp Level Programming) Potential WAR hazard detected at __shared__ 0x{i} in block (0, 2, 0) :",
            f"    Read Thread (3{i}, 0, 0) at 0x00000170 in ./race.cu:4:test(int*, int*)",
            "    Write Thread (0, 0, 0) at 0x000001a8 in ./race.cu:5:test(int*, int*)",
            "    Current Value : 0, Incoming Value : 0",
        )
    ]
    (finding,) = diagnose(read(tmp_path, *lines)).findings
    assert finding.message == "Potential WAR hazard detected at ./race.cu:4, block (0,2,0), thread (30,0,0)"
    assert finding.severity is Severity.WARNING
    assert "reported 3 times, of 1 block" in finding.evidence


def test_a_clean_run_is_told_as_one(tmp_path: Path) -> None:
    trace = read(tmp_path, "ERROR SUMMARY: 0 errors")
    assert (trace.sanitizer, trace.issues) == ((), ())
    assert trace.origin.facts["error summary"] == "0 errors"
    assert diagnose(trace).findings == ()


def test_what_the_tool_says_besides_is_no_error(tmp_path: Path) -> None:
    said = "Tracking kernels launched by child processes requires the --target-processes all option."
    trace = read(tmp_path, said, "ERROR SUMMARY: 0 errors")
    assert trace.sanitizer == ()
    assert [(issue.code, issue.message) for issue in trace.issues] == [
        ("sanitizer.said", f"compute-sanitizer says: {said}")
    ]


def test_a_run_without_reports_says_why(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no report and no summary: Error: No attachable process found"):
        read(tmp_path, "Error: No attachable process found. compute-sanitizer timed-out.")


def test_a_text_without_its_end_says_so(tmp_path: Path) -> None:
    trace = read(tmp_path, "Invalid __global__ read of size 4 bytes", "    at f()+0x1 in x.cu:1")
    assert [issue.code for issue in trace.issues] == ["sanitizer.no-summary"]


DAMAGE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@DAMAGE
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=8), st.integers(0, 1 << 20))
def test_changed_bytes_and_cuts_cost_no_more_than_a_sentence(
    tmp_path: Path, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray((SAMPLES / "memcheck.sanitizer.txt").read_bytes())
    for place, byte in changes:
        data[place % len(data)] = byte
    path = tmp_path / "said"
    path.write_bytes(bytes(data[: 30 + cut % len(data)]))
    try:
        said = diagnose(load(path)).findings
    except FileError as error:
        refusal = str(error)
        assert "\n" not in refusal
        return
    assert "\\x1b" not in repr(said)


def test_reports_that_are_counted_and_not_there_are_damage(tmp_path: Path) -> None:
    whole = (SAMPLES / "memcheck.sanitizer.txt").read_text()
    (tmp_path / "file").write_text(whole.replace("========= Invalid __shared__", "======_== Invalid __shared__"))
    (issue,) = load(tmp_path / "file").issues
    assert issue.message == "its summary counts 5 errors, and 4 can be read: parts of the text are damaged"
