"""Recordings of `perf record`: only perf reads them, so its own `perf script` is asked for the samples."""

from __future__ import annotations

import subprocess
import tempfile
from typing import TYPE_CHECKING

from llmtop import programs
from llmtop.errors import FileError
from llmtop.parsers import progress
from llmtop.parsers.text_lines import PERF_DATA
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO

_ELSEWHERE = "print it where it was recorded (perf script --header -i perf.data > samples.perf.txt) and open that"
_TOLD = 1 << 16
_EACH = 1 << 14
"""Lines from one look to the next whether anybody still waits."""


def is_recording(head: bytes) -> bool:
    """Whether `perf record` wrote what begins so."""
    return head.startswith(PERF_DATA)


def events(path: Path) -> frozenset[str]:
    """What a recording is of, as `perf evlist` has it.

    Raises:
        FileError: There is no perf, or it cannot read the file.
    """
    return frozenset(line.partition(": ")[0].strip() for line in printed(path, "evlist"))


def samples(path: Path) -> Iterator[str]:
    """The samples of a recording with their stacks.

    The fields of a stack are named: once any field is, perf leaves them out of tracepoints and probes by itself.

    Raises:
        FileError: As `printed`.
    """
    return printed(path, "script", "--header", "-F", "+pid,+ip,+sym,+symoff,+dso")


def printed(path: Path, *question: str) -> Iterator[str]:
    """The lines that a subcommand of perf prints of a recording, whoever owns it; it asks no server for symbols.

    Raises:
        FileError: There is no perf, or it cannot read the file.
    """
    perf = programs.find("perf")
    if perf is None:
        why = clean(programs.why_none("perf"))
        raise FileError(f"{path} can only be read by perf, and {why}: sudo apt install linux-perf; or {_ELSEWHERE}")
    command = [perf, question[0], "--force", "-i", str(path.absolute()), *question[1:]]
    environment = programs.environment(DEBUGINFOD_URLS="", LC_ALL="C", PERF_CONFIG="/dev/null")
    with tempfile.TemporaryFile() as complaints:
        process = programs.start(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=environment,
            encoding="utf-8",
            errors="replace",
        )
        with process:
            try:
                assert process.stdout is not None
                yield from _watched(process.stdout, path)
                code = process.wait()
            finally:
                process.kill()
                progress.current().text = ""
        if code:
            raise FileError(f"{path} cannot be read by {perf}{_last_line(complaints)}; {_ELSEWHERE}")


def _watched(lines: IO[str], path: Path) -> Iterator[str]:
    for number, line in enumerate(lines):
        if not number % _EACH:
            now = progress.current()
            if now.is_stopped:
                raise FileError(f"{path}: perf was stopped")
            now.text = f"perf prints it, {number} lines so far: {now.stopped_by} stops it"
        yield line.removesuffix("\n")


def _last_line(complaints: IO[bytes]) -> str:
    complaints.seek(0)
    lines = complaints.read(_TOLD).decode("utf-8", "replace").splitlines()
    told = [clean(line.strip()) for line in lines if line.strip()]
    return f": {told[-1][:200]}" if told else ""
