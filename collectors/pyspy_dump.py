"""One look at the interpreter of a process with py-spy: run it, read what it says, say what went wrong."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmtop import procfs, programs, remedies
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown, UnknownKind
from llmtop.text import clean, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 5.0
"""A look takes some 10 ms; py-spy may read from a process that changes under it for ever."""
CPU_LIMIT_S = 10
"""Of a CPU, from which on a look is ended by the kernel."""
MOST_BYTES = 16 << 20
"""2,000 threads of 30 frames: reading more of it would hold up the screen."""
MOST_FRAMES = 300
"""Of a stack, from the innermost out."""
LONGEST_NAME = 160
"""Characters of a function's or a file's name."""
PACKAGE = "py-spy"
_PTRACE_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
_DENIED = ("permission denied", "operation not permitted")
_NO_INTERPRETER = ("python version", "interpreter", "libpython")
_CHUNK = 1 << 16
"""Bytes of its output that are read at once."""


@frozen
class PythonThread:
    """One thread of an interpreter at one moment.

    Attributes:
        tid: As the process's own PID namespace counts.
        is_running: On a CPU or queued for one, as the kernel says.
        frames: "function (file.py:line)", root first, clean.
    """

    tid: int
    is_running: bool
    owns_gil: bool
    frames: tuple[str, ...]


@frozen
class Dump:
    """What one run of py-spy has said, and the processor time that it took."""

    threads: tuple[PythonThread, ...] | Unknown
    cpu_ns: int


@frozen
class _FinishedRun:
    """A finished run: `fault` is why it was ended early; empty when it ended by itself."""

    code: int
    output: bytes
    errors: bytes
    fault: str
    cpu_ns: int


def find_program() -> Path | None:
    """Where py-spy is: beside this interpreter, which sudo does not put on the PATH, or on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if os.access(beside, os.X_OK) else programs.find("py-spy")
    return Path(found) if found else None


def as_typed() -> str:
    """How a user here calls it to look at a process of their own; empty where it is not there.

    Yama lets nobody but root look at what is not their own child (Documentation/admin-guide/LSM/Yama.rst).
    """
    program = find_program()
    if program is None:
        return ""
    if os.geteuid() != 0 and (procfs.read_text("/proc/sys/kernel/yama/ptrace_scope") or "0").strip() != "0":
        return f"sudo {remedies.typed(program.absolute())}"
    found = programs.find("py-spy")
    return "py-spy" if found and program.samefile(found) else remedies.typed(program)


def look(program: Path, pid: int, timeout_s: float = TIMEOUT_S) -> Dump:
    """The Python stacks of a process, taken without stopping it.

    A frame may be torn where the interpreter moved on meanwhile: each is a guess, many together are a picture.
    """
    try:
        run = _run([str(program), "dump", "--json", "--nonblocking", "--pid", str(pid)], timeout_s)
    except OSError as error:
        return Dump(Unknown(f"py-spy cannot be started: {clean(str(error))}", remedies.install(PACKAGE)), 0)
    if run.fault:
        return Dump(
            Unknown(f"py-spy was ended: {run.fault}", "it is tried again by itself", UnknownKind.PASSING), run.cpu_ns
        )
    if run.code:
        return Dump(why_failed(pid, run.errors.decode("utf-8", "replace")), run.cpu_ns)
    return Dump(parse(run.output), run.cpu_ns)


def _run(argv: list[str], timeout_s: float) -> _FinishedRun:
    process = programs.start(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=programs.environment(RUST_BACKTRACE="0"),
        start_new_session=True,  # Ctrl+C is for llmtop
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with contextlib.suppress(OSError):  # it has ended already
        # One that reads for ever must end even where llmtop itself was killed meanwhile.
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    output, errors, fault = b"", b"", "llmtop failed to read it"
    try:
        output, errors, fault = _read(process.stdout.fileno(), process.stderr.fileno(), timeout_s)
    finally:
        process.stdout.close()
        process.stderr.close()
        if fault:
            os.kill(process.pid, signal.SIGKILL)  # Popen.kill may wait for it, and its cost would be lost
        _, status, usage = os.wait4(process.pid, 0)  # the cost of this child alone, which Popen.wait does not tell
        process.returncode = os.waitstatus_to_exitcode(status)
    return _FinishedRun(process.returncode, output, errors, fault, round((usage.ru_utime + usage.ru_stime) * NS_PER_S))


def _read(output: int, errors: int, timeout_s: float) -> tuple[bytes, bytes, str]:
    """Both pipes until they end, and why that was not waited for."""
    deadline = time.monotonic() + timeout_s
    kept: dict[int, list[bytes]] = {output: [], errors: []}
    size = 0
    with selectors.DefaultSelector() as selector:
        for pipe in kept:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return b"", b"", f"it did not answer within {timeout_s:g} s"
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    selector.unregister(key.fd)
                kept[key.fd].append(chunk)
                size += len(chunk)
            if size > MOST_BYTES:
                return b"", b"", f"it said more than {MOST_BYTES >> 20} MiB"
    return b"".join(kept[output]), b"".join(kept[errors]), ""


def why_failed(pid: int, said: str) -> Unknown:
    """One line for what py-spy wrote as it failed."""
    lower = said.lower()
    if any(word in lower for word in _DENIED):
        return why_denied(pid)
    if any(word in lower for word in _NO_INTERPRETER):
        reason = f"py-spy does not recognise the interpreter of process {pid}: it is stripped, or newer than py-spy"
        return Unknown(reason, remedies.install(PACKAGE, newer=True))
    lines = [line.removeprefix("Error: ") for line in said.splitlines() if line.strip()]
    words = shorten(clean(lines[0]), LONGEST_NAME) if lines else "it did not say why"
    return Unknown(f"py-spy failed on process {pid}: {words}", "it is tried again by itself", UnknownKind.PASSING)


def why_denied(pid: int) -> Unknown:
    """Why a process may not be read, as far as this machine's settings tell."""
    scope = (procfs.read_text(_PTRACE_SCOPE) or "").strip()
    reason = f"py-spy may not read process {pid}"
    if scope == "3":
        return Unknown(
            f"{reason}: ptrace_scope is 3, which forbids it until the next boot", "kernel.yama.ptrace_scope=1"
        )
    if os.geteuid() == 0:
        return Unknown(f"{reason}: this container has no CAP_SYS_PTRACE", "docker run --cap-add SYS_PTRACE ...")
    if scope in ("1", "2"):
        return Unknown(
            f"{reason}: ptrace_scope is {scope}", "sudo llmtop ... (or sudo sysctl kernel.yama.ptrace_scope=0)"
        )
    return Unknown(f"{reason}: it is another user's", "sudo llmtop ...")


def parse(output: bytes) -> tuple[PythonThread, ...] | Unknown:
    """The threads in what `py-spy dump --json` writes; those that make no sense are passed over."""
    try:
        document = json.loads(output)
    except (ValueError, RecursionError):
        return Unknown("py-spy wrote something that is not JSON", remedies.install(PACKAGE, newer=True))
    if not isinstance(document, list):
        return Unknown("py-spy wrote something that llmtop does not know", remedies.install(PACKAGE, newer=True))
    return tuple(thread for entry in document if (thread := _thread(entry)) is not None)


def _thread(entry: Any) -> PythonThread | None:
    if not isinstance(entry, dict):
        return None
    tid, frames = entry.get("os_thread_id"), entry.get("frames")
    if not isinstance(tid, int) or tid <= 0 or not isinstance(frames, list):
        return None
    names = tuple(_names(frames[:MOST_FRAMES]))[::-1]
    return PythonThread(tid, entry.get("active") is True, entry.get("owns_gil") is True, names)


def _names(frames: list[Any]) -> Iterator[str]:
    for frame in frames:
        if isinstance(frame, dict) and isinstance(frame.get("name"), str):
            place = frame.get("short_filename") or frame.get("filename")
            line = frame.get("line")
            known = f"{place}:{line}" if type(line) is int and line > 0 else str(place or "?")
            yield f"{shorten(clean(frame['name']), LONGEST_NAME)} ({shorten(clean(known), LONGEST_NAME)})"
