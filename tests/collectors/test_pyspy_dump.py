"""One run of py-spy: what it says, and every way in which it can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors import pyspy_dump
from llmtop.collectors.pyspy_dump import PythonThread, find_program, look, parse, why_failed
from llmtop.model import Unknown
from tests.workloads.programs import HERE, Workload


def program(folder: Path, body: str) -> Path:
    """A stand-in for py-spy."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def entry(**changes: object) -> dict[str, object]:
    frame = {"name": "step", "filename": "/srv/core.py", "short_filename": "core.py", "line": 12}
    outer = {"name": "main", "filename": "/srv/main.py", "short_filename": "main.py", "line": 3}
    known = {"pid": 7, "os_thread_id": 9, "active": True, "owns_gil": True, "frames": [frame, outer]}
    return known | changes


def parsed(*entries: object) -> tuple[PythonThread, ...] | Unknown:
    return parse(json.dumps(entries).encode())


def reason(found: object) -> str:
    assert isinstance(found, Unknown)
    return str(found)


def test_a_thread_with_its_frames_root_first() -> None:
    assert parsed(entry()) == (PythonThread(9, True, True, ("main (main.py:3)", "step (core.py:12)")),)


def test_what_makes_no_sense_is_passed_over() -> None:
    odd: tuple[object, ...] = (
        3,
        None,
        [],
        entry(os_thread_id=None),
        entry(os_thread_id="9"),
        entry(frames=None),
        entry(os_thread_id=-1),
        entry(os_thread_id=0),
    )
    assert parsed(*odd, entry(active=None, owns_gil="yes", frames=[5, {"name": None}, {"name": "f"}])) == (
        PythonThread(9, False, False, ("f (?)",)),
    )
    assert reason(parse(b"{}")).startswith("py-spy wrote something that llmtop does not know")
    assert reason(parse(b"\xff[")).startswith("py-spy wrote something that is not JSON")
    assert reason(parse(b"[" * 100_000)).startswith("py-spy wrote something that is not JSON")


def test_hostile_names_are_cleaned_and_cut() -> None:
    frames = [{"name": "\x1b[2J" + "x" * 9999, "short_filename": "a\nb.py" + "y" * 9999, "line": True}]
    threads = parsed(entry(frames=frames))
    assert not isinstance(threads, Unknown)
    ((frame,),) = (thread.frames for thread in threads)
    assert frame == f"␛[2J{'x' * 76}…{'x' * 79} (a␊b.py{'y' * 74}…{'y' * 79})"


def test_of_a_deep_stack_the_300_innermost_frames_are_kept() -> None:
    """Where a program recurses without end, what it does there tells more than how it began."""
    frames = [{"name": f"f{depth}", "filename": "a.py", "line": 1} for depth in range(302)]
    deep = PythonThread(9, True, True, tuple(f"f{depth} (a.py:1)" for depth in reversed(range(300))))
    assert parsed(entry(frames=frames)) == (deep,)


@pytest.mark.parametrize(("length", "said"), [(160, "e" * 160), (161, f"{'e' * 80}…{'e' * 79}")])
def test_a_long_complaint_is_cut(length: int, said: str) -> None:
    assert reason(why_failed(7, f"Error: {'e' * length}")).startswith(f"py-spy failed on process 7: {said} (")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["os_thread_id", "frames", "name", "line"]), inner),
)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_end_the_program(output: bytes) -> None:
    assert isinstance(parse(output), (tuple, Unknown))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Error: Failed to find python version from target process", "does not recognise the interpreter"),
        ("Permission Denied: Try running again with elevated permissions", "may not read process 7"),
        ("Error: x\n\nCaused by:\n 0: Operation not permitted (os error 1)", "may not read process 7"),
        ("Error: \x1b[31mbad\nStack backtrace:", "py-spy failed on process 7: ␛[31mbad"),
        ("", "it did not say why"),
    ],
)
def test_each_failure_is_one_clear_line(said: str, expected: str) -> None:
    assert expected in reason(why_failed(7, said))


@pytest.mark.parametrize(
    ("uid", "scope", "remedy"),
    [
        (1000, "1", "sudo llmtop ... (or sudo sysctl kernel.yama.ptrace_scope=0)"),
        (1000, "0", "sudo llmtop ..."),
        (1000, "3", "kernel.yama.ptrace_scope=1"),
        (0, "1", "docker run --cap-add SYS_PTRACE ..."),
    ],
)
def test_what_is_denied_says_how_to_get_it(
    uid: int, scope: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = tmp_path / "ptrace_scope"
    setting.write_text(f"{scope}\n")
    monkeypatch.setattr(pyspy_dump, "_PTRACE_SCOPE", str(setting))
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert pyspy_dump.why_denied(7).remedy == remedy


def test_a_run_that_hangs_is_ended(tmp_path: Path) -> None:
    seen = look(program(tmp_path, "exec sleep 60"), 7, timeout_s=0.05)
    assert reason(seen.threads).startswith("py-spy was ended: it did not answer within 0.05 s")


def test_a_run_that_says_too_much_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy_dump, "MOST_BYTES", 1 << 20)
    assert "it said more than 1 MiB" in reason(look(program(tmp_path, "exec cat /dev/zero"), 7).threads)


def test_what_it_costs_is_counted(tmp_path: Path) -> None:
    busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo '[]'"
    seen = look(program(tmp_path, busy), 7)
    assert seen.threads == ()
    assert seen.cpu_ns > 1_000_000


def test_a_program_that_cannot_be_started_is_a_line(tmp_path: Path) -> None:
    assert reason(look(tmp_path / "none", 7).threads).startswith("py-spy cannot be started")


@pytest.fixture
def real() -> Path:
    found = find_program()
    if found is None:
        pytest.skip("py-spy is not installed")
    return found


def test_real_functions_in_their_states(real: Path) -> None:
    with Workload(sys.executable, HERE / "known_functions.py") as workload:
        deadline = time.monotonic() + 60
        states: dict[str, bool] = {}
        # The threads are on their way into their functions, and a look may be torn.
        while states != {"compute": True, "wait_for_lock": False} and time.monotonic() < deadline:
            seen = look(real, workload.pid)
            if isinstance(seen.threads, Unknown):
                pytest.skip(f"py-spy does not work here: {seen.threads}")
            functions = [(frame.split(" ")[0], one.is_running) for one in seen.threads for frame in one.frames]
            states = {name: state for name, state in functions if name in ("compute", "wait_for_lock")}
        assert states == {"compute": True, "wait_for_lock": False}
        assert seen.cpu_ns > 0


def test_what_is_not_python_is_a_line(real: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as cat:
        assert f"process {cat.pid}" in reason(look(real, cat.pid).threads)
        assert cat.stdin is not None
        cat.stdin.close()


def test_without_time_nothing_is_waited_for(tmp_path: Path) -> None:
    dump = look(program(tmp_path, "echo '[]'"), os.getpid(), timeout_s=0.0)
    assert reason(dump.threads) == "py-spy was ended: it did not answer within 0 s (it is tried again by itself)"
