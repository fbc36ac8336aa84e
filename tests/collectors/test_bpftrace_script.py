"""The program for bpftrace, and what finds the functions it is to look at."""

from __future__ import annotations

import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmtop.collectors.tracing import probes, wire
from llmtop.collectors.tracing.bpftrace import runner
from llmtop.collectors.tracing.bpftrace.collector import checks, why_not
from llmtop.collectors.tracing.bpftrace.script import STATE_SHIFT, Function, RunPlan, collector_probes, script
from llmtop.collectors.tracing.helper import elf
from llmtop.collectors.tracing.helper.functions import COLLECTOR
from llmtop.model import Unknown

SYNC = Function("/proc/7/root/lib/libcuda.so.1", "cuCtxSynchronize", 6, waits=True)
ASK = Function("/proc/7/root/lib/libcuda.so.1", "cuEventQuery", 7, asks=True)
PYTHON = "/lib/python3"


def collector(*symbols: str) -> Function:
    """Python's, in an interpreter that knows it by these."""
    return Function(PYTHON, COLLECTOR, 40, False, False, (1, 2), *collector_probes(PYTHON, symbols))


def planned(pids: tuple[int, ...], **others: Any) -> RunPlan:
    """Calls are timed and threads followed, without stacks, once a second, but for what is said."""
    usual = RunPlan(
        pids, calls="timed", scheduler=True, stack_every=0, samples=False, functions=(), interval_ms=1000, named=True,
        loses_first=False,
    )  # fmt: skip
    return replace(usual, **others)


PLANS = [
    planned((1,)),
    planned((1, 2), stack_every=4, samples=True, functions=(SYNC,)),
    planned((1,), calls="counted"),
    planned((1,), calls="off", stack_every=1),
    planned((1,), calls="off", scheduler=False),
    planned((1,), scheduler=False, samples=True),
    planned((1,), functions=(SYNC,), loses_first=True),
    planned((1,), functions=(SYNC, collector())),
    planned((1,), functions=(SYNC, ASK), loses_first=True),
    planned((1,), calls="counted", loses_first=True),
]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_map_that_is_read_is_written(plan: RunPlan, machine: str) -> None:
    text = script(plan, machine)
    used = set(re.findall(r"@(\w+)", text))
    written = set(re.findall(r"@(\w+)[^;{}]* = ", text))
    assert used == written
    assert text.count("{") == text.count("}")
    assert not re.search(r"\b(FILES|POLLS|PPOLL|YIELD|FUTEX|COUNT|ERROR|TIMEOUT|TAKE|WEIGH|SOME|SYNC|HERTZ)\b", text)


@pytest.mark.parametrize("calls", ["timed", "counted"])
def test_what_cpus_come_to_at_once_is_made_before_it_is_added_to(calls: str) -> None:
    """Keys without a thread are; what is left is only looked at for its order of magnitude."""
    text = script(planned((1,), calls=calls, functions=(SYNC,), loses_first=True), "x86_64")
    exact = set(re.findall(r"@(\w+)\[[^;\n]*?\] = sum\(\(uint64\)0\);", text))
    assert exact == {"library_count", "calls", *(("errors", "switch_timeouts") if calls == "timed" else ())}
    for name in exact:
        assert re.search(rf"(@{name}\[[^\]]*\]) = sum\(\(uint64\)0\); \1 = sum\(\(uint64\)1\);", text)
    assert "sum((uint64)0)" not in script(planned((1,), calls=calls, functions=(SYNC,)), "x86_64")


@pytest.mark.parametrize(("found", "loses"), [((0, 17), False), ((0, 23), True), ((1, 0), True), (None, True)])
def test_which_releases_lose_the_first(found: tuple[int, int] | None, loses: bool) -> None:
    assert runner.loses_first(found) is loses


@pytest.mark.parametrize("plan", PLANS)
def test_maps_that_may_be_read_before_they_are_written_have_their_types_from_the_start(plan: RunPlan) -> None:
    """The verifier of bpftrace takes what a map holds from where it comes upon it first."""
    begin, _, rest = script(plan, "x86_64").partition("\ntracepoint:")
    typed = set(re.findall(r"@(\w+)\[", begin))
    read = set(re.findall(r"(?:\$\w+ = |if \(|&& |\|\| |\(uint64\)\()@(\w+)\[", rest))
    assert typed == read | {"target", "known", "call"}
    assert ("off" in typed, "entered" in typed) == (plan.scheduler, bool(plan.functions))


@pytest.mark.parametrize("plan", PLANS)
def test_what_is_printed_is_not_deleted_from(plan: RunPlan) -> None:
    """Until 0.18 bpftrace ends when an entry is gone as it comes to it."""
    text = script(plan)
    assert not set(re.findall(r"print\(@(\w+)", text)) & set(re.findall(r"delete\(@(\w+)", text))


def test_a_sleep_within_a_call_that_waits_for_the_gpu_is_marked_as_the_wire_has_it() -> None:
    assert f"(@syncing[(uint64)tid] > 0) << {STATE_SHIFT + wire.IN_SYNC.bit_length() - 1})" in script(PLANS[1])
    assert "@syncing" not in script(replace(PLANS[1], functions=()))


def test_only_what_is_asked_for_is_attached() -> None:
    bare = script(planned((1,), calls="off", scheduler=False))
    assert re.findall(r"^(?:tracepoint|uprobe|profile)\S+", bare, re.MULTILINE) == [
        "tracepoint:sched:sched_process_fork",
        "tracepoint:sched:sched_process_exec",
        "tracepoint:sched:sched_process_exit",
    ]
    assert "uprobe:/proc/7/root/lib/libcuda.so.1:cuCtxSynchronize {" in script(PLANS[1])
    assert "rand % 4 == 0" in script(PLANS[1])
    assert "rand" not in script(replace(PLANS[1], stack_every=1))


@pytest.mark.parametrize(
    ("symbols", "begins", "ends"),
    [
        ((), "usdt:/lib/python3:python:gc__start {", "usdt:/lib/python3:python:gc__done {"),
        (
            ("gc_a", "gc_b.constprop.0"),
            "uprobe:/lib/python3:gc_a,\nuprobe:/lib/python3:gc_b.constprop.0 {",
            "uretprobe:/lib/python3:gc_a,\nuretprobe:/lib/python3:gc_b.constprop.0 {",
        ),
    ],
)
def test_a_collector_is_timed_by_thread_beside_what_it_calls(symbols: tuple[str, ...], begins: str, ends: str) -> None:
    one = collector(*symbols)
    assert (one.can_be_written, one.collects, one.is_told_by_thread) == (True, True, True)
    text = script(planned((1,), functions=(one,)))
    assert f"\n{begins}\n" in text
    leave = text.partition(f"\n{ends}\n")[2].partition("\n}")[0]
    assert "@library_time[(uint64)pid, (uint64)tid, (uint64)40] = sum(nsecs - $since);" in leave
    assert "@outermost" not in leave, "a launch within it is a launch"


@pytest.mark.parametrize(
    "path", ["/lib/a b.so", '/lib/";system("x").so', "/lib/a:b.so", "/lib/a\n.so", "/lib/ä.so", ""]
)
def test_a_path_that_would_be_program_is_refused(path: str) -> None:
    assert not Function(path, "cuInit", 1).can_be_written
    assert SYNC.can_be_written


@pytest.fixture(scope="session")
def libcuda(cuda_program: Path) -> Path:
    return cuda_program.with_name("libcuda.so.1")


def test_functions_are_found_where_they_are(libcuda: Path) -> None:
    found = elf.exported(str(libcuda), ("cuLaunchKernel", "cuGraphLaunch", "cuNoSuchThing", "nanosleep"))
    assert set(found) == {"cuLaunchKernel", "cuGraphLaunch"}, "what is only imported is not there"
    data = libcuda.read_bytes()
    assert all(0 < place < len(data) for place in found.values())
    assert {data[place : place + 1] for place in found.values()} <= {b"\x55", b"\xf3"}, "push %rbp, or endbr64"


@example(cut=1.0, damage=b"\x00\x80", place=0.002079957231059027).via("an offset that no index can be")
@given(cut=st.floats(0, 1), damage=st.binary(max_size=64), place=st.floats(0, 1))
def test_damaged_libraries_are_told(libcuda: Path, cut: float, damage: bytes, place: float) -> None:
    data = libcuda.read_bytes()
    at = int(place * len(data))
    damaged = (data[:at] + damage + data[at + len(damage) :])[: int(cut * len(data))]
    copy = libcuda.with_name("damaged.so")
    copy.write_bytes(damaged)
    try:
        elf.exported(str(copy), ("cuLaunchKernel",))
    except (ValueError, OSError):
        return


def test_no_library_is_told(tmp_path: Path) -> None:
    for name, data in (("empty", b""), ("text", b"x" * 100), ("elf32", b"\x7fELF\x01\x01" + bytes(100))):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"."):
            elf.exported(str(path), ("cuLaunchKernel",))
    assert struct.calcsize("<IBBHQQ") == 24


@pytest.fixture
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMTOP_NO_EBPF", raising=False)
    monkeypatch.setattr(runner, "find", lambda: "/usr/bin/bpftrace")
    monkeypatch.setattr(runner, "version", lambda path: (0, 21))
    monkeypatch.setattr(probes, "why_no_probes", lambda rights: None)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMTOP_NO_EBPF", "1")
    assert why_not() == Unknown("switched off by LLMTOP_NO_EBPF", "unset LLMTOP_NO_EBPF")


@pytest.mark.usefixtures("_allowed")
def test_where_it_is_not_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "find", lambda: None)
    assert why_not() == Unknown("bpftrace is not installed", "sudo apt install bpftrace")


@pytest.mark.usefixtures("_allowed")
def test_an_old_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "version", lambda path: (0, 14))
    assert why_not() == Unknown("bpftrace 0.14 is too old", "bpftrace 0.17 or newer")
    monkeypatch.setattr(runner, "version", lambda path: None)
    assert why_not() == Unknown("/usr/bin/bpftrace does not say its version", "sudo apt install bpftrace")


@pytest.mark.usefixtures("_allowed")
def test_rights_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not() is None
    (check,) = checks()
    assert check.what == "bpftrace probes"
    why = Unknown("only root may load probes", "sudo llmtop")
    monkeypatch.setattr(probes, "why_no_probes", lambda rights: why)
    assert why_not() == why
    (check,) = checks()
    assert check.state == why


def test_a_program_that_says_no_version(tmp_path: Path) -> None:
    program = tmp_path / "bpftrace"
    program.write_text("#!/bin/sh\necho bpftrace v0.20.2-15-gdeadbeef\n")
    program.chmod(0o755)
    assert runner.version(str(program)) == (0, 20)
    program.write_text("#!/bin/sh\nexit 1\n")
    assert runner.version(str(program)) is None
    assert runner.version(str(tmp_path / "nothing")) is None


@pytest.mark.parametrize(("answers_s", "found"), [(9.9, (0, 20)), (10.5, None)])
def test_a_program_has_ten_seconds_to_say_its_version(
    monkeypatch: pytest.MonkeyPatch, answers_s: float, found: tuple[int, int] | None
) -> None:
    """On a machine that loads a model it is not read from the disk at once; one that hangs holds up all that waits."""

    def run(argv: list[str], *, timeout: float, **options: Any) -> subprocess.CompletedProcess[str]:
        assert argv == ["/usr/bin/bpftrace", "--version"]
        if answers_s > timeout:
            raise subprocess.TimeoutExpired(argv, timeout)
        return subprocess.CompletedProcess(argv, 0, "bpftrace v0.20.2\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert runner.version("/usr/bin/bpftrace") == found


def test_names_are_not_taken_from_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "version", lambda path: (0, 17))
    assert runner._symbols("bpftrace", named=True) == {"BPFTRACE_CACHE_USER_SYMBOLS": "1"}
    assert runner._symbols("bpftrace", named=False) == {"BPFTRACE_NO_USER_SYMBOLS": "1"}
    monkeypatch.setattr(runner, "version", lambda path: (0, 19))
    assert runner._symbols("bpftrace", named=True) == {"BPFTRACE_CACHE_USER_SYMBOLS": "PER_PID"}
    assert not runner.names_by_process(None)


@pytest.mark.parametrize(("interval_ms", "every"), [(200, 10), (667, 2), (1000, 2), (1999, 1), (2000, 1), (8000, 1)])
def test_stacks_are_printed_every_two_seconds_or_with_each_look(interval_ms: int, every: int) -> None:
    text = script(planned((1,), stack_every=1, interval_ms=interval_ms), "x86_64")
    assert re.findall(r"@turn % (\d+) == 0", text) == [str(every)]


def test_what_uprobes_enter_the_kernel_by_is_no_call_of_the_program() -> None:
    """Uretprobe 335 and uprobe 336 of arch/x86/entry/syscalls/syscall_64.tbl (Linux 6.18); other machines use traps."""
    for calls in ("timed", "counted"):
        told = script(planned((1,), calls=calls), "x86_64")
        assert "sys_enter /args->id != 335 && args->id != 336/ {" in told
        assert "sys_enter {" in script(planned((1,), calls=calls), "aarch64")
