"""Samples of perf: as text in all the layouts it prints, and as recordings, against perf's own report."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop.analysis.threads.functions import functions
from llmtop.errors import FileError
from llmtop.model import Trace, What
from llmtop.parsers.perf_script import _PerfSamples
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import SAMPLE_TRACES
from tests.parsers.told_progress import told_while_read

SAMPLE = SAMPLE_TRACES / "perf" / "6.1.187" / "three-threads.perf.txt"
FRAME = "\t          2ba81d visit+0x7d (/usr/lib/libpython3.11.so.1.0)"


def read(folder: Path, text: str | bytes) -> Trace:
    path = folder / "samples"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(path)


def shares(trace: Trace) -> dict[str, float]:
    (one,) = functions(trace)
    return {share.name: round(100 * share.own_share, 2) for share in one.shares if share.own}


def test_the_shares_are_those_of_perf_report() -> None:
    trace = load(SAMPLE)
    own = shares(trace)
    printed = {"multiply": 43.04, "_copy_from_iter_[k]": 6.33, "page_counter_uncharge_[k]": 5.06}
    assert {name: own[name] for name in printed} == printed
    assert sum(stack.weight for stack in trace.stacks) == 79 * 4e6
    assert {trace.tracks[stack.track].name for stack in trace.stacks} == {"engine", "serve", "worker 3"}
    assert trace.stacks[0].frames == ("start_thread", "engine", "multiply")
    assert str(trace.why_missing(What("kernels"))) == "samples of perf tell of functions on CPUs alone"


LAYOUTS = {
    "perf script": ("python3  4242 59865.286132:   10101010 cpu-clock:pppH: ", "ns", 10101010.0, 4242, 4242),
    "-F +pid": ("python3  4242/4243 59865.286132:     250000 cycles:u: ", "cycles", 250000.0, 4242, 4243),
    "-a": ("VM Thread 7  4242/4243 [003] 1.5:  7 cpu/event=0x3c/:", "cpu/event=0x3c/", 7.0, 4242, 4243),
    "no period": ("python3  4242 [001] 12.000001: sched:sched_switch: ", "sched:sched_switch", 1.0, 4242, 4242),
    "no time": ("python3  4242 cycles: ", "samples", 1.0, 4242, 4242),
    "tracepoint": ("a 1 [000]  1.3:   1 sched:sched_wakeup: comm=b pid=42 prio=120", "sched:sched_wakeup", 1.0, 1, 1),
}


@pytest.mark.parametrize(("line", "unit", "weight", "pid", "tid"), LAYOUTS.values(), ids=LAYOUTS)
def test_what_layouts_differ_in(line: str, unit: str, weight: float, pid: int, tid: int, tmp_path: Path) -> None:
    trace = read(tmp_path, f"{line}\n{FRAME}\n\t    1019b3 [unknown] (/usr/lib/libc.so.6)\n\n")
    (stack,) = trace.stacks
    assert stack.frames == ("[libc.so.6]", "visit")
    assert (stack.unit, stack.weight, stack.track) == (unit, weight, f"thread:{pid}/{tid}")


def test_a_sample_without_a_stack_has_its_function_on_its_line(tmp_path: Path) -> None:
    line = "swapper     0 [000]  1022.3:     250123 cycles:  ffffffff81d4 clear_page_erms+0x7 ([kernel.kallsyms])\n"
    trace = read(tmp_path, line * 3)
    assert [(stack.frames, stack.weight) for stack in trace.stacks] == [(("clear_page_erms_[k]",), 750369.0)]


SAMPLE_LINE = "python3  4242 59865.2:   1000 cpu-clock: "


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ("7f2d [unknown] ([unknown])", "[unknown]"),
        ("7f2d [unknown] (/usr/lib/libcuda.so.1)", "[libcuda.so.1]"),
        (
            "7f2d std::f(int, (anonymous namespace)::T) const+0x1f (/opt/a (deleted))",
            "std::f(int, (anonymous namespace)::T) const",
        ),
        ("7f2d nv_ioctl+0x1 ([nvidia])", "nv_ioctl_[k]"),
        ("7f2d clock_gettime+0x1 ([vdso])", "clock_gettime"),
        ("7f2d evil\x1b[2Jname+0x1 (/a)", "evil␛[2Jname"),
    ],
)
def test_functions_are_named_as_flame_graphs_do(frame: str, name: str, tmp_path: Path) -> None:
    (stack,) = read(tmp_path, f"{SAMPLE_LINE}\n{FRAME}\n\t{frame}\n\n").stacks
    assert stack.frames[0] == name


def test_the_header_tells_of_the_capture(tmp_path: Path) -> None:
    header = (
        "# ========\n# captured on    : Mon Nov 23 18:34:53 2026\n# hostname : gpu7\n# perf version : 6.1.187\n"
        "# cmdline : /usr/bin/perf record -g -- serve --api-key hunter2 \n"
    )
    origin = read(tmp_path, f"{header}{SAMPLE_LINE}\n{FRAME}\n").origin
    assert (origin.kind, origin.tool_version, origin.host) == ("perf", "6.1.187", "gpu7")
    assert origin.facts["command"] == "/usr/bin/perf record -g -- serve --api-key [redacted]"
    assert origin.facts["captured"] == "Mon Nov 23 18:34:53 2026"


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    text = f"{SAMPLE_LINE}\n{FRAME}\n\n{SAMPLE_LINE}\n\nWarning: lost 3\n{SAMPLE_LINE}\n{FRAME}"
    trace = read(tmp_path, text)
    assert [(issue.code, issue.count) for issue in trace.issues] == [
        ("perf.bare-samples", 1),
        ("rows-skipped", 1),
        ("no-line-end", 1),
    ]
    assert [stack.weight for stack in trace.stacks] == [2000.0]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    perf = shutil.which("perf")
    if perf is None:
        pytest.skip("perf is not here")
    path = tmp_path / "perf.data"
    program = "sum(i * i for i in range(1_000_000))"
    command = [perf, "record", "-q", "-g", "-F", "500", "-e", "cpu-clock", "-o", str(path), "python3", "-c", program]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("perf may not record here")
    return path


@pytest.mark.kernel
def test_a_recording_has_the_shares_of_perf_report(recording: Path) -> None:
    command = ["perf", "report", "-f", "-i", str(recording), "--stdio", "--no-children", "-g", "none", "--sort", "sym"]
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    theirs = {name.strip(): float(share) for share, name in re.findall(r"(?m)^ +([\d.]+)%  \[\.\] (\S+)", printed)}
    ours = shares(load(recording))
    named = {name: share for name, share in theirs.items() if not name.startswith("0x")}
    assert named
    assert {name: ours[name] for name in named} == pytest.approx(named, abs=0.011)


def test_without_perf_a_recording_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        FileError,
        match=r"can only be read by perf, and perf is not installed: sudo apt install linux-perf; or print it where it",
    ):
        read(tmp_path, b"PERFILE2" + bytes(96))


def test_a_recording_that_perf_cannot_read_says_what_perf_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf = tmp_path / "perf"
    perf.write_text("#!/bin/sh\necho 'incompatible file format' >&2; exit 1\n")
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(FileError, match=r"cannot be read by .*/perf: incompatible file format; print it where it was"):
        read(tmp_path, b"PERFILE2" + bytes(96))


def test_a_recording_is_what_perf_prints_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of it, also where that ends without a line's end."""
    text = f"{SAMPLE_LINE}\n{FRAME}\n\n" * 3
    (tmp_path / "printed").write_text(text[:-2])
    perf = tmp_path / "perf"
    lists = '[ "$1" = evlist ] && exec echo cpu-clock'
    perf.write_text(f'#!/bin/sh\n{lists}\necho "$@" > {tmp_path}/asked; cat {tmp_path}/printed\n')
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    trace = read(tmp_path, b"PERFILE2" + bytes(96))
    assert (trace.stacks, trace.tracks, trace.issues) == (read(tmp_path, text).stacks, read(tmp_path, text).tracks, ())
    assert trace.origin.path == str(tmp_path / "samples")
    asked = (tmp_path / "asked").read_text().split()
    assert asked == [
        "script",
        "--force",
        "-i",
        str(tmp_path / "samples"),
        "--header",
        "-F",
        "+pid,+ip,+sym,+symoff,+dso",
    ]


def test_how_far_perf_is_is_told_every_16384_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "printed").write_text(f"{SAMPLE_LINE}\n{FRAME}\n" + "# a comment\n" * (2 * 16384 - 1))
    perf = tmp_path / "perf"
    lists = '[ "$1" = evlist ] && exec echo cpu-clock'
    perf.write_text(f"#!/bin/sh\n{lists}\ncat {tmp_path}/printed\n")
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "perf.data").write_bytes(b"PERFILE2" + bytes(96))
    numbers = [f"perf prints it, {lines} lines so far: Esc stops it" for lines in (0, 16384, 32768)]
    assert told_while_read(tmp_path / "perf.data") == ["", numbers[0], "", *numbers, ""]


DAMAGE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@DAMAGE
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=8), st.integers(0, 1 << 20))
def test_changed_bytes_and_cuts_cost_no_more_than_a_sentence(
    tmp_path: Path, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(SAMPLE.read_bytes())
    for place, byte in changes:
        data[place % len(data)] = byte
    try:
        trace = read(tmp_path, bytes(data[: cut % len(data)]))
    except FileError as error:
        refusal = str(error)
        assert "\n" not in refusal
        return
    assert all(stack.weight > 0 for stack in trace.stacks)
    assert "\\x1b" not in repr(trace.stacks)


@pytest.mark.parametrize("event", ["sched:sched_switch", "syscalls:sys_enter_read"])
def test_a_recording_of_a_tracepoint_has_its_stacks(tmp_path: Path, event: str) -> None:
    """Once a field is named, perf prints the stacks of tracepoints only where these are named too."""
    perf = shutil.which("perf")
    if perf is None:
        pytest.skip("perf is not here")
    path = tmp_path / "perf.data"
    program = "import time\nfor _ in range(5): open('/dev/zero', 'rb').read(9); time.sleep(.001)"
    command = [perf, "record", "-q", "-g", "-e", event, "-o", str(path), "python3", "-c", program]
    if subprocess.run(command, capture_output=True).returncode or not path.exists():
        pytest.skip("perf may not record tracepoints here")
    (one,) = functions(load(path))
    assert one.unit == event
    assert max(len(stack.frames) for stack in load(path).stacks) > 2


@pytest.mark.parametrize(
    ("options", "remedy"), [("-ag", "dwarf"), ("--call-graph fp", "dwarf"), ("-g", "dwarf"), ("-a -F 99", "-g")]
)
def test_stacks_that_were_asked_for_are_not_asked_for_again(tmp_path: Path, options: str, remedy: str) -> None:
    text = (
        f"# cmdline : /usr/bin/perf record {options} -- serve\npython3 42 1.5: 7 cycles: \npython3 42 1.6: 7 cycles: \n"
    )
    with pytest.raises(FileError, match="holds no sample with a function") as told:
        _PerfSamples(text.splitlines()).trace(tmp_path / "a", is_ended=True)
    assert remedy in str(told.value)
    assert ("perf record -g" in str(told.value)) == (remedy == "-g")
